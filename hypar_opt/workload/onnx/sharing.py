"""Weights that several layers read: tied where the format can say it, refused where it cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from hypar_opt.errors import InputError
from hypar_opt.workload.onnx.features import Layer
from hypar_opt.workload.onnx.regions import Region, overlap


class _Use(NamedTuple):
    """Some elements of an initializer, and the first layer that reads them."""

    region: Region
    owner: int
    is_vector: bool


def share(layers: list[Layer]) -> None:
    """Tie each layer whose weights another has, by position, and count shared biases once.

    Raises
    ------
    InputError
        Where two layers read some of the same elements, and a network cannot say so.
    """
    uses: dict[str, list[_Use]] = {}
    for position, layer in enumerate(layers):
        _tie(layers, uses, position)
        _share_vectors(layers, uses, position)


def _met(uses: dict[str, list[_Use]], region: Region) -> list[_Use]:
    """Return the earlier uses of any element of a region."""
    return [use for use in uses.get(region.name, ()) if overlap(use.region, region)]


def _tie(layers: list[Layer], uses: dict[str, list[_Use]], position: int) -> None:
    layer = layers[position]
    met = [use for region in layer.weights.matrix for use in _met(uses, region)]
    if not met:
        for region in layer.weights.matrix:
            uses.setdefault(region.name, []).append(_Use(region, position, is_vector=False))
        return
    owners = {use.owner for use in met}
    owner = met[0].owner
    if len(owners) > 1 or not _may_tie(layers[owner], layer):
        raise _refused(layers, layer, met[0])
    layer.keys["tied"] = owner


def _may_tie(owner: Layer, layer: Layer) -> bool:
    """Whether a layer has its owner's weights as they are, or an embedding's transposed."""
    theirs = owner.weights.matrix
    if owner.kind == "embedding":
        theirs = tuple(region._replace(dims=region.dims[::-1]) for region in theirs)
    return layer.kind == "fc" and owner.kind in ("fc", "embedding") and layer.weights.matrix == theirs


def _share_vectors(layers: list[Layer], uses: dict[str, list[_Use]], position: int) -> None:
    """Leave vectors to the first layer that reads them.

    A norm has a scale in any case: one that is shared is counted for each norm.
    """
    layer, weights = layers[position], layers[position].weights
    own: list[Region] = []
    shared: list[Region] = []
    for region in weights.vectors:
        met = _met(uses, region)
        if any(not use.is_vector or use.region.flat() != region.flat() for use in met):
            raise _refused(layers, layer, met[0])
        (shared if met else own).append(region)
    for region in own:
        uses.setdefault(region.name, []).append(_Use(region, position, is_vector=True))
    if not shared:
        return
    added = sum(region.elements for region in shared)
    if layer.kind != "norm":
        added = 0
        if not own:
            del layer.keys["bias"]
    layer.weights = replace(
        weights, vectors=tuple(own), shared=tuple(shared), added=weights.added + added
    )


def _refused(layers: list[Layer], layer: Layer, use: _Use) -> InputError:
    owner = layers[use.owner]
    assert layer.node is not None
    assert owner.node is not None
    elements = overlap_words(layer, owner)
    return layer.node.refuse(
        f"reads elements of the weights {use.region.name!r} that node {owner.node.label!r}"
        f" ({owner.node.op}) reads too{elements}; give each weights of its own"
    )


def overlap_words(layer: Layer, owner: Layer) -> str:
    """Return why two layers that read the same elements cannot be tied."""
    kinds = {layer.kind, owner.kind}
    if kinds == {"fc"} or (owner.kind, layer.kind) == ("embedding", "fc"):
        return ", and not the same matrix"
    return f", which a network cannot say of {owner.kind!r} and {layer.kind!r}"
