"""The loss of a model that has none: logits end in a softmax and its cross-entropy.

A file has a forward pass alone, so what follows is taken: where the one output is a linear layer
without an activation that writes the logits of a vocabulary, or of classes, the network ends in
an ``output``, as those of the zoo do. The layer is of the vocabulary where it has as many units
as the table that token ids read has rows; of classes where the model reads an image or token ids,
and the layer writes a vector of at least two numbers for each.
"""

from __future__ import annotations

from hypar_opt.onnx.features import Layer
from hypar_opt.onnx.import_state import ImportState

CHAIN = (
    "the cross-entropy of a softmax: a chain of conv and fc ends in the squared distance from"
    " targets, as the paper's networks do"
)


def end_in_a_loss(state: ImportState, layers: list[Layer]) -> None:
    """Add the loss of logits, and say so; a chain has none, as in the paper's networks."""
    if not layers or layers[-1].kind == "output":
        if layers and is_chain(layers[:-1]) and layers[-1].inputs == [len(layers) - 2]:
            layers.pop()
            state.omitted.add(CHAIN)
        return
    read = {source for layer in layers for source in layer.inputs}
    ends = [place for place in range(len(layers)) if place not in read]
    what = _logits(state, layers, ends)
    if what is None:
        return
    if is_chain(layers):
        state.omitted.add(CHAIN)
        return
    (end,) = ends
    units = layers[end].channels
    layers.append(Layer("output", {}, [end], layers[end].sizes))
    state.remarks.append(
        f"its end is taken as logits of {units:,} {what}: the loss is the cross-entropy of their"
        " softmax"
    )


def is_chain(layers: list[Layer]) -> bool:
    """Whether layers are a chain of the paper's kinds, at least one."""
    return bool(layers) and all(
        layer.kind in ("conv", "fc") and layer.inputs == [position - 1]
        for position, layer in enumerate(layers)
    )


def _logits(state: ImportState, layers: list[Layer], ends: list[int]) -> str | None:
    """Return what the one end of a network is logits of, if it is."""
    if len(ends) != 1:
        return None
    layer = layers[ends[0]]
    if layer.kind != "fc" or layer.read_as != {None} or layer.channels < 2:
        return None
    if layer.is_tokens:
        tables = [x.keys["vocabulary"] for x in layers if x.kind == "embedding" and x.inputs]
        return (
            "words" if state.input.is_tokens and layer.channels == max(tables, default=0) else None
        )
    return "classes" if state.input.is_tokens or state.input.layer.is_image else None
