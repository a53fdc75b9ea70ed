"""Mixtures of experts as a network file states them: slots, maps, and what does not fit."""

from __future__ import annotations

import pickle
from copy import deepcopy
from fractions import Fraction
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError
from hypar_opt.models import load, read_network
from hypar_opt.plan.settings import with_settings
from hypar_opt.workload.omitted import reading_remarks
from hypar_opt.workload.operators.experts import Router
from hypar_opt.workload.operators.maps import ExpertMap, LogitMap, Routing
from tests.strategies.mixtures import smallest


@given(st.integers(1, 64), st.integers(1, 9), st.integers(1, 5), st.data())
def test_slots_are_an_equal_share_of_a_groups_choices_times_the_capacity(
    experts: int, groups: int, factor: int, data: st.DataObject
) -> None:
    group, top_k = data.draw(st.integers(1, 64)), data.draw(st.integers(1, experts))
    routing = Routing(top_k, group, Fraction(factor, 2), over_chosen=True)
    count, parts, slots = LogitMap(groups * group, experts, routing).slots
    assert (count, parts) == (experts, groups)
    assert slots == min(group, max(1, ceil(Fraction(factor * top_k * group, 2 * experts))))
    # Without a group all tokens of a sequence are one.
    whole = routing._replace(group=None)
    assert LogitMap(group, experts, whole).slots == (experts, 1, slots)


def test_maps_of_mixtrals_block_are_those_of_its_sizes() -> None:
    network = ho.load("mixtral-8x7b")
    maps = dict(zip((layer.name for layer in network.layers), network.maps(), strict=True))
    assert tuple(maps["decoder.0.router"].output) == (4096, 8)
    # Eight experts, 64 groups of 64 tokens: two of eight experts for each is 16 slots.
    assert tuple(maps["decoder.0.dispatch"].output) == (8, 64, 16, 4096)
    assert tuple(maps["decoder.0.up"].output) == (8, 64, 16, 14336)
    assert tuple(maps["decoder.0.combine"].output) == (4096, 4096)


def test_a_routers_map_is_copied_with_its_routing() -> None:
    logits = LogitMap(8, 4, Routing(2, 4, Fraction(1), over_chosen=True))
    for copied in (pickle.loads(pickle.dumps(logits)), deepcopy(logits)):
        assert (copied, copied.routing) == (logits, logits.routing)


@pytest.mark.parametrize(
    ("number", "changed", "refused"),
    [
        (0, {"top_k": 5}, "layer 'router', top_k: should be at most the 4 experts, got 5"),
        (0, {"group": 3}, "layer 'router', group: should divide 4 tokens, got 3"),
        (0, {"capacity_factor": 0}, "capacity_factor: should be greater than 0, got 0"),
        (0, {"capacity_factor": "2"}, "capacity_factor: should be a number"),
        (0, {"softmax": "some"}, "softmax: should be 'chosen' or 'all'"),
        (0, {"softmax": "all", "sigmoid": "plain"}, "should be left out where softmax is stated"),
        (0, {"factor": 0}, "factor: should be greater than 0, got 0"),
        (0, {"expert_groups": 3}, "expert_groups: should divide 4 experts, got 3"),
        (0, {"top_groups": 2}, "top_groups: should be groups with at least 2 experts of 1, got 2"),
        (0, {"expert_groups": 4}, "should be groups with at least 2 experts of 4, got 1"),
        (0, {"load": "uneven"}, "load: should be 'even', the tokens of each expert, or a list of"),
        (0, {"load": [1, 2.0, 1, 1]}, "load: should be 'even', the tokens of each expert, or a"),
        (0, {"load": [1, 1, 1]}, "layer 'router', load: should have counts of 4 experts, got 3"),
        (0, {"load": [0, 0, 0, 0]}, "load: should count some tokens, got zeros"),
        (0, {"load": [9, 2, 3, 2]}, "load: should be at most 8 of an expert, the tokens of 16"),
        (0, {"load": [[1, 1, 1, 1]]}, "load: should be one list of counts outside of a block's"),
        (0, {"load": "even", "capacity_factor": 2.0}, "capacity_factor: should be left out where"),
        (1, {"inputs": ["input", "other"]}, "the second should be a 'router', got 4 tokens of 16"),
        (1, {"inputs": ["input"]}, "layer 'dispatch', inputs: should be 2 layers, got 1"),
        (2, {"kind": "fc"}, "'fc' takes no dispatched tokens, got 4 experts with 2 x 1 slots of"),
        (3, {"inputs": ["input", "router"]}, "should be dispatched by the second: 4 experts with"),
        (4, {"inputs": ["experts"]}, "layer 'head', inputs: 'fc' takes no dispatched tokens"),
    ],
)
def test_what_is_no_mixture_is_refused(number: int, changed: dict[str, Any], refused: str) -> None:
    described = smallest().description()
    described["layer"][number] |= changed
    described["layer"][0]["inputs"] = ["input"]
    other = {"name": "other", "kind": "fc", "inputs": ["input"], "units": 16}
    # Whatever the layers read, something reads each of them.
    ends = [
        {"name": f"end of {name}", "kind": "output", "inputs": [name]}
        for name in ("other", "experts", "combine", "head")
    ]
    described["layer"] = [other, *described["layer"], *ends]
    with pytest.raises(InputError) as caught:
        validate(ho.Network, described)
    assert refused in str(caught.value)


