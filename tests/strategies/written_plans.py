"""Plans written down, good or bad, that nobody searched for; and small problems to have them of."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.hardware.array import Array
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import layouts_of, price
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.plan import words_of
from hypar_opt.workload.parallelism import CHOICES
from tests.strategies.arrays import arrays
from tests.strategies.networks import networks
from tests.strategies.plans import Asked, Rows


def written(network: ho.Network, scope: str, **asked: Any) -> Callable[[Rows], ho.Plan]:
    """Return what writes down the plan of a network that makes some choices, levels x layers."""
    problem = problem_of(**asked)
    plan = ho.solve(network, solver="data", **{**asked, "constraints": {}})
    plan = plan.model_copy(update={"constraints": problem.constraints})
    return partial(claiming, plan, Instance(network, problem), scope=scope)


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


def every_rows(layers: int, levels: int, choices: int) -> Iterator[Rows]:
    """Every plan's choices, levels x layers."""
    row = list(itertools.product(range(choices), repeat=layers))
    return itertools.product(row, repeat=levels)


def fully_connected(*features: int) -> ho.Network:
    """Return a chain of fully-connected layers between so many features."""
    layers = [{"name": f"fc{n}", "kind": "fc", "units": u} for n, u in enumerate(features[1:], 1)]
    described = {"name": "chain", "input": {"features": features[0]}, "layer": layers}
    return ho.Network.model_validate(described)


@st.composite
def small_problems(
    draw: st.DrawFn, *, cost: str, reading: str, restricted: bool = False
) -> tuple[ho.Network, Asked]:
    """A network, and what is asked of it, of so few plans that all can be looked at."""
    network = draw(networks(longest=3))
    third = reading != "figures" and draw(st.booleans())
    choices = CHOICES[: 2 + third]
    levels = 2 if len(choices) ** (2 * len(network.layers)) <= 81 else 1
    asked: Asked = {
        "cost": cost,
        "reading": reading,
        "levels": levels,
        "batch": draw(st.integers(1, 9)),
        "element_bytes": draw(st.sampled_from([1, 2, 4, 8])),
        "inference": draw(st.booleans()),
        "choices": choices,
    }
    if cost == "bytes":
        if draw(st.booleans()):
            asked["level_weights"] = tuple(draw(st.integers(1, 4)) for _ in range(levels))
    else:
        array = draw(arrays(levels, least_levels=levels))
        asked |= {"array": array, "placement": draw(st.sampled_from(list(array.orders())))}
    if restricted:
        asked["constraints"] = draw(restrictions(network, asked))
    return network, asked


@st.composite
def restrictions(draw: st.DrawFn, network: ho.Network, asked: Asked) -> Asked:
    """Pins that do not contradict each other, even splits, memory: some of them."""
    pins = {
        f"{layer.name}@H{level}={draw(st.sampled_from(asked['choices']))}"
        for layer in network.layers
        for level in range(1, asked["levels"] + 1)
        if draw(st.integers(0, 3)) == 0
    }
    if not pins and draw(st.booleans()):
        pins = {f"{network.layers[0].name[:-1]}*={draw(st.sampled_from(asked['choices']))}"}
    elements = ho.Workload.of(ho.layer_graph(network), asked["batch"]).elements
    return {
        "fix": tuple(sorted(pins)),
        "even": draw(st.booleans()),
        "memory": draw(st.none() | st.integers(1, 8 * elements)),
        "optimizer": draw(st.sampled_from(["sgd", "momentum", "adam", 3])),
    }


def with_collective(array: Array, collective: str) -> Array:
    """Return the array as one whose sums are made that way."""
    return validate(Array, {**array.description(), "collective": collective})
