"""AccPar's choice of types between two groups of accelerators: a baseline.

AccPar takes the layers in order. In each type (data, model or output parallelism) a layer has the
ratio with which it takes least time, given the types and ratios so far; then dynamic programming
chooses the types. Levels below the groups are chosen one after the other, as in HyPar. The time of
a pass or an exchange is the slower group's, with a group as one accelerator: operations over its
peak, or the bytes that it receives over its bandwidth; no latency, no DRAM.

A plan has one ratio for all layers, so that it has AccPar's types without the ratios of layers.

Source: Song et al., "AccPar", HPCA 2020; docs/algorithms.md.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from hypar_opt.costs.level_tables import level_table
from hypar_opt.costs.weights import with_penalties
from hypar_opt.errors import HyparError, InfeasibleError
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import total_cost
from hypar_opt.plan.share_of_group import SHARES
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.levelwise import levelwise
from hypar_opt.search.result import SearchRequest
from hypar_opt.search.shares import best_share, compute_share
from hypar_opt.search.table_solver import TableSolver
from hypar_opt.sharding.passes import Phase
from hypar_opt.sharding.weights import with_users
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from hypar_opt.workload.layouts import FIRST_SPLIT, NAMES
from hypar_opt.workload.operators.axes import PARTIAL, WHOLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.groups import GroupTime
    from hypar_opt.plan.constraints import Constraints
    from hypar_opt.plan.problem import Problem
    from hypar_opt.search.result import SearchResult
    from hypar_opt.workload.network import Network

    Seconds = NDArray[np.float64]
    Pair = tuple[float, float]

_WHOLE, _PARTIAL = NAMES.index(WHOLE), NAMES.index(PARTIAL)


class AccParOrder(NamedTuple):
    """AccPar's choice at H1.

    Parameters
    ----------
    types
        Each node's choice.
    ratios
        The first group's share of each node, in the node's type.
    seconds
        The time of a step between the groups, with these types and ratios.
    """

    types: tuple[int, ...]
    ratios: tuple[float, ...]
    seconds: float


def with_accpar_types(network: Network, problem: Problem) -> Problem:
    """Return a problem with AccPar's types pinned, and the best share for them.

    Raises
    ------
    HyparError
        If it does not have two groups with equally many accelerators, or is infeasible.
    """
    if problem.hierarchy.sizes[0] != 2:
        raise HyparError("AccPar's order is of two groups of as many accelerators")
    instance = Instance(network, problem).with_share(compute_share(problem))

    def pinned(rows: Sequence[Sequence[int]]) -> Constraints:
        fix = (*problem.constraints.fix, *_pins(instance, rows))
        return problem.constraints.model_copy(update={"fix": fix})

    types = accpar_order(instance).types[instance.workload.shared :]
    at_top = instance.with_constraints(pinned([types]))
    search = SearchRequest(at_top, DynamicProgramming())
    result = replace(levelwise(search), tensors=None)

    def same_types(search: SearchRequest) -> SearchResult:
        if not search.instance.constraints.allow(result.assignments):
            raise InfeasibleError("a part has nothing at these shares")
        return replace(result, bound=total_cost(search.instance, result.assignments))

    share = problem.share or best_share(search, same_types)[0]
    update = {"constraints": pinned(result.assignments), "share": share}
    return problem.model_copy(update=update)


def _pins(instance: Instance, rows: Sequence[Sequence[int]]) -> tuple[str, ...]:
    """Return the pins of layers' choices, ``(levels, layers)``, H1 first."""
    workload = instance.workload
    words = workload.words[workload.shared :]
    return tuple(
        # A pin's layer is a pattern, in which a name's own brackets have to be escaped.
        f"{glob.escape(layer.name)}@H{level}={of_layer[choice]}"
        for level, row in enumerate(rows, 1)
        for layer, of_layer, choice in zip(workload.layers, words, row, strict=True)
    )


def accpar_order(instance: Instance) -> AccParOrder:
    """Return the types and ratios that AccPar's order chooses between the groups.

    Where paths meet, a layer's ratio minimises the sum over its inputs, each with everything before
    it; the types take the least time for the ratios, on any graph.
    """
    workload, seconds = instance.workload, _GroupSeconds(instance)
    table = instance.constraints.level(level_table(instance.cost, workload), [])
    shape, columns = table.node.shape, np.arange(table.node.shape[1])
    node, ratios = np.zeros(shape), np.zeros(shape)
    edge = np.zeros(table.edge.shape)
    # The least time up to a node, by its type.
    shortest = np.zeros(shape) if table.allowed is None else np.where(table.allowed, 0, np.inf)
    for position, boundaries in _in_order(instance):
        node_seconds = seconds.node_seconds(position)
        total, into = node_seconds, {}
        for number in boundaries:
            source = workload.ends[number, 0]
            into[number] = seconds.boundary_seconds(number, ratios[source])
            total = total + (shortest[source][:, None, None] + into[number]).min(axis=0)
        best = total.argmin(axis=1)
        node[position], ratios[position] = node_seconds[columns, best], seconds.ratios[best]
        shortest[position] += total[columns, best]
        for number, of_pairs in into.items():
            edge[number] = of_pairs[:, columns, best]
    # Integers as large as sums of int64 allow, with room for penalties.
    scale = 2.0**50 / max(node.max(axis=1).sum() + edge.max(axis=(1, 2)).sum(), 1e-30)
    charges, pairs = (np.rint(part * scale).astype(np.int64) for part in (node, edge))
    charges, (pairs,) = with_penalties(workload, charges, [pairs], [(n,) for n in columns.tolist()])
    tables = TableSolver(SearchRequest(instance, DynamicProgramming()), 1)
    solution = tables.solve(replace(table, node=charges, edge=pairs))
    types = np.array(with_users(workload, assignment_of(solution)))
    source, target = workload.ends.T
    of_pairs = edge[np.arange(len(edge)), types[source], types[target]]
    nodes = np.arange(len(types))
    step = float(node[nodes, types].sum() + of_pairs.sum())
    return AccParOrder(tuple(types.tolist()), tuple(ratios[nodes, types].tolist()), step)


