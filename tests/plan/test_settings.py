"""Keys of a network's and an array's file that a call sets: the same as editing the files."""

from __future__ import annotations

import json
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.documents.toml import toml_text
from hypar_opt.hardware.arrays import find_array, names
from hypar_opt.plan.settings import changed, keys
from tests.cli.shell import Shell
from tests.slow import slow_after

ARRAY, NODE = "h100-8x8", "h100-8"
"""Eight nodes, and one of them."""


def test_a_set_key_is_that_key_of_an_edited_file(tmp_path: Path, shell: Shell) -> None:
    """The same plan, to the digit, as the file with the other value has."""
    content = tomllib.loads(shell.output("show", NODE, "--toml"))
    content["topology"]["link"]["bandwidth"] = "50 GB/s"
    edited = tmp_path / "edited.toml"
    edited.write_text(toml_text(content))
    typed = ["topology.link.bandwidth=50 GB/s", "link.bandwidth=50 GB/s", "link.bandwidth='50GB/s'"]
    call = ("solve", "sfc", "--overlap", "none", "--array")
    costs = [shell.document(*call, NODE, "--set", pair)["cost"] for pair in typed]
    assert costs == 3 * [shell.document(*call, edited)["cost"]]
    assert costs[0] != shell.document(*call, NODE)["cost"]
    settings = {"link.bandwidth": "50 GB/s"}
    from_python = ho.solve("sfc", array=NODE, overlap="none", settings=settings)
    assert from_python.cost.total == costs[0]["total"]
    assert from_python.array is not None
    assert from_python.array.name == "h100-8 (topology.link.bandwidth = 50 GB/s)"


@pytest.mark.parametrize(
    "value", ["0x" + "f" * 4000, "9" * 1001, "9" * 5000, "[" + "9" * 2000 + "]"]
)
def test_a_number_that_no_file_may_have_is_refused_by_its_key(value: str, shell: Shell) -> None:
    call = ("lenet-c", "--array", "hmc-htree-4", "--set", f"layer.fc1.units={value}")
    for command in ("solve", "simulate", "show"):
        said = shell.refused(command, *(call if command != "show" else (call[0], *call[3:])))
        assert said == "--set: layer.fc1.units: should have at most 1,000 digits"


@pytest.mark.parametrize(
    "call",
    [
        "simulate {} --array hmc-htree-4",
        "memory {} --array h100-8 --micro-batches 1 --recompute none --shard none",
        "compare {} --levels 1",
        "pareto {} --levels 1 --points 1",
        "explore {} --levels 1 --free H1",
        "sweep {} --levels 1 --batches 1:20",
        "show {} --batch 8",
    ],
)
def test_each_command_sets_a_key_as_in_an_edited_file(
    call: str, tmp_path: Path, shell: Shell
) -> None:
    content = tomllib.loads(shell.output("show", "lenet-c", "--toml"))
    layer = next(one for one in content["layer"] if one["name"] == "fc1")
    layer["units"] = 300
    edited = tmp_path / "edited.toml"
    edited.write_text(toml_text(content))
    set_ = shell.document(*call.format("lenet-c").split(), "--set", "layer.fc1.units=300")
    document = json.loads(json.dumps(set_).replace(" (layer.fc1.units = 300)", ""))
    expected = shell.document(*call.format(edited).split())
    for one in (document, expected):
        one.pop("digest", None)  # of the name, too
    assert document == expected


def test_an_array_is_shown_with_another_bandwidth(shell: Shell) -> None:
    shown = shell.document("show", ARRAY, "--set", "fabric.bandwidth=10 GB/s")
    assert shown["name"] == "h100-8x8 (topology.fabric.bandwidth = 10 GB/s)"
    assert shell.refused("show", ARRAY, "--set", "input.tokens=8").endswith("a key of a network")
    assert "--toml prints only the file" in shell.refused(
        "show", ARRAY, "--toml", "--set", "fabric.bandwidth=10 GB/s"
    )


@pytest.mark.parametrize("name", slow_after(12, names()[::2] + names()[1::2]))
def test_every_key_of_every_preset_can_be_set_to_what_it_is(name: str) -> None:
    """Then nothing is another but the name."""
    array, network = find_array(name), ho.load("gpt2")
    content = array.description()
    for key in keys(array):
        value: Any = content
        for part in key.split("."):
            groups = {one["name"]: one for one in value} if isinstance(value, list) else value
            value = groups[part]
        same = changed(network, array, {key: value})
        assert same.network is network
        assert same.array is not None
        assert same.array.model_copy(update={"name": array.name}) == array


