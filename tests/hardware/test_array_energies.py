"""Arrays without energies, and files that older versions wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.documents.document import validate
from hypar_opt.errors import HyparError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import Array, digest_of
from tests.cli.shell import Shell

NO_ENERGIES = "array 'h100-8x8' has no energies, which joules need: a table [energy]"


def test_the_h100_has_no_energies_of_another_technology() -> None:
    array = arrays.load("h100-8x8")
    assert array.energy is None
    assert "energy" not in array.description()
    with pytest.raises(HyparError, match="has no energies"):
        _ = array.energies


def test_seconds_and_bytes_need_no_energies() -> None:
    plan = ho.solve("lenet-c", array="h100-8x8", cost="time", batch=64, overlap="none")
    step = ho.simulate(plan)
    assert step.seconds > 0
    assert step.joules is None
    assert step.document()["joules"] is None
    with pytest.raises(HyparError, match="no energies"):
        _ = step.energy


@pytest.mark.parametrize(
    "call",
    [
        ["solve", "sfc", "--cost", "energy"],
        ["explore", "sfc", "--free", "fc1", "--objective", "energy"],
        ["compare", "lenet-c", "--cost", "energy"],
    ],
)
def test_joules_are_refused_by_name(call: list[str], shell: Shell) -> None:
    assert NO_ENERGIES in shell.refused(*call, "--array", "h100-8x8")


def test_a_comparison_without_joules_has_no_column_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["compare", "sfc", "--array", "h100-8x8", "--batch", "64"]) == 0
    head = next(line for line in capsys.readouterr().out.splitlines() if "speed-up" in line)
    assert "energy" not in head
    assert "efficiency" not in head


def test_a_step_without_joules_shows_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "lenet-c", "--array", "h100-8x8", "--solver", "data"]) == 0
    assert "energy" not in capsys.readouterr().out


def test_an_older_array_file_with_a_buffer_is_read() -> None:
    table = arrays.load("hmc-htree-4").description()
    table["accelerator"]["buffer"] = "110592 B"
    array = validate(Array, table, file="old.toml")
    assert array.digest() == arrays.load("hmc-htree-4").digest()


def test_an_older_plan_file_with_a_buffer_is_read(tmp_path: Path) -> None:
    document: dict[str, Any] = ho.solve("sfc", array="hmc-htree-4", cost="time").document()
    new = document["array"]["digest"]
    described = document["array"]["description"]
    described["accelerator"]["buffer"] = "110592 B"
    del described["model"]  # newer than the buffer
    document["array"]["digest"] = digest_of(described)
    file = tmp_path / "old.json"
    file.write_text(json.dumps(document))
    plan = ho.read_plan(file)
    assert plan.array is not None
    assert plan.array.digest == new
    # Edited after it was written: refused as before.
    described["accelerator"]["buffer"] = "1 B"
    file.write_text(json.dumps(document))
    with pytest.raises(HyparError, match="digest should be"):
        ho.read_plan(file)
