"""Plans that need no search: the baselines of the evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from hypar_opt.solvers.base import SolveResult, Status

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable

_DATA, _MODEL = 0, 1


class DataParallelism:
    """Data parallelism for every layer: the paper's "Data Parallelism" (section 6.1)."""

    summary: ClassVar[str] = "data parallelism for every layer; no search"
    _of_kind: ClassVar[dict[str, int]] = {"conv": _DATA, "fc": _DATA}

    def accepts(self, table: CostTable) -> str | None:
        unknown = set(table.kinds).difference(self._of_kind)
        if len(table.kinds) != table.layers or unknown:
            return f"goes by each layer's kind, {' or '.join(self._of_kind)}"
        return None

    def solve(self, table: CostTable) -> SolveResult:
        assignment = tuple(self._of_kind[kind] for kind in table.kinds)
        return SolveResult(assignment, objective=None, status=Status.FEASIBLE)


class ModelParallelism(DataParallelism):
    """Model parallelism for every layer: the paper's "Model Parallelism" (section 6.1)."""

    summary: ClassVar[str] = "model parallelism for every layer; no search"
    _of_kind: ClassVar[dict[str, int]] = {"conv": _MODEL, "fc": _MODEL}


class OneWeirdTrick(DataParallelism):
    """Data parallelism for convolutions, model parallelism for fully-connected layers.

    Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks",
    arXiv:1404.5997; section 6.5.2.
    """

    summary: ClassVar[str] = "data parallelism for conv, model parallelism for fc; no search"
    _of_kind: ClassVar[dict[str, int]] = {"conv": _DATA, "fc": _MODEL}
