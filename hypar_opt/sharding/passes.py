"""The three passes of a training step."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """The three passes of a training step.

    Source: section 3.1; docs/assumptions.md.
    """

    FORWARD = "forward"
    """Model parallelism's partial sums; the feature-map part of dp-mp."""
    BACKWARD = "backward"
    """The error part of dp-mp; all of mp-mp and mp-dp; the errors that a run all-gathers."""
    GRADIENT = "gradient"
    """Data parallelism's all-reduce of gradients."""


TRAINING = (Phase.FORWARD, Phase.BACKWARD, Phase.GRADIENT)
INFERENCE = (Phase.FORWARD,)
