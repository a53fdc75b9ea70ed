"""Rotary positions are kept, however they are written, or named; what is kept is what they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hypar_opt as ho
from hypar_opt.onnx import imported_model
from hypar_opt.workload.operators.attention import Attention, Rotary
from hypar_opt.workload.operators.embedding import Embedding
from hypar_opt.workload.operators.norm import Norm
from tests.onnx.graph_writer import EXPORTED, write_masks
from tests.onnx.with_weights import (
    HEADS,
    IDS,
    SIZE,
    TOKENS,
    WIDTH,
    WORDS,
    WeightedGraph,
    assert_computes_its_model,
)

Turn = Callable[[WeightedGraph, str], str]


def halves(g: WeightedGraph, x: str) -> str:
    return g.turned(x)


def divided(g: WeightedGraph, x: str) -> str:
    """Each half apart, joined in the end, with another base."""
    cos, sin = g.rotations(SIZE, 5e5)
    a, b = g.part(x, 0, 2), g.part(x, 2, 4)
    first = g("Sub", g("Mul", a, cos), g("Mul", b, sin))
    return str(g("Concat", first, g("Add", g("Mul", b, cos), g("Mul", a, sin)), axis=-1))


def neighbours(g: WeightedGraph, x: str) -> str:
    cos, sin = (g("Unsqueeze", table, g.value([-1])) for table in g.rotations(SIZE, 1e4))
    pairs = g("Reshape", x, g.value([0, HEADS, TOKENS, 2, 2]))
    a, b = g("Split", pairs, g.value([1, 1]), outputs=2, axis=4)
    first = g("Sub", g("Mul", a, cos), g("Mul", b, sin))
    joined = g("Concat", first, g("Add", g("Mul", b, cos), g("Mul", a, sin)), axis=-1)
    return str(g("Reshape", joined, g.value([0, HEADS, TOKENS, SIZE])))


def stacked(g: WeightedGraph, x: str) -> str:
    """Neighbours, as of GPT-J: a turned copy of the whole map."""
    angles = np.repeat(np.arange(TOKENS)[:, None] * 1e4 ** (-np.arange(2) / 2), 2, axis=-1)
    cos, sin = g.value(np.cos(angles)), g.value(np.sin(angles))
    pair = g("Neg", g.part(x, 1, SIZE, 2)), g.part(x, 0, SIZE, 2)
    apart = (g("Unsqueeze", one, g.value([4])) for one in pair)
    turned = g("Reshape", g("Concat", *apart, axis=-1), g.value([0, HEADS, TOKENS, SIZE]))
    return str(g("Add", g("Mul", x, cos), g("Mul", turned, sin)))


def of_a_part(g: WeightedGraph, x: str) -> str:
    return str(g("Concat", g.turned(g.part(x, 0, 2), 2), g.part(x, 2, 4), axis=-1))


def by_the_operator(g: WeightedGraph, x: str) -> str:
    cos, sin = g.rotations(SIZE, 1e4)
    return str(g("RotaryEmbedding", x, cos, sin, g.value(np.arange(TOKENS)[None])))


def backwards(g: WeightedGraph, x: str) -> str:
    """By angles of the other sign, which no key of a network says."""
    cos, sin = g.rotations(SIZE, 1e4, twice=True)
    turned = g("Concat", g.part(x, 2, 4), g("Neg", g.part(x, 0, 2)), axis=-1)
    return str(g("Add", g("Mul", x, cos), g("Mul", turned, sin)))


def model(turn: Turn) -> Any:
    g = WeightedGraph(IDS, ids=True)
    x = g("Gather", g.weight("words", WORDS, WIDTH), "ids")
    q, k, v = (g.apart(g.linear(x, name, WIDTH, WIDTH), HEADS) for name in "qkv")
    y = g.attended(turn(g, q), turn(g, k), v, causal=True)
    made = g.model(g.linear(y, "head", WIDTH, WORDS))
    del made.opset_import[:]
    made.opset_import.append(helper.make_opsetid("", 23))
    return made


@pytest.mark.parametrize(
    ("turn", "rotary"),
    [
        (halves, {"base": 1e4}),
        (divided, {"base": 5e5}),
        (neighbours, {"base": 1e4, "interleaved": True}),
        (stacked, {"base": 1e4, "interleaved": True}),
        (of_a_part, {"base": 1e4, "features": 2}),
        (by_the_operator, {"base": 1e4}),
        (backwards, None),
    ],
)
def test_rotary_positions_are_kept_or_named(
    turn: Turn, rotary: dict[str, Any] | None, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(model(turn), path)
    imported = imported_model(path)
    (attention,) = (layer for layer in imported.content["layer"] if layer["kind"] == "attention")
    assert attention.get("rotary") == rotary
    if rotary is None:
        assert "rotary positions" in "".join(imported.network.not_kept or ())
        return
    assert imported.network.not_kept is None
    assert_computes_its_model(imported.network, path)


def test_norms_before_rotary_positions_are_kept(tmp_path: Path) -> None:
    """Of all heads together, as in OLMo 2, and of each, as in Qwen3: of rows that are cast, too."""

    def normed(g: WeightedGraph, x: str, name: str, size: int) -> str:
        mean = g("ReduceMean", g("Mul", x, x), g.value([-1]), keepdims=1)
        root = g("Sqrt", g("Add", mean, g.value(np.float32(1e-3))))
        scale = g.weight(f"{name}.weight", size)
        return str(g("Cast", g("Mul", scale, g("Div", x, root)), to=1))

    for of_heads in (False, True):
        g = WeightedGraph(IDS, ids=True)
        x = g("Gather", g.weight("words", WORDS, WIDTH), "ids")
        turned = []
        for name in "qk":
            y = g.linear(x, name, WIDTH, WIDTH)
            y = g.apart(y if of_heads else normed(g, y, f"{name}_norm", WIDTH), HEADS)
            y = normed(g, y, f"{name}_norm", SIZE) if of_heads else y
            turned.append(halves(g, y))
        v = g.apart(g.linear(x, "v", WIDTH, WIDTH), HEADS)
        y = g.attended(turned[0], turned[1], v, causal=True)
        path = tmp_path / "model.onnx"
        onnx.save(g.model(g.linear(y, "head", WIDTH, WORDS)), path)
        network = imported_model(path).network
        assert network.not_kept is None
        norms = [layer.heads for layer in network.layers if isinstance(layer, Norm)]
        assert norms == [HEADS if of_heads else None] * 2
        assert_computes_its_model(network, path)


def write_tensor(path: Path, name: str, values: np.ndarray[Any, Any]) -> None:
    """Write a tensor's values where a model has them: in a file beside it."""
    tensors = onnx.load(path, load_external_data=False).graph.initializer
    (tensor,) = (one for one in tensors if one.name == name)
    where = {entry.key: entry.value for entry in tensor.external_data}
    with (path.parent / where["location"]).open("r+b") as file:
        file.seek(int(where["offset"]))
        file.write(values.tobytes())


