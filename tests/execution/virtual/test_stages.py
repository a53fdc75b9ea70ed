"""Runs of plans in pipeline stages, wherever the network is cut and whatever is computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.models.gpt import gpt
from hypar_opt.plan.stages import Stages
from hypar_opt.planning.priced import plan_of_stages
from hypar_opt.workload.network import Network
from hypar_opt.workload.stages import cuts
from tests import slow
from tests.instance.test_staged import nodes, problem, solved
from tests.slow import slow_after, slow_off_diagonal


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
    for end in [*cuts(network)][:: 1 if slow.ALL else 3]:
        check(network, [end], 2, split, again)


@pytest.mark.parametrize("again", ["full", "op"])
@pytest.mark.parametrize("name", ["gpt", "fc"])
def test_chunks_of_a_stage_compute_again_what_each_has(name: str, again: str) -> None:
    network = NETWORKS[name]
    places = [*cuts(network)]
    check(network, places[-4:-1] if name == "gpt" else places[:3], 2, "any", again)


def sharing(places: Sequence[int]) -> Network:
    """Six pairs of layers; the second ones of some pairs, by number, share weights."""
    layers: list[dict[str, Any]] = []
    for n in range(6):
        layers += [{"name": f"in{n}", "kind": "fc"}, {"name": f"wide{n}", "kind": "fc"}]
        if n in places[1:]:
            layers[-1]["tied"] = f"wide{places[0]}"
    described = {"schema": "hypar-opt/network/2", "name": "shared", "input": {"features": 16}}
    return Network.model_validate(described | {"layer": [{**own, "units": 16} for own in layers]})


SHARING = [
    (4, 1, [0, 5]),
    (4, 1, [0, 2, 5]),
    (4, 1, [1, 2, 3]),
    (4, 1, [0, 2, 3, 5]),
    (6, 1, [0, 1, 2, 4]),
    (6, 1, [2, 3]),
    (3, 2, [0, 1, 2]),
    (3, 2, [0, 3]),
    (3, 2, [0, 1, 3]),
    (2, 3, [0, 1, 2, 5]),
]
"""Stages, their chunks, and which of six pairs of layers share a weight."""

TRAINED: list[dict[str, Any]] = [
    {},
    {"shard": "state"},
    {"shard": "gradients", "reduce_bytes": 4},
    {"shard": "weights"},
]


@pytest.mark.parametrize(("shared", "trained"), slow_off_diagonal(SHARING, TRAINED))
def test_gradients_are_summed_over_the_stages_that_share_weights(
    shared: tuple[int, int, list[int]], trained: dict[str, Any]
) -> None:
    parts, chunks, places = shared
    network = sharing(places)
    fields = {"batch": 24, "element_bytes": 2, "micro_batches": 6}
    stated = problem(nodes(parts, 2), parts, constraints={"fix": ["*@H2=data"]}, **fields)
    training = stated.training.model_copy(update=trained)
    stated = stated.model_copy(update={"training": training})
    count = parts * chunks
    ends = [12 * n // count for n in range(1, count + 1)]
    stages = Stages(network, parts, tuple(ends))
    plan = plan_of_stages(solved(network, stated, stages))
    result = ho.run(plan)
    assert result.agrees
    assert result.counted == result.modelled == result.priced
    assert sum(result.counted) == plan.cost.executed_bytes
    holders = len({(2 * n + 1) * count // 12 % parts for n in places})
    assert [len(own.parts) for own in stages.tied] == [holders] * (holders > 1)
    reduced = trained.get("reduce_bytes", 2)
    border = 24 * 16 * 2 * (count - 1)
    assert result.counted[0] == 2 * border + 2 * (holders - 1) * 16 * 16 * reduced
