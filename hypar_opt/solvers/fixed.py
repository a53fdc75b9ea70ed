"""Plans that need no search: the baselines of the evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hypar_opt.solvers.base import SolveResult, SolverOptions, Status
from hypar_opt.workload.parallelism import DATA, MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypar_opt.costs.table import CostTable


class DataParallelism:
    """Data parallelism for every layer: the paper's "Data Parallelism" (section 6.1)."""

    summary: ClassVar[str] = "data parallelism for every layer; no search"
    searches: ClassVar[bool] = False
    supported_options: ClassVar[frozenset[str]] = frozenset()
    most_columns: ClassVar[int | None] = None
    _of_kind: ClassVar[dict[str, int]] = {"conv": DATA, "fc": DATA}

    def accepts(self, table: CostTable) -> str | None:
        unknown = set(table.kinds).difference(self._of_kind)
        if len(table.kinds) != table.layers or unknown:
            return f"goes by each layer's kind, {' or '.join(self._of_kind)}"
        return None

    @classmethod
    def assignment(cls, kinds: Iterable[str]) -> tuple[int, ...] | None:
        """Return each layer's choice, at every level; None if a kind has none."""
        found = [cls._of_kind.get(kind) for kind in kinds]
        return (
            tuple(choice for choice in found if choice is not None) if None not in found else None
        )

    def solve(self, table: CostTable, options: SolverOptions) -> SolveResult:  # noqa: ARG002
        assignment = self.assignment(table.kinds)
        assert assignment is not None
        layers = range(table.layers)
        if table.allowed is not None and not table.allowed[layers, assignment].all():
            return SolveResult(None, None, Status.INFEASIBLE)
        if table.load is not None and table.load[layers, assignment].sum() > table.capacity:
            return SolveResult(None, None, Status.INFEASIBLE)
        return SolveResult(assignment, objective=None, status=Status.FEASIBLE)


class ModelParallelism(DataParallelism):
    """Model parallelism for every layer: the paper's "Model Parallelism" (section 6.1)."""

    summary: ClassVar[str] = "model parallelism for every layer; no search"
    _of_kind: ClassVar[dict[str, int]] = {"conv": MODEL, "fc": MODEL}


class OneWeirdTrick(DataParallelism):
    """Data parallelism for convolutions, model parallelism for fully-connected layers.

    Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
    arXiv:1404.5997; section 6.5.2.
    """

    summary: ClassVar[str] = "data parallelism for conv, model parallelism for fc; no search"
    _of_kind: ClassVar[dict[str, int]] = {"conv": DATA, "fc": MODEL}


BASELINES = {
    "Data Parallelism": DataParallelism,
    "Model Parallelism": ModelParallelism,
    "the Trick": OneWeirdTrick,
}
"""Plans that are always known."""
