"""Weights that several layers read: tied if the format can express that, refused if not."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hypar_opt.errors import InputError
from hypar_opt.onnx.features import Layer
from hypar_opt.onnx.import_state import ImportState
from hypar_opt.onnx.regions import Region, overlap

MAX_PARTS = 256
"""Layers divide an initializer into at most this many parts."""


class _Use(NamedTuple):
    """Some elements of an initializer, and the first layer that reads them."""

    region: Region
    span: range
    """Contains the indices of its elements."""
    owner: int
    is_vector: bool


_Uses = dict[str, list[_Use]]


def share(state: ImportState, layers: list[Layer], *, untie: bool = False) -> None:
    """Tie each layer to the earlier one, by position, whose weights it has.

    Parameters
    ----------
    untie
        Give each layer weights of its own, except a head that has an embedding's.

    Raises
    ------
    InputError
        Where two layers share elements in a way that a network cannot express.
    """
    uses: _Uses = {}
    for position in range(len(layers)):
        _tie(layers, uses, position, untie=untie)
        _share_vectors(state, layers, uses, position)


def _met(uses: _Uses, region: Region) -> list[_Use]:
    """Return the earlier uses of elements of a region."""
    span = region.span
    near = (
        use
        for use in uses.get(region.name, ())
        if use.span.start < span.stop and span.start < use.span.stop
    )
    return [use for use in near if overlap(use.region, region)]


def _add(uses: _Uses, region: Region, owner: int, *, is_vector: bool) -> None:
    several = uses.setdefault(region.name, [])
    several.append(_Use(region.flat(), region.span, owner, is_vector))
    if len(several) > MAX_PARTS:
        raise InputError(
            f"should be divided among at most {MAX_PARTS} layers",
            where=f"initializer {region.name!r}",
        )


def _tie(layers: list[Layer], uses: _Uses, position: int, *, untie: bool) -> None:
    layer = layers[position]
    met = [use for region in layer.weights.matrix for use in _met(uses, region)]
    if not met:
        for region in layer.weights.matrix:
            _add(uses, region, position, is_vector=False)
        return
    owners = {use.owner for use in met}
    owner = met[0].owner
    if len(owners) > 1 or not _may_tie(layers[owner], layer):
        raise _refused(layers, layer, met[0])
    if untie and not layers[owner].operator.reads_ids:
        return
    layer.keys["tied"] = owner


def _may_tie(owner: Layer, layer: Layer) -> bool:
    """Whether a layer has exactly its owner's weights, or an embedding's transposed."""
    theirs = owner.weights.matrix
    if owner.operator.reads_ids and not layer.operator.reads_ids:
        theirs = tuple(region._replace(dims=region.dims[::-1]) for region in theirs)
    return _same_axes(owner, layer) and layer.weights.matrix == theirs


def _same_axes(owner: Layer, layer: Layer) -> bool:
    """Whether a layer may be tied to another: it has a key for that, and weights of such axes."""
    weight = layer.operator.contraction.weight
    may_tie = "tied" in layer.operator.model_fields
    if layer.operator.reads_ids:  # a table that is read in order has weights of its own
        may_tie = layer.looks_up and owner.operator.reads_ids
    return may_tie and owner.operator.contraction.weight == weight


def _share_vectors(state: ImportState, layers: list[Layer], uses: _Uses, position: int) -> None:
    """Move vectors that an earlier layer has too to ``shared``.

    A tied layer shares its owner's bias, which is counted once. Any other vector is counted with
    each layer, since exporters write equal vectors once, such as those of zeros.
    """
    layer, weights = layers[position], layers[position].weights
    layer.weights = weights = replace(weights, stated=weights.vectors)
    unshared: list[Region] = []
    shared: list[Region] = []
    for region in weights.vectors:
        met = _met(uses, region)
        if not all(use.is_vector for use in met):
            raise _refused(layers, layer, met[0])
        (shared if met else unshared).append(region)
        if all(use.region != region.flat() for use in met):
            _add(uses, region, position, is_vector=True)
    if not shared:
        return
    added = sum(region.elements for region in shared)
    if "tied" in layer.keys and not unshared:
        del layer.keys["bias"]
        state.note(layer.node, "the bias that a layer shares together with its weights")
        added = 0
    layer.weights = replace(
        weights, vectors=tuple(unshared), shared=tuple(shared), added=weights.added + added
    )


_REFUSED = {
    ("conv", "conv"): "; convolutions of a network cannot share weights",
}
"""Why two kinds of layers cannot share weights, where it is not plain."""


def _refused(layers: list[Layer], layer: Layer, use: _Use) -> InputError:
    owner = layers[use.owner]
    assert layer.node is not None
    assert owner.node is not None
    why = ", which a network cannot express for these operators"
    why = _REFUSED.get((owner.kind, layer.kind), why)
    if _same_axes(owner, layer):
        why = ", as another matrix: in parts or transposed"
    return layer.node.refuse(
        f"reads elements of {use.region.name!r} that node {owner.node.label!r} ({owner.node.op})"
        f" reads too{why}; give each a separate initializer"
    )
