"""Classes of states, how many levels of each group make each choice; and how two states align."""

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
    """States in classes: those of one make each choice at as many levels of each group.

    Parameters
    ----------
    groups
    states : (levels, states)
        All of them. Classes are numbered in the order of their first states.
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
    """Return each group's levels, how many choices these have, and the ways to align two states.

    Raises
    ------
    RefusedError
        If all ways together are more than memory allows.
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
    """Return all ways to align two states, but for the order of the levels of a group.

    Parameters
    ----------
    sources, targets
        The choices of each level: the levels of a group have the same.

    Returns
    -------
    sources, targets : (levels, alignments)
        One pair of states for each, in the smallest type of integers that holds them.

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
    """Return costs of boundaries between which one lies, if its own classes align in too many ways.

    Raises
    ------
    RefusedError
        If those of these do, too, or there are none.
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
    """Return all states that a node may have, unless their classes align in too many ways.

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
