"""What an import keeps of a model: its loss and element type; what it does not is named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError
from hypar_opt.models import find_network, names
from hypar_opt.onnx import read_model
from hypar_opt.onnx.toml import toml_text
from hypar_opt.workload.kept import left_out
from hypar_opt.workload.operators.base import Operator
from tests.onnx.graph_writer import GraphWriter

BATCH, TOKENS, WIDTH, HEADS = 2, 6, 16, 4
SEQUENCE = ("x", [BATCH, TOKENS, WIDTH])
IDS = ("ids", [BATCH, TOKENS])


def content_of(folder: Path, model: Any) -> dict[str, Any]:
    onnx.save(model, folder / "model.onnx")
    return read_model(folder / "model.onnx")[0]


def not_kept(folder: Path, g: GraphWriter, *outputs: str) -> list[str]:
    """Return what is not kept, but for the tensors, which test_onnx_counts asks of."""
    phrases = content_of(folder, g.model(*outputs)).get("not_kept", [])
    return [phrase for phrase in phrases if not phrase.startswith("tensors that no layer")]


# Losses.


def language_model(g: GraphWriter, words: int, *, softmax: bool = False) -> str:
    tokens = g("Gather", g.weight("words", 40, WIDTH), "ids")
    norm = g("LayerNormalization", tokens, g.weight("s", WIDTH), g.weight("t", WIDTH), axis=-1)
    out = g.linear(norm, "head", WIDTH, words)
    return str(g("Softmax", out, axis=-1)) if softmax else out


def ends(content: dict[str, Any]) -> tuple[str, bool]:
    said = [remark for remark in content.get("remarks", ()) if "cross-entropy" in remark]
    return content["layer"][-1]["kind"], bool(said)


@pytest.mark.parametrize(
    ("words", "softmax", "expected"),
    [
        (40, False, ("output", True)),
        (40, True, ("output", False)),  # the model says it: nothing is taken
        (39, False, ("fc", False)),  # of another size than the vocabulary: no word's logit
    ],
)
def test_logits_of_a_vocabulary_end_in_a_loss(
    tmp_path: Path, words: int, softmax: bool, expected: tuple[str, bool]
) -> None:
    g = GraphWriter(IDS, ids=True)
    assert (
        ends(content_of(tmp_path, g.model(language_model(g, words, softmax=softmax)))) == expected
    )


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("classes", "output"),
        ("one number", "fc"),
        ("an activation", "fc"),
        ("two outputs", "fc"),
        ("a pooled map", "global_pool"),
    ],
)
def test_logits_of_classes_end_in_a_loss_where_one_linear_layer_is_the_end(
    tmp_path: Path, end: str, expected: str
) -> None:
    g = GraphWriter(("x", [1, 3, 8, 8]))
    pooled = g("Flatten", g("GlobalAveragePool", g("Conv", "x", g.weight("a", 4, 3, 3, 3))))
    outputs = [g.linear(pooled, "head", 4, 1 if end == "one number" else 10)]
    if end == "an activation":
        outputs = [g("Tanh", outputs[0])]
    elif end == "two outputs":
        outputs += [g.linear(pooled, "box", 4, 4)]
    elif end == "a pooled map":
        outputs = [pooled]
    content = content_of(tmp_path, g.model(*outputs))
    kinds = [layer["kind"] for layer in content["layer"] if layer.get("loss") != "none"]
    assert kinds[-1] == expected
    assert ("remarks" in content) == (expected == "output")


def test_a_sequence_of_numbers_has_no_logits(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    assert ends(content_of(tmp_path, g.model(g.linear("x", "out", WIDTH, WIDTH)))) == ("fc", False)


@pytest.mark.parametrize("softmax", [True, False])
def test_a_chain_ends_as_the_papers_do_and_says_so(tmp_path: Path, softmax: bool) -> None:
    g = GraphWriter(("x", [1, 3, 8, 8]))
    x = g("Relu", g("Conv", "x", g.weight("a", 4, 3, 3, 3)))
    out = g.linear(g("Flatten", x), "head", 4 * 36, 10)
    content = content_of(tmp_path, g.model(g("Softmax", out) if softmax else out))
    assert [layer["kind"] for layer in content["layer"]] == ["conv", "fc"]
    (said,) = content["not_kept"]
    assert said.startswith("the cross-entropy of a softmax")


def _by_channel(layer: Operator) -> str:
    return "output" if layer.kind == "fc" else layer.splits["model"].word


def test_a_plan_charges_the_loss_of_logits_by_what_a_softmax_exchanges(tmp_path: Path) -> None:
    """Three numbers a position, where channels are split: as of the zoo's language models."""
    g = GraphWriter(IDS, ids=True)
    onnx.save(g.model(language_model(g, 40)), tmp_path / "model.onnx")
    network = ho.read_network(tmp_path / "model.onnx")
    layers = [dict(layer) for layer in network.layers]
    assert layers[-1]["kind"] == "output"
    bare = validate(ho.Network, network.description() | {"layer": layers[:-1]})
    with_loss, without = (
        ho.solve(
            one,
            batch=8,
            levels=1,
            choices=("data", "model", "output"),
            constraints={"fix": [f"{layer.name}={_by_channel(layer)}" for layer in one.layers]},
        )
        for one in (network, bare)
    )
    assert with_loss.cost.total - without.cost.total == 3 * 2 * 8 * TOKENS * 4


