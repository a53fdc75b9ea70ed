"""The nodes of decomposed attention between its projections and its output.

The kind ``attention`` computes ``softmax(scale Q K^T + mask) V`` with rotary positions of queries
and keys, and perhaps a soft cap of the scores. So the nodes between are read one after the other:
each is a view, a number that the scale takes, a rotation that is recognised, the tangent of a soft
cap, a mask, or the softmax. Any other node is named.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.onnx.exact import MAP
from hypar_opt.onnx.features import Features
from hypar_opt.onnx.image_windows import ENOUGH, CutWindows, added_scores
from hypar_opt.onnx.mask_values import Mask, Unknown
from hypar_opt.onnx.masks import (
    ALL,
    HIDDEN,
    narrower,
    no_mask,
    past_in,
    read_mask,
    read_mask_of_tokens,
)
from hypar_opt.onnx.rotary import rotation_of
from hypar_opt.onnx.samples import IDENTITY

if TYPE_CHECKING:
    from hypar_opt.onnx.import_state import ImportState
    from hypar_opt.onnx.model import OnnxNode

_VIEWS = frozenset(
    (
        *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Split", "Slice", "Gather"),
        *("Expand", "Tile", "Dropout", "SimplifiedDropout"),
    )
)
"""Operators that change no value; dropout in training is named where the node is read."""

_ROTATES = frozenset({"Neg", "Sub"})

MAX_SHIFT = 100.0
"""Adding a number up to this to all scores changes no share, beside masks that hide by -1e3."""


class AttentionOperand(NamedTuple):
    """Queries or keys as attention reads them.

    Parameters
    ----------
    features
        The features before the operators that attention itself does.
    factor
        The number by which these operators multiply them; None where it is not known.
    rotary
        The key of their rotary positions.
    """

    features: Features
    factor: float | None
    rotary: dict[str, Any] | None


def number_of(state: ImportState, node: OnnxNode) -> float | None:
    """Return the number by which a node multiplies its map; None if it does anything else.

    NaN where the number is not known.
    """
    if node.op not in ("Mul", "Div") or len(node.inputs) != 2:
        return None
    constants = [state.is_constant(name) for name in node.inputs]
    if sum(constants) != 1 or (node.op == "Div" and constants[0]):
        return None
    constant = state.constant(node.inputs[constants.index(True)])
    if constant.elements != 1:
        return None
    if not constant.has_values or constant.is_input:
        return math.nan
    value = float(constant.value.ravel()[0])
    if node.op == "Div":
        return 1 / value if value else math.nan
    return value


def _is_view(node: OnnxNode) -> bool:
    return node.op in _VIEWS or node.changes_nothing


def _writer(state: ImportState, name: str, source: int) -> OnnxNode | None:
    """Return the node that made a tensor of others of the same map; None at the map's layer."""
    place = state.graph.writers.get(name)
    if place is None:
        return None
    node = state.graph.nodes[place]
    maps = [tensor for tensor in node.inputs if tensor in state.tensors]
    return node if all(state.tensors[tensor].source == source for tensor in maps) else None


def operand(
    state: ImportState, reader: OnnxNode, name: str, features: Features
) -> AttentionOperand:
    """Return queries or keys before the scaling and rotation that attention does itself.

    Parameters
    ----------
    reader
        The product of queries and keys.
    name, features
        The tensor that it reads, and its content, settled.
    """
    size, factor = features.shape[-1], 1.0
    rotary: dict[str, Any] | None = None
    # An image's pixels are read as tokens, which are another layer's.
    source = state.tensors[name].source if name in state.tensors else features.source
    while (node := _writer(state, name, source)) is not None:
        maps = [tensor for tensor in node.inputs if tensor in state.tensors]
        number = number_of(state, node)
        if len(maps) == 1 and (number is not None or _is_view(node)):
            name, factor = maps[0], factor * (1.0 if number is None else number)
            continue
        turned = None if rotary else rotation_of(state, name, size)
        if turned is None:
            break
        name, rotary, factor = turned.of, turned.key, factor * turned.factor
    before = state.settled(name, reader) if name in state.tensors else features
    operators, function = before.operators, before.function
    if "RotaryEmbedding" in operators or (MAP in operators and operators & _ROTATES):
        state.note(reader, "rotary positions")
        operators, function = frozenset(), IDENTITY
    scale = None if math.isnan(factor) else factor
    return AttentionOperand(
        features._replace(operators=operators, function=function), scale, rotary
    )


class Between(NamedTuple):
    """The operations between the two products: scaling, masks, biases, soft cap.

    Parameters
    ----------
    factor
        The number by which scores are multiplied; None where it is not known.
    keys
        The keys of their masks and soft cap, and of windows of an image.
    biases
        The table of biases by relative position; empty without.
    """

    factor: float | None
    keys: dict[str, Any]
    biases: str = ""


