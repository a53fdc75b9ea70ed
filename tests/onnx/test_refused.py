"""What cannot be read is refused in one line, which names the file, the node and the operator."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from hypar_opt.errors import HyparError, InputError
from hypar_opt.onnx import read_model, read_onnx
from tests.onnx.graph_writer import EXPORTED, LIGHT, GraphWriter

IMAGE = ("x", [1, 4, 8, 8])
SEQUENCE = ("x", [2, 16, 24])


def refusal(folder: Path, model: Any, **dims: int) -> str:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError) as caught:
        read_onnx(path, dims)
    text = str(caught.value)
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


def image(folder: Path, op: str, *more: str, **attributes: Any) -> str:
    """The refusal of one node after a convolution."""
    g = GraphWriter(IMAGE)
    x = g("Conv", "x", g.weight("a", 4, 4, 1, 1))
    return refusal(folder, g.model(g(op, x, *more, name="odd", **attributes)))


def sequence(folder: Path, op: str, *more: str, **attributes: Any) -> str:
    g = GraphWriter(SEQUENCE)
    x = g.linear("x", "first", 24, 24)
    return refusal(folder, g.model(g(op, x, *more, name="odd", **attributes)))


def test_an_unknown_operator_by_its_name_and_the_nearest_known(tmp_path: Path) -> None:
    assert image(tmp_path, "ConvTranspos") == (
        "node 'odd' (ConvTranspos): is not an operator that can be imported; the nearest known is"
        " 'Transpose'"
    )


@pytest.mark.parametrize("op", ["If", "Loop", "Scan", "LSTM", "GRU", "RNN"])
def test_control_flow_and_recurrences(tmp_path: Path, op: str) -> None:
    expected = f"node 'odd' ({op}): control flow and recurrences are not supported"
    assert sequence(tmp_path, op) == expected


def test_a_product_with_the_tokens(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    across = g("Transpose", g.linear("x", "first", 24, 24), perm=[0, 2, 1])
    out = g("MatMul", across, g.weight("mix", 16, 16), name="odd")
    assert "'odd' (MatMul): multiplies the tokens of a sequence" in refusal(tmp_path, g.model(out))


def test_two_maps_multiplied_that_are_no_attention(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    a, b = g.linear("x", "a", 24, 24), g.linear("x", "b", 24, 24)
    product = g("MatMul", a, g("Transpose", b, perm=[0, 2, 1]), name="odd")
    expected = "node 'odd' (MatMul): multiplies two feature maps, but is not attention"
    assert refusal(tmp_path, g.model(product, a)) == expected


def test_a_part_of_a_sum(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    a, b = g.linear("x", "a", 24, 24), g.linear("x", "b", 24, 24)
    first, second = g("Split", g("Add", a, b), outputs=2, axis=2, num_outputs=2, name="odd")
    text = refusal(tmp_path, g.model(g("Mul", first, second, name="gate")))
    assert text == (
        "node 'gate' (Mul): reads a part of what a layer of kind 'add' writes; only fc and conv"
        " can be divided, where each channel is read in one part"
    )


def test_channels_that_do_not_meet(tmp_path: Path) -> None:
    g = GraphWriter(IMAGE)
    out = g("Conv", "x", g.weight("a", 8, 5, 3, 3), name="odd")
    assert refusal(tmp_path, g.model(out)) == (
        "node 'odd' (Conv): should have weights for 4 channels in 1 groups, got [8, 5, 3, 3]"
    )
    g = GraphWriter(SEQUENCE)
    text = refusal(tmp_path, g.model(g.linear("x", "first", 25, 24)))
    assert "its inputs do not fit one another: 2x16x24 and 25x24" in text


def test_a_window_that_does_not_fit(tmp_path: Path) -> None:
    text = image(tmp_path, "MaxPool", kernel_shape=[9, 2])
    assert text == "node 'odd' (MaxPool): its window of 9 does not fit 8 and a padding of 0"


def test_a_reshape_across_the_axes(tmp_path: Path) -> None:
    g = GraphWriter(IMAGE)
    out = g("Reshape", "x", g.value([1, 3, -1]), name="odd")
    text = refusal(tmp_path, g.model(g("Conv", "x", g.weight("a", 4, 4, 1, 1)), out))
    assert text == "node 'odd' (Reshape): is not as its operator requires: the elements do not fit"


def test_a_shape_that_is_in_another_file(tmp_path: Path) -> None:
    g = GraphWriter(IMAGE)
    text = refusal(tmp_path, g.model(g("Reshape", "x", g.weight("target", 2), name="odd")))
    assert text == "node 'odd' (Reshape): its shape 'target' is not in the file"


@pytest.mark.parametrize("through", ["initializer", "constant", "computed"])
def test_complex_numbers_as_a_shape_without_a_warning(through: str, tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    numbers = np.array([2, 16, 24], np.complex64)
    shape = g.value(numbers)
    if through != "initializer":
        shape = g("Constant", value=numpy_helper.from_array(numbers))
    if through == "computed":
        shape = g("Cast", shape, to=7)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert " (Reshape): its shape " in refusal(tmp_path, g.model(g("Reshape", "x", shape)))


def test_a_further_input_that_joins(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE, ("past", [2, 4, 24]))
    text = refusal(tmp_path, g.model(g("Concat", "past", g.linear("x", "a", 24, 24), axis=1)))
    assert text.endswith("joins a further input of the model, through 'past'")


def test_missing_dimensions_are_listed(tmp_path: Path) -> None:
    g = GraphWriter(("x", ["batch", 3, "height", "width"]))
    model = g.model(g("Conv", "x", g.weight("a", 4, 3, 3, 3)))
    assert refusal(tmp_path, model) == (
        "has dynamic dimensions: 'height', 'width'; import it with --dim height=N --dim width=N"
    )
    assert refusal(tmp_path, model, height=8).startswith("has dynamic dimensions: 'width'")
    text = refusal(tmp_path, model, height=8, width=8, depth=2)
    assert text == "has no dynamic dimension 'depth': --dim depth=N"


def test_the_batch_is_no_dimension_of_a_network(tmp_path: Path) -> None:
    g = GraphWriter(("x", ["n", 3, 8, 8]))
    path = tmp_path / "model.onnx"
    path.write_bytes(g.model(g("Conv", "x", g.weight("a", 4, 3, 3, 3))).SerializeToString())
    _, notes = read_model(path, {"n": 8})
    assert notes == ["the batch is no dimension of a network: --batch 8 sets 'n'"]


def test_a_cycle_and_what_nothing_writes(tmp_path: Path) -> None:
    g = GraphWriter(SEQUENCE)
    g("Relu", "t1", name="odd")
    out = g("Relu", "t0")
    g("Relu", "t0", name="before")
    assert refusal(tmp_path, g.model(out)) in (
        "node 'odd' (Relu): is in a cycle, through 't0'",
        "node 'Relu_1' (Relu): is in a cycle, through 't1'",
    )
    g = GraphWriter(SEQUENCE)
    out = g("Relu", "nowhere", name="odd")
    expected = "node 'odd' (Relu): reads 'nowhere', which nothing writes"
    assert refusal(tmp_path, g.model(out)) == expected


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
            read_onnx(path)
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_onnx(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_onnx(tmp_path)
    with pytest.raises(InputError, match="should be a file"):
        read_onnx("/dev/zero")


@pytest.mark.parametrize("path", [LIGHT / "light_vgg19.onnx", EXPORTED / "gpt2.onnx"])
def test_a_truncated_file_is_refused(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    cut = tmp_path / "model.onnx"
    for size in range(1, len(whole), 997):
        cut.write_bytes(whole[:size])
        with pytest.raises(InputError):
            read_onnx(cut)


def test_broken_bytes_never_end_in_a_traceback(tmp_path: Path) -> None:
    """One to three bytes of a file changed: read, or refused in one line."""
    rng = random.Random(0)
    path = tmp_path / "model.onnx"
    for name in ("bert", "llama-gqa", "gpt2"):
        whole = (EXPORTED / f"{name}.onnx").read_bytes()
        for _ in range(40):
            data = bytearray(whole)
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            path.write_bytes(bytes(data))
            try:
                read_onnx(path)
            except HyparError as error:
                lines = str(error).splitlines()
                assert len(lines) == 1, lines
