"""Every sequence of three operators on a map: computed as the model computes it, or said not to be.

Views put channels and tokens in another order, which is then that of another map's, of a norm's
scale, of a group's statistics, of a table of positions, or of the output.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from hypar_opt.errors import HyparError, InputError
from hypar_opt.onnx import imported_model
from hypar_opt.studies.model_weights import with_weights
from tests.onnx.with_weights import WeightedGraph, one_device
from tests.slow import slow_after

CHANNELS, SIDE, TOKENS = 4, 4, 4
IMAGE, SEQUENCE = [0, CHANNELS, SIDE, SIDE], [0, TOKENS, CHANNELS]
FIRST = "t0"
"""The output of the first node, which a residual and a gate read again."""

Write = Callable[[WeightedGraph, str], str]


def vector(g: WeightedGraph, *shape: int) -> str:
    return g.weight(f"w{len(g.initialisers)}", CHANNELS, *shape)


def permuted(*order: int, shape: Sequence[int], back: Sequence[int]) -> Write:
    """Return what views a map in a shape, permutes its dimensions, and views it as before."""

    def write(g: WeightedGraph, x: str) -> str:
        view = g("Reshape", x, g.value([*shape]))
        return str(g("Reshape", g("Transpose", view, perm=order), g.value([*back])))

    return write


def group_norm(g: WeightedGraph, x: str) -> str:
    groups = g("Reshape", x, g.value([0, 2, -1]))
    plain = g.value(np.ones(2, np.float32)), g.value(np.zeros(2, np.float32))
    x = g("Reshape", g("InstanceNormalization", groups, *plain), g.value(IMAGE))
    return str(g("Add", g("Mul", x, vector(g, 1, 1)), vector(g, 1, 1)))


def batch_norm(g: WeightedGraph, x: str) -> str:
    mean, variance = (g.value(fill(CHANNELS, np.float32)) for fill in (np.zeros, np.ones))
    return str(g("BatchNormalization", x, vector(g), vector(g), mean, variance))


def layer_norm(g: WeightedGraph, x: str) -> str:
    return str(g("LayerNormalization", x, vector(g), vector(g), axis=-1))


def layer_norm_of_pixels(g: WeightedGraph, x: str) -> str:
    tokens = g("Transpose", g("Reshape", x, g.value([0, CHANNELS, -1])), perm=[0, 2, 1])
    return str(g("Reshape", g("Transpose", layer_norm(g, tokens), perm=[0, 2, 1]), g.value(IMAGE)))


def rms_norm(g: WeightedGraph, x: str) -> str:
    square = g("ReduceMean", g("Mul", x, x), g.value([-1]))
    root = g("Sqrt", g("Add", square, g.value(np.float32(1e-5))))
    return str(g("Mul", g("Div", x, root), vector(g)))


def norm_of_heads(g: WeightedGraph, x: str) -> str:
    heads = g("Reshape", x, g.value([0, TOKENS, 2, CHANNELS // 2]))
    learned = (g.weight(f"w{len(g.initialisers) + n}", CHANNELS // 2) for n in range(2))
    normed = g("LayerNormalization", heads, *learned, axis=-1)
    return str(g("Reshape", normed, g.value(SEQUENCE)))


def attention(g: WeightedGraph, x: str) -> str:
    q, k, v = (
        g.heads(str(g("MatMul", x, vector(g, CHANNELS))), 0, TOKENS, 2, CHANNELS // 2)
        for _ in range(3)
    )
    mixed = g.core(q, k, v, None, size=CHANNELS // 2)
    return str(g.together(mixed, 0, TOKENS, CHANNELS))


def gated(g: WeightedGraph, x: str) -> str:
    both = g("MatMul", x, vector(g, 2 * CHANNELS))
    a, b = g("Split", both, g.value([CHANNELS] * 2), outputs=2, axis=-1)
    return str(g("Mul", g("Sigmoid", a), b))


def halves_of_tokens(g: WeightedGraph, x: str) -> str:
    """The second half of the tokens before the first, as windows are moved."""
    a, b = g("Split", x, g.value([TOKENS // 2] * 2), outputs=2, axis=1)
    return str(g("Concat", b, a, axis=1))


def convolution_of_tokens(g: WeightedGraph, x: str) -> str:
    image = g("Reshape", g("Transpose", x, perm=[0, 2, 1]), g.value([0, CHANNELS, 2, TOKENS // 2]))
    image = g("Conv", image, vector(g, CHANNELS, 1, 1))
    return str(g("Transpose", g("Reshape", image, g.value([0, CHANNELS, -1])), perm=[0, 2, 1]))


ANY: dict[str, Write] = {
    "residual": lambda g, x: str(g("Add", x, FIRST)),
    "gate": lambda g, x: str(g("Mul", x, FIRST)),
    "relu": lambda g, x: str(g("Relu", x)),
}
OF_IMAGES: dict[str, Write] = {
    "shuffle": permuted(0, 2, 1, 3, 4, shape=[0, 2, CHANNELS // 2, SIDE, SIDE], back=IMAGE),
    "scale": lambda g, x: str(g("Mul", x, vector(g, 1, 1))),
    "convolution": lambda g, x: str(g("Conv", x, vector(g, CHANNELS, 1, 1))),
    "instance norm": lambda g, x: str(g("InstanceNormalization", x, vector(g), vector(g))),
    "layer norm": layer_norm_of_pixels,
    "pool": lambda g, x: str(g("MaxPool", x, kernel_shape=[1, 1])),
    **ANY,
    "by channel": lambda g, x: str(g("Conv", x, vector(g, 1, 1, 1), group=CHANNELS)),
    "group norm": group_norm,
    "batch norm": batch_norm,
}
OF_TOKENS: dict[str, Write] = {
    "shuffle": permuted(0, 1, 3, 2, shape=[0, TOKENS, 2, CHANNELS // 2], back=SEQUENCE),
    "shuffled tokens": permuted(0, 2, 1, 3, shape=[0, 2, TOKENS // 2, CHANNELS], back=SEQUENCE),
    "positions": lambda g, x: str(g("Add", x, g.weight(f"w{len(g.initialisers)}", *SEQUENCE[1:]))),
    "linear": lambda g, x: str(g("MatMul", x, vector(g, CHANNELS))),
    "layer norm": layer_norm,
    "transpose": lambda g, x: str(g("Transpose", x, perm=[0, 2, 1])),
    "attention": attention,
    **ANY,
    "scale": lambda g, x: str(g("Mul", x, vector(g))),
    "bias": lambda g, x: str(g("Add", x, vector(g))),
    "gated": gated,
    "halves of tokens": halves_of_tokens,
    "rms norm": rms_norm,
    "norm of heads": norm_of_heads,
    "convolution of tokens": convolution_of_tokens,
}
QUICK = 5


def cases(operators: Mapping[str, Write]) -> list[tuple[str, list[str]]]:
    """Return first operators, each with those that may follow: of a few, and of all."""
    names, every = [*operators][:QUICK], [*operators]
    return [*((one, names) for one in names), *((one, every) for one in every)]


@pytest.mark.parametrize(("first", "others"), slow_after(QUICK, cases(OF_IMAGES)))
def test_operators_on_images(first: str, others: list[str], tmp_path: Path) -> None:
    begin = ["convolution", "convolution", first]
    assert computed_or_said(tmp_path, OF_IMAGES, begin, others, IMAGE[1:])


@pytest.mark.parametrize("first", ["shuffle", "instance norm", "group norm", "batch norm"])
def test_operators_on_the_input(first: str, tmp_path: Path) -> None:
    others = [*OF_IMAGES][:4]
    assert computed_or_said(tmp_path, OF_IMAGES, [first], others, IMAGE[1:])


@pytest.mark.parametrize(("first", "others"), slow_after(QUICK, cases(OF_TOKENS)))
def test_operators_on_tokens(first: str, others: list[str], tmp_path: Path) -> None:
    assert computed_or_said(tmp_path, OF_TOKENS, ["linear", "linear", first], others, SEQUENCE[1:])


def computed_or_said(
    folder: Path,
    operators: Mapping[str, Write],
    begin: list[str],
    others: list[str],
    shape: Sequence[int],
) -> int:
    """Return how many models that begin so, and have two other operators, are computed whole."""
    path, computed = folder / "model.onnx", 0
    for names in itertools.product(*([name] for name in begin), others, others):
        g, x = WeightedGraph(("x", ["batch", *shape])), "x"
        for name in names:
            x = operators[name](g, x)
        onnx.save(g.model(x), path)
        try:
            network = imported_model(path).network
        except InputError:
            continue
        if network.not_kept is None:
            try:
                step = with_weights(path, None, network, one_device(network), seed=0)
            except HyparError as error:
                if "outputs cannot be compared" not in str(error):  # of one that ends in a view
                    raise
                continue
            assert step.difference < 1e-5, names
            computed += 1
    return computed
