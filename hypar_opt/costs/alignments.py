"""Classes of states, by how often each choice occurs in groups of levels; and alignments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.state_charges import MAX_ENTRIES, State, choices_by_level, states_of
from hypar_opt.deadline import Deadline
from hypar_opt.errors import RefusedError
from hypar_opt.step.states import Indices

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.workload.tensors import Workload

_BOUNDED = 2**13
"""States up to which all of a node's are charged for a bound alone."""

Groups = tuple[int, ...]
"""The group of each level."""


@dataclass(frozen=True, eq=False)
class StateClasses:
    """Classes of states: in one class, each choice occurs at equally many levels of each group.

    Parameters
    ----------
    groups
    states : (levels, states)
        All states; classes are numbered in the order of their first states.
    choices
    """

    groups: Groups
    states: Indices
    choices: int

    @property
    def count(self) -> int:
        """The number of classes."""
        return len(self._numbers[0])

    @cached_property
    def labels(self) -> Indices:
        """The classes of all states."""
        return self.of(self.states)

    def of(self, states: Indices) -> Indices:
        """Return the classes of states, ``(levels, states)``."""
        counts, numbers = self._numbers
        classes: Indices = numbers[np.searchsorted(counts, self._counts(states))]
        return classes

    @cached_property
    def _numbers(self) -> tuple[Indices, Indices]:
        """The counts of each class, ascending, and its number."""
        counts, first = np.unique(self._counts(self.states), return_index=True)
        return counts, first.argsort().argsort()

    def _counts(self, states: Indices) -> Indices:
        """Return how many levels of each group make each choice, as one number."""
        weight, weights = 1, {}
        for group in dict.fromkeys(self.groups):
            levels, choices = self.groups.count(group), np.arange(self.choices)
            # In a group of one level the choice itself is the smaller number.
            weights[group] = weight * (choices if levels == 1 else (levels + 1) ** choices)
            weight *= self.choices if levels == 1 else (levels + 1) ** self.choices
        counts = np.zeros(states.shape[1], np.intp)
        for group, level in zip(self.groups, states, strict=True):
            counts += weights[group][level]
        return counts


def ways_to_align(
    groups: Groups, choices: Sequence[int]
) -> tuple[list[NDArray[np.intp]], list[int], list[int]]:
    """Return each group's levels, their number of choices, and the number of alignments.

    Raises
    ------
    RefusedError
        If memory does not allow as many alignments.
    """
    levels = [np.flatnonzero(np.array(groups) == group) for group in dict.fromkeys(groups)]
    sizes = [choices[some[0]] for some in levels]
    counts = [
        math.comb(n**2 + len(some) - 1, len(some)) for n, some in zip(sizes, levels, strict=True)
    ]
    check_size(math.prod(counts) * len(groups))
    return levels, sizes, counts


def alignments(
    groups: Groups,
    sources: Sequence[Indices],
    targets: Sequence[Indices],
    deadline: Deadline,
) -> tuple[Indices, Indices]:
    """Return all alignments of two states, up to permutations of the levels within a group.

    Parameters
    ----------
    sources, targets
        The possible choices of each level, the same at all levels of a group.

    Returns
    -------
    sources, targets : (levels, alignments)
        A pair of states for each alignment, in the smallest integer type that holds them.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    levels = [np.flatnonzero(np.array(groups) == group).tolist() for group in dict.fromkeys(groups)]
    pairs = [np.array([*itertools.product(sources[n], targets[n])]).T for n, *_ in levels]
    kinds = [
        np.array([*itertools.combinations_with_replacement(range(pair.shape[1]), len(members))]).T
        for pair, members in zip(pairs, levels, strict=True)
    ]
    counts = [kind.shape[1] for kind in kinds]
    highest = max((int(pair.max()) for pair in pairs), default=0)
    ends = np.empty((2, len(groups), *counts), np.min_scalar_type(highest))
    for axis, (pair, members, numbers) in enumerate(zip(pairs, levels, kinds, strict=True)):
        # The pairs of a group do not depend on those of others.
        alone = [count if axis == group else 1 for group, count in enumerate(counts)]
        deadline.check()
        ends[:, members] = pair[:, numbers].reshape(2, len(members), *alone)
    return ends[0].reshape(len(groups), -1), ends[1].reshape(len(groups), -1)


def numbered_groups(kinds: Sequence[Hashable]) -> Groups:
    """Return groups of the levels of each kind."""
    return tuple(map(list(kinds).index, kinds))


def check_size(entries: int) -> None:
    """Refuse more entries than memory allows.

    Raises
    ------
    RefusedError
        Naming their number.
    """
    if entries > MAX_ENTRIES:
        raise RefusedError(
            f"all levels together need {entries:,} entries; at most {MAX_ENTRIES:,} are kept in"
            " memory"
        )


def bracketing_costs(
    cost: CostModel, workload: Workload, levels: int
) -> tuple[CostModel, CostModel] | None:
    """Return bounds on a cost whose classes have too many alignments; None if they do not.

    Raises
    ------
    RefusedError
        If the bounds have too many alignments, too, or there are no bounds.
    """
    choices = choices_by_level(workload, levels)
    try:
        ways_to_align(tuple(cost.symmetries(workload, levels).level_groups), choices)
    except RefusedError:
        if cost.time is None or math.prod(choices) > _BOUNDED:
            raise
        bounds: tuple[CostModel, CostModel] = cost.time.uniform_link_bounds
        ways_to_align(tuple(bounds[0].symmetries(workload, levels).level_groups), choices)
        return bounds
    return None


def states_in_classes(
    cost: CostModel, workload: Workload, levels: int, deadline: Deadline
) -> Sequence[State]:
    """Return all states that a node may have, unless their classes have too many alignments.

    Raises
    ------
    RefusedError
        Before any state is listed.
    NoAnswerError
        If the deadline passes.
    """
    groups = tuple(cost.symmetries(workload, levels).level_groups)
    ways_to_align(groups, choices_by_level(workload, levels))
    return states_of(workload, levels, deadline)
