"""What a mask hides: nothing, all later tokens, or what a network has no word for.

Only values decide. A mask that they do not decide is reported, and no mask is applied instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.onnx.axes import axes_of
from hypar_opt.onnx.mask_values import Unknown

if TYPE_CHECKING:
    from hypar_opt.onnx.constant import Array
    from hypar_opt.onnx.features import Features, Layer
    from hypar_opt.onnx.import_state import ImportState
    from hypar_opt.onnx.model import OnnxNode

HIDDEN = -1e3
"""A score is hidden by the addition of no more than this: exporters write -1e4 to -inf."""

PAST, ALL, OTHER = "mask: past", "mask: all", "mask: other"
"""What of the tokens a mask shows; among the operators of a mask that depends on token ids."""


def read_mask(state: ImportState, node: OnnxNode, scores: Features, name: str) -> None:
    """Note what a constant that meets the scores of attention hides, by the node's operator."""
    layer = state.layer(scores.source)
    if state.constant(name).elements == 1 and not (node.op == "Where" and name == node.inputs[0]):
        return  # a scale, or what a Where puts in the place of scores
    # One mask is that of many blocks.
    constants = tuple(n if state.is_constant(n) else "" for n in node.inputs)
    places = (tuple(scores.dims[-2:]), layer.sizes["t"], layer.sizes["s"])
    key = (node.op, constants, name, places, "Softmax" in scores.operators)
    shown = state.mask_values.shown.get(key)
    if shown is None:
        visible = _visible(state, node, name)
        if visible is None:
            return
        shown = visible if isinstance(visible, str) else _shown(scores, layer, visible)
        state.mask_values.shown[key] = shown
    if shown in (PAST, ALL):
        state.fixed.add(name)
    _apply(state, node, layer, shown)


def read_mask_of_tokens(state: ImportState, node: OnnxNode, layer: Layer, mask: Features) -> None:
    """Note what a mask hides that is made of the token ids, in which nothing is padding."""
    shown = next((one for one in (OTHER, PAST) if one in mask.operators), ALL)
    why = "it depends on the token ids"
    _apply(state, node, layer, why if shown == OTHER else shown)


def shown_by(state: ImportState, node: OnnxNode, name: str, tokens: int) -> str | None:
    """Return what a constant shows that is joined to a mask made of token ids; None for nothing.

    Parameters
    ----------
    tokens
        Their number: a constant that has no such square is of no queries and keys.
    """
    if tokens < 2 or state.constant(name).shape[-2:] != (tokens, tokens):
        return None
    value = state.mask_values.get(name)
    if isinstance(value, Unknown) or node.op != "And":
        return OTHER
    return _of_square(value.astype(bool), tokens, tokens)


def read_attention_mask(state: ImportState, node: OnnxNode, layer: Layer, name: str) -> None:
    """Note what the mask of an operator that is all of attention hides."""
    if not state.is_constant(name):
        _apply(state, node, layer, "it depends on the network's input")
        return
    value = state.mask_values.get(name)
    if isinstance(value, Unknown):
        _apply(state, node, layer, f"it {value.why}")
        return
    queries, keys = layer.sizes.get("t", 1), value.shape[-1] if value.ndim else 1
    visible = value if value.dtype == bool else _by_sum(value)
    shown = visible if isinstance(visible, str) else _of_square(visible, queries, keys)
    if shown in (PAST, ALL):
        state.fixed.add(name)
    _apply(state, node, layer, shown)


def _apply(state: ImportState, node: OnnxNode, layer: Layer, shown: str) -> None:
    if shown == PAST:
        layer.keys["causal"] = True
    elif shown != ALL:
        why = "it hides other tokens than the later ones" if shown == OTHER else shown
        state.note(node, f"attention's mask: {why}; no mask is applied instead")


def _visible(state: ImportState, node: OnnxNode, name: str) -> Array | str | None:
    """Return where a mask leaves the scores as they are, or why that is not known.

    None where the constant is no mask.
    """
    if node.op == "Where" and name != node.inputs[0]:
        # Its place is the condition's: the mask, or the one that a row of nothing else is hidden.
        return None
    value = state.mask_values.get(name)
    if isinstance(value, Unknown):
        return f"it {value.why}"
    if node.op == "Where":
        return _by_where(state, node, value)
    if node.op in ("Add", "Sum"):
        return _by_sum(value)
    if node.op == "Sub" and node.inputs[1] == name:
        return _by_sum(-value)
    if node.op in ("Mul", "Div") and (value == 1).all():
        return None
    if node.op == "Mul" and np.isin(value, (0, 1)).all():
        # GPT-2's own way: scores times the mask, less 10,000 where that is 0.
        state.layer(state.features(_scores_of(state, node)).source).keys["zeroed"] = node
        state.fixed.add(name)
        return None
    return f"it is read by {node.op}"


def _scores_of(state: ImportState, node: OnnxNode) -> str:
    return next(name for name in node.inputs if name and not state.is_constant(name))


def _by_where(state: ImportState, node: OnnxNode, condition: Array) -> Array | str:
    """Return where a choice takes the scores; what it takes instead has to hide them."""
    kept = [place for place in (1, 2) if not state.is_constant(node.inputs[place])]
    if len(kept) != 1:
        return "it chooses among scores"
    (place,) = kept
    visible = condition.astype(bool) if place == 1 else ~condition.astype(bool)
    other = state.mask_values.get(node.inputs[3 - place])
    after = "Softmax" in state.features(node.inputs[place]).operators
    if visible.all():
        return visible
    if isinstance(other, Unknown):
        return f"it {other.why}"
    if after or not (other <= HIDDEN).all():
        return "it replaces scores by other numbers than those that hide them"
    return visible


def _by_sum(value: Array) -> Array | str:
    """Return where a sum leaves scores as they are: a constant in all places changes nothing."""
    value = value.astype(np.float64) if value.dtype.kind not in "fiub" else value
    hidden = value <= HIDDEN
    rest = value[~hidden]
    if rest.size and not (rest == rest.flat[0]).all():
        return "it is a bias of the scores"
    return ~hidden


def _shown(scores: Features, layer: Layer, visible: Array) -> str:
    queries, keys = layer.sizes["t"], layer.sizes["s"]
    if axes_of([scores.dims[-1]]) == {"t"} and queries > 1 and visible.ndim > 1:
        visible = np.swapaxes(visible, -1, -2)  # keys by queries
    return _of_square(visible, queries, keys)


def _of_square(visible: Array, queries: int, keys: int) -> str:
    """Return what places ``[.., queries, keys]`` show: all tokens, the past alone, or others."""
    if visible.all():
        return ALL
    if visible.ndim < 2 or visible.shape[-2:] != (queries, keys):
        return OTHER
    past = np.tri(queries, keys, dtype=bool)
    return PAST if (visible.reshape(-1, queries, keys) == past).all() else OTHER
