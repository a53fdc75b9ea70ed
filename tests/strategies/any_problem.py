"""Problems of any kind that a search takes, and what is asked of it."""

from __future__ import annotations

from math import lcm
from random import Random
from typing import Any

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.hardware.array import COLLECTIVES, Array
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.stated import stated_problem
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.parallelism import (
    RECOMPUTED,
    SETS_OF_CHOICES,
    SHARDED,
)
from tests.execution.small_networks import gpt
from tests.strategies.arrays import random_array
from tests.strategies.groups import GROUPS, of_counts, some_share
from tests.strategies.mixtures import mixture
from tests.strategies.plans import Asked
from tests.strategies.problems import random_network

MOST_STATES = 2**6
"""Of a layer over all levels: more take a search long."""


def any_problem(seed: int) -> tuple[ho.Network, Asked]:
    """A network and the arguments of a search, which may have no plan.

    Of time, bytes or energy; on groups of accelerators, on levels of any parts or without an array;
    within a memory that often binds; with pins, and with training that is stated in part.
    """
    rng = Random(seed)
    network = _network(rng)
    asked = _asked(rng, network)
    constraints: dict[str, Any] = {"runnable": rng.random() < 0.6}
    if rng.random() < 0.2:
        constraints["even"] = True
    if rng.random() < 0.5:
        constraints["optimizer"] = rng.choice(["sgd", "momentum", "adam", 3])
    if rng.random() < 0.25:
        layer = rng.choice(network.layers).name
        constraints["fix"] = (f"{layer}=data",)
    asked["constraints"] = constraints
    if "array" in asked and rng.random() < 0.7:
        _limit(rng, network, asked)
    return network, asked


def _network(rng: Random) -> ho.Network:
    match rng.randrange(5):
        case 0:
            return random_network(rng, 4)
        case 1:
            return gpt(tied=rng.random() < 0.5, blocks=rng.choice([1, 2]))
        case 2:
            return mixture(rng.randrange(10**6))
        case _:
            return random_graph(rng, most=rng.randint(1, 4))


def _asked(rng: Random, network: ho.Network) -> Asked:
    asked: Asked = {"batch": rng.choice([1, 2, 4, 6, 8, 12, 48])}
    choices = rng.choice([own for own in SETS_OF_CHOICES if len(own) <= rng.randint(2, 5)])
    asked["element_bytes"] = rng.choice([1, 2, 4, 8])
    asked["inference"] = rng.random() < 0.1
    if rng.random() < 0.15:
        sizes = tuple(rng.randint(2, 4) for _ in range(rng.randint(1, 3)))
        asked |= {"hierarchy": sizes, "whole_levels": True, "cost": "bytes"}
    elif rng.random() < 0.3:
        array = of_counts(rng.choice([*GROUPS]))
        asked |= {"array": array, "cost": "time"}
        if rng.random() < 0.5:
            asked["share"] = some_share(rng, array)
        sizes = array.hierarchy().sizes
        choices = tuple(c for c in choices if c not in ("rows", "columns", "addends"))
    else:
        array = random_array(rng, rng.randint(1, 3), detailed=True, of_parts=rng.random() < 0.5)
        described = {**array.description(), "collective": rng.choice(COLLECTIVES)}
        if rng.random() < 0.4:
            described["bucket"] = rng.choice(["20 B", "200 B", "20 kB"])
        if rng.random() < 0.3:
            described["accelerator"] |= {"reserve": "100 B"}
        array = validate(Array, described)
        asked |= {"array": array, "cost": rng.choice(["time", "time", "time", "bytes", "energy"])}
        sizes = array.hierarchy().sizes
    if rng.random() < 0.5:
        asked["batch"] *= lcm(*sizes)
    while len(choices) ** len(sizes) > MOST_STATES:
        choices = choices[:-1]
    asked |= {"choices": choices, "reading": "executed"}
    while _lacks(network, asked):
        asked["choices"] = asked["choices"][:-1]
    if asked["cost"] == "bytes" and rng.random() < 0.3:
        asked["search"] = rng.choice(["levelwise", "joint"])
    if "array" in asked and not asked["inference"]:
        asked["training"] = _training(rng, asked["batch"])
    return asked


def _lacks(network: ho.Network, asked: Asked) -> bool:
    """Return whether no layer has one of the choices, which a search refuses."""
    try:
        free: Any = {**asked, "constraints": {}}
        described, problem = stated_problem(network, free)
        _ = Instance(described, problem).cost
    except ho.HyparError as error:
        return str(error).startswith("choices: ")
    return False


def _training(rng: Random, batch: int) -> dict[str, Any]:
    """State some of how a step trains, or nothing."""
    counts = [n for n in range(1, min(batch, 8) + 1) if batch % n == 0]
    every = {
        "micro_batches": rng.choice(counts),
        "recompute": rng.choice(RECOMPUTED),
        "shard": rng.choice(SHARDED),
    }
    return {name: own for name, own in every.items() if rng.random() < 0.25}


def _limit(rng: Random, network: ho.Network, asked: Asked) -> None:
    """State a memory, or give the array one, near to what Data Parallelism takes."""
    free: dict[str, Any] = {"constraints": {"runnable": False}, "cost": "bytes", "solver": "data"}
    own = {name: value for name, value in asked.items() if name not in ("search", "share")}
    try:
        taken = ho.memory(ho.solve(network, **{**own, **free})).total
    except ho.HyparError:
        return
    reserves = [int(own.reserve or 0) for own in asked["array"].accelerators_of_parts]
    memory = max(1 + max(reserves), int(taken * rng.choice([0.3, 0.6, 0.8, 0.95, 1, 1.2])))
    if rng.random() < 0.5:
        asked["constraints"]["memory"] = memory
        return
    described = asked["array"].description()
    accelerators = described["accelerator"]
    for each in accelerators if isinstance(accelerators, list) else [accelerators]:
        each["dram_capacity"] = f"{memory} B"
    asked["array"] = validate(Array, described)