@pytest.mark.parametrize("name", ["gpt2", "llama-7b", "t5-base"])
def test_tokens_are_those_of_the_option(name: str, shell: Shell) -> None:
    """Tables of positions follow the length of the sequences."""
    call = ("show", name, "--batch", "2")
    by_key = shell.document(*call, "--set", "input.tokens=256")
    by_option = shell.document(*call, "--tokens", "256")
    for one in (by_key, by_option):
        del one["name"], one["digest"]
    assert by_key == by_option


def test_more_tokens_than_positions_are_refused(shell: Shell) -> None:
    said = shell.refused("solve", "gpt2", "--set", "input.tokens=4096")
    assert "should be at most 1,024, the learned positions of layer 'position'" in said


def test_settings_of_a_network_and_of_what_a_file_leaves_out() -> None:
    network, array = ho.load("llama-7b"), find_array(ARRAY)
    settings = {"tokens": 8192, "repeat": 2, "bucket": "50 MB", "overlap": "gradient"}
    result = changed(network, array, settings)
    assert result.columns == {
        "input_tokens": 8192,
        "block_decoder_repeat": 2,
        "bucket_bytes": 50_000_000,
        "overlap": "gradient",
    }
    assert result.network.input.tokens == 8192  # type: ignore[union-attr]
    assert result.array is not None
    assert (result.array.bucket, result.array.overlap) == (Fraction(50_000_000), "gradient")
    energy = {"energy.mac": "1 pJ", "energy.dram": "2 pJ", "energy.remote": "3 pJ"}
    assert changed(network, array, energy).columns["energy_dram_joules"] == 2e-12


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("bandwidth=1 GB/s", "is one of topology.link.bandwidth, topology.fabric.bandwidth"),
        ("topology.lnik.bandwidth=1 GB/s", "topology: unknown key 'lnik': did you mean link?"),
        ("link.bandwidth=5", 'link, bandwidth: should be a bandwidth, as in "25.6 Gb/s" (bits)'),
        ("elementwise=true", "accelerator, elementwise: should be a number, got true"),
        ("layer.fc9.units=5", "unknown key 'layer.fc9.units': did you mean layer.fc3?"),
        ("name=mine", "unknown key 'name'"),
        ("nodes", "should be KEY=VALUE, got 'nodes'"),
        ("energy.mac=1 pJ", "energy: missing key 'dram'"),
        ("topology=torus", "topology: should be a table, got 'torus'"),
        ("fc1.units=0", "layer 'fc1', units: should be greater than or equal to 1, got 0"),
        ("link.bandwidth=1\n[x]", "got '1\\n[x]'"),
    ],
)
def test_a_wrong_key_or_value_is_named_in_one_line(typed: str, said: str, shell: Shell) -> None:
    call = ("vgg-a", "--array", ARRAY, "--set", typed)
    line = shell.refused("solve", *call)
    assert line.startswith("--set")
    assert said in line
    assert shell.refused("simulate", *call) == line


def test_a_key_is_set_once_on_an_array_that_is_there(tmp_path: Path, shell: Shell) -> None:
    twice = ("--set", "link.bandwidth=1 GB/s", "--set", "topology.link.bandwidth=2 GB/s")
    assert "is set twice" in shell.refused("solve", "vgg-a", "--array", ARRAY, *twice)
    said = "'topology.nodes' is a key of an array: --array NAME|FILE"
    assert said in shell.refused("solve", "vgg-a", "--set", "topology.nodes=3")
    plan = tmp_path / "plan.json"
    own = shell.document("solve", "sfc", "--array", ARRAY, "--solver", "data", "-o", plan)
    faster = shell.document("simulate", plan, "--set", "link.bandwidth=900 GB/s")
    assert faster["seconds"] < shell.document("simulate", plan)["seconds"]
    assert faster["parallelism"] == own["parallelism"]
    said = "the plan fixes its network"
    assert said in shell.refused("simulate", plan, "--set", "input.features=392")
    said = "the array h100-8x8 (topology.nodes = 4) has 32"
    assert said in shell.refused("simulate", plan, "--set", "nodes=4")
