"""The work of one part of H1 between groups of accelerators, given its share."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hypar_opt.costs.compute import Work
from hypar_opt.costs.kernels import KernelWork
from hypar_opt.costs.sides import OfPart
from hypar_opt.step.states import copies
from hypar_opt.step.uneven import split_sizes, stretched, stretches_of
from hypar_opt.workload.parallelism import SIDES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.sides import Share
    from hypar_opt.integers import Integers
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload


Amounts = dict[Hashable, "Integers"]
"""What nodes have in some states where parts are equal: of words, or of operations."""

CountOfIndices = Callable[["Integers"], "Integers"]
"""Returns how many indices a part has of axes of some sizes."""


@dataclass(frozen=True)
class _WorkOfSide(OfPart):
    """The seconds of each layer's pass on an accelerator of one part.

    Parameters
    ----------
    indices
        How many the part has; None for a linear function of its share that is never more.
    known
        The amounts of equal parts, which parts that are asked for the same nodes and states share.
    """

    indices: CountOfIndices | None = field(default=None, compare=False, repr=False)
    known: Amounts = field(default_factory=dict, compare=False, repr=False)

    def _amounts(
        self,
        workload: Workload,
        sizes: Integers,
        lacks: NDArray[np.bool_],
        nodes: Indices,
        states: States,
    ) -> Integers:
        hierarchy = self.hierarchy  # type: ignore[attr-defined]
        key = tuple(sizes.tolist()), lacks.tobytes()
        if key not in self.known:
            self.known[key] = sizes[nodes] * copies(lacks, nodes, states, hierarchy)
        amounts, top = self.known[key], states[0][0]
        if not self.longest:  # type: ignore[attr-defined]
            own = self.share.scaled(amounts, self.share.of_nodes(workload, nodes, states))
            return np.where(lacks[top, nodes], amounts, own)
        split = np.where(lacks, 0, split_sizes(workload))[:, nodes]
        if self.indices is None:
            at_h1 = np.where(lacks, 0, split_sizes(workload))[top, nodes]
            amounts = self._at_least(amounts, split, at_h1, states)
        else:
            amounts = stretched(amounts, stretches_of(split, states, hierarchy, self.indices))
        return self._on_one_side(amounts, workload, states)

    def _at_least(
        self, amounts: Integers, split: Integers, at_h1: Integers, states: States
    ) -> Integers:
        """Return a linear function of the part's share that is no more than what it has.

        It has at most half an index less than its share for each of its ends that is rounded. So
        the function may be negative.

        Parameters
        ----------
        split, at_h1
            The size of the axis that each choice splits, and that H1 does.
        """
        share, top = self.share, states[0][0]
        others = [np.where(top == choice, 0, size) for choice, size in enumerate(split)]
        stretches = stretches_of(others, states, self.hierarchy)  # type: ignore[attr-defined]
        amounts = stretched(amounts, stretches, down=True)
        every = len(share.parts) * amounts
        part, of = share.parts[share.side], share.whole
        exact = every // of * part + every % of * part // of
        less = -(-every * share.rounded_ends // np.where(at_h1 > 0, 2 * at_h1, 1))
        return np.where(at_h1 > 0, exact - less, amounts)

    def _on_one_side(self, amounts: Integers, workload: Workload, states: States) -> Integers:
        """Return amounts of which the part has all, or nothing, where a layer is in one part."""
        top = states[0][0]
        for choice, name in enumerate(workload.choices):
            if name in SIDES:
                has = len(self.share.parts) * (SIDES.index(name) == self.share.side)
                amounts = np.where(top == choice, has * amounts, amounts)
        return amounts


@dataclass(frozen=True)
class _SideWork(_WorkOfSide, Work):
    """That of an accelerator which achieves a part of its peak in all layers."""


@dataclass(frozen=True)
class _SideKernelWork(_WorkOfSide, KernelWork):
    """That of an accelerator which runs kernels."""

    _counts_order: ClassVar[bool] = False  # a share's first token is not known


def side_work(work: Work, share: Share, known: Amounts | None = None) -> Work:
    """Return the work of an accelerator of one part, which has whole indices of what H1 splits.

    Parameters
    ----------
    known
        What others know of the nodes and states that it is asked for; it adds what it finds.
    """
    return work_of_indices(work, share, share.indices, known)


def work_of_indices(
    work: Work, share: Share, indices: CountOfIndices | None, known: Amounts | None = None
) -> Work:
    """Return the work of an accelerator of a part that has so many indices.

    Parameters
    ----------
    indices, known
        As `_WorkOfSide` has them.
    """
    kind = _SideKernelWork if isinstance(work, KernelWork) else _SideWork
    return replace(kind.among(work, share), indices=indices, known={} if known is None else known)
