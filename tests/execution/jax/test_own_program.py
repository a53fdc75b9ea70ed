"""PartitionSpecs for one's own JAX program: each device has the plan's parts of parameters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.execution.export import jax_shardings, sharded_plan
from hypar_opt.execution.jax.mesh import level_axes
from hypar_opt.execution.jax.weights import biases_of, weights_of
from tests.execution.jax.steps import ROOT
from tests.execution.small_networks import gpt, one_image

MLP = ho.Network.model_validate(
    {
        "schema": "hypar-opt/network/2",
        "name": "two layers",
        "input": {"features": 16},
        "layer": [
            {"name": "up", "kind": "fc", "units": 32, "bias": True, "activation": "relu"},
            {"name": "down", "kind": "fc", "units": 8, "bias": True},
        ],
    }
)
PINS = {
    "data": ("*=data",),
    "Megatron": ("up=output", "down=model"),
    "both": ("up@H1=data", "down@H1=data", "up@H2=output", "down@H2=model"),
    "crossed": ("up=model", "down=output"),
}


def in_own_program(
    plans: list[ho.Plan], folder: Path, program: str = "in_own_program"
) -> list[dict[str, Any]]:
    """Return what was found of a step by each plan, all in one process, which imports jax once."""
    files = [folder / f"shardings_{number}.py" for number in range(len(plans))]
    for file, plan in zip(files, plans, strict=True):
        file.write_text(jax_shardings(plan))
    flags = (
        f"--xla_force_host_platform_device_count={plans[0].accelerators} {os.environ['XLA_FLAGS']}"
    )
    done = subprocess.run(
        [sys.executable, "-m", f"tests.execution.jax.{program}", *files],
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_a_program_of_ones_own_has_the_plans_parts_and_the_same_numbers(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"batch": 8, "levels": 2, "choices": ("data", "model", "output")}
    plans = [ho.solve(MLP, constraints={"fix": fix}, **asked) for fix in PINS.values()]
    for plan, found in zip(plans, in_own_program(plans, tmp_path), strict=True):
        assert_as_sharded(plan, found)


def assert_as_sharded(plan: ho.Plan, found: dict[str, Any]) -> None:
    assert found["loss"] < 1e-9
    assert found["apart"] < 1e-9
    assert found["reduces"]
    sharded = sharded_plan(plan, axes_of=level_axes)
    parts = {**weights_of(sharded), **biases_of(sharded)}
    for layer in ("up", "down"):
        for name, own in ((f"{layer}.kernel", layer), (f"{layer}.bias", f"bias of {layer}")):
            tensor = parts[own].tensor
            expected = [
                dim.size // plan.hierarchy.parts(split)  # type: ignore[union-attr]
                for dim, split in zip(tensor.dims, tensor.split, strict=True)
            ]
            assert found["shards"][name] == expected
    assert found["shards"]["other"] == [3]


def test_a_layer_whose_weights_are_anothers_has_its_bias() -> None:
    description = gpt(tied=True).description()
    (head,) = (row for row in description["layer"] if row["name"] == "head")
    head["bias"] = True
    network = ho.Network.model_validate(description)
    made: dict[str, Any] = {}
    plan = ho.solve(network, levels=1, batch=8, constraints={"fix": ("head=model", "token=model")})
    exec(jax_shardings(plan), made)
    assert "head" not in made["PARAMETERS"]
    assert tuple(made["BIASES"]["head"]) in {(None,), ("h1",)}


def test_images_are_split_by_rows_and_columns_in_order() -> None:
    """XLA's partitioner exchanges their borders."""
    made: dict[str, Any] = {}
    plan = one_image(2, 2, 2)
    exec(text := jax_shardings(plan), made)
    layer = plan.layers.index("a1")
    words = [row[layer] for row in plan.parallelism]
    by = {axis: tuple(f"h{n + 1}" for n, own in enumerate(words) if own == axis) for axis in words}
    assert by.keys() == {"rows", "columns"}
    rows, columns = (own if len(own) > 1 else own[0] for own in (by["rows"], by["columns"]))
    assert tuple(made["TENSORS"]["a1"]) == (None, rows, columns, None)
    assert "XLA exchanges what windows read" in " ".join(text.split())


def test_what_a_partition_spec_cannot_say_is_said() -> None:
    """Queries, keys and values of one product are split by head, each by itself."""
    pins = ("*.attention=model", "*.qkv=output")
    asked: dict[str, Any] = {"levels": 1, "batch": 8, "choices": ("data", "model", "output")}
    plan = ho.solve(gpt(tied=False), constraints={"fix": pins}, **asked)
    assert "split part by part" in jax_shardings(plan)
    assert "split part by part" not in jax_shardings(ho.solve(MLP, batch=8, levels=1))
    with pytest.raises(ho.HyparError, match="splits nothing that could be exported"):
        jax_shardings(ho.solve(MLP, batch=8, levels=0))


