"""Random layers: of any kind that can read a given array, small and often awkward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from tests.workload.forward import Array, Layer, UndefinedError, forward

INPUT = "input"

_KINDS = {
    1: ["fc", "norm", "merge", "table", "unflatten", "slice", "sinusoid"],
    2: [
        *("attention", "merge", "tied", "fc", "norm", "table", "global_pool", "flatten"),
        *("unflatten", "slice"),
    ],
    3: [
        *("conv", "pool", "merge", "norm", "shuffle", "global_pool", "flatten", "fc"),
        *("pixel_shuffle", "slice"),
    ],
}
"""What may read an array of so many dimensions; the first is drawn more often than others."""


class LayerDrawing:
    """Layers over arrays that are known by name."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.pooled: dict[str, Array] = {}
        """What each layer wrote, by its full name."""
        self.scope: dict[str, str] = {INPUT: INPUT}
        """Names as a layer outside blocks gives them, and the full names that they mean."""
        self.embeddings: dict[str, Layer] = {}
        self.count = 0

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def yes(self) -> bool:
        return self.draw(st.booleans())

    def of(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(options))

    def name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}{self.count}"

    def step(self, main: str, scope: Mapping[str, str]) -> list[Layer]:
        """Return a layer that reads ``main``, or several that belong together."""
        read = self.pooled[scope[main]]
        kinds = _KINDS[read.ndim]
        kind = self.of([*kinds[:1] * 3, *kinds])
        layer: Layer = {"name": self.name(kind), "kind": kind, "inputs": [main]}
        match kind:
            case "merge":
                return self.merge(main, scope)
            case "sinusoid" if read.size > 1:
                kind = layer["kind"] = "fc"
            case "table" | "tied" if scope is not self.scope:
                kind = layer["kind"] = "fc"
            case "table":
                return self.embedding(main)
            case "tied":
                return self.tied(main)
            case "attention":
                return self.attention(main, scope)
        return [layer | getattr(self, f"_{kind}")(read)]

    def _conv(self, read: Array) -> Layer:
        groups = self.of([g for g in range(1, 5) if len(read) % g == 0])
        keys: Layer = {"filters": groups * self.number(1, 3), "kernel": self.window(3)}
        optional = {
            "stride": self.window(3),
            "padding": self.padding(2),
            "dilation": self.window(2),
            "groups": groups,
            "transposed": self.number(0, 2) == 0,
            "bias": self.yes(),
            "activation": "relu",
        }
        keys |= {key: value for key, value in optional.items() if key == "groups" or self.yes()}
        return keys | (self._pool(read) if self.number(0, 3) == 0 else {})

    def _pool(self, _: Array) -> Layer:
        size = self.window(3)
        least = size if isinstance(size, int) else min(size)
        table = {"kind": self.of(["max", "average"]), "size": size}
        optional = {
            "stride": self.window(4),
            "padding": self.padding(least - 1),
            "rounding": self.of(["down", "up"]),
        }
        return {"pool": table | {key: v for key, v in optional.items() if self.yes()}}

    def window(self, most: int) -> int | list[int]:
        first = self.number(1, most)
        return first if self.yes() else [first, self.number(1, most)]

    def padding(self, most: int) -> int | list[int]:
        count = self.of([1, 2, 4])
        given = [self.number(0, most) for _ in range(count)]
        return given if count > 1 else given[0]

    def _fc(self, _: Array) -> Layer:
        return {"units": self.number(1, 8), "bias": self.yes()}

    def _norm(self, read: Array) -> Layer:
        norm = self.of(["layer", "rms", "batch", "affine"])
        if norm not in ("layer", "rms"):
            return {"norm": norm}
        channels = read.shape[-1] if read.ndim == 2 else len(read)
        counts = [n for n in range(1, 5) if channels % n == 0]
        key = self.of([None, "groups", *["heads"] * (read.ndim == 2)])
        return {"norm": norm, **({key: self.of(counts)} if key else {})}

    def _global_pool(self, read: Array) -> Layer:
        return {"over": self.of(["average", "max", *(["first", "last"] if read.ndim == 2 else [])])}

    def _flatten(self, read: Array) -> Layer:
        return {"to": self.of(["features", *(["tokens"] if read.ndim == 3 else [])])}

    def _unflatten(self, read: Array) -> Layer:
        places = len(read)
        height = self.of([n for n in range(1, places + 1) if places % n == 0])
        widths = [n for n in range(1, places // height + 1) if places // height % n == 0]
        width = places // height if read.ndim == 2 else self.of(widths)
        return {"height": height, "width": width}

    def _pixel_shuffle(self, read: Array) -> Layer:
        depth = self.yes()
        factors = [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2)]
        fitting = [
            [rows, columns]
            for rows, columns in factors
            if not (
                read.shape[1] % rows or read.shape[2] % columns
                if depth
                else len(read) % (rows * columns)
            )
        ]
        keys: Layer = {"to": "depth" if depth else "space", "factor": self.of(fitting)}
        return keys | {"order": self.of(["chw", "hwc", "whc"])}

    def _sinusoid(self, _: Array) -> Layer:
        keys: Layer = {"features": 2 * self.number(1, 3), "base": self.of([1e4, 10.0])}
        return keys | {"scale": self.of([1.0, 3.0]), "first": self.of(["cos", "sin"])}

    def _slice(self, read: Array) -> Layer:
        channels = read.shape[1] if read.ndim == 2 else len(read)
        start = self.number(0, channels - 1)
        size = self.number(1, channels - start)
        return {"size": size} | ({"start": start} if start or self.yes() else {})

    def _shuffle(self, read: Array) -> Layer:
        return {"groups": self.of([g for g in range(1, 5) if len(read) % g == 0])}

    def merge(self, main: str, scope: Mapping[str, str]) -> list[Layer]:
        """Return a sum, product or concatenation with others that fit, as far as there are any."""
        kind, axis = self.of(
            [("add", ""), ("mul", ""), ("concat", "channels"), ("concat", "tokens")]
        )
        layer: Layer = {"name": self.name(kind), "kind": kind} | ({"axis": axis} if axis else {})
        inputs = [main]
        for name in reversed(list(scope)):
            try:
                trial = [self.pooled[scope[one]] for one in (*inputs, name)]
                forward(layer, *trial)
            except UndefinedError:
                continue
            if scope[name] not in {scope[one] for one in inputs} and len(inputs) < 4:
                inputs.insert(self.number(0, len(inputs)), name)
        if len(inputs) == 1:
            return [{"name": self.name("norm"), "kind": "norm", "norm": "rms", "inputs": inputs}]
        return [layer | {"inputs": inputs}]

    def attention(self, main: str, scope: Mapping[str, str]) -> list[Layer]:
        """Return attention and the projections before it, of one sequence or of two."""
        shared = self.number(1, 3)
        heads, size = shared * self.number(1, 3), self.number(1, 3)
        name = self.name("attention")
        layer: Layer = {"name": name, "kind": "attention", "heads": heads}
        layer |= {"kv_heads": shared} if shared < heads or self.yes() else {}
        if self.yes():
            widths = {"qkv": (heads + 2 * shared) * size}
            layer |= {"causal": self.yes()}
        else:
            widths = {"q": heads * size, "k": shared * size, "v": shared * self.number(1, 3)}
        if layer.get("causal") and self.yes():
            layer |= {"window": self.number(1, 5)}
        if self.yes():
            layer |= {"softcap": self.of([0.5, 2.0])}
        sequences = [one for one in scope if self.pooled[scope[one]].ndim == 2]
        other = self.of(sequences)
        projections: list[Layer] = [
            {"name": f"{name}{role}", "kind": "linear", "units": width}
            | {"inputs": [other if role in ("k", "v") else main]}
            for role, width in widths.items()
        ]
        reads = [one["name"] for one in projections]
        norms: list[Layer] = []
        for place, count in ((0, heads), (1, shared)) if len(reads) > 1 else ():
            if self.yes():
                norms.append({"name": f"{reads[place]} norm", "kind": "norm", "norm": "rms"})
                norms[-1] |= {"inputs": [reads[place]], "heads": count}
                reads[place] = norms[-1]["name"]
        return [*projections, *norms, layer | {"inputs": reads}]

    def embedding(self, main: str) -> list[Layer]:
        """Return an embedding of the network's tokens, or a table that fits ``main``, added."""
        read = self.pooled[INPUT]
        name = self.name("embedding")
        layer: Layer = {"name": name, "kind": "embedding"}
        if main == INPUT and read.dtype.kind == "i":
            layer |= {"inputs": [INPUT], "features": self.number(1, 8)}
            # Rows of its own, such as types of tokens: ids must not exceed them.
            layer |= {"vocabulary": int(read.max()) + 1} if self.yes() else {}
            self.embeddings[name] = layer | {"vocabulary": int(read.max()) + 1}
            return [layer]
        to = self.pooled[self.scope[main]]
        rows, features = to.shape if to.ndim == 2 else (1, len(to))
        layer |= {"inputs": [], "vocabulary": rows, "features": features}
        if to.ndim != 2:
            return [layer]
        return [layer, {"name": self.name("add"), "kind": "add", "inputs": [main, name]}]

    def tied(self, main: str) -> list[Layer]:
        """Return a head that shares an embedding's weights, where there is one that fits."""
        width = self.pooled[self.scope[main]].shape[1]
        fit = [name for name, table in self.embeddings.items() if table["features"] == width]
        layer: Layer = {"name": self.name("fc"), "kind": "fc", "inputs": [main], "units": 3}
        if fit:
            owner = self.of(fit)
            layer |= {"units": self.embeddings[owner]["vocabulary"], "tied": owner}
        return [layer]
