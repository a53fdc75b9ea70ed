"""Small models as torch exports them have the parameters that torch counts.

``tests/data/onnx/torch/export.py`` wrote the models, without their weights, and what torch 2.13.0
counts of each: by the exporter to TorchScript (legacy), and by torch.export's as it is (plain) and
with ONNX Script's optimiser.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hypar_opt.errors import InputError
from hypar_opt.models.imported import import_
from tests.onnx.graph_writer import EXPORTED, parameters

FOLDER = EXPORTED / "torch"
COUNTS: dict[str, int] = json.loads((FOLDER / "counts.json").read_text())

# What torch counts and the network does not, which the import says.
LEFT_OUT = {
    "relative_positions": "'table.weight' (32)",
    "learned_attention_bias": "'bias' (1,024)",
    "adapter": "'a' (192), 'b' (96), 288 elements",
    "weight_norm": "'f.parametrizations.weight.original0' (48)",
}
REFUSED = {
    "head_that_is_a_slice": "as another matrix",
    "autoencoder": "as another matrix",
    "detector": "convolutions of a network cannot share weights",
    "low_rank": "a layer of 576 parameters, where the file has 'a' (96), 'b' (96), 192 elements",
    "gru": "is a recurrent layer",
    "lstm": "is a recurrent layer",
}
# What is shared in the file: norms are counted each, and the weights of clones once.
NORMS = "encoder_layer_applied_twice.plain"
CLONES = "clones.legacy"


def is_one_of(file: str, names: dict[str, str]) -> bool:
    return file.partition(".")[0] in names


def model(file: str) -> Path:
    return FOLDER / f"{file}.onnx"


@pytest.mark.parametrize("file", [file for file in COUNTS if not is_one_of(file, REFUSED)])
def test_parameters_are_torchs(file: str) -> None:
    network = import_(model(file))
    difference = parameters(network) - COUNTS[file]
    said = "; ".join((*(network.not_kept or ()), *(network.remarks or ())))
    if is_one_of(file, LEFT_OUT):
        expected = LEFT_OUT[file.partition(".")[0]]
        assert f"tensors that no layer has: {expected}, learned or not" in said
        assert -difference == int(re.findall(r"\(?([\d,]+)", expected)[-1].replace(",", ""))
    elif file == NORMS:
        # The second time its two norms have a scale and a shift of 24 features of their own.
        assert "(96 parameters more than the file has)" in said
        assert difference == 96
    elif file == CLONES:
        # Of three copies the two matrices and their biases: the exporter writes equal tensors once.
        assert (
            "weights that several layers share are counted once: 'block.0.1.1.1' has those of"
            " '0.0.1', 'block.0.1.1.3' has those of '0.0.3', 'block.1.1.1.1' has those of '0.0.1'"
            " and 3 more (6,912 parameters); exporters write equal tensors once"
        ) in said
        assert -difference == 3 * (2 * 24 * 48 + 48 + 24)
    else:
        assert difference == 0


@pytest.mark.parametrize("file", [file for file in COUNTS if is_one_of(file, REFUSED)])
def test_what_a_network_cannot_say_is_refused_by_name(file: str) -> None:
    with pytest.raises(InputError) as caught:
        import_(model(file))
    assert REFUSED[file.partition(".")[0]] in str(caught.value)


def test_every_file_has_its_count() -> None:
    assert {path.stem for path in FOLDER.glob("*.onnx")} == COUNTS.keys()
