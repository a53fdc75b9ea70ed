"""What-if questions: the regret of each other choice, and the cheapest plans in order."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import islice, pairwise, product
from math import factorial, prod
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.product import State, canonical_states, expanded
from hypar_opt.costs.table import CostTable, Integers
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import HyparError, NoAnswerError, RefusedError, argument, worded
from hypar_opt.plan.plan import Plan, json_number, words_of
from hypar_opt.plan.problem import Problem
from hypar_opt.search.default_solver import default_solver
from hypar_opt.search.instance import Instance
from hypar_opt.search.level_order import levels_permute, neighbours_alike
from hypar_opt.search.model_file import SOLUTION
from hypar_opt.search.partition import Progress, Search, silent
from hypar_opt.search.pins import Pin
from hypar_opt.search.searches import SEARCHES
from hypar_opt.search.settings import options_of
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.elimination.buckets import eliminate
from hypar_opt.solvers.elimination.marginals import least_by_choice
from hypar_opt.solvers.elimination.order import in_given_order
from hypar_opt.solvers.elimination.solve import eliminated, of_allowed
from hypar_opt.solvers.feasibility import allowed_choices
from hypar_opt.workload.parallelism import Parallelism

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.solvers.base import SolverOptions

MAX_STEPS = 2**20
"""Upper bound on layers * states * (states + plans), the work of listing the best plans."""

REGRETS = worded("regrets", "--regret")


@dataclass(frozen=True)
class Regret:
    """What one other choice costs, all else re-optimised.

    Parameters
    ----------
    extra
        In the cost's unit. Negative where a levelwise search, which is greedy, does better when
        it is pinned to this choice; None where the choice is infeasible.
    """

    layer: str
    level: int
    choice: Parallelism
    extra: int | float | None


def regrets(plan: Plan, progress: Progress = silent, *, parameters: bool = False) -> list[Regret]:
    """Return the regret of each other choice of each layer at each level, H1 first.

    Those of a joint optimum come out of one elimination, whichever exact solver found it. Else
    each takes one solve, with that choice pinned, by the plan's solver and search.

    Parameters
    ----------
    parameters
        Hand the solver the parameters that the plan's file records, too.

    Raises
    ------
    NoAnswerError
        If a limit leaves one of them without an optimum.
    """
    options = options_of(plan, parameters=parameters)
    instance = Instance.of_plan(plan)
    words = _words_of_reading(plan, instance)
    others = [
        (level, layer, choice)
        for level, row in enumerate(plan.parallelism, 1)
        for layer, own, known in zip(plan.layers, row, words, strict=True)
        for choice in known
        if choice is not own
    ]
    least = _least_with_choices(plan, instance) if plan.solver.scope == "joint" else None
    if least is not None:
        progress(len(others), len(others))
        return [
            Regret(layer, level, choice, least[level, layer, choice])
            for level, layer, choice in others
        ]
    results = []
    for done, (level, layer, choice) in enumerate(others):
        progress(done, len(others))
        extra = _solved_again(plan, instance, Pin(_literally(layer), level, choice), options)
        results.append(Regret(layer, level, choice, extra))
    progress(len(others), len(others))
    return results


def _words_of_reading(plan: Plan, instance: Instance) -> list[list[Parallelism]]:
    """Return the words of each layer's choices, but for those that only a run has: whole."""
    workload = instance.workload
    forbidden = workload.forbidden(len(plan.choices))[workload.shared :]
    return [
        [word for word, lacks in zip(known, row, strict=False) if not lacks]
        for known, row in zip(plan.words, forbidden.tolist(), strict=True)
    ]


