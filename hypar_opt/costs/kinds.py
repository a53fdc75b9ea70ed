"""Kinds of nodes and boundaries: those of one kind are charged alike, as a block's repetitions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.step.uneven import loads_at_ends, sizes_at_ends
from hypar_opt.workload.addends import may_defer_reduction
from hypar_opt.workload.operators.kernels import ALL_FUSED
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.repeats import SINGLE_PASS

if TYPE_CHECKING:
    from hypar_opt.step.states import Indices
    from hypar_opt.workload.tensors import Workload


class Kinds(NamedTuple):
    """The number of each item's kind, and the position of the first item of each kind."""

    numbers: Indices
    first: Indices


def index_by_key(keys: Iterable[Hashable]) -> Kinds:
    """Return the kinds of items with equal keys, in the order of their first items."""
    number_of: dict[Hashable, int] = {}
    numbers = np.array([number_of.setdefault(key, len(number_of)) for key in keys], np.intp)
    return Kinds(numbers, np.unique(numbers, return_index=True)[1])


@lru_cache(maxsize=16)
def kinds_of_boundaries(workload: Workload, end_keys: tuple[Hashable, ...] | None = None) -> Kinds:
    """Return the kinds of boundaries: those of one kind move the same in equal states.

    Parameters
    ----------
    end_keys
        As `CostModel.end_keys`: what else the charges of a node's boundaries depend on.
    """
    layouts, (sources, targets) = workload.layouts, workload.ends.T
    columns = np.vstack(
        [
            index_by_key(workload.extents).numbers,
            # What weights are charged depends on their node.
            np.where(workload.is_weight_boundary, sources, -1),
            may_defer_reduction(workload),
            workload.has_error,
            layouts.output[:, sources],
            layouts.inputs[workload.operand, :, targets].T,
            # An axis, such as heads, may be shorter than the channels.
            *sizes_at_ends(workload),
            *(loads_at_ends(workload) if workload.loads else ()),
            # A source that passes on partial sums reduces them as often as it computes.
            workload.repeats.forward_exchanges(len(workload.nodes), inputs=True)[targets],
            workload.repeats.forward_exchanges(len(workload.nodes), inputs=False)[sources],
            *(index_by_key(end_keys).numbers[workload.ends.T] if end_keys else ()),
        ]
    )
    return index_by_key(column.tobytes() for column in np.ascontiguousarray(columns.T))


def _shards(workload: Workload) -> Iterator[Hashable]:
    """Yield what is sharded of each node's weights, and how many layers use them."""
    for node in range(len(workload.nodes)):
        shards = workload.repeats.sharded.get(node)
        yield shards and (shards, len(workload.weight_users.get(node, (node,))))


@lru_cache(maxsize=16)
def kinds_of_nodes(workload: Workload) -> Kinds:
    """Return the kinds of nodes: those of one kind compute, reduce and keep the same."""
    nodes, repeats = len(workload.nodes), workload.repeats
    columns = np.vstack(
        [
            _kinds_of_tensors(with_repeats(workload, SINGLE_PASS)),
            *repeats.counts(nodes),
            index_by_key(_shards(workload)).numbers,
        ]
    )
    return index_by_key(column.tobytes() for column in np.ascontiguousarray(columns.T))


@lru_cache(maxsize=16)
def _kinds_of_tensors(workload: Workload) -> Indices:
    """Return the numbers of nodes' kinds, regardless of how often a step repeats their passes."""
    layouts, nodes = workload.layouts, workload.nodes
    # Repetitions of a block share their sizes and their operator.
    keys_of_nodes = [
        (
            *(id(x.operator), id(x.sizes), x.input, x.output, x.pooled, x.further_inputs),
            *(x.statistics, x.tied, x.load),
        )
        for x in nodes
    ]
    # An activation, for example, is a kernel without a tensor of its own.
    tensors = {
        key: (x.kind, x.sizes, *key[2:], *(x.kernels(fused=one) for one in ALL_FUSED))
        for key, x in dict(zip(keys_of_nodes, nodes, strict=True)).items()
    }
    columns = np.vstack(
        [
            index_by_key(tensors.values()).numbers[index_by_key(keys_of_nodes).numbers],
            np.isin(np.arange(len(nodes)), list(workload.readers)),
            np.isin(np.arange(len(nodes)), workload.ends[may_defer_reduction(workload), 0]),
            *layouts.inputs,
            layouts.weight,
            layouts.output,
        ]
    )
    return index_by_key(column.tobytes() for column in np.ascontiguousarray(columns.T)).numbers
