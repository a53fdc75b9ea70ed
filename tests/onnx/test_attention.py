"""Attention written out is what the model computes, or what it is beside is named, or refused.

The oracle is onnx's reference evaluator on the whole model.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from hypar_opt.errors import InputError
from hypar_opt.onnx import imported_model
from hypar_opt.onnx.weights import complete_model, weights_of
from hypar_opt.studies.model_weights import read_weights, with_weights
from hypar_opt.workload.operators.attention import Attention
from hypar_opt.workload.operators.elementwise import Mul, Output
from hypar_opt.workload.operators.norm import Norm
from tests.onnx.attention_graphs import PLACES, Between, Way, attention, ways
from tests.onnx.random_elementwise import elementwise
from tests.onnx.with_weights import (
    HEADS,
    IDS,
    SIZE,
    TOKENS,
    WIDTH,
    WeightedGraph,
    assert_computes_its_model,
    one_device,
)
from tests.slow import slow_after, slow_off_diagonal

WAYS = sorted(ways(), key=lambda way: not way.causal)
FIRST = [way for way in WAYS if way.causal][::3]


@pytest.mark.parametrize(
    ["way"],  # noqa: PT006 - a way is a tuple itself
    slow_after(len(FIRST), [(way,) for way in dict.fromkeys([*FIRST, *WAYS])]),
    ids=lambda way: "-".join(map(str, way)),
)
def test_heads_in_any_order_are_those_of_the_model(way: Way, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(attention(way), path)
    network = imported_model(path).network
    assert network.not_kept is None
    (layer,) = (layer for layer in network.layers if isinstance(layer, Attention))
    assert (layer.heads, layer.kv_heads or layer.heads) == (4, way.kv_heads)
    assert_computes_its_model(network, path)


def said_of(model: Any, path: Path) -> str | tuple[str, ...]:
    """Return why a model is refused, or what is not kept; fail where it differs and is neither."""
    onnx.save(model, path)
    try:
        network = imported_model(path).network
        step = with_weights(path, None, network, one_device(network), seed=0)
    except InputError as error:
        return str(error)
    assert network.not_kept or step.difference <= 1e-5, step.difference
    return network.not_kept or ()


@pytest.mark.parametrize("projected", ["separate", "parts", "heads", "groups"])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_norms_of_heads_are_kept_where_heads_are_a_range_of_channels(
    projected: str, kv_heads: int, tmp_path: Path
) -> None:
    """In any order of whole heads; of those that lie otherwise what is not kept is named."""
    for copied in ("broadcast", "repeated", "tiled"):
        way = Way(kv_heads=kv_heads, projected=projected, copied=copied, rotary=True, causal=True)
        model = attention(way, dict.fromkeys(("q", "k"), rms_norm_scaled))
        said = said_of(model, tmp_path / "model.onnx")
        assert not said or projected in ("heads", "groups")
        layers = imported_model(tmp_path / "model.onnx").network.layers
        norms = [layer for layer in layers if isinstance(layer, Norm)]
        kept = [(4, 1e-6), (kv_heads, 1e-6)]
        assert [(layer.heads, layer.epsilon) for layer in norms] == ([] if said else kept)


@pytest.mark.parametrize("seed", slow_after(20, range(1000)))
def test_what_lies_between_is_kept_or_named(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    place = PLACES[seed % len(PLACES)]
    way = ways()[rng.integers(len(ways()))]

    def between(g: WeightedGraph, x: str, shape: list[Any]) -> str:
        return elementwise(rng, g, x, shape)

    said = said_of(attention(way, {place: between}), tmp_path / "model.onnx")
    assert not isinstance(said, str) or ("node '" in said and "\n" not in said)


def on(place: str, write: Between, way: Way = Way()) -> Any:  # noqa: B008 - immutable
    """Return a model with something at one place."""
    return attention(way, {place: write})


def by(op: str, *numbers: float, **attributes: Any) -> Between:
    """Write an operator with constants of one number each."""

    def write(g: WeightedGraph, x: str, _: list[Any]) -> str:
        return str(g(op, x, *(g.value(np.float32(number)) for number in numbers), **attributes))

    return write


def softcap(g: WeightedGraph, x: str, shape: list[Any]) -> str:
    return by("Mul", 2.0)(g, g("Tanh", by("Div", 2.0)(g, x, shape)), shape)


def then(first: Between, second: Between) -> Between:
    """Write what one writes, and behind it the other."""

    def write(g: WeightedGraph, x: str, shape: list[Any]) -> str:
        return second(g, first(g, x, shape), shape)

    return write


def unit(g: WeightedGraph, x: str, _: list[Any]) -> str:
    """Queries or keys of length 1, as of cosine attention."""
    return str(g("Div", x, g("ReduceL2", x, g.value([-1]), keepdims=1)))


def weakly_masked(g: WeightedGraph, x: str, shape: list[Any]) -> str:
    """A mask that is scaled with the scores, until it hides nothing."""
    past = np.triu(np.full((TOKENS, TOKENS), -1e3), 1)
    return by("Mul", 1e-3)(g, biased(past)(g, x, shape), shape)


def rms_norm(g: WeightedGraph, x: str, shape: list[Any], scale: str = "") -> str:
    mean = g("ReduceMean", g("Mul", x, x), g.value([-1]), keepdims=1)
    root = g("Sqrt", by("Add", 1e-6)(g, mean, shape))
    out = str(g("Div", x, root))
    return str(g("Mul", out, scale)) if scale else out


def rms_norm_scaled(g: WeightedGraph, x: str, shape: list[Any]) -> str:
    return rms_norm(g, x, shape, g.weight("q_norm.weight", SIZE))


def layer_norm(g: WeightedGraph, x: str, shape: list[Any]) -> str:
    """A layer norm of each head, written out, with a scale and a shift."""
    apart = g("Sub", x, g("ReduceMean", x, g.value([-1]), keepdims=1))
    mean = g("ReduceMean", g("Mul", apart, apart), g.value([-1]), keepdims=1)
    out = g("Div", apart, g("Sqrt", by("Add", 1e-3)(g, mean, shape)))
    out = g("Mul", out, g.weight("q_norm.weight", SIZE))
    return str(g("Add", out, g.weight("q_norm.bias", SIZE)))


def normed_by(op: str, **attributes: Any) -> Between:
    """Write an operator that is a norm of each head."""

    def write(g: WeightedGraph, x: str, _: list[Any]) -> str:
        learned = [g.weight(f"norm.{name}", SIZE) for name in ("weight", "bias")]
        count = 2 if op == "LayerNormalization" else 1
        return str(g(op, x, *learned[:count], axis=-1, epsilon=1e-4, **attributes))

    return write


def biased(values: np.ndarray[Any, Any]) -> Between:
    def write(g: WeightedGraph, x: str, _: list[Any]) -> str:
        g.initialisers.append(onnx.numpy_helper.from_array(values.astype(np.float32), "table"))
        return str(g("Add", x, "table"))

    return write


SLOPES = (
    -np.abs(np.arange(TOKENS)[:, None] - np.arange(TOKENS)) * 0.5 ** np.arange(4)[:, None, None]
)
"""What ALiBi adds to the scores of 4 heads."""


@pytest.mark.parametrize(
    ("place", "write", "said"),
    [
        ("scores", then(by("Add", 0.3), softcap), "Tanh of attention's scores"),
        ("scores", then(softcap, softcap), "Tanh of attention's scores"),
        ("scores", then(biased(np.full((6, 6), 2.0)), softcap), "Tanh of attention's scores"),
        ("scores", then(by("Tanh"), by("Mul", -2.0)), "a bound of attention's scores, -2"),
        *(("scores", by(op), f"{op} of attention's scores") for op in ("Relu", "Abs", "Sigmoid")),
        ("scores", by("Clip", -0.5, 0.5), "Clip -0.5 0.5 of attention's scores"),
        ("scores", by("LogSoftmax", axis=-1), "LogSoftmax of attention's scores"),
        ("scores", by("Neg"), "Neg of attention's scores"),
        ("scores", biased(np.random.default_rng(1).normal(size=(4, 6, 6))), "scores, 4x6x6"),
        ("scores", biased(np.zeros((4, 6, 6))), "scores, 4x6x6"),  # before it is trained
        ("scores", biased(SLOPES), "a bias of attention's scores, 4x6x6"),
        ("scores", biased(SLOPES + np.triu(np.full((6, 6), -1e9), 1)), "scores, 4x6x6"),
        ("scores", weakly_masked, "attention's mask: it lowers later scores by 1 alone"),
        ("probabilities", by("Mul", 2.0), "Mul 2 of attention's probabilities"),
        ("probabilities", by("Add", 0.1), "Add 0.1 of attention's probabilities"),
        ("probabilities", by("Softmax", axis=-1), "Softmax of attention's probabilities"),
        ("q", rms_norm, "a norm without a scale is counted with one"),
        ("q", unit, "a norm without a scale is counted with one"),
    ],
)
@pytest.mark.parametrize("rotary", [False, True])
def test_what_attention_does_not_do_is_named(
    place: str, write: Between, said: str, rotary: bool, tmp_path: Path
) -> None:
    phrases = said_of(on(place, write, Way(rotary=rotary)), tmp_path / "model.onnx")
    assert not isinstance(phrases, str)
    assert any(said in phrase for phrase in phrases)
    assert not any("rotary positions" in phrase for phrase in phrases)


KEPT: list[tuple[str, Between]] = [
    *((place, by("Mul", 0.7)) for place in ("q", "k", "scores")),
    *((place, by(op)) for place in PLACES for op in ("Identity", "Dropout")),
    *((place, by("Cast", to=1)) for place in PLACES),
    *((place, by("Div", 3.0)) for place in ("q", "k", "scores")),
    ("q", by("Relu")),
    ("v", by("Relu")),
    ("scores", by("Add", 3.0)),
    *((one, rms_norm_scaled) for one in ("q", "k", "v", "output")),
    *((one, layer_norm) for one in ("q", "k", "v", "output")),
    *((one, normed_by("LayerNormalization")) for one in ("q", "k", "v", "output")),
    ("q", then(rms_norm_scaled, by("Mul", 0.7))),
    ("q", then(rms_norm_scaled, by("Relu"))),
    ("scores", softcap),
    ("scores", by("Tanh")),
    ("scores", then(by("Mul", 3.0), then(softcap, by("Mul", 0.5)))),
    ("scores", then(softcap, by("Add", 3.0))),
    ("probabilities", by("Mul", 1.0)),
    ("probabilities", by("Add", 0.0)),
    ("scores", biased(np.full((6, 6), 2.0))),
    # A table of positions, in the dimensions of the heads.
    ("output", biased(np.random.default_rng(2).normal(size=(1, 4, 6, 4)))),
]
"""Places, and what attention does there itself."""


@pytest.mark.parametrize(("at", "rotary"), slow_off_diagonal(KEPT, [False, True]))
def test_what_attention_does_itself_is_kept(
    at: tuple[str, Between], rotary: bool, tmp_path: Path
) -> None:
    place, write = at
    if rotary and place == "q":
        place = "k"
    way = Way(causal=True, rotary=rotary, kv_heads=2, copied="repeated")
    assert said_of(on(place, write, way), tmp_path / "model.onnx") == ()


def test_a_factor_of_rotary_positions_is_in_the_scale(tmp_path: Path) -> None:
    """As where a context is made longer: cosines and sines times a number."""
    model = attention(Way(rotary=True))
    tables = [one for one in model.graph.initializer if list(one.dims) == [TOKENS, SIZE]]
    for table in tables[:2]:  # of the queries
        values = onnx.numpy_helper.to_array(table) * np.float32(1.5)
        table.CopyFrom(onnx.numpy_helper.from_array(values, table.name))
    assert said_of(model, tmp_path / "model.onnx") == ()
    network = imported_model(tmp_path / "model.onnx").network
    (layer,) = (layer for layer in network.layers if isinstance(layer, Attention))
    assert layer.scale == pytest.approx(1.5 * 0.4, rel=1e-6)


def test_a_rotation_of_each_head_by_other_angles_is_named(tmp_path: Path) -> None:
    model = attention(Way(rotary=True))
    for table in model.graph.initializer:
        if list(table.dims) == [TOKENS, SIZE]:
            values = onnx.numpy_helper.to_array(table)
            by_head = np.stack([values, values[::-1], values, values])
            table.CopyFrom(onnx.numpy_helper.from_array(by_head, table.name))
    phrases = said_of(model, tmp_path / "model.onnx")
    assert any("rotary positions" in phrase for phrase in phrases)


def test_scores_without_a_softmax_are_named(tmp_path: Path) -> None:
    model = attention(Way())
    (node,) = (node for node in model.graph.node if node.op_type == "Softmax")
    node.op_type = "Identity"
    del node.attribute[:]
    phrases = said_of(model, tmp_path / "model.onnx")
    assert len(phrases) == 1
    assert phrases[0].startswith("attention's scores without a softmax")


def test_attention_over_pixels_is_read_with_tokens_last(tmp_path: Path) -> None:
    """As YOLO11 writes it: values times transposed shares, parts of each head side by side."""
    g = WeightedGraph(("x", ["batch", 8, 3, 3]))
    joint = g("Conv", "x", g.weight("qkv.weight", 24, 8, 1, 1), g.weight("qkv.bias", 24))
    heads = g("Reshape", joint, g.value([0, 2, 12, 9]))
    q, k, v = g("Split", heads, g.value([4, 4, 4]), outputs=3, axis=2)
    scores = g("MatMul", g("Transpose", q, perm=[0, 1, 3, 2]), k)
    shares = g("Softmax", g("Mul", scores, g.value(np.float32(0.3))), axis=-1)
    mixed = g("MatMul", v, g("Transpose", shares, perm=[0, 1, 3, 2]))
    rows = g("Transpose", g("Reshape", mixed, g.value([0, 8, 9])), perm=[0, 2, 1])
    model = g.model(g.linear(rows, "o", 8, 12))
    assert said_of(model, tmp_path / "model.onnx") == ()


def test_a_refusal_says_what_is_not_supported(tmp_path: Path) -> None:
    g = WeightedGraph(("x", ["batch", 8, 3, 3]))
    q, k = (g("Conv", "x", g.weight(name, 8, 8, 1, 1)) for name in "qk")
    scores = g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))
    out = g.model(g("MatMul", g("Softmax", scores), q))
    assert "over the rows or columns of an image" in said_of(out, tmp_path / "model.onnx")
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    q, k = (g.linear("x", name, WIDTH, WIDTH) for name in "qk")
    out = g.model(g("MatMul", g("Transpose", q, perm=[0, 2, 1]), k))
    said = said_of(out, tmp_path / "model.onnx")
    assert "node 'MatMul_3' (MatMul): multiplies two feature maps over tokens" in said


def test_keys_may_be_values(tmp_path: Path) -> None:
    """A network's layer reads different ones: one of them is a view of the other."""
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    q, k = (g.apart(g.linear("x", name, WIDTH, WIDTH), 4) for name in "qk")
    out = g.model(g.together(g.core(q, k, k, size=SIZE), 0, TOKENS, WIDTH))
    assert said_of(out, tmp_path / "model.onnx") == ()