# Element types.


@pytest.mark.parametrize(
    ("kind", "name", "element_bytes"),
    [
        (np.float16, "float16", 2),
        (ml_dtypes.bfloat16, "bfloat16", 2),
        (np.float64, "float64", 8),
        (np.float32, None, 4),
    ],
)
def test_the_element_type_is_kept_and_a_plan_counts_its_bytes(
    tmp_path: Path, kind: Any, name: str | None, element_bytes: int
) -> None:
    g = GraphWriter(SEQUENCE)
    weight = numpy_helper.from_array(np.zeros((WIDTH, WIDTH), kind), "w")
    g.initialisers.append(weight)
    out = g("Add", g("MatMul", "x", "w"), "x")
    content = content_of(tmp_path, g.model(out))
    assert content.get("element_type") == name
    network = ho.read_network(tmp_path / "model.onnx")
    assert network.element_bytes == element_bytes
    assert ho.solve(network, batch=8, levels=1).element_bytes == element_bytes
    assert ho.solve(network, batch=8, levels=1, element_bytes=4).element_bytes == 4
    half = ho.solve(network, batch=8, levels=1, element_bytes=2).cost.total
    assert ho.solve(network, batch=8, levels=1).cost.total * 2 == half * element_bytes


# What is not kept.


def attention(g: GraphWriter, change: str) -> str:
    """Return attention of heads of 4 features, with one thing that a network has no word for."""
    q, k, v = (g.heads(g.linear("x", n, WIDTH, WIDTH), BATCH, TOKENS, HEADS, 4) for n in "qkv")
    table = g.value(np.ones((1, 1, TOKENS, 4)))
    if change == "rotary positions":
        turned = []
        for x in (q, k):
            halves = [
                g("Slice", x, *(g.value([n]) for n in (start, start + 2, 3, 1))) for start in (0, 2)
            ]
            other = g("Concat", g("Neg", halves[1]), halves[0], axis=-1)
            turned.append(g("Add", g("Mul", x, table), g("Mul", other, table)))
        q, k = turned
    if change == "operation with a constant":
        q = g("Mul", q, table)
    scale = {"scale of 0.25": 0.25, "no scale": 1.0}.get(change, 0.5)
    if change == "scale in two":
        q, k, scale = (*(g("Mul", x, g.value(np.float32(0.5**0.5))) for x in (q, k)), 1.0)
    scores = g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))
    if scale != 1.0:
        scores = g("Mul", scores, g.value(np.float32(scale)))
    if change == "unknown scale":
        scores = g("Mul", scores, g.weight("temperature", 1))
    if change == "Tanh":
        scores = g("Tanh", scores)
    out = g("MatMul", g("Softmax", scores, axis=-1), v)
    return g.together(out, BATCH, TOKENS, WIDTH)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("nothing", None),
        ("scale in two", None),
        ("rotary positions", "rotary positions"),
        ("operation with a constant", "operation with a constant of each place"),
        ("scale of 0.25", "attention's scale of 0.25; 1/sqrt(4)"),
        ("no scale", "attention's scale of 1; 1/sqrt(4)"),
        ("unknown scale", "attention's scale, which is not known"),
    ],
)
def test_what_is_done_to_attention_is_kept_or_named(
    tmp_path: Path, change: str, said: str | None
) -> None:
    g = GraphWriter(SEQUENCE)
    phrases = not_kept(tmp_path, g, attention(g, change))
    assert len(phrases) == (said is not None)
    assert (said or "") in "".join(phrases)


