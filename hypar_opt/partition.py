"""Search over the levels of the hierarchy: level by level, or jointly."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import CostModel, Splits, Thresholds, level_table
from hypar_opt.costs.product import (
    canonical_states,
    check_states,
    expanded,
    factored,
    in_mixed_radix,
)
from hypar_opt.costs.table import CostTable, Integers, side_by_side, whole_number_type
from hypar_opt.errors import HyparError, NoAnswerError, RefusedError, WrongClaimError
from hypar_opt.limits import Limits
from hypar_opt.solvers.base import SolveResult, SolverOptions, Status, flags
from hypar_opt.verify import price_levels, price_table

if TYPE_CHECKING:
    from hypar_opt.shapes import Shapes
    from hypar_opt.solvers.base import Solver

Progress = Callable[[int, int], None]
Assignments = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Search:
    """What a search is given.

    Parameters
    ----------
    start
        A plan to start from, levels x layers, for solvers that take one.
    progress
        Called with the number of tables solved, and of tables.
    """

    shapes: Shapes
    cost: CostModel
    levels: int
    limits: Limits
    solver: Solver
    options: SolverOptions = field(default_factory=SolverOptions)
    start: Assignments | None = None
    progress: Progress = lambda done, of: None


@dataclass(frozen=True)
class Partition:
    """An assignment for every level, H1 first, and what is known of it.

    Parameters
    ----------
    assignments : levels x layers
        Columns of the level tables.
    status
        Optimal where every table was solved to optimality.
    scope
        ``level``: each level's table, given those above it; ``joint``: all plans.
    bound
        The tables' bounds added up, in the cost's unit, where all have one. With scope
        ``joint`` no plan costs less.
    stopped_by
        What ended a table's search before a proof.
    statistics
        Of each model built, in order.
    versions
        Of what was used.
    """

    assignments: Assignments
    status: Status
    scope: str
    bound: Fraction | None
    stopped_by: str | None = None
    statistics: tuple[Mapping[str, float], ...] = ()
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def levelwise(search: Search) -> Partition:
    """Solve level by level, H1 first, each given the choices above it.

    The total is the levels' sum, since a table charges all groups of its level
    (Algorithm 2 adds one group's charge, times the number of groups).

    Raises
    ------
    RefusedError
        If the solver does not take a table or an option, or a charge is not one of a level.
    NoAnswerError
        If a limit left a table without an assignment.
    WrongClaimError
        If the solver's objective or bound is not what its assignment costs.

    Source: Algorithm 2.
    """
    if search.limits.couple_layers and search.cost.exchanged() is not None:
        raise RefusedError("--memory depends on the final shards: it needs --search joint")
    clock = _Tables(search, search.levels)
    splits = Splits.none(len(search.shapes.layers), search.cost.choices)
    results: list[SolveResult] = []
    for level in range(search.levels):
        table = level_table(search.cost, search.shapes, splits)
        table = search.limits.level(table, splits)
        start = search.start[level] if search.start else None
        result = clock.solve(table, start, f"-H{level + 1}")
        results.append(result)
        splits = splits.after(_assigned(result))
    charged = search.cost.beyond_levels(search.shapes, splits)
    if charged is not None and search.solver.searches:
        raise RefusedError(f"{charged}: it needs --search joint")
    return _partition(search, "level", [_assigned(r) for r in results], results)


def joint(search: Search) -> Partition:
    """Find the cheapest plan over all levels together.

    Where the levels are alike and nothing couples them, a layer's charges telescope and the
    problem comes apart into one two-choice chain for each t = 1..H, "does this layer take
    model parallelism at t levels or more?", which is the table of a level below t - 1 model
    and H - t data choices of every layer. Model parallelism at the topmost levels is then
    best, given how many. Else a layer's choice is what it takes at all levels together.

    Raises
    ------
    RefusedError, NoAnswerError, WrongClaimError
        As `levelwise`.

    Source: docs/decisions/0005-joint-optimum.md.
    """
    if search.levels == 0 or not search.solver.searches:
        return replace(levelwise(search), scope="joint")
    thresholds = search.cost.thresholds(search.shapes)
    if thresholds is not None and not search.limits.any:
        return _thresholds(search, thresholds)
    return _product_states(search)


def threshold_tables(thresholds: Thresholds, levels: int, cost: CostModel) -> list[CostTable]:
    """Return the table of each question "model parallelism at t levels or more?", t = 1..H.

    Parameters
    ----------
    cost
        Whose thresholds they are: charges count its parts of its unit.
    """
    largest = sum(thresholds.data) + sum(thresholds.model) + sum(map(sum, thresholds.pairs))
    number = whole_number_type(largest << levels)
    node = np.array([thresholds.data, thresholds.model], number).T
    ends = np.array(thresholds.ends, np.intp).reshape(-1, 2)
    edge: Integers = np.array(thresholds.pairs, number).T.reshape(-1, 2, 2)
    tables = []
    for t in range(1, levels + 1):
        shifted: Integers = np.left_shift(node, np.array([levels - t, t - 1]).astype(number))
        table = CostTable(shifted, edge, ends, unit=cost.unit, per_unit=cost.per_unit)
        tables.append(table)
    return tables


def _thresholds(search: Search, thresholds: Thresholds) -> Partition:
    levels = search.levels
    tables = _Tables(search, 1)
    if hasattr(search.solver, "solve_thresholds"):
        result = tables.checked(
            search.solver.solve_thresholds(thresholds, levels, tables.options())
        )
    else:
        start = None
        if search.start:
            model = np.sum(search.start, axis=0)
            start = tuple(int(m >= t) for t in range(1, levels + 1) for m in model)
        kinds = tuple(layer.kind for layer in search.shapes.layers)
        table = side_by_side(threshold_tables(thresholds, levels, search.cost))
        result = tables.solve(replace(table, kinds=kinds * levels), start)
    # In an optimum "t levels or more" implies "t - 1 or more"; if a limit left an assignment
    # in which it does not, the number of levels is still a plan, and priced as such.
    answers = np.reshape(_assigned(result), (levels, -1))
    rows = [tuple(int(level < count) for count in answers.sum(axis=0)) for level in range(levels)]
    return _partition(search, "joint", rows, [result])


def _product_states(search: Search) -> Partition:
    choices, levels = search.cost.choices, search.levels
    check_states(len(search.shapes.layers), choices, levels)
    states = canonical_states(levels, choices)
    clock = _Tables(search, 1)
    result = None
    if hasattr(search.solver, "solve_factored") and not search.limits.couple_layers:
        table = factored(search.cost, search.shapes, levels)
        if table is not None:
            columns = in_mixed_radix(states, choices)
            table, price = search.limits.factored(table, states, columns)
            answer = search.solver.solve_factored(table, columns, price, clock.options())
            result = clock.checked(answer)
    if result is None:
        plain = expanded(search.cost, search.shapes, levels)
        start = None
        if search.start:
            start = tuple(map(states.index, zip(*search.start, strict=True)))
        result = clock.solve(search.limits.states(plain, states), start)
    rows = list(zip(*(states[column] for column in _assigned(result)), strict=True))
    return _partition(search, "joint", rows, [result])


class _Tables:
    """Solves a search's tables one after the other, within one time limit."""

    def __init__(self, search: Search, count: int) -> None:
        self._search = search
        self._count = count
        self._done = 0
        limit = search.options.time_limit
        self._end = None if limit is None else time.monotonic() + limit
        refused = search.options.given() - search.solver.heeds
        if search.start is not None and "warm_start" not in search.solver.heeds:
            refused.add("warm_start")
        if refused:
            raise RefusedError(f"takes no {', '.join(flags(refused))}")
        search.progress(0, count)

    def options(self, start: tuple[int, ...] | None = None, suffix: str = "") -> SolverOptions:
        options = self._search.options
        if self._end is not None:
            options = replace(options, time_limit=max(self._end - time.monotonic(), 0.0))
        if options.export is not None and self._count > 1:
            export = options.export.with_stem(options.export.stem + suffix)
            options = replace(options, export=export)
        return replace(options, warm_start=start)

    def solve(
        self, table: CostTable, start: tuple[int, ...] | None = None, suffix: str = ""
    ) -> SolveResult:
        refusal = self._search.solver.accepts(table)
        if refusal:
            raise RefusedError(refusal)
        result = self._search.solver.solve(table, self.options(start, suffix))
        if result.assignment is not None:
            check_claim(table, result)
        return self.checked(result)

    def checked(self, result: SolveResult) -> SolveResult:
        if result.status is Status.INFEASIBLE:
            raise HyparError("no assignment keeps to what is allowed")
        if result.assignment is None:
            raise NoAnswerError(f"no answer within the {result.stopped_by or 'limits'}")
        self._done += 1
        self._search.progress(self._done, self._count)
        return result


def check_claim(table: CostTable, result: SolveResult) -> None:
    """Hold a solver's claims against the table itself.

    Raises
    ------
    WrongClaimError
        Naming what is claimed and what is so.
    """
    assignment = _assigned(result)
    if len(assignment) != table.layers:
        raise WrongClaimError(f"assigned {len(assignment)} of {table.layers} layers")
    claims = (*assignment, result.objective or 0, result.bound or 0)
    if not all(isinstance(number, int) for number in claims):
        raise WrongClaimError("claims should be Python's whole numbers")
    if not all(0 <= choice < table.choices for choice in assignment):
        raise WrongClaimError(f"assigned a choice outside the table's {table.choices}")
    layers = range(table.layers)
    if table.allowed is not None and not table.allowed[layers, assignment].all():
        raise WrongClaimError("assigned a choice that is not allowed")
    if table.load is not None and table.capacity is not None:
        load = int(table.load[layers, assignment].sum())
        if load > table.capacity:
            raise WrongClaimError(f"assigned {load}, more than the capacity {table.capacity}")
    costs = price_table(table, assignment)
    if result.objective not in (None, costs):
        raise WrongClaimError(f"claims {result.objective}, its assignment costs {costs}")
    if result.bound is not None and result.bound > costs:
        raise WrongClaimError(f"claims the bound {result.bound}, above its assignment's {costs}")
    if result.status is Status.OPTIMAL and result.bound != costs:
        raise WrongClaimError(f"claims an optimum of {costs} with the bound {result.bound}")


def _assigned(result: SolveResult) -> tuple[int, ...]:
    assert result.assignment is not None
    return result.assignment


def _partition(
    search: Search, scope: str, rows: Sequence[tuple[int, ...]], results: Sequence[SolveResult]
) -> Partition:
    bounds = [result.bound for result in results]
    bound = None
    if None not in bounds:
        bound = Fraction(sum(b for b in bounds if b is not None), search.cost.per_unit)
    total = sum(price_levels(search.shapes, search.cost, rows), Fraction())
    if bound is not None and bound > total:
        raise WrongClaimError(f"claims the bound {bound}, above its plan's {total}")
    optimal = all(result.status is Status.OPTIMAL for result in results) and bound == total
    return Partition(
        assignments=tuple(rows),
        status=Status.OPTIMAL if optimal else Status.FEASIBLE,
        scope=scope,
        bound=bound,
        stopped_by=next((r.stopped_by for r in results if r.stopped_by), None),
        statistics=tuple(result.statistics for result in results if result.statistics),
        versions=MappingProxyType({k: v for r in results for k, v in r.versions.items()}),
    )


SEARCHES = MappingProxyType({"levelwise": levelwise, "joint": joint})
