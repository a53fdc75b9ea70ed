"""The layers of a network from those of an import: ends, divided layers, shared weights."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from hypar_opt.errors import InputError
from hypar_opt.onnx.axes import POSITIONS, axes_of, digits_of, merged, unrolled, whole_dim
from hypar_opt.onnx.features import Features, Layer
from hypar_opt.onnx.import_state import ImportState
from hypar_opt.onnx.losses import end_in_a_loss
from hypar_opt.onnx.model import OnnxNode
from hypar_opt.onnx.regions import Region, Regions, distinct
from hypar_opt.onnx.rules import refusals
from hypar_opt.onnx.samples import soft_cap_of
from hypar_opt.onnx.sharing import share
from hypar_opt.workload.activations import NEVER_FALLING

_ORDER = "the order of heads among the channels that attention reads"


def layers_of(state: ImportState, *, loss: str | None = None, untie: bool = False) -> list[Layer]:
    """Return the layers that the model's outputs need, in topological order.

    Parameters
    ----------
    loss, untie
        As for `hypar_opt.onnx.imported_model`.

    Raises
    ------
    InputError
        Where no output depends on the network's input, or a part of a map cannot be a layer.
    """
    ends = _ends(state)
    layers = _needed(state.layers, ends)
    layers = _divided(layers)
    _order(state, layers)
    end_in_a_loss(state, layers, loss)
    for layer in layers:
        _activate(state, layer)
    share(state, layers, untie=untie)
    for layer in layers:
        if "tied" in layer.keys and layers[layer.keys["tied"]].order != layer.order:
            state.note(layer.node, _ORDER)
    return layers


def _ends(state: ImportState) -> list[int]:
    """Return the layers that write the model's outputs."""
    ends: list[int] = []
    for name in state.graph.outputs:
        if name not in state.tensors or name not in state.graph.writers:
            continue  # an input, or a constant, that is handed on
        node = state.graph.nodes[state.graph.writers[name]]
        with refusals(node):
            features = _written(state, node, state.settled(name, node))
            state.tensors[name] = features
        layer, cap = state.layer(features.source), soft_cap_of(features.function)
        if cap is not None and features.source >= 0 and not layer.is_scores:
            layer.read_as.add(None)
            keys: dict[str, Any] = {"loss": "none", "softcap": cap}
            capped = Layer("output", keys, [features.source], layer.sizes, node, dims=layer.dims)
            ends.append(state.emit_unique(capped).source)
            continue
        layer.read_as.add(state.activation_of(features, node))
        if layer.is_scores:
            # Scores that are written out besides their attention add no layer.
            if not layer.keys.get("read"):
                raise node.refuse("multiplies two feature maps, but is not attention")
        elif features.source >= 0:
            ends.append(features.source)
    if not ends:
        raise InputError("has no output that a layer writes")
    return list(dict.fromkeys(ends))


def _written(state: ImportState, node: OnnxNode, features: Features) -> Features:
    """Return an output in the order of its layer's map; note any difference."""
    if features.source < 0 or state.layer(features.source).is_scores:
        return features
    if features.taken:
        state.note(node, "which part of the map is the output: all of it is")
    if any(digit.axis == "r" for dim in features.dims for digit in dim):
        state.note(node, "copies of the map in the output")
    if unrolled(features.dims) != tuple(map(merged, features.dims)):
        state.note(node, "the roll of the output's positions")
    elif not features.taken and not _has_positions_in_order(state, features):
        state.note(node, "the order of the positions in the output")
    with suppress(InputError):
        if state.layer(features.source).is_image:
            features = state.as_image(features, node)
        ordered = state.ordered(features, node)
        if ordered.source == features.source or not state.layer(features.source).operator.ends:
            return ordered
    state.note(node, "the order of the channels in the output")
    return features


def _has_positions_in_order(state: ImportState, features: Features) -> bool:
    """Whether positions follow one another as in a layer's map, however they are viewed."""
    sizes = state.layer(features.source).sizes
    whole = {axis: whole_dim(axis, sizes[axis]) for axis in sorted(POSITIONS & sizes.keys())}
    pixels = merged(digit for dim in whole.values() for digit in dim)
    for dim in features.dims:
        positions = merged(digit for digit in dim if digit.axis in whole)
        if len(axes_of([positions])) > 1 and positions != pixels:
            return False
    return all(digits_of(axis, features.dims) in ((), dim) for axis, dim in whole.items())


def _needed(layers: list[Layer], ends: list[int]) -> list[Layer]:
    """Return the layers that ends need; several unread ends each get an output layer."""
    alive = set()
    waiting = list(ends)
    while waiting:
        position = waiting.pop()
        if position >= 0 and position not in alive:
            alive.add(position)
            waiting += layers[position].inputs
    read = {source for position in alive for source in layers[position].inputs}
    loose = [end for end in ends if end not in read and not layers[end].operator.ends]
    positions = sorted(alive)
    if len(ends) - sum(end in read for end in ends) > 1:
        for end in loose:
            layers.append(Layer("output", {"loss": "none"}, [end], layers[end].sizes))
            positions.append(len(layers) - 1)
    new = {position: place for place, position in enumerate(positions)}
    out = []
    for position in positions:
        layer = layers[position]
        if layer.is_scores:
            assert layer.node is not None
            raise layer.node.refuse("multiplies two feature maps, but is not attention")
        out.append(replace(layer, inputs=[new.get(source, source) for source in layer.inputs]))
    return out


