"""Presets that say what kernels achieve, each number with its source; the paper's say nothing."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

import hypar_opt as ho
from hypar_opt.hardware import arrays
from hypar_opt.hardware.accelerator import OF_KERNELS

OF_GPUS = [name for name in arrays.names() if re.match("(mosaic-)?[ahv]100-|gb200|rtx", name)]
OF_TODAY = [name for name in OF_GPUS if not name.startswith("mosaic-")]
OF_THE_PAPER = [name for name in arrays.names() if name.startswith("hmc-")]


def text(name: str) -> str:
    return (files(arrays) / f"{name}.toml").read_text("utf-8")


def test_there_are_presets_of_five_machines() -> None:
    assert {name[:4] for name in OF_TODAY} == {"a100", "h100", "v100", "gb20", "rtx4"}


@pytest.mark.parametrize("name", OF_GPUS)
def test_a_preset_says_what_kernels_achieve_and_whence(name: str) -> None:
    own = arrays.load(name).accelerator
    assert own.utilisation is None
    for key in ("gemm", "elementwise", "launch", "host"):
        assert getattr(own, key) is not None
    assert (own.flash is None) == (own.attention == "unfused")
    # Convolutions were not looked at in 2023.
    assert (own.conv is None) == (name not in OF_TODAY)
    said = text(name)
    assert "fitted on" in said or "No training step of this machine" in " ".join(said.split("\n# "))
    for words in ("launch of a kernel", "assumed"):
        assert words in said
    # Links are what collectives reach, and not what the datasheet says.
    assert re.search(r"^# (Inside a node NCCL's|Assumed: )|[.] Assumed: ", said, re.M)


@pytest.mark.parametrize("name", [name for name in OF_TODAY if f"mosaic-{name}" in arrays.names()])
def test_the_kernels_of_2023_differ_in_what_they_achieve_alone(name: str) -> None:
    today, then = (arrays.load(own).description() for own in (name, f"mosaic-{name}"))
    for own in (today, then):
        for key in ("gemm", "conv", "elementwise", "flash", "loss"):
            own["accelerator"].pop(key, None)
        del own["name"]
    assert today == then
    flash = [arrays.load(own).accelerator.flash or 0 for own in (name, f"mosaic-{name}")]
    assert flash[0] > 1.5 * flash[1] > 0


@pytest.mark.parametrize(
    ("name", "gpus", "images"),
    [
        ("a100-8", 1, 2470),
        ("a100-8", 8, 16621),
        ("v100-16", 1, 1200),
        ("v100-16", 8, 8322),
        ("v100-16", 1, 1156),
        ("v100-16", 8, 8056),
    ],
)
def test_resnet_50_trains_as_many_images_a_second_as_was_published(
    name: str, gpus: int, images: int
) -> None:
    """NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, training in mixed precision."""
    described = arrays.load(name).description()
    topology = described["topology"] | {"per_node": gpus}
    array = ho.Array.model_validate({**described, "topology": topology})
    of_sgd = {"optimizer": "momentum"}
    batch = 256 * gpus
    step = ho.simulate("resnet-50", array, batch=batch, solver="data", constraints=of_sgd)
    assert step.seconds == pytest.approx(256 * gpus / images, rel=0.1)


def test_the_groups_of_a_mixed_preset_are_the_presets_of_each() -> None:
    mixed, alone = arrays.load("a100-h100-2x8"), [*map(arrays.load, ("a100-8", "h100-8"))]
    for group, array in zip(mixed.groups, alone, strict=True):
        of_group = group.model_dump(exclude={"name"})
        assert of_group == {"count": 8, **array.accelerator.model_dump()}
    of_nodes = [array.description()["topology"] for array in (mixed, *alone)]
    for own in ("link", "fabric"):
        assert of_nodes[0][own] == of_nodes[1][own]


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_the_papers_have_none_of_the_keys(name: str) -> None:
    own = arrays.load(name).accelerator
    assert own.gemm is None
    assert all(getattr(own, key) is None for key in OF_KERNELS)
    assert own.reserve is None


@pytest.mark.parametrize(
    ("gpus", "mebibytes", "bus"),
    [
        (2, 256, 184.39),
        (4, 256, 208.73),
        (8, 256, 217.25),
        (8, 8, 109.3),
        (8, 1, 19.78),
        (4, 1, 30.6),
        (8, 1024, 229.35),
    ],
)
def test_an_all_reduce_in_a_node_takes_what_nccl_takes(
    gpus: int, mebibytes: int, bus: float
) -> None:
    """nccl-tests on a node of A100, bus bandwidth in GB/s: vTrain's AR_GPU*_1M_1024M_LUT (MIT)."""
    described = arrays.load("a100-8").description()
    topology = dict(described["topology"]) | {"per_node": gpus}
    array = ho.Array.model_validate({**described, "topology": topology})
    elements = mebibytes * 2**20 // 2
    network = ho.Network.model_validate(
        {
            "name": "one gradient",
            "input": {"channels": elements // 2**10, "height": 1, "width": 1},
            "layer": [{"name": "fc", "kind": "fc", "units": 2**10}],
        }
    )
    step = ho.simulate(network, array, batch=gpus, solver="data")
    moved = 2 * (gpus - 1) / gpus * 2 * elements
    assert step.communication == pytest.approx(moved / (bus * 1e9), rel=0.35)