def test_weights_in_no_order_are_refused_by_name(tmp_path: Path) -> None:
    """Rows that lie beyond a matrix, or twice in one place, are no order of its rows."""
    onnx.save(attention(Way(kv_heads=2, projected="groups")), tmp_path / "model.onnx")
    for stride in (64, 0):
        imported = imported_model(tmp_path / "model.onnx")
        (layer,) = (one for one in imported.layers if one.name == "o")
        first, *rest = layer.weights.rows
        layer.weights = replace(layer.weights, rows=(first._replace(stride=stride), *rest))
        with pytest.raises(InputError, match=r"layer 'o'.*not elements of the file"):
            weights_of(imported, complete_model(tmp_path / "model.onnx"))


def test_a_fused_product_is_that_of_its_nodes(tmp_path: Path) -> None:
    """As onnxruntime writes it: scores of transposed keys, with their scale."""
    read = []
    for fused in (True, False):
        g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
        q, k, v = (g.apart(g.linear("x", name, WIDTH, WIDTH), 4) for name in "qkv")
        if fused:
            scores = g("FusedMatMul", q, k, transB=1, alpha=0.3, domain="com.microsoft")
        else:
            scores = by("Mul", 0.3)(g, g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), [])
        mixed = g("MatMul", g("Softmax", scores, axis=-1), v)
        model = g.model(g.linear(g.together(mixed, 0, TOKENS, WIDTH), "o", WIDTH, 12))
        onnx.save(model, tmp_path / "model.onnx")
        read.append(imported_model(tmp_path / "model.onnx").content["layer"])
    assert read[0] == read[1]
    assert read[0][3]["scale"] == 0.3


