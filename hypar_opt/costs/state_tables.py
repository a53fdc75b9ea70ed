"""All levels at once: a table over states, each the choices of a layer at all levels.

A state has one choice for each of the H levels, H1 first; there are ``choices ** levels``
states. Their canonical order, by which ties are broken: fewest levels not in data parallelism
first, then the fewest in output parallelism, then those that leave data parallelism at H1.

Source: docs/decisions/0005-joint-optimum.md.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.base import CostModel
from hypar_opt.costs.kinds import kinds_of_boundaries
from hypar_opt.costs.table import CostTable
from hypar_opt.costs.weights import with_penalties
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
"""States of a layer up to which their order is kept: it is that of every placement of an array."""


def canonical_states(levels: int, choices: int, deadline: Deadline = NEVER) -> Sequence[State]:
    """Return all states in canonical order."""
    if choices**levels <= MAX_STATES_KEPT:
        return _canonical_states(levels, choices)
    return _sorted_states(levels, choices, deadline)


def choices_by_level(workload: Workload, levels: int) -> list[int]:
    """Return how many choices each level has.

    With groups of accelerators all of a layer may be in one part of H1, and of no level below.
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


@dataclass(frozen=True, eq=False)
class FactoredTable:
    """A joint table whose boundary charge is a sum over levels of a charge of the pair there.

    Parameters
    ----------
    node : (layers, choices ** levels)
        Columns in mixed-radix order, H1 the most significant digit: not canonical.
    pairs
        For each level, ``(boundaries, prefixes, choices, choices)``: the charge of a pair, by
        the target's choices at the levels above; a single prefix if these do not matter.
    columns : (choices ** levels,)
        The column of each state, in canonical order; an assignment's numbers refer to that
        order.
    ends, unit, resolution
        As in `CostTable`.
    penalty
        An assignment that costs at least this much has a forbidden state; None if none is
        forbidden.
    exact
        Returns what a boundary is charged for some columns of its source and some of its target,
        ``(sources, targets)``, where ``pairs`` are lower bounds; None where they are exact.
    """

    node: Integers
    pairs: tuple[Integers, ...]
    ends: NDArray[np.intp]
    columns: NDArray[np.intp]
    unit: str
    resolution: int
    penalty: int | None = None
    exact: Callable[[int, Indices, Indices], Integers] | None = None

    @property
    def levels(self) -> int:
        return len(self.pairs)

    @property
    def choices(self) -> int:
        return int(self.pairs[0].shape[-1])


def factored(
    cost: CostModel,
    workload: Workload,
    levels: int,
    deadline: Deadline = NEVER,
    *,
    bounding: bool = False,
) -> FactoredTable | None:
    """Price all levels at once, if no boundary's charge depends on its source's choices above.

    None if one does, if replicas below repeat exchanges, or levels have different choices.

    Parameters
    ----------
    bounding
        Whether pairs may be lower bounds, as where parts are uneven: the table then is `exact` on
        demand.

    Raises
    ------
    RefusedError
        If there are more states than memory allows.
    NoAnswerError
        If the deadline passes, as for every function that builds tables.
    """
    choices, level_sizes = len(workload.choices), choices_by_level(workload, levels)
    check_states(len(workload.nodes), level_sizes)
    separable, exact = cost.level_separable(workload), None
    if separable is None and bounding and cost.time is not None and not workload.shared:
        separable = cost.time.level_separable_bound(workload)
        exact = partial(_charged_columns, cost, workload, level_sizes)
    if separable is None or workload.has_replicas or len({*level_sizes}) > 1:
        return None
    pairs: list[Integers] = []
    for level, row in enumerate(_edges(separable, workload, levels)):
        deadline.check()
        # An axis for each level of the source, and then of the target; of size 1 if left out.
        row = row.reshape(*[1] * (2 * levels + 1 - row.ndim), *row.shape)
        source, target = row.shape[1 : levels + 1], row.shape[levels + 1 :]
        above = target[:level]
        elsewhere = *source[:level], *source[level + 1 :], *target[level + 1 :]
        if max(elsewhere, default=1) > 1:
            return None
        row = row.reshape(len(row), source[level], *above, target[level])
        # Charges that do not depend on the target's choices above are stored once, not once per
        # prefix.
        prefixes = [choices if max(above, default=1) > 1 else 1] * level
        full = np.broadcast_to(row, (len(workload.ends), choices, *prefixes, choices))
        pairs.append(
            np.moveaxis(full.reshape(len(full), choices, math.prod(prefixes), choices), 1, 2)
        )
    largest = sum(sum(row.max(axis=(1, 2, 3), initial=0).tolist()) for row in pairs)
    nodes = np.arange(len(workload.nodes))
    node = nodes_by_state(cost, workload, nodes, levels, deadline, largest)
    pairs = [np.array(pair, node.dtype) for pair in pairs]
    each_choice = [(choice,) for choice in range(choices)]
    node, pairs = with_penalties(workload, node, pairs, each_choice)
    columns = state_indices(canonical_states(levels, choices, deadline), level_sizes)
    return FactoredTable(
        node, tuple(pairs), workload.ends, columns, cost.unit, cost.resolution, exact=exact
    )


