"""Assignments without a search: the baselines of the paper's evaluation."""

from __future__ import annotations

from typing import ClassVar

from hypar_opt.costs.table import CostTable
from hypar_opt.solvers.base import Solver, SolveResult, SolverOptions, Status


class DataParallelism(Solver):
    """Data parallelism for every layer: the paper's "Data Parallelism" (section 6.1)."""

    summary: ClassVar[str] = "data parallelism for every layer; no search"
    searches: ClassVar[bool] = False
    baseline: ClassVar[str] = "data"
    """Its key in `CostTable.baselines`."""

    def accepts(self, table: CostTable) -> str | None:
        if len(table.baselines.get(self.baseline, ())) != table.layers:
            return "depends on each layer's kind, which this table does not have"
        return None

    def solve(self, table: CostTable, options: SolverOptions) -> SolveResult:  # noqa: ARG002
        assignment, layers = table.baselines[self.baseline], range(table.layers)
        if table.allowed is not None and not table.allowed[layers, assignment].all():
            return SolveResult(None, None, Status.INFEASIBLE)
        if table.exceeded(assignment) is not None:
            return SolveResult(None, None, Status.INFEASIBLE)
        # No search, so no bound: a baseline is feasible even where it happens to be optimal.
        return SolveResult(assignment, objective=None, status=Status.FEASIBLE)


class ModelParallelism(DataParallelism):
    """Model parallelism for every layer: the paper's "Model Parallelism" (section 6.1)."""

    summary: ClassVar[str] = "model parallelism for every layer; no search"
    baseline: ClassVar[str] = "model"


class OneWeirdTrick(DataParallelism):
    """Data parallelism for convolutions, model parallelism for fully-connected layers.

    Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
    arXiv:1404.5997; the HyPar paper, section 6.5.2.
    """

    summary: ClassVar[str] = "data parallelism for conv, model parallelism for fc; no search"
    baseline: ClassVar[str] = "trick"


BASELINES = {"Data Parallelism": "data", "Model Parallelism": "model", "the Trick": "trick"}
"""The paper's baselines by name, and their keys in `CostTable.baselines`.

They need no search, so they are known within any limit.
"""
