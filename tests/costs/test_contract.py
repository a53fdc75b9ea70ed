"""What follows from a cost's charge of an operation: levels, classes and thresholds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from hypar_opt.costs.base import CostModel
from hypar_opt.costs.state_charges import choices_by_level
from hypar_opt.costs.state_table import StateTable
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.errors import HyparError
from hypar_opt.instance.instance import Instance
from hypar_opt.models import load
from hypar_opt.plan.arguments import problem_of
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.operations import Amount, Collective
from hypar_opt.step.readings import READINGS
from hypar_opt.step.states import exact_sum
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.parallelism import CHOICES
from tests.search.test_classes import drawn
from tests.slow import slow_after
from tests.strategies.problems import random_network

Charge = Callable[[Collective], Amount]


class Plain(CostModel):
    """Bytes, as an author writes them."""

    unit, resolution = "bytes", 4

    def charge(self, operation: Collective) -> Amount:
        return operation.quarters * self.problem.element_bytes


class Stated(Plain):
    """A cost whose charge is stated."""

    stated: Charge

    def charge(self, operation: Collective) -> Amount:
        return self.stated(operation)


def stated(instance: Instance, charge: Charge) -> Stated:
    cost = Stated(instance.problem, instance.workload)
    cost.stated = charge
    return cost


def in_bytes(seed: int) -> Instance:
    """A random problem in bytes that weigh the same at all levels."""
    own = drawn(seed)
    update = {"cost": "bytes", "level_weights": (), "element_bytes": 4}
    return Instance(own.network, own.problem.model_copy(update=update))


@pytest.mark.parametrize("seed", slow_after(20, range(200)))
def test_bytes_that_declare_nothing_are_charged_and_searched_as_ours(seed: int) -> None:
    instance = in_bytes(seed)
    workload, levels = instance.workload, instance.problem.levels
    ours, theirs = instance.cost, Plain.from_problem(instance.problem, workload)
    rng = np.random.default_rng(seed)
    states = rng.integers(0, len(workload.choices), (levels, len(workload.nodes), 30))
    nodes, edges = np.arange(len(workload.nodes)), np.arange(len(workload.ends))
    ends = ([states[:, end]] for end in workload.ends.T)
    sources, targets = ends
    for one, other in (
        (cost.node(workload, nodes[:, None], [states]) for cost in (ours, theirs)),
        (cost.edge(workload, edges[:, None], sources, targets) for cost in (ours, theirs)),
    ):
        assert all((4 * row == their).all() for row, their in zip(one, other, strict=True))
    groups, same = (cost.symmetries(workload, levels).level_groups for cost in (ours, theirs))
    assert groups == same
    table, thresholds = (cost.thresholds(workload, levels) for cost in (ours, theirs))
    assert (table is None) == (thresholds is None)
    if table is not None and thresholds is not None:
        weights = workload.is_weight_boundary  # penalties, which are no charges
        for column in ("data", "model"):
            assert (4 * getattr(table, column) == getattr(thresholds, column)).all()
        pairs = (np.array(own.pairs)[:, ~weights] for own in (table, thresholds))
        assert np.equal(*(factor * own for factor, own in zip((4, 1), pairs, strict=True))).all()


def random_charge(rng: Random, levels: int) -> Charge:
    """A charge in proportion to what moves, or in some other way, perhaps by level and pass."""
    weights = [rng.choice([1, 1, 1, 2]) for _ in range(levels)]
    most = rng.choice([1, 100, 10_000])
    form: Callable[[Any], Any] = rng.choice(
        [
            lambda moved: moved,
            lambda moved: moved > 0,
            lambda moved: np.minimum(moved, most),
            lambda moved: np.asarray(moved, object) ** 2,
            lambda moved: moved // 3,
        ]
    )
    phase = rng.choice([None, *Phase])

    def charge(operation: Collective) -> Amount:
        factor = weights[operation.level] * (1 + (operation.phase is phase))
        return form(operation.quarters) * factor

    return charge


@pytest.mark.parametrize("seed", slow_after(21, [81, *range(81), *range(82, 600)]))
def test_levels_are_alike_only_if_no_two_states_tell_them_apart(seed: int) -> None:
    instance, rng = in_bytes(seed), Random(seed)
    workload, levels = instance.workload, instance.problem.levels
    cost = stated(instance, random_charge(rng, levels))
    alike = cost.symmetries(workload, levels)
    choices = choices_by_level(workload, levels)
    states = np.array([*itertools.product(*map(range, choices))]).T
    pairs = np.array([*itertools.product(range(states.shape[1]), repeat=2)]).T
    source, target = (states[:, own][:, None] for own in pairs)
    few = rng.sample(range(len(workload.ends)), min(3, len(workload.ends)))
    edges, rules = np.array(few, np.intp)[:, None], cost.rules(workload, levels)
    operations = [
        *rules.node(np.arange(len(workload.nodes))[:, None], [states[:, None]]),
        *(rules.boundary(edges, [source], [target]) if few else ()),
    ]
    charged = exact_sum(cost.edge(workload, edges, [source], [target])) if few else 0
    for one, other in itertools.combinations(range(levels), 2):
        if alike.level_kinds[one] == alike.level_kinds[other]:
            for own in operations:
                at_both = (cost.charged(own._replace(level=level)) for level in (one, other))
                assert np.equal(*at_both).all()
        if alike.level_groups[one] == alike.level_groups[other] and few:
            assert alike.level_kinds[one] == alike.level_kinds[other]
            order = np.arange(levels)
            order[[one, other]] = other, one
            ends = [source[order]], [target[order]]
            permuted = exact_sum(cost.edge(workload, edges, *ends))
            assert np.equal(*np.broadcast_arrays(charged, permuted)).all()


def charge_in_proportion(rng: Random) -> Charge:
    """A charge of its own for each pass, kind and tensor, in proportion to what moves."""
    factors: dict[object, int] = {}

    def charge(operation: Collective) -> Amount:
        key = operation.phase, operation.kind, operation.tensor
        return operation.quarters * factors.setdefault(key, rng.randint(0, 9))

    return charge


def with_thresholds(seed: int) -> tuple[Stated, ThresholdTable]:
    """A cost of two choices whose charges separate into thresholds, and these."""
    rng = Random(seed)
    while True:
        network = random_network(rng, 4) if rng.random() < 0.2 else random_graph(rng, most=5)
        levels, reading = rng.randint(1, 4), rng.choice(["executed", "executed", *READINGS])
        sizes = [2 if READINGS[reading].halves else rng.choice([2, 2, 3])] * levels
        problem = problem_of(
            network, batch=36, reading=reading, hierarchy=tuple(sizes), whole_levels=True
        )
        charge = rng.choice([charge_in_proportion(rng), random_charge(rng, levels)])
        cost = stated(Instance(network, problem), charge)
        table = cost.thresholds(cost.workload, levels)
        if table is not None:
            return cost, table


@pytest.mark.parametrize("seed", slow_after(40, range(600)))
def test_thresholds_that_follow_charge_every_plan_as_its_states_are(seed: int) -> None:
    (cost, table), rng = with_thresholds(seed), Random(seed)
    workload, levels = cost.workload, cost.problem.levels
    assert len(workload.choices) == 2
    for _ in range(10):
        counts = np.array([rng.randint(0, levels) for _ in workload.nodes])
        # Model parallelism at the topmost levels, as thresholds are; weights as their nodes.
        for source, target in workload.ends[workload.is_weight_boundary].tolist():
            counts[target] = counts[source]
        rows = (np.arange(levels)[:, None] < counts).astype(np.intp)
        sources, targets = ([rows[:, end]] for end in workload.ends.T)
        node = cost.node(workload, np.arange(len(counts)), [rows])
        edge = cost.edge(workload, np.arange(len(workload.ends)), sources, targets)
        total = sum(
            int(np.broadcast_to(row, count).astype(object).sum())
            for rows, count in ((node, len(counts)), (edge, len(workload.ends)))
            for row in rows
        )
        thresholds = enumerate(table.tables(), 1)
        assert total == sum(own.price((counts >= t).astype(int).tolist()) for t, own in thresholds)


@pytest.mark.parametrize(
    ("charge", "classes"),
    [
        (lambda own: own.quarters, 28),
        (lambda own: own.times, 28),
        (lambda own: own.quarters * (10 if own.level == 0 else 1), 3 * 21),
    ],
    ids=["bytes", "messages", "slow links"],
)
def test_gpt2s_729_states_of_six_levels_are_few_classes(charge: Charge, classes: int) -> None:
    problem = problem_of(levels=6, choices=CHOICES, reading="executed", batch=64)
    instance = Instance(load("gpt2"), problem)
    workload, cost = instance.workload, stated(instance, charge)
    table = StateTable.of(cost, workload, 6).by_classes()
    assert table.partitions[-1].lower_bounds.shape[-1] == classes


def test_elements_are_refused_where_a_reading_counts_parts_of_them() -> None:
    halo = Collective(Phase.FORWARD, None, "input", 0, np.array([4, 8]))
    assert halo.elements.tolist() == [1, 2]
    with pytest.raises(HyparError, match="counts quarters of elements"):
        _ = halo._replace(quarters=np.array([4, 6])).elements
