"""The work of one part of H1 between groups of accelerators, given its share."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from hypar_opt.costs.compute import Work
from hypar_opt.costs.kernels import KernelWork
from hypar_opt.costs.sides import OfPart

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hypar_opt.costs.sides import Share
    from hypar_opt.costs.states import Indices, States
    from hypar_opt.costs.table import Integers
    from hypar_opt.workload.tensors import Workload


Amounts = dict[Hashable, "Integers"]
"""What nodes have in some states where parts are equal: of words, or of operations."""


@dataclass(frozen=True)
class _WorkOfSide(OfPart):
    """The seconds of each layer's pass on an accelerator of one part.

    Parameters
    ----------
    known
        The amounts of equal parts, which parts that are asked for the same nodes and states share.
    """

    known: Amounts | None = field(default=None, compare=False, repr=False)

    def _amounts(
        self,
        workload: Workload,
        sizes: Integers,
        lacks: NDArray[np.bool_],
        nodes: Indices,
        states: States,
    ) -> Integers:
        known = {} if self.known is None else self.known
        key = tuple(sizes.tolist()), lacks.tobytes()
        if key not in known:
            every = super()._amounts(workload, sizes, lacks, nodes, states)  # type: ignore[misc]
            known[key] = every
        return self.share.of_amounts(known[key], lacks, workload, nodes, states)


@dataclass(frozen=True)
class _SideWork(_WorkOfSide, Work):
    """That of an accelerator which achieves a part of its peak in all layers."""


@dataclass(frozen=True)
class _SideKernelWork(_WorkOfSide, KernelWork):
    """That of an accelerator which runs kernels."""

    _counts_order: ClassVar[bool] = False  # a share's first token is not known


def side_work(work: Work, share: Share, known: Amounts | None = None) -> Work:
    """Return the work of an accelerator of one part.

    Parameters
    ----------
    known
        What others know of the nodes and states that it is asked for; it adds what it finds.
    """
    kind = _SideKernelWork if isinstance(work, KernelWork) else _SideWork
    return replace(kind.among(work, share), known=known)
