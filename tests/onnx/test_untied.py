"""Layers that share weights in the file are tied, and said; on request each has its own."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.models.imported import read_model
from hypar_opt.onnx import imported_model
from tests.onnx.graph_writer import EXPORTED, parameters
from tests.onnx.with_weights import (
    IDS,
    MODELS,
    WIDTH,
    WORDS,
    WeightedGraph,
    assert_computes_its_model,
)

CLONES = EXPORTED / "torch/clones.legacy.onnx"


def tied(network: ho.Network) -> list[str]:
    return [layer.name for layer in network.layers if layer.shares_weights_with]


def test_clones_are_tied_and_untied() -> None:
    """The legacy exporter writes equal tensors of cloned layers once."""
    once, apart = (imported_model(CLONES, untie=untie) for untie in (False, True))
    said = [sentence for sentence in once.network.remarks or () if "are counted once" in sentence]
    assert tied(once.network)
    assert tied(once.network)[0] in said[0]
    assert "--untie" in said[0]
    assert not tied(apart.network)
    assert not any("are counted once" in sentence for sentence in apart.network.remarks or ())
    layers = {layer.name: layer for layer in once.network.layers}
    maps = dict(zip(layers, once.network.maps(), strict=True))
    more = sum(layers[name].weights(maps[name]) for name in tied(once.network))
    assert parameters(apart.network) >= parameters(once.network) + more


def clones() -> onnx.ModelProto:
    """A language model whose two blocks have one matrix, and whose head has the embedding's."""
    g = WeightedGraph(IDS, ids=True)
    words, matrix = g.weight("words", WORDS, WIDTH), g.weight("matrix", WIDTH, WIDTH)
    x = g("Gather", words, "ids")
    for _ in range(2):
        x = g("Add", x, g("Tanh", g("MatMul", x, matrix)))
    model: onnx.ModelProto = g.model(g("MatMul", x, g("Transpose", words, perm=[1, 0])))
    return model


@pytest.mark.parametrize("untie", [False, True])
def test_both_compute_what_the_model_does(tmp_path: Path, untie: bool) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(clones(), path)
    network = imported_model(path, untie=untie).network
    assert len(tied(network)) == (1 if untie else 2)  # the head's is an embedding's, on purpose
    assert_computes_its_model(network, path, untie=untie)


def test_the_command_says_so_and_a_run_takes_the_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, network, plan = (tmp_path / f"model.{end}" for end in ("onnx", "toml", "json"))
    onnx.save(clones(), model)
    assert (
        run(["import", str(model), "--untie", "--loss", "cross-entropy", "-o", str(network)]) == 0
    )
    content, _ = read_model(model, untie=True, loss="cross-entropy")
    assert ho.read_network(network) == ho.Network.model_validate(content)
    ho.write_plan(ho.solve(ho.read_network(network), batch=4, levels=1), plan)
    capsys.readouterr()
    assert run(["run", str(plan), "--weights", str(model)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Output agrees with the ONNX model's, by onnx's reference evaluator, to 1e-06" in said
    assert run(["run", str(plan), "--weights", str(CLONES)]) == 2
    error = capsys.readouterr().err
    assert f"{CLONES}: its weights cannot be read" in error
    assert error.count("\n") == 1
    other = tmp_path / "other.onnx"
    onnx.save(MODELS["mlp"](), other)
    assert run(["run", str(plan), "--weights", str(other)]) == 2
    assert "the plan's network should be the import of this model" in capsys.readouterr().err
    for call, said in (
        (["run", str(plan), "--backend", "jx"], "unknown backend 'jx': did you mean jax?"),
        (["import", str(model), "--loss", "entropy"], "unknown loss 'entropy': did you mean cross"),
    ):
        assert run(call) == 2
        assert said in capsys.readouterr().err
    assert run(["run", str(plan), "--weights", str(model), "--scale-down"]) == 2
    assert "numpy alone, and at full size" in capsys.readouterr().err
