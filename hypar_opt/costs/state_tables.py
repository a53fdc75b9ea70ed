"""All levels at once: a table over states, each the choices of a layer at all levels.

A state has one choice for each of the H levels, H1 first; there are ``choices ** levels``
states. Their canonical order, by which ties are broken: fewest levels not in data parallelism
first, then the fewest in output parallelism, then those that leave data parallelism at H1.

Source: docs/decisions/0005-joint-optimum.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.base import BoundaryStates, CostModel, SplitCounts
from hypar_opt.costs.table import CostTable, Integers, exact_dtype
from hypar_opt.costs.weights import with_penalties
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import RefusedError
from hypar_opt.sharding.layouts import kind_of_boundary

if TYPE_CHECKING:
    from hypar_opt.workload.tensors import Workload

State = tuple[int, ...]
Counts = tuple[int, ...]
EdgeOf = Callable[[Counts, Counts], "Integers"]
"""The charges of boundaries at a level, by the splits of source and target above it."""

MAX_STATES = 2**20
MAX_ENTRIES = 2**27
"""The largest number of entries of a table: 1 GiB of int64."""


MAX_STATES_KEPT = 2**14
"""States of a layer up to which their order is kept: it is that of every placement of an array."""


def canonical_states(levels: int, choices: int, deadline: Deadline = NEVER) -> Sequence[State]:
    """Return all states in canonical order."""
    if choices**levels <= MAX_STATES_KEPT:
        return _canonical_states(levels, choices)
    return _sorted_states(levels, choices, deadline)


@lru_cache(maxsize=16)
def _canonical_states(levels: int, choices: int) -> tuple[State, ...]:
    return tuple(_sorted_states(levels, choices, NEVER))


def _sorted_states(levels: int, choices: int, deadline: Deadline) -> list[State]:
    def sort_key(state: State) -> tuple[int, int, State]:
        deadline.check()
        return levels - state.count(0), state.count(2), tuple(-choice for choice in state)

    return sorted(itertools.product(range(choices), repeat=levels), key=sort_key)


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
    """

    node: Integers
    pairs: tuple[Integers, ...]
    ends: NDArray[np.intp]
    columns: NDArray[np.intp]
    unit: str
    resolution: int
    penalty: int | None = None

    @property
    def levels(self) -> int:
        return len(self.pairs)

    @property
    def choices(self) -> int:
        return int(self.pairs[0].shape[-1])


