"""A tensor on its way from one node of a plan to another: what moves at each level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.proofs.reference.repetitions import Pass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.proofs.reference.plan_graph import PlanEdge, SplitAxis
    from hypar_opt.proofs.reference.readings import ReadingFactors
    from hypar_opt.proofs.reference.reductions import Reduction


@dataclass(frozen=True)
class EdgeConversion:
    """A tensor on its way between the layouts of two nodes' choices.

    Parameters
    ----------
    written, read
        The layout of each choice of the source and of the target: ``batch``, ``token``,
        ``row``, ``column``, ``expert``, ``channel``, ``shuffled``, ``whole``, ``partial`` or
        ``none``.
    axes
        The tensor's axes that the choices of the source split, and those of the target.
    passes
        Those in which it moves, and how often.
    sums
        Of partial sums that are reduced on this way, unless they are read as addends.
    """

    reading: ReadingFactors
    tensor: PlanEdge
    written: tuple[str, ...]
    read: tuple[str, ...]
    axes: tuple[tuple[SplitAxis, ...], tuple[SplitAxis, ...]]
    passes: tuple[tuple[Pass, int], ...]
    sums: tuple[Reduction, ...] = ()

    def moved(self, parts: int) -> list[list[list[int]]]:
        """Return what each pass moves of a copy in a step, for each pair of choices.

        Parameters
        ----------
        parts
            Of the level.
        """
        return [
            [
                [
                    times * _moved(self.reading, step, self.tensor, own, wanted, parts)
                    for step, times in self.passes
                ]
                for wanted in self.read
            ]
            for own in self.written
        ]

    def copies(
        self, stored: NDArray[np.bool_], wanted: NDArray[np.bool_], hierarchy: Hierarchy
    ) -> Integers:
        """Return the copies of the tensor that are moved at each level.

        A run all-gathers it after all else, from the topmost level down. Where it is stored whole
        and read whole each part repeats all of that for its own replica.

        Parameters
        ----------
        stored : (levels, sources)
            Whether it is stored whole at each level.
        wanted : (levels, targets)
            Whether it is read whole.

        Returns
        -------
        (levels, sources, targets)
        """
        sizes = _parts_of_levels(hierarchy, len(wanted))
        kept = stored[:, :, None] & wanted[:, None] & self.reading.scattered
        gathered = wanted[:, None] & ~kept
        copies: Integers = np.where(gathered, sizes, 1)
        above: Integers = copies.cumprod(axis=0) // copies
        if not self.reading.scattered:
            return above
        by_each: Integers = np.where(kept, sizes, 1).prod(axis=0)
        return by_each * np.where(gathered, above, 1)

    def addends(
        self, sources: NDArray[np.intp], targets: NDArray[np.intp], hierarchy: Hierarchy
    ) -> tuple[Integers, Integers, NDArray[np.bool_]]:
        """Return the copies that addends are, and the levels at which sums are reduced.

        Parameters
        ----------
        sources, targets : (levels, states)
            The choices of both ends.

        Returns
        -------
        converted, summed : (sources, targets)
            The copies of the tensor while it is converted, and before, while it is summed.
        reduced : (levels, sources, targets)
        """
        written = np.array(self.written)[sources][:, :, None]
        taken = (np.array(self.read)[targets] == "partial")[:, None]
        left, replicas = (written == "partial") & bool(self.sums), written == "whole"
        sizes = _parts_of_levels(hierarchy, len(sources))
        converted: Integers = np.where(taken & (left | replicas), sizes, 1).prod(axis=0)
        summed: Integers = np.where((taken & left) | replicas, sizes, 1).prod(axis=0)
        return converted, summed, left & ~taken

    def at_once(
        self, sources: NDArray[np.intp], targets: NDArray[np.intp], hierarchy: Hierarchy
    ) -> tuple[Integers, Integers]:
        """Return into how many parts a change of axes at all levels at once divides a tensor.

        What an accelerator sends to another crosses the first level that tells them apart: of a
        tensor in n parts above a level an n-th has yet to cross it.

        Parameters
        ----------
        sources, targets : (levels, states)
            The choices of both ends.

        Returns
        -------
        above, below : (levels, sources, targets)
            The parts of the levels that the change takes in, above and below each of them; 1 at
            others. All 1 in one array, if nothing changes at once.
        """
        if not self.reading.at_once or not self.passes:
            one: Integers = np.ones((1, 1, 1), np.int64)
            return one, one
        shape = len(sources), sources.shape[1], targets.shape[1]
        above: Integers = np.ones(shape, exact_dtype(hierarchy.accelerators))
        below = above.copy()
        written = np.array(self.written)[sources][:, :, None]
        read = np.array(self.read)[targets][:, None]
        axes = {**_sizes(self.tensor), "channel": self.tensor.channels}
        moves = np.isin(written, [*axes, "shuffled"]) & np.isin(read, [*axes, "shuffled"])
        # Channels in another order are still channels, and move by themselves.
        others = [*axes][:-1]
        alike = (written == read) | ~(np.isin(written, others) | np.isin(read, others))
        moves &= ~alike
        uneven = [name for name, size in axes.items() if size % hierarchy.accelerators]
        met = [(moves & ((written == a) | (read == a))).any(axis=0) for a in (*uneven, "shuffled")]
        moves &= sum(own.astype(int) for own in met) <= 1
        parts: Integers = np.ones_like(above[0])
        for level, own in enumerate(moves):
            above[level] = np.where(own, parts, 1)
            parts = parts * np.where(own, hierarchy.sizes[level], 1)
        for level, own in enumerate(moves):
            through = above[level] * hierarchy.sizes[level]
            below[level] = np.where(own, parts // through, 1)
        return above, below


def _parts_of_levels(hierarchy: Hierarchy, levels: int) -> Integers:
    """Return the parts of each of so many levels, ``(levels, 1, 1)``."""
    sizes: Integers = np.array(hierarchy.sizes[:levels], exact_dtype(hierarchy.accelerators))
    return sizes[:, None, None]


def _moved(
    reading: ReadingFactors, step: Pass, tensor: PlanEdge, written: str, read: str, parts: int
) -> int:
    """Return the quarters of elements that a pass moves of a tensor: Table 2, and AccPar's."""
    forward = step is Pass.FORWARD
    if step is Pass.GRADIENT or "none" in (written, read):
        return 0
    if written == "partial" and not reading.scattered:
        # All-reduced, it is on both sides; its error is on none.
        return 0 if forward or read == "whole" else reading.behind_model * tensor.elements
    if written == "partial":  # scattered into what is read, or by batch where that is whole
        written = "batch" if read == "whole" else read
    if written in ("whole", read) or read == "partial":
        return 0
    if read == "whole":
        gathered = reading.gathered_map if forward else reading.gathered_error
        return gathered * (parts - 1) * tensor.elements
    if not reading.scattered:
        return (reading.feature_map if forward else reading.error) * tensor.elements
    return 4 * _exchanged(tensor, parts, written, read)


def _exchanged(tensor: PlanEdge, parts: int, written: str, read: str) -> int:
    """Return the elements that change the part that they are in."""
    sizes = _sizes(tensor)
    first, second = (sizes.get(layout, tensor.channels) for layout in (written, read))
    if {written, read}.isdisjoint(sizes):  # channels, in another order
        return tensor.elements // first * (first - first // parts)
    kept = sum(_share(first, parts, n) * _share(second, parts, n) for n in range(parts))
    return tensor.elements // (first * second) * (first * second - kept)


def _sizes(tensor: PlanEdge) -> dict[str, int]:
    """Return the sizes of a tensor's axes but its channels."""
    by_token = {"batch": tensor.images, "token": tensor.tokens, "expert": tensor.experts}
    return {**by_token, "row": tensor.rows, "column": tensor.columns}


def _share(size: int, parts: int, number: int) -> int:
    """Return how many indices of an axis one of its parts has: the first have the remainder's."""
    return size // parts + (number < size % parts)
