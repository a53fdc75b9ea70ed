"""Assignments without a search: the baselines of the paper's evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hypar_opt.costs.table import CostTable
from hypar_opt.solvers.base import Solver, SolveResult, SolverOptions, Status
from hypar_opt.workload.parallelism import DATA, MODEL

if TYPE_CHECKING:
    from collections.abc import Sequence


class DataParallelism(Solver):
    """Data parallelism for every layer: the paper's "Data Parallelism" (section 6.1)."""

    summary: ClassVar[str] = "data parallelism for every layer; no search"
    searches: ClassVar[bool] = False

    @classmethod
    def assignment(cls, trick: Sequence[int]) -> tuple[int, ...]:
        """Return every layer's choice; `trick` has those of the "one weird trick"."""
        return (DATA,) * len(trick)

    def accepts(self, table: CostTable) -> str | None:
        if len(table.trick) != table.layers:
            return "depends on each layer's kind, which this table does not have"
        return None

    def solve(self, table: CostTable, options: SolverOptions) -> SolveResult:  # noqa: ARG002
        assignment = self.assignment(table.trick)
        layers = range(table.layers)
        if table.allowed is not None and not table.allowed[layers, assignment].all():
            return SolveResult(None, None, Status.INFEASIBLE)
        if table.load is not None and table.load[layers, assignment].sum() > table.capacity:
            return SolveResult(None, None, Status.INFEASIBLE)
        # No search, so no bound: a baseline is feasible even where it happens to be optimal.
        return SolveResult(assignment, objective=None, status=Status.FEASIBLE)


class ModelParallelism(DataParallelism):
    """Model parallelism for every layer: the paper's "Model Parallelism" (section 6.1)."""

    summary: ClassVar[str] = "model parallelism for every layer; no search"

    @classmethod
    def assignment(cls, trick: Sequence[int]) -> tuple[int, ...]:
        return (MODEL,) * len(trick)


class OneWeirdTrick(DataParallelism):
    """Data parallelism for convolutions, model parallelism for fully-connected layers.

    Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
    arXiv:1404.5997; the HyPar paper, section 6.5.2.
    """

    summary: ClassVar[str] = "data parallelism for conv, model parallelism for fc; no search"

    @classmethod
    def assignment(cls, trick: Sequence[int]) -> tuple[int, ...]:
        return tuple(trick)


BASELINES = {
    "Data Parallelism": DataParallelism,
    "Model Parallelism": ModelParallelism,
    "the Trick": OneWeirdTrick,
}
"""The paper's baselines by name; they need no search, so they are known within any limit."""
