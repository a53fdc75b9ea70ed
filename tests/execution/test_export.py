"""What ``export`` writes: a module that needs jax alone, and shardings by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.execution.export import jax_module, sharded_plan
from hypar_opt.execution.jax.weights import weights_of
from hypar_opt.execution.shardings import shardings
from hypar_opt.hierarchy import parts_by_share
from hypar_opt.plan.plan import Plan
from hypar_opt.workload.network import Network
from tests.commands import ended
from tests.execution.small_networks import (
    by_tokens,
    chain,
    cnn,
    decoder,
    gpt,
    one_image,
    residual,
)
from tests.slow import slow_after
from tests.strategies.groups import nodes, of_counts
from tests.strategies.problems import random_network


def solved(network: Network, *hierarchy: int, batch: int = 24) -> Plan:
    return ho.solve(
        network,
        batch=batch,
        hierarchy=hierarchy or (2, 2),
        whole_levels=True,
        choices=("data", "model", "output"),
        reading="executed",
        constraints={"even": True},
    )


def exported(network: Network, *hierarchy: int) -> Plan:
    """Return a plan of a network; of `decoder`, one whose attention is by tokens; else of rows."""
    if network.name == "small ResNet":
        return one_image(*hierarchy)
    if network.name == "decoder":
        return by_tokens(network, 24, *hierarchy)
    return solved(network, *hierarchy)


def odd_names() -> Network:
    names = ['a"b', "a'b\\", "def", "1st", "conv", "x", "\\n{name}", 'é """']
    layers = [{"name": name, "kind": "fc", "units": 8} for name in names]
    return Network.model_validate(
        {"name": 'quotes " and \\ """', "input": {"features": 8}, "layer": layers}
    )


def test_exported_modules_run_where_hypar_opt_is_not(tmp_path: Path) -> None:
    """In a process that sees jax and no package of ours; the first has most devices made."""
    plans = [one_image(2, 2, 2), solved(chain(), 3, 2), solved(chain(), 2, 2)]
    calls = ["import sys", "sys.modules['hypar_opt'] = None", "import runpy"]
    for number, plan in enumerate(plans):
        file = tmp_path / f"model_{number}.py"
        file.write_text(jax_module(plan))
        calls.append(f"runpy.run_path({str(file)!r}, run_name='__main__')")
    call = "; ".join(calls)
    done = ended(sys.executable, "-I", "-c", call, cwd=tmp_path)
    for plan, said in zip(plans, done.stdout.split("loss ")[1:], strict=True):
        first, *_, last = said.splitlines()
        assert first.endswith(f"on {plan.accelerators} devices")
        assert last.split()[-2:] == [f"{plan.cost.total:,}", "bytes"]


@pytest.mark.parametrize("hierarchy", [(2, 2), (3, 4)])
@pytest.mark.parametrize(
    "network", [odd_names(), chain(), cnn(), gpt(tied=True), decoder(12), residual(12)]
)
def test_exported_modules_are_formatted(
    network: Network, hierarchy: tuple[int, ...], tmp_path: Path
) -> None:
    """A formatter changes nothing, and a linter finds nothing imported or defined in vain."""
    file = tmp_path / "model_sharded.py"
    file.write_text(jax_module(exported(network, *hierarchy), approximate=True))
    ruff = Path(sys.executable).with_name("ruff")
    ended(ruff, "check", "--isolated", file)
    ended(ruff, "format", "--check", "--isolated", "--line-length", "100", file)


def test_stored_arrays_lose_and_repeat_nothing() -> None:
    """Weights behind a concatenation and of fused heads are reordered, and back again."""
    rng = np.random.default_rng(0)
    for network in (cnn(), gpt(tied=True), chain()):
        for weights in weights_of(sharded_plan(solved(network, 2, 3, 2))).values():
            sizes = [dim if isinstance(dim, int) else dim.size for dim in weights.tensor.dims]
            array = rng.standard_normal(sizes)
            stored = weights.tensor.stored(array)
            assert stored.shape == weights.tensor.shape
            assert (weights.tensor.original(stored) == array).all()


def test_shardings_name_what_each_level_splits() -> None:
    plan = solved(chain(), 2, 3)
    document = shardings(plan)
    assert document["schema"] == "hypar-opt/shardings/1"
    assert document["mesh"] == {"h1": 2, "h2": 3}
    assert list(document["tensors"]) == list(plan.layers)
    for level, row in enumerate(plan.parallelism):
        for name, choice in zip(plan.layers, row, strict=True):
            weights = document["weights"][name]
            split = weights["split"][f"h{level + 1}"]
            assert (split is None) == (choice == "data")
            assert (f"h{level + 1}" in weights["all_reduced"]) == (choice == "data")
            assert document["layers"][name]["choices"][f"h{level + 1}"] == choice
    json.dumps(document, allow_nan=False)


