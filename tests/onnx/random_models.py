"""Random models of several layers, which join, pool, slice and turn one another's maps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.onnx.random_elementwise import elementwise
from tests.onnx.with_weights import WeightedGraph

Draw = np.random.Generator
Shape = tuple[int, ...]
Map = tuple[str, Shape]

TOKENS, WIDTH, CHANNELS, SIDE = 6, 8, 4, 8


class _Model:
    """A graph and its maps so far; each step adds one, or none where it fits no map."""

    def __init__(self, rng: Draw, name: str, shape: Shape) -> None:
        self.rng = rng
        self.g = WeightedGraph((name, ["batch", *shape[1:]]))
        self.maps: list[Map] = [(name, shape)]

    def weight(self, *shape: int) -> str:
        return self.g.weight(f"weight_{len(self.g.initialisers)}", *shape)

    def one(self) -> Map:
        """Draw a map, mostly the last one."""
        last = len(self.maps) - 1
        return self.maps[last if self.rng.random() < 0.6 else int(self.rng.integers(last + 1))]

    def pair(self) -> tuple[Map, Map]:
        return self.one(), self.maps[int(self.rng.integers(len(self.maps)))]

    def choice(self, *options: str) -> str:
        return str(self.rng.choice(options))

    def join(self) -> Map | None:
        (x, a), (y, b) = self.pair()
        if len(a) != len(b) or any(m != n and 1 not in (m, n) for m, n in zip(a, b, strict=True)):
            return None
        op = self.choice("Add", "Mul", "Add", "Mul", "Sub", "Max")
        return self.g(op, x, y), tuple(max(sizes) for sizes in zip(a, b, strict=True))

    def activation(self) -> Map:
        x, shape = self.one()
        return self.g(self.choice("Relu", "Sigmoid", "Gelu"), x), shape

    def elementwise(self) -> Map:
        x, shape = self.one()
        return elementwise(self.rng, self.g, x, shape), shape

    def turned(self, x: str, perm: list[int], within: Callable[[str], str]) -> str:
        """Do something in a view of other dimensions."""
        view = within(str(self.g("Transpose", x, perm=perm)))
        return str(self.g("Transpose", view, perm=np.argsort(perm).tolist()))

    def grow(self, steps: list[Callable[[], Map | None]]) -> Map:
        for _ in range(int(self.rng.integers(2, 7))):
            made = steps[int(self.rng.integers(len(steps)))]()
            self.maps += [made] if made else []
        return self.maps[-1]


class _Sequences(_Model):
    def linear(self) -> Map:
        x, shape = self.one()
        out = self.g("MatMul", x, self.weight(shape[-1], WIDTH))
        if self.rng.random() < 0.5:
            out = self.g("Add", out, self.weight(WIDTH))
        return out, (*shape[:-1], WIDTH)

    def norm(self) -> Map:
        x, shape = self.one()
        return self.g("LayerNormalization", x, self.weight(WIDTH), self.weight(WIDTH)), shape

    def token(self) -> Map:
        x, shape = self.one()
        if shape[1] == 1 or self.rng.random() < 0.5:
            return self.g("ReduceMean", x, self.g.value([1])), (0, 1, WIDTH)
        place = self.g.value([int(self.rng.choice([0, TOKENS - 1]))])
        return self.g("Gather", x, place, axis=1), (0, 1, WIDTH)

    def concatenated(self) -> Map | None:
        (x, a), (y, b) = self.pair()
        both = self.g("Concat", x, y, axis=-1) if a == b else None
        return (self.g("MatMul", both, self.weight(2 * WIDTH, WIDTH)), a) if both else None

    def halves(self) -> Map:
        x, shape = self.one()
        half = WIDTH // 2
        a, b = self.g("Split", x, self.g.value([half, half]), outputs=2, axis=-1)
        if self.rng.random() < 0.5:
            x, half = self.g("Concat", b, a, axis=-1), WIDTH
        else:
            x = self.g("Mul", a, b)
        return self.g("MatMul", x, self.weight(half, WIDTH)), shape

    def in_another_view(self) -> Map:
        x, shape = self.one()
        op = self.choice("Relu", "Tanh", "Identity")
        return self.turned(x, [0, 2, 1], lambda view: str(self.g(op, view))), shape

    def table(self) -> Map:
        x, shape = self.one()
        return self.g("Add", x, self.weight(*shape[1:])), shape


def of_sequences(rng: Draw) -> Any:
    m = _Sequences(rng, "x", (0, TOKENS, WIDTH))
    m.maps.append(m.linear())
    steps: list[Callable[[], Map | None]] = [
        *(m.linear, m.linear, m.join, m.join, m.activation, m.norm, m.token, m.concatenated),
        *(m.halves, m.in_another_view, m.table, m.elementwise),
    ]
    x, _ = m.grow(steps)
    return m.g.model(m.g("MatMul", x, m.weight(WIDTH, 5)) if rng.random() < 0.7 else x)


class _Images(_Model):
    def conv(self) -> Map:
        x, shape = self.one()
        side = 1 if shape[2] == 1 else 3
        weights = [self.weight(CHANNELS, CHANNELS, side, side)]
        weights += [self.weight(CHANNELS)] if self.rng.random() < 0.5 else []
        op = "ConvTranspose" if self.rng.random() < 0.2 else "Conv"
        return self.g(op, x, *weights, pads=[side // 2] * 4), shape

    def norm(self) -> Map:
        x, shape = self.one()
        learned = [self.weight(CHANNELS) for _ in range(3)]
        spread = self.g.value(np.ones(CHANNELS, np.float32))
        return self.g("BatchNormalization", x, *learned, spread), shape

    def pool(self) -> Map:
        x, shape = self.one()
        if shape[2] < 4 or self.rng.random() < 0.5:
            return self.g(self.choice("GlobalAveragePool", "GlobalMaxPool"), x), (0, CHANNELS, 1, 1)
        op, side = self.choice("MaxPool", "AveragePool"), shape[2] // 2
        small = self.g(op, x, kernel_shape=[2, 2], strides=[2, 2])
        return small, (0, CHANNELS, side, side)

    def enlarged(self) -> Map | None:
        x, shape = self.one()
        scales = self.g.value(np.array([1, 1, 2, 2], np.float32))
        side = 2 * shape[2]
        return (
            (self.g("Resize", x, "", scales), (0, CHANNELS, side, side)) if 2 < side < 20 else None
        )

    def concatenated(self) -> Map | None:
        (x, a), (y, b) = self.pair()
        both = self.g("Concat", x, y, axis=1) if a == b else None
        return (
            (self.g("Conv", both, self.weight(CHANNELS, 2 * CHANNELS, 1, 1)), a) if both else None
        )

    def shifted(self) -> Map:
        x, shape = self.one()
        bias = self.weight(CHANNELS)
        return self.turned(x, [0, 2, 3, 1], lambda view: str(self.g("Add", view, bias))), shape

    def scaled(self) -> Map:
        x, shape = self.one()
        return self.g("Mul", x, self.weight(CHANNELS, 1, 1)), shape

    def shuffled(self) -> Map:
        x, shape = self.one()
        apart = self.g("Reshape", x, self.g.value([0, 2, CHANNELS // 2, *shape[2:]]))
        mixed = self.g("Transpose", apart, perm=[0, 2, 1, 3, 4])
        return self.g("Reshape", mixed, self.g.value([0, *shape[1:]])), shape


def of_images(rng: Draw) -> Any:
    m = _Images(rng, "image", (0, CHANNELS, SIDE, SIDE))
    m.maps.append(m.conv())
    steps: list[Callable[[], Map | None]] = [
        *(m.conv, m.conv, m.join, m.join, m.activation, m.norm, m.pool, m.enlarged),
        *(m.concatenated, m.shifted, m.scaled, m.shuffled, m.elementwise),
    ]
    x, shape = m.grow(steps)
    if rng.random() < 0.7:
        rows = int(np.prod(shape[1:]))
        x = m.g("Gemm", m.g("Flatten", x), m.weight(5, rows), transB=1)
    return m.g.model(x)
