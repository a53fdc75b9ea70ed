"""The states of all nodes of a plan, and their cost; a plan states those of its layers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.check.folds import Bytes, BytesOfGroups, Charges, Energy, Time, TimeOfPart
from hypar_opt.proofs.check.nodes import PlanGraph, PlanNode, State, nodes_of
from hypar_opt.proofs.check.overlap import PricedTime, StatedPrices
from hypar_opt.proofs.check.plugin_cost import PluginCost
from hypar_opt.proofs.check.restrictions import Restrictions
from hypar_opt.workload.parallelism import PAPERS_CHOICES, PART_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypar_opt.plan.plan import Plan


@dataclass(frozen=True, eq=False)
class PlanProblem:
    """The problem of a plan, as it is derived here: its graph, its charges, its constraints.

    Parameters
    ----------
    prices
        The prices of the queue of a step with overlap; None without overlap.
    is_part
        Whether it is a part of a stage, charged a lower bound on what it adds to the stage.
    """

    plan: Plan
    prices: StatedPrices | None = None
    is_part: bool = False

    @cached_property
    def charges(self) -> Charges:
        """The charges of the plan's cost.

        Raises
        ------
        CheckFailedError
            If the plan's unit is not a unit of its cost, or its array is missing.
        """
        if self.prices is not None:
            return PricedTime(self.plan, self.graph, self.prices)
        if self.is_part:
            return TimeOfPart(self.plan, self.graph)
        unequal = self.plan.groups and self.plan.has_unequal_parts
        built_in: dict[str, Callable[[Plan, PlanGraph], Charges]] = {
            "bytes": BytesOfGroups if unequal else Bytes,
            "time": Time,
            "energy": Energy,
        }
        charges = built_in.get(self.plan.cost.kind)
        return charges(self.plan, self.graph) if charges else PluginCost(self.plan)

    @cached_property
    def graph(self) -> PlanGraph:
        return nodes_of(self.plan)

    @cached_property
    def restrictions(self) -> Restrictions:
        return Restrictions(self.plan, self.graph)

    @cached_property
    def states(self) -> list[State]:
        """The states of a layer over all levels; only at H1 may all of it be in one part."""
        candidates = states(self.plan.levels, len(self.plan.choices))
        sides = {n for n, choice in enumerate(self.plan.choices) if choice in PART_WORDS}
        return [state for state in candidates if sides.isdisjoint(state[1:])]


def price_of(plan: Plan) -> Fraction:
    """Return the cost of a plan's own choices, in its cost's unit.

    Raises
    ------
    CheckFailedError
        If the plan violates its own constraints, or its problem has no such cost.
    """
    problem = PlanProblem(plan)
    chosen = nodes_states(problem)
    charges = problem.charges.for_plan(chosen)
    problem.restrictions.check(chosen)
    total = sum(charges.node(node, state) for node, state in enumerate(chosen))
    for n, edge in enumerate(problem.graph.edges):
        total += charges.edge(n, [chosen[edge.source]], [chosen[edge.target]]).item()
    return Fraction(total, charges.resolution)


def nodes_states(problem: PlanProblem) -> list[State]:
    """Return the choices of every node at all levels.

    Shared weights are whole unless all users split them equally. A shared tensor has the layouts
    that the plan states, or else those of least cost; of ties the first by `states`.
    """
    plan, graph = problem.plan, problem.graph
    tensors = [node for node in range(graph.shared) if not graph.users(node)]
    layouts = _stated(plan, graph, tensors)
    if not layouts and len(plan.choices) > len(PAPERS_CHOICES):
        layouts = {node: _cheapest_state(problem, node) for node in tensors}
    elif not layouts and plan.constraints.even:
        free = _level_by_level(problem, {})
        for node in tensors:
            costs = [_costs_at(problem, free, node, level) for level in range(plan.levels)]
            layouts[node] = _even_layouts(graph.nodes[node], costs)
    return _level_by_level(problem, layouts)


def _stated(plan: Plan, graph: PlanGraph, tensors: Sequence[int]) -> dict[int, Sequence[int]]:
    """Return the layouts of shared tensors that a plan states, as choices; H1 first."""
    if plan.layouts is None:
        return {}
    stated: dict[int, Sequence[int]] = {}
    for node in tensors:
        (writer,) = (edge.source for edge in graph.edges if edge.target == node)
        numbers = {split.output: choice for choice, split in graph.nodes[node].choices.items()}
        if "experts" not in plan.choices and "expert" in numbers:
            numbers["channel"] = numbers.pop("expert")
        layouts = plan.layouts.get(graph.nodes[writer].name, ())
        if len(layouts) != plan.levels or not numbers.keys() >= set(layouts):
            raise CheckFailedError(
                f"layouts, {graph.nodes[writer].name}: should have one of {', '.join(numbers)} for"
                f" each of {plan.levels} levels"
            )
        stated[node] = [numbers[layout] for layout in layouts]
    return stated


def _cheapest_state(problem: PlanProblem, node: int) -> State:
    """Return a shared tensor's cheapest layouts at all levels, given the layers' choices."""
    allowed = [state for state in problem.states if problem.restrictions.splits(node, state)]
    layers = enumerate(zip(*problem.plan.assignments(), strict=True), problem.graph.shared)
    costs = _costs(problem, dict(layers), node, allowed)
    return allowed[costs.index(min(costs))]


def _costs(
    problem: PlanProblem, chosen: Mapping[int, State], node: int, states: Sequence[State]
) -> list[int]:
    """Return the charge of a node and its edges in each of its states."""
    costs = [problem.charges.node(node, state) for state in states]
    for n, edge in enumerate(problem.graph.edges):
        if node in (edge.source, edge.target):
            source, target = (
                states if end == node else [chosen[end]] for end in (edge.source, edge.target)
            )
            charged = problem.charges.edge(n, source, target).ravel().tolist()
            costs = [cost + charge for cost, charge in zip(costs, charged, strict=True)]
    return costs


def _level_by_level(problem: PlanProblem, layouts: Mapping[int, Sequence[int]]) -> list[State]:
    """Return states as `nodes_states`, with given or unrestricted layouts of shared tensors."""
    graph = problem.graph
    chosen: list[State] = [() for _ in graph.nodes]
    for level, layers in enumerate(problem.plan.assignments()):
        row = [0] * graph.shared + list(layers)
        for node in range(graph.shared):
            users = {row[user] for user in graph.users(node)}
            if users:
                choice = users.pop()
                row[node] = 0 if users or choice not in graph.nodes[node].choices else choice
            elif node in layouts:
                row[node] = layouts[node][level]
        chosen = [(*above, choice) for above, choice in zip(chosen, row, strict=True)]
        for node in range(graph.shared):
            if not graph.users(node) and node not in layouts:
                costs = _costs_at(problem, chosen, node, level)
                chosen[node] = (*chosen[node][:-1], costs.index(min(costs)))
    return chosen


def _costs_at(problem: PlanProblem, chosen: Sequence[State], node: int, level: int) -> list[int]:
    """Return the cost of a shared tensor down to a level, for each of its layouts there."""
    prefixes = {n: state[: level + 1] for n, state in enumerate(chosen)}
    choices = problem.graph.nodes[node].choices
    return _costs(problem, prefixes, node, [(*chosen[node][:level], choice) for choice in choices])


def _even_layouts(tensor: PlanNode, costs: Sequence[Sequence[int]]) -> Sequence[int]:
    """Return a shared tensor's cheapest layouts in equal parts, H1 first, if there are any.

    For files of version 1, which state no layouts, and whose levels have two parts each.
    """
    batch, channels = (split.size for split in tensor.choices.values())
    # By the number of splits by batch: the least cost so far, and its layouts.
    cheapest: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
    for by_batch, by_channel in costs:
        reached: dict[int, tuple[int, tuple[int, ...]]] = {}
        for times, (cost, layouts) in cheapest.items():
            for also, charge in enumerate((by_channel, by_batch)):
                candidate = (cost + charge, (*layouts, 1 - also))
                reached[times + also] = min(candidate, reached.get(times + also, candidate))
        cheapest = reached
    levels = len(costs)
    even = [
        candidate
        for times, candidate in cheapest.items()
        if batch % (1 << times) == 0 and channels % (1 << levels - times) == 0
    ]
    return min(even or cheapest.values())[1]


def states(levels: int, choices: int) -> list[State]:
    """Return the states of a layer, its choices at all levels, in a certificate's order.

    Fewest levels not in data parallelism first, then fewest in the third choice, then those that
    leave data parallelism topmost.
    """
    unordered = itertools.product(range(choices), repeat=levels)
    return sorted(unordered, key=lambda s: (levels - s.count(0), s.count(2), [-c for c in s]))
