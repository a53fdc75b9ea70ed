"""All levels at once: each layer's choice is what it takes at every level together.

A state is a layer's choices at the H levels, H1 first; there are ``choices ** levels`` of
them. States are numbered in canonical order: fewest levels out of data parallelism first,
then the fewest in output parallelism, then those that leave data parallelism at H1 first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.base import CostModel, SplitCounts
from hypar_opt.costs.table import CostTable, Integers, exact_dtype
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import RefusedError

if TYPE_CHECKING:
    from hypar_opt.workload.tensors import Workload

State = tuple[int, ...]
Counts = tuple[int, ...]
EdgeOf = Callable[[Counts, Counts], "Integers"]
"""What boundaries cost at a level, by what their sources and targets have taken above."""

MOST_STATES = 2**20
MOST_ENTRIES = 2**27
"""Numbers that one table may hold: 1 GiB of int64."""


def canonical_states(levels: int, choices: int, deadline: Deadline = NEVER) -> list[State]:
    """Return all states in canonical order."""

    def place(state: State) -> tuple[int, int, State]:
        deadline.check()
        return levels - state.count(0), state.count(2), tuple(-choice for choice in state)

    return sorted(itertools.product(range(choices), repeat=levels), key=place)


@dataclass(frozen=True, eq=False)
class FactoredTable:
    """A joint table whose boundary charge is a sum of one pair's charge a level.

    Parameters
    ----------
    node : (layers, choices ** levels)
        Columns in mixed-radix order, H1 the most significant digit: not canonical.
    pairs
        For each level, ``(boundaries, prefixes, choices, choices)``: what a pair costs, by
        the target's choices at the levels above; one prefix where these do not matter.
    columns : (choices ** levels,)
        The column of each state, the states in canonical order; an assignment counts in that
        order.
    ends, unit, resolution
        As in `CostTable`.
    penalty
        What costs as much takes a forbidden state; None where none is forbidden.
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
    """Price all levels at once, if each level's boundary charge comes apart.

    It does where it is a charge of the source's state, whatever the target takes, plus one
    of the pair that does not depend on what the source took above. The former joins the
    source's node. None where it does not.

    Raises
    ------
    RefusedError
        If there are more states than memory allows.
    NoAnswerError
        If the deadline passes; so for all that builds tables.
    """
    choices = cost.choices
    check_states(len(workload.layers), choices, levels)
    edge = _edges_of(cost, workload, deadline)
    node = _nodes(cost, workload, levels, edge, deadline)
    pairs: list[Integers] = []
    for level in range(levels):
        distinct, prefixes = _prefix_counts(level, choices)
        first = distinct[0]
        behind = [edge(c, first)[:, :, 0] - edge(first, first)[:, :, 0] for c in distinct]
        for source, charge in zip(distinct, behind, strict=True):
            for target in distinct:
                deadline.check()
                if (edge(source, target) != charge[:, :, None] + edge(first, target)).any():
                    return None
        for boundary, source_layer in enumerate(workload.ends[:, 0]):
            deadline.check()
            extra = np.stack([charge[boundary] for charge in behind])[prefixes]
            view = node[source_layer].reshape(len(prefixes), choices, -1)
            view += extra[:, :, None]
        seen = np.stack([edge(first, target) for target in distinct], axis=1)
        alike = bool((seen == seen[:, :1]).all())
        pairs.append(seen[:, :1] if alike else seen[:, prefixes])
    columns = in_mixed_radix(canonical_states(levels, choices, deadline), choices)
    return FactoredTable(node, tuple(pairs), workload.ends, columns, cost.unit, cost.resolution)


def expanded(
    cost: CostModel, workload: Workload, levels: int, deadline: Deadline = NEVER
) -> CostTable:
    """Price all levels at once as a plain table with a choice for each state.

    Columns are in canonical order, so that every solver settles ties alike.

    Raises
    ------
    RefusedError
        If there are more pairs of states than memory allows.
    """
    choices = cost.choices
    check_states(len(workload.layers), choices**2, levels)
    states = canonical_states(levels, choices, deadline)
    order = in_mixed_radix(states, choices)
    pair = _edges_of(cost, workload, deadline)
    node = _nodes(cost, workload, levels, pair, deadline)[:, order]
    edge: Integers = np.zeros((len(workload.ends), len(states), len(states)), node.dtype)
    for level in range(levels):
        # States that have split alike above share a charge of their choices here.
        alike: dict[Counts, list[int]] = {}
        for column, state in enumerate(states):
            alike.setdefault(_counts(state[:level], choices), []).append(column)
        taken = np.array([state[level] for state in states])
        for source, target in itertools.product(alike, repeat=2):
            deadline.check()
            rows, columns = np.ix_(alike[source], alike[target])
            edge[:, rows, columns] += pair(source, target)[:, taken[rows], taken[columns]]
    return CostTable(node, edge, workload.ends, workload.trick, cost.unit, cost.resolution)


