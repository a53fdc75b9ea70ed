"""The optimal plans of all batches at once: a plan's bytes are a line in the batch.

Weights do not depend on the batch, and all other tensors are in proportion to it. So the least
bytes over all plans are the lower envelope of lines, which is concave: where the optimum of one
batch costs at another what the optimum there costs, it is the optimum of all between. Else the
two lines cross between them, and the batch there is solved next.

Source: Eisner and Severance, "Mathematical techniques for efficient record segmentation in large
shared databases", Journal of the ACM 23, 1976.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from hypar_opt.checked import checked
from hypar_opt.documents.document import LARGEST_SIZE
from hypar_opt.errors import HyparError, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import ProblemArguments
from hypar_opt.plan.plan import Plan, columns_of, words_of
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.stated import stated_problem
from hypar_opt.planning.solve import solve
from hypar_opt.results import Column, Columns, Documented, Number, Results
from hypar_opt.search.result import Progress, silent
from hypar_opt.studies.batches.optima import (
    ByThresholdTables,
    Optimum,
    envelope,
    instances_of,
    line_of,
    searched,
)
from hypar_opt.studies.batches.ranges import Amounts, BatchRange, together
from hypar_opt.studies.many.problem_tables import affine_table, problem_period
from hypar_opt.workload.network import Network


@dataclass(frozen=True, repr=False)
class AllBatches(Documented, Results[BatchRange]):
    """The optimal plan of each batch from ``lo`` to ``hi``, as ranges of equal plans.

    Where levels have parts that do not divide a layer's channels, all-to-alls depend on the
    remainder of the batch, and so may plans: ranges are then of every second batch or third.

    Parameters
    ----------
    problem
        The problem of the first batch.
    """

    contents = Columns(
        Column("network", of="network.name"),
        *("lo", "hi"),
        Column("hierarchy", of="problem.hierarchy.sizes"),
        Column("reading", of="problem.reading"),
        Column("choices", of="problem.choices"),
        *("plans", "layers"),
        Column("ranges", of="rows", type=list[Mapping[str, Number | str]]),
    )

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
        return next(
            piece
            for piece in self
            if piece.first <= batch <= piece.last and (batch - piece.first) % piece.every == 0
        )

    def plan(self, batch: int) -> Plan:
        """Return the plan of a batch; it is solved and priced separately."""
        self.at(batch)
        fields = ("element_bytes", "inference", "choices", "level_weights", "constraints")
        arguments: dict[str, Any] = {name: getattr(self.problem, name) for name in fields}
        arguments |= {"hierarchy": self.problem.hierarchy.sizes, "whole_levels": True}
        return solve(
            self.network, search="joint", batch=batch, reading=self.problem.reading, **arguments
        )

    def columns(self, piece: BatchRange) -> tuple[tuple[int, ...], ...]:
        """Return a range's choices, ``(levels, layers)``, as positions among the problem's."""
        return columns_of(piece.parallelism, self.network.words(self.problem.choices))

    def letters(self, piece: BatchRange) -> list[str]:
        """Return each level's choices, one letter per layer: ``d``, ``m`` or ``o``."""
        choices = self.problem.choices
        return ["".join(choices[column][0] for column in row) for row in self.columns(piece)]

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each range; a level's choices have one letter per layer."""
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
                **dict(zip(names, self.letters(piece), strict=True)),
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
    before: the 25 plans of VGG-E at four levels take hundredths of a second.

    Parameters
    ----------
    network
        A name of the zoo, the path of a network file, or a `Network`.
    **problem
        `hypar_opt.plan.arguments.ProblemArguments`: ``levels=4`` or ``hierarchy``, ``reading``,
        ``choices``, ...; but no array, no cost but bytes, and no constraints but pins: what they
        charge or allow is not linear in the batch.

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
    described, stated = _stated(network, lo, hi, problem)
    period = problem_period(described, stated)
    last_start = min(hi, lo + period - 1)
    lines = [
        list(_ranges(described, stated, start, hi, period, progress))
        for start in range(lo, last_start + 1)
    ]
    return AllBatches(tuple(together(lines, lo, hi)), described, stated, lo, hi)


def _stated(
    network: str | Path | Network, lo: int, hi: int, problem: ProblemArguments
) -> tuple[Network, Problem]:
    """Return the problem of the first batch, if its plans' bytes are linear in the batch."""
    for name, batch in (("lo", lo), ("hi", hi)):
        if type(batch) is not int or not 1 <= batch <= LARGEST_SIZE:
            raise HyparError(f"{name}: a batch should be from 1 to {LARGEST_SIZE:,}, got {batch}")
    if lo > hi:
        raise HyparError(f"batches should be from the smallest to the largest, got {lo:,}:{hi:,}")
    if "batch" in problem:
        raise HyparError(f"{argument('batch')}: all batches are solved, from lo to hi")
    arguments: ProblemArguments = {**problem, "batch": lo}
    if arguments.get("array") is not None:
        raise HyparError(
            f"{argument('array')}: time on an array is not linear in the batch; state the"
            f" levels with {argument('hierarchy')}"
        )
    cost = arguments.get("cost")
    if cost not in (None, "bytes"):
        raise HyparError(f"{argument('cost', cost)} is not linear in the batch; only bytes are")
    described, stated = stated_problem(network, arguments)
    _ = Instance(described, stated).cost  # refuses an unknown reading
    constraints = stated.constraints
    for name in type(constraints).model_fields:
        if name not in ("fix", "optimizer") and getattr(constraints, name):
            limit = argument(f"constraints.{name}")
            raise HyparError(
                f"{limit} would allow different plans at different batches, which are solved"
                " together"
            )
    return described, stated


def _ranges(
    network: Network, problem: Problem, start: int, hi: int, period: int, progress: Progress
) -> Iterator[BatchRange]:
    """Yield the ranges of the batches from ``start`` to ``hi`` that are a period apart."""
    # Of no level thresholds, since there is nothing to choose.
    table = affine_table(network, problem, start, period) if problem.levels else None
    optimum_at: Callable[[int], Optimum]
    last_step = (hi - start) // period
    if table is not None:
        optimum_at = ByThresholdTables.of(table, Instance(network, problem), last_step).optimum_at
    else:
        optimum_at = partial(searched, network, problem, start, period)
    words = network.words(problem.choices)
    instances = instances_of(network, problem, start, period)
    uniform = instances[0].workload.baselines["data"][instances[0].workload.shared :]
    data_parallel = line_of(instances, [uniform] * problem.levels)
    for first, last, optimum in envelope(optimum_at, last_step, progress):
        yield BatchRange(
            start + first * period,
            start + last * period,
            period,
            words_of(optimum.rows, words),
            (Amounts(start, period, optimum.line, data_parallel),),
        )
