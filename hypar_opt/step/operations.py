"""The operations of a training step: what accelerators exchange, compute, update and hold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from hypar_opt.errors import HyparError
from hypar_opt.sharding.conversions import StepKind as StepKind
from hypar_opt.sharding.passes import Phase as Phase

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
        gradients the number of what is split there, in `COLLECTIVES`.
    messages
        That one accelerator sends to each other part of the level, each time.
    top
        At levels below H1 of unequal parts: the number of the tensor's layout at H1 meanwhile.
    between
        At an H1 of unequal parts, of a boundary: the numbers of its layouts before and after.
    """

    phase: Phase
    kind: StepKind | None
    tensor: str
    level: int
    quarters: Amount
    times: Amount = 1
    passes: Amount = 1
    group: int = 0
    messages: Amount = 1
    top: Amount = 0
    between: tuple[Amount, Amount] | None = None

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


TENSORS = ("statistics", "output", "error", "gradient", "weights", "halo", "input")
"""A node's statistics, output and input's error, the gradient of its weights, and these; rows and
columns at the borders of images; and a boundary's tensor."""
