"""The factors of each reading, as they are derived a second time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True)
class ReadingFactors:
    """The factors of a reading between two parts, in quarters of an element, both directions added.

    Parameters
    ----------
    gradient
        dW of a layer in data parallelism: an all-reduce.
    forward_sum, backward_sum
        The output of a layer in model parallelism: all-reduced forward, or, where
        ``scattered``, reduce-scattered before pooling forward, its error gathered backward.
    feature_map, error
        A boundary between a split by batch and one by channel, dp-mp say, on A: forward and
        backward. A run's is counted, index by index.
    behind_model
        A boundary behind partial sums, mp-mp and mp-dp, on A: backward.
    gathered_map, gathered_error
        A boundary from a split to an input that is read whole, on A: forward and backward.
    input_error
        An input that is read whole, backward: an all-reduce; 0 where it is reduce-scattered, as
        its boundary says. None if the reading has no charge for such a choice.
    of_network_input
        Whether that is charged for the network's first layer too.
    scattered
        Whether it is a run's, which all-gathers a tensor after all else.
    at_once
        Whether a tensor changes axes at all levels at once.

    Source: Tables 1 and 2, section 3.4; docs/model.md.
    """

    gradient: int
    forward_sum: int
    backward_sum: int
    feature_map: int
    error: int
    behind_model: int
    gathered_map: int = 2
    gathered_error: int = 0
    input_error: int | None = None
    of_network_input: bool = False
    scattered: bool = False
    at_once: bool = False


_OF_A_RUN = ReadingFactors(8, 4, 4, 2, 2, 0, 4, 4, input_error=0, scattered=True)

READINGS: Mapping[str, ReadingFactors] = MappingProxyType(
    {
        "tables": ReadingFactors(4, 4, 0, 1, 1, 2, input_error=4, of_network_input=True),
        "text": ReadingFactors(8, 8, 0, 1, 1, 2, input_error=8),
        "figures": ReadingFactors(8, 8, 0, 2, 2, 0),
        "executed": _OF_A_RUN,
        "joined": replace(_OF_A_RUN, at_once=True),
    }
)