@pytest.mark.parametrize("shared", [True, False])
def test_an_order_of_heads_that_no_weights_can_have_is_named(shared: bool, tmp_path: Path) -> None:
    """Of the input itself, and of weights that a layer with another order has, too."""
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    x = g("MatMul", "x", g.weight("w", WIDTH, WIDTH)) if shared else "x"
    other = g("MatMul", "x", "w" if shared else g.weight("v", WIDTH, WIDTH))
    inner = g("Reshape", x, g.value([0, TOKENS, SIZE, 4]))
    q = g("Transpose", inner, perm=[0, 3, 1, 2])
    k, v = g.apart(g.linear("x", "k", WIDTH, WIDTH), 4), g.apart(other, 4)
    mixed = g.core(q, k, v, size=SIZE)
    model = g.model(g.linear(g.together(mixed, 0, TOKENS, WIDTH), "o", WIDTH, 12))
    phrases = said_of(model, tmp_path / "model.onnx")
    assert any("the order of heads among the channels" in phrase for phrase in phrases)


def test_a_model_that_the_evaluator_cannot_run_is_refused_in_a_line(tmp_path: Path) -> None:
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    out = g("QuickGelu", g.linear("x", "up", WIDTH, WIDTH), domain="com.microsoft", alpha=1.0)
    said = said_of(g.model(g.linear(out, "down", WIDTH, 12)), tmp_path / "model.onnx")
    assert "onnx's reference evaluator cannot run it" in said