def _in_order(instance: Instance) -> Iterator[tuple[int, list[int]]]:
    """Yield nodes in topological order, each with its boundaries from earlier nodes."""
    workload = instance.workload
    into: dict[int, list[int]] = {position: [] for position in range(len(workload.nodes))}
    for number in np.flatnonzero(~workload.is_weight_boundary).tolist():
        into[int(workload.ends[number, 1])].append(number)
    sources = {node: workload.ends[numbers, 0].tolist() for node, numbers in into.items()}
    for position in TopologicalSorter(sources).static_order():
        yield position, into[position]


@dataclass(frozen=True)
class _GroupSeconds:
    """The seconds of two groups at H1, at all ratios; in each pass the slower group decides."""

    instance: Instance

    @cached_property
    def ratios(self) -> Seconds:
        """The shares that the first group may have, those nearest to balanced compute first."""
        shares = np.arange(1, SHARES) / SHARES
        distance = np.abs(shares - compute_share(self.instance.problem))
        nearest: Seconds = shares[np.argsort(distance, kind="stable")]
        return nearest

    @cached_property
    def _cost(self) -> GroupTime:
        return cast("GroupTime", self.instance.cost)

    @cached_property
    def _per_mac(self) -> Pair:
        """The seconds of a multiply-accumulate on all of a group."""
        count = self.instance.problem.hierarchy.accelerators // 2
        first, second = (
            float(1 / (count * work.accelerator.macs_per_second(1, 1)))
            for work in self._cost.of_parts
        )
        return first, second

    @cached_property
    def _per_element(self) -> Pair:
        """The seconds in which each group receives an element from the other."""
        size = self.instance.problem.element_bytes
        first, second = (float(2 * size * link[0].seconds_per_byte) for link in self._cost.links)
        return first, second

    def node_seconds(self, position: int) -> Seconds:
        """Return a node's seconds: compute and reductions, ``(choices, ratios)``."""
        workload, phases = self.instance.workload, self._cost.communication.phases
        layouts, share = workload.layouts, self.ratios
        whole, copied, partial_sums = (
            layout[:, position, None]
            for layout in (layouts.whole, layouts.weight < FIRST_SPLIT, layouts.output == _PARTIAL)
        )
        split = np.where(
            whole, _slower(self._per_mac, 1, 1), _slower(self._per_mac, share, 1 - share)
        )
        seconds = len(phases) * workload.nodes[position].macs * split
        scattered = _slower(self._per_element, share, 1 - share)
        if Phase.BACKWARD in phases:  # the error is gathered
            scattered = scattered + _slower(self._per_element, 1 - share, share)
        seconds = seconds + partial_sums * workload.outputs[position] * scattered
        reduced = copied * workload.stored[position] * max(self._per_element)
        total: Seconds = seconds + reduced * (Phase.GRADIENT in phases)
        return total

    def boundary_seconds(self, number: int, written: Seconds) -> Seconds:
        """Return the seconds of a boundary's exchanges, ``(choices, choices, ratios)``.

        Parameters
        ----------
        written : (choices,)
            The ratio of its source in each choice.
        """
        workload, phases = self.instance.workload, self._cost.communication.phases
        source, target = workload.ends[number]
        output = workload.layouts.output[:, source, None, None]
        read = workload.layouts.inputs[workload.operand[number], :, target, None]
        # Partial sums are scattered by their node, as they are read, or by batch.
        same = (output == read) | (output == _PARTIAL) & (read != _WHOLE)
        to_whole = read == _WHOLE
        moves = (output != _WHOLE) & (read != _PARTIAL)
        had, has = written[:, None, None], self.ratios

        def received(had: Seconds, has: Seconds) -> tuple[Seconds, Seconds]:
            """Return what a group receives forward, and of the error backward."""
            cases = [same, to_whole]
            return (
                np.select(cases, [np.maximum(has - had, 0), 1 - had], has * (1 - had)),
                np.select(cases, [np.maximum(had - has, 0), had], had * (1 - has)),
            )

        both = zip(received(had, has), received(1 - had, 1 - has), strict=True)
        forward, backward = (_slower(self._per_element, *of_groups) for of_groups in both)
        seconds = forward + backward if Phase.BACKWARD in phases else forward
        moved: Seconds = moves * workload.boundary_sizes[number] * seconds
        return moved


def _slower(rates: Pair, first: Seconds | int, second: Seconds | int) -> Seconds:
    """Return the seconds of the slower group, given each group's amount."""
    slower: Seconds = np.maximum(rates[0] * first, rates[1] * second)
    return slower
