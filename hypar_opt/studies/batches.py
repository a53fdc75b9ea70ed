"""The optimal plans of all batches at once: a plan's bytes are a line in the batch.

Weights do not depend on the batch, and all other tensors are in proportion to it. So the least
bytes over all plans are the lower envelope of lines, which is concave: where the optimum of one
batch costs at another what the optimum there costs, it is the optimum of all between. Else the
two lines cross between them, and the batch there is solved next.

Source: Eisner and Severance, "Mathematical techniques for efficient record segmentation in large
shared databases", Journal of the ACM 23, 1976.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from hypar_opt.checked import checked
from hypar_opt.documents.document import LARGEST_SIZE
from hypar_opt.errors import HyparError, RefusedError, WrongClaimError, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import total_cost
from hypar_opt.models import find_network
from hypar_opt.pipeline import solve
from hypar_opt.plan.arguments import ProblemArguments, problem_of
from hypar_opt.plan.plan import Plan, json_number, words_of
from hypar_opt.plan.problem import Problem
from hypar_opt.results import Results
from hypar_opt.search.check_result import assignment_of
from hypar_opt.search.default_solver import default_solver
from hypar_opt.search.reductions import ByThresholds
from hypar_opt.search.result import Progress, SearchRequest, silent
from hypar_opt.search.searches import SEARCHES
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions, Status
from hypar_opt.studies.many.affine import AffineTable, affine_table, problem_period
from hypar_opt.workload.network import Network

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.solvers.base import Solver


class Line(NamedTuple):
    """Bytes of the first batch, and what each step of a period adds."""

    first: Fraction
    per_step: Fraction

    def at(self, step: int) -> Fraction:
        return self.first + self.per_step * step


class Optimum(NamedTuple):
    """An optimal plan, ``(levels, layers)``, and its bytes as a line in the batch."""

    rows: tuple[tuple[int, ...], ...]
    line: Line


@dataclass(frozen=True)
class BatchRange:
    """Batches with the same optimal plan.

    Parameters
    ----------
    first, last, every
        The batches ``first``, ``first + every``, ..., ``last``.
    parallelism : (levels, layers)
        The plan's choices, as in `hypar_opt.plan.plan.Plan`.
    start
        The batch at which both lines start.
    total, data_parallel
        The bytes of the plan, and of Data Parallelism.
    """

    first: int
    last: int
    every: int
    parallelism: tuple[tuple[str, ...], ...]
    start: int
    total: Line
    data_parallel: Line

    def bytes_at(self, batch: int) -> int | float:
        """Return the bytes that the plan moves in a step of a batch."""
        return json_number(self.total.at((batch - self.start) // self.every))

    def data_parallel_bytes_at(self, batch: int) -> int | float:
        """Return the bytes that Data Parallelism moves."""
        return json_number(self.data_parallel.at((batch - self.start) // self.every))

    def __repr__(self) -> str:
        return f"<BatchRange {self.first:,} to {self.last:,}>"


@dataclass(frozen=True, repr=False)
class AllBatches(Results[BatchRange]):
    """The optimal plan of each batch from ``lo`` to ``hi``, as ranges of equal plans.

    Where levels have parts that do not divide a layer's channels, all-to-alls depend on the
    remainder of the batch: ranges are then of every second batch, every third, and so on.

    Parameters
    ----------
    problem
        That of the first batch.
    """

    network: Network
    problem: Problem
    lo: int
    hi: int

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.network.layers)

    @property
    def plans(self) -> int:
        """The number of distinct plans."""
        return len({piece.parallelism for piece in self})

    @checked
    def at(self, batch: int) -> BatchRange:
        """Return the range of a batch.

        Raises
        ------
        HyparError
            If it is not from ``lo`` to ``hi``.
        """
        if not self.lo <= batch <= self.hi:
            raise HyparError(f"batch should be from {self.lo:,} to {self.hi:,}, got {batch:,}")
        every = self.entries[0].every
        own = [piece for piece in self if (piece.first - batch) % every == 0]
        return own[bisect_right(own, batch, key=lambda piece: piece.first) - 1]

    def plan(self, batch: int) -> Plan:
        """Return the plan of a batch; it is solved and priced separately."""
        self.at(batch)
        fields = ("element_bytes", "inference", "choices", "level_weights", "constraints")
        asked: dict[str, Any] = {name: getattr(self.problem, name) for name in fields}
        asked |= {"hierarchy": self.problem.hierarchy.sizes, "whole_levels": True}
        return solve(
            self.network, search="joint", batch=batch, reading=self.problem.reading, **asked
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each range; a level's choices are a letter a layer."""
        names = self.problem.hierarchy.names
        return [
            {
                "first": piece.first,
                "last": piece.last,
                "every": piece.every,
                "bytes_at_first": piece.bytes_at(piece.first),
                "bytes_at_last": piece.bytes_at(piece.last),
                "data_parallel_at_first": piece.data_parallel_bytes_at(piece.first),
                "data_parallel_at_last": piece.data_parallel_bytes_at(piece.last),
                **{
                    name: "".join(word[0] for word in level)
                    for name, level in zip(names, piece.parallelism, strict=True)
                },
            }
            for piece in self
        ]

    def __repr__(self) -> str:
        return (
            f"<AllBatches: {self.plans:,} plans of {self.network.name}, batches {self.lo:,} to"
            f" {self.hi:,}>"
        )


