"""Attention masks: none, causal, a sliding window, or others.

A network cannot express others. Only values decide. A mask that they do not decide is reported, and
no mask is applied instead.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.onnx.axes import axes_of
from hypar_opt.onnx.mask_values import Mask, Unknown
from hypar_opt.onnx.model import FLOATS

if TYPE_CHECKING:
    from hypar_opt.onnx.constant import Array
    from hypar_opt.onnx.features import Features, Layer
    from hypar_opt.onnx.import_state import ImportState
    from hypar_opt.onnx.model import OnnxNode

HIDDEN = -1e3
"""Adding this or less hides a score: exporters write -1e4 to -inf."""


PAST, ALL, OTHER = "mask: past", "mask: all", "mask: other"
"""The tokens that a mask shows; kept among the operators of a mask made of token ids.

In a window the number of tokens follows that each sees of the past: ``mask: past 4``.
"""


def past_in(shown: str | None) -> int | None:
    """Return the past tokens that a mask shows, 0 for all; None if it is another mask."""
    if shown is None or not shown.startswith(PAST):
        return None
    return int(shown.removeprefix(PAST) or 0)


def narrower(one: int, other: int) -> int:
    """Return the narrower of two windows; 0 stands for no window."""
    return min(one, other) or max(one, other)


def read_mask(state: ImportState, node: OnnxNode, scores: Features, name: str) -> Mask:
    """Return the mask that a constant applies to the scores of attention.

    A bias of the scores is named.
    """
    layer = state.layer(scores.source)
    # Many blocks share one mask.
    constants = tuple(n if state.is_constant(n) else "" for n in node.inputs)
    places = (tuple(scores.dims[-2:]), layer.sizes["t"], layer.sizes["s"])
    key = (node.op, constants, name, places)
    if key not in state.mask_values.shown:
        state.mask_values.shown[key] = _read(state, node, scores, name)
    mask = state.mask_values.shown[key]
    if mask.is_bias:
        shape = "x".join(str(size) for size in state.constant(name).shape)
        state.note(node, f"a bias of attention's scores, {shape}")
    elif mask.shown in (ALL, None) or past_in(mask.shown) is not None:
        state.fixed.add(name)
    return mask


def _read(state: ImportState, node: OnnxNode, scores: Features, name: str) -> Mask:
    value = state.mask_values.get(name)
    if isinstance(value, Unknown):
        return Mask(_unknown(state, f"it {value.why}"), _is_of_heads(state, scores, name))
    adds = node.op in ("Add", "Sum") or (node.op == "Sub" and node.inputs[1] == name)
    if node.op == "Where":
        return _by_where(state, node, scores, value)
    if adds:
        value = value if value.dtype.kind in "fi" else value.astype(np.float64)
        value = -value if node.op == "Sub" else value
        visible = value > HIDDEN
        is_bias = _is_bias(state, scores, name, value[visible])
        lowers = value[~visible].max(initial=-np.inf) - value[visible].min(initial=np.inf)
        return Mask(_shown(state, scores, visible), is_bias, float(lowers))
    if node.op in ("Mul", "Div") and not (node.op == "Div" and node.inputs[0] == name):
        if (value == 1).all():
            return Mask(ALL)
        zeroed = node.op == "Mul" and np.isin(value, (0, 1)).all()
        # As GPT-2 does it: scores times the mask, minus 10,000 where it is 0.
        if zeroed and _shown(state, scores, value.astype(bool)) == PAST:
            return Mask(None)
    return Mask(f"it is read by {node.op}")


def _is_bias(state: ImportState, scores: Features, name: str, rest: Array) -> bool:
    """Return whether a constant adds a bias to visible scores: several numbers, or learned ones."""
    if rest.size and not (rest == rest.flat[0]).all():
        return True
    # Equal values are learned, too, before training; but what hides anything is a mask.
    return rest.size == state.constant(name).elements and _is_of_heads(state, scores, name)


def _is_of_heads(state: ImportState, scores: Features, name: str) -> bool:
    """Whether a constant has a value of the file for each head: masks are of all heads."""
    constant = state.constant(name)
    heads = [
        size
        for size, dim in zip(constant.shape[-3::-1], scores.dims[-3::-1], strict=False)
        if size > 1 and "g" in axes_of([dim])
    ]
    tensors = [state.graph.initialisers.get(region.name) for region in constant.regions]
    learned = sum(
        region.elements
        for region, tensor in zip(constant.regions, tensors, strict=True)
        if tensor is not None and tensor.data_type in FLOATS
    )
    return learned >= math.prod(heads) > 1


def read_mask_of_tokens(mask: Features) -> Mask:
    """Return the mask computed from token ids; no id is padding."""
    if OTHER in mask.operators:
        return Mask("it depends on the token ids")
    past = [visible for visible in map(past_in, mask.operators) if visible is not None]
    return Mask(_word(reduce(narrower, past)) if past else ALL)


def _word(window: int) -> str:
    return f"{PAST} {window}" if window else PAST


def shown_by(state: ImportState, node: OnnxNode, name: str, tokens: int) -> str | None:
    """Return the mask of a constant that is combined with one of token ids; None if no mask.

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
    return _square_mask(value.astype(bool), tokens, tokens)


