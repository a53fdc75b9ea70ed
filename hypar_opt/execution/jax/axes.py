"""A network's axes of channels, features, vocabulary and tokens, as levels split them.

Every such axis is stored as one dimension per level that splits it, as long as the level has
parts, H1 first, and one dimension for the rest, so that each level's mesh axis splits a dimension
of its own. Layers without
weights tie the axes that they read to those that they write: a sum takes the same channels of all
its inputs, a concatenation puts them side by side. Tied axes are split by the same levels, and into
the same channels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.errors import HyparError
from hypar_opt.execution.batches import sizes_remedy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.sharding.layouts import Layout


@dataclass(frozen=True)
class StoredAxis:
    """A stored axis.

    Parameters
    ----------
    hierarchy
        The parts of each level.
    split
        The levels that split it in any tensor tied to it, from 0 for H1.
    segments
        Sizes of the parts that are split separately, such as the inputs of a concatenation.
    mirrored
        Whether each part has indices of both ends, as tokens under a causal mask: the last part of
        a level has the first of the second of two segments.
    """

    hierarchy: Hierarchy
    split: tuple[int, ...]
    segments: tuple[int, ...]
    mirrored: bool = False

    @property
    def size(self) -> int:
        return sum(self.segments)

    @property
    def shape(self) -> tuple[int, ...]:
        """One dimension per level, of size 1 if the level does not split the axis, and the rest."""
        sizes = enumerate(self.hierarchy.sizes)
        digits = (size if level in self.split else 1 for level, size in sizes)
        return (*digits, self.size // self.parts)

    @property
    def parts(self) -> int:
        """The parts into which its levels together split it."""
        return self.hierarchy.parts(self.split)

    @property
    def order(self) -> NDArray[np.intp]:
        """The index in the network's order at each stored position, an array of `shape`."""
        starts = np.cumsum((0, *self.segments))
        parts = [
            np.arange(start, start + size).reshape(*self.shape[:-1], size // self.parts)
            for start, size in zip(starts, self.segments, strict=False)
        ]
        if self.mirrored:
            parts[1] = np.flip(parts[1], tuple(range(self.hierarchy.levels)))
        return np.concatenate(parts, axis=-1)


def split_by(layouts: Layouts, wanted: Layout) -> tuple[int, ...]:
    """Return the levels at which a tensor has a given layout."""
    return tuple(level for level, layout in enumerate(layouts) if layout is wanted)


class _Tie(NamedTuple):
    """``outer`` repeats ``inner``'s indices ``repeats`` times, each ``scale`` times in a row."""

    inner: int
    outer: int
    scale: int
    offset: int
    repeats: int


class AxisTies:
    """Axes, their ties, and the levels that split them."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._hierarchy = hierarchy
        self._sizes: list[int] = []
        self._names: list[str] = []
        self._split: list[set[int]] = []
        self._ties: list[_Tie] = []
        self._mirrored: list[bool] = []

    def new(self, size: int, name: str, *, mirrored: bool = False) -> int:
        """Return the number of a new axis; ``name`` describes it in messages."""
        self._sizes.append(size)
        self._mirrored.append(mirrored)
        self._names.append(name)
        self._split.append(set())
        return len(self._sizes) - 1

    def split(self, axis: int, levels: Iterable[int]) -> None:
        """Record that levels split an axis."""
        self._split[axis].update(levels)

    def tie(
        self, inner: int, outer: int, scale: int = 1, offset: int = 0, repeats: int = 1
    ) -> None:
        """Tie two axes: every index of ``inner`` stands for ``scale`` indices of ``outer``."""
        self._ties.append(_Tie(inner, outer, scale, offset, repeats))

    def solve(self) -> list[StoredAxis]:
        """Return all stored axes.

        Raises
        ------
        HyparError
            With an axis that its levels cannot split into equal parts.
        """
        axes = []
        tied = self._tied_levels()
        for size, name, mirrored, levels, cuts in zip(
            self._sizes,
            self._names,
            self._mirrored,
            tied,
            self._tied_cuts(tied),
            strict=True,
        ):
            ends = sorted(cuts | {size})
            segments = tuple(end - start for start, end in zip([0, *ends], ends, strict=False))
            split = tuple(sorted(levels))
            axis = StoredAxis(self._hierarchy, split, segments, mirrored)
            uneven = next((segment for segment in segments if segment % axis.parts), None)
            if uneven is not None:
                raise HyparError(_uneven(name, axis, uneven))
            axes.append(axis)
        return axes

    def _tied_levels(self) -> list[set[int]]:
        # Tied axes are split by the same levels: a connected component shares one set.
        together = [(levels, [axis]) for axis, levels in enumerate(self._split)]
        for tie in self._ties:
            inner, outer = together[tie.inner], together[tie.outer]
            if inner is not outer:
                both = inner[0] | outer[0], inner[1] + outer[1]
                for axis in both[1]:
                    together[axis] = both
        return [levels for levels, _ in together]

    def _tied_cuts(self, levels: list[set[int]]) -> list[set[int]]:
        """Return the cuts of each axis into segments, propagated along ties.

        Parameters
        ----------
        levels
            Those that split each axis.
        """
        halves = zip(self._sizes, self._mirrored, strict=True)
        cuts: list[set[int]] = [{size // 2} if mirrored else set() for size, mirrored in halves]
        changed = True
        while changed:
            changed = False
            for tie in self._ties:
                inner, outer = cuts[tie.inner], cuts[tie.outer]
                before = len(inner) + len(outer)
                self._exchange(tie, inner, outer, is_split=bool(levels[tie.outer]))
                changed |= len(inner) + len(outer) > before
        return cuts

    def _exchange(self, tie: _Tie, inner: set[int], outer: set[int], *, is_split: bool) -> None:
        run = self._sizes[tie.inner] * tie.scale
        ends = {0, self._sizes[tie.outer]}
        for repeat in range(tie.repeats):
            start = tie.offset + repeat * run
            outer |= {start, start + run, *(start + cut * tie.scale for cut in inner)} - ends
            for cut in outer:
                within, rest = divmod(cut - start, tie.scale)
                if rest and 0 < cut - start < run:
                    if not is_split:
                        continue
                    raise HyparError(
                        f"{self._names[tie.outer]}: a part of it ends inside one of"
                        f" {self._names[tie.inner]}, so that no level can split both"
                    )
                if 0 < within < self._sizes[tie.inner]:
                    inner.add(within)


def _uneven(name: str, axis: StoredAxis, segment: int) -> str:
    at = ", ".join(f"H{level + 1}" for level in axis.split)
    part = "" if segment == axis.size else f" (in parts, one of {segment})"
    words = re.fullmatch(r"layer '(.*)', vocabulary", name)
    remedy = sizes_remedy(words and words[1], axis.parts)
    split = "splits" if len(axis.split) == 1 else "split"
    return (
        f"{name}: its size {axis.size}{part} should be divisible by {axis.parts}, since {at}"
        f" {split} it in one layer or another; {remedy}"
    )
