"""The tokens that a mask hides: none, all later ones, or others, which a network cannot express.

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
"""Adding this or less hides a score: exporters write -1e4 to -inf."""

PAST, ALL, OTHER = "mask: past", "mask: all", "mask: other"
"""The tokens that a mask shows; kept among the operators of a mask made of token ids."""


def read_mask(state: ImportState, node: OnnxNode, scores: Features, name: str) -> None:
    """Determine what a constant hides that an operator applies to the scores of attention."""
    layer = state.layer(scores.source)
    if state.constant(name).elements == 1 and not (node.op == "Where" and name == node.inputs[0]):
        return  # a scale, or what a Where replaces scores by
    # Many blocks share one mask.
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
    """Determine what a mask made of token ids hides; no id is padding."""
    shown = next((word for word in (OTHER, PAST) if word in mask.operators), ALL)
    why = "it depends on the token ids"
    _apply(state, node, layer, why if shown == OTHER else shown)


def shown_by(state: ImportState, node: OnnxNode, name: str, tokens: int) -> str | None:
    """Return what a constant shows that is combined with a mask of token ids; None if no mask.

    Parameters
    ----------
    tokens
        Their number: a mask of queries and keys ends in two dimensions of it.
    """
    if tokens < 2 or state.constant(name).shape[-2:] != (tokens, tokens):
        return None
    value = state.mask_values.get(name)
    if isinstance(value, Unknown) or node.op != "And":
        return OTHER
    return _of_square(value.astype(bool), tokens, tokens)


def read_attention_mask(state: ImportState, node: OnnxNode, layer: Layer, name: str) -> None:
    """Determine what the mask of an attention operator hides."""
    if not state.is_constant(name):
        _apply(state, node, layer, _unknown(state, "it depends on the network's input"))
        return
    value = state.mask_values.get(name)
    if isinstance(value, Unknown):
        _apply(state, node, layer, _unknown(state, f"it {value.why}"))
        return
    queries, keys = layer.sizes.get("t", 1), value.shape[-1] if value.ndim else 1
    visible = value if value.dtype == bool else _by_sum(value)
    shown = visible if isinstance(visible, str) else _of_square(visible, queries, keys)
    if shown in (PAST, ALL):
        state.fixed.add(name)
    _apply(state, node, layer, shown)


def _unknown(state: ImportState, why: str) -> str:
    """Return what a mask shows whose values are not known: the past, if that is stated."""
    if not state.causal:
        # Networks keep this, whoever reads them: it names the option as a shell does and Python.
        return f"{why} (the option causal of import states that it hides later tokens)"
    said = f"attention's mask: {why}; it is taken to hide later tokens, as stated"
    if said not in state.remarks:
        state.remarks.append(said)
    return PAST


def _apply(state: ImportState, node: OnnxNode, layer: Layer, shown: str) -> None:
    if shown == PAST:
        layer.keys["causal"] = True
    elif shown != ALL:
        why = "it hides other tokens than the later ones" if shown == OTHER else shown
        state.note(node, f"attention's mask: {why}; no mask is applied instead")


def _visible(state: ImportState, node: OnnxNode, name: str) -> Array | str | None:
    """Return where a mask leaves scores unchanged, or why that is unknown.

    None where the constant is not a mask.
    """
    if node.op == "Where" and name != node.inputs[0]:
        # The condition is the mask; this is what hidden scores are replaced by.
        return None
    value = state.mask_values.get(name)
    if isinstance(value, Unknown):
        return _unknown(state, f"it {value.why}")
    if node.op == "Where":
        return _by_where(state, node, value)
    if node.op in ("Add", "Sum"):
        return _by_sum(value)
    if node.op == "Sub" and node.inputs[1] == name:
        return _by_sum(-value)
    if node.op in ("Mul", "Div") and (value == 1).all():
        return None
    if node.op == "Mul" and np.isin(value, (0, 1)).all():
        # As GPT-2 does it: scores times the mask, minus 10,000 where it is 0.
        scores = next(each for each in node.inputs if each and not state.is_constant(each))
        state.layer(state.features(scores).source).keys["zeroed"] = node
        state.fixed.add(name)
        return None
    return f"it is read by {node.op}"


def _by_where(state: ImportState, node: OnnxNode, condition: Array) -> Array | str:
    """Return where a Where takes the scores; its other values have to hide them."""
    scores = [index for index in (1, 2) if not state.is_constant(node.inputs[index])]
    if len(scores) != 1:
        return "it chooses among scores"
    (index,) = scores
    visible = condition.astype(bool) if index == 1 else ~condition.astype(bool)
    other = state.mask_values.get(node.inputs[3 - index])
    after = "Softmax" in state.features(node.inputs[index]).operators
    if visible.all():
        return visible
    if isinstance(other, Unknown):
        return f"it {other.why}"
    if after or not (other <= HIDDEN).all():
        return "it replaces scores by other numbers than those that hide them"
    return visible


def _by_sum(value: Array) -> Array | str:
    """Return where a sum leaves scores unchanged: one constant for all of them has no effect."""
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
    """Return what a mask ``[.., queries, keys]`` shows: all tokens, the past, or others."""
    if visible.all():
        return ALL
    if visible.ndim < 2 or visible.shape[-2:] != (queries, keys):
        return OTHER
    past = np.tri(queries, keys, dtype=bool)
    return PAST if (visible.reshape(-1, queries, keys) == past).all() else OTHER
