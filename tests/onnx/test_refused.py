"""Files that are no models, and sizes that are missing, are refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from hypar_opt.errors import InputError
from hypar_opt.models.imported import import_, read_model
from tests.onnx.graph_writer import EXPORTED, LIGHT, GraphWriter
from tests.onnx.patterns.registry import SEQUENCE


def refusal(folder: Path, model: Any, **dims: int) -> str:
    path = folder / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(InputError) as caught:
        import_(path, dims=dims)
    return str(caught.value).removeprefix(f"{path}: ")


def test_missing_dimensions_are_listed(tmp_path: Path) -> None:
    g = GraphWriter(("x", ["n", 3, "height", "width"]))
    model = g.model(g("Conv", "x", g.weight("a", 4, 3, 3, 3)))
    assert refusal(tmp_path, model) == (
        "has dynamic dimensions: 'height', 'width'; import it with dims={'height': N, 'width': N}"
    )
    assert refusal(tmp_path, model, height=8).startswith("has dynamic dimensions: 'width'")
    text = refusal(tmp_path, model, height=8, width=8, depth=2)
    assert text == "has no dynamic dimension 'depth': dims={'depth': N}"
    _, notes = read_model(tmp_path / "model.onnx", {"height": 8, "width": 8, "n": 8})
    assert notes[0] == "the batch is not a dimension of a network: --batch 8 sets 'n'"


def test_a_size_of_minus_one_is_open(tmp_path: Path) -> None:
    """Of the batch none is asked for; of other dimensions as of those that have a name."""
    for batch in (-1, 0, "n"):
        g = GraphWriter(("x", [batch, 3]))
        onnx.save(g.model(g.linear("x", "a", 3, 4)), tmp_path / "model.onnx")
        content, _ = read_model(tmp_path / "model.onnx")
        assert content["input"] == {"features": 3}
    g = GraphWriter(("x", [-1, -1, 3]))
    model = g.model(g.linear("x", "a", 3, 4))
    assert refusal(tmp_path, model).startswith("has dynamic dimensions: 'x:1'; import it with")
    content, _ = read_model(tmp_path / "model.onnx", {"x:1": 5})
    assert content["input"] == {"tokens": 5, "features": 3}


def test_a_cycle(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    g("Relu", "t1", name="odd")
    out = g("Relu", "t0")
    g("Relu", "t0", name="before")
    assert refusal(tmp_path, g.model(out)) in (
        "node 'odd' (Relu): is in a cycle, through 't0'",
        "node 'Relu_1' (Relu): is in a cycle, through 't1'",
    )


def test_an_input_without_a_shape(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    model = g.model(g.linear("x", "a", 24, 24))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert refusal(tmp_path, model) == "input 'x': has no shape; an input needs one"


def test_files_that_are_no_models(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    for content in (b"", b"not an ONNX file at all", b"\x00" * 64):
        path.write_bytes(content)
        with pytest.raises(InputError, match="should be an ONNX model"):
            import_(path)
    (tmp_path / "net.toml").write_text("[[layer]]")
    (tmp_path / "array.toml").write_text("[topology]")
    (tmp_path / "other.toml").write_text("")
    for other, said in (
        (tmp_path / "net.toml", "this is a network file"),
        (tmp_path / "array.toml", "this is an array file"),
        (tmp_path / "other.toml", "is TOML, and should be an ONNX model, a program"),
        (tmp_path / "none.onnx", "cannot be read: No such file"),
        (tmp_path, "cannot be read: Is a directory"),
        ("/dev/zero", "should be a file"),
    ):
        with pytest.raises(InputError, match=said):
            import_(other)


@pytest.mark.parametrize("path", [LIGHT / "light_vgg19.onnx", EXPORTED / "gpt2.onnx"])
def test_a_truncated_file_is_refused(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    cut = tmp_path / "model.onnx"
    for size in range(1, len(whole), 997):
        cut.write_bytes(whole[:size])
        with pytest.raises(InputError):
            import_(cut)
