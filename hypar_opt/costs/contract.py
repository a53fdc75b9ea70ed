"""The cost model of a problem; and what follows from how that of another package charges states."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs import COSTS
from hypar_opt.costs.kinds import kinds_of_boundaries, kinds_of_nodes
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from hypar_opt.costs.base import CostModel
    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.operations import Collective
    from hypar_opt.workload.tensors import Workload

_STATES = 8
"""Random states of each node, besides those that make one choice at all levels."""

PAGE = "see docs/adding-a-cost.md"


def cost_of(problem: Problem, workload: Workload) -> CostModel:
    """Return the cost model of a problem.

    Raises
    ------
    HyparError
        If there is no such cost or reading, or it cannot charge the problem.
    """
    # Imported late: most problems have no groups.
    if problem.cost == "bytes" and problem.is_shared_out:
        from hypar_opt.costs.groups import GroupBytes

        return GroupBytes.of_groups(problem)
    if problem.cost == "time" and problem.groups:
        from hypar_opt.costs.groups import GroupTime

        return GroupTime.of_groups(problem, workload)
    # Looked up by name: a plug-in's cost is used as the built-in ones are.
    cost = COSTS[problem.cost].from_problem(problem, workload)
    if problem.cost not in COSTS.built_in_names():
        check_contract(cost, problem.cost, workload, problem.levels)
    return cost


def derived(cost: CostModel, workload: Workload, levels: int) -> tuple[list[Hashable], bool]:
    """Return a key of each level, and whether a cost is in proportion to what moves.

    Levels have one key if what a few states move is charged alike at them. The least and the most
    that a node moves are among these.
    """
    operations = sampled(cost, workload, levels)
    charged = [[_charged(cost, own, level) for own in operations] for level in range(levels)]
    keys: list[Hashable] = [charged.index(own) for own in charged]
    each: dict[Hashable, tuple[int, int]] = {}
    proportional = True
    for own, charges in zip(operations, charged[0] if charged else (), strict=True):
        quarters = own.quarters.reshape(-1).tolist()
        for moved, charge in zip(quarters, charges, strict=True):
            if moved:
                key = own.phase, own.kind, own.tensor
                first, its_charge = each.setdefault(key, (moved, charge))
                proportional &= charge * first == its_charge * moved
    return keys, proportional and len({*keys}) == 1


def check_contract(cost: CostModel, name: str, workload: Workload, levels: int) -> None:
    """Check that a cost charges operations in integers, and levels of one key alike.

    Raises
    ------
    HyparError
        Naming the method, and what it should return.
    """
    for own in sampled(cost, workload, levels):
        try:
            charge = np.asarray(cost.charge(own))
        except HyparError as error:
            raise HyparError(f"cost {name!r}: charge: {error}; {PAGE}") from None
        ends, shape = charge.shape[::-1], own.quarters.shape
        if any(
            size not in (1, count) for size, count in zip_longest(ends, shape[::-1], fillvalue=1)
        ):
            raise HyparError(
                f"cost {name!r}: charge should return an integer for each of {shape} amounts, got"
                f" {charge.shape}; {PAGE}"
            )
        entries = charge.ravel().tolist()
        wrong = [entry for entry in entries if not isinstance(entry, int) or entry < 0]
        if wrong:
            raise HyparError(
                f"cost {name!r}: charge should return integers that are not negative, got"
                f" {wrong[0]!r}; {PAGE}"
            )
    first: dict[Hashable, int] = {}
    keys, _ = derived(cost, workload, levels)
    for level in range(levels):
        alike = first.setdefault(cost.level_key(level), level)
        if keys[level] != keys[alike]:
            raise HyparError(
                f"cost {name!r}: level_key should tell H{alike + 1} and H{level + 1} apart, as"
                f" charge does; {PAGE}"
            )


def sampled(cost: CostModel, workload: Workload, levels: int) -> list[Collective]:
    """Return what nodes and boundaries of each kind move in a few states."""
    if not levels:
        return []
    forbidden, rng = workload.forbidden, np.random.default_rng(0)
    drawn = rng.random((levels, *forbidden.shape, _STATES)) * ~forbidden[..., None]
    alike = np.where(forbidden, forbidden.argmin(axis=1)[:, None], np.arange(forbidden.shape[1]))
    each_level = np.broadcast_to(alike, (levels, *alike.shape))
    states = np.concatenate([drawn.argmax(axis=2), each_level], axis=2)
    rules = cost.rules(workload, levels)
    nodes, boundaries = kinds_of_nodes(workload).first, kinds_of_boundaries(workload).first
    ends = ([states[:, end]] for end in workload.ends[boundaries].T)
    of_nodes = [*rules.node(nodes[:, None], [states[:, nodes]])]
    of_edges = [*rules.boundary(boundaries[:, None], *ends)] if len(boundaries) else []
    return [
        own._replace(quarters=np.broadcast_to(own.quarters, (len(things), states.shape[2])))
        for things, operations in ((nodes, of_nodes), (boundaries, of_edges))
        for own in operations
    ]


def _charged(cost: CostModel, operation: Collective, level: int) -> list[int]:
    """Return what an operation is charged at a level, in each of its states."""
    charges = cost.charged(operation._replace(level=level))
    every: list[int] = np.broadcast_to(charges, operation.quarters.shape).ravel().tolist()
    return every
