"""Layers under an array's roofs: their operations and bytes are those of the network and plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.studies.explained import explain
from hypar_opt.studies.intensities import intensities
from hypar_opt.workload.description import describe
from tests.cli.shell import Shell

PROBLEMS: list[dict[str, Any]] = [
    {"network": "lenet-c", "array": "a100-4x8"},
    {"network": "alexnet", "array": "h100-8", "overlap": "none"},
    {"network": "lenet-c", "array": "a100-4x8", "cost": "time", "place": True, "overlap": "none"},
    {"network": "resnet-18", "array": "h100-8", "search": "levelwise", "cost": "bytes"},
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_layer_is_under_the_roof_whose_bytes_take_longest(problem: dict[str, Any]) -> None:
    plan = ho.solve(**problem)
    roofs, layers = intensities(plan)
    macs = {
        row["name"]: row["macs"] for row in describe(ho.load(problem["network"]), 256)["layers"]
    }
    assert [own.layer for own in layers] == [name for name, count in macs.items() if count]
    assert {own for roof in roofs.roofs for own in roof.levels} == {*range(plan.levels)}
    for own in layers:
        # All three passes count, as in the time of a step.
        assert own.operations * plan.accelerators == 2 * 3 * macs[own.layer]
        at = [explain(plan, f"{own.layer}@{level}").bytes for level in plan.level_names]
        moved = {
            roof: sum(at[level] for level in roof.levels) for roof in roofs.roofs if roof.levels
        }
        seconds = own.bytes / own.roof.bytes_per_second
        for roof, of_all in moved.items():
            of_one = float(of_all / plan.accelerators)
            assert of_one / roof.bytes_per_second <= seconds * (1 + 1e-12)
            if roof is own.roof:
                assert own.bytes == pytest.approx(of_one)


def test_a_plan_is_drawn_with_its_layers_named_apart(shell: Shell, tmp_path: Path) -> None:
    pytest.importorskip("altair")
    from hypar_opt.display.figures import layers_roofline

    plan = ho.solve("alexnet", array="h100-8", overlap="none")
    rows = layers_roofline(plan).to_dict()["datasets"]["layers"]
    _, layers = intensities(plan)
    assert {row["intensity"] for row in rows} == {own.intensity for own in layers}
    named = [row["name"] for row in rows if row["name"]]
    largest = max(layers, key=lambda own: own.operations)
    assert named[0] == largest.layer
    assert 1 < len(named) < len(layers)
    file, picture = tmp_path / "plan.json", tmp_path / "it.svg"
    ho.write_plan(plan, file)
    shell("show", file, "--roofline", "--picture", picture)
    assert f">{largest.layer}<" in picture.read_text()


def test_other_plans_are_refused(shell: Shell, tmp_path: Path) -> None:
    with pytest.raises(HyparError, match="a roofline of layers takes a plan without stages on"):
        intensities(ho.solve("lenet-c", levels=2))
    picture = tmp_path / "it.svg"
    said = shell.refused("show", "lenet-c", "--roofline", "--picture", picture)
    assert said == "--roofline takes an array or a plan file, and 'lenet-c' is a network"
