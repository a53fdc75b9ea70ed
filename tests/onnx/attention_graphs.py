"""Attention written out in many ways, with weights: how heads lie, and what is done between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tests.onnx.with_weights import SIZE, TOKENS, WIDTH, WeightedGraph

HEADS = WIDTH // SIZE
Between = Callable[[WeightedGraph, str, list[Any]], str]
"""Writes nodes behind a tensor of a shape and returns the last one's output."""

PLACES = ("q", "k", "v", "scores", "probabilities", "output")


class Way(NamedTuple):
    """How an attention is written.

    Parameters
    ----------
    kv_heads
        Heads of keys and values, of 4.
    projected
        ``separate``; ``parts``: queries, keys and values side by side; ``heads``: the same, divided
        by heads; ``picked``: these by indices, as PyTorch's of lists are exported;
        ``groups``: with each key head its queries, itself and its values.
    copied
        How a key head serves several queries: ``broadcast`` with queries in groups, ``repeated`` by
        Expand, ``gathered`` by indices, or ``tiled``, the whole several times.
    """

    kv_heads: int = HEADS
    projected: str = "separate"
    copied: str = "repeated"
    causal: bool = False
    rotary: bool = False
    written: str = "products"
    """``products``, ``einsum``, ``merged`` (images and heads are one dimension), ``turned`` (the
    transposed values times the transposed shares) or ``inner`` (heads are the inner dimension of
    the channels)."""


def ways() -> list[Way]:
    """Return every way in which heads lie, and ways in which their products are written."""
    written = [
        Way(kv_heads, projected, "repeated", causal, rotary, form)
        for form in ("einsum", "merged", "turned", "inner")
        for kv_heads in (4, 2, 1)
        for projected in ("separate", "parts", "heads", "groups")
        for causal, rotary in ((False, False), (True, True))
        if form != "inner" or (projected in ("separate", "parts") and not rotary)
    ]
    written += [Way(kv_heads, "picked") for kv_heads in (4, 1)]
    return written + [
        Way(kv_heads, projected, copied, causal, rotary)
        for kv_heads in (4, 2, 1)
        for projected in ("separate", "parts", "heads", "groups")
        for copied in ("broadcast", "repeated", "gathered", "tiled")[: 1 if kv_heads == 4 else 4]
        for causal, rotary in ((False, False), (True, True))
        if (projected, copied) != ("groups", "tiled")
    ]


def _projections(g: WeightedGraph, way: Way, x: str) -> list[str]:
    """Return queries, keys and values, each ``[batch, tokens, heads, size]``."""
    kv = way.kv_heads
    counts = [HEADS, kv, kv]
    if way.projected == "separate":
        names = zip("qkv", counts, strict=True)
        parts = [g.linear(x, name, WIDTH, n * SIZE, bias=name != "k") for name, n in names]
        return [_heads(g, way, part, n) for part, n in zip(parts, counts, strict=True)]
    joint = g.linear(x, "qkv", WIDTH, sum(counts) * SIZE, bias=True)
    if way.projected == "parts":
        sizes = g.value([n * SIZE for n in counts])
        parts = g("Split", joint, sizes, outputs=3, axis=2)
        return [_heads(g, way, part, n) for part, n in zip(parts, counts, strict=True)]
    if way.projected == "heads":
        heads = _reshaped(g, joint, sum(counts), SIZE)
        ends = np.cumsum([0, *counts])
        return [_slice(g, heads, a, b, 2) for a, b in pairwise(ends)]
    if way.projected == "picked":
        heads = g("Transpose", _reshaped(g, joint, sum(counts), SIZE), perm=[2, 0, 1, 3])
        indices = [np.arange(a, b)[:, None] for a, b in pairwise(np.cumsum([0, *counts]))]
        picked = [g("GatherND", heads, g.value(own)) for own in indices]
        return [g("Transpose", own, perm=[1, 2, 0, 3]) for own in picked]
    each = HEADS // kv
    heads = _reshaped(g, joint, kv, each + 2, SIZE)
    bounds = ((0, each, HEADS), (each, each + 1, kv), (each + 1, each + 2, kv))
    return [_reshaped(g, _slice(g, heads, a, b, 3), n, SIZE) for a, b, n in bounds]


