"""Runs of plans in pipeline stages, wherever the network is cut and whatever is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.models.gpt import gpt
from hypar_opt.pipeline import plan_of_stages
from hypar_opt.plan.stages import Stages
from hypar_opt.workload.network import Network
from hypar_opt.workload.stages import cuts
from tests.instance.test_staged import nodes, problem, solved
from tests.slow import slow_after


def chain(kind: str, keys: dict[str, Any], **network: Any) -> Network:
    """Five layers without blocks."""
    layers = [{"name": f"{kind}{n}", "kind": kind, **keys} for n in range(5)]
    return Network.model_validate({"name": f"{kind}s", "layer": layers, **network})


NETWORKS = {
    "gpt": gpt(layers=2, hidden=32, heads=4, tokens=8, vocabulary=64, tied=False),
    "fc": chain("fc", {"units": 16}, input={"features": 16}),
    "conv": chain(
        "conv",
        {"filters": 8, "kernel": 3, "padding": 1},
        input={"channels": 4, "height": 8, "width": 8},
    ),
}
SPLIT = {
    "any": [],
    "model": ["*@H2=model"],
    "tensor": ["*.qkv@H2=output", "*.up@H2=output", "*.down@H2=model"],
}
AGAIN: dict[str, dict[str, Any]] = {
    "none": {},
    "full": {"recompute": "full"},
    "op": {"recompute": "op"},
    "selective": {"recompute": "selective"},
    "some": {"recompute": {"*.0.*": "full", "*.1.*": "op"}},
    "gathered": {"recompute": {"*.1.*": "full"}, "gather": {"*": "again"}},
    "sharded": {"recompute": "full", "shard": "weights"},
}
CASES = [
    (name, split, again)
    for name in NETWORKS
    for split in (SPLIT if name == "gpt" else ("any", "model"))
    for again in (AGAIN if name == "gpt" else ("full", "op", "sharded"))
]
FIRST = [("gpt", "any", "full"), ("gpt", "tensor", "op"), ("fc", "model", "full")]


def check(network: Network, ends: Sequence[int], parts: int, split: str, again: str) -> None:
    """A run computes one device's numbers, and moves what the plan says, to the byte."""
    stated = problem(nodes(2, 2), parts, batch=8, constraints={"fix": SPLIT[split]})
    training = stated.training.model_copy(update={**AGAIN[again], "micro_batches": 2})
    stated = stated.model_copy(update={"training": training})
    stages = Stages(network, parts, (*ends, len(network.layers)))
    plan = plan_of_stages(solved(network, stated, stages))
    result = ho.run(plan)
    assert result.agrees
    assert result.counted == result.modelled == result.priced
    assert sum(result.counted) == plan.cost.executed_bytes


@pytest.mark.parametrize(
    ("name", "split", "again"),
    slow_after(len(FIRST), [*FIRST, *(case for case in CASES if case not in FIRST)]),
)
def test_what_crosses_a_border_is_sent_once(name: str, split: str, again: str) -> None:
    """Also inside a block that is computed again, for which a stage has what it received."""
    network = NETWORKS[name]
    for end in cuts(network):
        check(network, [end], 2, split, again)


@pytest.mark.parametrize("again", ["full", "op"])
@pytest.mark.parametrize("name", ["gpt", "fc"])
def test_chunks_of_a_stage_compute_again_what_each_has(name: str, again: str) -> None:
    network = NETWORKS[name]
    places = [*cuts(network)]
    check(network, places[-4:-1] if name == "gpt" else places[:3], 2, "any", again)