STATED: list[tuple[dict[str, Any], Any, str]] = [
    ({}, None, ""),
    ({"is_causal": 1, "scale": 0.7}, None, ""),
    ({}, np.tri(TOKENS, dtype=bool), ""),
    ({}, np.triu(np.full((TOKENS, TOKENS), -np.inf, np.float32), 1), ""),
    ({"softcap": 0.2}, None, ""),
    ({"softcap": 0.2, "is_causal": 1}, None, ""),
    ({}, np.tri(TOKENS, dtype=bool) & ~np.tri(TOKENS, k=-2, dtype=bool), ""),
    ({}, np.eye(TOKENS, dtype=np.float32), "a bias of attention's scores, 6x6"),
    ({}, np.tri(TOKENS, k=1, dtype=bool), "attention's mask"),
    ({"left_window_size": 2, "right_window_size": 0}, None, ""),
    ({"left_window_size": 0, "is_causal": 1}, None, ""),
    ({"left_window_size": 9, "is_causal": 1}, None, ""),
    (
        {"left_window_size": 3, "is_causal": 1},
        np.tri(TOKENS, dtype=bool) & ~np.tri(TOKENS, k=-2, dtype=bool),
        "",
    ),
    ({"left_window_size": 2}, None, "a window of tokens where later ones are seen"),
    ({"right_window_size": 1}, None, "a window of later tokens (right_window_size)"),
]
"""What the operator is told, its mask, and what of it is not kept."""