def _least_with_choices(
    plan: Plan, instance: Instance
) -> dict[tuple[int, str, Parallelism], int | float | None] | None:
    """Return the regret of every choice of a joint optimum, by level, layer and choice.

    None where memory couples the layers, or the tables of an elimination are too large.
    """
    if plan.solver.status != "optimal" or instance.constraints.couple_layers or not plan.levels:
        return None
    workload, cost = instance.workload, instance.cost
    try:
        states = canonical_states(plan.levels, cost.choices)
        table = expanded(cost, workload, plan.levels)
        table = instance.constraints.states(table, states)
        least = least_by_choice(eliminated(table, NEVER), NEVER)
    except RefusedError:
        return None
    allowed = [np.flatnonzero(row) for row in allowed_choices(table)]
    digits = np.array(states, np.intp).reshape(len(states), plan.levels)
    total = Fraction(plan.cost.total)
    found: dict[tuple[int, str, Parallelism], int | float | None] = {}
    for layer, (name, words) in enumerate(zip(plan.layers, plan.words, strict=True)):
        node = workload.shared + layer
        for level, (column, choice) in product(range(plan.levels), enumerate(words)):
            having = least[node][digits[allowed[node], level] == column]
            extra = table.in_units(int(having.min())) - total if len(having) else None
            found[level + 1, name, choice] = None if extra is None else json_number(extra)
    return found


def _solved_again(
    plan: Plan, instance: Instance, pin: Pin, options: SolverOptions
) -> int | float | None:
    """Return a choice's regret by solving with one more ``--fix``, which every solver supports."""
    fix = (*plan.constraints.fix, str(pin))
    pinned = instance.with_constraints(plan.constraints.model_copy(update={"fix": fix}))
    solver = plan.solver.name
    if solver == SOLUTION:
        solver = default_solver(pinned, plan.solver.search)
    search = Search(
        pinned,
        SOLVERS[solver](),
        options,
        deadline=Deadline.after(options.time_limit),
    )
    try:
        other = SEARCHES[plan.solver.search](search)
        # A plan within the gap is an answer; one cut short by a limit says nothing of the pin.
        if other.stopped_by not in {None, "gap"}:
            raise NoAnswerError(f"{REGRETS}: the {other.stopped_by} came before what {pin} costs")
    except (RefusedError, NoAnswerError):
        raise
    except HyparError:  # no plan keeps to the pin and to the problem's constraints
        return None
    # As fractions: elements of one or two bytes have costs in quarters or halves.
    return json_number(search.total(other.assignments) - Fraction(plan.cost.total))


@dataclass(frozen=True)
class Alternative:
    """One of the best plans, standing for ``count`` plans that differ in the levels' order."""

    parallelism: tuple[tuple[Parallelism, ...], ...]
    total: int | float
    count: int


def best_plans(plan: Plan, number: int) -> list[Alternative]:
    """Return the cheapest plans of a plan's problem, over all levels together, in order.

    Of equals the first is the one that every exact solver returns. Where permuting levels
    changes nothing, plans that differ only by that are one row: the first of them.

    Raises
    ------
    RefusedError
        If there are too many states or plans, or a memory limit.
    """
    instance = Instance.of_plan(plan)
    problem, workload, cost = instance.problem, instance.workload, instance.cost
    if instance.constraints.couple_layers:
        # A memory limit is a sum over layers: no completion's cost is known by its state alone.
        memory = argument("constraints.memory")
        raise RefusedError(f"the best plans take no {memory}: they are found layer after layer")
    _check_size(number, problem, len(workload.layers))
    interchangeable = levels_permute(problem) and all(neighbours_alike(problem))
    states = canonical_states(problem.levels, cost.choices)
    table = instance.constraints.states(expanded(cost, workload, problem.levels), states)
    alternatives = []
    in_order = _in_order_of_cost(table, states, workload.shared, interchangeable=interchangeable)
    try:
        cheapest = list(islice(in_order, number))
    except RefusedError as error:  # by the graph's width
        over = f"{problem.levels} level{'s' if problem.levels > 1 else ''}"
        raise RefusedError(
            f"listing the best plans over {over} {error.message.split(';')[0]}; take fewer levels"
        ) from None
    for total, columns in cheapest:
        rows = list(zip(*(states[column] for column in columns), strict=True))
        # Multinomial: all orders of the levels, over those that swap levels of equal choices.
        repeats = prod(map(factorial, Counter(rows).values()))
        alternatives.append(
            Alternative(
                parallelism=words_of(rows, plan.words),
                total=json_number(table.in_units(total)),
                count=factorial(len(rows)) // repeats if interchangeable else 1,
            )
        )
    return alternatives