def factored(
    cost: CostModel, workload: Workload, levels: int, deadline: Deadline = NEVER
) -> FactoredTable | None:
    """Price all levels at once, if each level's boundary charge is separable.

    It is where it is a charge of the source's splits, whatever the target's, plus a charge of
    the pair that does not depend on the source's splits. The former is added to the source's
    node. None if a level's charge is not.

    Raises
    ------
    RefusedError
        If there are more states than memory allows.
    NoAnswerError
        If the deadline passes, as for every function that builds tables.
    """
    choices = cost.choices
    check_states(len(workload.nodes), choices, levels)
    if workload.has_replicas(choices):
        return None
    edge = _edges_of(cost, workload, deadline)
    node = _nodes(cost, workload, levels, edge, deadline)
    pairs: list[Integers] = []
    for level in range(levels):
        distinct, prefixes = _prefix_counts(level, choices)
        first = distinct[0]
        pair_charges = np.stack([edge(first, target) for target in distinct], axis=1)
        # Charges that do not depend on the target's splits are kept once, not once a prefix.
        same_for_all = bool((pair_charges == pair_charges[:, :1]).all())
        pairs.append(pair_charges[:, :1] if same_for_all else pair_charges[:, prefixes])
        if not cost.reads_splits(workload)[0]:
            continue
        # The candidate decomposition: the charge of the source's splits is its difference to those
        # of data parallelism alone, at one choice of the target; the loop then checks it
        # everywhere.
        source_charges = [edge(c, first)[:, :, 0] - edge(first, first)[:, :, 0] for c in distinct]
        for source, charge in zip(distinct, source_charges, strict=True):
            for target in distinct:
                deadline.check()
                if (edge(source, target) != charge[:, :, None] + edge(first, target)).any():
                    return None
        for boundary, source_layer in enumerate(workload.ends[:, 0]):
            deadline.check()
            # In mixed radix a level's columns are (choices above, choice here, choices below); the
            # charge depends on the first two.
            extra = np.stack([charge[boundary] for charge in source_charges])[prefixes]
            view = node[source_layer].reshape(len(prefixes), choices, -1)
            view += extra[:, :, None]
    each_choice = [(choice,) for choice in range(choices)]
    node, pairs = with_penalties(workload, node, pairs, each_choice)
    columns = in_mixed_radix(canonical_states(levels, choices, deadline), choices)
    return FactoredTable(node, tuple(pairs), workload.ends, columns, cost.unit, cost.resolution)


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
    choices = cost.choices
    # An edge's matrix has an entry for each pair of states.
    check_states(len(workload.nodes), choices**2, levels)
    states = canonical_states(levels, choices, deadline)
    order = in_mixed_radix(states, choices)
    pair = _edges_of(cost, workload, deadline)
    node = _nodes(cost, workload, levels, pair, deadline)[:, order]
    edge: Integers = np.zeros((len(workload.ends), len(states), len(states)), node.dtype)
    for level in range(levels):
        # A level's charge depends on how often each choice was made above, not on the order:
        # states with equal counts share it.
        by_counts: dict[Counts, list[int]] = {}
        for column, state in enumerate(states):
            by_counts.setdefault(_counts(state[:level], choices), []).append(column)
        choices_here = np.array([state[level] for state in states])
        for source, target in itertools.product(by_counts, repeat=2):
            deadline.check()
            rows, columns = np.ix_(by_counts[source], by_counts[target])
            edge[:, rows, columns] += pair(source, target)[
                :, choices_here[rows], choices_here[columns]
            ]
    replica_boundaries = np.flatnonzero(workload.replica_boundaries(choices))
    if replica_boundaries.size:
        charges = _coupled(cost, workload, replica_boundaries, states, deadline)
        edge = edge.astype(np.result_type(edge, charges), copy=False)
        edge[replica_boundaries] = charges
    node, (edge,) = with_penalties(workload, node, [edge], states)
    return CostTable(node, edge, workload.ends, workload.trick, cost.unit, cost.resolution)


def _coupled(
    cost: CostModel,
    workload: Workload,
    boundaries: NDArray[np.intp],
    states: Sequence[State],
    deadline: Deadline,
) -> Integers:
    """Return what boundaries charge for each pair of states: ``(n, states, states)``."""
    columns = np.array(states, np.intp).reshape(len(states), -1).T
    sources = np.repeat(columns, len(states), axis=1)
    targets = np.tile(columns, len(states))
    # Repetitions of a block have the same boundaries: those that are alike are priced once.
    alike: dict[Hashable, list[int]] = {}
    for place, boundary in enumerate(boundaries.tolist()):
        alike.setdefault(kind_of_boundary(workload, cost.choices, boundary), []).append(place)
    charged: list[Integers] = []
    for places in alike.values():
        deadline.check()
        ends = BoundaryStates.of_one(boundaries[places[0]], sources, targets)
        total: Integers = cost.pairs(workload, ends).sum(axis=0)
        charged.append(total.reshape(len(states), len(states)))
    charges = np.empty((len(boundaries), *charged[0].shape), np.result_type(*charged))
    for places, charge in zip(alike.values(), charged, strict=True):
        charges[places] = charge
    return charges