def test_parts_of_one_weight_have_one_spec() -> None:
    """Of the module that has them: whole where the plan splits them differently."""
    part = {"kind": "fc", "units": 32, "inputs": ["input"], "bias": True, "part": True}
    network = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "one gated layer",
            "input": {"tokens": 4, "features": 16},
            "layer": [
                {"name": "mlp.gate_up.gate", **part, "activation": "silu"},
                {"name": "mlp.gate_up.up", **part},
                {"name": "mul", "kind": "mul", "inputs": ["mlp.gate_up.gate", "mlp.gate_up.up"]},
                {"name": "mlp.down", "kind": "fc", "units": 16},
            ],
        }
    )
    own = []
    for up in ("output", "data"):
        pins = ("mlp.gate_up.gate=output", f"mlp.gate_up.up={up}")
        asked: dict[str, Any] = {"batch": 8, "levels": 1, "choices": ("data", "model", "output")}
        made: dict[str, Any] = {}
        exec(text := jax_shardings(ho.solve(network, constraints={"fix": pins}, **asked)), made)
        assert "Weights whose parts are layers" in " ".join(text.split())
        assert made["SHAPES"] == {"mlp.gate_up": (16, 64), "mlp.down": (32, 16)}
        tree = {"mlp": {"gate_up": {"kernel": np.zeros((16, 64)), "bias": np.zeros(64)}}}
        specs = made["parameter_shardings"](tree, jax.sharding.AbstractMesh((2,), made["LEVELS"]))
        own.append({name: tuple(one.spec) for name, one in specs["mlp"]["gate_up"].items()})
    assert own == [
        {"kernel": (None, "tp"), "bias": ("tp",)},
        {"kernel": (None, None), "bias": (None,)},
    ]


def test_a_scan_over_stacked_blocks_has_the_plans_parts_and_the_same_numbers(
    tmp_path: Path,
) -> None:
    """As MaxText has them; where blocks are split differently, the first that differs is named."""
    network = gpt(tied=False, blocks=2)
    asked: dict[str, Any] = {"batch": 8, "array": "a100-8"}
    plans = [
        ho.solve(network, degrees="tp=2,dp=4", training={"shard": "weights@H2-H3"}, **asked),
        ho.solve(network, constraints={"fix": ("decoder.1.up@H3=output",)}, **asked),
    ]
    found, other = in_own_program(plans, tmp_path, "in_scanned_program")
    assert found["loss"] < 1e-9
    assert found["gradients"] < 1e-9
    made: dict[str, Any] = {}
    exec(jax_shardings(plans[0]), made)
    sizes = dict(zip(made["LEVELS"], made["SIZES"], strict=True))
    for layer, whole in {"qkv": (16, 48), "up": (16, 64), "down": (64, 16)}.items():
        split = made["PARAMETERS"][f"decoder.0.{layer}"]
        own = [n // parts_of(axes, sizes) for n, axes in zip(whole, split, strict=True)]
        assert own != [*whole]
        assert found["shards"][f"decoder.{layer}.kernel"] == [2, *own]
        assert found["second"][f"{layer}.kernel"] == [own[0], 2, own[1]]
    assert found["shards"]["decoder.qkv.bias"] == [2, 24]
    assert found["second"]["qkv.bias"] == [24, 2]
    assert "dimension 0 should be of 2 layers, got (" in found["refused for its size"]
    refusal = "decoder.down: the plan has P('h3', None) for decoder.1.down, and P(None, None) for"
    assert refusal in other["refused"]


def test_features_may_be_several_dimensions() -> None:
    """Heads and their features, as attention in flax and MaxText has them; axes go to the first."""
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "degrees": "tp=2,dp=4"}
    plan = ho.solve(gpt(tied=False), training={"shard": "weights"}, **asked)
    made: dict[str, Any] = {}
    exec(jax_shardings(plan), made)
    both = ("tp", "fsdp")
    for layer, shape, spec in (
        ("qkv", (16, 48), (None, both)),
        ("qkv", (16, 3, 8, 2), (None, None, both, None)),
        ("qkv", (3, 8, 2), (None, "tp", None)),  # its bias, of which no shards are kept
        ("proj", (8, 2, 16), (both, None, None)),
        ("proj", (2, 8, 16), ("tp", "fsdp", None)),
        ("norm1", (16,), (("fsdp", "tp"),)),  # split by token: by no level, so the outermost first
        ("up", (16, 40), (None, both)),  # of another size than the plan's
        ("up", (2, 3, 4), ()),
    ):
        assert tuple(made["of_layer"](f"decoder.0.{layer}", shape)) == spec, (layer, shape)


def parts_of(axes: Any, sizes: dict[str, int]) -> int:
    return prod(sizes[name] for name in (axes if isinstance(axes, tuple) else (axes,)) if name)
