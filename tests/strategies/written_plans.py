"""Plans written down, good or bad, that nobody searched for; and small problems to have them of."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import lcm
from random import Random
from typing import Any

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.hardware.array import COLLECTIVES, Array
from hypar_opt.hardware.arrays import find_array
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import layouts_of, price
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.plan import words_of
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.parallelism import CHOICES, SETS_OF_CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_ADDENDS
from tests.strategies.arrays import random_array
from tests.strategies.plans import Asked, Rows
from tests.strategies.problems import random_network


def written(network: ho.Network, scope: str, **asked: Any) -> Callable[[Rows], ho.Plan]:
    """Return what writes down the plan of a network that makes some choices, levels x layers."""
    constraints = {"runnable": False}
    problem = problem_of(**{**asked, "constraints": constraints | asked.get("constraints", {})})
    plan = ho.solve(network, solver="data", **{**asked, "constraints": constraints})
    plan = plan.model_copy(update={"constraints": problem.constraints})
    # Of the plan: what the search chose of its training is as stated.
    return partial(claiming, plan, Instance.of_plan(plan), scope=scope)


def claiming(plan: ho.Plan, instance: Instance, rows: Rows, **claims: Any) -> ho.Plan:
    """Return a plan with other choices, and what they cost, of which its solver claims more."""
    update = {
        "parallelism": words_of(rows, plan.words),
        "layouts": layouts_of(instance, rows),
        "cost": price(instance, rows),
        "solver": plan.solver.model_copy(update=claims),
    }
    return plan.model_copy(update=update)


def choosing(plan: ho.Plan, rows: Rows) -> ho.Plan:
    """Return a plan with other choices and, wrongly, the cost of its own."""
    layouts = layouts_of(Instance.of_plan(plan), rows)
    return plan.model_copy(update={"parallelism": words_of(rows, plan.words), "layouts": layouts})


def storing(plan: ho.Plan, tensors: Sequence[Mapping[int, int]]) -> ho.Plan:
    """Return a plan with shared tensors in given layouts, by level, and its cost with these."""
    instance, rows = Instance.of_plan(plan), plan.assignments()
    cost, layouts = price(instance, rows, tensors), layouts_of(instance, rows, tensors)
    return plan.model_copy(update={"cost": cost, "layouts": layouts})


def every_rows(layers: int, levels: int, choices: int) -> Iterator[Rows]:
    """Every plan's choices, levels x layers."""
    row = list(itertools.product(range(choices), repeat=layers))
    return itertools.product(row, repeat=levels)


def fully_connected(*features: int) -> ho.Network:
    """Return a chain of fully-connected layers between so many features."""
    layers = [{"name": f"fc{n}", "kind": "fc", "units": u} for n, u in enumerate(features[1:], 1)]
    described = {"name": "chain", "input": {"features": features[0]}, "layer": layers}
    return ho.Network.model_validate(described)


def random_written_problem(rng: Random, cost: str, reading: str) -> tuple[ho.Network, Asked]:
    """A chain or a graph, and what is asked of a search: all but constraints, on any array."""
    network = random_graph(rng, most=rng.randint(1, 4))
    if rng.random() < 0.4:
        network = random_network(rng, 4)
    levels = rng.randint(1, 3)
    choices = CHOICES[: 2 + (reading != "figures" and rng.random() < 0.5)]
    return network, _random_asked(rng, cost, reading, levels, choices)


def random_token_problem(
    rng: Random, cost: str, reading: str = "executed"
) -> tuple[ho.Network, Asked]:
    """As `random_written_problem`, of layers that may be split by token, or take addends."""
    sizes = rng.choice([(2,), (3,), (2, 2), (2, 3)])
    of_tokens = [own for own in SETS_OF_CHOICES if "tokens" in own and {*own} <= {*WITH_ADDENDS}]
    choices = rng.choice(of_tokens)
    asked = _random_asked(rng, cost, reading, len(sizes), choices)
    if "array" not in asked:
        asked |= {"hierarchy": sizes, "whole_levels": True}
    while True:
        network = random_graph(rng, most=rng.randint(1, 4))
        own = {*itertools.chain(*own_columns(network, asked))}
        if own.issuperset(map(choices.index, {*choices} - {*CHOICES})):
            return network, asked


def _random_asked(
    rng: Random, cost: str, reading: str, levels: int, choices: Sequence[str]
) -> Asked:
    asked: Asked = {
        "cost": cost,
        "reading": reading,
        "batch": rng.choice([1, 2, 3, 8, 64]),
        "choices": choices,
        "element_bytes": rng.choice([1, 2, 4, 8]),
        "inference": rng.random() < 0.2,
    }
    if cost == "bytes":
        weights = tuple(rng.randint(1, 4) for _ in range(levels)) if rng.random() < 0.3 else ()
        return asked | {"levels": levels, "level_weights": weights}
    of_parts = reading in RUN_READINGS and rng.random() < 0.7
    array = random_array(rng, levels, detailed=True, of_parts=of_parts)
    if of_parts:
        array = array.with_whole_levels() if rng.random() < 0.5 else array
        described = {**array.description(), "collective": rng.choice(COLLECTIVES)}
        if rng.random() < 0.5:
            described["bucket"] = rng.choice(["20 B", "200 B", "20 kB"])
        array = validate(Array, described)
        asked["batch"] *= lcm(*array.hierarchy().sizes)
    return asked | {"array": array, "placement": rng.choice(list(array.orders()))}


def in_parts(rng: Random, asked: Asked) -> Asked:
    """Return what is asked of as many levels, of two to six parts each."""
    sizes = tuple(rng.randint(2, 6) for _ in range(asked["levels"]))
    batch = asked["batch"] * lcm(*sizes)
    return {**asked, "hierarchy": sizes, "whole_levels": True, "batch": batch}


def random_rows(rng: Random, network: ho.Network, asked: Asked) -> Rows:
    """Return any plan's choices of a problem."""
    levels = asked["array"].levels if "array" in asked else asked["levels"]
    own = own_columns(network, asked)
    return tuple(tuple(map(rng.choice, own)) for _ in range(levels))


def own_columns(network: ho.Network, asked: Asked) -> list[list[int]]:
    """Return the choices that each layer has, but whole ones that need a reason."""
    runs = asked["reading"] in RUN_READINGS
    workload = workload_of(network, asked["batch"], asked["choices"], shared_tensors=runs)
    return [
        [column for column, choice in enumerate(choices) if choice and not choice.last_resort]
        for choices in workload.choices_of_nodes[workload.shared :]
    ]


def with_collective(array: Array, collective: str) -> Array:
    """Return the array as one whose sums are made that way."""
    return validate(Array, {**array.description(), "collective": collective})


def with_loss(name: str, loss: str) -> Array:
    """Return a preset as one that takes its loss that way."""
    described = find_array(name).description()
    return validate(Array, {**described, "accelerator": {**described["accelerator"], "loss": loss}})