def elementwise(g: GraphWriter, change: str, x: str) -> str:
    """Return one thing that is done to a map between two layers."""
    number = g.value(np.float32(0.5))
    match change:
        case "gelu by tanh":
            return str(g("Gelu", x, approximate="tanh"))
        case "gelu by tanh, written out":
            cube = g("Mul", g("Pow", x, g.value(np.float32(3))), g.value(np.float32(0.044715)))
            inner = g("Tanh", g("Mul", g("Add", x, cube), g.value(np.float32(0.7978846))))
            return str(g("Mul", g("Mul", x, number), g("Add", inner, g.value(np.float32(1)))))
        case "silu":
            return str(g("Mul", x, g("Sigmoid", x)))
        case "quick gelu":
            return str(g("Mul", x, g("Sigmoid", g("Mul", x, g.value(np.float32(1.702))))))
        case "gelu by erf":
            inner = g("Erf", g("Div", x, g.value(np.float32(2**0.5))))
            return str(g("Mul", g("Mul", x, g("Add", inner, g.value(np.float32(1)))), number))
        case "a factor" | "a sum" | "a factor of 1":
            value = 1.0 if change.endswith("1") else 0.5
            return str(g("Add" if change == "a sum" else "Mul", x, g.value(np.float32(value))))
        case "a square":
            return str(g("Mul", x, x))
        case "leaky":
            return str(g("LeakyRelu", x, alpha=0.3))
        case "relu of six":
            return str(g("Clip", x, g.value(np.float32(0)), g.value(np.float32(6))))
        case "clip":
            return str(g("Clip", x, g.value(np.float32(-1)), g.value(np.float32(1))))
        case "a constant map":
            return str(g("Mul", x, g.value(np.ones((1, TOKENS, 1)))))
        case "dropout in training":
            return str(g("Dropout", x, number, g.value(np.array(True))))
    return str(g(change, x))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("Identity", None),
        ("Relu", None),
        ("Tanh", None),
        ("Dropout", None),
        ("gelu by tanh", None),
        ("gelu by tanh, written out", None),
        ("silu", None),
        ("relu of six", None),
        ("a factor of 1", None),
        ("Gelu", "gelu by erf"),
        ("gelu by erf", "gelu by erf"),
        ("quick gelu", "multiplication by 1.702"),
        ("a factor", "multiplication by 0.5"),
        ("a sum", "addition of 0.5"),
        ("a square", "itself"),
        ("leaky", "alpha 0.3 of LeakyRelu"),
        ("clip", "bounds of a clip"),
        ("Softmax", "Softmax"),
        ("Sqrt", "Sqrt"),
        ("Neg", "Neg"),
        ("Cos", "Cos"),
        ("a constant map", "constant of each place"),
        ("dropout in training", "dropout"),
    ],
)
def test_what_is_done_to_a_map_is_an_activation_or_named(
    tmp_path: Path, change: str, said: str | None
) -> None:
    g = GraphWriter(SEQUENCE)
    between = elementwise(g, change, g.linear("x", "first", WIDTH, WIDTH))
    phrases = not_kept(tmp_path, g, g.linear(between, "second", WIDTH, WIDTH))
    assert bool(phrases) == (said is not None)
    assert (said or "") in "".join(phrases)


@pytest.mark.parametrize(
    ("op", "said"),
    [("Add", None), ("Mul", None), ("Sub", "sum"), ("Div", "product"), ("Max", "sum")],
)
def test_two_maps_are_added_or_multiplied_or_it_is_named(
    tmp_path: Path, op: str, said: str | None
) -> None:
    g = GraphWriter(SEQUENCE)
    a, b = (g.linear("x", name, WIDTH, WIDTH) for name in "ab")
    phrases = not_kept(tmp_path, g, g(op, a, b))
    assert [f"{op} of two feature maps, which is taken as their {said}" in p for p in phrases] == (
        [True] if said else []
    )


