"""The time of exchanges between uneven parts, counted device by device, in every small case."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.state_charges import states_of
from hypar_opt.costs.state_table import StateTable
from hypar_opt.costs.time import TimeCost
from hypar_opt.documents.document import validate
from hypar_opt.hardware.array import Array
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.proofs.check import operations
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.step.uneven import padded, padded_sizes
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.parallelism import CHOICES
from tests.hardware.cubes import cubes
from tests.slow import slow_off_diagonal

HIERARCHIES = [(2,), (3,), (2, 2), (2, 3), (3, 2)]


def part_sizes(size: int, sizes: tuple[int, ...]) -> list[int]:
    """An axis divided level by level: the first parts have an index more."""
    parts = [size]
    for n in sizes:
        parts = [part // n + (number < part % n) for part in parts for number in range(n)]
    return parts


@pytest.mark.parametrize("sizes", HIERARCHIES)
def test_the_longest_part_is_that_of_an_axis_divided_level_by_level(sizes: tuple[int, ...]) -> None:
    hierarchy = Hierarchy(sizes)
    for first, second in itertools.product(range(1, 14), repeat=2):
        for state in itertools.product(range(3), repeat=len(sizes)):
            made = [[n for n, c in zip(sizes, state, strict=True) if c == own] for own in range(3)]
            parts = [part_sizes(first, tuple(made[0])), part_sizes(second, tuple(made[1]))]
            longest = max(parts[0]) * max(parts[1]) * len(parts[0]) * len(parts[1])
            axes = np.array([first, second, 0])
            states = [np.array(state)[:, None]]
            uneven = padded_sizes(axes[:, None], states, hierarchy)
            # A tensor of both axes counts as one of parts that are all like the longest.
            (amount,) = padded(np.array([first * second]), uneven).tolist()
            assert amount == longest
            for some in (1, 7, 10**6 + 3):
                (rounded,) = padded(np.array([some]), uneven).tolist()
                # The proofs' own derivation rounds axis by axis, too.
                split = [operations.SplitAxis(*own) for own in enumerate(axes.tolist())]
                assert rounded == operations.padded(
                    some, operations.padded_axes(split, state, sizes)
                )
                exact = Fraction(some * longest, first * second)
                assert exact <= rounded < exact + 1 + Fraction(longest, second)


LINK = {"bandwidth": "1 GB/s", "latency": "1 us"}
TOPOLOGIES: dict[str, dict[str, Any]] = {
    "(3,)": {"kind": "ring", "accelerators": 3},
    "(2, 2)": {"kind": "ring", "accelerators": 4},
    "(2, 3)": {"kind": "nodes", "nodes": 2, "per_node": 3, "fabric": {"bandwidth": "500 MB/s"}},
}


def chain(*units: int) -> ho.Network:
    layers = [{"name": f"fc{n}", "kind": "fc", "units": size} for n, size in enumerate(units[1:])]
    return validate(
        ho.Network,
        {
            "name": "uneven",
            "input": {"channels": units[0], "height": 1, "width": 1},
            "layer": layers,
        },
    )


def asked_of(topology: str, collective: str) -> dict[str, Any]:
    data = cubes(**TOPOLOGIES[topology], link=LINK)
    array = validate(Array, data | {"collective": collective})
    return {
        "array": array,
        "cost": "time",
        "choices": CHOICES,
        "reading": "executed",
        "constraints": {"runnable": False},
    }


def longer_than_mean(
    sizes: dict[str, int], state: tuple[str, ...], parts: tuple[int, ...]
) -> Fraction:
    """How many times the mean the longest part of a tensor of some axes is."""
    longer = Fraction(1)
    for word, size in sizes.items():
        own = part_sizes(size, tuple(n for n, c in zip(parts, state, strict=True) if c == word))
        longer *= Fraction(max(own) * len(own), size)
    return longer


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_each_exchange_of_each_plan_takes_as_long_as_the_longest_part(topology: str) -> None:
    """The bytes of a run, times how much longer the longest part is than the mean one."""
    network, batch = chain(3, 5, 7), 5
    asked = asked_of(topology, "pairwise")
    instance = Instance(network, problem_of(batch=batch, **asked))
    cost, workload, hierarchy = instance.cost, instance.workload, instance.problem.hierarchy
    assert isinstance(cost, TimeCost)
    exchanges = cost.communication_only()
    states = states_of(workload, hierarchy.levels)
    table = StateTable.of(exchanges, workload, hierarchy.levels).dense()
    read = [{"data": batch, "model": size} for size in (3, 5)]
    written = [{"data": batch, "output": size} for size in (5, 7)]
    weights = [{"model": one, "output": other} for one, other in ((3, 5), (5, 7))]
    link = {n: cost.rates(n) for n in range(hierarchy.levels)}
    for columns in itertools.product(range(len(states)), repeat=2):
        rows = list(zip(*(states[column] for column in columns), strict=True))
        words = [tuple(CHOICES[c] for c in states[column]) for column in columns]
        charged = table.node[range(2), columns].sum() + table.edge[0][columns]
        # Partial sums cross the topmost of their levels once, gradients too where it has two parts.
        expected, count = Fraction(), 0
        tops: Counter[tuple[Any, ...]] = Counter()
        for exchange in exchanges_of_step(Program(workload, rows, hierarchy)):
            phase, kind, level = exchange.phase, exchange.kind, exchange.level
            node, boundary = exchange.node, exchange.boundary
            if boundary is not None:
                longer = max(
                    longer_than_mean(written[0], words[0], hierarchy.sizes),
                    longer_than_mean(read[1], words[1], hierarchy.sizes),
                )
            else:
                axes = weights[node] if phase == "gradient" else written[node]
                longer = longer_than_mean(axes, words[node], hierarchy.sizes)
            pace, latency = link[level]
            rounds = hierarchy.sizes[level] - 1
            topmost = (
                level
                == min(
                    n
                    for n, word in enumerate(words[node])
                    if word == ("data" if phase == "gradient" else "model")
                )
                if boundary is None
                else False
            )
            often = 2 if kind == "all-reduce" and not (topmost and rounds == 1) else 1
            expected += exchange.elements * 4 * longer * pace + often * rounds * latency
            count += 1
            tops[phase, node, boundary] += 1
        # Amounts are rounded up to quarters of an element, and times to whole units.
        slack = max(pace for pace, _ in link.values()) * 3 + 1
        assert expected - count <= charged <= expected + count * slack, words


@pytest.mark.parametrize(
    ("topology", "collective"), slow_off_diagonal([*TOPOLOGIES], ["pairwise", "ring"])
)
def test_search_simulator_and_proof_agree_on_every_plan(topology: str, collective: str) -> None:
    training = {"micro_batches": 1, "shard": "none"}
    network, asked = chain(3, 5, 7), asked_of(topology, collective) | {"training": training}
    instance = Instance(network, problem_of(batch=5, **asked))
    table = StateTable.of(instance.cost, instance.workload, instance.problem.levels).dense()
    totals = table.node[0][:, None] + table.edge[0] + table.node[1]
    plan = ho.solve(network, batch=5, **asked)
    assert plan.cost.total == plan.solver.bound == totals.min()
    ho.check_certificate(plan, ho.certify(plan))
    for solver in ("brute", "cpsat"):
        assert ho.solve(network, batch=5, solver=solver, **asked).cost.total == plan.cost.total
    words = [tuple(CHOICES[c] for c in s) for s in states_of(instance.workload, plan.levels)]
    step_seconds = []
    for first, second in [(0, len(words) - 1), (len(words) // 2, 1), (1, 2)]:
        pins = [
            f"fc{n}@H{level}={word}"
            for n, own in enumerate((words[first], words[second]))
            for level, word in enumerate(own, 1)
        ]
        pinned = ho.solve(
            network, batch=5, **asked | {"constraints": {"runnable": False, "fix": pins}}
        )
        assert pinned.cost.total == totals[first, second]
        assert sum(map(Fraction, pinned.cost.per_level)) == pinned.cost.total
        step = ho.simulate(pinned)
        assert step.closed_form == pytest.approx(step.seconds, rel=1e-12)
        assert step.seconds * per_second(plan) == pytest.approx(float(pinned.cost.total), rel=1e-9)
        assert pinned.cost.executed_bytes == sum(level.bytes for level in step.levels)
        step_seconds.append(step.seconds)
    assert len(set(step_seconds)) > 1
