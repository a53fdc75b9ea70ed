"""What of a file's initializers a network counts: all that operators read, or it is said.

The parameters of the network are the elements of the initializers that operators read, each once,
but for those that one of these rules leaves out: what is not floating-point, and the scales and
zero points of what is quantised; a tensor of one element; the running statistics of batch norms;
masks, by their values; shapes, conditions and the sines of positions. Whatever else no layer
has, or several have, is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.onnx.budget import MAX_ELEMENTS
from hypar_opt.onnx.constant import Constant
from hypar_opt.onnx.features import Layer
from hypar_opt.onnx.import_state import ImportState
from hypar_opt.onnx.regions import Region, distinct

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network

# FLOAT, FLOAT16, DOUBLE, BFLOAT16.
FLOATS = frozenset({1, 10, 11, 16})

MASKED = -1e4
"""A mask hides what it adds at most this to."""

_SHOWN = 3


def check(network: Network, layers: Sequence[Layer]) -> None:
    """Refuse a network whose layers count other parameters than the file has for them.

    Raises
    ------
    InputError
        Naming the first node whose layer does.
    """
    described = {
        layer.name: (layer, maps)
        for layer, maps in zip(network.layers, network.maps(), strict=True)
    }
    for layer in layers:
        operator, maps = described[layer.name]
        counted, weights = operator.parameters(maps), layer.weights
        if counted != weights.elements and layer.node is not None:
            held = {region.name: region.elements for region in weights.regions}
            raise layer.node.refuse(
                f"makes a layer of {counted:,} parameters, of {_shown(held) if held else 'none'} in"
                " the file; a network has no layer for that"
            )


def repeated(layers: Sequence[Layer]) -> list[str]:
    """Return what of the initializers several layers have, a sentence each."""
    return [sentence for sentence in (_of_tied(layers), _of_vectors(layers)) if sentence]


def _of_tied(layers: Sequence[Layer]) -> str:
    """Return which layers have the weights of others: heads have an embedding's on purpose."""
    tied = [layer for layer in layers if "tied" in layer.keys]
    pairs = [(layer, layers[layer.keys["tied"]]) for layer in tied]
    pairs = [(layer, owner) for layer, owner in pairs if owner.kind == "fc"]
    if not pairs:
        return ""
    shown = [f"{layer.name!r} has those of {owner.name!r}" for layer, owner in pairs[:_SHOWN]]
    total = sum(region.elements for layer, _ in pairs for region in layer.weights.matrix)
    return (
        f"weights that several layers share are counted once: {_listed(shown, len(pairs))}"
        f" ({total:,} parameters); exporters write equal tensors once, so that copies of a layer"
        " that is not trained yet look shared"
    )


def _of_vectors(layers: Sequence[Layer]) -> str:
    """Return which scales and biases are counted for several layers, and are once in the file."""
    several = [layer for layer in layers if layer.weights.shared and layer.weights.added]
    if not several:
        return ""
    shared = [region for layer in several for region in layer.weights.shared]
    had = [region for layer in layers for region in layer.weights.vectors]
    more = sum(one.elements for one in shared) + distinct(had) - distinct(had + shared)
    names = [*dict.fromkeys(repr(_short(region.name)) for region in shared)]
    return (
        "scales and biases that several layers share are counted for each:"
        f" {_listed(names[:_SHOWN], len(names))} ({more:,} parameters more than the file has)"
    )


def left_out(state: ImportState, layers: Sequence[Layer]) -> list[str]:
    """Return what of the initializers that operators read no layer has, in a phrase if anything."""
    had: dict[str, set[Region]] = {}
    for layer in layers:
        for region in layer.weights.regions:
            had.setdefault(region.name, set()).add(region.flat())
    read: dict[str, set[Region]] = {}
    for constant in _learned(state):
        flat = [region.flat() for region in constant.regions]
        left = [region for region in flat if region not in had.get(region.name, ())]
        # Last, since it reads values.
        if left and not _is_mask(constant):
            for region in left:
                read.setdefault(region.name, set()).add(region)
    stated = {name for node in state.graph.nodes if node.op == "Constant" for name in node.outputs}
    counts = {}
    for name, regions in read.items():
        own = had.get(name, set())
        count = distinct(regions | own) - distinct(own)
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
    """Yield what the nodes that an output needs read beside feature maps, and may be learned."""
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
    """Whether the values of a constant hide something: they are very low, or one and zero."""
    if not constant.known or constant.elements > MAX_ELEMENTS:
        return False
    value = constant.value
    if value.dtype.kind != "f":
        return value.dtype.kind in "biu"
    switches = value.any() and not value.all() and np.isin(value, (0, 1)).all()
    return bool(switches or value.min() <= MASKED)


def _is_float(state: ImportState, name: str, stated: set[str]) -> bool:
    """Whether a tensor of the file holds numbers: an initializer, or a node's own value."""
    tensor = state.graph.initialisers.get(name)
    if tensor is not None:
        return tensor.data_type in FLOATS
    return name in stated and state.constant(name).value.dtype.kind == "f"
