"""The choices that pins, even splits and kinds of layers leave, and the least memory they take.

Layers are independent in that, but for those that share weights: these are split at a level as all
of their users split them there, or whole. A `Way` fixes the splits of all shared weights at the
levels from one on, after which every layer is independent again.

Source: docs/decisions/0005-joint-optimum.md, docs/decisions/0010-graphs.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.compute import memory_load
from hypar_opt.instance.divisions import divisions_of
from hypar_opt.instance.pins import Pin, pinned_choices
from hypar_opt.sharding.weights import replicated

if TYPE_CHECKING:
    from hypar_opt.costs.table import Integers
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.workload.tensors import Workload

Counts = tuple[int, ...]
"""How often a layer makes each choice at the levels above, which are as many as their sum."""

Way = tuple[tuple[int, ...], ...]
"""The choices of all shared weights' nodes at each level from one on."""


class LeastLoads:
    """The choices that each layer may make, and its least load over their completions.

    Raises
    ------
    HyparError
        If pins conflict, or name a layer, level or choice that does not exist.

    Attributes
    ----------
    impossible
        More than the load of any plan: that of a choice which nothing completes.
    """

    def __init__(self, problem: ProblemFields, workload: Workload) -> None:
        self._problem, self._workload = problem, workload
        self._even = problem.constraints.even
        self._levels, self._choices = problem.levels, len(problem.choices)
        # What layers share is not pinned: it follows from their choices.
        free: list[dict[int, Pin]] = [{} for _ in range(workload.shared)]
        self._pinned = [free + pins for pins in pinned_choices(problem, workload)]
        # The first level with the same pins as each.
        self._alike = [0] * self._levels
        if problem.constraints.fix:
            rows = [tuple(map(frozenset, row)) for row in self._pinned]
            self._alike = [rows.index(row) for row in rows]
        self._forbidden = workload.forbidden
        self._answers: dict[tuple[int, ...], NDArray[np.bool_]] = {}
        self._least: dict[tuple[Counts, Way | None, bool], Integers] = {}
        self.impossible = 1 + sum(self.load((0,) * self._choices).tolist())

    def may(
        self, level: int, count: int, choice: int, stored: tuple[int, ...] = ()
    ) -> NDArray[np.bool_]:
        """Return which layers may make a choice at a level, having made it so often above.

        Parameters
        ----------
        stored
            The choices of shared weights' nodes there; none to leave them free.
        """
        # Most levels have the same pins, or none.
        key = (self._alike[level], count if self._even else 0, choice, *stored)
        if key not in self._answers:
            self._answers[key] = self._may_make(level, count, choice, stored)
            self._answers[key].setflags(write=False)
        return self._answers[key]

    def _may_make(
        self, level: int, count: int, choice: int, stored: tuple[int, ...]
    ) -> NDArray[np.bool_]:
        allowed: NDArray[np.bool_] = ~self._forbidden[:, choice]
        # No pin at a layer and level leaves all choices.
        allowed &= np.array([not pins or choice in pins for pins in self._pinned[level]])
        if self._even:
            # Shared weights are split as their users are, and a level's shared tensors at will:
            # what is left of them below depends on no layer.
            shared = self._workload.shared
            # The axis is split once more than above; other choices split other axes.
            allowed[shared:] &= self.divisions[choice, shared:] > count
        for (weights, users), own in zip(self._workload.weight_users.items(), stored, strict=False):
            allowed[weights] &= own == choice
            allowed[list(users)] &= own in (replicated(self._workload, weights), choice)
        return allowed

    @cached_property
    def divisions(self) -> NDArray[np.intp]:
        """At how many levels each choice splits each node into equal parts: (choices, nodes)."""
        return divisions_of(self._workload, self._problem.hierarchy)

    def load(self, counts: Counts) -> Integers:
        """Return each layer's load on memory, in bytes of all accelerators together.

        Parameters
        ----------
        counts : (choices,)
            How often every layer makes each choice over all levels.
        """
        same_for_all: Integers = np.broadcast_to(
            np.array(counts, object)[:, None], (len(counts), len(self._workload.nodes))
        )
        return memory_load(self._workload, same_for_all, self._problem)

    def completed(
        self, counts: Counts, choice: int, way: Way | None = None, *, loads: bool = True
    ) -> Integers:
        """Return each layer's least load after one more choice; `impossible` if there is none.

        Parameters
        ----------
        loads
            Whether more is asked than what is `impossible`.
        """
        least = self._after(counts, choice, None, loads)
        if way is not None:
            least[self._tied] = self._after(counts, choice, way, loads)
        return least

    def least(self, counts: Counts, way: Way | None = None, *, loads: bool = True) -> Integers:
        """Return each layer's least load over all completions of its choices above."""
        least = self._completed(counts, None, loads)
        if way is not None:
            least = least.copy()
            least[self._tied] = self._completed(counts, way, loads)
        return least

    def _completed(self, counts: Counts, way: Way | None, loads: bool) -> Integers:
        """Return the least loads of all layers, or in a way of those that it says more of."""
        if not (loads or self._even):
            # Pins do not see how often a choice was made above: one state a level stands for all.
            counts = (sum(counts), *[0] * (self._choices - 1))
        key = counts, way, loads
        if key not in self._least:
            if sum(counts) == self._levels:
                load = self.load(counts)
                self._least[key] = load if way is None else load[self._tied]
            else:
                choices = range(self._choices)
                after = [self._after(counts, choice, way, loads) for choice in choices]
                self._least[key] = np.stack(after).min(axis=0)
        return self._least[key]

    def _after(self, counts: Counts, choice: int, way: Way | None, loads: bool) -> Integers:
        level, more = sum(counts), one_more(counts, choice)
        if way is None:
            may, least = self.may(level, counts[choice], choice), self._completed(more, None, loads)
        else:
            may = self.may(level, counts[choice], choice, way[0])[self._tied]
            least = self._completed(more, way[1:], loads)
        return np.where(may, least, self.impossible)

    @cached_property
    def _tied(self) -> list[int]:
        """The nodes of shared weights, and the layers that use them."""
        shared = self._workload.weight_users
        return [*shared, *(user for users in shared.values() for user in users)]

    def least_of_plans(self) -> int:
        """Return the least load of a plan; `impossible` or more if there is none."""
        start: Counts = (0,) * self._choices
        shared = self._workload.weight_users
        total: int = sum(np.delete(self.least(start), self._tied).tolist())
        # Layers that share one layer's weights depend on no others.
        others = [replicated(self._workload, weights) for weights in shared]
        for position, (weights, users) in enumerate(shared.items()):
            ways = (
                tuple((*others[:position], split, *others[position + 1 :]) for split in splits)
                for splits in self._splits(0, users)
            )
            nodes = [weights, *users]
            total += min(sum(self.least(start, way)[nodes].tolist()) for way in ways)
        return total

    def ways(self, level: int) -> Iterator[Way]:
        """Yield the ways of shared weights from a level on: a plan's own is among them, or alike.

        Loads and constraints see how often a choice is made at levels of equal pins, and not in
        which order: of the orders below the level one is enough.
        """
        own = [list(self._splits(level, users)) for users in self._workload.weight_users.values()]
        for columns in product(*own):
            yield tuple(tuple(column[n] for column in columns) for n in range(self._levels - level))

    def _splits(self, level: int, users: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the splits of one layer's shared weights at the levels from one on."""
        alike: dict[tuple[object, ...], list[int]] = {}
        for n in range(level, self._levels):
            pins = (frozenset(self._pinned[n][user]) for user in users)
            alike.setdefault((n == level, *pins), []).append(n)
        of_group = (
            combinations_with_replacement(range(self._choices), len(group))
            for group in alike.values()
        )
        for choices in product(*of_group):
            made = zip(alike.values(), choices, strict=True)
            by_level = {
                n: choice for group, own in made for n, choice in zip(group, own, strict=True)
            }
            yield tuple(by_level[n] for n in range(level, self._levels))

    def first_infeasible_level(self, position: int) -> int:
        """Return the first level, from 1, at which a layer without a plan has no choice left."""
        reached = {(0,) * self._choices}
        for level in range(self._levels):
            reached = {
                one_more(counts, choice)
                for counts in reached
                for choice in range(self._choices)
                if self.may(level, counts[choice], choice)[position]
            }
            if not reached:
                return level + 1
        raise AssertionError(f"layer {position} can be completed")


def one_more(counts: Counts, choice: int) -> Counts:
    """Return the counts after one more choice."""
    return (*counts[:choice], counts[choice] + 1, *counts[choice + 1 :])
