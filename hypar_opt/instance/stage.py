"""The problem of one pipeline stage: what a device has of a network, on its part of an array."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hypar_opt.frozen import FrozenDict
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.problem import ArrayRecord, StageContext
from hypar_opt.workload.patterns import words_by_layer
from hypar_opt.workload.stages import RECEIVED, Message, stage_of

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem
    from hypar_opt.plan.training import Training
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.patterns import Words


def stage_instance(
    network: Network,
    problem: Problem,
    stage: int,
    chunks: Sequence[range],
    in_flight: Sequence[int],
) -> Instance:
    """Return the problem of one stage, whose plans say what it does inside.

    Parameters
    ----------
    network
        All of it.
    problem
        On an array of stages: its H1 is between them.
    stage
        The number of the stage, from 0.
    chunks
        The positions of the layers of each of its chunks.
    in_flight
        For how many micro-batches at once each chunk holds what it saves.

    Raises
    ------
    HyparError
        If the network cannot be cut there, or the array has no such parts.
    """
    own = stage_of(network, chunks)
    assert problem.array is not None
    whole = problem.array.description
    part = whole.of_a_stage()
    hops = {}
    if whole.stages is not None:
        before, behind = whole.hop((stage - 1) % whole.stages), whole.hop(stage)
        messages = [layer for layer in own.layers if isinstance(layer, Message)]
        hops = {own.name: before if own.name.startswith(RECEIVED) else behind for own in messages}
    names = [layer.name for layer in network.layers]
    chunk_of = {
        names[n]: count for chunk, count in zip(chunks, in_flight, strict=True) for n in chunk
    }
    # What arrives is held where it is read.
    context = StageContext(tuple(chunk_of.get(own.name, 1) for own in own.layers), FrozenDict(hops))
    update: dict[str, Any] = {
        "array": ArrayRecord.of(part),
        "placement": part.placement,
        "levels": part.levels,
        "parts": part.hierarchy().unless_halves,
        "training": _training_of(problem.training, network, own),
        "stage": context,
    }
    return Instance.to_search(own, problem.model_copy(update=update))


def _training_of(training: Training, network: Network, own: Network) -> Training:
    """Return how a stage's layers train: its words, and levels as it numbers them."""
    names = [layer.name for layer in network.layers]
    there = {layer.name for layer in own.layers}

    def words(stated: Words | None, key: str) -> Words | None:
        if isinstance(stated, Mapping):
            by_layer = zip(names, words_by_layer(stated, names, key), strict=True)
            stated = FrozenDict({name: word for name, word in by_layer if word and name in there})
            return FrozenDict({name: _inside(word) for name, word in stated.items()}) or None
        return stated and _inside(stated)

    keys = ("recompute", "shard", "gather")
    return training.model_copy(update={key: words(getattr(training, key), key) for key in keys})


def _inside(word: str) -> str:
    """Return a word whose levels are numbered from the first below H1."""
    return re.sub(r"H(\d+)", lambda level: f"H{int(level[1]) - 1}", word)
