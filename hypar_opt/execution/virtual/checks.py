"""Checks that a step can run, before anything is computed."""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import RefusedError, argument
from hypar_opt.execution.batches import check_images, splits_of_batch
from hypar_opt.execution.step_size import step_bytes, step_work
from hypar_opt.execution.ties import Axis
from hypar_opt.execution.virtual.arithmetic import KINDS
from hypar_opt.sharding.conversions import StepKind, elements_not_local
from hypar_opt.sharding.layouts import BATCH, CHANNEL, COLUMN, EXPERT, ROW, SHUFFLED, TOKEN
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.units import format_bytes
from hypar_opt.workload.activations import ACTIVATIONS
from hypar_opt.workload.operands import operands_of
from hypar_opt.workload.operators.experts import Router
from hypar_opt.workload.operators.maps import ExpertMap, LogitMap
from hypar_opt.workload.parallelism import PART_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from hypar_opt.execution.virtual.division import Division
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.sharding.conversions import Step
    from hypar_opt.sharding.layouts import Layout
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.layer_tensors import Boundary
    from hypar_opt.workload.network import Network

    Integers = NDArray[np.intp]

MAX_WORK = 10**13
"""The maximum multiply-accumulates of a run: an hour of a processor core."""

MAX_MEMORY = 4 * 10**9
"""Default limit on the memory of a run, in bytes."""


def _remedy(scaled: bool) -> str:
    if scaled:
        return ""
    return f"; {argument('scale_down', True)} runs it on a small network of the same structure"


def check_layers(network: Network) -> None:
    """Check that every kind of layer can run.

    Raises
    ------
    RefusedError
        With the first layer that cannot.
    """
    read = {source for sources in network.sources for source in sources}
    for position, layer in enumerate(network.layers):
        if isinstance(layer, Router):
            layer.check_runs()
        if layer.kind not in KINDS:
            raise RefusedError(
                f"layer {layer.name!r}: kind {layer.kind!r} cannot be run; supported:"
                f" {', '.join(KINDS)}"
            )
        if getattr(layer, "loss", None) == "softmax" and position in read:
            raise RefusedError(
                f"layer {layer.name!r}: a softmax with its loss must end the network, and another"
                " layer reads it; use loss 'none'"
            )


def notes_of(network: Network) -> tuple[str, ...]:
    """Return notes on what a run omits."""
    words = dict.fromkeys(getattr(layer, "activation", None) for layer in network.layers)
    unknown = [word for word in words if word and word not in ACTIVATIONS]
    return tuple(f"activation {word!r} is not known and is left out" for word in unknown)


def check_division(division: Division, *, scaled: bool = False) -> None:
    """Check that every device has an image and token, and that bytes match the model.

    Parts need not be equal. An all-to-all is modelled with the remainder of either axis in the
    first parts; where channels are tied to others, theirs may be in other parts.

    Raises
    ------
    RefusedError
        Naming the batch, or the layer and the level.
    """
    program = division.program
    check_images(program, _remedy(scaled))
    if program.shares is not None and len({*program.shares}) > 1:
        _check_groups(division, splits_of_batch(program), scaled=scaled)
    exchanges = exchanges_of_step(program, (Phase.FORWARD,))
    for boundary, edge in enumerate(program.workload.boundaries):
        modelled = {
            exchange.level: exchange.elements // exchange.times
            for exchange in exchanges.boundaries[boundary]
            if exchange.kind is StepKind.ALL_TO_ALL
        }
        for step in program.input_steps(boundary):
            layouts = {*step.sources, *step.targets}
            between = not layouts <= {CHANNEL, SHUFFLED} and not any(
                layout in PART_WORDS for layout in layouts
            )
            if step.kind is StepKind.ALL_TO_ALL and between:
                _check_exchange(division, edge, step, modelled, scaled=scaled)
    _check_tokens(division, scaled=scaled)
    _check_shuffles(division)


