"""The core of attention: softmax(Q K^T) V, without the projections around it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator

from hypar_opt.documents.document import Document, Positive, Size
from hypar_opt.errors import RefusedError
from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.operators.axes import (
    DATA_CHOICE,
    TOKENS,
    Axes,
    Choice,
    Contraction,
    Parts,
)
from hypar_opt.workload.operators.base import Operator, default
from hypar_opt.workload.operators.free_sizes import (
    SMALL_HEAD,
    FreeSizes,
    SmallLayer,
    SmallMap,
    constant,
)
from hypar_opt.workload.operators.kernels import Fused, PassesKernels, PassKernels
from hypar_opt.workload.operators.maps import LayerMaps, Map, TokenMap, described
from hypar_opt.workload.operators.saved import Intermediate, Saved
from hypar_opt.workload.operators.windows import Offsets, Pair

HEADS = Choice("heads", "g", "key-value head", "●", "M")
"""Each part has a share of the heads; of grouped queries, a share of the key-value heads with their
queries."""

QUERIES = Choice("queries", "r", "query head", "◉", "Q")
"""Each part has a share of the queries of each key-value head, and all keys and values."""

_SHARED_FEATURES = Contraction.parse(
    "q[b,t,g,r,e] * k[b,s,g,n] * v[b,s,g,d] * z[b,s,m] -> y[b,t,g,r,d]"
)
"""Attention with key features that all heads share (m), beside n features per head."""

_WITH_SCORE_INPUT = Contraction.parse(
    "q[b,t,g,r,e] * k[b,s,g,e] * v[b,s,g,d] * z[b,u,g,r] -> y[b,t,g,r,d]"
)
"""Attention with a further input of u numbers per head for its scores: biases, or a sink."""

_UNGROUPED_CHOICES: Mapping[str, Choice] = FrozenDict(data=DATA_CHOICE, model=HEADS, tokens=TOKENS)
"""The choices of attention without grouped queries: a key-value head for each query head."""

_WINDOW_CHOICES: Mapping[str, Choice] = FrozenDict(data=DATA_CHOICE, model=HEADS, queries=QUERIES)
_UNGROUPED_WINDOW_CHOICES: Mapping[str, Choice] = FrozenDict(data=DATA_CHOICE, model=HEADS)
"""The choices in windows of an image, where consecutive tokens do not lie in one window."""

ROTARY_BASE = 10_000.0
"""The default base of rotary positions, that of RoFormer."""


class Rotary(Document):
    """Rotary positions: queries and keys are turned by angles that grow with their positions.

    At position t, pair j of a head's first ``features`` turns by ``t / base^(2j / features)``.

    Source: J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
    arXiv:2104.09864, equations 15 and 34.
    """

    base: Annotated[Positive | None, default(ROTARY_BASE)] = None
    features: Annotated[Size, Field(multiple_of=2)] | None = None
    """The features of a head that are turned, the first ones; by default all."""
    interleaved: Annotated[bool | None, default(False)] = None
    """Whether a pair is of neighbours, 2j and 2j + 1, rather than of j and j + features / 2."""

    def pairing(self, size: int) -> tuple[float, int, bool]:
        """Return the base, the number of features turned of a head of a size, and the pairing."""
        features = min(self.features or size, size)
        return self.base or ROTARY_BASE, features, bool(self.interleaved)


class ImageWindows(Document):
    """Windows of an image whose pixels are tokens, row by row: attention is within each.

    ``shift`` rolls the image up and to the left by so many rows and columns before it is cut; what
    then lies in one window without having been neighbours does not see one another.

    Source: Z. Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted
    Windows", ICCV 2021, section 3.2.
    """

    size: Pair
    columns: Size
    """Of the image."""
    shift: Annotated[Offsets | None, default((0, 0))] = None

    @property
    def pixels(self) -> int:
        """The pixels of a window."""
        return math.prod(self.size)

    @property
    def biases(self) -> int:
        """The number of positions of a key relative to a query of its window."""
        return math.prod(2 * size - 1 for size in self.size)

    def problem(self, tokens: int) -> str:
        """Return why these windows do not tile a sequence as an image; empty if they do."""
        rows, rest = divmod(tokens, self.columns)
        if rest:
            return f"columns should divide the {tokens} tokens, got {self.columns}"
        if any(extent % size for extent, size in zip((rows, self.columns), self.size, strict=True)):
            shown = "x".join(map(str, self.size))
            return f"size should divide {rows}x{self.columns} pixels, got {shown}"
        down, right = self.shift or (0, 0)
        if down >= rows or right >= self.columns:
            return f"shift should be within {rows}x{self.columns} pixels, got {down}x{right}"
        return ""

    def order(self, tokens: int) -> NDArray[np.intp]:
        """Return the token at each position of each window, ``(windows, pixels of a window)``."""
        rows = tokens // self.columns
        image = np.arange(tokens).reshape(rows, self.columns)
        return self._cut(np.roll(image, [-by for by in self.shift or (0, 0)], (0, 1)))

    def seen(self, tokens: int) -> NDArray[np.bool_]:
        """Return which keys each query sees, ``(windows, pixels, pixels)``."""
        rows = tokens // self.columns
        down, right = self.shift or (0, 0)
        # Along each axis, the pixels that the roll brought from the other end.
        moved = 2 * (np.arange(rows) >= rows - down)[:, None]
        of = self._cut(moved + (np.arange(self.columns) >= self.columns - right))
        seen: NDArray[np.bool_] = of[:, :, None] == of[:, None]
        return seen

    def relative(self) -> NDArray[np.intp]:
        """Return the index of each key's position relative to a query, ``(pixels, pixels)``."""
        rows, columns = self.size
        places = np.divmod(np.arange(self.pixels), columns)
        down, right = (place[:, None] - place for place in places)
        number: NDArray[np.intp] = (down + rows - 1) * (2 * columns - 1) + right + columns - 1
        return number

    def _cut(self, image: NDArray[Any]) -> NDArray[Any]:
        rows, columns = self.size
        down, right = (size // window for size, window in zip(image.shape, self.size, strict=True))
        windows = image.reshape(down, rows, right, columns).swapaxes(1, 2)
        return windows.reshape(down * right, rows * columns)


def pairs_of(features: int, *, interleaved: bool) -> tuple[slice, slice]:
    """Return the first, and the second, of each pair of features that rotary positions turn."""
    if interleaved:
        return slice(0, features, 2), slice(1, features, 2)
    return slice(features // 2), slice(features // 2, features)


class Attention(Operator):
    """Attention with ``heads`` heads and ``kv_heads`` heads of keys and values (grouped queries).

    It reads queries, keys and values as three inputs, or as one with these features side by side:
    then these are three results of the layer that writes them, each read as the kind needs it. A
    fourth input has features that follow those of each head's keys, the same for all heads; then it
    is they, and those of queries beside them, that rotary positions turn (latent attention). Or it
    is of each head's scores: one token of ``sinks``, the score that its softmax has beside those of
    keys; or in ``windows`` of an image biases, for each position of a key relative to a query.

    ``causal`` says that a token sees only those before it and itself, and ``window`` that it sees
    only the last so many of them. Fused kernels skip the scores that the mask hides, and so half of
    the products, or more; in all other counts they are there.
    """

    kind: Literal["attention"]
    heads: Size
    kv_heads: Size | None = None
    causal: Annotated[bool | None, default(False)] = None
    window: Size | None = None
    """The tokens that one sees, itself the last: causal attention in a sliding window."""
    windows: ImageWindows | None = None
    """The windows of an image in which pixels see one another."""
    softcap: Positive | None = None
    """The bound of scores, each replaced by softcap * tanh(score / softcap) before the softmax."""
    sinks: Annotated[bool | None, default(False)] = None
    """Whether its fourth input is a score of each head that no value goes with: a learned table."""
    rotary: Rotary | None = None
    scale: Positive | None = None
    """The factor of the scores; by default one over the root of a key's features."""
    dropout: Annotated[bool | None, default(False)] = None
    """Whether scores are dropped at random: for time and memory; a run computes all of them."""

    contraction: ClassVar[Contraction] = Contraction.parse(
        "q[b,t,g,r,e] * k[b,s,g,e] * v[b,s,g,d] -> y[b,t,g,r,d]"
    )
    choices: ClassVar[Mapping[str, Choice]] = FrozenDict(**_UNGROUPED_CHOICES, queries=QUERIES)
    trick: ClassVar[str] = "data"
    reads: ClassVar[tuple[int, int]] = (1, 4)
    inner: ClassVar[Axes] = ("b", "t", "s", "g", "r")

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:
        if fused.attention:
            # Backward computes the scores again: three products and two, of two forward. What a
            # mask hides the kernels skip; a soft cap is done on chip.
            seen = self.seen(sizes)
            once = PassKernels(seen, launches=1)
            return once, once._replace(products=seen * 3 / 2), once._replace(launches=0)
        # Two products a pass; softmax, a soft cap as an activation of the scores, the dropout with
        # its mask of a byte, and transpositions.
        drops, caps = bool(self.dropout), self.softcap is not None
        both = PassKernels(Fraction(1), scores=2, output=8, launches=4)
        # Biases and what a shift hides are added to the scores; of biases' error sums are taken.
        masked = bool(self.windows and self.windows.shift)
        biased = bool(self.windows and self.score_input)
        adds = biased + masked
        there = both._replace(
            inner=8 + 10 * drops + 8 * caps + 8 * adds, launches=4 + drops + caps + adds
        )
        back = there._replace(
            inner=12 + 10 * drops + 12 * caps + 4 * biased, launches=4 + drops + caps + biased
        )
        return there, back, both._replace(launches=3)

    def saves(self, *, fused: Fused) -> Saved:
        # Keys are saved with the shared features copied to each head.
        copies = (Intermediate(("b", "s", "g", "m")),) if self.shares_features else ()
        if fused.attention:
            # The log-sum-exp of each row of scores, in single precision.
            rows = Intermediate(tuple(axis for axis in self.inner if axis != "s"), bytes=4)
            return Saved(inputs=True, output=True, intermediates=(rows, *copies))
        # The softmax; with dropout the mask and what it leaves; the tangents of a soft cap.
        drops, caps = bool(self.dropout), self.softcap is not None
        return Saved(
            inputs=True, intermediates=(Intermediate(self.inner, 1 + drops + caps, drops), *copies)
        )

    def pairs(self, tokens: Fraction | int) -> Fraction:
        """Return the number of unmasked scores of the first tokens, per head.

        The diagonal counts half: a mask cuts through it.
        """
        inside = min(Fraction(tokens), Fraction(self.window or tokens))
        return inside * inside / 2 + (tokens - inside) * inside

    def seen(self, sizes: Mapping[str, int]) -> Fraction:
        """Return the share of scores that the mask leaves, for as many keys as queries."""
        tokens = sizes["t"]
        return self.pairs(tokens) / tokens**2 if self.causal else Fraction(1)

    @field_validator("kv_heads")
    @classmethod
    def _default_is_left_out(cls, given: int | None, info: ValidationInfo) -> int | None:
        return None if given == info.data.get("heads") else given

    @property
    def _kv_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def shares_features(self) -> bool:
        """Whether its fourth input is key features that all heads share."""
        return len(self.inputs or ()) == 4 and self.score_input is None

    @property
    def score_input(self) -> TokenMap | None:
        """What its fourth input has for the scores of each head: sinks, or biases; else None."""
        if self.sinks:
            return TokenMap(1, self.heads)
        if self.windows and len(self.inputs or ()) == 4:
            return TokenMap(self.windows.biases, self.heads)
        return None

    @property
    def axes(self) -> Contraction:
        if self.score_input:
            return _WITH_SCORE_INPUT
        return _SHARED_FEATURES if self.shares_features else self.contraction

    @property
    def splits(self) -> Mapping[str, Choice]:
        if self.windows:
            return _WINDOW_CHOICES if self.kv_heads else _UNGROUPED_WINDOW_CHOICES
        return self.choices if self.kv_heads else _UNGROUPED_CHOICES

    def parts(self, maps: LayerMaps) -> tuple[Parts, ...]:
        heads, *queries = super().parts(maps)
        # The features of one key-value head after the other.
        return heads, *(
            replace(
                query,
                runs=tuple(
                    run._replace(scale=run.scale // heads.count, repeats=heads.count)
                    for run in query.runs
                ),
            )
            for query in queries
        )

    def maps(self, *reads: Map) -> LayerMaps:
        if self.window and not self.causal:
            raise self.refuse("window", "needs causal = true")
        if self.windows and (self.causal or self.rotary):
            raise self.refuse("windows", "should be without causal and rotary")
        if len(reads) == 2 or not all(isinstance(read, TokenMap) for read in reads):
            got = " and ".join(map(described, reads))
            more = "biases" if self.windows else "features that all keys share"
            wanted = f"q, k and v, or one fused, or with {more}, of tokens"
            raise self.refuse("inputs", f"should be {wanted}; got {got}")
        if self.heads % self._kv_heads:
            raise self.refuse(
                "kv_heads", f"should divide the {self.heads} heads, got {self._kv_heads}"
            )
        if self.sinks and self.windows:
            raise self.refuse("sinks", "should be without windows")
        query, keys, scores = reads[0], reads[1:], reads[4:]
        if self.score_input:
            keys, scores = reads[1:3], reads[3:]
        parts = self.heads if keys else self.heads + 2 * self._kv_heads
        size, rest = divmod(query.channels, parts)
        if rest or not size:
            what = "heads" if keys else "heads of q, k and v"
            raise self.refuse(
                "heads", f"should divide the {query.channels} features, got {parts} {what}"
            )
        if not keys:
            key = TokenMap(query.tokens, self._kv_heads * size)
            query, keys = TokenMap(query.tokens, self.heads * size), (key, key)
        widths = [key.channels for key in keys]
        lengths = {key.tokens for key in keys}
        # Values may be wider or narrower than keys; their heads are as many.
        shared = sum(widths[2:])
        fits = widths[0] == self._kv_heads * (size - shared) > 0 and not widths[1] % self._kv_heads
        if not fits or len(lengths) > 1:
            beside = f" beside the {shared} that all share," if shared else ""
            raise self.refuse(
                "inputs",
                f"keys and values should have {self._kv_heads} heads of {size - shared}"
                f" features{beside} and as many tokens, got {' and '.join(map(described, keys))}",
            )
        self._check_windows(query.tokens, keys[0].tokens)
        if (of_scores := self.score_input) and scores != (of_scores,):
            got = " and ".join(map(described, reads))
            content = "a score of each head" if self.sinks else "one of each relative position"
            wish = f"q, k, v and {described(of_scores)}, {content}"
            raise self.refuse("inputs", f"should be {wish}; got {got}")
        output = TokenMap(query.tokens, self.heads * (widths[1] // self._kv_heads))
        return LayerMaps(query, output, output, (*keys, *scores))

    def _check_windows(self, tokens: int, length: int) -> None:
        if not self.windows:
            return
        if tokens != length:
            raise self.refuse("windows", f"needs keys of its {tokens} queries, got {length}")
        if problem := self.windows.problem(tokens):
            raise self.refuse("windows", problem)

    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        sizes = {
            "t": maps.output.tokens,
            "g": self._kv_heads,
            "r": self.heads // self._kv_heads,
            "d": maps.output.channels // self.heads,
            # The number of keys that one query sees.
            "s": self.windows.pixels if self.windows else maps.further_inputs[0].tokens,
            "e": maps.input.channels // self.heads,
        }
        if scores := self.score_input:
            return {**sizes, "u": scores.tokens}
        if not self.shares_features:
            return sizes
        shared = maps.further_inputs[2].channels
        return {**sizes, "n": sizes["e"] - shared, "m": shared}

    def macs(self, sizes: Mapping[str, int]) -> int:
        # Q K^T over the e features of a key, then the weighted sum of values of d.
        pairs = sizes["b"] * sizes["t"] * sizes["s"] * sizes["g"] * sizes["r"]
        return pairs * (sizes["e"] + sizes["d"])

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:
        if self.windows:
            raise RefusedError(f"layer {self.name!r}: windows of an image have no small size")
        queries, one = min(self.heads // self._kv_heads, 2), small.parts * SMALL_HEAD
        widths = [queries * one, one, one] if len(reads) > 1 else [(queries + 2) * one]
        if self.shares_features:
            widths = [2 * queries * one, one, one, SMALL_HEAD]
        if self.score_input:
            widths.append(small.parts * queries)
        keys = {"heads": constant(small.parts * queries), "kv_heads": constant(small.parts)}
        for read, width in zip(reads, widths, strict=True):
            small.equate(read.channels, constant(width), self.name)
        if self.window and self.window < maps.output.tokens and reads[0].tokens:
            keys["window"] = constant(-(-small.of(reads[0].tokens) // 2))
        return SmallMap(constant(queries * one), reads[0].tokens), keys
