"""Ties between channels that a layer reads and writes, which splits keep together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from hypar_opt.workload.operands import operands_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.views import Shuffle

    Indices = NDArray[np.intp]


class Axis(NamedTuple):
    """An axis that a level may split: the channels of a tensor, or the rows of a table.

    Parameters
    ----------
    layer
        The position in `Network.layers` of the layer whose output it is, after pooling; below zero,
        an input of the network.
    rows
        The rows of an embedding's table, in place of its output's features.
    """

    layer: int
    rows: bool = False


class Tie(NamedTuple):
    """Pairs of indices of two axes with one label."""

    left: Axis
    left_indices: Indices
    right: Axis
    right_indices: Indices


def ties_of(network: Network, position: int, split: str) -> Iterator[Tie]:
    """Yield the ties between a layer's inputs and output, if it splits an axis of its channels."""
    layer, maps = network.layers[position], list(network.maps())[position]
    operands = operands_of(network)[position]
    axes = [*(Axis(operand.source) for operand in operands), Axis(position)]
    begins = [*(operand.channels[0] if operand.channels else 0 for operand in operands), 0]
    for parts in layer.parts(maps):
        if parts.axis != split:
            continue
        runs = [run._replace(offset=begins[run.tensor] + run.offset) for run in parts.runs]
        first = runs[0]
        for run in runs:
            indices = np.arange(parts.count * run.scale * run.repeats)
            part = indices // run.scale % parts.count
            # The first channel of a part represents it.
            yield Tie(
                axes[run.tensor],
                run.offset + indices,
                axes[first.tensor],
                first.offset + part * first.scale,
            )


def dealt(shuffle: Operator, channels: int) -> Indices:
    """Return, for each channel that a shuffle writes, the one that it reads."""
    groups = cast("Shuffle", shuffle).groups
    return np.arange(channels).reshape(groups, -1).T.reshape(-1)
