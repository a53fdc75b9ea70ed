"""Rotary positions of queries and keys, recognised by the values that their nodes compute.

Exporters write a rotation in a dozen ways. Whatever its nodes are, it turns pairs of a head's
features by angles that grow with the token's position, and leaves those of the first token as they
are. So the nodes are run on the same features at every token, by onnx's reference evaluator, and
the angles are read from what they return.

Source: J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
arXiv:2104.09864, equation 15.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.onnx.axes import axes_of, unit
from hypar_opt.onnx.mask_values import Unknown
from hypar_opt.onnx.model import FLOATS
from hypar_opt.workload.operators.attention import ROTARY_BASE, pairs_of

if TYPE_CHECKING:
    from hypar_opt.onnx.features import Features
    from hypar_opt.onnx.import_state import ImportState
    from hypar_opt.onnx.model import OnnxNode

    Array = NDArray[np.float64]

MAX_ELEMENTS = 2**22
"""The maximum elements of a rotation that is evaluated."""

MAX_NODES = 64
"""The maximum number of nodes of a rotation."""


_LINEAR = frozenset(
    (
        *("Concat", "Expand", "Flatten", "Gather", "Identity", "Neg", "Reshape", "RotaryEmbedding"),
        *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    )
)
"""Operators of one map or joins of several that add nothing of their own."""


class _Nodes(NamedTuple):
    """The nodes that make one tensor of another, in topological order."""

    nodes: Sequence[OnnxNode]
    first: str
    last: str


class _Places(NamedTuple):
    """The positions of the token dimension and of the head-feature dimensions."""

    tokens: int
    features: tuple[int, ...]


class Rotation(NamedTuple):
    """The rotation that nodes apply to the features of each head.

    Parameters
    ----------
    of
        The tensor that they turn.
    key
        The key ``rotary`` of an attention.
    factor
        The number by which they multiply it, beside.
    """

    of: str
    key: dict[str, Any]
    factor: float


def rotation_of(state: ImportState, name: str, size: int) -> Rotation | None:
    """Return the rotary positions that the last nodes before a tensor are; None if they are none.

    Parameters
    ----------
    size
        Features of a head.
    """
    between = _joined_nodes(state, name)
    if between is None or not all(_is_linear(state, node) for node in between.nodes):
        return None
    turned = _turned(state, between, size)
    key = None if turned is None else _key(turned)
    if key is None:
        return None
    read = {name for node in between.nodes for name in node.inputs if name}
    state.fixed.update(name for name in read if state.is_constant(name))
    return Rotation(between.first, *key)


def _is_linear(state: ImportState, node: OnnxNode) -> bool:
    """Whether a node's output is linear in its maps, whatever their values are.

    So its result on one map determines that on all.
    """
    maps = [name for name in node.inputs if name and not state.is_constant(name)]
    if node.op in ("Add", "Sub", "Sum"):
        return len(maps) == len(node.inputs)
    if node.op in ("Mul", "Div"):
        return len(maps) == 1 and (node.op == "Mul" or maps[0] == node.inputs[0])
    if node.op == "Cast":
        return node.attributes().get("to") in FLOATS
    return node.op in _LINEAR and (len(maps) == 1 or len(maps) == len(node.inputs))


def _joined_nodes(state: ImportState, name: str) -> _Nodes | None:
    """Return the last nodes before a tensor that divide a map and join its parts again."""
    writers = state.graph.writers
    opened, last = {name}, ""
    nodes: list[OnnxNode] = []
    while len(nodes) < MAX_NODES:
        latest = max(opened, key=lambda tensor: writers.get(tensor, -1))
        if latest not in writers:
            return None
        node = state.graph.nodes[writers[latest]]
        maps = {tensor for tensor in node.inputs if tensor and not state.is_constant(tensor)}
        if not last and (len(maps) > 1 or node.op == "RotaryEmbedding"):
            last = latest
        opened = (opened - set(node.outputs)) | maps
        nodes += [node] if last else []
        if last and len(opened) == 1:
            return _Nodes(nodes[::-1], next(iter(opened)), last)
    return None


def _turned(state: ImportState, between: _Nodes, size: int) -> Array | None:
    """Return what becomes of a head's features at each token, ``(tokens, features)``."""
    before, after = state.tensors[between.first], state.tensors[between.last]
    places, into = _places(before, size), _places(after, size)
    if places is None or into is None:
        return None
    # Other dimensions are most often broadcast: one index of them tells as much, in less memory.
    axes = (places.tokens, *places.features)
    alone = tuple(extent if axis in axes else 1 for axis, extent in enumerate(before.shape))
    for shape in (alone, before.shape):
        if math.prod(shape) > MAX_ELEMENTS:
            continue
        result = _run(state, between, shape, places)
        if result is not None and result.ndim == len(after.dims):
            last = (into.tokens, *into.features)
            moved = np.moveaxis(result, last, range(-len(last), 0))
            heads: Array = moved.reshape(-1, moved.shape[-len(last)], size)
            # One rotation of all heads, or none that a network has.
            return heads[0] if np.allclose(heads, heads[0], rtol=1e-5, atol=1e-7) else None
    return None