def test_an_activation_that_some_readers_do_not_see_is_named(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    a = g.linear("x", "a", WIDTH, WIDTH)
    out = g("Add", g.linear(g("Relu", a), "b", WIDTH, WIDTH), a)
    (phrase,) = not_kept(tmp_path, g, out)
    assert "the activation 'relu', which not all" in phrase


def test_norms_written_out_are_norms(tmp_path: Path) -> None:
    """Their squares, roots and epsilons are theirs, and nothing is left out."""
    g = GraphWriter(SEQUENCE)
    x = g.linear("x", "first", WIDTH, WIDTH)
    mean = g("ReduceMean", g("Pow", x, g.value(np.float32(2))), g.value([-1]))
    root = g("Sqrt", g("Add", mean, g.value(np.float32(1e-5))))
    norm = g("Mul", g("Div", x, root), g.weight("scale", WIDTH))
    assert not_kept(tmp_path, g, g.linear(norm, "second", WIDTH, WIDTH)) == []


def test_biases_are_counted(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    x = g.linear(g.linear("x", "a", WIDTH, WIDTH, bias=True), "b", WIDTH, WIDTH, bias=True)
    assert not_kept(tmp_path, g, g.linear(x, "c", WIDTH, WIDTH)) == ["the biases of 2 layers"]


def test_a_phrase_says_its_first_node_and_how_many_more(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    x = "x"
    for number in range(3):
        x = g.linear(g("Cos", x), f"w{number}", WIDTH, WIDTH)
    (phrase,) = not_kept(tmp_path, g, x)
    assert phrase == "Cos of what it reads (node 'MatMul_1' (MatMul) and 2 more)"


@pytest.mark.parametrize("number", [1, 5])
def test_table_rows_that_positions_would_choose_are_named(tmp_path: Path, number: int) -> None:
    """A table as long as the sequence is read whole, and right; of a longer one ids choose."""
    g = GraphWriter(IDS, ids=True)
    rows = TOKENS * number
    words = g("Gather", g.weight("words", 40, WIDTH), "ids")
    places = g("Gather", g.weight("places", rows, WIDTH), g.value(np.arange(TOKENS)[None]))
    said = not_kept(tmp_path, g, g.linear(g("Add", words, places), "out", WIDTH, 7))
    assert bool(said) == (number > 1)


def test_what_is_said_is_in_the_network_file_and_in_a_plan(tmp_path: Path) -> None:
    g = GraphWriter(IDS, ids=True)
    out = g("Cos", language_model(g, 40))
    content = content_of(tmp_path, g.model(g.linear(out, "last", 40, 40, bias=True)))
    assert tomllib.loads(toml_text(content)) == content
    (tmp_path / "model.toml").write_text(toml_text(content))
    network = ho.read_network(tmp_path / "model.toml")
    assert network == ho.read_network(tmp_path / "model.onnx")
    assert network.not_kept == (
        "Cos of what it reads (node 'MatMul_4' (MatMul))",
        "the biases of 1 layer",
    )
    assert network.remarks == tuple(content["remarks"])
    assert left_out(network) == network.not_kept
    plan = ho.solve(network, batch=8, levels=1)
    ho.write_plan(plan, tmp_path / "plan.json")
    assert ho.read_plan(tmp_path / "plan.json").network.description == network


def test_what_is_said_changes_no_network_without_it() -> None:
    """A digest is of what a file states: those of older files and plans stay as they are."""
    for name in names():
        stated = find_network(name).description()
        assert not {"not_kept", "remarks", "element_type"} & set(stated)


@pytest.mark.parametrize("key", ["not_kept", "remarks", "element_type"])
def test_the_first_version_of_the_format_has_no_such_key(key: str) -> None:
    value = "float16" if key == "element_type" else ["rotary positions"]
    layers = [{"name": "fc", "kind": "fc", "units": 3}]
    table = {"name": "net", "input": {"features": 2}, "layer": layers, key: value}
    with pytest.raises(InputError, match=f"schema: should be .*, which has {key}"):
        validate(ho.Network, {**table, "schema": "hypar-opt/network/1"})
    validate(ho.Network, {**table, "schema": "hypar-opt/network/2"})
