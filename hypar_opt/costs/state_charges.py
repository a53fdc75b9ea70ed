"""The states of a layer at all levels, in order, and the charges of nodes and boundaries.

A state has one choice for each of the H levels, H1 first; there are ``choices ** levels``
states. Their canonical order, by which ties are broken: fewest levels not in data parallelism
first, then the fewest in output parallelism, then those that leave data parallelism at H1.

Source: docs/decisions/0005-joint-optimum.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.base import CostModel
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import RefusedError
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.step.states import Indices, exact_sum, state_grid
from hypar_opt.workload.parallelism import choices_below_h1

if TYPE_CHECKING:
    from hypar_opt.workload.tensors import Workload

State = tuple[int, ...]

MAX_STATES = 2**20
MAX_ENTRIES = 2**27
"""The largest number of entries of a table: 1 GiB of int64."""

_LARGEST_ARRAY = 2**18
"""Elements of the largest array of nodes' states that is charged at once."""

_LARGEST_PAIRS = 2**22
"""Elements of the largest array of pairs of states that is charged at once."""

MAX_STATES_KEPT = 2**14
"""Up to this many states of a layer their order is cached: it is the same for all placements."""


def canonical_states(levels: int, choices: int, deadline: Deadline = NEVER) -> Sequence[State]:
    """Return all states in canonical order."""
    if choices**levels <= MAX_STATES_KEPT:
        return _canonical_states(levels, choices)
    return _sorted_states(levels, choices, deadline)


def choices_by_level(workload: Workload, levels: int) -> list[int]:
    """Return how many choices each level has.

    With groups of accelerators all of a layer may be in one part of H1, but not of a level below.
    """
    below = len(choices_below_h1(workload.choices))
    return [below if level else len(workload.choices) for level in range(levels)]


def states_of(workload: Workload, levels: int, deadline: Deadline = NEVER) -> Sequence[State]:
    """Return all states that a node may have, in canonical order."""
    choices = choices_by_level(workload, levels)
    if len({*choices}) < 2:
        return canonical_states(levels, len(workload.choices), deadline)
    return sorted(itertools.product(*map(range, choices)), key=_canonical_key)


@lru_cache(maxsize=16)
def _canonical_states(levels: int, choices: int) -> tuple[State, ...]:
    return tuple(_sorted_states(levels, choices, NEVER))


def _sorted_states(levels: int, choices: int, deadline: Deadline) -> list[State]:
    def sort_key(state: State) -> tuple[int, int, State]:
        deadline.check()
        return _canonical_key(state)

    return sorted(itertools.product(range(choices), repeat=levels), key=sort_key)


def _canonical_key(state: State) -> tuple[int, int, State]:
    return len(state) - state.count(0), state.count(2), tuple(-choice for choice in state)


def in_blocks(
    charged: Callable[[Indices, Indices], Integers], sources: Indices, targets: Indices
) -> Integers:
    """Return the charges of all pairs of states, computed in blocks: ``(sources, targets)``.

    Parameters
    ----------
    charged
        Charges states whose first axis is their levels.
    sources, targets : (levels, states)
    """
    step = max(1, _LARGEST_PAIRS // targets.size)
    blocks = (sources[:, first : first + step] for first in range(0, sources.shape[1], step))
    return np.concatenate([charged(block[..., None], targets[:, None]) for block in blocks])


def charged_pairs(
    cost: CostModel, workload: Workload, boundary: int, sources: Indices, targets: Indices
) -> Integers:
    """Return a boundary's charges of pairs of states, whose first axis is their levels."""
    shape = np.broadcast_shapes(sources.shape, targets.shape)
    number = np.full((1,) * (len(shape) - 1), boundary)
    charges = cost.edge(workload, number, [sources], [targets])
    return np.broadcast_to(exact_sum(charges), shape[1:])


def edges_by_level(
    cost: CostModel, workload: Workload, levels: int, boundaries: Indices | None = None
) -> Sequence[Integers]:
    """Return the charges of boundaries at each level, with axes for the levels of both ends."""
    numbers = np.arange(len(workload.ends)) if boundaries is None else boundaries
    choices = choices_by_level(workload, levels)
    sources = state_grid(choices, behind=levels)
    targets = state_grid(choices, before=levels)
    return cost.edge(workload, numbers.reshape(-1, *[1] * 2 * levels), sources, targets)


def nodes_by_state(
    cost: CostModel,
    workload: Workload,
    nodes: Indices,
    levels: int,
    deadline: Deadline,
    beside: int = 0,
    some: Indices | None = None,
) -> Integers:
    """Return what nodes are charged for each state: ``(nodes, states)``.

    Its integers hold every sum of these and all other charges.

    Parameters
    ----------
    some : (levels, states)
        The states to charge; by default all, in mixed-radix order.
    """
    shape = choices_by_level(workload, levels) if some is None else some.shape[1:]
    columns, states = math.prod(shape), state_grid(shape) if some is None else [some[:, None]]
    step = max(1, _LARGEST_ARRAY // columns)
    totals = []
    for first in range(0, len(nodes), step):
        deadline.check()
        these = nodes[first : first + step].reshape(-1, *[1] * len(shape))
        total = exact_sum(cost.attributed.node(workload, these, states))
        totals.append(np.broadcast_to(total, (len(these), *shape)).reshape(len(these), columns))
    largest = beside + sum(sum(total.max(axis=1).tolist()) for total in totals)
    dtype = np.result_type(exact_dtype(largest), *totals)
    return np.concatenate([total.astype(dtype, copy=False) for total in totals])


def state_indices(states: Sequence[State] | Indices, choices: Sequence[int]) -> NDArray[np.intp]:
    """Return each state's number, in mixed radix: its choices are the digits, H1's first."""
    columns = np.zeros(len(states), np.intp)
    digits = np.array(states, np.intp).reshape(len(states), -1).T
    for digit, radix in zip(digits, choices, strict=True):
        columns = columns * radix + digit
    return columns


def check_states(layers: int, choices: Sequence[int]) -> None:
    """Refuse more states, or table entries, than memory allows.

    Parameters
    ----------
    choices
        How many each level has.

    Raises
    ------
    RefusedError
        Naming the number of states.
    """
    states = math.prod(choices)
    if states > MAX_STATES or layers * states > MAX_ENTRIES:
        raise RefusedError(
            f"all levels together have {states:,} states per layer, more than memory allows"
            f" for {layers} layers; search levelwise, or fewer levels"
        )