def test_what_one_router_dispatched_no_other_combines() -> None:
    described = smallest().description()
    router, dispatch, experts, combine, head = described["layer"]
    router["inputs"] = ["input"]
    other = router | {"name": "other"}
    combine["inputs"] = ["experts", "other"]
    refused = "layer 'combine', inputs: the second should be 'router', which 'dispatch' reads, got"
    for layers in (
        [other, router, dispatch, experts, combine, head],
        [router, dispatch, experts, other, combine, head],
    ):
        with pytest.raises(InputError, match=f"{refused} 'other'"):
            validate(ho.Network, described | {"layer": layers})


@pytest.mark.parametrize(
    ("name", "active"),
    # The papers: section 1 of Mixtral's, 12.9 B of 46.7 B; table 3 of DeepSeekMoE's, 2.8 B of 16.4.
    [("mixtral-8x7b", 12.9), ("deepseek-moe-16b", 2.8)],
)
def test_a_token_uses_as_many_parameters_as_published(name: str, active: float) -> None:
    network = ho.load(name)
    used, top_k, experts = Fraction(), 0, 1
    for layer, maps in zip(network.layers, network.maps(), strict=True):
        if layer.kind == "router":
            top_k, experts = layer.top_k, layer.experts  # type: ignore[attr-defined]
        share = Fraction(top_k, experts) if layer.kind == "experts" else 1
        used += layer.parameters(maps) * share
    assert round(float(used) / 1e9, 1) == active


def test_slots_without_a_capacity_are_the_mean_and_tokens_groups_of_their_own() -> None:
    even = Routing(6, 1, Fraction(1), over_chosen=True, load=(1,) * 160)
    assert [*LogitMap(4096, 160, even).slots] == [160, 4096, Fraction(6, 160)]
    whole = LogitMap(4096, 160, even._replace(group=80)).slots
    assert (*whole, type(whole[2])) == (160, 51, 3, int)


def test_maps_of_other_loads_differ() -> None:
    first, second = (ExpertMap(4, 2, 1, 8, load) for load in ((1, 2, 1, 1), (2, 1, 1, 1)))
    assert first != second
    assert {first, second, first.with_features(8)} == {first, second}
    for copied in (pickle.loads(pickle.dumps(first)), deepcopy(first)):
        assert (copied, copied.load) == (first, first.load)


BLOCKS = """
schema = "hypar-opt/network/2"
name = "two mixtures"
input = { tokens = 4, features = 16 }
layer = [{ name = "head", kind = "fc", inputs = ["b"], units = 6 }]
[[block]]
name = "b"
repeat = 2
inputs = ["input"]
layer = [
  { name = "router", kind = "router", experts = 4, top_k = 2, load = "counts.csv" },
  { name = "dispatch", kind = "dispatch", inputs = ["input", "router"] },
  { name = "up", kind = "experts", units = 16 },
  { name = "combine", kind = "combine", inputs = ["up", "router"] },
]
"""


def test_counts_in_a_file_are_those_of_a_blocks_repetitions(tmp_path: Path) -> None:
    file = tmp_path / "net.toml"
    file.write_text(BLOCKS)

    def loads(text: str) -> list[Any]:
        (tmp_path / "counts.csv").write_text(text)
        layers = read_network(file).layers
        return [layer.routing.load for layer in layers if isinstance(layer, Router)]

    assert loads("# of step 100\n4, 2,1,1\n\n2,2,2,2\n") == [(4, 2, 1, 1), (1, 1, 1, 1)]
    assert loads("6,4,2,2") == [(3, 2, 1, 1)] * 2
    plan = ho.solve(read_network(file), batch=4, levels=1)
    assert plan.network.description == read_network(file)
    set_here = ho.solve(
        read_network(file),
        batch=4,
        levels=1,
        settings={"router.load": str(tmp_path / "counts.csv")},
    )
    assert set_here.network.description.layers == plan.network.description.layers
    for text, refused in (
        ("4,2,1,1\n4,2,1", "counts.csv: line 2: should have counts of 4 experts, got 3"),
        (
            "4,2,1,x",
            "counts.csv: line 1: should be tokens of experts, separated by commas",
        ),
        ("4,2,1,1\n" * 3, "counts.csv: should have a line, or one for each of 2 repetitions of"),
        ("", "counts.csv: should have a line, or one for each of 2 repetitions of layer 'router'"),
        ("9,1,1,1", "net.toml: layer 'b.0.router', load: should be at most 6 of an expert, the"),
    ):
        with pytest.raises(InputError) as caught:
            loads(text)
        assert refused in str(caught.value)


BEYOND = "what it would take beyond is dropped, where the authors drop none"


@pytest.mark.parametrize(
    ("changed", "remarks"),
    [
        ({"router.load": "even"}, ()),
        ({"router.load": [4] * 8}, ()),
        # With as many slots as tokens none is dropped.
        ({"router.capacity_factor": 4.0}, ()),
        (
            {"router.capacity_factor": 1.25},
            (f"an expert takes at most 20 tokens of each group of 64: {BEYOND}",),
        ),
        (
            {"router.group": 32},
            (f"an expert takes at most 8 tokens of each group of 32: {BEYOND}",),
        ),
        (
            {"proj.bias": False},
            (f"an expert takes at most 16 tokens of each group of 64: {BEYOND}",),
        ),
        ({"router.load": "even", "remarks": ["read by hand"]}, ("read by hand",)),
    ],
)
def test_remarks_on_slots_are_those_of_what_is_set(
    changed: dict[str, Any], remarks: tuple[str, ...]
) -> None:
    assert reading_remarks(with_settings(load("mixtral-8x7b"), {}, changed)[0]) == remarks
