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
        The pass that it is part of; gradients' also where it gathers weights.
    kind
        None where a reading only says how much a boundary moves.
    tensor
        What is exchanged: of `TENSORS`.
    level
        From 0 for H1.
    quarters
        What all accelerators together receive across the level in a step, in quarters of an
        element, as the paper counts.
    times
        In how many exchanges.
    passes
        How often it crosses the level each time: twice to reduce-scatter and to all-gather.
    group
        Exchanges of a node in a pass that have one number are one reduction over their levels; of
        gradients the number of what is split there, in `REDUCTION_GROUPS`. Of a boundary 1 where
        its all-to-alls are one over their levels.
    messages
        That one accelerator sends to each other part of the level, each time.
    at_h1
        Where parts of H1 are unequal, the names of layouts, and the numbers of those in which these
        have the tensor before and after. Across H1 a boundary's quarters are then all of it.
    node
        Of one plan: the position in `Workload.nodes` of the layer whose tensor it is, of a boundary
        that which reads it, and of weights in a run that which uses them.
    boundary
        Of one plan; None for a node's tensors.
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
            If they are not integers, as half an exchange of an odd number is not: the paper's
            readings count so.
        """
        if np.any(self.quarters % 4):
            raise HyparError("a reading of the paper counts quarters of elements: charge these")
        return self.quarters // 4


class Kernel(NamedTuple):
    """What nodes compute in one pass: amounts of all accelerators together, each time.

    Parameters
    ----------
    times
        How often a step has the pass.
    macs
        Multiply-accumulates.
    weights, operands, output, inner
        The words of these tensors; the inner one is within a layer, as attention's scores.
    epilogue
        Whether no more than what follows products runs: an activation.
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
"""A node's statistics, output and input's error, the gradient of its weights, and these; rows and
columns at the borders of images; and a boundary's tensor."""
