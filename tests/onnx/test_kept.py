"""What an import keeps of a model: its loss and element type; what it does not is named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import numpy_helper

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.documents.toml import toml_text
from hypar_opt.errors import InputError
from hypar_opt.models import file_text, find_network, names
from hypar_opt.models.imported import read_model
from hypar_opt.workload.omitted import omitted_parts
from hypar_opt.workload.operators.base import Operator
from tests.onnx.graph_writer import GraphWriter

BATCH, TOKENS, WIDTH, HEADS = 2, 6, 16, 4
SEQUENCE = ("x", [BATCH, TOKENS, WIDTH])
IDS = ("ids", [BATCH, TOKENS])


def not_kept(content: dict[str, Any]) -> list[str]:
    """Return what is not kept, but for the tensors, which test_counts asks of."""
    phrases = content.get("not_kept", [])
    return [phrase for phrase in phrases if not phrase.startswith("tensors that no layer")]


# Losses.


def language_model(g: GraphWriter, words: int, *, softmax: bool = False) -> str:
    tokens = g("Gather", g.weight("words", 40, WIDTH), "ids")
    norm = g("LayerNormalization", tokens, g.weight("s", WIDTH), g.weight("t", WIDTH), axis=-1)
    out = g.linear(norm, "head", WIDTH, words)
    return str(g("Softmax", out, axis=-1)) if softmax else out


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
    content = g.content(tmp_path, language_model(g, words, softmax=softmax))
    said = [remark for remark in content.get("remarks", ()) if "cross-entropy" in remark]
    assert (content["layer"][-1]["kind"], bool(said)) == expected


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("classes", "output"),
        ("one number", "fc"),
        ("an activation", "fc"),
        ("two outputs", "fc"),
        ("a pooled map", "global_pool"),
        ("a sequence", "fc"),
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
    elif end == "a sequence":
        g = GraphWriter(SEQUENCE)
        outputs = [g.linear("x", "head", WIDTH, WIDTH)]
    content = g.content(tmp_path, *outputs)
    kinds = [layer["kind"] for layer in content["layer"] if layer.get("loss") != "none"]
    assert kinds[-1] == expected
    (remark,) = content.get("remarks", [""])
    assert ("cross-entropy of their softmax" in remark) == (expected == "output")
    assert ("its loss is not in the file" in remark) == (end not in ("classes", "two outputs"))


@pytest.mark.parametrize("softmax", [True, False])
def test_a_chain_ends_as_the_papers_do_and_says_so(tmp_path: Path, softmax: bool) -> None:
    g = GraphWriter(("x", [1, 3, 8, 8]))
    x = g("Relu", g("Conv", "x", g.weight("a", 4, 3, 3, 3)))
    out = g.linear(g("Flatten", x), "head", 4 * 36, 10)
    content = g.content(tmp_path, g("Softmax", out) if softmax else out)
    assert [layer["kind"] for layer in content["layer"]] == ["conv", "fc"]
    (said,) = content["not_kept"]
    assert said.startswith("the cross-entropy of a softmax")


@pytest.mark.parametrize("loss", ["cross-entropy", "squared-error"])
def test_a_stated_loss_is_the_networks(tmp_path: Path, loss: str) -> None:
    """Of a chain, of logits of a vocabulary, of a regression, and of a model that ends in it."""
    for model in ("chain", "language", "softmax", "regression"):
        g = (
            GraphWriter(IDS, ids=True)
            if model in ("language", "softmax")
            else GraphWriter(SEQUENCE)
        )
        if model in ("language", "softmax"):
            out = language_model(g, 40, softmax=model == "softmax")
        else:
            out = g.linear("x", "head", WIDTH, WIDTH)
            out = g("Tanh", out) if model == "regression" else out
        content = g.content(tmp_path, out)
        content, _ = read_model(tmp_path / "model.onnx", loss=loss)
        kinds = [layer["kind"] for layer in content["layer"]]
        assert (kinds[-1] == "output") == (loss == "cross-entropy"), model
        assert not any("cross-entropy" in phrase for phrase in not_kept(content))
        dropped = model == "softmax" and loss == "squared-error"
        assert ["the softmax at its end" in phrase for phrase in not_kept(content)] == [
            True
        ] * dropped
        network = validate(ho.Network, content)
        assert ho.run(ho.solve(network, batch=4, levels=1)).agrees


def test_a_cross_entropy_is_of_one_end(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    g.content(tmp_path, *(g.linear("x", name, WIDTH, WIDTH) for name in "ab"))
    with pytest.raises(InputError, match="the cross-entropy is of one; leave loss out"):
        read_model(tmp_path / "model.onnx", loss="cross-entropy")
    with pytest.raises(ho.HyparError, match=r"loss 'huber'.*cross-entropy, squared-error"):
        read_model(tmp_path / "model.onnx", loss="huber")


def _by_channel(layer: Operator) -> str:
    return "output" if layer.kind == "fc" else layer.splits["model"].word


def test_a_plan_charges_the_loss_of_logits_by_what_a_softmax_exchanges(tmp_path: Path) -> None:
    """Three numbers a position, where channels are split: as of the zoo's language models."""
    g = GraphWriter(IDS, ids=True)
    network = g.network(tmp_path, language_model(g, 40))
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
    network = g.network(tmp_path, out)
    assert network.element_type == name
    assert network.element_bytes == element_bytes
    assert ho.solve(network, batch=8, levels=1).element_bytes == element_bytes
    assert ho.solve(network, batch=8, levels=1, element_bytes=4).element_bytes == 4
    half = ho.solve(network, batch=8, levels=1, element_bytes=2).cost.total
    assert ho.solve(network, batch=8, levels=1).cost.total * 2 == half * element_bytes


