"""Programs of torch.export where PyTorch is missing, or what is read is none."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import hypar_opt as ho
from hypar_opt.models import program
from tests.cli.shell import Shell
from tests.onnx.graph_writer import EXPORTED

GPU = {"type": "cuda", "index": 0}


def archive(path: Path, tensors: dict[str, Any], values: dict[str, bytes]) -> Path:
    """Write a program's archive, of an empty graph, with some tensors in its state."""
    entries = {
        "models/model.json": json.dumps({"device": GPU}).encode(),
        "data/weights/model_weights_config.json": json.dumps({"config": tensors}).encode(),
        "data/constants/model_constants_config.json": b'{"config": {}}',
        "data/sample_inputs/model.pt": b"pickled",
        **{f"data/weights/{name}": data for name, data in values.items()},
        **dict.fromkeys(("archive_format", "archive_version", "byteorder", ".data/version"), b"0"),
    }
    with ZipFile(path, "w") as written:
        for name, data in entries.items():
            written.writestr(f"any/{name}", data)
    return path


def tensor(values: str, *, is_param: bool, use_pickle: bool = False) -> dict[str, Any]:
    meta = {"device": GPU, "storage_offset": {"as_int": 3}, "sizes": [{"as_int": 4}]}
    return {
        "path_name": values,
        "is_param": is_param,
        "use_pickle": use_pickle,
        "tensor_meta": meta,
    }


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("data", [b"", b"PK", b"no archive", b"\0" * 100])
@pytest.mark.parametrize("command", ["import", "solve", "show"])
def test_a_file_of_another_kind_is_refused_in_a_line(
    command: str, data: bytes, tmp_path: Path, shell: Shell
) -> None:
    (tmp_path / "model.pt2").write_bytes(data)
    said = shell.refused(command, tmp_path / "model.pt2")
    assert said.endswith("model.pt2: should be a program that torch.export.save has written")


def test_an_archive_of_another_kind_is_refused(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "model.pt2", "w") as written:
        written.writestr("any/data.pkl", b"a state dict")
    with pytest.raises(ho.HyparError, match=r"should be a program that torch\.export\.save"):
        ho.read_network(tmp_path / "model.pt2")
    with pytest.raises(ho.HyparError, match="cannot be read: No such file"):
        ho.read_network(tmp_path / "other.pt2")


@pytest.mark.parametrize("package", ["torch", "onnxscript", "onnx"])
def test_without_pytorch_the_extra_is_named(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, package)
    file = archive(tmp_path / "model.pt2", {}, {})
    with pytest.raises(ho.HyparError, match=r"pip install 'hypar-opt\[torch\]'"):
        ho.import_(file)
    with pytest.raises(ho.HyparError, match=r"pip install 'hypar-opt\[torch\]'"):
        ho.from_torch(object())


def test_no_parameter_is_read_and_no_pickle(tmp_path: Path) -> None:
    tensors = {
        "weight": tensor("weight_0", is_param=True),
        "tied": tensor("weight_0", is_param=True),
        "mask": tensor("weight_1", is_param=False),
        "of no device": tensor("weight_2", is_param=False),
    }
    values = {"weight_0": b"many", "weight_1": b"few", "weight_2": b""}
    copy, unknown = program._archive(archive(tmp_path / "model.pt2", tensors, values), values=False)
    assert unknown == {"weight", "tied", "of no device"}
    with ZipFile(copy) as read:
        entries = {name: read.read(name) for name in read.namelist()}
    assert not any(b"many" in data or b"pickled" in data for data in entries.values())
    table = json.loads(entries["model/data/weights/model_weights_config.json"])["config"]
    for name, one in table.items():
        assert one["tensor_meta"]["device"] == {"type": "cpu", "index": None}
        data = entries[f"model/data/weights/{one['path_name']}"]
        assert data == (b"few" if name == "mask" else bytes(16))
    assert len({one["path_name"] for one in table.values()}) == len(tensors)


def test_pickled_tensors_are_refused(tmp_path: Path) -> None:
    tensors = {"own": tensor("weight_0", is_param=True, use_pickle=True)}
    file = archive(tmp_path / "model.pt2", tensors, {"weight_0": b""})
    with pytest.raises(ho.HyparError, match="tensor 'own': is pickled, and not read"):
        ho.read_network(file)


def test_a_large_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = archive(tmp_path / "model.pt2", {"mask": tensor("w", is_param=False)}, {"w": b"\0" * 99})
    monkeypatch.setattr(program, "MAX_ARCHIVE", 300)
    with pytest.raises(ho.HyparError, match="should have at most 0 MiB besides its parameters"):
        ho.read_network(file)


def test_parameters_are_compared(tmp_path: Path, shell: Shell) -> None:
    file = EXPORTED / "gpt2.onnx"
    count = 53_547_264
    said = shell.refused("import", file, "--parameters", count + 1, "-o", tmp_path / "gpt.toml")
    assert "gpt2.onnx: the network has" in said
    assert f"parameters, 1 fewer than {count + 1:,}: exporters fold norms" in said
    assert not (tmp_path / "gpt.toml").exists()
    assert shell("import", file, "--parameters", count, "-o", tmp_path / "gpt.toml")[0] == 0
    with pytest.raises(ho.HyparError, match="2 more than"):
        ho.import_(file, parameters=count - 2)