def _every_array(document: dict[str, Any]) -> list[dict[str, Any]]:
    parts = ("inputs", "weights", "tensors", "targets")
    return [array for part in parts for array in document[part].values()]


@pytest.mark.parametrize("network", [chain(), cnn(), gpt(tied=True), decoder(24)])
@pytest.mark.parametrize("hierarchy", [(2, 2, 2), (4, 3)])
def test_every_array_is_split_where_it_has_as_many_parts(
    network: Network, hierarchy: tuple[int, ...]
) -> None:
    document = shardings(exported(network, *hierarchy))
    for array in _every_array(document):
        split = {name: dim for name, dim in array["split"].items() if dim is not None}
        assert len({*split.values()}) == len(split)
        assert all(array["shape"][dim] == document["mesh"][name] for name, dim in split.items())
        assert np.prod(array["shape"]) == np.prod([dim["size"] for dim in array["dims"]])


def test_keys_and_values_of_attention_by_tokens_are_read_whole() -> None:
    document = shardings(by_tokens(decoder(6), 6, 3))
    for name in ("across", "causal", "again"):
        layer = document["layers"][name]
        assert layer["reads"] == layer["writes"] == {"h1": "token"}
        assert layer["reads_others"] == [{"h1": "whole"}] * 2
        tokens = document["tensors"][name]["dims"][1]
        assert tokens == {"name": "tokens", "size": 6, "levels": ["h1"], "segments": [6]}
    assert "reads_others" not in document["layers"]["gated"]
    assert [*document["biases"]] == ["k", "gate"]
    for bias in document["biases"].values():  # split as the output's channels, or reduced
        assert (bias["split"]["h1"] is None) == (bias["all_reduced"] == ["h1"])
    assert "biases" not in shardings(exported(chain(), 2))


@pytest.mark.parametrize("seed", slow_after(3, range(6)))
def test_shards_of_unequal_parts_are_those_of_the_choices_and_shares(seed: int) -> None:
    rng = Random(seed)
    array = [nodes(2), of_counts((4, 2))][seed % 2]
    network = random_network(rng, 4)
    fix = [f"{layer.name}@H2={rng.choice(['data', 'model'])}" for layer in network.layers]
    fix.append(f"{network.layers[0].name}@H1=first")
    plan = ho.solve(
        network,
        array=array,
        share=0.3,
        batch=50,
        constraints={"fix": fix, "runnable": False},
    )
    document = shardings(plan)
    assert document["schema"] == "hypar-opt/shards/1"
    assert document["groups"]["fast" if seed % 2 == 0 else "b"]["devices"][1] == plan.accelerators
    levels = list(zip(plan.hierarchy.sizes, plan.parallelism, strict=True))
    for n, name in enumerate(plan.layers):
        choices = [row[n] for _, row in levels]
        weights = document["weights"].get(name)
        if weights:
            # Each element is held as often as data parallelism copies it.
            held = np.zeros([dim["size"] for dim in weights["dims"]], int)
            for shard in weights["shards"]:
                held[np.ix_(*(_indices(runs) for runs in shard))] += 1
            copied = [parts for parts, row in levels if row[n] == "data"]
            assert (held == np.prod(copied, dtype=int)).all()
            assert weights["all_reduced"] == [
                f"h{k + 1}" for k, c in enumerate(choices) if c == "data"
            ]
        if {*choices} == {"data"}:
            below = plan.accelerators // plan.hierarchy.sizes[0]
            images = [len(_indices(batch)) for batch, *_ in document["tensors"][name]["shards"]]
            of_parts = [sum(images[p : p + below]) for p in range(0, len(images), below)]
            assert of_parts == parts_by_share(50, plan.part_shares)


def _indices(runs: list[list[int]]) -> list[int]:
    return [index for first, end in runs for index in range(first, end)]


def test_pytorch_takes_the_shardings(tmp_path: Path) -> None:
    """DTensor gives each of four processes the shard that the document names."""
    pytest.importorskip("torch")
    file = tmp_path / "shardings.json"
    file.write_text(json.dumps(shardings(solved(gpt(tied=True)))))
    script = Path(__file__).with_name("in_pytorch.py")
    ended(sys.executable, script, file)


def test_kinds_and_activations_without_a_program_are_refused_by_name() -> None:
    layer = {"name": "fc", "kind": "fc", "units": 8, "activation": "wavy"}
    network = Network.model_validate({"name": "n", "input": {"features": 8}, "layer": [layer]})
    with pytest.raises(ho.HyparError, match="layer 'fc', activation: 'wavy' is not known"):
        jax_module(solved(network, 2))
