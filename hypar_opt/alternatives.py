"""What if: the extra cost of each other choice, and the next best plans."""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from math import factorial, prod

from hypar_opt.costs import COSTS
from hypar_opt.costs.product import State, canonical_states, expanded
from hypar_opt.costs.table import CostTable
from hypar_opt.errors import HyparError, NoAnswerError, RefusedError
from hypar_opt.limits import Limits, Pin
from hypar_opt.parallelism import Parallelism
from hypar_opt.partition import Progress
from hypar_opt.pipeline import named, options_of, shapes_of, solve
from hypar_opt.plan import Plan, Problem, json_number

MOST_STEPS = 2**21
"""Steps between states, times plans asked for, that the best plans may take."""


@dataclass(frozen=True)
class Regret:
    """What one other choice costs, all else chosen anew.

    ``extra`` is in the cost's unit; negative where a search level by level does better when
    held to it; None where no plan that keeps to the constraints has it.
    """

    layer: str
    level: int
    choice: Parallelism
    extra: int | float | None


def regrets(
    plan: Plan, progress: Progress = lambda done, of: None, *, parameters: bool = False
) -> list[Regret]:
    """Return the regret of each other choice of each layer at each level, H1 first.

    Each is found by solving again with that choice pinned, by the plan's solver and search.

    Parameters
    ----------
    parameters
        As in `hypar_opt.pipeline.options_of`.

    Raises
    ------
    NoAnswerError
        If a limit leaves one of them without an optimum.
    """
    options = options_of(plan, parameters=parameters)
    others = [
        (level, layer, choice)
        for level, row in enumerate(plan.parallelism, 1)
        for layer, taken in zip(plan.layers, row, strict=True)
        for choice in plan.choices
        if choice is not taken
    ]
    found = []
    for done, (level, layer, choice) in enumerate(others):
        progress(done, len(others))
        pin = Pin(_literally(layer), level, choice)
        constraints = plan.constraints.model_copy(update={"fix": (*plan.constraints.fix, str(pin))})
        try:
            other = solve(
                plan.network.description,
                solver=plan.solver.name,
                search=plan.solver.search,
                options=options,
                **dict(plan.problem) | {"constraints": constraints},
            )
            stopped_by = other.solver.stopped_by
            if other.solver.status == "feasible" and stopped_by not in {None, "gap"}:
                raise NoAnswerError(f"--regret: the {stopped_by} came before what {pin} costs")
            extra = other.cost.total - plan.cost.total
        except (RefusedError, NoAnswerError):
            raise
        except HyparError:  # no plan keeps to the pin and to what was asked
            extra = None
        found.append(Regret(layer, level, choice, extra))
    progress(len(others), len(others))
    return found


@dataclass(frozen=True)
class Alternative:
    """One of the best plans: ``count`` plans are it, but for the order of its levels."""

    parallelism: tuple[tuple[Parallelism, ...], ...]
    total: int | float
    count: int


def best_plans(plan: Plan, number: int) -> list[Alternative]:
    """Return the cheapest plans of a plan's problem, over all levels together, in order.

    Where levels are alike, permuting them changes no cost, and plans that differ only by
    that are one row: the one whose levels stand in order.

    Raises
    ------
    RefusedError
        If there are too many states, or a memory limit.
    """
    problem = plan.problem
    shapes = shapes_of(plan.network.description, problem.batch)
    cost, limits = COSTS[problem.cost].asked(problem, shapes), Limits(problem, shapes)
    if limits.couple_layers:
        raise RefusedError("the best plans take no --memory: they are found layer after layer")
    pins = map(Pin.parse, problem.constraints.fix)
    alike = (
        problem.cost == "bytes"
        and _splits_alike(problem)
        and len(set(problem.level_weights)) <= 1
        and all(pin.level is None for pin in pins)
    )
    states = canonical_states(problem.levels, cost.choices)
    orders = 2 ** max(problem.levels - 1, 0) if alike else 1
    if len(states) ** 2 * orders * number > MOST_STEPS:
        raise RefusedError(
            f"the {number} best plans over {problem.levels} levels take too many steps; ask for"
            " fewer"
        )
    table = limits.states(expanded(cost, shapes, problem.levels), states)
    found = []
    for total, columns in _cheapest(table, states, number, alike=alike):
        rows = list(zip(*(states[column] for column in columns), strict=True))
        same = prod(map(factorial, Counter(rows).values()))
        found.append(
            Alternative(
                parallelism=named(rows, problem),
                total=json_number(table.in_units(total)),
                count=factorial(len(rows)) // same if alike else 1,
            )
        )
    return found


def _splits_alike(problem: Problem) -> bool:
    """Whether an order of levels is as good as another where the plan runs."""
    if problem.array is None or problem.placement is None:
        return True
    wires = problem.array.description.wires
    return len({wires.split(bit) for bit in problem.placement}) <= 1


Key = tuple[int, tuple[bool, ...]]
"""A layer's state, and which neighbouring levels have had the same choices so far."""


def _cheapest(
    table: CostTable, states: list[State], number: int, *, alike: bool
) -> list[tuple[int, list[int]]]:
    """Keep, for each key, the cheapest ways to it; each way knows the one it extends."""
    neighbours = len(states[0]) - 1
    step = _in_order if alike else _any_order
    ways: dict[Key, list[tuple[int, tuple[object, ...]]]] = {
        (-1, (True,) * max(neighbours, 0)): [(0, ())]
    }
    node, allowed = table.node.tolist(), table.allowed
    edges = table.chain_edges().tolist()
    for layer in range(table.layers):
        reached: dict[Key, list[tuple[int, tuple[object, ...]]]] = {}
        for (source, tied), before in ways.items():
            for target, state in enumerate(states):
                ties = step(tied, state)
                if ties is None or (allowed is not None and not allowed[layer, target]):
                    continue
                charge = node[layer][target] + (edges[layer - 1][source][target] if layer else 0)
                reached.setdefault((target, ties), []).extend(
                    (cost + charge, (target, way)) for cost, way in before
                )
        ways = {
            key: heapq.nsmallest(number, found, key=lambda way: way[0])
            for key, found in reached.items()
        }
    last = [way for found in ways.values() for way in found]
    return [
        (cost, _unwound(way)) for cost, way in heapq.nsmallest(number, last, key=lambda way: way[0])
    ]


def _in_order(tied: tuple[bool, ...], state: State) -> tuple[bool, ...] | None:
    """Of plans that differ in the order of levels keep one: a level not before its better."""
    if any(tie and a < b for tie, (a, b) in zip(tied, pairwise(state), strict=True)):
        return None
    return tuple(tie and a == b for tie, (a, b) in zip(tied, pairwise(state), strict=True))


def _any_order(tied: tuple[bool, ...], state: State) -> tuple[bool, ...] | None:  # noqa: ARG001
    return tied


def _unwound(way: tuple[object, ...]) -> list[int]:
    columns: list[int] = []
    while way:
        column, way = way  # type: ignore[assignment]
        columns.append(column)  # type: ignore[arg-type]
    return columns[::-1]


def _literally(name: str) -> str:
    """Return the pattern that matches one layer's name and no other."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