def _places(features: Features, size: int) -> _Places | None:
    """Return where a map has its tokens and the features of a head, the latter in order."""
    axes = [axes_of([dim]) for dim in features.dims]
    tokens = [place for place, names in enumerate(axes) if names == {"t"}]
    steps = [
        [(digit.size, digit.stride * unit(digit.axis)) for digit in dim] for dim in features.dims
    ]
    inside = [
        place
        for place, names in enumerate(axes)
        if names == {"c"} and all(count * stride <= size for count, stride in steps[place])
    ]
    digits = [digit for place in inside for digit in steps[place]]
    extents = math.prod(count for count, _ in digits)
    in_order = all(outer == count * inner for (_, outer), (count, inner) in pairwise(digits))
    if len(tokens) != 1 or extents != size or not in_order:
        return None
    return _Places(tokens[0], tuple(inside))


def _run(
    state: ImportState, between: _Nodes, shape: tuple[int, ...], places: _Places
) -> Array | None:
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    written = {name for node in between.nodes for name in node.outputs}
    read = dict.fromkeys(name for node in between.nodes for name in node.inputs if name)
    constants = {
        name: _value(state, name)
        for name in read
        if state.is_constant(name) and name not in written
    }
    arrays = {name: one for name, one in constants.items() if isinstance(one, np.ndarray)}
    if len(arrays) < len(constants):
        return None
    kinds = [one.dtype for one in arrays.values() if one.dtype.kind == "f"]
    kind = kinds[0] if kinds else np.dtype(np.float32)
    wide = [extent if axis in places.features else 1 for axis, extent in enumerate(shape)]
    inputs = np.broadcast_to(_drawn(math.prod(wide)).reshape(wide), shape).astype(kind)
    element = helper.np_dtype_to_tensor_dtype(kind)
    graph = helper.make_graph(
        [proto_of(node) for node in between.nodes],
        "rotation",
        [helper.make_tensor_value_info(between.first, element, shape)],
        [helper.make_tensor_value_info(between.last, element, None)],
        [numpy_helper.from_array(one, name) for name, one in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=state.graph.proto.opset_import)
    try:
        (result,) = ReferenceEvaluator(model).run(None, {between.first: inputs})
    except Exception:
        # Whatever does not run, with one index of other dimensions or at all, is not recognised.
        return None
    return np.asarray(result, np.float64)


def _drawn(features: int) -> Array:
    """Return the features of a head that are turned."""
    return np.random.default_rng(0).uniform(1.0, 2.0, features)


def _value(state: ImportState, name: str) -> NDArray[Any] | Unknown:
    """Return a constant's value, which may be in a file in the model's folder."""
    constant = state.constant(name)
    if constant.has_values and not constant.is_input:
        return np.asarray(constant.value)
    if name not in state.tables:
        state.tables[name] = state.mask_values.get(name)
    return state.tables[name]


def proto_of(node: OnnxNode) -> Any:
    """Return a node for onnx's evaluator to run, with the inputs that are read."""
    from onnx import helper

    if node.op == "Identity":  # a CastLike, perhaps, whose second input is left out
        return helper.make_node("Identity", node.inputs, node.outputs)
    return node.proto


def _key(turned: Array) -> tuple[dict[str, Any], float] | None:
    """Return the base, the features and the pairs of a rotation, and its factor; None if none."""
    tokens, width = turned.shape
    # The first token's are as given, but for a factor.
    factor = float(turned[0, 0] / _drawn(width)[0])
    as_given = factor > 0 and np.allclose(turned[0], factor * _drawn(width), rtol=1e-5)
    if tokens < 2 or not np.isfinite(turned).all() or not as_given:
        return None
    turned = turned / factor
    changed = np.abs(turned - turned[0]).max(axis=0) > 1e-6
    last = int(changed.nonzero()[0].max(initial=-1)) + 1
    for count in dict.fromkeys((last + last % 2, width)):
        for interleaved in (False, True):
            if not 2 <= count <= width or count % 2:
                continue
            base = _base(turned, count, interleaved=interleaved)
            if base is not None:
                key: dict[str, Any] = {"base": base}
                key |= {"features": count} if count != width else {}
                key |= {"interleaved": True} if interleaved else {}
                return key, 1.0 if math.isclose(factor, 1.0, rel_tol=1e-6) else factor
    return None


def _base(turned: Array, count: int, *, interleaved: bool) -> float | None:
    """Return the base with which pairs of features are turned; None if they are not."""
    tokens, half = len(turned), count // 2
    first, second = pairs_of(count, interleaved=interleaved)
    pairs = turned[:, first] + 1j * turned[:, second]
    base = ROTARY_BASE
    if half > 1 and pairs[0, 1]:
        angle = float(np.angle(pairs[1, 1] / pairs[0, 1]))
        if not 0 < angle < 1:
            return None
        base = angle**-half
    rates = np.arange(half) / half
    # Single precision has angles of late tokens to fewer digits.
    tolerance = 1e-5 + 1e-6 * tokens
    for guess in (float(f"{base:.3g}"), float(f"{base:.6g}")):
        angles = np.arange(tokens)[:, None] * guess**-rates
        difference = np.abs(pairs - pairs[0] * np.exp(1j * angles)).max(initial=0.0)
        rest = np.abs(turned[:, count:] - turned[0, count:]).max(initial=0.0)
        if max(difference, rest) <= tolerance * 3:
            return guess
    return None