def _charged_columns(
    cost: CostModel,
    workload: Workload,
    choices: Sequence[int],
    boundary: int,
    sources: Indices,
    targets: Indices,
) -> Integers:
    """Return what a boundary is charged for columns of mixed radix: ``(sources, targets)``."""
    ends = (np.array(np.unravel_index(columns, choices)) for columns in (sources, targets))
    return in_blocks(partial(charged_pairs, cost.attributed, workload, boundary), *ends)


def in_blocks(
    charged: Callable[[Indices, Indices], Integers], sources: Indices, targets: Indices
) -> Integers:
    """Return what all pairs of states are charged, so many at once: ``(sources, targets)``.

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
    """Return what a boundary is charged for pairs of states, whose first axis is their levels."""
    shape = np.broadcast_shapes(sources.shape, targets.shape)
    number = np.full((1,) * (len(shape) - 1), boundary)
    charges = cost.edge(workload, number, [sources], [targets])
    return np.broadcast_to(exact_sum(charges), shape[1:])


def expanded(
    cost: CostModel, workload: Workload, levels: int, deadline: Deadline = NEVER
) -> CostTable:
    """Price all levels at once as a plain table with a column for each state.

    Columns are in canonical order, so that every solver breaks ties in the same way.

    Raises
    ------
    RefusedError
        If there are more pairs of states than memory allows.
    """
    choices = choices_by_level(workload, levels)
    # An edge's matrix has an entry for each pair of states.
    check_states(len(workload.nodes), choices * 2)
    states = states_of(workload, levels, deadline)
    order = state_indices(states, choices)
    every_pair = (len(states),) * 2
    kinds, of_kinds = kinds_of_boundaries(workload, cost.end_keys(workload))
    charged: list[Integers] = []
    for boundary in of_kinds:
        deadline.check()
        total = exact_sum(_edges(cost.attributed, workload, levels, boundary[None]))
        charged.append(np.broadcast_to(total, (1, *choices * 2)))
    largest = sum(int(charged[kind].max()) for kind in kinds)
    nodes = np.arange(len(workload.nodes))
    node = nodes_by_state(cost, workload, nodes, levels, deadline, largest)[:, order]
    edge: Integers = np.zeros((len(workload.ends), len(states), len(states)), node.dtype)
    for kind, charge in enumerate(charged):
        edge[kinds == kind] = charge.reshape(every_pair)[order[:, None], order]
    node, (edge,) = with_penalties(workload, node, [edge], states)
    return CostTable(node, edge, workload.ends, workload.baselines, cost.unit, cost.resolution)


def _edges(
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
        The only states; by default all, in mixed-radix order.
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
    """Return each state's number: its choices as digits, H1's first, of so many at each level."""
    columns = np.zeros(len(states), np.intp)
    digits = np.array(states, np.intp).reshape(len(states), -1).T
    for digit, radix in zip(digits, choices, strict=True):
        columns = columns * radix + digit
    return columns


def check_states(layers: int, choices: Sequence[int]) -> None:
    """Refuse more states, or table entries for them, than memory allows.

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
