"""A network's axes of channels, features and vocabulary, as the levels of an array split them.

Every such axis is stored as one dimension of two per level that splits it, H1 first, and one
dimension for the rest, so that each level's mesh axis splits a dimension of its own. Layers without
weights tie the axes that they read to those that they write: a sum takes the same channels of all
its inputs, a concatenation puts them side by side. Tied axes are split by the same levels, and into
the same channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class StoredAxis:
    """A stored axis.

    Parameters
    ----------
    levels
        The number of hierarchy levels.
    split
        The levels that split it in any tensor tied to it, from 0 for H1.
    segments
        Sizes of the parts that are split separately, such as the inputs of a concatenation.
    """

    levels: int
    split: tuple[int, ...]
    segments: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(self.segments)

    @property
    def shape(self) -> tuple[int, ...]:
        """One dimension per level, of size 1 if the level does not split the axis, and the rest."""
        digits = (2 if level in self.split else 1 for level in range(self.levels))
        return (*digits, self.size >> len(self.split))

    @property
    def order(self) -> NDArray[np.intp]:
        """The index in the network's order at each stored position, an array of `shape`."""
        starts = np.cumsum((0, *self.segments))
        parts = [
            np.arange(start, start + size).reshape(*self.shape[:-1], size >> len(self.split))
            for start, size in zip(starts, self.segments, strict=False)
        ]
        return np.concatenate(parts, axis=-1)


class _Tie(NamedTuple):
    """``outer`` has ``repeats`` runs of ``inner``'s indices, each of them ``scale`` times."""

    inner: int
    outer: int
    scale: int
    offset: int
    repeats: int


class AxisTies:
    """Axes, their ties, and the levels that split them."""

    def __init__(self, levels: int) -> None:
        self._levels = levels
        self._sizes: list[int] = []
        self._names: list[str] = []
        self._same: list[int] = []
        self._split: list[set[int]] = []
        self._ties: list[_Tie] = []

    def new(self, size: int, name: str) -> int:
        """Return the number of a new axis; ``name`` describes it in messages."""
        self._sizes.append(size)
        self._names.append(name)
        self._same.append(len(self._same))
        self._split.append(set())
        return len(self._same) - 1

    def split(self, axis: int, levels: Iterable[int]) -> None:
        """Have levels split an axis."""
        self._split[axis].update(levels)

    def same(self, axis: int, other: int) -> None:
        """Say that two axes are one."""
        self._same[self._root(other)] = self._root(axis)

    def tie(
        self, inner: int, outer: int, scale: int = 1, offset: int = 0, repeats: int = 1
    ) -> None:
        """Say that every index of ``inner`` stands for ``scale`` indices of ``outer``."""
        self._ties.append(_Tie(inner, outer, scale, offset, repeats))

    def _root(self, axis: int) -> int:
        while self._same[axis] != axis:
            axis = self._same[axis]
        return axis

    def solve(self) -> list[StoredAxis]:
        """Return all stored axes.

        Raises
        ------
        HyparError
            Naming an axis that its levels cannot split into equal parts.
        """
        split = self._tied_levels()
        cuts = self._tied_cuts()
        axes = []
        for axis, (size, name) in enumerate(zip(self._sizes, self._names, strict=True)):
            root = self._root(axis)
            ends = sorted(cuts[root] | {size})
            segments = tuple(end - start for start, end in zip([0, *ends], ends, strict=False))
            parts = 1 << len(split[root])
            uneven = next((segment for segment in segments if segment % parts), None)
            if uneven is not None:
                raise HyparError(_uneven(name, size, uneven, sorted(split[root])))
            axes.append(StoredAxis(self._levels, tuple(sorted(split[root])), segments))
        return axes

    def _tied_levels(self) -> list[set[int]]:
        # Both ends of a tie are split alike: a connected component shares one set.
        component = list(range(len(self._same)))

        def find(axis: int) -> int:
            while component[axis] != axis:
                axis = component[axis]
            return axis

        for tie in self._ties:
            component[find(self._root(tie.inner))] = find(self._root(tie.outer))
        together: dict[int, set[int]] = {}
        for axis, levels in enumerate(self._split):
            together.setdefault(find(self._root(axis)), set()).update(levels)
        return [together.get(find(self._root(axis)), set()) for axis in range(len(self._same))]

    def _tied_cuts(self) -> list[set[int]]:
        """Return the cuts of each axis into segments, propagated along ties."""
        cuts: list[set[int]] = [set() for _ in self._same]
        changed = True
        while changed:
            changed = False
            for tie in self._ties:
                inner, outer = cuts[self._root(tie.inner)], cuts[self._root(tie.outer)]
                before = len(inner) + len(outer)
                self._exchange(tie, inner, outer)
                changed |= len(inner) + len(outer) > before
        return cuts

    def _exchange(self, tie: _Tie, inner: set[int], outer: set[int]) -> None:
        run = self._sizes[tie.inner] * tie.scale
        ends = {0, self._sizes[tie.outer]}
        for repeat in range(tie.repeats):
            start = tie.offset + repeat * run
            outer |= {start, start + run, *(start + cut * tie.scale for cut in inner)} - ends
            for cut in outer:
                within, rest = divmod(cut - start, tie.scale)
                if rest and 0 < cut - start < run:
                    raise HyparError(
                        f"{self._names[tie.outer]}: a part of it ends inside one of"
                        f" {self._names[tie.inner]}, so that no level can split both"
                    )
                if 0 < within < self._sizes[tie.inner]:
                    inner.add(within)


def _uneven(name: str, size: int, segment: int, levels: list[int]) -> str:
    at = ", ".join(f"H{level + 1}" for level in levels)
    part = "" if segment == size else f" (in parts, one of {segment})"
    count = 1 << len(levels)
    return (
        f"{name}: its size {size}{part} should be divisible by {count}, since {at} split it;"
        " solve with --even, or use other sizes"
    )
