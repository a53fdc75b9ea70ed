"""What does not run, refused by name before anything is computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import RefusedError, argument
from hypar_opt.execution.memory import step_bytes
from hypar_opt.execution.virtual.arithmetic import KINDS
from hypar_opt.execution.virtual.arithmetic.activations import ACTIVATIONS
from hypar_opt.sharding.index_labels import batch_levels
from hypar_opt.sharding.layouts import Layout
from hypar_opt.sharding.ties import Axis
from hypar_opt.units import format_bytes

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.division import Division
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.network import Network

MAX_BYTES = 4 * 10**9
"""Of memory that a run may take, unless a caller says otherwise."""


def _remedy(scaled: bool) -> str:
    if scaled:
        return ""
    return f"; {argument('scale_down', True)} runs it on a small network of the same structure"


def check_layers(network: Network) -> None:
    """Refuse kinds of layers that do not run.

    Raises
    ------
    RefusedError
        Naming the first such layer.
    """
    read = {source for sources in network.sources for source in sources}
    for position, layer in enumerate(network.layers):
        if layer.kind not in KINDS:
            raise RefusedError(
                f"layer {layer.name!r}: kind {layer.kind!r} does not run; known are"
                f" {', '.join(KINDS)}"
            )
        if getattr(layer, "loss", None) == "softmax" and position in read:
            raise RefusedError(
                f"layer {layer.name!r}: a softmax with its loss is the end of a step, and another"
                " layer reads it; take loss 'none'"
            )


def notes_of(network: Network) -> tuple[str, ...]:
    """Return what a run leaves out, in words."""
    words = dict.fromkeys(getattr(layer, "activation", None) for layer in network.layers)
    unknown = [word for word in words if word and word not in ACTIVATIONS]
    return tuple(f"activation {word!r} is not known and is left out" for word in unknown)


def check_division(division: Division, *, scaled: bool = False) -> None:
    """Refuse shares that the model halves and a device cannot.

    Channels may be split unevenly: the bytes are the model's all the same. Images may not, since
    an exchange between batch and channels would then move less.

    Raises
    ------
    RefusedError
        Naming the batch, or the layer and the level.
    """
    program, batch = division.program, division.images.size
    parts = 2 ** len(batch_levels(program))
    if batch % parts:
        raise RefusedError(
            f"batch: should be a multiple of {parts}, since {len(batch_levels(program))} levels"
            f" halve it, got {batch}{_remedy(scaled)}"
        )
    for position, layer in enumerate(division.network.layers):
        if layer.kind != "shuffle":
            continue
        node, source = position + division.shared, division.network.sources[position][0]
        if source < 0:
            continue
        own = division.labels.of[Axis(source)]
        dealt = division.labels.shuffled(division.network, position)
        edge = program.workload.boundaries[division.boundary(source, position)].source
        for level, read in enumerate(program.read[node]):
            kept = program.stored[edge][level]
            if read is not Layout.SHUFFLED or kept is not Layout.CHANNEL:
                continue
            moved = int(np.count_nonzero((own ^ dealt) >> (division.levels - 1 - level) & 1))
            if 2 * moved != len(own):
                raise RefusedError(
                    f"layer {layer.name!r}: H{level + 1} has {moved} of its {len(own)} channels"
                    " change sides, where the model has half of them; split it by batch there"
                )


def check_memory(
    network: Network, program: Program, *, most: int = MAX_BYTES, scaled: bool = False
) -> None:
    """Refuse a step that would take more bytes of memory than ``most``.

    Raises
    ------
    RefusedError
        With the estimate.
    """
    estimate = step_bytes(network, program)
    if estimate > most:
        remedy = _remedy(scaled)
        allows = argument("max_memory", _rounded_up(estimate))
        raise RefusedError(
            f"{network.name} would take about {format_bytes(estimate)} of memory, more than"
            f" {format_bytes(most)}{remedy}{',' if remedy else ';'} {allows} runs it as it is"
        )


def _rounded_up(count: int) -> str:
    """Return bytes as an option's value, no fewer than they are."""
    unit, size = ("GB", 10**9) if count > 10**9 else ("MB", 10**6)
    return f"{-(-count // size)}{unit}"
