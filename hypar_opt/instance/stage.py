"""The problem of one pipeline stage: a device's layers of a network, on its part of an array."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from hypar_opt.costs.base import lacked_choices
from hypar_opt.errors import HyparError, argument
from hypar_opt.frozen import FrozenDict
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pins import Pin, pinned_choices
from hypar_opt.plan.problem import ArrayRecord, StageContext
from hypar_opt.plan.training import Training
from hypar_opt.workload.parallelism import PART_WORDS, choices_below_h1
from hypar_opt.workload.patterns import all_words, compact, matching, words_by_layer
from hypar_opt.workload.recomputation import in_blocks_only, segments
from hypar_opt.workload.shards import renumbered, shards_of
from hypar_opt.workload.stages import RECEIVED, Message, stage_of

if TYPE_CHECKING:
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.plan.constraints import Constraints
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.patterns import Words

BY_LAYER = FrozenDict(recompute="none", shard="none", gather="once")
"""The keys of training that have words by layer, and the default of each."""


def stage_instance(
    network: Network,
    problem: Problem,
    stage: int,
    parts: int,
    chunks: Sequence[range],
    in_flight: Sequence[int],
) -> Instance:
    """Return the problem of one stage, whose plans say how it is split inside.

    Parameters
    ----------
    network
        The whole network.
    problem
        The problem of the whole network on an array, in stages at H1 or without stages.
    stage
        The number of the stage, from 0.
    parts
        The stages; of one, what it has no other stage has.
    chunks
        The positions of the layers of each of its chunks.
    in_flight
        The number of micro-batches for which each chunk holds saved activations at once.

    Raises
    ------
    HyparError
        If the network cannot be cut there, or the array has no such parts.
    """
    stage_network = stage_of(network, chunks)
    assert problem.array is not None
    array = problem.array.description
    part = array.part(parts) if parts > 1 else array
    context = None
    if parts > 1:
        links = (array.stage_link(n % parts, parts) for n in (stage - 1, stage))
        context = stage_context(network, stage_network, chunks, in_flight, *links)
    above = problem.levels - part.levels
    update: dict[str, Any] = {
        "choices": choices_below_h1(problem.choices),
        "constraints": _constraints_of(problem.constraints, stage_network, int(parts > 1)),
        "array": ArrayRecord.of(part),
        "placement": part.placement,
        "levels": part.levels,
        "parts": part.hierarchy().unless_binary,
        "training": stage_training(problem.training, network, stage_network, above),
        "stage": context,
    }
    instance = Instance.to_search(stage_network, problem.model_copy(update=update))
    # The stage may lack some choices of the network.
    if lacked := lacked_choices(instance.workload):
        update["choices"] = tuple(word for word in update["choices"] if word not in lacked)
        instance = Instance.to_search(stage_network, problem.model_copy(update=update))
    return instance


def stage_context(
    network: Network,
    stage_network: Network,
    chunks: Sequence[range],
    in_flight: Sequence[int],
    before: BisectionLink,
    behind: BisectionLink,
) -> StageContext:
    """Return what a stage depends on in other stages; parameters as for `stage_instance`.

    Parameters
    ----------
    stage_network
        The stage's network.
    before, behind
        The links to the stage before it, and to the next one.
    """
    names = [layer.name for layer in network.layers]
    counts = {
        names[n]: count for chunk, count in zip(chunks, in_flight, strict=True) for n in chunk
    }
    messages = [layer.name for layer in stage_network.layers if isinstance(layer, Message)]
    links = {name: before if name.startswith(RECEIVED) else behind for name in messages}
    # Received tensors are held where they are read.
    return StageContext(
        tuple(counts.get(layer.name, 1) for layer in stage_network.layers), FrozenDict(links)
    )


def _constraints_of(constraints: Constraints, stage_network: Network, above: int) -> Constraints:
    """Return the constraints of a stage: pins of its layers, with the stage's numbers of levels.

    Parameters
    ----------
    above
        The levels of a plan above the stage's.
    """
    names, pins = [layer.name for layer in stage_network.layers], []
    for pin in map(Pin.parse, constraints.fix):
        if matching(names, pin.layer):
            level = None if pin.level is None else pin.level - above
            pins.append(str(Pin(pin.layer, level, pin.choice)))
    return constraints.model_copy(update={"fix": tuple(pins)})


def check_pins(instance: Instance, levels: int) -> None:
    """Check the pins of a plan in stages, whose H1 says in which stage layers are.

    Pins without a level are for all levels inside stages.

    Parameters
    ----------
    instance
        The problem without stages.
    levels
        The number of the plan's levels, including H1.

    Raises
    ------
    HyparError
        Naming a pin at H1, or one to a layer, level or choice that does not exist.
    InfeasibleError
        If two conflict.
    """
    for pin in map(Pin.parse, instance.problem.constraints.fix):
        if pin.level == 1 or pin.choice in PART_WORDS:
            raise HyparError(
                f"{pin.said}: H1 holds the stages, which cannot be pinned;"
                f" {argument('cuts')} states where they begin"
            )
    problem = instance.problem.model_copy(update={"levels": levels})
    pinned_choices(problem, instance.workload)


def check_shards(problem: Problem, part: Hierarchy) -> None:
    """Check that the first sharded level of the array is a level of its parts, too.

    Parameters
    ----------
    problem
        Without stages.
    part
        The levels inside stages.

    Raises
    ------
    HyparError
        Naming the word, and a level that stages cut through.
    """
    inner = {prod(part.sizes[level:]) for level in range(part.levels + 1)}
    for word in all_words(problem.training.shard or "none"):
        for first in {*shards_of(word)} - {None}:
            accelerators = prod(problem.hierarchy.sizes[first:])
            if accelerators not in inner and accelerators % part.accelerators:
                levels = " x ".join(map(str, part.sizes))
                raise HyparError(
                    f"{argument('shard')}: stages of {levels} accelerators cut through the"
                    f" {accelerators} below H{(first or 0) + 1} of the array, in {word!r}"
                )


def stage_training(
    training: Training, network: Network, stage_network: Network, above: int
) -> Training:
    """Return the training of a stage's layers, with the stage's numbers of levels.

    Parameters
    ----------
    training
        Of the network in stages.
    above
        The levels between the stages.
    """
    names, stage_names = (
        [layer.name for layer in network.layers],
        {layer.name for layer in stage_network.layers},
    )
    in_blocks = {stage_network.layers[n].name for block in segments(stage_network) for n in block}
    update: dict[str, Words | None] = {}
    for key in BY_LAYER:
        words = words_by_layer(getattr(training, key), names, key)
        stated_words = zip(names, words, strict=True)
        stated = {name: renumbered(word, -above) for name, word in stated_words if word}
        of_stage = {name: word for name, word in stated.items() if name in stage_names}
        complete = len(of_stage) == len(stage_names & {*names})
        if not complete or len({*of_stage.values()}) > 1:
            # A block that a border divides is no block of either stage.
            of_stage = in_blocks_only(of_stage, in_blocks)
        update[key] = (
            compact([*of_stage.values()], [*of_stage]) if complete else FrozenDict(of_stage) or None
        )
    # The schedule is one for all stages.
    return training.model_copy(update={**update, "schedule": Training().schedule})