def _nodes(
    cost: CostModel, workload: Workload, levels: int, edge: EdgeOf, deadline: Deadline
) -> Integers:
    """Return what each state costs each layer by itself, in mixed-radix order.

    Its type holds every sum of nodes and edges.
    """
    choices, layers = cost.choices, len(workload.layers)
    charges: list[Integers] = []
    largest = 0
    for level in range(levels):
        distinct, prefixes = _prefix_counts(level, choices)
        each = []
        for counts in distinct:
            deadline.check()
            each.append(cost.node(workload, SplitCounts.uniform(layers, counts)))
        charges.append(np.stack(each, axis=1)[:, prefixes])
        largest += sum(charges[-1].max(axis=(1, 2)).tolist())
        pairs = [edge(*pair).max(axis=(1, 2)) for pair in itertools.product(distinct, repeat=2)]
        largest += sum(np.max(pairs, axis=0).tolist())
    together = _together(cost, workload, levels, deadline)
    largest += sum(together.max(axis=1).tolist())
    number = np.result_type(exact_dtype(largest), together, *charges)
    node: Integers = together.astype(number)
    for level, charge in enumerate(charges):
        deadline.check()
        view = node.reshape(layers, choices**level, choices, -1)
        view += charge[..., None]
    return node


def _together(cost: CostModel, workload: Workload, levels: int, deadline: Deadline) -> Integers:
    """Return what each state costs each layer beyond its levels, in mixed-radix order."""
    states = itertools.product(range(cost.choices), repeat=levels)
    found: Integers = np.zeros((len(workload.layers), cost.choices**levels), np.int64)
    for column, state in enumerate(states):
        deadline.check()
        charges = cost.of_state(workload, state)
        if charges:  # of a sum over levels there are none
            total = sum(charge.astype(object) for charge in charges.values())
            found = found.astype(np.result_type(found, *charges.values()), copy=False)
            found[:, column] = total
    return found


def _prefix_counts(level: int, choices: int) -> tuple[list[Counts], NDArray[np.intp]]:
    """Return the distinct counts of the states of some levels, and which each state has."""
    counts = np.zeros((1, choices), np.intp)
    for _ in range(level):
        counts = (counts[:, None, :] + np.eye(choices, dtype=np.intp)).reshape(-1, choices)
    # Of all counts, those with the most data choices come first: the whole tensors.
    distinct, place = np.unique(-counts, axis=0, return_inverse=True)
    return [tuple(row) for row in (-distinct).tolist()], place.reshape(-1)


def _edges_of(cost: CostModel, workload: Workload, deadline: Deadline) -> EdgeOf:
    layers = len(workload.layers)

    @cache
    def edge(source: Counts, target: Counts) -> Integers:
        deadline.check()
        return cost.edge(
            workload, SplitCounts.uniform(layers, source), SplitCounts.uniform(layers, target)
        )

    return edge


def _counts(prefix: State, choices: int) -> Counts:
    return tuple(prefix.count(choice) for choice in range(choices))


def in_mixed_radix(states: Sequence[State], choices: int) -> NDArray[np.intp]:
    """Return each state's column in a `FactoredTable`."""
    places = np.zeros(len(states), np.intp)
    for digit in np.array(states, np.intp).reshape(len(states), -1).T:
        places = places * choices + digit
    return places


def check_states(layers: int, choices: int, levels: int) -> None:
    """Refuse more states, or numbers for them, than memory allows.

    Raises
    ------
    RefusedError
        Naming the states.
    """
    states = choices**levels
    if states > MOST_STATES or layers * states > MOST_ENTRIES:
        raise RefusedError(
            f"all levels together have {choices}^{levels} states a layer, more than memory allows"
            f" for {layers} layers; search levelwise, or fewer levels"
        )