# What is not kept.


@pytest.mark.parametrize(
    ("of_each", "of_scores", "kept"),
    [
        (1.0, 0.5, None),
        (0.5**0.5, 1.0, None),
        (1.0, 0.25, 0.25),
        (0.3, 1.0, 0.09),
        (1.0, 1.0, 1.0),
        (1.0, None, "attention's scale, which is not known"),
    ],
)
def test_attentions_scale_is_kept_or_named(
    of_each: float, of_scores: float | None, kept: float | str | None, tmp_path: Path
) -> None:
    g = GraphWriter(SEQUENCE)
    q, k, v = (g.heads(g.linear("x", n, WIDTH, WIDTH), BATCH, TOKENS, HEADS, 4) for n in "qkv")
    if of_each != 1:
        q, k = (g("Mul", x, g.value(np.float32(of_each))) for x in (q, k))
    scores = g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2]))
    if of_scores != 1:
        by = g.value(np.float32(of_scores)) if of_scores else g.weight("temperature", 1)
        scores = g("Mul", scores, by)
    out = g("MatMul", g("Softmax", scores, axis=-1), v)
    content = g.content(tmp_path, g.together(out, BATCH, TOKENS, WIDTH))
    (attention,) = (layer for layer in content["layer"] if layer["kind"] == "attention")
    said = kept if isinstance(kept, str) else ""
    scale = pytest.approx(kept, rel=1e-6) if isinstance(kept, float) else None
    assert attention.get("scale") == scale
    assert len(not_kept(content)) == bool(said)
    assert said in "".join(not_kept(content))


@pytest.mark.parametrize("end", ["Identity", "Dropout", "Cast", "all of them"])
def test_what_changes_nothing_behind_the_softmax_is_skipped(tmp_path: Path, end: str) -> None:
    ends = ["Identity", "Dropout", "Cast"] if end == "all of them" else [end]
    contents = []
    for behind in ([], ends):
        g = GraphWriter(SEQUENCE)
        x = g("LayerNormalization", "x", g.weight("s", WIDTH), g.weight("t", WIDTH), axis=-1)
        x = g("Softmax", g.linear(x, "a", WIDTH, 5), axis=-1)
        for op in behind:
            x = g(op, x, to=1) if op == "Cast" else g(op, x)
        contents.append(g.content(tmp_path, x))
    assert contents[0] == contents[1]
    assert "not_kept" not in contents[0]


