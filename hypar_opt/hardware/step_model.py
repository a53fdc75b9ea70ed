"""How a training step on an array is counted: as it runs today, or as HyPar's paper counts it."""

from __future__ import annotations

from typing import NamedTuple

from hypar_opt.frozen import FrozenDict


class StepModel(NamedTuple):
    """What an array's ``model`` decides: defaults of problems, uneven shards, and memory.

    Its own defaults are those of an array that states no model: of a step as it runs.

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

    reading: str = "executed"
    objective: str = "time"
    choices: tuple[str, ...] = ("data", "model", "output")
    element_bytes: int | None = None
    runnable: bool = True
    by_largest_shard: bool = True
    memory_by_tensor: bool = True


HYPAR_2019 = StepModel("text", "bytes", ("data", "model"), 4, False, False, False)
"""A step as in HyPar (HPCA 2019); also that of problems without an array."""

STEP_MODELS = FrozenDict[str | None, StepModel]({None: StepModel(), "hypar-2019": HYPAR_2019})
"""By the key ``model`` of an array's file."""
