"""The choices of all nodes of a plan, and what they cost: a plan states those of its layers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.table import Integers
from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.charges import Charges, built_in
from hypar_opt.proofs.reference.exchanges import Counts, State, shares_tensors
from hypar_opt.proofs.reference.nodes import PlanGraph, PlanNode, nodes_of
from hypar_opt.proofs.reference.own_cost import OwnCost
from hypar_opt.proofs.reference.restrictions import Restrictions, one_more

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan


def price_of(plan: Plan) -> Fraction:
    """Return the cost of a plan's own choices, in its cost's unit.

    Raises
    ------
    CheckFailedError
        If the plan violates its own constraints, or its cost is none of its problem's.
    """
    charges, graph = charges_of(plan), graph_of(plan)
    rows = list(nodes_rows(plan, charges, graph))
    Restrictions(plan, graph).check([row for _, row in rows])
    choices = list(zip(*(row for _, row in rows), strict=True)) or [()] * len(graph.nodes)
    total = sum(charges.state(n, state) for n, state in enumerate(choices))
    for level, (counts, row) in enumerate(rows):
        total += sum(charges.node(level, n, counts[n])[choice] for n, choice in enumerate(row))
        for n, edge in enumerate(graph.edges):
            if not charges.together(n):
                above = counts[edge.source], counts[edge.target]
                total += charges.edge(level, n, *above)[row[edge.source]][row[edge.target]]
    for n, edge in enumerate(graph.edges):
        if charges.together(n):
            total += charges.pairs(n, [choices[edge.source]], [choices[edge.target]]).item()
    return Fraction(total, charges.resolution)


def charges_of(plan: Plan) -> Charges:
    return built_in(plan) or OwnCost(plan)


def graph_of(plan: Plan) -> PlanGraph:
    return nodes_of(plan, shared_tensors=shares_tensors(plan))


def nodes_rows(
    plan: Plan, charges: Charges, graph: PlanGraph
) -> Iterator[tuple[list[Counts], list[int]]]:
    """Yield, for each level, all nodes' choices and how often each makes a choice above it.

    Shared weights are whole unless all users split them alike. A shared tensor is in the layouts
    that the plan states, else in those that cost least; of equals in the first by `states`.
    """
    tensors = [node for node in range(graph.shared) if not graph.users(node)]
    layouts = _stated(plan, graph, tensors)
    if not layouts and any(map(charges.together, range(len(graph.edges)))):
        layouts = {node: _cheapest_state(plan, charges, graph, node) for node in tensors}
    elif not layouts and plan.constraints.even:
        levels = list(_free_rows(plan, charges, graph, {}))
        for node in tensors:
            costs = [
                _tensor_costs(charges, graph, level, node, counts, row)
                for level, (counts, row) in enumerate(levels)
            ]
            layouts[node] = _even_layouts(graph.nodes[node], costs)
    yield from _free_rows(plan, charges, graph, layouts)


def _stated(plan: Plan, graph: PlanGraph, tensors: Sequence[int]) -> dict[int, Sequence[int]]:
    """Return the layouts of shared tensors that a plan states, as choices; H1 first."""
    if plan.layouts is None:
        return {}
    stated: dict[int, Sequence[int]] = {}
    for node in tensors:
        (writer,) = (edge.source for edge in graph.edges if edge.target == node)
        known = [split.output for split in graph.nodes[node].splits[: len(plan.choices)]]
        layouts = plan.layouts.get(graph.nodes[writer].name, ())
        if len(layouts) != plan.levels or not set(layouts) <= set(known):
            raise CheckFailedError(
                f"layouts, {graph.nodes[writer].name}: should have one of {', '.join(known)} for"
                f" each of {plan.levels} levels"
            )
        stated[node] = [known.index(layout) for layout in layouts]
    return stated


def _cheapest_state(plan: Plan, charges: Charges, graph: PlanGraph, node: int) -> State:
    """Return a shared tensor's layouts at all levels that cost least, given the layers'."""
    rows = plan.assignments()
    restrictions = Restrictions(plan, graph)
    kept = [
        state
        for state in states(plan.levels, len(plan.choices))
        if restrictions.even(node, tuple(map(state.count, range(len(plan.choices)))))
    ]
    costs: Integers = np.array([charges.state(node, state) for state in kept], object)
    for n, edge in enumerate(graph.edges):
        if edge.target == node:
            source = tuple(row[edge.source - graph.shared] for row in rows)
            costs = costs + charges.pairs(n, [source], kept)[0]
        elif edge.source == node:
            target = tuple(row[edge.target - graph.shared] for row in rows)
            costs = costs + charges.pairs(n, kept, [target])[:, 0]
    return kept[int(costs.argmin())]


def _free_rows(
    plan: Plan, charges: Charges, graph: PlanGraph, layouts: Mapping[int, Sequence[int]]
) -> Iterator[tuple[list[Counts], list[int]]]:
    """Yield the levels as `nodes_rows`, shared tensors in given layouts, or in any parts."""
    counts: list[Counts] = [(0,) * len(plan.choices) for _ in graph.nodes]
    for level, layers in enumerate(plan.assignments()):
        row = [0] * graph.shared + list(layers)
        for node in range(graph.shared):
            users = {row[user] for user in graph.users(node)}
            if users:
                row[node] = users.pop() if len(users) == 1 else 0
            elif node in layouts:
                row[node] = layouts[node][level]
            else:
                costs = _tensor_costs(charges, graph, level, node, counts, row)
                row[node] = costs.index(min(costs))
        yield counts, row
        counts = [one_more(*pair) for pair in zip(counts, row, strict=True)]


def _tensor_costs(
    charges: Charges,
    graph: PlanGraph,
    level: int,
    node: int,
    counts: Sequence[Counts],
    row: Sequence[int],
) -> list[int]:
    """Return what each layout of a shared tensor is charged at a level."""
    splits = graph.nodes[node].splits
    costs = list(charges.node(level, node, counts[node]))[: len(splits)]
    for n, edge in enumerate(graph.edges):
        if node in (edge.source, edge.target):
            pairs = charges.edge(level, n, counts[edge.source], counts[edge.target])
            for choice in range(len(costs)):
                ends = (choice, row[edge.target])
                if edge.target == node:
                    ends = (row[edge.source], choice)
                costs[choice] += pairs[ends[0]][ends[1]]
    return costs


def _even_layouts(tensor: PlanNode, costs: Sequence[Sequence[int]]) -> Sequence[int]:
    """Return a shared tensor's layouts, H1 first: the cheapest in equal parts, if there are any."""
    batch, channels = (split.size for split in tensor.splits[:2])
    # By how often it is split by batch: the least cost so far, and its layouts.
    least: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for by_batch, by_channel in costs:
        reached: dict[int, tuple[int, tuple[int, ...]]] = {}
        for times, (cost, layouts) in least.items():
            for also, charge in enumerate((by_channel, by_batch)):
                way = (cost + charge, (*layouts, 1 - also))
                reached[times + also] = min(way, reached.get(times + also, way))
        least = reached
    levels = len(costs)
    even = [
        way
        for times, way in least.items()
        if batch % (1 << times) == 0 and channels % (1 << levels - times) == 0
    ]
    return min(even or least.values())[1]


def states(levels: int, choices: int) -> list[State]:
    """Return the states of a layer, its choices at all levels, in a certificate's order.

    Fewest levels not in data parallelism first, then fewest in output parallelism, then those
    that leave data parallelism topmost.
    """
    unordered = itertools.product(range(choices), repeat=levels)
    return sorted(unordered, key=lambda s: (levels - s.count(0), s.count(2), [-c for c in s]))
