"""A plan's shardings as a Python file for a JAX program of one's own."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from typing import TYPE_CHECKING

from hypar_opt.execution.docstrings import docstring
from hypar_opt.execution.jax import texts
from hypar_opt.execution.jax.axes import StoredAxis
from hypar_opt.execution.jax.values import quoted
from hypar_opt.execution.jax.weights import bias_of, biases_of, stored_tensors, weights_of
from hypar_opt.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.execution.jax.tensors import ShardedNetwork, StoredTensor
    from hypar_opt.execution.jax.weights import StoredWeights

_WIDTH = 96


def shardings_text(sharded: ShardedNetwork, *, title: str) -> str:
    """Return a file with the mesh, a PartitionSpec for each parameter and tensor, and their use.

    Parameters
    ----------
    title
        The first lines of its docstring.
    """
    weights, stored, tensors = weights_of(sharded), biases_of(sharded), stored_tensors(sharded)
    parts: defaultdict[str, list[StoredWeights]] = defaultdict(list)
    parts_of_biases: defaultdict[str, list[StoredWeights]] = defaultdict(list)
    for layer in sharded.network.layers:
        if layer.name in weights:
            parts[layer.module].append(weights[layer.name])
        if layer.has_bias:
            parts_of_biases[layer.module].append(stored[bias_of(layer.name)])
    specs = {name: _spec_of_parts(sharded, pieces) for name, pieces in parts.items()}
    biases = {name: _spec_of_parts(sharded, pieces) for name, pieces in parts_of_biases.items()}
    sizes = {name: str(_sizes(pieces)) for name, pieces in parts.items()}
    outputs = {
        name: _spec(sharded, _split(tensor), tensor.sizes) for name, tensor in tensors.items()
    }
    named = [*dict.fromkeys((*tensors, *parts))]
    filled = {
        "LEVELS = ...": f"LEVELS = {sharded.names(range(sharded.levels))}",
        "SIZES = ...": f"SIZES = {sharded.hierarchy.sizes}",
        "PARAMETERS = ...": f"PARAMETERS: dict[str, P] = {_table(specs)}",
        "BIASES = ...": f"BIASES: dict[str, P] = {_table(biases)}",
        "SHAPES = ...": f"SHAPES: dict[str, tuple[int, ...]] = {_table(sizes)}",
        "TENSORS = ...": f"TENSORS: dict[str, P] = {_table(outputs)}",
        "STACKED = ...": f"STACKED: dict[str, list[str]] = {_stacked(named)}",
    }
    header = _header(sharded, title, [*weights.values()], [*tensors.values()])
    return header + texts.filled(texts.shardings(), filled)


def _header(
    sharded: ShardedNetwork,
    title: str,
    weights: Sequence[StoredWeights],
    tensors: Sequence[StoredTensor],
) -> str:
    said = [
        sharded.axes_description,
        f"Shardings as hypar-opt {__version__} planned them, for a JAX program of one's own: place"
        " the parameters by `parameter_shardings`, and call `constrain` on what layers write."
        " Exchanges are then those that jax.jit inserts, which may move more than the plan's;"
        " `--to jax` writes the step whose bytes are the plan's.",
        "A layer's weights have inputs before outputs, rows and columns of a kernel first. Features"
        " of a flattened image have a channel's positions together.",
    ]
    if sharded.splits_images:
        said.append(
            "Rows and columns of images are in parts one after the other: XLA exchanges what"
            " windows read beyond theirs, of the input, too, which the plan counts as given."
        )
    if any(parameter.over("weights") for parameter in weights):
        said.append(
            "Of sharded weights the largest dimension that divides is split into their shards: XLA"
            " gathers them for each use. Biases are whole."
        )
    if any(map(_in_segments, (*(parameter.tensor for parameter in weights), *tensors))):
        said.append(
            "Some axes are split part by part, as queries, keys and values of one product are: a"
            " PartitionSpec splits them in one, so that more is moved."
        )
    if any(layer.module != layer.name for layer in sharded.network.layers):
        said.append(
            "Weights whose parts are layers, as both halves of an MLP in one, are those of the"
            " module that has them, and split in one, so that more is moved; whole where the plan"
            " splits the parts differently."
        )
    words = "\n\n".join(textwrap.fill(line, _WIDTH) for line in [*title.split("\n\n"), *said])
    return docstring(f"{words}\n") + "\n\n"


def _in_segments(tensor: StoredTensor) -> bool:
    dims = zip(tensor.dims, tensor.split, strict=True)
    return any(
        isinstance(dim, StoredAxis) and levels and len(dim.segments) > 1 and not dim.mirrored
        for dim, levels in dims
    )


def _table(values: Mapping[str, str]) -> str:
    rows = [f"    {quoted(name)}: {value},\n" for name, value in values.items()]
    return f"{{\n{''.join(rows)}}}" if rows else "{}"


def _stacked(layers: Sequence[str]) -> str:
    """Return the text of the layers that repeat, by their name without the number."""
    stacked: defaultdict[str, list[str]] = defaultdict(list)
    for layer in layers:
        for number in re.finditer(r"\.\d+(?=\.)", layer):
            stacked[layer[: number.start()] + layer[number.end() :]].append(layer)
    repeated = {
        name: names for name, names in stacked.items() if len(names) > 1 and name not in layers
    }
    rows = (
        f"    {quoted(name)}: [{', '.join(map(quoted, names))}],\n"
        for name, names in repeated.items()
    )
    return f"{{\n{''.join(rows)}}}" if repeated else "{}"


def _sizes(parts: Sequence[StoredWeights]) -> tuple[int, ...]:
    """Return the sizes of weights whose outputs, the last dimension, are those of some parts."""
    first, *_ = sizes = [part.tensor.sizes for part in parts]
    return (*first[:-1], sum(shape[-1] for shape in sizes))


def _spec_of_parts(sharded: ShardedNetwork, parts: Sequence[StoredWeights]) -> str:
    """Return the spec of weights that parts of them are split by, or of whole ones."""
    splits = {(tuple(_split(part.tensor)), part.over("weights")) for part in parts}
    split, shared_out = splits.pop()
    if splits:
        split, shared_out = ((),) * len(split), ()
    return _spec(sharded, split, _sizes(parts), *shared_out)


def _split(tensor: StoredTensor) -> list[tuple[int, ...]]:
    """Return the levels that split each dimension of a tensor."""
    return [
        levels if isinstance(dim, StoredAxis) else ()
        for dim, levels in zip(tensor.dims, tensor.split, strict=True)
    ]


def _spec(
    sharded: ShardedNetwork,
    split: Sequence[tuple[int, ...]],
    sizes: Sequence[int],
    *shared_out: int,
) -> str:
    """Return the text of a PartitionSpec, with an entry for each dimension.

    Parameters
    ----------
    split
        The levels that split each dimension.
    shared_out
        The levels over whose parts the tensor is sharded besides, if a dimension divides.
    """
    split = list(split)
    for number in sorted(range(len(sizes)), key=lambda n: -sizes[n]):
        more = (*split[number], *shared_out)
        if sizes[number] % sharded.hierarchy.parts(more) == 0:
            split[number] = more
            break
    entries = []
    for levels in split:
        axes = ", ".join(map(sharded.axis, levels))
        entries.append(f"({axes})" if len(levels) > 1 else axes or "None")
    return f"P({', '.join(entries)})"