@checked
def solve_all_batches(
    network: str | Path | Network,
    *,
    lo: int = 1,
    hi: int = 10**9,
    progress: Progress = silent,
    **problem: Unpack[ProblemArguments],
) -> AllBatches:
    """Find the optimal plan of each batch from ``lo`` to ``hi``, over all levels together.

    At every batch the plan and its bytes are those of `hypar_opt.solve` with ``search="joint"``,
    ties included. Solved are some three batches for each that has another plan than the one
    before: 19 plans of VGG-E at four levels take 0.02 s, for a thousand million batches.

    Parameters
    ----------
    network
        A name of the zoo, the path of a network file, or a `Network`.
    **problem
        `hypar_opt.plan.arguments.ProblemArguments`: ``levels=4`` or ``hierarchy``, ``reading``,
        ``choices``, ...; but no array, no cost but bytes, and no constraints but pins: what they
        charge or allow is not a line in the batch.

    Raises
    ------
    HyparError
        If an argument is wrong, or does not leave lines.
    RefusedError
        If a batch has no plan that is proved optimal.

    Examples
    --------
    >>> every = solve_all_batches("lenet-c", levels=2)
    >>> [(piece.first, piece.last) for piece in every][:2]
    [(1, 3), (4, 4)]
    >>> every.at(10**6).bytes_at(10**6) == every.plan(10**6).cost.total
    True
    """
    described = find_network(network)
    stated = _stated(described, lo, hi, problem)
    period = problem_period(described, stated)
    pieces: list[BatchRange] = []
    for start in range(lo, min(hi, lo + period - 1) + 1):
        pieces += _ranges(described, stated, start, hi, period, progress)
    pieces.sort(key=lambda piece: piece.first)
    return AllBatches(tuple(pieces), described, stated, lo, hi)


def _stated(network: Network, lo: int, hi: int, problem: ProblemArguments) -> Problem:
    """Return the problem of the first batch, if the bytes of its plans are lines in the batch."""
    for name, batch in (("lo", lo), ("hi", hi)):
        if type(batch) is not int or not 1 <= batch <= LARGEST_SIZE:
            raise HyparError(f"{name}: a batch should be from 1 to {LARGEST_SIZE:,}, got {batch}")
    if lo > hi:
        raise HyparError(f"batches should be from the smallest to the largest, got {lo:,}:{hi:,}")
    if "batch" in problem:
        raise HyparError(f"{argument('batch')}: all batches are solved, from lo to hi")
    given: ProblemArguments = {**problem, "batch": lo}
    if given.get("array") is not None:
        raise HyparError(
            f"{argument('array')}: the time on an array decides the order of levels, and is not a"
            f" line in the batch; state the levels, as {argument('hierarchy')}"
        )
    cost = given.get("cost", "bytes")
    if cost != "bytes":
        raise HyparError(f"{argument('cost', cost)} is not a line in the batch; only bytes are")
    stated = problem_of(network, **given)
    constraints = stated.constraints
    for name in type(constraints).model_fields:
        if name not in ("fix", "optimizer") and getattr(constraints, name):
            limit = argument(f"constraints.{name}")
            raise HyparError(
                f"{limit} allows other plans at other batches: plans are of all batches"
            )
    return stated


def _ranges(
    network: Network, problem: Problem, start: int, hi: int, period: int, progress: Progress
) -> Iterator[BatchRange]:
    """Yield the ranges of the batches from ``start`` to ``hi`` that are a period apart."""
    # Of no level thresholds, since there is nothing to choose.
    table = affine_table(network, problem, start, period) if problem.levels else None
    optimum_at: Callable[[int], Optimum]
    last_step = (hi - start) // period
    if table is not None:
        optimum_at = _ByThresholds.of(table, Instance(network, problem), last_step).optimum_at
    else:
        optimum_at = partial(_searched, network, problem, start, period)
    words = network.words(problem.choices)
    instances = _instances(network, problem, start, period)
    uniform = instances[0].workload.baselines["data"][instances[0].workload.shared :]
    data_parallel = _line(instances, [uniform] * problem.levels)
    for first, last, optimum in envelope(optimum_at, last_step, progress):
        yield BatchRange(
            start + first * period,
            start + last * period,
            period,
            words_of(optimum.rows, words),
            start,
            optimum.line,
            data_parallel,
        )


