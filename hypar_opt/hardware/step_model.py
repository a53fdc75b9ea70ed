"""The model of a training step on an array: as it runs today, or as in HyPar's paper."""

from __future__ import annotations

from typing import NamedTuple

from hypar_opt.frozen import FrozenDict


class StepModel(NamedTuple):
    """The meaning of an array's ``model``: defaults of problems, uneven shards, and memory.

    The fields' defaults are those of an array that states no model: of a step as it runs.

    Parameters
    ----------
    reading
        The communication model of a problem that names none, where it has that reading.
    objective, choices
        What a problem minimises, and the choices of its layers, unless it says so.
    element_bytes
        The element size that titles of plans do not mention; None to mention any.
    runnable
        Whether plans are those that a framework can run, unless a problem says otherwise.
    by_largest_shard
        Whether a layer takes as long as its largest shard where an axis is split unevenly; else as
        long as the mean.
    memory_by_tensor
        Whether memory is a device's peak, tensor by tensor; else it is the weights, gradients and
        state, and the input and output of all layers with their errors.
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
