"""Attention in windows of an image, as Swin has it: windows, shifts, biases and masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from hypar_opt.models.imported import import_
from hypar_opt.workload.operators.attention import ImageWindows
from tests.onnx.graph_writer import kinds, parameters
from tests.onnx.test_image_layers import imported
from tests.onnx.test_refused import refusal
from tests.onnx.with_weights import WIDTH, WeightedGraph

HEADS, ROWS, COLUMNS = 2, 4, 8


class SwinGraph(WeightedGraph):
    """A graph of an image whose channels come last, ``[images, 4, 8, 8]`` behind its patches."""

    def __init__(self, size: tuple[int, int], shift: tuple[int, int] = (0, 0)) -> None:
        super().__init__(("image", ["batch", 3, 2 * ROWS, 2 * COLUMNS]))
        self.windows = ImageWindows(size=size, columns=COLUMNS, shift=shift)
        self.size, self.shift = size, shift
        self.pixels, self.count = size[0] * size[1], ROWS * COLUMNS // (size[0] * size[1])

    def reshaped(self, x: str, *sizes: int) -> str:
        return str(self("Reshape", x, self.value(list(sizes))))

    def rolled(self, x: str, axis: int, by: int) -> str:
        ends = ([by], [2**40]), ([0], [by])
        parts = [self("Slice", x, *map(self.value, (*own, [axis]))) for own in ends]
        return str(self("Concat", *parts, axis=axis))

    def biases(self, index: Any = None) -> str:
        table = self.weight("table", self.windows.biases, HEADS)
        index = self.windows.relative().ravel() if index is None else index
        own = self.reshaped(self("Gather", table, self.value(index)), self.pixels, self.pixels, -1)
        return str(self("Unsqueeze", self("Transpose", own, perm=[2, 0, 1]), self.value([0])))

    def mask(self, hidden: float = -100.0) -> str:
        seen = self.windows.seen(ROWS * COLUMNS)
        return self.value(np.where(seen, np.float32(0), np.float32(hidden))[:, None])

    def attention(self, x: str, *added: str, factor: float = 1.0) -> str:
        """The block's attention of a normed image, of which it is the residual.

        Its scores have a factor behind what is added.
        """
        (height, width), (down, right) = self.size, self.shift
        for axis, by in ((1, down), (2, right)):
            x = self.rolled(x, axis, by) if by else x
        x = self.reshaped(x, -1, ROWS // height, height, COLUMNS // width, width, WIDTH)
        x = self.reshaped(self("Transpose", x, perm=[0, 1, 3, 2, 4, 5]), -1, self.pixels, WIDTH)
        qkv = self.linear(x, "qkv", WIDTH, 3 * WIDTH, bias=True)
        qkv = self.reshaped(qkv, -1, self.pixels, 3, HEADS, WIDTH // HEADS)
        qkv = self("Transpose", qkv, perm=[2, 0, 3, 1, 4])
        q, k, v = (self("Gather", qkv, self.value(n), axis=0) for n in range(3))
        q = self("Mul", q, self.value((WIDTH // HEADS) ** -0.5))
        scores = self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]))
        apart = -1, self.count, HEADS, self.pixels, self.pixels
        for own in added:
            scores = self("Add", self.reshaped(scores, *apart), own)
        scores = self("Mul", scores, self.value(np.float32(factor)))
        scores = self.reshaped(scores, -1, HEADS, self.pixels, self.pixels)
        x = self(
            "Transpose", self("MatMul", self("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3]
        )
        x = self.linear(self.reshaped(x, -1, self.pixels, WIDTH), "proj", WIDTH, WIDTH, bias=True)
        x = self.reshaped(x, -1, ROWS // height, COLUMNS // width, height, width, WIDTH)
        x = self.reshaped(self("Transpose", x, perm=[0, 1, 3, 2, 4, 5]), -1, ROWS, COLUMNS, WIDTH)
        for axis, by in ((1, ROWS - down), (2, COLUMNS - right)):
            x = self.rolled(x, axis, by) if by < (ROWS, COLUMNS)[axis - 1] else x
        return x

    def patches(self) -> str:
        x = self("Conv", "image", self.weight("patch", WIDTH, 3, 2, 2), strides=[2, 2])
        return str(self("Transpose", x, perm=[0, 2, 3, 1]))

    def merged(self, x: str) -> str:
        """Patches of four, as Swin writes them, and a head."""
        parts = []
        for right, down in np.ndindex(2, 2):
            each = ([down, right], [2**40] * 2, [1, 2], [2, 2])
            parts.append(self("Slice", x, *map(self.value, each)))
        x = self.linear(self("Concat", *parts, axis=-1), "merge", 4 * WIDTH, 6)
        x = self("ReduceMean", x, self.value([1, 2]), keepdims=0)
        return self.linear(x, "head", 6, 5)


def swin(size: tuple[int, int], shift: tuple[int, int] = (0, 0), *added: str) -> Any:
    g = SwinGraph(size, shift)
    x = g.patches()
    made = [{"biases": g.biases, "mask": g.mask}[own]() for own in added]
    return g.model(g.merged(g("Add", x, g.attention(g.layer_norm(x, "norm", 1e-5), *made))))


@pytest.mark.parametrize(
    ("size", "shift", "added"),
    [
        ((2, 4), (0, 0), ["biases"]),
        ((4, 4), (0, 2), ["biases", "mask"]),
        ((2, 2), (1, 1), ["mask", "biases"]),
        ((2, 8), (1, 0), ["mask"]),
        ((4, 8), (0, 0), ["biases"]),
    ],
)
def test_windows_compute_their_model(
    size: tuple[int, int], shift: tuple[int, int], added: list[str], tmp_path: Path
) -> None:
    network = imported(tmp_path, swin(size, shift, *added))
    (own,) = (layer for layer in network.layers if layer.kind == "attention")
    windows = ImageWindows(size=size, columns=COLUMNS, shift=shift)
    assert own.windows == windows
    assert (own.score_input is not None) == ("biases" in added)
    assert "pixel_shuffle" in kinds(network)
    table = windows.biases * HEADS if "biases" in added else 0
    assert parameters(network) == 192 + 32 + 48 * 17 + 16 * 17 + 384 + 30 + table


def left_out(folder: Path, model: Any) -> str:
    onnx.save(model, folder / "model.onnx")
    return "; ".join(import_(folder / "model.onnx").not_kept or ())


def test_what_is_added_to_scores_is_decided_by_values(tmp_path: Path) -> None:
    """Biases in another order, no mask of what a shift joins, and a mask that hides little."""
    g = SwinGraph((2, 4))
    index = g.windows.relative().T.ravel()
    model = g.model(g.merged(g.attention(g.patches(), g.biases(index))))
    assert "a bias of attention's scores, 1x2x8x8" in left_out(tmp_path, model)
    g = SwinGraph((2, 4))
    model = g.model(g.merged(g.attention(g.patches(), g.biases(), factor=2.0)))
    assert "Mul 2 of attention's scores" in left_out(tmp_path, model)
    joined = "attention between pixels that a roll makes neighbours"
    assert joined in left_out(tmp_path, swin((2, 4), (1, 2), "biases"))
    g = SwinGraph((2, 4), (1, 2))
    model = g.model(g.merged(g.attention(g.patches(), g.mask(-10.0))))
    assert joined in left_out(tmp_path, model)
    # Numbers of each head are learned, also where they are zeros.
    g = SwinGraph((2, 4), (1, 2))
    zeros = g.value(np.zeros((1, 1, HEADS, 8, 8), np.float32))
    model = g.model(g.merged(g.attention(g.patches(), g("Add", g.mask(), zeros))))
    assert "a bias of attention's scores" in left_out(tmp_path, model)


def test_biases_of_zeros_are_biases(tmp_path: Path) -> None:
    """As they are before training: an import reads no values of what is learned."""
    model = swin((4, 4), (0, 2), "biases", "mask")
    for tensor in model.graph.initializer:
        if tensor.name == "table":
            zeros = np.zeros(tuple(tensor.dims), np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(zeros, "table"))
    imported(tmp_path, model)


def test_an_image_that_windows_do_not_tile_is_refused(tmp_path: Path) -> None:
    g = SwinGraph((2, 4))
    x = g("Pad", g.patches(), g.value([0, 0, 0, 0, 0, 2, 0, 0]))
    assert "an image whose channels come last, as Swin does" in refusal(tmp_path, g.model(x))


def test_a_rolled_image_is_flattened_by_no_layer(tmp_path: Path) -> None:
    g = SwinGraph((2, 4))
    x = g.rolled(g.patches(), 1, 1)
    flat = g.linear(g.reshaped(x, -1, ROWS * COLUMNS * WIDTH), "fc", ROWS * COLUMNS * WIDTH, 5)
    assert "multiplies a rolled feature map by weights" in refusal(tmp_path, g.model(flat))
