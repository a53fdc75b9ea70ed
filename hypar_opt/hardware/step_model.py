"""How a training step on an array is counted: as it runs today, or as HyPar's paper counts it."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class StepModel(NamedTuple):
    """What an array's ``model`` decides: defaults of problems, uneven shards, and memory.

    Parameters
    ----------
    reading
        The communication model of a problem that names none, where it has that reading.
    objective, choices
        What a problem minimises, and the choices of its layers, unless it says so.
    element_bytes
        The size that goes without saying; None if a plan's title always names it.
    runnable
        Whether plans are those that a framework can run, unless a problem says otherwise.
    by_largest_shard
        Whether a layer takes as long as its largest shard where an axis is split unevenly; else as
        long as the mean.
    memory_by_tensor
        Whether memory is what a device holds at its fullest moment, tensor by tensor; else the
        weights, gradients and state, and the input and output of all layers with their errors.
    """

    reading: str
    objective: str
    choices: tuple[str, ...]
    element_bytes: int | None
    runnable: bool
    by_largest_shard: bool
    memory_by_tensor: bool


HYPAR_2019 = StepModel(
    reading="text",
    objective="bytes",
    choices=("data", "model"),
    element_bytes=4,
    runnable=False,
    by_largest_shard=False,
    memory_by_tensor=False,
)
"""A step as in HyPar (HPCA 2019); also that of problems without an array."""

STEP_MODELS: Mapping[str | None, StepModel] = MappingProxyType(
    {
        None: StepModel(
            reading="executed",
            objective="time",
            choices=("data", "model", "output"),
            element_bytes=None,
            runnable=True,
            by_largest_shard=True,
            memory_by_tensor=True,
        ),
        "hypar-2019": HYPAR_2019,
    }
)
"""By the key ``model`` of an array's file."""