def _check_tokens(division: Division, *, scaled: bool) -> None:
    """Check that every device has a token of every layer."""
    for position, (layer, maps) in enumerate(
        zip(division.network.layers, division.maps, strict=True)
    ):
        written = division.program.written[position + division.shared]
        parts = division.program.parts(written, TOKEN)
        if maps.output.tokens and maps.output.tokens < parts:
            what = "groups of tokens" if isinstance(maps.output, ExpertMap) else "tokens"
            raise RefusedError(
                f"layer {layer.name!r}: its {what} should be at least {parts}, which split them,"
                f" got {maps.output.tokens}{_remedy(scaled)}"
            )
        levels = [level for level, layout in enumerate(written) if layout == TOKEN]
        logits = maps.inputs[-1]
        if levels and isinstance(logits, LogitMap) and layer.kind in ("dispatch", "combine"):
            # Tokens are dispatched in groups, or combined from them.
            _, count, _ = logits.slots
            groups, tokens = (
                division.hierarchy.within(division.along(TOKEN, size).labels, levels)
                for size in (count, logits.tokens)
            )
            if not np.array_equal(tokens, np.repeat(groups, logits.tokens // count)):
                raise RefusedError(
                    f"layer {layer.name!r}: the levels that split tokens divide one of its {count}"
                    f" groups, which are routed whole{_remedy(scaled)}"
                )


def _check_groups(division: Division, by_image: Iterable[tuple[int, ...]], *, scaled: bool) -> None:
    """Check that unequal parts give every device an image, and that no layer shuffles."""
    program, network = division.program, division.network
    for layer in network.layers:
        if layer.shuffles or layer.shares_weights_with is not None:
            what = "shuffles channels" if layer.shuffles else "shares weights"
            raise RefusedError(
                f"layer {layer.name!r} {what}, which cannot be run in unequal groups"
            )
    labels = division.images.labels
    for levels in by_image:
        parts = program.hierarchy.parts(levels)
        if len(np.unique(program.hierarchy.within(labels, levels))) == parts:
            continue
        first = int((division.hierarchy.digit(labels, 0) == 0).sum())
        raise RefusedError(
            f"batch: {division.images.size} images, {first} of them in the first group, leave one"
            f" of {parts} devices without any{_remedy(scaled)}"
        )


def _check_exchange(
    division: Division, edge: Boundary, step: Step, modelled: Mapping[int, int], *, scaled: bool
) -> None:
    """Check that the parts of an all-to-all have the model's sizes.

    Parameters
    ----------
    modelled
        The elements that move across each level.
    """
    workload = division.program.workload
    writer = workload.tensor_writers.get(edge.source, edge.source) - workload.shared
    layouts = {*step.sources, *step.targets}
    labels = {BATCH: division.images.labels, CHANNEL: division.labels.of[Axis(writer)]}
    if edge.target >= workload.shared:
        channels = operands_of(division.network)[edge.target - workload.shared][edge.input].channels
        labels[CHANNEL] = labels[CHANNEL][slice(*channels or (None,))]
    if SHUFFLED in layouts:
        labels[SHUFFLED] = division.labels.shuffled(division.network, edge.target - workload.shared)
    for layout in layouts.intersection((TOKEN, ROW, COLUMN, EXPERT)):
        labels[layout] = division.along(layout, edge.extent.along(layout)).labels
    counts = [_counts(division.hierarchy, step, n, labels) for n in range(len(step.levels) + 1)]
    local = [int(reduce(np.multiply, by_axis.values()).sum()) for by_axis in counts]
    for n, level in enumerate(step.levels):
        moved = step.copies * elements_not_local(
            edge.extent, local[0], local[0] - local[n] + local[n + 1]
        )
        if moved != modelled.get(level, 0):
            layer = division.network.layers[writer].name
            words = {BATCH: "images", **{axis: f"{axis}s" for axis in (TOKEN, ROW, COLUMN, EXPERT)}}
            has = [
                f"{', '.join(map(str, numbers.reshape(-1)))} of its {words.get(axis, 'channels')}"
                for axis, numbers in counts[n + 1].items()
            ]
            raise RefusedError(
                f"layer {layer!r}: the parts of H{level + 1} have {' and '.join(has)}, tied to"
                f" other layers', which move other bytes than those modelled{_remedy(scaled)}"
            )


def _counts(
    hierarchy: Hierarchy, step: Step, topmost: int, labels: Mapping[Layout, Integers]
) -> dict[Layout, Integers]:
    """Return the number of indices of each axis that a part has before and after an all-to-all.

    Parameters
    ----------
    topmost
        The number of its levels that count, from the top.

    Returns
    -------
    dict
        By axis, with a dimension for each of these levels: of its parts where the axis is split,
        else of 1.
    """
    counts = {}
    ends = list(zip(step.levels, step.parts, step.sources, step.targets, strict=True))
    named = {layout for *_, source, target in ends for layout in (source, target)}
    for axis in sorted({CHANNEL if layout == SHUFFLED else layout for layout in named}):
        layouts_of_axis = {axis, SHUFFLED} if axis == CHANNEL else {axis}
        shape, digits = [1], [np.zeros_like(labels[axis])]
        for level, parts, *layouts in ends[:topmost]:
            split = [layout for layout in layouts if layout in layouts_of_axis]
            shape.append(parts if split else 1)
            digits.append(hierarchy.digit(labels[split[0]], level) if split else digits[0])
        numbers = np.ravel_multi_index(tuple(digits), tuple(shape))
        counts[axis] = np.bincount(numbers, minlength=prod(shape)).reshape(shape)
    return counts


def _check_shuffles(division: Division) -> None:
    """Check that a shuffle moves as many channels as in the model: all but an n-th."""
    program = division.program
    for position, layer in enumerate(division.network.layers):
        if not layer.shuffles:
            continue
        node, source = position + division.shared, operands_of(division.network)[position][0].source
        if source < 0:
            continue
        labels = division.labels.of[Axis(source)]
        dealt = division.labels.shuffled(division.network, position)
        edge = program.workload.boundaries[division.boundary(position, 0)].source
        for level, read in enumerate(program.read[node]):
            stored = program.stored[edge][level]
            if read != SHUFFLED or stored != CHANNEL:
                continue
            sides = (program.hierarchy.digit(numbers, level) for numbers in (labels, dealt))
            moved = int(np.count_nonzero(np.not_equal(*sides)))
            parts = program.hierarchy.sizes[level]
            if moved != len(labels) - len(labels) // parts:
                share = "half" if parts == 2 else f"{parts - 1}/{parts}"
                raise RefusedError(
                    f"layer {layer.name!r}: H{level + 1} has {moved} of its {len(labels)} channels"
                    f" change sides, where the model has {share} of them; split it by batch there"
                )


def check_limits(
    network: Network, program: Program, *, max_memory: int = MAX_MEMORY, scaled: bool = False
) -> None:
    """Refuse a step of more than ``max_memory`` bytes or more work than `MAX_WORK`.

    Raises
    ------
    RefusedError
        With the estimate.
    """
    estimate = step_bytes(network, program)
    if estimate > max_memory:
        remedy = _remedy(scaled)
        allows = argument("max_memory", _rounded_up(estimate))
        size = "" if scaled else " at full size"
        raise RefusedError(
            f"{network.name} would take about {format_bytes(estimate)} of memory, more than"
            f" {format_bytes(max_memory)}{remedy}{',' if remedy else ';'} {allows} runs it{size}"
        )
    work = step_work(network, program)
    if work > MAX_WORK:
        raise RefusedError(
            f"{network.name} would take about {work:.1e} multiply-accumulates, more than"
            f" {MAX_WORK:.0e}, an hour of a processor's core{_remedy(scaled)}"
        )


def _rounded_up(count: int) -> str:
    """Return bytes as an option's value, rounded up."""
    unit, size = ("GB", 10**9) if count > 10**9 else ("MB", 10**6)
    return f"{-(-count // size)}{unit}"
