"""The operations of a training step: what accelerators exchange, compute and update."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from hypar_opt.errors import HyparError
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase

Amount = Any
"""An integer, of one plan; or an array over nodes, or boundaries, and their states."""


class Collective(NamedTuple):
    """An exchange across one level of the hierarchy.

    Parameters
    ----------
    phase
        The pass that it is part of; `Phase.GRADIENT` also where it gathers updated weights.
    kind
        None if a reading only says how much a boundary moves.
    tensor
        What is exchanged: one of `TENSORS`.
    level
        From 0 for H1.
    quarters
        What all accelerators together receive across the level in a step, in quarters of an
        element, as the paper counts.
    times
        The number of exchanges.
    passes
        How often it crosses the level each time: twice to reduce-scatter and to all-gather.
    group
        Exchanges of a node in a pass with the same number are one reduction over their levels; for
        gradients it is the number of what is sharded there, in `REDUCTION_GROUPS`. For a boundary,
        1 if its all-to-alls are joined over their levels.
    messages
        The messages that an accelerator sends to each other part of the level, each time.
    at_h1
        Where parts of H1 are unequal, the names of layouts, and the numbers of the layouts in which
        the parts have the tensor before and after. Across H1 a boundary's quarters are then those
        of the whole tensor.
    node
        In a plan, the position in `Workload.nodes` of the layer whose tensor it is; for a boundary,
        of the layer that reads it; and for weights in a run, of the layer that uses them.
    boundary
        In a plan, the boundary; None for a node's tensors.
    """

    phase: Phase
    kind: StepKind | None
    tensor: str
    level: int
    quarters: Amount
    times: Amount = 1
    passes: Amount = 1
    group: Amount = 0
    messages: Amount = 1
    at_h1: tuple[tuple[str, ...], Amount, Amount] | None = None
    node: int = 0
    boundary: int | None = None

    @property
    def elements(self) -> Amount:
        """The elements that all accelerators together receive in a step.

        Raises
        ------
        HyparError
            If they are not integers: the paper's readings count halves of exchanges, which may be
            odd.
        """
        if np.any(self.quarters % 4):
            raise HyparError("a reading of the paper counts quarters of elements: charge these")
        return self.quarters // 4


class Kernel(NamedTuple):
    """What nodes compute in one pass: amounts of all accelerators together, per repetition.

    Parameters
    ----------
    times
        How often a step has the pass.
    macs
        Multiply-accumulates.
    weights, operands, output, inner
        The words of these tensors; the inner one is internal to a layer, such as attention's
        scores.
    epilogue
        Whether only what follows products runs: an activation.
    """

    phase: Phase
    times: Amount
    macs: Amount
    weights: Amount
    operands: Amount
    output: Amount
    inner: Amount
    epilogue: bool = False


class Update(NamedTuple):
    """The update of the weights that nodes keep: their words, of all accelerators together."""

    words: Amount


def by_level(operations: Iterable[Collective], levels: int) -> list[list[Collective]]:
    """Return operations by level, H1's first."""
    rows: list[list[Collective]] = [[] for _ in range(levels)]
    for operation in operations:
        rows[operation.level].append(operation)
    return rows


TENSORS = ("statistics", "output", "error", "gradient", "weights", "halo", "input")
"""A node's statistics, output, error of its input, gradient of its weights, and weights; halos of
images; and a boundary's tensor."""
