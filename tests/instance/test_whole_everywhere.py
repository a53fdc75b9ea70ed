"""Networks of awkward sizes always have an even plan: every kind may be whole as a last resort.

Of each layer the axes and their sizes are written down; all its states that divide them are kept
that are whole in the fewest parts. The least of all plans of such states is what a search finds.
"""

from __future__ import annotations

import itertools
from math import prod
from typing import Any, NamedTuple

import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.plan import columns_of
from tests.slow import slow_after
from tests.strategies.plans import Rows, totals_of

SIZES = ((2,), (3,), (2, 2), (2, 3))
BATCHES = (1, 3)


class Axes(NamedTuple):
    """What a layer splits, beside the batch: the word of a choice, and the size of its axis."""

    model: tuple[str, int]
    output: tuple[str, int] | None = None
    may_be_whole: bool = False
    """Whether that is one of its choices, where a problem has three, and no last resort."""
    sums: bool = False
    """Whether a split of its channels sums over them, which it does not beside replicas."""


def conv(into: int, out: int) -> Axes:
    return Axes(("model", into), ("output", out))


def channels(size: int) -> Axes:
    return Axes(("channel", size), may_be_whole=True)


def loss(size: int) -> Axes:
    return Axes(("channel", size), sums=True)


IMAGE = {"channels": 3, "height": 2, "width": 2}
WORDS = {"tokens": 3, "vocabulary": 7}
NETWORKS: dict[str, tuple[dict[str, int], list[dict[str, Any]], list[Axes]]] = {
    "primes": (
        {"channels": 3, "height": 1, "width": 1},
        [{"kind": "fc", "units": 5, "bias": True}, {"kind": "fc", "units": 7}, {"kind": "output"}],
        [conv(3, 5), conv(5, 7), loss(7)],
    ),
    "three channels": (
        IMAGE,
        [
            {"kind": "conv", "filters": 5, "kernel": 1},
            {"kind": "norm", "norm": "batch"},
            {"kind": "global_pool", "over": "max"},
            {"kind": "fc", "units": 4, "bias": True},
        ],
        [conv(3, 5), channels(5), channels(5), conv(5, 4)],
    ),
    "groups": (
        IMAGE,
        [
            {"kind": "conv", "filters": 9, "kernel": 1, "groups": 3},
            {"kind": "conv", "filters": 9, "kernel": 2, "groups": 9},
            {"kind": "fc", "units": 5},
        ],
        [Axes(("channel", 3)), Axes(("channel", 9)), conv(9, 5)],
    ),
    "a residual": (
        IMAGE,
        [
            {"kind": "conv", "filters": 3, "kernel": 1},
            {"kind": "conv", "filters": 3, "kernel": 1},
            {"kind": "add", "inputs": ["l0", "l1"]},
            {"kind": "conv", "filters": 5, "kernel": 2},
        ],
        [conv(3, 3), conv(3, 3), channels(3), conv(3, 5)],
    ),
    "tied words": (
        WORDS,
        [
            {"kind": "embedding", "features": 5},
            {"kind": "norm", "norm": "rms"},
            {"kind": "fc", "units": 7, "tied": "l0"},
            {"kind": "output"},
        ],
        [
            Axes(("output", 5), ("vocabulary", 7)),
            channels(5)._replace(sums=True),
            conv(5, 7),
            loss(7),
        ],
    ),
    "one head": (
        {"tokens": 3, "features": 5},
        [
            {"kind": "fc", "units": 15},
            {"kind": "attention", "heads": 1},
            {"kind": "fc", "units": 5},
        ],
        [conv(5, 5), Axes(("heads", 1)), conv(5, 5)],  # queries, keys and values, each by itself
    ),
    "experts": (
        {"tokens": 3, "features": 5},
        [
            {"kind": "router", "experts": 3, "top_k": 1},
            {"kind": "dispatch", "inputs": ["input", "l0"]},
            {"kind": "experts", "units": 4},
            {"kind": "combine", "inputs": ["l2", "l0"]},
        ],
        [Axes(("model", 5)), *[Axes(("experts", 3))] * 3],
    ),
}


def network_of(name: str) -> ho.Network:
    given, layers, _ = NETWORKS[name]
    named = [{"name": f"l{n}", **layer} for n, layer in enumerate(layers)]
    schema = "hypar-opt/network/2"
    return validate(ho.Network, {"name": name, "schema": schema, "input": given, "layer": named})


def states_of(axes: Axes, sizes: tuple[int, ...], batch: int, choices: int) -> list[Any]:
    """The words of a layer at each level in all its states: as little whole as can be."""
    splits = {"data": batch, axes.model[0]: axes.model[1]}
    if axes.output and choices == 3:
        splits[axes.output[0]] = axes.output[1]

    def even(words: tuple[str, ...]) -> bool:
        made = zip(words, sizes, strict=True)
        parts = dict.fromkeys(words, 1)
        for word, size in made:
            parts[word] *= size
        return all(splits[word] % n == 0 for word, n in parts.items() if word != "whole")

    def whole(words: tuple[str, ...]) -> int:
        return prod(n for word, n in zip(words, sizes, strict=True) if word == "whole")

    every = filter(even, itertools.product((*splits, "whole"), repeat=len(sizes)))
    states = list(every)
    if axes.may_be_whole and choices == 3:
        return states
    if axes.sums and min(map(whole, states)) > 1:
        states = [words for words in states if axes.model[0] not in words]
    return [words for words in states if whole(words) == min(map(whole, states))]


CASES = [
    (name, sizes, batch, choices)
    for choices, batch in ((3, 1), (2, 3), (3, 3), (2, 1))
    for name in NETWORKS
    for sizes in SIZES
]


@pytest.mark.parametrize(("name", "sizes", "batch", "choices"), slow_after(15, CASES))
def test_an_even_plan_is_the_least_of_those_that_are_as_little_whole_as_can_be(
    name: str, sizes: tuple[int, ...], batch: int, choices: int
) -> None:
    network, constraints = network_of(name), {"even": True}
    asked: Any = {
        "hierarchy": sizes,
        "batch": batch,
        "choices": ("data", "model", "output")[:choices],
        "reading": "executed",
        "constraints": constraints,
    }
    plan = ho.solve(network, search="joint", **asked)
    instance = Instance.to_search(network, problem_of(network, **asked))
    words = network.words(instance.problem.choices)
    kept = [states_of(axes, sizes, batch, choices) for axes in NETWORKS[name][2]]
    plans: list[Rows] = [
        columns_of(tuple(zip(*columns, strict=True)), words) for columns in itertools.product(*kept)
    ]
    totals = totals_of(instance.workload, instance.cost, plans, rule=instance.rule)
    assert plan.cost.total == plan.solver.bound == min(totals)
    assert plan.assignments() in plans
    ho.check_certificate(plan, ho.certify(plan))
    level_by_level = ho.solve(network, search="levelwise", **asked)
    assert level_by_level.cost.total >= plan.cost.total
    for own in (plan, level_by_level):
        step = ho.run(own)
        assert step.agrees
        assert all(row.modelled == row.counted for row in step.exchanges)
