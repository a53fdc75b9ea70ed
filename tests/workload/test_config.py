"""Configurations of language models as networks, beside transformers' own models of them.

``tests/data/configs.json`` has, of transformers 5.24.0, each configuration as ``to_json_string``
writes it, the parameters of the model that ``AutoModelForCausalLM.from_config`` makes of it on the
meta device, and those of each module with weights, ``*`` for the numbers of layers.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.models.config import DECODERS
from hypar_opt.workload.operators.attention import Attention
from hypar_opt.workload.operators.experts import Router
from tests.cli.shell import command

RECORDED = json.loads(Path("tests/data/configs.json").read_text())

LLAMA = RECORDED["llama-3-8b"]["config"]


def read(tmp_path: Path, config: dict[str, Any]) -> ho.Network:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    return ho.read_network(file)


@pytest.mark.parametrize("name", RECORDED)
def test_parameters_are_those_of_the_model(name: str, tmp_path: Path) -> None:
    network = read(tmp_path, RECORDED[name]["config"])
    layers = zip(network.layers, network.maps(), strict=True)
    counts = {layer.name: layer.parameters(maps) for layer, maps in layers if not tied(layer)}
    assert sum(counts.values()) == RECORDED[name]["parameters"]

    # Module by module, of one block of each kind: of the innermost that a layer is in.
    modules: Counter[str] = Counter()
    for layer, count in {re.sub(r"\.\d+\.", ".*.", n): own for n, own in counts.items()}.items():
        outer = (m for m in RECORDED[name]["modules"] if layer == m or layer.startswith(f"{m}."))
        if count:
            modules[max(outer, key=len)] += count
    assert modules == RECORDED[name]["modules"]


def tied(layer: Any) -> bool:
    return layer.shares_weights_with is not None


def test_every_type_of_model_is_recorded() -> None:
    types = {own["config"]["model_type"] for own in RECORDED.values()}
    assert types == {"gpt2", "gpt_neox", *DECODERS}


def test_parts_of_weights_are_marked(tmp_path: Path) -> None:
    """Module by module, as `test_parameters_are_those_of_the_model` has it."""
    for name, recorded in RECORDED.items():
        layers = read(tmp_path, recorded["config"]).layers
        parts = {layer.module for layer in layers if layer.module != layer.name}
        modules = {re.sub(r"\.\d+\.", ".*.", own) for own in parts}
        fused = {own for own in recorded["modules"] if re.search(r"gate_up_proj$|\.kv_[ab]_", own)}
        fused -= {own for own in fused if "experts" in own or "norm" in own}
        assert modules == fused, name


def test_runs_of_blocks_are_numbered_as_one(tmp_path: Path) -> None:
    network = read(tmp_path, RECORDED["deepseek-v3"]["config"])
    runs = [(run.name, run.number, run.count) for run in network.repeats]
    assert runs == [("model.layers", 0, 3), ("model.layers", 3, 58)]
    names = {layer.name for layer in network.layers}
    assert {"model.layers.2.mlp.gate_proj", "model.layers.3.mlp.experts.gate_proj"} <= names


def test_groups_of_experts_divide_any_number_of_tokens(tmp_path: Path) -> None:
    mixture = RECORDED["qwen3-30b-a3b"]["config"] | {"max_position_embeddings": 100}
    routers = {layer.group for layer in read(tmp_path, mixture).layers if isinstance(layer, Router)}
    assert routers == {4}


def test_sigmoids_of_the_best_groups_weigh_deepseek_v3s_experts(tmp_path: Path) -> None:
    network = read(tmp_path, RECORDED["deepseek-v3"]["config"])
    router = next(layer for layer in network.layers if isinstance(layer, Router))
    assert (router.sigmoid, router.factor) == ("normalised", 2.5)
    assert (router.expert_groups, router.top_groups) == (8, 4)
    second = RECORDED["deepseek-v2-lite"]["config"]
    limited = {"topk_method": "group_limited_greedy", "n_group": 8, "topk_group": 3}
    network = read(tmp_path, second | limited | {"routed_scaling_factor": 16.0})
    router = next(layer for layer in network.layers if isinstance(layer, Router))
    assert (router.softmax, router.sigmoid, router.factor) == ("all", None, 16)
    assert (router.expert_groups, router.top_groups) == (8, 3)


def test_gemmas_embeddings_are_scaled(tmp_path: Path) -> None:
    for name, recorded in RECORDED.items():
        first = read(tmp_path, recorded["config"]).layers[0]
        width = recorded["config"].get("hidden_size", 0)
        assert first.scale == (width**0.5 if "gemma" in name else None)  # type: ignore[attr-defined]


def test_gemma_3_sees_all_tokens_in_one_layer_of_six(tmp_path: Path) -> None:
    network = read(tmp_path, RECORDED["gemma-3-1b"]["config"])
    windows = [layer.window for layer in network.layers if isinstance(layer, Attention)]
    assert windows == ([512] * 5 + [None]) * 4 + [512] * 2


def test_keys_that_nothing_reads_are_named(tmp_path: Path) -> None:
    network = read(tmp_path, LLAMA | {"mixed_up": 1, "use_cache": False, "nothing": None})
    assert network.not_kept == ("what these keys say: mixed_up",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "lama"}, "model_type: unknown type of model 'lama': did you mean llama?"),
        ({"hidden_size": "4096"}, "hidden_size: should be a whole number from 1 to"),
        ({"hidden_size": None}, "missing key 'hidden_size'"),
        ({"rms_norm_eps": -1}, "rms_norm_eps: should be a number of 0 or more, got -1"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings: should be true or false, got 1"),
        ({"hidden_act": "gelv"}, "hidden_act: unknown activation 'gelv': did you mean gelu?"),
        ({"rope_parameters": []}, "rope_parameters: should be a table"),
        (
            {"rope_parameters": {"rope_theta": "x"}},
            "rope_parameters, rope_theta: should be a number",
        ),
        ({"layer_types": ["full_attention"]}, "layer_types: should have 32 words, one for each"),
        (
            {"layer_types": ["ssm"] * 32},
            "layer_types: should be full_attention or sliding_attention",
        ),
        ({"dtype": "float8"}, "dtype: should be one of float16, bfloat16, float64, float32"),
        ({"architectures": ["LlamaModel"]}, "architectures: should be a model with a head of its"),
        ({"num_attention_heads": 7}, "heads"),
        (
            {"hidden_size": 64, "num_attention_heads": 128, "head_dim": None},
            "num_attention_heads: should be at most hidden_size, 64, got 128",
        ),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(HyparError) as error:
        read(tmp_path, LLAMA | change)
    assert message in str(error.value)
    assert "config.json: " in str(error.value)
    assert "\n" not in str(error.value)


def test_a_configuration_is_planned_and_imported(tmp_path: Path) -> None:
    small = (
        LLAMA
        | {"num_hidden_layers": 2, "vocab_size": 512, "hidden_size": 64}
        | {"num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 128}
    )
    network = read(tmp_path, small)
    assert ho.show(tmp_path / "config.json") == network
    for asked in (["show"], ["memory", "--batch", "4"], ["simulate", "--array", "h100-8"]):
        assert command([*asked, str(tmp_path / "config.json")], tmp_path).status == 0
    file, imported = str(tmp_path / "config.json"), str(tmp_path / "small.toml")
    plan = ho.solve(file, levels=2, batch=4, tokens=32)
    assert plan.network.description.maps().__next__().output.tokens == 32
    assert command(["import", file, "-o", imported], tmp_path).output.startswith(
        "llama: 30 layers, 442,688 parameters, "
    )
    assert ho.read_network(imported) == network
    # As any network it comes without a name, too.
    text = Path(file).read_text()
    (tmp_path / "config").write_text(text)
    assert ho.read_network(tmp_path / "config") == network
    for asked in (["solve", "-"], ["show", "-"], ["solve", "config"], ["import", "-"]):
        done = command(asked, tmp_path, piped=text)
        assert done.status == 0, done.errors
        assert "llama" in done.output
    assert command(["memory", "-"], tmp_path, piped="{").errors.startswith(
        "hypar-opt: standard input: should be JSON: "
    )