def _nodes(
    cost: CostModel, workload: Workload, levels: int, edge: EdgeOf, deadline: Deadline
) -> Integers:
    """Return each layer's charge of each state, ``(layers, states)``, in mixed-radix order.

    The dtype holds every sum of nodes and edges.
    """
    choices, layers = cost.choices, len(workload.nodes)
    charges: list[Integers] = []
    largest = 0
    for level in range(levels):
        distinct, prefixes = _prefix_counts(level, choices)
        by_counts = []
        for counts in distinct:
            deadline.check()
            by_counts.append(cost.node(workload, SplitCounts.uniform(layers, counts)))
        # The cost model is asked once for each count of choices, not once for each state.
        charges.append(np.stack(by_counts, axis=1)[:, prefixes])
        largest += sum(charges[-1].max(axis=(1, 2)).tolist())
        ends = [distinct if read else distinct[:1] for read in cost.reads_splits(workload)]
        pairs = [edge(*pair).max(axis=(1, 2)) for pair in itertools.product(*ends)]
        largest += sum(np.max(pairs, axis=0).tolist())
    state_charges = _state_charges(cost, workload, levels, deadline)
    largest += sum(state_charges.max(axis=1).tolist())
    dtype = np.result_type(exact_dtype(largest), state_charges, *charges)
    node: Integers = state_charges.astype(dtype)
    for level, charge in enumerate(charges):
        deadline.check()
        view = node.reshape(layers, choices**level, choices, -1)
        view += charge[..., None]
    return node


def _state_charges(
    cost: CostModel, workload: Workload, levels: int, deadline: Deadline
) -> Integers:
    """Return the charges of states that are no sum over levels, in mixed-radix order."""
    states = itertools.product(range(cost.choices), repeat=levels)
    state_charges: Integers = np.zeros((len(workload.nodes), cost.choices**levels), np.int64)
    if type(cost).of_state is CostModel.of_state:
        return state_charges  # of a cost that is a sum over levels, as bytes are
    for column, state in enumerate(states):
        deadline.check()
        charges = cost.of_state(workload, state)
        if charges:  # empty for a cost that is a sum over levels, as bytes are
            total = sum(charge.astype(object) for charge in charges.values())
            # int64 for as long as all charges fit it.
            state_charges = state_charges.astype(
                np.result_type(state_charges, *charges.values()), copy=False
            )
            state_charges[:, column] = total
    return state_charges


@lru_cache(maxsize=64)
def _prefix_counts(level: int, choices: int) -> tuple[list[Counts], NDArray[np.intp]]:
    """Return the distinct counts of choices at ``level`` levels, and the index of each state's."""
    counts = np.zeros((1, choices), np.intp)
    for _ in range(level):
        counts = (counts[:, None, :] + np.eye(choices, dtype=np.intp)).reshape(-1, choices)
    # Negated, so that the counts of data parallelism alone come first: `factored` takes these
    # as the reference from which it measures the source's charge.
    distinct, index = np.unique(-counts, axis=0, return_inverse=True)
    return [tuple(row) for row in (-distinct).tolist()], index.reshape(-1)


def _edges_of(cost: CostModel, workload: Workload, deadline: Deadline) -> EdgeOf:
    """Return the cost model's edge charges by counts of choices, each computed once."""
    layers = len(workload.nodes)
    reads = cost.reads_splits(workload)

    def edge(source: Counts, target: Counts) -> Integers:
        # Any counts of the level stand for all where they do not matter.
        alike = ((sum(counts), *[0] * (len(counts) - 1)) for counts in (source, target))
        ends = zip((source, target), alike, reads, strict=True)
        return priced(*(counts if read else other for counts, other, read in ends))

    @cache
    def priced(source: Counts, target: Counts) -> Integers:
        deadline.check()
        return cost.edge(
            workload, SplitCounts.uniform(layers, source), SplitCounts.uniform(layers, target)
        )

    return edge


def _counts(prefix: State, choices: int) -> Counts:
    return tuple(prefix.count(choice) for choice in range(choices))


def in_mixed_radix(states: Sequence[State], choices: int) -> NDArray[np.intp]:
    """Return each state's column in a `FactoredTable`: its choices as digits, H1's first."""
    columns = np.zeros(len(states), np.intp)
    for digit in np.array(states, np.intp).reshape(len(states), -1).T:
        columns = columns * choices + digit
    return columns


def check_states(layers: int, choices: int, levels: int) -> None:
    """Refuse more states, or table entries for them, than memory allows.

    Raises
    ------
    RefusedError
        Naming the number of states.
    """
    states = choices**levels
    if states > MAX_STATES or layers * states > MAX_ENTRIES:
        raise RefusedError(
            f"all levels together have {choices}^{levels} states a layer, more than memory allows"
            f" for {layers} layers; search levelwise, or fewer levels"
        )