def test_tables_in_the_file_of_weights_are_read(tmp_path: Path) -> None:
    """A LLaMA of two blocks as torch 2.13 exports it: without them rotary positions are named."""
    shutil.copy(EXPORTED / "llama-gqa.onnx", tmp_path)
    write_masks(tmp_path, "llama-gqa")
    path = tmp_path / "llama-gqa.onnx"
    (said, *_) = ho.read_network(path).not_kept or ()
    assert said.startswith("rotary positions")
    angles = np.arange(64)[:, None] * 1e4 ** (-np.arange(0, 64, 2) / 64)
    angles = np.concatenate([angles, angles], -1)
    for number in (14, 18):
        write_tensor(path, f"unsqueeze_{number}", np.cos(angles).astype("<f4"))
        write_tensor(path, f"unsqueeze_{number + 1}", np.sin(angles).astype("<f4"))
    network = ho.read_network(path)
    assert network.not_kept is None
    rotary = [layer.rotary for layer in network.layers if isinstance(layer, Attention)]
    assert rotary == [Rotary()] * 2


def test_positions_in_the_file_of_weights_are_read(tmp_path: Path) -> None:
    """Those of a GPT-2, as torch 2.13 exports it: the first rows of its table."""
    shutil.copy(EXPORTED / "gpt2.onnx", tmp_path)
    write_masks(tmp_path, "gpt2")
    path = tmp_path / "gpt2.onnx"
    (said,) = ho.read_network(path).not_kept or ()
    assert said.startswith("positions or types by which a table is read")
    write_tensor(path, "unsqueeze", np.arange(64, dtype="<i8"))
    network = ho.read_network(path)
    assert network.not_kept is None
    (table,) = (layer for layer in network.layers if layer.name == "transformer.wpe")
    assert isinstance(table, Embedding)
    assert (table.inputs, table.vocabulary, table.tokens) == ((), 1024, 64)