def between(
    state: ImportState, product: OnnxNode, reader: OnnxNode, name: str, source: int
) -> Between:
    """Return the operations between the products; note those that attention lacks.

    Parameters
    ----------
    product, reader
        The two products.
    name
        The tensor that the second one reads.
    source
        The layer of the scores.
    """
    walk = _Scores(state, source)
    for node in _nodes_between(state, product, name, source):
        walk.take(node)
    if name not in walk.shares:
        state.note(reader, "attention's scores without a softmax, which are taken with one")
    if walk.zeroed and not walk.causal:
        state.note(walk.zeroed, "a multiplication of attention's scores")
    if walk.causal and not walk.lowered <= ENOUGH:
        state.note(reader, f"attention's mask: it lowers later scores by {-walk.lowered:.4g} alone")
    factor = walk.factor
    if walk.before is not None:
        factor *= walk.before
        if not walk.factor > 0:
            state.note(reader, f"a bound of attention's scores, {walk.factor:.4g}")
    keys = walk.keys
    if walk.windows:
        keys["windows"] = walk.windows.keys
        if walk.windows.shape.shift and not walk.hides:
            state.note(reader, "attention between pixels that a roll makes neighbours")
        if walk.causal:
            raise reader.refuse("is causal attention in windows of an image, which no layer is")
    return Between(None if math.isnan(factor) else factor, keys, walk.biases)


def _nodes_between(state: ImportState, product: OnnxNode, name: str, source: int) -> list[OnnxNode]:
    """Return the nodes between the product of the scores and a tensor, in topological order."""
    waiting, places = [name], set()
    while waiting:
        place = state.graph.writers[waiting.pop()]
        node = state.graph.nodes[place]
        if node is product or place in places:
            continue
        places.add(place)
        waiting += [
            tensor
            for tensor in node.inputs
            if tensor in state.tensors and state.tensors[tensor].source == source
        ]
    return [state.graph.nodes[place] for place in sorted(places)]


