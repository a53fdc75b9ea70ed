"""Constants of an array, fitted on measured steps: found again, written, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.studies.calibration import calibrate
from hypar_opt.studies.validation.calculated import step_of
from tests.commands import command
from tests.studies.test_validation import ROW, written

TRUE = {"gemm": 0.61, "elementwise": 0.43, "flash": 0.37}
LINKS = {
    "per_node": 8,
    "link": {"bandwidth": "300 GB/s", "latency": "0.5 us"},
    "fabric": {"bandwidth": "200 GB/s", "latency": "2 us"},
}
A100 = {
    "units": 1,
    "operations": "312 TFLOPS",
    "dram_bandwidth": "2039 GB/s",
    "dram_capacity": "80 GB",
    "launch": "5 us",
    "update": "44 B",
}


def steps(*rows: dict[str, Any], **constants: float) -> list[dict[str, Any]]:
    """Rows whose seconds are those of a machine with some constants."""
    machines = {"ours": {**LINKS, "accelerator": A100 | TRUE | constants}}
    found = []
    for number, own in enumerate(rows):
        row = ROW | {"hidden": 1024, "seq": 512, "machine": "ours", "id": f"run{number}"} | own
        found.append(row | {"seconds": step_of(row, machines).seconds})
    return found


COMPUTE, ELEMENTS = {"hidden": 4096, "mbs": 8, "gbs": 32}, {"seq": 2048, "heads": 32}
FUSED = {"attention": "flash", "seq": 4096}


def test_constants_that_made_the_steps_are_found_again(tmp_path: Path) -> None:
    file = written(tmp_path, *steps(COMPUTE, ELEMENTS, FUSED))
    result = calibrate("a100-8", file)
    assert dict(result.constants) == pytest.approx(TRUE, rel=0.01)
    assert result.mean < 1e-3
    assert result.held_out is None
    assert {key: getattr(result.array.accelerator, key) for key in TRUE} == result.constants
    assert "fitted on 3 measured steps of runs.toml" in result.array.source


def test_one_step_decides_one_factor(tmp_path: Path) -> None:
    halves = {key: value / 2 for key, value in {"gemm": 0.7, "elementwise": 0.7}.items()}
    result = calibrate("a100-8", written(tmp_path, *steps(COMPUTE, **halves)))
    assert result.mean < 1e-3
    assert result.constants["gemm"] == pytest.approx(0.35, rel=0.01)
    assert result.constants["elementwise"] == pytest.approx(0.35, rel=0.01)


def test_either_half_of_enough_steps_is_held_out(tmp_path: Path) -> None:
    rows = steps(COMPUTE, COMPUTE | {"layers": 3}, ELEMENTS, ELEMENTS | {"layers": 3})
    result = calibrate("a100-8", written(tmp_path, *rows), fit=["gemm", "elementwise"])
    assert result.held_out is not None
    assert result.held_out < 0.01


@pytest.mark.parametrize(
    ("row", "fit", "said"),
    [
        ({"pp": 2}, None, "step 'one': pp: pipeline stages are not modelled, here 2"),
        ({"seconds": ""}, None, "step 'one' has no seconds to calibrate with"),
        ({}, ["gemm", "elementwise"], "2 constants need as many steps, got 1"),
        ({}, ["speed"], "fit should be among gemm, elementwise, flash, got 'speed'"),
        ({}, ["flash"], "flash: no step has fused attention"),
    ],
)
def test_what_cannot_be_fitted_is_refused_by_name(
    tmp_path: Path, row: dict[str, Any], fit: list[str] | None, said: str
) -> None:
    with pytest.raises(HyparError) as refused:
        calibrate("a100-8", written(tmp_path, row), fit=fit)
    assert said in str(refused.value)


def test_the_array_should_be_nodes(tmp_path: Path) -> None:
    with pytest.raises(HyparError, match="should be nodes of equal accelerators, got htree"):
        calibrate("hmc-htree-16", written(tmp_path, {}))


def test_the_command_writes_an_array_that_is_read_again(tmp_path: Path) -> None:
    written(tmp_path, *steps(COMPUTE))
    done = command(["calibrate", "a100-8", "runs.toml", "-o", "ours.toml"], tmp_path)
    assert done.status == 0, done.errors
    assert "too few steps to hold any out" in done.output
    read = ho.read_array(tmp_path / "ours.toml")
    assert read.accelerator.gemm is not None
    done = command(["calibrate", "a100-8", "runs.toml", "--json"], tmp_path)
    document = json.loads(done.output)
    assert document["array"] == read.description()
    assert set(document["constants"]) == {"gemm", "elementwise", "flash"}
    done = command(["calibrate", "a100-8", "none.toml"], tmp_path)
    assert done.status == 2
    assert len(done.errors.splitlines()) == 1
