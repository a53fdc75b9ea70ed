"""Scaled-down networks: same structure and choices, small sizes that split evenly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import ceil, gcd
from typing import NamedTuple

from hypar_opt.errors import RefusedError
from hypar_opt.hierarchy import Hierarchy, Shares
from hypar_opt.units import format_dimensions
from hypar_opt.workload.network import SCHEMA, Input, Network
from hypar_opt.workload.operators.free_sizes import FreeSizes, SmallMap, constant
from hypar_opt.workload.operators.maps import FeatureMap, Map

_CHANNELS = 8
"""The minimum number of channels; with fewer, activations may zero everything."""
_SIDE = 8
"""The minimum height and width of an image, if the original is as large."""
_MAX_SIDE = 512
_NORMALISED = 4
"""Images per device of a network with batch norms, which need several."""


class Scaled(NamedTuple):
    """A small network, its batch, and a description of the changes."""

    network: Network
    batch: int
    changes: tuple[str, ...]


def scaled_down(
    network: Network,
    batch: int,
    hierarchy: Hierarchy,
    shares: Shares | None = None,
    *,
    micro_batches: int = 1,
    keeps: Callable[[Network], bool] | None = None,
) -> Scaled:
    """Return a small network on which a plan of the network's layers runs.

    Parameters
    ----------
    shares
        The unequal shares of H1's parts of the images; None for equal ones.
    micro_batches
        The parts of the batch that pass one after the other, each by all devices.
    keeps
        Whether a small network's images have the parts that the plan splits them into; None if it
        splits none.

    Raises
    ------
    RefusedError
        If no smaller sizes keep the structure.
    """
    stated = network.input.feature_map()
    largest = max(stated.height, stated.width) if isinstance(stated, FeatureMap) else 1
    devices = hierarchy.accelerators
    parts = devices * -(-_CHANNELS // devices)
    for extent in _extents(stated, divided=keeps is not None):
        try:
            small = _small(network, parts, extent)
        except ValueError:  # a window that does not fit its map
            continue
        if keeps is None or keeps(small):
            break
    else:
        raise RefusedError(f"{network.name} has no smaller network of its structure")
    norms = any(getattr(layer, "norm", None) == "batch" for layer in network.layers)
    per_device = _NORMALISED if norms else 1
    # Every part of H1 has at least one image per device.
    smallest = 1 if shares is None else Fraction(len(shares) * min(shares), sum(shares))
    images = micro_batches * devices * ceil(per_device / smallest)
    changes = [f"batch {batch} -> {images}"]
    now = small.input.feature_map()
    if largest > 1:
        sizes = (format_dimensions(over[1:]) for over in (stated, now))
        changes.append(f"image {' -> '.join(sizes)}")
    if stated.tokens:
        changes.append(f"tokens {stated.tokens} -> {now.tokens}")
    changes.append(f"channels, features, heads, groups, words -> {parts} or small multiples")
    return Scaled(small, images, tuple(changes))


def _extents(stated: Map, *, divided: bool) -> Iterator[tuple[int, int]]:
    """Yield heights and widths of small images, smallest first; (1, 1) if there are no images.

    Parameters
    ----------
    divided
        Whether to take fractions of the stated sizes, which even splits are likelier to divide.
    """
    if not isinstance(stated, FeatureMap):
        yield 1, 1
        return
    height, width = stated.height, stated.width
    if divided:
        both = gcd(height, width)
        for factor in range(both, 0, -1):
            if both % factor == 0:
                yield height // factor, width // factor
        return
    largest = max(height, width)
    for side in range(min(_SIDE, largest), min(largest, _MAX_SIDE) + 1):
        yield min(height, side), min(width, side)


def _small(network: Network, parts: int, extent: tuple[int, int]) -> Network:
    """Return a network of the same structure: sizes that layers tie stay tied, others are free.

    Parameters
    ----------
    parts
        The divisor of all free sizes.
    extent
        The image's height and width.
    """
    stated = network.input.feature_map()
    sizes = FreeSizes(parts, stated.tokens, getattr(network.input, "vocabulary", None))
    channels = constant(1) if sizes.vocabulary else sizes.free()
    first = SmallMap(channels, sizes.tokens if stated.tokens else None, extent)
    written = {-1: first}
    for number, _ in enumerate(network.inputs or (), start=1):
        over = network.map_of(~number)
        tokens = constant(min(over.tokens, parts)) if over.tokens else None
        written[~number] = SmallMap(sizes.free(), tokens, _extent(over, stated, extent))
    keys = []
    for n, (layer, sources, maps) in enumerate(
        zip(network.layers, network.sources, network.maps(), strict=True)
    ):
        reads = (written[source] for source in sources)
        written[n], of_layer = layer.scaled_down(sizes, maps, *reads)
        keys.append(of_layer)
    names = network.source_names
    layers = []
    for layer, sources, of_layer in zip(network.layers, network.sources, keys, strict=True):
        table = layer.model_dump(mode="json", by_alias=True, exclude_none=True)
        table["inputs"] = [names[source] for source in sources]
        layers.append(table | {key: sizes.of(size) for key, size in of_layer.items()})
    first_input, *further = (
        _input(network.input_of(source), sizes, written[source])
        for source in range(-1, -1 - len(network.input_names), -1)
    )
    description = {"name": network.name, "schema": SCHEMA, "input": first_input}
    if further:
        description["inputs"] = dict(zip(network.input_names[1:], further, strict=True))
    return Network.model_validate(description | {"layer": layers})


def _extent(over: Map, first: Map, extent: tuple[int, int]) -> tuple[int, int]:
    """Return the extent of a further input: the small first input's, where both had the same."""
    if not isinstance(over, FeatureMap):
        return 1, 1
    return extent if over[1:] == first[1:] else (over.height, over.width)


def _input(stated: Input, sizes: FreeSizes, small: SmallMap) -> dict[str, int]:
    """Return an input of the small network as a file states it."""
    if getattr(stated, "vocabulary", None):
        assert small.tokens is not None
        return {"tokens": sizes.of(small.tokens), "vocabulary": sizes.of(sizes.words)}
    channels = sizes.of(small.channels)
    if small.tokens:
        return {"tokens": sizes.of(small.tokens), "features": channels}
    if "features" in stated.model_dump():
        return {"features": channels}
    height, width = small.extent
    return {"channels": channels, "height": height, "width": width}
