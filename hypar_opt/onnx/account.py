"""Account of the parameters: which elements of a file's initializers the network counts.

The parameters of the network are the elements of the initializers that operators read, each once.
Excluded are tensors that are not floating-point; scales and zero points of quantised tensors;
tensors of one element; the running statistics of batch norms; masks, by their values; shapes,
conditions and the sines of positions. Any other element that no layer has, or that several layers
have, is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.onnx.constant import MAX_ELEMENTS, Constant
from hypar_opt.onnx.features import Layer
from hypar_opt.onnx.import_state import ImportState
from hypar_opt.onnx.model import FLOATS
from hypar_opt.onnx.regions import Region, distinct

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network

MASKED = -1e4
"""Masks hide a score by adding this or less."""

_SHOWN = 3


def check(network: Network, layers: Sequence[Layer]) -> None:
    """Check that every layer has as many parameters as its weights in the file.

    Raises
    ------
    InputError
        With the first node whose layer differs.
    """
    described = {
        layer.name: (layer, maps)
        for layer, maps in zip(network.layers, network.maps(), strict=True)
    }
    for layer in layers:
        operator, maps = described[layer.name]
        counted, weights = operator.parameters(maps), layer.weights
        if counted != weights.elements and layer.node is not None:
            elements = {region.name: region.elements for region in weights.regions}
            raise layer.node.refuse(
                f"makes a layer of {counted:,} parameters, where the file has"
                f" {_shown(elements) if elements else 'none'}; a network has no layer for that"
            )


def repeated(layers: Sequence[Layer]) -> list[str]:
    """Return sentences on shared weights and vectors and on the order of heads, if any."""
    sentences = _tied_weights(layers), _shared_vectors(layers), _other_orders(layers)
    return [sentence for sentence in sentences if sentence]


def _other_orders(layers: Sequence[Layer]) -> str:
    """Return which layers' outputs the file has in another order than the network."""
    names = [repr(layer.name) for layer in layers if layer.order]
    if not names:
        return ""
    return (
        "heads of queries, keys and values follow one another in the network, and lie in another"
        f" order in the file: outputs of {_listed(names[:_SHOWN], len(names))}"
    )


def _tied_weights(layers: Sequence[Layer]) -> str:
    """Return a sentence on layers that share weights, except heads tied to an embedding."""
    tied = [layer for layer in layers if "tied" in layer.keys]
    pairs = [(layer, layers[layer.keys["tied"]]) for layer in tied]
    pairs = [(layer, owner) for layer, owner in pairs if not owner.operator.reads_ids]
    if not pairs:
        return ""
    shown = [f"{layer.name!r} has those of {owner.name!r}" for layer, owner in pairs[:_SHOWN]]
    total = sum(region.elements for layer, _ in pairs for region in layer.weights.matrix)
    return (
        f"weights that several layers share are counted once: {_listed(shown, len(pairs))}"
        f" ({total:,} parameters); exporters write equal tensors once, so that copies of a layer"
        " that is not trained yet look shared; --untie gives each its own"
    )


def _shared_vectors(layers: Sequence[Layer]) -> str:
    """Return a sentence on scales and biases stored once but counted for several layers."""
    several = [layer for layer in layers if layer.weights.shared and layer.weights.added]
    if not several:
        return ""
    shared = [region for layer in several for region in layer.weights.shared]
    counted = [region for layer in layers for region in layer.weights.vectors]
    more = sum(r.elements for r in shared) + distinct(counted) - distinct(counted + shared)
    names = [*dict.fromkeys(repr(_short(region.name)) for region in shared)]
    return (
        "scales and biases that several layers share are counted for each:"
        f" {_listed(names[:_SHOWN], len(names))} ({more:,} parameters more than the file has)"
    )


def uncounted_weights(state: ImportState, layers: Sequence[Layer]) -> list[str]:
    """Return a phrase on initializers that operators read but no layer has, if any."""
    layer_regions: dict[str, set[Region]] = {}
    for layer in layers:
        for region in layer.weights.regions:
            layer_regions.setdefault(region.name, set()).add(region.flat())
    read: dict[str, set[Region]] = {}
    for constant in _learned(state):
        flat = [region.flat() for region in constant.regions]
        missing = [region for region in flat if region not in layer_regions.get(region.name, ())]
        # The mask is checked last, since that reads values.
        if missing and not _is_mask(constant):
            for region in missing:
                read.setdefault(region.name, set()).add(region)
    stated = {name for node in state.graph.nodes if node.op == "Constant" for name in node.outputs}
    counts = {}
    for name, regions in read.items():
        covered = layer_regions.get(name, set())
        count = distinct(regions | covered) - distinct(covered)
        if count and _is_float(state, name, stated):
            counts[name] = count
    return [f"tensors that no layer has: {_shown(counts)}, learned or not"] if counts else []


def _shown(counts: dict[str, int]) -> str:
    shown = [f"{_short(name)!r} ({count:,})" for name, count in [*counts.items()][:_SHOWN]]
    text = _listed(shown, len(counts))
    return text if len(counts) == 1 else f"{text}, {sum(counts.values()):,} elements"


def _short(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:77]}..."


def _listed(shown: Sequence[str], count: int) -> str:
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(shown) + more


def _learned(state: ImportState) -> Iterator[Constant]:
    """Yield the constants that nodes read together with feature maps and that may be learned."""
    needed = set(state.graph.outputs)
    nodes = []
    for node in reversed(state.graph.nodes):
        if not needed.isdisjoint(node.outputs):
            needed.update(node.inputs)
            nodes.append(node)
    for node in reversed(nodes):
        if state.tensors.keys().isdisjoint(node.inputs):
            continue
        names = node.inputs[:3] if node.op == "BatchNormalization" else node.inputs
        for name in names:
            if name and state.is_constant(name) and name not in state.fixed:
                constant = state.constant(name)
                if not constant.is_number:
                    yield constant


def _is_mask(constant: Constant) -> bool:
    """Return whether a constant is a mask: its values are very low, or ones and zeros."""
    if not constant.has_values or constant.elements > MAX_ELEMENTS:
        return False
    value = constant.value
    if value.dtype.kind != "f":
        return value.dtype.kind in "biu"
    switches = value.any() and not value.all() and np.isin(value, (0, 1)).all()
    return bool(switches or value.min() <= MASKED)


def _is_float(state: ImportState, name: str, stated: set[str]) -> bool:
    """Whether a tensor of the file is floating-point: an initializer, or a Constant node."""
    tensor = state.graph.initialisers.get(name)
    if tensor is not None:
        return tensor.data_type in FLOATS
    return name in stated and state.constant(name).value.dtype.kind == "f"