class _Scores:
    """The walk over the nodes between: scales, masks and softmaxes seen so far."""

    def __init__(self, state: ImportState, source: int) -> None:
        self._state, self._source = state, source
        self.factor = 1.0
        self.before: float | None = None
        """The factor before a soft cap's tanh; `factor` is then the one after it."""
        self.causal = False
        self.window = 0
        """The tokens that each sees of those before it; 0 for all."""
        self.lowered = 0.0
        """The least amount by which a mask lowers hidden scores."""
        self.windows: CutWindows | None = state.layer(source).keys.get("windows")
        """The windows of an image within which attention is."""
        self.hides = False
        """Whether a mask hides what a shift of windows joins."""
        self.biases = ""
        self.zeroed: OnnxNode | None = None
        """A node that multiplies scores by zero where a mask has to hide them."""
        self._is_moved = False
        """Whether anything has been added to scores: shares hide that, a tangent does not."""
        self.shares: set[str] = set()
        """The tensors behind a softmax."""

    @property
    def keys(self) -> dict[str, Any]:
        """The keys of the operations seen."""
        keys: dict[str, Any] = {"causal": True} if self.causal else {}
        keys |= {"window": self.window} if self.window else {}
        cap = self.factor if self.before is not None else 0.0
        return keys | ({"softcap": float(f"{cap:.7g}")} if cap > 0 else {})

    def take(self, node: OnnxNode) -> None:
        """Account for one node."""
        state = self._state
        maps = [tensor for tensor in node.inputs if tensor in state.tensors]
        scores = [tensor for tensor in maps if state.tensors[tensor].source == self._source]
        shared = any(tensor in self.shares for tensor in scores)
        if shared or node.op == "Softmax":
            self.shares.update(node.outputs)
        if len(maps) == 1 and _is_view(node):
            return
        if node.op == "Softmax" and not shared:
            return
        if shared:
            self._take_on_shares(node)
        elif len(scores) == 1:
            self._take_on_scores(
                node, scores[0], [tensor for tensor in maps if tensor not in scores]
            )
        else:
            self._name(node, "scores")

    def _name(self, node: OnnxNode, tensor_kind: str) -> None:
        number = ""
        for tensor in node.inputs:
            if tensor and self._state.is_constant(tensor):
                constant = self._state.constant(tensor)
                if (
                    constant.elements == 1
                    and constant.has_values
                    and constant.value.dtype.kind == "f"
                ):
                    number += f" {float(constant.value.ravel()[0]):.6g}"
        self._state.note(node, f"{node.op}{number} of attention's {tensor_kind}")

    def _take_on_scores(self, node: OnnxNode, scores: str, mask_names: list[str]) -> None:
        """Account for a node that reads the scores once: with constants, or masks of token ids."""
        state = self._state
        constants = [tensor for tensor in node.inputs if tensor and state.is_constant(tensor)]
        if mask_names:
            self._take_token_mask(node, mask_names, constants)
            return
        number = number_of(state, node)
        # Behind biases it is a factor of these, too.
        if number is not None and (number == 1 or not self.biases):
            self.factor *= number
            self.lowered *= number
        elif node.op == "Tanh" and self.before is None and not self._is_moved:
            self.before, self.factor = self.factor, 1.0
        elif node.op == "Where" and state.is_constant(node.inputs[0]):
            self._is_moved = True
            self._see(node, read_mask(state, node, state.tensors[scores], node.inputs[0]))
        elif node.op in ("Add", "Sum", "Sub", "Mul", "Div") and constants:
            self._is_moved = True
            tables = [tensor for tensor in constants if state.constant(tensor).elements != 1]
            if len(tables) < len(constants) and not self._shifts(node, constants):
                self._name(node, "scores")
            for tensor in tables:
                if node.op in ("Add", "Sum") and self._takes(state.tensors[scores], tensor):
                    continue
                self._see(node, read_mask(state, node, state.tensors[scores], tensor))
        else:
            self._name(node, "scores")

    def _takes(self, scores: Features, name: str) -> bool:
        """Take biases by relative position, and masks of a shift's seams."""
        shown = added_scores(self._state, scores, name, self.windows)
        if shown is None or (shown.table and self.biases):
            return False
        self.windows = self.windows or CutWindows(shown.shape, (), scores.dims[-2])
        self.biases, self.hides = shown.table or self.biases, shown.hides or self.hides
        self._state.fixed.add(name)
        return True

    def _shifts(self, node: OnnxNode, constants: list[str]) -> bool:
        """Whether a node adds one number to all scores, which changes no share."""
        if node.op not in ("Add", "Sum", "Sub") or (
            node.op == "Sub" and self._state.is_constant(node.inputs[0])
        ):
            return False
        numbers = [tensor for tensor in constants if self._state.constant(tensor).elements == 1]
        values = [self._value(tensor) for tensor in numbers]
        return all(value is not None and abs(value) <= MAX_SHIFT for value in values)

    def _value(self, name: str) -> float | None:
        """Return the value of a constant of one number; None where it is not known."""
        value = self._state.mask_values.get(name)
        if isinstance(value, Unknown) or value.size != 1 or value.dtype.kind not in "fiub":
            return None
        return float(value.ravel()[0])

    def _take_token_mask(self, node: OnnxNode, mask_names: list[str], constants: list[str]) -> None:
        """Account for a mask that is made of token ids, of which none is padding."""
        state, self._is_moved = self._state, True
        masks = [state.tensors[tensor] for tensor in mask_names]
        hides = node.op in ("Add", "Sum") or (node.op == "Sub" and node.inputs[1] in mask_names)
        if node.op == "Where" and node.inputs[0] in mask_names and len(mask_names) == 1:
            values = [self._value(tensor) for tensor in constants]
            hides = all(value is not None and value <= HIDDEN for value in values)
        elif constants:
            hides = False
        if not hides or any(mask.source >= 0 for mask in masks):
            self._name(node, "scores")
            return
        for mask in masks:
            self._see(node, read_mask_of_tokens(mask))

    def _see(self, node: OnnxNode, mask: Mask) -> None:
        """Take what a mask shows."""
        if mask.shown is None:
            self.zeroed = self.zeroed or node
        elif (window := past_in(mask.shown)) is not None:
            self.causal, self.window = True, narrower(window, self.window)
            self.lowered = min(self.lowered, mask.lowers)
        elif mask.shown != ALL:
            no_mask(self._state, node, mask.shown)

    def _take_on_shares(self, node: OnnxNode) -> None:
        """Account for a node after the softmax: a no-op, or the guard for rows without keys."""
        state = self._state
        if node.op == "IsNaN" or self._guards(node):
            return
        if node.op == "Where" and state.is_constant(node.inputs[0]):
            value = state.mask_values.get(node.inputs[0])
            are_constant = [state.is_constant(tensor) for tensor in node.inputs[1:]]
            if sum(are_constant) == 1 and isinstance(value, np.ndarray):
                chosen = value.astype(bool)
                if (chosen if are_constant[1] else ~chosen).all():
                    return
        constants = [tensor for tensor in node.inputs if tensor and state.is_constant(tensor)]
        neutral = {"Mul": 1.0, "Div": 1.0, "Add": 0.0, "Sub": 0.0, "Sum": 0.0}.get(node.op)
        inverted = node.op in ("Div", "Sub") and state.is_constant(node.inputs[0])
        if neutral is not None and not inverted and len(constants) == len(node.inputs) - 1:
            values = [state.mask_values.get(tensor) for tensor in constants]
            if all(isinstance(v, np.ndarray) and (v == neutral).all() for v in values):
                return
        self._name(node, "probabilities")

    def _guards(self, node: OnnxNode) -> bool:
        """Return whether a node zeroes rows that see no key; a network's have none."""
        state = self._state
        if node.op != "Where" or len(node.inputs) != 3 or node.inputs[0] not in state.tensors:
            return False
        asks = _writer(state, node.inputs[0], self._source)
        if asks is None or asks.op != "IsNaN" or asks.inputs[0] != node.inputs[2]:
            return False
        return state.is_constant(node.inputs[1]) and self._value(node.inputs[1]) == 0.0
