"""A network computes what its model does, or says what it omits.

The oracle is onnx's reference evaluator: on random graphs of elementwise operators at each place of
small models, and on random models.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import hypar_opt as ho
from hypar_opt.errors import InputError
from hypar_opt.onnx import imported_model
from hypar_opt.studies.model_weights import with_weights
from tests.onnx.random_elementwise import elementwise
from tests.onnx.random_models import of_images, of_sequences
from tests.onnx.with_weights import WeightedGraph, one_device
from tests.slow import slow_after

WIDTH, TOKENS = 8, 6
Write = Callable[[np.random.Generator], Any]


def _vector(rng: np.random.Generator, *, bias: bool) -> Any:
    g = WeightedGraph(("x", ["batch", WIDTH]))
    x = elementwise(rng, g, g.linear("x", "a", WIDTH, WIDTH, bias=bias), (0, WIDTH))
    return g.model(g.linear(x, "b", WIDTH, 4))


def between_products(rng: np.random.Generator) -> Any:
    return _vector(rng, bias=True)


def before_a_bias(rng: np.random.Generator) -> Any:
    return _vector(rng, bias=False)


def of_the_input(rng: np.random.Generator) -> Any:
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    return g.model(g.linear(elementwise(rng, g, "x", (0, TOKENS, WIDTH)), "a", WIDTH, 4))


def before_the_output(rng: np.random.Generator) -> Any:
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    return g.model(elementwise(rng, g, g.linear("x", "a", WIDTH, WIDTH), (0, TOKENS, WIDTH)))


def in_a_residual_branch(rng: np.random.Generator) -> Any:
    g, shape = WeightedGraph(("x", ["batch", TOKENS, WIDTH])), (0, TOKENS, WIDTH)
    x = g.linear("x", "a", WIDTH, WIDTH)
    y = elementwise(rng, g, g.linear(x, "b", WIDTH, WIDTH), shape)
    if rng.random() < 0.5:
        x = elementwise(rng, g, x, shape)
    return g.model(g.linear(g(str(rng.choice(["Add", "Mul"])), x, y), "c", WIDTH, 4))


def behind_a_norm(rng: np.random.Generator) -> Any:
    g, shape = WeightedGraph(("x", ["batch", TOKENS, WIDTH])), (0, TOKENS, WIDTH)
    x = g.linear("x", "a", WIDTH, WIDTH)
    learned = g.weight("scale", WIDTH), g.weight("shift", WIDTH)
    if rng.random() < 0.5:
        x = g("LayerNormalization", x, *learned, axis=-1)
    else:
        apart = g("Sub", x, g("ReduceMean", x, g.value([-1])))
        variance = g("ReduceMean", g("Mul", apart, apart), g.value([-1]))
        x = g("Div", apart, g("Sqrt", g("Add", variance, g.value(1e-5))))
        x = g("Add", g("Mul", x, learned[0]), learned[1])
    return g.model(g.linear(elementwise(rng, g, x, shape), "b", WIDTH, 4))


def before_a_norm(rng: np.random.Generator) -> Any:
    g, shape = WeightedGraph(("x", ["batch", TOKENS, WIDTH])), (0, TOKENS, WIDTH)
    x = elementwise(rng, g, g.linear("x", "a", WIDTH, WIDTH), shape)
    square = g("ReduceMean", g("Mul", x, x), g.value([-1]))
    x = g("Div", x, g("Sqrt", g("Add", square, g.value(1e-5))))
    return g.model(g.linear(g("Mul", x, g.weight("scale", WIDTH)), "b", WIDTH, 4))


def between_convolutions(rng: np.random.Generator) -> Any:
    g = WeightedGraph(("image", ["batch", 2, 6, 6]))
    x = g("Conv", "image", g.weight("a", 4, 2, 3, 3), g.weight("b", 4))
    x = elementwise(rng, g, x, (0, 4, 4, 4))
    return g.model(g("Conv", x, g.weight("c", 3, 4, 3, 3)))


def around_a_pool(rng: np.random.Generator) -> Any:
    g = WeightedGraph(("image", ["batch", 2, 6, 6]))
    x, size = g("Conv", "image", g.weight("a", 4, 2, 3, 3)), 4
    behind = rng.random() < 0.5
    if not behind:
        x = elementwise(rng, g, x, (0, 4, 4, 4))
    if rng.random() < 0.15:
        x, size = g("Pad", x, g.value([0, 0, 1, 1, 0, 0, 1, 1]), g.value(rng.choice([0.0, 1.0]))), 6
    how: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    if rng.random() < 0.3:
        how, size = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1] * 4}, 2 * size
    op = str(rng.choice(["MaxPool", "AveragePool"]))
    if op == "AveragePool" and rng.random() < 0.5:
        how["count_include_pad"] = 1
    x, size = g(op, x, **how), size // 2
    if behind:
        x = elementwise(rng, g, x, (0, 4, size, size))
    return g.model(g.linear(g("Flatten", x), "b", 4 * size * size, 3))


def behind_a_global_pool(rng: np.random.Generator) -> Any:
    g = WeightedGraph(("image", ["batch", 2, 6, 6]))
    x = elementwise(rng, g, g("Conv", "image", g.weight("a", 4, 2, 3, 3)), (0, 4, 4, 4))
    x = g("GlobalAveragePool", x) if rng.random() < 0.5 else g("ReduceMean", x, g.value([2, 3]))
    x = elementwise(rng, g, g("Reshape", x, g.value([0, 4])), (0, 4))
    return g.model(g.linear(x, "b", 4, 3))


def of_a_view(rng: np.random.Generator) -> Any:
    """Channels as two dimensions, in their order and in another."""
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    x = g("Reshape", g.linear("x", "a", WIDTH, WIDTH), g.value([0, TOKENS, 2, WIDTH // 2]))
    orders = {
        (0, 1, 2, 3): (TOKENS, 2, 4),
        (0, 1, 3, 2): (TOKENS, 4, 2),
        (0, 2, 1, 3): (2, TOKENS, 4),
    }
    order = [*orders][rng.integers(len(orders))]
    x = elementwise(rng, g, g("Transpose", x, perm=order), (0, *orders[order]))
    if rng.random() < 0.7:
        x = g("Transpose", x, perm=order)
    return g.model(g.linear(g("Reshape", x, g.value([0, TOKENS, WIDTH])), "b", WIDTH, 4))


def of_parts(rng: np.random.Generator) -> Any:
    """Halves of a map, each of which has a way of its own, as in a gate."""
    g, half = WeightedGraph(("x", ["batch", TOKENS, WIDTH])), WIDTH // 2
    x = g.linear("x", "a", WIDTH, WIDTH)
    if rng.random() < 0.3:
        x = elementwise(rng, g, x, (0, TOKENS, WIDTH))
    a, b = g("Split", x, g.value([half, half]), outputs=2, axis=-1)
    a = elementwise(rng, g, a, (0, TOKENS, half))
    if rng.random() < 0.3:
        b = elementwise(rng, g, b, (0, TOKENS, half))
    if rng.random() < 0.3:
        return g.model(g.linear(g("Concat", a, b, axis=-1), "b", WIDTH, 4))
    return g.model(g.linear(g(str(rng.choice(["Add", "Mul"])), a, b), "b", half, 4))


def _window(rng: np.random.Generator, g: WeightedGraph, x: str, channels: int) -> str:
    """A convolution or a pool, with a border of its own, and one that Pad adds."""
    if rng.random() < 0.5:
        top, left, bottom, right = (int(size) for size in rng.integers(0, 3, 4))
        value = g.value(np.float32(rng.choice([0.0, 0.0, 1.0, -np.inf])))
        mode = str(rng.choice(["constant", "constant", "edge", "reflect"]))
        pads = g.value([0, 0, top, left, 0, 0, bottom, right])
        x = (
            g("Pad", x, pads, value, mode=mode)
            if mode == "constant"
            else g("Pad", x, pads, mode=mode)
        )
        if rng.random() < 0.3:
            x = g(str(rng.choice(["Relu", "Sigmoid", "Neg"])), x)
    how: dict[str, Any] = {"strides": [int(one) for one in rng.integers(1, 3, 2)]}
    kernel = [int(one) for one in rng.integers(2, 4, 2)]
    op = str(rng.choice(["Conv", "MaxPool", "AveragePool"]))
    if rng.random() < 0.5:
        # Of a largest pool with several widths onnx's reference evaluator has other values.
        sizes = rng.integers(0, 2, 4)
        how["pads"] = [1] * 4 if op == "MaxPool" else [int(one) for one in sizes]
    if op == "Conv":
        if rng.random() < 0.3:
            how["dilations"] = [2, 1]
        groups = int(rng.choice([1, channels]))
        weight = g.weight(f"w{len(g.nodes)}", channels, channels // groups, *kernel)
        return str(g(op, x, weight, group=groups, **how))
    if rng.random() < 0.3 and "pads" not in how:
        how["ceil_mode"] = 1  # with padding, onnx's reference evaluator has another shape
    if op == "AveragePool" and rng.random() < 0.5:
        how["count_include_pad"] = 1
    return str(g(op, x, kernel_shape=kernel, **how))


def of_windows(rng: np.random.Generator) -> Any:
    g = WeightedGraph(("image", ["batch", 2, 12, 12]))
    x = g("Conv", "image", g.weight("a", 4, 2, 3, 3), g.weight("b", 4))
    for _ in range(2):
        if rng.random() < 0.4:
            x = g(str(rng.choice(["Relu", "Tanh", "Abs", "Gelu"])), x)
        x = _window(rng, g, x, 4)
    return g.model(g("ReduceMax", x, g.value([2, 3]), keepdims=0))


PLACES: dict[str, Write] = {
    one.__name__: one
    for one in (
        *(between_products, before_a_bias, of_the_input, before_the_output, in_a_residual_branch),
        *(behind_a_norm, before_a_norm, between_convolutions, around_a_pool, behind_a_global_pool),
        *(of_a_view, of_parts, of_windows, of_sequences, of_images),
    )
}

QUICK, ALL = 12, 1000


CASES = [(place, 0, QUICK) for place in PLACES] + [(place, QUICK, ALL) for place in PLACES]


@pytest.mark.parametrize(("place", "first", "count"), slow_after(len(PLACES), CASES))
def test_a_network_computes_its_model_or_names_what_it_omits(
    place: str, first: int, count: int, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    for seed in range(first, count):
        onnx.save(PLACES[place](np.random.default_rng(seed)), path)
        network, refusal = _imported(path)
        if network is None:
            known = (f"{path}: node ", f"{path}: has no output that a layer writes")
            assert refusal.startswith(known), (seed, refusal)
        elif not network.not_kept:
            with np.errstate(all="ignore"):
                step = with_weights(path, None, network, one_device(network), seed=0)
            assert step.difference < 1e-5, (seed, step.difference)


def _imported(path: Path) -> tuple[ho.Network | None, str]:
    try:
        return imported_model(path).network, ""
    except InputError as error:
        return None, str(error)