def envelope(
    optimum_at: Callable[[int], Optimum], last: int, progress: Progress = silent
) -> Iterator[tuple[int, int, Optimum]]:
    """Yield the optima of steps 0 to ``last``, each with the first and last step that it has.

    Parameters
    ----------
    optimum_at
        Returns the canonical optimum of a step; those of all steps are of the same plans.
    """
    solved = {step: optimum_at(step) for step in {0, last}}
    unknown = [(0, last)]
    while unknown:
        low, high = unknown.pop()
        left, right = solved[low].line, solved[high].line
        if high - low < 2 or left.at(high) == right.at(high) or right.at(low) == left.at(low):
            continue
        crossing = (right.first - left.first) // (left.per_step - right.per_step)
        middle = max(crossing, low + 1)
        solved[middle] = optimum_at(middle)
        unknown += [(low, middle), (middle, high)]
        progress(len(solved), len(solved) + len(unknown))
    steps = sorted(solved)
    first = 0
    for low, high in pairwise(steps):
        left, right = solved[low], solved[high]
        if left == right:
            continue
        # A tie has its own canonical plan; between two solved batches it is that of the line
        # which is optimal at both.
        before = high if left.line.at(high) == right.line.at(high) else low + 1
        yield first, before - 1, left
        first = before
    yield first, last, solved[last]


@dataclass(frozen=True, eq=False)
class _ByThresholds:
    """Optima by thresholds, from tables that are functions of the batch."""

    table: AffineTable
    instance: Instance
    solver: Solver

    @classmethod
    def of(cls, table: AffineTable, instance: Instance, last: int) -> _ByThresholds:
        """Return what solves the tables of all steps up to the last.

        Raises
        ------
        RefusedError
            If no solver accepts the largest of them.
        """
        # Elimination takes charges of any size; cuts take graphs of any width.
        largest = table.at(table.start + last * table.period, instance.problem.levels)
        for name in ("dp", "cut"):
            solver = SOLVERS[name]()
            refusal = solver.accepts(largest)
            if refusal is None:
                return cls(table, instance, solver)
        raise RefusedError(f"solver {name!r} on {instance.network.name}: {refusal}")

    def optimum_at(self, step: int) -> Optimum:
        levels, affine = self.instance.problem.levels, self.table
        table = affine.at(affine.start + step * affine.period, levels)
        result = self.solver.solve(table, SolverOptions())
        assignment = assignment_of(result)
        first, more = affine.line(assignment, levels)
        if first + step * more != result.objective:
            raise WrongClaimError("claims another objective than its assignment costs")
        nodes = ByThresholds(self.instance, table).invert(assignment)
        rows = tuple(row[affine.shared :] for row in nodes)
        first, more = (Fraction(charge, table.resolution) for charge in (first, more))
        return Optimum(rows, Line(first, more))


def _searched(network: Network, problem: Problem, start: int, period: int, step: int) -> Optimum:
    """Return the optimum of a batch by the ordinary search.

    Raises
    ------
    RefusedError
        If it is not proved.
    """
    batch = start + step * period
    instance = Instance(network, problem.model_copy(update={"batch": batch}))
    name = default_solver(instance, "joint")
    found = SEARCHES["joint"](SearchRequest(instance, SOLVERS[name]()))
    if found.status is not Status.OPTIMAL:
        raise RefusedError(
            f"solver {name!r} on {network.name}, batch {batch:,}: the plan found is not proved"
            " optimal, so that it tells nothing of other batches"
        )
    rows = found.assignments
    return Optimum(rows, _line(_instances(network, problem, start, period), rows, found.tensors))


def _instances(network: Network, problem: Problem, start: int, period: int) -> tuple[Instance, ...]:
    return tuple(
        Instance(network, problem.model_copy(update={"batch": batch}))
        for batch in (start, start + period)
    )


def _line(instances: tuple[Instance, ...], rows: Rows, tensors: Any = None) -> Line:
    """Return a plan's bytes as a line, from those of the first two batches."""
    first, second = (total_cost(instance, rows, tensors) for instance in instances)
    return Line(first, second - first)