def _divided(layers: list[Layer]) -> list[Layer]:
    """Return layers, each that is read in parts divided into one layer per part if possible.

    Otherwise the parts become layers.
    """
    readers: dict[int, list[Layer]] = {}
    for layer in layers:
        for source in layer.inputs:
            readers.setdefault(source, []).append(layer)
    cut = {
        source
        for source, by in readers.items()
        if any(reader.is_slice for reader in by) and _can_be_divided(layers, source, by)
    }
    for layer in reversed(layers):
        if layer.is_slice and layer.inputs[0] >= 0 and layer.inputs[0] not in cut:
            # The activation behind a part is that of the map.
            layers[layer.inputs[0]].read_as |= layer.read_as
            layer.read_as = {None}
    out: list[Layer] = []
    new: dict[int, int] = {}
    for position, layer in enumerate(layers):
        if position in cut:
            continue
        new[position] = len(out)
        (source, *_) = (*layer.inputs, -1)
        if not layer.is_slice or source not in cut:
            if layer.is_slice and "of" in layer.keys:
                assert layer.node is not None
                raise layer.node.refuse(
                    "reads some channels of each head of what a layer of kind"
                    f" {layers[source].kind!r} writes; only fc and conv can be divided so, where"
                    " each channel is read in one part"
                )
            out.append(replace(layer, inputs=[new.get(source, source) for source in layer.inputs]))
            continue
        whole = layers[source]
        size = "filters" if "filters" in whole.keys else "units"
        keys = {**whole.keys, size: layer.keys["size"], "part": True}
        inputs = [new.get(source, source) for source in whole.inputs]
        part = replace(whole, keys=keys, inputs=inputs, sizes=layer.sizes)
        out.append(
            replace(part, weights=whole.weights.part(_channels(layer)), read_as=layer.read_as)
        )
    return out


def _can_be_divided(layers: list[Layer], source: int, readers: list[Layer]) -> bool:
    """Return whether the parts that a layer's readers take partition its outputs."""
    if source < 0 or not all(reader.is_slice for reader in readers):
        return False
    layer, parts = layers[source], [_channels(reader) for reader in readers]
    counted = sum(part.elements for part in parts)
    each_once = counted == distinct(parts) == layer.channels
    return bool(layer.operator.contraction.contracted) and "groups" not in layer.keys and each_once


def _channels(part: Layer) -> Region:
    """Return the channels that a slice has of its source."""
    start, size = part.keys["start"], part.keys["size"]
    of: Region = part.keys.get("of") or Region("", (whole_dim("e", size),), start)
    return of


def _order(state: ImportState, layers: list[Layer]) -> None:
    """Order the outputs of layers with weights as attention reads them."""
    wanted: list[set[Regions]] = [set() for _ in layers]
    for layer, orders in zip(reversed(layers), reversed(wanted), strict=True):
        order = next(iter(orders)) if len(orders) == 1 else ()
        passes_on = layer.kind == "flatten" and layer.keys.get("to") == "tokens"
        passes_on |= layer.kind == "norm" and _is_of_whole_heads(layer, order)
        writes = layer.kind == "fc" or (layer.kind == "conv" and "groups" not in layer.keys)
        if writes:
            layer.order = order
        if any(orders) and not (order and (writes or passes_on)):
            state.note(layer.node, _ORDER)
        for place, source in enumerate(layer.inputs):
            mine = order if passes_on else layer.orders[place] if layer.orders else ()
            if source >= 0:
                wanted[source].add(mine)
            elif mine:
                state.note(layer.node, _ORDER)


def _is_of_whole_heads(layer: Layer, order: Regions) -> bool:
    """Whether a norm is of heads that an order keeps whole: they have one scale in any order."""
    if "heads" not in layer.keys:
        return False
    size = layer.channels // layer.keys["heads"]
    last = [region.dims[-1][-1:] if region.dims else () for region in order]
    return all(dim and dim[0].stride == 1 and dim[0].size % size == 0 for dim in last)


def _activate(state: ImportState, layer: Layer) -> None:
    """Move the activation that all readers of a layer apply into the layer."""
    if layer.scaled_by:
        _scale(state, layer)
    words, takes_one = layer.read_as, "activation" in layer.operator.model_fields
    if "pool" in layer.keys and layer.kind != "pool":
        words = _before_pool(state, layer)
    if takes_one and len(words) == 1 and None not in words:
        layer.keys["activation"] = next(iter(words))
        return
    for word in sorted(filter(None, words)):
        why = f", which not all that read a layer of kind {layer.kind!r} see"
        why = why if takes_one else f" after a layer of kind {layer.kind!r}"
        state.note(layer.node, f"the activation {word!r}{why}")


def _scale(state: ImportState, layer: Layer) -> None:
    """Move the factor that all readers of a table apply into the table."""
    factors = {
        factor: nodes for factor, nodes in layer.scaled_by.items() if factor not in (None, 1)
    }
    if len(layer.scaled_by) == len(factors) == 1 and layer.read_as == {None}:
        (layer.keys["scale"],) = factors
        return
    for factor, nodes in factors.items():
        for node in nodes:
            state.note(node, f"multiplication by {factor:.6g} of what it reads")


def _before_pool(state: ImportState, layer: Layer) -> set[str | None]:
    """Return the activations of a layer with a pool, which it pools; note those behind the pool.

    The largest of some numbers is still the largest behind an activation that never falls.
    """
    behind = set(layer.read_as)
    if layer.pooled_as is None and layer.keys["pool"]["kind"] == "max" and len(behind) == 1:
        (word,) = behind
        if word is None or word in NEVER_FALLING:
            return behind
    for word in sorted(filter(None, behind)):
        state.note(layer.node, f"the activation {word!r} behind a pool, which comes before it")
    return {layer.pooled_as}