@pytest.mark.parametrize(
    ("told", "kv_heads", "written"),
    slow_off_diagonal(STATED, [4, 2], ["together", "apart", "inner"]),
)
def test_the_operator_of_attention_is_the_models(
    told: tuple[dict[str, Any], Any, str], kv_heads: int, written: str, tmp_path: Path
) -> None:
    stated, mask, said = told
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    counts = [4, kv_heads, kv_heads]
    parts = [g.linear("x", name, WIDTH, n * SIZE) for name, n in zip("qkv", counts, strict=True)]
    if written == "apart":
        parts = [g.apart(part, n) for part, n in zip(parts, counts, strict=True)]
    elif written == "inner":
        apart = [
            g("Reshape", part, g.value([0, TOKENS, SIZE, n]))
            for part, n in zip(parts, counts, strict=True)
        ]
        parts = [str(g("Transpose", part, perm=[0, 3, 1, 2])) for part in apart]
    heads = {"q_num_heads": 4, "kv_num_heads": kv_heads} if written == "together" else {}
    masks = [] if mask is None else [g.value(mask)]
    out = g("Attention", *parts, *masks, **heads, **stated)
    out = out if written == "together" else g.together(out, 0, TOKENS, WIDTH)
    model = g.model(g.linear(out, "o", WIDTH, 12))
    windows = any("window" in key for key in stated)
    model.opset_import[0].version = 25 if windows else 23
    if windows and onnx.defs.onnx_opset_version() < 25:
        pytest.skip("this onnx has no windows of attention")
    phrases = said_of(model, tmp_path / "model.onnx")
    assert not isinstance(phrases, str), phrases
    assert bool(phrases) == bool(said)
    assert said in "".join(phrases)