def read_attention_mask(state: ImportState, node: OnnxNode, layer: Layer, name: str) -> None:
    """Read the mask of an attention operator."""
    if not state.is_constant(name):
        shown = _unknown(state, "it depends on the network's input")
    elif isinstance(value := state.mask_values.get(name), Unknown):
        shown = _unknown(state, f"it {value.why}")
    else:
        visible = value if value.dtype == bool else value > HIDDEN
        rest = value[visible]
        queries, keys = layer.sizes.get("t", 1), value.shape[-1] if value.ndim else 1
        shown = _square_mask(visible, queries, keys)
        if value.dtype != bool and rest.size and not (rest == rest.flat[0]).all():
            shape = "x".join(str(size) for size in value.shape)
            state.note(node, f"a bias of attention's scores, {shape}")
        elif shown == ALL or past_in(shown) is not None:
            state.fixed.add(name)
    window = past_in(shown)
    if window is not None:
        layer.keys |= {"causal": True} | ({"window": window} if window else {})
    elif shown != ALL:
        no_mask(state, node, shown)


def _unknown(state: ImportState, why: str) -> str:
    """Return the mask assumed if values are unknown: causal, if that is stated."""
    if not state.causal:
        # Networks keep this, whoever reads them: it names the option as a shell does and Python.
        return f"{why} (the option causal of import states that it hides later tokens)"
    said = f"attention's mask: {why}; it is taken to hide later tokens, as stated"
    if said not in state.remarks:
        state.remarks.append(said)
    return PAST


def no_mask(state: ImportState, node: OnnxNode, shown: str) -> None:
    """Note a mask that a network cannot express."""
    why = "it hides other tokens than the later ones" if shown == OTHER else shown
    state.note(node, f"attention's mask: {why}; no mask is applied instead")


def _by_where(state: ImportState, node: OnnxNode, scores: Features, condition: Array) -> Mask:
    """Return where a Where takes the scores; elsewhere it has to hide them."""
    places = [index for index in (1, 2) if not state.is_constant(node.inputs[index])]
    if len(places) != 1:
        return Mask("it chooses among scores")
    (index,) = places
    visible = condition.astype(bool) if index == 1 else ~condition.astype(bool)
    partner = state.mask_values.get(node.inputs[3 - index])
    if visible.all():
        return Mask(ALL)
    if isinstance(partner, Unknown):
        return Mask(f"it {partner.why}")
    if not (partner <= HIDDEN).all():
        return Mask("it replaces scores by other numbers than those that hide them")
    return Mask(_shown(state, scores, visible), lowers=float(partner.max()))


def _shown(state: ImportState, scores: Features, visible: Array) -> str:
    layer = state.layer(scores.source)
    queries, keys = layer.sizes["t"], layer.sizes["s"]
    rows, columns = (axes_of([dim]) for dim in scores.dims[-2:])
    if visible.all():
        return ALL
    if rows & {"s"} or columns & {"t"}:
        rows, columns = columns, rows
        visible = np.swapaxes(visible, -1, -2) if visible.ndim > 1 else visible
    if rows - {"t"} or columns - {"s"}:
        return OTHER
    return _square_mask(visible, queries, keys)


def _square_mask(visible: Array, queries: int, keys: int) -> str:
    """Return what a mask ``[.., queries, keys]`` shows: all tokens, the past, or others.

    Of the past all, or of each token as many.
    """
    if visible.all():
        return ALL
    if visible.ndim < 2 or visible.shape[-2:] != (queries, keys):
        return OTHER
    visible = visible.reshape(-1, queries, keys)
    window = int(visible[0, -1].sum()) if queries == keys else keys
    past = np.tri(queries, keys, dtype=bool) & ~np.tri(queries, keys, -window, dtype=bool)
    if not (visible == past).all() or not window:
        return OTHER
    return _word(window if window < keys else 0)
