"""The states of all nodes of a plan, and what they cost: a plan states those of its layers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.charges import Bytes, Charges
from hypar_opt.proofs.reference.exchanges import shares_tensors
from hypar_opt.proofs.reference.nodes import PlanGraph, PlanNode, State, nodes_of
from hypar_opt.proofs.reference.own_cost import OwnCost
from hypar_opt.proofs.reference.physical import Energy, Time
from hypar_opt.proofs.reference.restrictions import Restrictions

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypar_opt.plan.plan import Plan


def price_of(plan: Plan) -> Fraction:
    """Return the cost of a plan's own choices, in its cost's unit.

    Raises
    ------
    CheckFailedError
        If the plan violates its own constraints, or its cost is none of its problem's.
    """
    charges, graph = charges_of(plan), graph_of(plan)
    chosen = nodes_states(plan, charges, graph)
    Restrictions(plan, graph).check(chosen)
    total = sum(charges.node(node, state) for node, state in enumerate(chosen))
    for n, edge in enumerate(graph.edges):
        total += charges.edge(n, [chosen[edge.source]], [chosen[edge.target]]).item()
    return Fraction(total, charges.resolution)


def charges_of(plan: Plan) -> Charges:
    """Return the charges of the plan's problem.

    Raises
    ------
    CheckFailedError
        If the plan's unit is not a unit of its cost, or its array is missing.
    """
    built_in: dict[str, Callable[[Plan], Charges]] = {
        "bytes": Bytes,
        "time": Time,
        "energy": Energy,
    }
    return built_in.get(plan.cost.kind, OwnCost)(plan)


def graph_of(plan: Plan) -> PlanGraph:
    return nodes_of(plan, shared_tensors=shares_tensors(plan))


def nodes_states(plan: Plan, charges: Charges, graph: PlanGraph) -> list[State]:
    """Return the choices of every node at all levels.

    Shared weights are whole unless all users split them alike. A shared tensor is in the layouts
    that the plan states, else in those that cost least; of equals in the first by `states`.
    """
    tensors = [node for node in range(graph.shared) if not graph.users(node)]
    layouts = _stated(plan, graph, tensors)
    if not layouts and graph.reads_whole:
        layouts = {node: _cheapest_state(plan, charges, graph, node) for node in tensors}
    elif not layouts and plan.constraints.even:
        free = _level_by_level(plan, charges, graph, {})
        for node in tensors:
            costs = [_costs_at(charges, graph, free, node, level) for level in range(plan.levels)]
            layouts[node] = _even_layouts(graph.nodes[node], costs)
    return _level_by_level(plan, charges, graph, layouts)


def _stated(plan: Plan, graph: PlanGraph, tensors: Sequence[int]) -> dict[int, Sequence[int]]:
    """Return the layouts of shared tensors that a plan states, as choices; H1 first."""
    if plan.layouts is None:
        return {}
    stated: dict[int, Sequence[int]] = {}
    for node in tensors:
        (writer,) = (edge.source for edge in graph.edges if edge.target == node)
        known = [split.output for split in graph.nodes[node].splits]
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
    restrictions = Restrictions(plan, graph)
    every = states(plan.levels, len(plan.choices))
    kept = [state for state in every if restrictions.even(node, state)]
    layers = enumerate(zip(*plan.assignments(), strict=True), graph.shared)
    costs = _costs(charges, graph, dict(layers), node, kept)
    return kept[costs.index(min(costs))]


def _costs(
    charges: Charges,
    graph: PlanGraph,
    others: Mapping[int, State],
    node: int,
    states: Sequence[State],
) -> list[int]:
    """Return what a node and the edges around it are charged in each of its states."""
    costs = [charges.node(node, state) for state in states]
    for n, edge in enumerate(graph.edges):
        if node in (edge.source, edge.target):
            source, target = (
                states if end == node else [others[end]] for end in (edge.source, edge.target)
            )
            charged = charges.edge(n, source, target).ravel().tolist()
            costs = [cost + charge for cost, charge in zip(costs, charged, strict=True)]
    return costs


def _level_by_level(
    plan: Plan, charges: Charges, graph: PlanGraph, layouts: Mapping[int, Sequence[int]]
) -> list[State]:
    """Return states as `nodes_states`, shared tensors in given layouts, or in any parts."""
    chosen: list[State] = [() for _ in graph.nodes]
    for level, layers in enumerate(plan.assignments()):
        row = [0] * graph.shared + list(layers)
        for node in range(graph.shared):
            users = {row[user] for user in graph.users(node)}
            if users:
                row[node] = users.pop() if len(users) == 1 else 0
            elif node in layouts:
                row[node] = layouts[node][level]
        chosen = [(*above, choice) for above, choice in zip(chosen, row, strict=True)]
        for node in range(graph.shared):
            if not graph.users(node) and node not in layouts:
                costs = _costs_at(charges, graph, chosen, node, level)
                chosen[node] = (*chosen[node][:-1], costs.index(min(costs)))
    return chosen


def _costs_at(
    charges: Charges, graph: PlanGraph, chosen: Sequence[State], node: int, level: int
) -> list[int]:
    """Return what a shared tensor costs down to a level, for each of its layouts there."""
    others = {n: state[: level + 1] for n, state in enumerate(chosen)}
    own = [(*chosen[node][:level], choice) for choice in range(len(graph.nodes[node].splits))]
    return _costs(charges, graph, others, node, own)


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