def _check_size(number: int, problem: Problem, layers: int) -> None:
    """Refuse a request that would take more than a few seconds, before the work."""
    choices = len(problem.choices)
    states = choices**problem.levels
    plans = min(number, states**layers)
    # Least costs look at pairs of states, and each plan ranks the states of every layer.
    if layers * states * (states + plans) <= MAX_STEPS:
        return
    upper_bound = MAX_STEPS // (layers * states) - states
    remedy = f"ask for {upper_bound:,} or fewer" if upper_bound > 0 else "take fewer levels"
    over = f"{problem.levels} level{'s' if problem.levels > 1 else ''}"
    raise RefusedError(f"the {number:,} best plans over {over} take too many steps; {remedy}")


Ties = tuple[bool, ...]
"""Whether neighbouring levels have had the same choices so far: one flag a pair of levels."""


def _in_order_of_cost(
    table: CostTable, states: list[State], shared: int, *, interchangeable: bool
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield every allowed assignment of the layers with its cost, cheapest first.

    What layers share takes what then costs least: it is not enumerated. Equals come in canonical
    order: compared from the last layer back, the first state first. Of assignments that differ
    only in the order of ``interchangeable`` levels the first comes.

    A best-first search that completes assignments from the last layer back. The least cost of
    completing one is known exactly, by eliminating what layers share and then the layers in
    their order, so whatever leaves the heap is the next best assignment, and no path is expanded
    in vain.
    """
    allowed = [np.flatnonzero(row) for row in allowed_choices(table)]
    charges = of_allowed(table, allowed)
    order = in_given_order(charges.sizes, tuple(charges.pairs), range(table.layers))
    buckets = eliminate(charges, order, NEVER)
    digits = np.array(states, np.intp).reshape(len(states), -1)

    @cache
    def ranked(layer: int, scope: tuple[int, ...], ties: Ties) -> tuple[NDArray[np.intp], Integers]:
        """Rank a layer's states by the least cost up to it, given those of later layers."""
        costs = buckets.column(layer, 0, scope)
        own = digits[allowed[layer]]
        # Of levels that tie behind, those with model parallelism here stand topmost.
        canonical = ~((own[:, :-1] < own[:, 1:]) & np.array(ties, bool)).any(axis=1)
        ranks = np.flatnonzero(canonical)[costs[canonical].argsort(kind="stable")]
        return ranks, costs[ranks]

    last = table.layers - 1

    def scope_of(layer: int, path: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(path[last - later] for later in order.scopes[layer])

    ties = (interchangeable,) * max(digits.shape[1] - 1, 0)
    first = int(ranked(last, (), ties)[0][0])
    # Equal totals compare by path, last layer first: that is the canonical order.
    heap: list[tuple[int, tuple[int, ...], Ties, int]] = [(buckets.least(0), (first,), ties, 0)]
    while heap:
        total, path, ties, rank = heapq.heappop(heap)
        for layer in range(table.layers - len(path), shared - 1, -1):
            ranks, costs = ranked(layer, scope_of(layer, path), ties)
            if rank + 1 < len(ranks):
                increase = int(costs[rank + 1]) - int(costs[rank])
                # The next best from here: another state of this layer, completed at least cost.
                sibling = (*path[:-1], int(ranks[rank + 1]))
                heapq.heappush(heap, (total + increase, sibling, ties, rank + 1))
            # Levels go on tying only where they choose alike here too.
            pairs = pairwise(states[allowed[layer][path[-1]]])
            ties = tuple(tie and a == b for tie, (a, b) in zip(ties, pairs, strict=True))
            if layer > shared:
                ranks, costs = ranked(layer - 1, scope_of(layer - 1, path), ties)
                path, rank = (*path, int(ranks[0])), 0
        columns = zip(allowed[shared:], path[::-1], strict=True)
        yield total, tuple(int(choices[n]) for choices, n in columns)


def _literally(name: str) -> str:
    """Return the pattern that matches one layer's name and no other."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
