"""The charges of all layers and shared tensors at a level, one by one, are those of the plan."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError, UnknownNameError
from hypar_opt.instance.instance import Instance
from hypar_opt.studies.explained import explain
from tests.cli.shell import Shell

BYTES: list[dict[str, Any]] = [
    {"network": "lenet-c", "levels": 3},
    {"network": "lenet-c", "levels": 2, "reading": "tables", "element_bytes": 1},
    {"network": "lenet-c", "levels": 2, "reading": "figures", "inference": True},
    {"network": "lenet-c", "levels": 3, "choices": "all", "reading": "executed"},
    {"network": "lenet-c", "levels": 2, "level_weights": (3, 1)},
    {"network": "lenet-c", "hierarchy": (3, 2)},
    {"network": "resnet-18", "levels": 3, "batch": 8},
    {"network": "gpt2", "levels": 2, "batch": 4, "choices": "all"},
]
TIME: list[dict[str, Any]] = [
    {"network": "lenet-c", "array": "hmc-torus-16", "cost": "time"},
    {"network": "lenet-c", "array": "hmc-torus-16", "settings": {"collective": "ring"}},
    {"network": "lenet-c", "array": "h100-8", "bucket": 0, "overlap": "none"},
    {"network": "lenet-c", "array": "h100-8", "batch": 30, "runnable": False, "overlap": "none"},
    {
        "network": "gpt:layers=2,hidden=64,heads=4,tokens=32,vocabulary=512",
        "array": "a100-8",
        "overlap": "none",
    },
]


RING = ["--set", "collective=ring"]


def nodes(plan: ho.Plan) -> list[str]:
    return [node.name for node in Instance.of_plan(plan).workload.nodes]


@pytest.mark.parametrize("problem", BYTES, ids=str)
def test_bytes_of_layers_add_up_to_those_of_a_level(problem: dict[str, Any]) -> None:
    plan = ho.solve(**problem)
    groups = 1
    for number, charge in enumerate(plan.cost.per_level):
        explained = [explain(plan, f"{name}@H{number + 1}") for name in nodes(plan)]
        assert {own.groups for own in explained} == {groups}
        groups *= plan.hierarchy.sizes[number]
        assert sum(own.bytes for own in explained) == charge
        assert {own.seconds for own in explained} == {None}


@pytest.mark.parametrize("problem", TIME, ids=str)
def test_seconds_of_formulas_add_up_to_those_of_layers_and_these_to_those_of_a_level(
    problem: dict[str, Any],
) -> None:
    plan = ho.solve(**{"cost": "time", **problem})
    assert plan.cost.communication is not None
    per_unit = Instance.of_plan(plan).cost.time.per_unit
    for number, level in enumerate(plan.level_names):
        seconds = []
        for name in nodes(plan):
            explained = explain(plan, f"{name}@{level}")
            assert explained.seconds is not None
            seconds.append(explained.seconds)
            total = sum(own.seconds for own in explained.transfers)
            # The charge of each, and of each latency that is shared, is rounded by itself.
            rounded = sum(1 + own.messages for own in explained.transfers)
            assert abs(total - explained.seconds[0]) <= Fraction(rounded, per_unit)
            assert all(level in own.levels for own in explained.transfers)
        parts = [sum(part) * per_unit for part in zip(*seconds, strict=True)]
        assert sum(parts) == plan.cost.per_level[number]
        assert parts[0] == plan.cost.communication[number]


def test_a_formula_is_what_it_says(shell: Shell) -> None:
    said = shell.output("solve", "lenet-c", "--levels", "3", "--explain", "fc1@H2")
    rows = re.findall(r"^(\w+ .*?)  (\d[\d,]*) x ([\d,]+) x (\d+)  +([\d.]+ \w+)$", said, re.M)
    assert [row[0].split()[:2] for row in rows] == [
        ["forward", "output"],
        ["forward", "input"],
        ["backward", "input"],
    ]
    explained = explain(ho.solve("lenet-c", levels=3), "fc1@H2")
    moved = [int(a) * int(b.replace(",", "")) * int(c) for _, a, b, c, _ in rows]
    assert moved == [explained.bytes_of(own) for own in explained.exchanges]
    # Model parallelism of fc1, whose 500 outputs the two parts of each of two groups exchange.
    assert moved[0] == 2 * 2 * (256 * 500 * 4)


def test_the_parts_of_a_ring_at_its_levels_are_all_of_it() -> None:
    settings = {"collective": "ring"}
    plan = ho.solve("lenet-c", array="hmc-torus-16", cost="time", settings=settings)
    rings = [
        own
        for level in plan.level_names
        for own in explain(plan, f"conv2@{level}").transfers
        if own.phase == "gradient"
    ]
    assert {own.levels for own in rings} == {plan.level_names}
    assert sum(own.crossing for own in rings) == 1


def test_a_time_is_written_as_bytes_over_a_rate_and_messages(shell: Shell) -> None:
    lenet = ["solve", "lenet-c", "--cost", "time", "--explain", "fc1@H1", "--array"]
    latency = ["--set", "link.latency=100 ns"]
    for array, formula, seconds in (
        (["hmc-torus-16", *latency], "1.024 MB / 1.6 GB/s + 1 x 200 ns", 1.024e6 / 1.6e9 + 200e-9),
        (["hmc-torus-16", *RING], "(15.36 MB / 6.4 GB/s) x 1/4", 15.36e6 / 6.4e9 / 4),
        (["h100-8"], "1.6 MB / 2.76 TB/s + 92.92% of 1 x 14 us", 1.6e6 / 2.76e12 + 0.9292 * 14e-6),
    ):
        _, out, _ = shell(*lenet, *array)
        (shown,) = re.findall(rf"^\w+ +\w+ +{re.escape(formula)} +([\d.]+) us$", out, re.M)
        assert float(shown) == pytest.approx(seconds * 1e6, rel=5e-4)


def test_a_wrong_place_is_refused(shell: Shell) -> None:
    plan = ho.solve("lenet-c", levels=2)
    for place, said in (
        ("fc9@H1", "unknown layer 'fc9': did you mean fc2"),
        ("fc1@H3", "unknown level 'H3': did you mean H2"),
        ("fc1", "explain should be LAYER@LEVEL, as fc1@H2, got 'fc1'"),
    ):
        with pytest.raises((HyparError, UnknownNameError), match=re.escape(said)):
            explain(plan, place)
    one = ho.solve("lenet-c", accelerators=1)
    with pytest.raises(HyparError, match="explain: the plan is of one accelerator, without levels"):
        explain(one, "fc1@H1")
    # Before the search.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hypar_opt.planning.solve.solve", None)
        for place, said in (
            ("fc9@H1", "unknown layer 'fc9': did you mean fc2"),
            ("fc1@H3", "unknown level 'H3': did you mean H2"),
            ("fc1", "--explain should be LAYER@LEVEL, as fc1@H2, got 'fc1'"),
        ):
            typed = ("solve", "lenet-c", "--levels", 2, "--explain", place)
            assert shell.refused(*typed).startswith(said)
    said = shell.refused("solve", "lenet-c", "--explain", "fc1@H1", "--stages", 2)
    assert said == "--explain is not supported with --stages"
    said = shell.refused("solve", "lenet-c", "--explain", "fc1@H1", "--json")
    assert said == "--explain is not in a JSON document: leave out --json or -o -"
    assert "--explain takes a plan file" in shell.refused("show", "lenet-c", "--explain", "fc1@H1")
