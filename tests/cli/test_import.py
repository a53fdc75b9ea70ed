"""``hypar-opt import``, and ONNX models where a network file may stand."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from hypar_opt.cli import completion
from tests.cli.shell import Shell
from tests.onnx.graph_writer import EXPORTED, LIGHT, GraphWriter


@pytest.fixture
def dynamic(tmp_path: Path) -> Path:
    g = GraphWriter(("x", ["batch", "sequence", 24]))
    path = tmp_path / "dynamic.onnx"
    path.write_bytes(g.model(g.linear("x", "body", 24, 10)).SerializeToString())
    return path


def test_a_network_file_and_what_was_read(tmp_path: Path, shell: Shell) -> None:
    out = tmp_path / "gpt2.toml"
    _, printed, told = shell("import", EXPORTED / "gpt2.onnx", "-o", out)
    assert printed == (
        "gpt2: 24 layers, 53,547,264 parameters, 3,388,784,640 multiply-accumulates; input of 64"
        " tokens of 50,257\n"
    )
    written = tomllib.loads(out.read_text())
    assert written["block"][0]["repeat"] == 2
    # Its masks are in a file that is not there, its logits end in no loss of its own.
    assert [line.split(": ", 2)[2] for line in told.splitlines()] == [
        f"not kept of its model: {'; '.join(written['not_kept'])}",
        *written["remarks"],
    ]
    _, beside = shell.told("solve", out, "--levels", "1")
    assert all(any(phrase in line for line in beside) for phrase in written["not_kept"])


def test_unless_a_file_is_named_it_is_printed(shell: Shell) -> None:
    _, printed, told = shell("import", LIGHT / "light_zfnet512.onnx")
    assert tomllib.loads(printed)["layer"][0]["filters"] == 96
    assert "87,250,536 parameters" in told


@pytest.mark.parametrize("command", ["solve", "show", "simulate"])
def test_a_model_stands_where_a_network_does(command: str, tmp_path: Path, shell: Shell) -> None:
    model, written = EXPORTED / "bert.onnx", tmp_path / "bert.toml"
    assert shell("import", model, "-o", written)[0] == 0
    ours, theirs = (shell.document(command, source, "--batch", "8") for source in (model, written))
    assert ours | {"solver": None} == theirs | {"solver": None}


def test_dynamic_dimensions_are_given_by_name(dynamic: Path, shell: Shell) -> None:
    _, printed, told = shell("import", dynamic, "--dim", "sequence=12", "--dim", "batch=8")
    assert tomllib.loads(printed)["input"] == {"tokens": 12, "features": 24}
    assert "--batch 8 sets 'batch'" in told


@pytest.mark.parametrize("typed", ["sequence", "=3", "sequence=", "sequence=-1", "sequence=1.5"])
def test_a_dimension_is_a_name_and_a_size(typed: str, dynamic: Path, shell: Shell) -> None:
    said = shell.refused("import", dynamic, "--dim", typed)
    assert said == f"--dim should be NAME=N, as sequence=128; got {typed!r}"


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    said = shell.refused("solve", EXPORTED / "gpt2.onnx")
    assert said.endswith("ONNX files need: pip install 'hypar-opt[onnx]'")


def test_models_complete_where_networks_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vgg-mine.onnx").touch()
    (tmp_path / "vgg-saved.pt2").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "other.onnx").touch()
    assert completion.networks("vgg-e") == ["vgg-e"]
    assert completion.networks("vgg-m") == ["vgg-mine.onnx"]
    assert completion.networks("vgg-s") == ["vgg-saved.pt2"]
    assert completion.networks("./") == ["./folder/", "./vgg-mine.onnx", "./vgg-saved.pt2"]
    assert completion.networks("folder/o") == ["folder/other.onnx"]
