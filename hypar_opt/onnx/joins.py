"""Layers that write a map as they read it, and those that join several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypar_opt.onnx.axes import Dim, extent, without
from hypar_opt.onnx.features import Features, Layer
from hypar_opt.onnx.import_state import ImportState, maps_error
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import LayerWeights


def fit(rows: Sequence[Sequence[Dim]]) -> tuple[Dim, ...] | None:
    """Return the dimensions of several maps joined; None where their digits differ.

    Copies, and dimensions of size 1, fit everything.
    """
    rank = max(len(dims) for dims in rows)
    out = []
    for axis in range(rank):
        columns = (dims[axis - rank] if axis - rank + len(dims) >= 0 else () for dims in rows)
        candidates = [dim for column in columns if (dim := without(column, "r"))]
        if len(set(candidates)) > 1:
            # A batch of one image is a digit of size 1, which a learned tensor lacks.
            candidates = [dim for dim in candidates if extent(dim) > 1]
            if len(set(candidates)) != 1:
                return None
        out.append(candidates[0] if candidates else ())
    return tuple(out)


def widest(state: ImportState, maps: Sequence[Features]) -> Mapping[str, int]:
    """Return the sizes of the map that has the most positions, the first of those."""
    sizes = [state.layer(features.source).sizes for features in maps]
    return max(sizes, key=lambda of: of.get("t", 1) * of.get("h", 1) * of.get("w", 1))


def layer_of(
    state: ImportState,
    node: OnnxNode,
    kind: str,
    keys: dict[str, Any],
    features: Features,
    weights: LayerWeights = LayerWeights(),  # noqa: B008 - frozen
) -> Features:
    """Return the output of a new layer of a kind that writes a map as it reads it."""
    features = state.as_image(state.sliced(features, node), node)
    features = state.ordered(features, node)
    source = state.read(features, node)
    sizes = state.layer(source).sizes
    return state.emit(Layer(kind, keys, [source], sizes, node, weights, dims=features.dims))


def join(state: ImportState, node: OnnxNode, kind: str, maps: Sequence[Features]) -> Features:
    """Return the output of a new layer of a kind that joins several layers' maps.

    Raises
    ------
    InputError
        Where their axes do not fit one another.
    """
    maps = [state.sliced(features, node) for features in maps]
    dims = fit([features.dims for features in maps])
    if dims is None:
        maps = [state.as_image(state.as_tokens(features, node), node) for features in maps]
        maps = [state.ordered(features, node) for features in maps]
        dims = fit([features.dims for features in maps])
    if dims is None and any(state.layer(features.source).is_tokens for features in maps):
        # Rows and columns of an image beside those of its pixels as tokens.
        maps = [state.as_tokens(features, node, in_parts=True) for features in maps]
        dims = fit([features.dims for features in maps])
    if dims is None:
        raise maps_error(node, maps)
    layers = [state.layer(features.source) for features in maps]
    channels = {layer.channels for layer in layers}
    keys: dict[str, Any] = {}
    tokens = {layer.sizes.get("t", 0) for layer in layers}
    if len(channels) > 1 and any(
        "Softmax" in operator for features in maps for operator in features.operators
    ):
        raise node.refuse(
            "weighs a map by a softmax of another, as pooling by attention without queries and"
            " keys does, which a network has no layer for"
        )
    by_token = len(maps) == 2 and min(channels) == 1 < max(channels) and len(tokens) == 1
    if kind == "mul" and by_token and tokens != {0}:
        # A number for each token multiplies all of its features.
        maps = sorted(maps, key=lambda features: -state.layer(features.source).channels)
        keys = {"gate": True}
    elif len(channels) > 1:
        sizes = " and ".join(map(str, sorted(channels)))
        raise node.refuse(f"its inputs should have equally many channels, got {sizes}")
    inputs = [state.read(features.without_copies(), node) for features in maps]
    return state.emit(Layer(kind, keys, inputs, widest(state, maps), node, dims=dims))
