"""Published networks and exported transformers, read from ONNX."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.documents.toml import toml_text
from hypar_opt.models.imported import read_model
from hypar_opt.workload.description import describe
from hypar_opt.workload.network import Network
from tests.onnx.graph_writer import EXPORTED, LIGHT, kinds

LIGHT_NAMES = (
    *("bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50"),
    *("shufflenet", "squeezenet", "vgg19", "zfnet512"),
)
EXPORTED_NAMES = ("gpt2", "bert", "llama-gqa")


def path_of(name: str) -> Path:
    return LIGHT / f"light_{name}.onnx" if name in LIGHT_NAMES else EXPORTED / f"{name}.onnx"


@cache
def content_of(name: str) -> dict[str, Any]:
    return read_model(path_of(name))[0]


@cache
def network_of(name: str) -> Network:
    return Network.model_validate(content_of(name))


@cache
def total_of(name: str) -> dict[str, int]:
    total: dict[str, int] = describe(network_of(name), 1)["total"]
    return total


# Parameters without the running statistics of batch norms; multiply-accumulates of convolutions,
# products with weights, and attention's two products. DenseNet's are torchvision's 7,978,856 and
# the scale and shift that Caffe puts after each batch norm.
COUNTS = {
    "bvlc_alexnet": (60_965_224, 0.655),
    "densenet121": (7_978_856 + 83_648, 2.834),
    "inception_v1": (6_998_552, 1.432),
    "resnet50": (25_557_032, 4.089),
    "squeezenet": (1_235_496, 0.349),
    "vgg19": (143_667_240, 19.632),
}


@pytest.mark.parametrize("name", COUNTS)
def test_published_networks_have_their_published_counts(name: str) -> None:
    parameters, billions = COUNTS[name]
    assert total_of(name)["parameters"] == parameters
    assert round(total_of(name)["macs"] / 1e9, 3) == billions


@pytest.mark.parametrize("name", LIGHT_NAMES)
def test_a_published_network_ends_in_a_thousand_classes(name: str) -> None:
    *_, last = network_of(name).maps()
    assert (last.output.channels, last.output.positions) == (1000, 1)


@pytest.mark.parametrize("name", LIGHT_NAMES + EXPORTED_NAMES)
def test_the_file_that_is_written_is_the_network_that_was_read(name: str) -> None:
    text = toml_text(content_of(name))
    again = tomllib.loads(text)
    assert again == content_of(name)
    assert Network.model_validate(again).digest() == network_of(name).digest()


@pytest.mark.parametrize(
    ("reading", "choices"),
    [
        *((reading, ("data", "model")) for reading in ("text", "tables", "figures", "executed")),
        *((reading, ("data", "model", "output")) for reading in ("text", "tables")),
    ],
)
def test_vgg_19_is_the_papers_vgg_e(reading: str, choices: tuple[str, ...]) -> None:
    ours, zoo = (
        ho.solve(network, reading=reading, choices=choices)
        for network in (network_of("vgg19"), "vgg-e")
    )
    assert ours.cost == zoo.cost
    assert ours.parallelism == zoo.parallelism


def test_networks_of_caffe_name_their_layers_after_their_weights() -> None:
    names = [layer.name for layer in network_of("vgg19").layers]
    assert names[:3] == ["conv1_1", "conv1_2", "conv2_1"]
    assert names[-3:] == ["fc6", "fc7", "fc8"]
    assert "res4.2.branch2b" in {layer.name for layer in network_of("resnet50").layers}


def test_relu_and_pools_join_the_convolution_before_them() -> None:
    first = content_of("bvlc_alexnet")["layer"][0]
    # The local response norm between them is elementwise here, as in the paper.
    assert first["activation"] == "relu"
    assert first["pool"] == {"kind": "max", "size": 3, "stride": 2}


def test_a_channel_shuffle_is_one_layer() -> None:
    network = network_of("shufflenet")
    shuffles = [layer for layer in network.layers if layer.kind == "shuffle"]
    assert len(shuffles) == 16
    assert {layer.groups for layer in shuffles} == {4}  # type: ignore[attr-defined]


def test_gpt_2_counts_its_tied_head_once() -> None:
    network = network_of("gpt2")
    (head,) = [layer for layer in network.layers if layer.shares_weights_with]
    assert head.shares_weights_with == "embedding"
    # Two of GPT-2's blocks without biases, which are zeros in this export and left out.
    width, block = 768, 12 * 768**2 + 4 * 768
    assert total_of("gpt2")["parameters"] == (50_257 + 1024 + 2) * width + 2 * block


@pytest.mark.parametrize(
    ("name", "heads", "block"),
    [
        ("gpt2", (12, None), "transformer.h"),
        ("bert", (12, None), "block"),
        ("llama-gqa", (8, 2), "block"),  # behind rotary embeddings
    ],
)
def test_blocks_and_heads_of_transformers_are_found(
    name: str, heads: tuple[int, int | None], block: str
) -> None:
    network = network_of(name)
    found = [
        (layer.heads, layer.kv_heads)  # type: ignore[attr-defined]
        for layer in network.layers
        if layer.kind == "attention"
    ]
    assert found == [heads] * 2
    assert [(run.name, run.count) for run in network.repeats] == [(block, 2)]
    if name == "llama-gqa":
        assert kinds(network).count("mul") == 2  # the gate of each MLP alone
        assert kinds(network).count("norm") == 5


def test_a_models_weights_need_not_be_there() -> None:
    """The exported transformers keep their weights in a file that is not beside them."""
    assert not list(EXPORTED.glob("*.data"))
    assert total_of("bert")["parameters"] == 38_602_752


@pytest.mark.parametrize("name", ["resnet50", "gpt2"])
def test_a_model_is_solved_by_its_path(name: str) -> None:
    plan = ho.solve(path_of(name), batch=8, levels=1)
    assert plan.cost.total == ho.solve(network_of(name), batch=8, levels=1).cost.total
