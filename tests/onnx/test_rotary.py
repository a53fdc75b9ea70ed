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
from hypar_opt.studies.model_weights import with_weights
from hypar_opt.workload.operators.attention import Attention, Rotary
from hypar_opt.workload.operators.embedding import Embedding
from tests.onnx.graph_writer import EXPORTED, write_masks
from tests.onnx.test_numbers import one_device
from tests.onnx.with_weights import HEADS, IDS, SIZE, TOKENS, WIDTH, WORDS, WeightedGraph

Turn = Callable[[WeightedGraph, str], str]


def tables(g: WeightedGraph, features: int, base: float, *, twice: bool) -> tuple[str, str]:
    """Cosines and sines of each token's angles."""
    angles = np.arange(TOKENS)[:, None] * base ** (-np.arange(0, features, 2) / features)
    if twice:
        angles = np.concatenate([angles, angles], -1)
    return g.value(np.cos(angles)), g.value(np.sin(angles))


def part(g: WeightedGraph, x: str, start: int, end: int, step: int = 1) -> str:
    return str(g("Slice", x, *map(g.value, ([start], [end], [3], [step]))))


def halves(g: WeightedGraph, x: str) -> str:
    cos, sin = tables(g, SIZE, 1e4, twice=True)
    turned = g("Concat", g("Neg", part(g, x, 2, 4)), part(g, x, 0, 2), axis=-1)
    return str(g("Add", g("Mul", x, cos), g("Mul", turned, sin)))


def divided(g: WeightedGraph, x: str) -> str:
    """Each half apart, joined in the end, with another base."""
    cos, sin = tables(g, SIZE, 5e5, twice=False)
    a, b = part(g, x, 0, 2), part(g, x, 2, 4)
    first = g("Sub", g("Mul", a, cos), g("Mul", b, sin))
    return str(g("Concat", first, g("Add", g("Mul", b, cos), g("Mul", a, sin)), axis=-1))


def neighbours(g: WeightedGraph, x: str) -> str:
    cos, sin = (g("Unsqueeze", table, g.value([-1])) for table in tables(g, SIZE, 1e4, twice=False))
    pairs = g("Reshape", x, g.value([0, HEADS, TOKENS, 2, 2]))
    a, b = g("Split", pairs, g.value([1, 1]), outputs=2, axis=4)
    first = g("Sub", g("Mul", a, cos), g("Mul", b, sin))
    joined = g("Concat", first, g("Add", g("Mul", b, cos), g("Mul", a, sin)), axis=-1)
    return str(g("Reshape", joined, g.value([0, HEADS, TOKENS, SIZE])))


def stacked(g: WeightedGraph, x: str) -> str:
    """Neighbours, as of GPT-J: a turned copy of the whole map."""
    angles = np.repeat(np.arange(TOKENS)[:, None] * 1e4 ** (-np.arange(2) / 2), 2, axis=-1)
    cos, sin = g.value(np.cos(angles)), g.value(np.sin(angles))
    pair = g("Neg", part(g, x, 1, SIZE, 2)), part(g, x, 0, SIZE, 2)
    apart = (g("Unsqueeze", one, g.value([4])) for one in pair)
    turned = g("Reshape", g("Concat", *apart, axis=-1), g.value([0, HEADS, TOKENS, SIZE]))
    return str(g("Add", g("Mul", x, cos), g("Mul", turned, sin)))


def of_a_part(g: WeightedGraph, x: str) -> str:
    cos, sin = tables(g, 2, 1e4, twice=True)
    first = part(g, x, 0, 2)
    turned = g("Concat", g("Neg", part(g, first, 1, 2)), part(g, first, 0, 1), axis=-1)
    turned = g("Add", g("Mul", first, cos), g("Mul", turned, sin))
    return str(g("Concat", turned, part(g, x, 2, 4), axis=-1))


def by_the_operator(g: WeightedGraph, x: str) -> str:
    cos, sin = tables(g, SIZE, 1e4, twice=False)
    return str(g("RotaryEmbedding", x, cos, sin, g.value(np.arange(TOKENS)[None])))


def backwards(g: WeightedGraph, x: str) -> str:
    """By angles of the other sign, which no key of a network says."""
    cos, sin = tables(g, SIZE, 1e4, twice=True)
    turned = g("Concat", part(g, x, 2, 4), g("Neg", part(g, x, 0, 2)), axis=-1)
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
    step = with_weights(path, None, imported.network, one_device(imported.network), seed=0)
    assert step.difference < 1e-6


def test_tables_in_the_file_of_weights_are_read(tmp_path: Path) -> None:
    """A LLaMA of two blocks as torch 2.13 exports it: without them rotary positions are named."""
    shutil.copy(EXPORTED / "llama-gqa.onnx", tmp_path)
    write_masks(tmp_path, "llama-gqa")
    path = tmp_path / "llama-gqa.onnx"
    (said, *_) = ho.read_network(path).not_kept or ()
    assert said.startswith("rotary positions")
    angles = np.arange(64)[:, None] * 1e4 ** (-np.arange(0, 64, 2) / 64)
    angles = np.concatenate([angles, angles], -1)
    for tensor in onnx.load(path, load_external_data=False).graph.initializer:
        if tensor.name.startswith("unsqueeze"):
            where = {entry.key: entry.value for entry in tensor.external_data}
            # unsqueeze_14 and 18 are cosines, 15 and 19 sines.
            table = np.sin(angles) if int(tensor.name[-2:]) % 2 else np.cos(angles)
            with (tmp_path / where["location"]).open("r+b") as file:
                file.seek(int(where["offset"]))
                file.write(table.astype("<f4").tobytes())
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
    (positions,) = (
        tensor
        for tensor in onnx.load(path, load_external_data=False).graph.initializer
        if tensor.name == "unsqueeze"
    )
    where = {entry.key: entry.value for entry in positions.external_data}
    with (tmp_path / where["location"]).open("r+b") as file:
        file.seek(int(where["offset"]))
        file.write(np.arange(64, dtype="<i8").tobytes())
    network = ho.read_network(path)
    assert network.not_kept is None
    (table,) = (layer for layer in network.layers if layer.name == "transformer.wpe")
    assert isinstance(table, Embedding)
    assert (table.inputs, table.vocabulary, table.tokens) == ((), 1024, 64)