def _heads(g: WeightedGraph, way: Way, x: str, count: int) -> str:
    if way.written != "inner":
        return _reshaped(g, x, count, SIZE)
    return str(g("Transpose", _reshaped(g, x, SIZE, count), perm=[0, 1, 3, 2]))


def _reshaped(g: WeightedGraph, x: str, *sizes: int) -> str:
    return str(g("Reshape", x, g.value([0, TOKENS, *sizes])))


def _slice(g: WeightedGraph, x: str, start: int, end: int, axis: int) -> str:
    return str(g("Slice", x, *map(g.value, ([start], [end], [axis]))))


def _copied(g: WeightedGraph, way: Way, x: str) -> str:
    """Return keys or values ``[batch, heads, tokens, size]`` for each of the queries."""
    kv, each = way.kv_heads, HEADS // way.kv_heads
    if each == 1:
        return x
    if way.copied == "broadcast":
        return str(g("Unsqueeze", x, g.value([2])))
    if way.copied == "gathered":
        return str(g("Gather", x, g.value(np.repeat(np.arange(kv), each)), axis=1))
    if way.copied == "tiled":
        return str(g("Gather", x, g.value(np.tile(np.arange(kv), each)), axis=1))
    wide = g("Expand", g("Unsqueeze", x, g.value([2])), g.value([1, kv, each, TOKENS, SIZE]))
    return str(g("Reshape", wide, g.value([0, HEADS, TOKENS, SIZE])))


def attention(way: Way, between: Mapping[str, Between] | None = None) -> Any:
    """Return a model of one attention, with what is written at some of `PLACES`."""
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    between = between or {}
    kv, each = way.kv_heads, HEADS // way.kv_heads

    def put(place: str, x: str, *shape: Any) -> str:
        return between[place](g, x, ["batch", *shape]) if place in between else x

    apart = _projections(g, way, "x")
    q, k, v = (
        put(place, str(g("Transpose", x, perm=[0, 2, 1, 3])), n, TOKENS, SIZE)
        for place, x, n in zip("qkv", apart, (HEADS, kv, kv), strict=True)
    )
    if way.rotary:
        q, k = g.turned(q), g.turned(k)
    heads = [HEADS]
    if each > 1 and way.copied == "broadcast":
        heads = [kv, each]
        q = str(g("Reshape", q, g.value([0, kv, each, TOKENS, SIZE])))
    k, v = _copied(g, way, k), _copied(g, way, v)
    if way.written == "merged":
        heads = []
        q, k, v = (str(g("Reshape", x, g.value([-1, TOKENS, SIZE]))) for x in (q, k, v))
    letters = "bhg"[: len(heads) + 1]
    if way.written == "einsum":
        scores = g("Einsum", q, k, equation=f"{letters}qd,{letters}kd->{letters}qk")
    else:
        scores = g("MatMul", q, _swapped(g, k, len(heads)))
    scores = g("Mul", scores, g.value(np.float32(0.4)))
    scores = put("scores", scores, *heads, TOKENS, TOKENS)
    if way.causal:
        past = np.triu(np.full((TOKENS, TOKENS), -np.inf, np.float32), 1)
        scores = g("Add", scores, g.value(past))
    shares = put("probabilities", g("Softmax", scores, axis=-1), *heads, TOKENS, TOKENS)
    if way.written == "einsum":
        out = g("Einsum", shares, v, equation=f"{letters}qk,{letters}kd->{letters}qd")
    elif way.written == "turned":
        turned = (_swapped(g, x, len(heads)) for x in (v, shares))
        out = _swapped(g, g("MatMul", *turned), len(heads))
    else:
        out = g("MatMul", shares, v)
    out = put("output", out, *heads, TOKENS, SIZE)
    if len(heads) != 1:
        out = g("Reshape", out, g.value([-1, HEADS, TOKENS, SIZE]))
    return g.model(g.linear(g.together(out, 0, TOKENS, WIDTH), "o", WIDTH, 12))


def _swapped(g: WeightedGraph, x: str, heads: int) -> str:
    """Exchange the last two dimensions."""
    return str(g("Transpose", x, perm=[*range(heads + 1), heads + 2, heads + 1]))