@pytest.mark.parametrize("ends", ["logits", "a softmax", "a regression"])
def test_a_soft_cap_of_logits_is_kept(ends: str, tmp_path: Path) -> None:
    """As Gemma 2 ends: the loss is of what the cap leaves."""
    words = 24
    of_ids = ends != "a regression"
    g = WeightedGraph(IDS if of_ids else ("x", ["batch", TOKENS, WIDTH]), ids=of_ids)
    x = "x" if ends == "a regression" else g("Gather", g.weight("words", words, WIDTH), "ids")
    out = softcap(g, g.linear(x, "head", WIDTH, words), [])
    model = g.model(g("Softmax", out, axis=-1) if ends == "a softmax" else out)
    assert said_of(model, tmp_path / "model.onnx") == ()
    last = imported_model(tmp_path / "model.onnx").network.layers[-1]
    loss = "none" if ends == "a regression" else "softmax"
    assert isinstance(last, Output)
    assert (last.loss, last.softcap) == (loss, 2.0)
    if ends == "a regression":
        stated = imported_model(tmp_path / "model.onnx", loss="cross-entropy").network.layers[-1]
        assert isinstance(stated, Output)
        assert (stated.loss, stated.softcap) == ("softmax", 2.0)


@pytest.mark.parametrize("first", [True, False])
def test_a_number_for_each_token_gates_its_features(first: bool, tmp_path: Path) -> None:
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    parts = [g.linear("x", "up", WIDTH, WIDTH), g("Sigmoid", g.linear("x", "gate", WIDTH, 1))]
    out = g("Mul", *(parts if first else parts[::-1]))
    path = tmp_path / "model.onnx"
    assert said_of(g.model(g.linear(out, "o", WIDTH, 12)), path) == ()
    (gated,) = (layer for layer in imported_model(path).network.layers if isinstance(layer, Mul))
    assert (gated.gate, gated.inputs) == (True, ("up", "gate"))


@pytest.mark.parametrize("window", [-1, 4])
def test_sinks_and_the_window_of_grouped_queries_are_kept(window: int, tmp_path: Path) -> None:
    """As ONNX Runtime's own operator has them, which onnx's evaluator cannot run."""
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    counts = zip("qkv", (4, 2, 2), strict=True)
    parts = [g.linear("x", name, WIDTH, n * SIZE) for name, n in counts]
    heads = {"num_heads": 4, "kv_num_heads": 2, "local_window_size": window}
    reads = [*parts, *[""] * 8, g.weight("sinks", 4)]
    out = g("GroupQueryAttention", *reads, domain="com.microsoft", smooth_softmax=1, **heads)
    path = tmp_path / "model.onnx"
    path.write_bytes(g.model(g.linear(out, "o", WIDTH, 12)).SerializeToString())
    imported = imported_model(path)
    layers = {layer.kind: layer for layer in imported.network.layers}
    attention, table = layers["attention"], layers["embedding"]
    assert isinstance(attention, Attention)
    assert attention.inputs is not None
    assert (attention.sinks, attention.inputs[3]) == (True, table.name)
    assert attention.window == (window if window > 0 else None)
    assert read_weights(path).weights[table.name].shape == (1, 4)
    assert any("smooth_softmax" in phrase for phrase in imported.content["not_kept"])


