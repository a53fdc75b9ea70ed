"""Attention as it is written in operators, and what is read of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hypar_opt.onnx import read_model
from tests.onnx.graph_writer import GraphWriter, attributes, kinds, parameters

BATCH, TOKENS, WIDTH = 2, 16, 24
SEQUENCE = ("x", [BATCH, TOKENS, WIDTH])


@pytest.mark.parametrize("causal", [True, False])
def test_attention_has_the_heads_that_reshape_and_transpose_give_it(
    tmp_path: Path, causal: bool
) -> None:
    g = GraphWriter(SEQUENCE)
    q, k, v = (g.heads(g.linear("x", name, WIDTH, WIDTH), BATCH, TOKENS, 4, 6) for name in "qkv")
    # Four heads of six features: no size of this test occurs twice by chance.
    mask = np.triu(np.full((1, 1, TOKENS, TOKENS), -1e9), 1)
    out = g.core(q, k, v, g.value(mask) if causal else None)
    network = g.network(
        tmp_path, g.linear(g.together(out, BATCH, TOKENS, WIDTH), "o", WIDTH, WIDTH)
    )
    assert kinds(network) == ["fc", "fc", "fc", "attention", "fc"]
    expected = {"heads": 4, "causal": True} if causal else {"heads": 4}
    assert attributes(network, "attention") == [expected]


def test_a_mask_by_where_is_causal_too(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    q, k, v = (g.heads(g.linear("x", name, WIDTH, WIDTH), BATCH, TOKENS, 4, 6) for name in "qkv")
    scores = g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))
    seen = g.value(np.tril(np.ones((1, 1, TOKENS, TOKENS), bool)))
    masked = g("Where", seen, scores, g.value(np.float32(-1e9)))
    out = g("MatMul", g("Softmax", masked), v)
    network = g.network(
        tmp_path, g.linear(g.together(out, BATCH, TOKENS, WIDTH), "o", WIDTH, WIDTH)
    )
    assert attributes(network, "attention") == [{"heads": 4, "causal": True}]


def test_queries_keys_and_values_of_one_projection_are_one_input(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    parts = g("Split", g.linear("x", "qkv", WIDTH, 3 * WIDTH), outputs=3, axis=2, num_outputs=3)
    out = g.core(*(g.heads(part, BATCH, TOKENS, 4, 6) for part in parts))
    network = g.network(tmp_path, g.together(out, BATCH, TOKENS, WIDTH))
    assert kinds(network) == ["fc", "attention"]
    assert attributes(network, "fc") == [{"units": 3 * WIDTH}]


def test_a_fused_projection_may_be_cut_by_a_dimension_of_its_own(tmp_path: Path) -> None:
    """As vision transformers do: [batch, tokens, 3, heads, size] to [3, batch, heads, ...]."""
    g = GraphWriter(SEQUENCE)
    qkv = g.linear("x", "qkv", WIDTH, 3 * WIDTH, bias=True)
    apart = g("Reshape", qkv, g.value([BATCH, TOKENS, 3, 4, 6]))
    first = g("Transpose", apart, perm=[2, 0, 3, 1, 4])
    q, k, v = (g("Gather", first, g.value(np.int64(n)), axis=0) for n in range(3))
    network = g.network(tmp_path, g.together(g.core(q, k, v), BATCH, TOKENS, WIDTH))
    assert kinds(network) == ["fc", "attention"]
    assert attributes(network, "attention") == [{"heads": 4}]


@pytest.mark.parametrize("by", ["Expand", "Tile", "Gather"])
def test_key_heads_that_are_repeated_are_shared_by_groups_of_queries(
    tmp_path: Path, by: str
) -> None:
    g = GraphWriter(SEQUENCE)
    q = g.heads(g.linear("x", "q", WIDTH, WIDTH), BATCH, TOKENS, 4, 6)
    shared = []
    for name in "kv":
        one = g.heads(g.linear("x", name, WIDTH, 12), BATCH, TOKENS, 2, 6)
        if by == "Gather":
            shared.append(g("Gather", one, g.value([0, 0, 1, 1]), axis=1))
            continue
        apart = g("Unsqueeze", one, g.value([2]))
        sizes = [BATCH, 2, 2, TOKENS, 6] if by == "Expand" else [1, 1, 2, 1, 1]
        many = g(by, apart, g.value(sizes))
        shared.append(g("Reshape", many, g.value([BATCH, 4, TOKENS, 6])))
    network = g.network(tmp_path, g.together(g.core(q, *shared), BATCH, TOKENS, WIDTH))
    assert attributes(network, "attention") == [{"heads": 4, "kv_heads": 2}]


def test_one_key_head_is_broadcast(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    q = g.heads(g.linear("x", "q", WIDTH, WIDTH), BATCH, TOKENS, 4, 6)
    k, v = (g.heads(g.linear("x", n, WIDTH, 6), BATCH, TOKENS, 1, 6) for n in "kv")
    network = g.network(tmp_path, g.together(g.core(q, k, v), BATCH, TOKENS, WIDTH))
    assert attributes(network, "attention") == [{"heads": 4, "kv_heads": 1}]


@pytest.mark.parametrize("pairs", ["halves", "neighbours", "a part"])
def test_rotary_embeddings_are_elementwise(tmp_path: Path, pairs: str) -> None:
    g = GraphWriter(SEQUENCE)

    def cut(x: str, start: int, end: int, step: int = 1) -> str:
        bounds = (g.value([n]) for n in (start, end, 3, step))
        return str(g("Slice", x, *bounds))

    def rotated(x: str) -> str:
        cos, sin = (g.weight(f"{name}_{x}", 1, 1, TOKENS, 6) for name in ("cos", "sin"))
        if pairs == "halves":
            turned = g("Concat", g("Neg", cut(x, 3, 6)), cut(x, 0, 3), axis=-1)
        elif pairs == "a part":
            small = g.weight(f"part_{x}", 1, 1, TOKENS, 4)
            return str(g("Concat", g("Mul", cut(x, 0, 4), small), cut(x, 4, 6), axis=-1))
        else:
            even, odd = cut(x, 0, 6, 2), cut(x, 1, 6, 2)
            last = g.value([4])
            stacked = g(
                "Concat",
                g("Unsqueeze", g("Neg", odd), last),
                g("Unsqueeze", even, last),
                axis=-1,
            )
            turned = g("Reshape", stacked, g.value([BATCH, 4, TOKENS, 6]))
        return str(g("Add", g("Mul", x, cos), g("Mul", turned, sin)))

    q, k, v = (g.heads(g.linear("x", name, WIDTH, WIDTH), BATCH, TOKENS, 4, 6) for name in "qkv")
    network = g.network(
        tmp_path, g.together(g.core(rotated(q), rotated(k), v), BATCH, TOKENS, WIDTH)
    )
    assert kinds(network) == ["fc", "fc", "fc", "attention"]


def test_attention_by_einsum(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    q, k, v = (
        g("Reshape", g.linear("x", name, WIDTH, WIDTH), g.value([BATCH, TOKENS, 4, 6]))
        for name in "qkv"
    )
    scores = g("Softmax", g("Einsum", q, k, equation="bqhd,bkhd->bhqk"))
    out = g("Einsum", scores, v, equation="bhqk,bkhd->bqhd")
    weights = g.weight("o", 4, 6, WIDTH)
    network = g.network(tmp_path, g("Einsum", out, weights, equation="bqhd,hde->bqe"))
    assert kinds(network) == ["fc", "fc", "fc", "attention", "fc"]
    assert parameters(network) == 4 * WIDTH**2


def test_cross_attention_reads_two_sequences(tmp_path: Path) -> None:
    g = GraphWriter(("x", [BATCH, 5 * TOKENS]), ids=True)
    long = g("Gather", g.weight("table", 100, WIDTH), "x")
    pooled = g("Transpose", long, perm=[0, 2, 1])
    assert pooled
    q = g.heads(g.linear(long, "q", WIDTH, WIDTH), BATCH, 5 * TOKENS, 4, 6)
    k, v = (g.heads(g.linear(long, n, WIDTH, WIDTH), BATCH, 5 * TOKENS, 4, 6) for n in "kv")
    network = g.network(tmp_path, g.together(g.core(q, k, v), BATCH, 5 * TOKENS, WIDTH))
    assert kinds(network) == ["embedding", "fc", "fc", "fc", "attention"]


def test_the_operator_attention_is_read(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    q = g.linear("x", "q", WIDTH, WIDTH)
    k, v = (g.linear("x", name, WIDTH, 12) for name in "kv")
    out = g("Attention", q, k, v, q_num_heads=4, kv_num_heads=2, is_causal=1)
    model = g.model(g.linear(out, "o", WIDTH, 7))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    content, _ = read_model(tmp_path / "model.onnx")
    attention, last = content["layer"][-2:]
    assert (attention["heads"], attention["kv_heads"], attention["causal"]) == (4, 2, True)
    assert last["units"] == 7
