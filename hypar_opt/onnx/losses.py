"""The loss that a model's file omits: logits end in a softmax and its cross-entropy.

A file holds only the forward pass, so the loss is inferred: where the single output is a linear
layer without an activation that writes logits of a vocabulary or of classes, the network ends in an
``output``, as those of the zoo do. Logits are of the vocabulary if the layer has as many units as
the table of token ids has rows; they are of classes if the model reads an image or token ids and
the layer writes one vector of at least two numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypar_opt.errors import InputError, argument
from hypar_opt.onnx.features import Layer
from hypar_opt.onnx.import_state import ImportState

CHAIN = (
    "the cross-entropy of a softmax: a chain of conv and fc ends in the squared distance from"
    " targets, as the paper's networks do; --loss cross-entropy keeps it"
)

LOSSES = ("cross-entropy", "squared-error")
"""The losses that may be stated: of the softmax of logits, or half the squared distance."""

SQUARED = (
    "its loss is not in the file: half the squared distance from targets is taken; --loss states"
    " another"
)


def end_in_a_loss(state: ImportState, layers: list[Layer], stated: str | None = None) -> None:
    """Add the loss of logits with a remark, except to a chain, as in the paper's networks.

    Parameters
    ----------
    stated
        One of `LOSSES`, in place of what the model's end suggests.

    Raises
    ------
    InputError
        If a cross-entropy is stated, and the model has several ends.
    """
    if stated is not None:
        _end_as_stated(state, layers, stated)
        return
    if _is_capped(layers):
        _end_capped(state, layers)
        return
    if not layers or layers[-1].operator.ends:
        if layers and is_chain(layers[:-1]) and layers[-1].inputs == [len(layers) - 2]:
            layers.pop()
            state.note(None, CHAIN)
        return
    ends = _ends(layers)
    what = _logits(state, layers, ends)
    if what is None:
        state.remarks.append(SQUARED)
        return
    if is_chain(layers):
        state.note(None, CHAIN)
        return
    (end,) = ends
    layers.append(Layer("output", {}, [end], layers[end].sizes))
    state.remarks.append(_logits_remark(layers[end], what))


def _is_capped(layers: Sequence[Layer]) -> bool:
    """Return whether the only end is a soft cap without a loss."""
    last = layers[-1] if layers else None
    of_end = last is not None and last.kind == "output" and last.keys.get("loss") == "none"
    return of_end and "softcap" in layers[-1].keys and len(_ends(layers)) == 1


def _end_capped(state: ImportState, layers: list[Layer]) -> None:
    """Add the loss of logits to the last layer, a soft cap, if it reads logits."""
    what = _logits(state, layers, layers[-1].inputs)
    if what is None:
        state.remarks.append(SQUARED)
        return
    del layers[-1].keys["loss"]
    state.remarks.append(_logits_remark(layers[-1], what))


def _logits_remark(end: Layer, axis: str) -> str:
    return (
        f"its end is taken as logits of {end.channels:,} {axis}: the loss is the cross-entropy of"
        " their softmax"
    )


def _end_as_stated(state: ImportState, layers: list[Layer], stated: str) -> None:
    ends_in_softmax = layers[-1].kind == "output" and layers[-1].keys.get("loss") is None
    if stated == "cross-entropy" and not ends_in_softmax:
        ends = _ends(layers)
        if _is_capped(layers):
            del layers[-1].keys["loss"]
            return
        if len(ends) > 1 or layers[-1].operator.ends:
            raise InputError(
                f"has {len(ends)} outputs, and the cross-entropy is of one;"
                f" leave {argument('loss')} out"
            )
        layers.append(Layer("output", {}, ends, layers[ends[0]].sizes))
    if stated == "squared-error" and ends_in_softmax:
        if len(layers) == 1:
            raise InputError("has a softmax alone, which is no network")
        state.note(layers.pop().node, "the softmax at its end")


def _ends(layers: Sequence[Layer]) -> list[int]:
    """Return the layers that no layer reads."""
    read = {source for layer in layers for source in layer.inputs}
    return [place for place in range(len(layers)) if place not in read]


def is_chain(layers: Sequence[Layer]) -> bool:
    """Whether layers are a non-empty chain of the paper's kinds."""
    return bool(layers) and all(
        layer.operator.contraction.contracted and layer.inputs == [position - 1]
        for position, layer in enumerate(layers)
    )


def _logits(state: ImportState, layers: list[Layer], ends: list[int]) -> str | None:
    """Return what the logits at a network's single end are of, if it ends in logits."""
    if len(ends) != 1:
        return None
    layer = layers[ends[0]]
    is_linear = layer.operator.contraction.is_matrix_product and layer.read_as == {None}
    if not is_linear or layer.channels < 2:
        return None
    if layer.is_tokens:
        tables = [x.keys["vocabulary"] for x in layers if x.looks_up]
        return "words" if layer.channels == max(tables, default=0) else None
    first = state.inputs[-1]
    return "classes" if first.is_tokens or first.layer.is_image else None