def test_sinks_are_one_for_each_head(tmp_path: Path) -> None:
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    reads = [
        *(g.linear("x", name, WIDTH, WIDTH) for name in "qkv"),
        *[""] * 8,
        g.weight("sinks", 3),
    ]
    out = g("GroupQueryAttention", *reads, domain="com.microsoft", num_heads=4, kv_num_heads=4)
    path = tmp_path / "model.onnx"
    path.write_bytes(g.model(out).SerializeToString())
    with pytest.raises(InputError, match="should have 4 sinks that are learned, one for each head"):
        imported_model(path)


def test_a_learned_query_pools_tokens(tmp_path: Path) -> None:
    """A table of one row, repeated for each image and projected as queries are (SigLIP's head)."""
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    images = g("Slice", g("Shape", "x"), g.value([0]), g.value([1]))
    repeats = g("Concat", images, g.value([1, 1]), axis=0)
    probe = g("Tile", g.weight("head.probe", 1, 1, WIDTH), repeats)
    q, k, v = (
        g.apart(g.linear(of, f"head.{name}", WIDTH, WIDTH, bias=True), HEADS, tokens)
        for of, name, tokens in ((probe, "q", 1), ("x", "k", TOKENS), ("x", "v", TOKENS))
    )
    pooled = g.together(g.core(q, k, v, size=SIZE), 0, 1, WIDTH)
    path = tmp_path / "model.onnx"
    onnx.save(g.model(g.linear(pooled, "proj", WIDTH, 5)), path)
    network = imported_model(path).network
    assert not network.not_kept
    assert_computes_its_model(network, path)
    (table,) = (layer for layer in network.layers if layer.kind == "embedding")
    assert (table.name, table.inputs) == ("head.probe", ())


def test_pixels_attend_by_convolutions(tmp_path: Path) -> None:
    """The scale of the queries comes before they are seen as tokens."""
    g = WeightedGraph(("image", ["batch", 3, 2, 3]))
    q, k, v = (g("Conv", "image", g.weight(name, SIZE, 3, 1, 1)) for name in "qkv")
    q = g("Mul", q, g.value(np.float32(0.25)))
    q, k, v = (g("Reshape", one, g.value([0, SIZE, 6])) for one in (q, k, v))
    shares = g("Softmax", g("MatMul", g("Transpose", q, perm=[0, 2, 1]), k), axis=-1)
    out = g("MatMul", shares, g("Transpose", v, perm=[0, 2, 1]))
    assert said_of(g.model(g.linear(out, "o", SIZE, 5)), tmp_path / "model.onnx") == ()


def test_the_mean_of_tokens_pools_them(tmp_path: Path) -> None:
    """It is joined to the tokens, and is their query (CLIP's attention pooling)."""
    g = WeightedGraph(("x", ["batch", TOKENS, WIDTH]))
    x = g.linear("x", "stem", WIDTH, WIDTH)
    mean = g("ReduceMean", x, g.value([1]), keepdims=1)
    x = g("Add", g("Concat", mean, x, axis=1), g.weight("positions", TOKENS + 1, WIDTH))
    first = g("Slice", x, *map(g.value, ([0], [1], [1])))
    q, k, v = (
        g.apart(g.linear(of, name, WIDTH, WIDTH, bias=True), HEADS, tokens)
        for of, name, tokens in ((first, "q", 1), (x, "k", TOKENS + 1), (x, "v", TOKENS + 1))
    )
    pooled = g("Reshape", g.together(g.core(q, k, v, size=SIZE), 0, 1, WIDTH), g.value([-1, WIDTH]))
    assert said_of(g.model(g.linear(pooled, "c", WIDTH, 5)), tmp_path / "model.onnx") == ()
