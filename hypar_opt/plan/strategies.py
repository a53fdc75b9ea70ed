"""Named strategies of parallel training as pins: what each splits, inside data parallelism.

What a strategy leaves open, such as how tensors are stored, is left to the search, so that each is
in its best form.

Source: `hypar_opt.plan.megatron` for tensor parallelism; Jacobs et al., "DeepSpeed Ulysses",
2023, for sequences that attention alone splits by heads; Liu et al., "Ring Attention with
Blockwise Transformers", 2023, for context parallelism, whose ring moves what a gather of keys and
values moves; Lepikhin et al., "GShard", ICLR 2021, for experts; Dryden et al., "Improving
Strong-Scaling of CNN Training by Exploiting Finer-Grained Parallelism", IPDPS 2019, for rows of
images.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from math import prod
from operator import mul
from types import MappingProxyType
from typing import TYPE_CHECKING

from hypar_opt.plan.megatron import tensor_parallelism
from hypar_opt.workload.layer_tensors import tensors_of
from hypar_opt.workload.operators.attention import HEADS
from hypar_opt.workload.operators.axes import DATA_CHOICE, EXPERTS, ROWS, TOKENS
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from hypar_opt.workload.halos import Border
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.network import Network

SPATIAL = "spatial"
"""The strategy of images in rows."""

Words = dict[str, str]
"""The choice of each layer that a strategy decides, by the layer's name."""


def context_parallelism(network: Network) -> Words:
    """Return the layers that split sequences: all that have several tokens."""
    layers = zip(network.layers, network.maps(), strict=True)
    return {
        layer.name: TOKENS.word
        for layer, maps in layers
        if TOKENS in layer.splits.values() and _several_tokens(tensors_of(layer, maps, 1))
    }


def _several_tokens(layer: LayerTensors) -> bool:
    return layer.has(TOKENS) and layer.split_size(TOKENS) > 1


def ulysses(network: Network) -> Words:
    """Return the layers that split sequences, and attention by heads."""
    heads = {layer.name: HEADS.word for layer in network.layers if _is_attention(layer.splits)}
    return context_parallelism(network) | heads


def expert_parallelism(network: Network) -> Words:
    """Return the layers of experts, which are split between devices that split the batch."""
    weighted = [layer for layer in network.layers if layer.axes.weight]
    words = {
        layer.name: (EXPERTS if EXPERTS in layer.splits.values() else DATA_CHOICE).word
        for layer in weighted
    }
    return words if EXPERTS.word in words.values() else {}


def spatial_parallelism(network: Network) -> Words:
    """Return the layers that split rows of images: all that may, while parts are equal."""
    return dict.fromkeys(_borders(network), ROWS.word)


def _borders(network: Network) -> dict[str, Border]:
    """Return how the rows of each layer that has images may be split."""
    borders = (
        (layer.name, layer.borders.get(ROWS.axis)) for layer in workload_of(network, 1).layers
    )
    return {name: border for name, border in borders if border}


STRATEGIES: Mapping[str, Callable[[Network], Words]] = MappingProxyType(
    {
        "megatron": tensor_parallelism,
        "context": context_parallelism,
        "ulysses": ulysses,
        "expert": expert_parallelism,
        SPATIAL: spatial_parallelism,
    }
)
"""What each strategy splits at the deepest levels; empty if a network has no such layers."""


def degrees(network: Network, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the degrees of a strategy on levels of some parts; none without attention.

    A degree is the number of accelerators below a level: 1, 2, 4, ... with levels of two parts.
    """
    if not any(_is_attention(layer.splits) for layer in network.layers):
        return ()
    return all_degrees(sizes)


def all_degrees(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the accelerators below each level, and all: 1, 2, 4, ... with levels of two parts."""
    return tuple(reversed(_below(sizes)))


def _below(sizes: Sequence[int]) -> list[int]:
    """Return the accelerators that each level divides, and 1 below the last."""
    return [prod(sizes[level:]) for level in range(len(sizes) + 1)]


def strategy_pins(
    network: Network, sizes: Sequence[int], strategy: str, degree: int
) -> tuple[str, ...]:
    """Return the pins of a strategy at the deepest levels, inside data parallelism.

    Parameters
    ----------
    sizes
        The parts of each level, H1 first.
    degree
        The number of accelerators between which it splits layers, one of `degrees`.
    """
    return tuple(pins_within(network, sizes, {strategy: degree}))


def pins_within(network: Network, sizes: Sequence[int], inner: Mapping[str, int]) -> Iterator[str]:
    """Yield the pins of nested strategies, the outermost first."""
    below, within = _below(sizes), prod(inner.values())
    first = below.index(within)
    for level in range(first):
        yield f"*@H{level + 1}=data"
    for strategy, degree in inner.items():
        within //= degree
        last = below.index(within)
        borders = _borders(network) if strategy == SPATIAL else {}
        for name, word in STRATEGIES[strategy](network).items():
            levels = range(first, last)
            if name in borders:
                levels = range(first, first + _even_levels(borders[name], sizes[first:last]))
            # A pin's layer is a pattern, in which brackets of a name have to be escaped.
            yield from (f"{glob.escape(name)}@H{level + 1}={word}" for level in levels)
        first = last


def _even_levels(border: Border, sizes: Sequence[int]) -> int:
    """Return at how many levels, from the first, rows may be split; the others stay free."""
    parts = list(accumulate(sizes, mul))
    even = (size <= border.max_parts and border.size % size == 0 for size in parts)
    return len(list(takewhile(bool, even)))


def _is_attention(splits: Mapping[str, object]) -> bool:
    return HEADS in splits.values()
