"""``hypar-opt import``, and ONNX models where a network file may stand."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path

import pytest

from hypar_opt.cli import completion
from hypar_opt.cli.app import run
from tests.onnx.graph_writer import EXPORTED, LIGHT, GraphWriter


@pytest.fixture
def dynamic(tmp_path: Path) -> Path:
    g = GraphWriter(("x", ["batch", "sequence", 24]))
    path = tmp_path / "dynamic.onnx"
    path.write_bytes(g.model(g.linear("x", "body", 24, 10)).SerializeToString())
    return path


def test_a_network_file_and_what_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "gpt2.toml"
    assert run(["import", str(EXPORTED / "gpt2.onnx"), "-o", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == (
        "gpt2: 24 layers, 53,547,264 parameters, 3,388,784,640 multiply-accumulates; input of 64"
        " tokens of 50,257\n"
    )
    written = tomllib.loads(out.read_text())
    assert written["block"][0]["repeat"] == 2
    # Its masks are in a file that is not there, its logits end in no loss of its own.
    assert [line.split(": ", 2)[2] for line in printed.err.splitlines()] == [
        f"not kept of its model: {'; '.join(written['not_kept'])}",
        *written["remarks"],
    ]


def test_unless_a_file_is_named_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", str(LIGHT / "light_zfnet512.onnx")]) == 0
    printed = capsys.readouterr()
    assert tomllib.loads(printed.out)["layer"][0]["filters"] == 96
    assert "87,250,536 parameters" in printed.err


def test_copies_that_the_exporter_wrote_once_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    model = EXPORTED / "torch/clones.legacy.onnx"
    assert run(["import", str(model)]) == 0
    printed = capsys.readouterr()
    assert (
        "weights that several layers share are counted once: 'block.0.1.1.1' has those of '0.0.1',"
        " 'block.0.1.1.3' has those of '0.0.3', 'block.1.1.1.1' has those of '0.0.1' and 3 more"
        " (6,912 parameters); exporters write equal tensors once"
    ) in printed.err
    assert printed.out.count("tied = ") == 2  # in a block of three


@pytest.mark.parametrize("command", ["solve", "show", "simulate"])
def test_a_model_stands_where_a_network_does(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, written = EXPORTED / "bert.onnx", tmp_path / "bert.toml"
    assert run(["import", str(model), "-o", str(written)]) == 0
    capsys.readouterr()
    documents = []
    for source in (model, written):
        assert run([command, str(source), "--batch", "8", "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        document.pop("solver", None)
        documents.append(document)
    assert documents[0] == documents[1]


def test_dynamic_dimensions_are_given_by_name(
    dynamic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", str(dynamic)]) == 2
    assert capsys.readouterr().err == (
        f"hypar-opt: {dynamic}: has dynamic dimensions: 'sequence'; import it with"
        " --dim sequence=N\n"
    )
    assert run(["import", str(dynamic), "--dim", "sequence=12", "--dim", "batch=8"]) == 0
    printed = capsys.readouterr()
    assert tomllib.loads(printed.out)["input"] == {"tokens": 12, "features": 24}
    assert "--batch 8 sets 'batch'" in printed.err


@pytest.mark.parametrize("typed", ["sequence", "=3", "sequence=", "sequence=-1", "sequence=1.5"])
def test_a_dimension_is_a_name_and_a_size(
    typed: str, dynamic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["import", str(dynamic), "--dim", typed]) == 2
    expected = f"hypar-opt: --dim should be NAME=N, as sequence=128; got {typed!r}\n"
    assert capsys.readouterr().err == expected


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert run(["solve", str(EXPORTED / "gpt2.onnx")]) == 2
    expected = "ONNX files need: pip install 'hypar-opt[onnx]'\n"
    assert capsys.readouterr().err.endswith(expected)


def test_models_complete_where_networks_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vgg-mine.onnx").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "other.onnx").touch()
    assert completion.networks("vgg-e") == ["vgg-e"]
    assert completion.networks("vgg-m") == ["vgg-mine.onnx"]
    assert completion.networks("./") == ["./folder/", "./vgg-mine.onnx"]
    assert completion.networks("folder/o") == ["folder/other.onnx"]