def test_a_softmax_over_tokens_at_the_end_is_none_of_the_words(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    content = g.content(tmp_path, g("Softmax", g.linear("x", "a", WIDTH, 5), axis=1))
    assert [layer["kind"] for layer in content["layer"]] == ["fc"]
    assert "Softmax (axis = 1)" in "".join(not_kept(content))


def test_one_tensor_concatenated_is_itself(tmp_path: Path) -> None:
    contents = []
    for joined in (False, True):
        g = GraphWriter(SEQUENCE)
        x = g.linear("x", "a", WIDTH, WIDTH)
        x = g("Concat", x, axis=-1) if joined else x
        contents.append(g.content(tmp_path, g.linear(x, "b", WIDTH, 5)))
    assert contents[0] == contents[1]


@pytest.mark.parametrize(
    ("activation", "params", "word", "said"),
    [
        ("Relu", [], "relu", None),
        ("Clip", [0.0, 6.0], "relu6", None),
        ("Clip", [0.0, 5.0], None, "activation = Clip"),
        ("LeakyRelu", [0.01], "leaky_relu", None),
        ("LeakyRelu", [0.2], None, "activation = LeakyRelu"),
        ("HardSigmoid", [1 / 6, 0.5], "hardsigmoid", None),
    ],
)
def test_a_fused_activation_is_computed_with_its_numbers(
    tmp_path: Path, activation: str, params: list[float], word: str | None, said: str | None
) -> None:
    g = GraphWriter(("x", [1, 2, 8, 8]))
    given: dict[str, Any] = {"activation_params": params} if params else {}
    x = g(
        "FusedConv",
        "x",
        g.weight("a", 3, 2, 3, 3),
        activation=activation,
        domain="com.microsoft",
        **given,
    )
    content = g.content(tmp_path, g("Conv", x, g.weight("b", 4, 3, 3, 3)))
    assert [layer.get("activation") for layer in content["layer"]] == [word, None]
    assert bool(not_kept(content)) == (said is not None)
    assert (said or "") in "".join(not_kept(content))


@pytest.mark.parametrize("half", [np.float16, ml_dtypes.bfloat16])
def test_constants_of_half_precision_make_the_activation_that_they_round(
    tmp_path: Path, half: Any
) -> None:
    g = GraphWriter(SEQUENCE)

    def number(value: float) -> str:
        name = f"half_{len(g.initialisers)}"
        g.initialisers.append(numpy_helper.from_array(np.array(value, half), name))
        return name

    x = g.linear("x", "a", WIDTH, WIDTH)
    gate = g("Add", g("Erf", g("Div", x, number(2**0.5))), number(1.0))
    x = g("Mul", g("Mul", x, gate), number(0.5))
    content = g.content(tmp_path, g.linear(x, "b", WIDTH, 5))
    assert [layer.get("activation") for layer in content["layer"]] == ["gelu_erf", None]


@pytest.mark.parametrize(
    ("op", "said"),
    [("Add", None), ("Mul", None), ("Sub", "sum"), ("Div", "product"), ("Max", "sum")],
)
def test_two_maps_are_added_or_multiplied_or_it_is_named(
    tmp_path: Path, op: str, said: str | None
) -> None:
    g = GraphWriter(SEQUENCE)
    a, b = (g.linear("x", name, WIDTH, WIDTH) for name in "ab")
    phrases = not_kept(g.content(tmp_path, g(op, a, b)))
    assert [f"{op} of two feature maps, which is taken as their {said}" in p for p in phrases] == (
        [True] if said else []
    )


def test_an_activation_that_some_readers_do_not_see_is_named(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    a = g.linear("x", "a", WIDTH, WIDTH)
    out = g("Add", g.linear(g("Relu", a), "b", WIDTH, WIDTH), a)
    content = g.content(tmp_path, out)
    assert not any("activation" in layer for layer in content["layer"])
    (phrase,) = not_kept(content)
    assert "the activation 'relu', which not all" in phrase


def test_biases_are_kept(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    x = g.linear(g.linear("x", "a", WIDTH, WIDTH, bias=True), "b", WIDTH, WIDTH, bias=True)
    content = g.content(tmp_path, g.linear(x, "c", WIDTH, WIDTH))
    assert not_kept(content) == []
    assert [layer.get("bias") for layer in content["layer"]] == [True, True, None]


def test_a_phrase_says_its_first_node_and_how_many_more(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    x = "x"
    for number in range(3):
        x = g.linear(g("Cos", x), f"w{number}", WIDTH, WIDTH)
    (phrase,) = not_kept(g.content(tmp_path, x))
    assert phrase == "Cos of what it reads (node 'MatMul_1' (MatMul) and 2 more)"


@pytest.mark.parametrize(("number", "first"), [(1, 0), (5, 0), (5, 2)])
def test_table_rows_that_positions_would_choose_are_named(
    tmp_path: Path, number: int, first: int
) -> None:
    """The first rows of a table are read, however long it is; of others the ids choose."""
    g = GraphWriter(IDS, ids=True)
    rows = TOKENS * number
    words = g("Gather", g.weight("words", 40, WIDTH), "ids")
    places = g("Gather", g.weight("places", rows, WIDTH), g.value(first + np.arange(TOKENS)[None]))
    content = g.content(tmp_path, g.linear(g("Add", words, places), "out", WIDTH, 7))
    assert bool(not_kept(content)) == (first > 0)
    tables = [one.get("tokens") for one in content["layer"] if one.get("inputs") == []]
    assert tables == ([] if first else [TOKENS if number > 1 else None])


def test_what_is_said_is_in_the_network_file_and_in_a_plan(tmp_path: Path) -> None:
    g = GraphWriter(IDS, ids=True)
    out = g("Cos", language_model(g, 40))
    content = g.content(tmp_path, g.linear(out, "last", 40, 40, bias=True))
    assert tomllib.loads(toml_text(content)) == content
    (tmp_path / "model.toml").write_text(toml_text(content))
    network = ho.read_network(tmp_path / "model.toml")
    assert network == ho.read_network(tmp_path / "model.onnx")
    assert network.not_kept == ("Cos of what it reads (node 'MatMul_4' (MatMul))",)
    assert network.remarks == tuple(content["remarks"])
    assert omitted_parts(network) == network.not_kept
    plan = ho.solve(network, batch=8, levels=1)
    ho.write_plan(plan, tmp_path / "plan.json")
    assert ho.read_plan(tmp_path / "plan.json").network.description == network


def test_what_is_said_changes_no_network_without_it() -> None:
    """A digest is of what a file states: those of older files and plans stay as they are."""
    for name in names():
        described = find_network(name).description().keys()
        assert described - {"schema"} == tomllib.loads(file_text(name)).keys() - {"schema"}


@pytest.mark.parametrize("key", ["not_kept", "remarks", "element_type"])
def test_the_first_version_of_the_format_has_no_such_key(key: str) -> None:
    value = "float16" if key == "element_type" else ["rotary positions"]
    layers = [{"name": "fc", "kind": "fc", "units": 3}]
    table = {"name": "net", "input": {"features": 2}, "layer": layers, key: value}
    with pytest.raises(InputError, match=f"schema: should be .*, which has {key}"):
        validate(ho.Network, {**table, "schema": "hypar-opt/network/1"})
    validate(ho.Network, {**table, "schema": "hypar-opt/network/2"})


@pytest.mark.parametrize(
    ("second", "scale", "said"),
    [(8.0, 8.0, None), (1.0, None, "multiplication by 8"), (4.0, None, "multiplication by 4")],
)
def test_the_factor_of_a_tables_rows_is_kept_where_all_read_it(
    second: float, scale: float | None, said: str | None, tmp_path: Path
) -> None:
    """As Gemma's embeddings have one, which a norm and the residual sum read."""
    g = GraphWriter(IDS, ids=True)
    rows = g("Gather", g.weight("words", 30, WIDTH), "ids")
    x, y = (g("Mul", rows, g.value(np.float32(factor))) for factor in (8.0, second))
    content = g.content(tmp_path, g("Add", g.linear(x, "a", WIDTH, WIDTH), y))
    assert content["layer"][0].get("scale") == scale
    assert any((said or "multiplication") in one for one in not_kept(content)) == (said is not None)
