"""Constants of an array, fitted on measured steps: found again, written, and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.hardware.arrays import load
from hypar_opt.studies.calibration import calibrate
from hypar_opt.studies.validation.calculated import Calculator
from hypar_opt.studies.validation.machines import machine_of
from tests.cli.shell import command
from tests.studies.test_validation import ROW, written

TRUE = {"gemm": 0.61, "elementwise": 0.43, "flash": 0.37}
LINKS = {
    "per_node": 8,
    "link": {"bandwidth": "230 GB/s", "latency": "7 us"},
    "fabric": {"bandwidth": "160 GB/s", "latency": "5 us"},
}
A100 = {
    "units": 1,
    "operations": "312 TFLOPS",
    "dram_bandwidth": "2039 GB/s",
    "dram_capacity": "80 GB",
    "launch": "5 us",
    "update": "44 B",
    "loss": "in-place",
}


def steps(
    *rows: dict[str, Any], links: dict[str, Any] = LINKS, **constants: Any
) -> list[dict[str, Any]]:
    """Rows whose seconds are those of a machine with some constants."""
    machines = {"ours": {**links, "accelerator": A100 | TRUE | constants}}
    found, calculator = [], Calculator()
    for number, own in enumerate(rows):
        row = ROW | {"hidden": 1024, "seq": 512, "machine": "ours", "id": f"run{number}"} | own
        found.append(row | {"seconds": calculator.seconds(row, machines)})
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
    of = load("a100-8").accelerator
    halves = {key: getattr(of, key) / 2 for key in ("gemm", "elementwise")}
    result = calibrate("a100-8", written(tmp_path, *steps(COMPUTE, **halves)))
    assert result.mean < 1e-3
    assert {key: result.constants[key] for key in halves} == pytest.approx(halves, rel=0.01)


SMALL = {"hidden": 256, "seq": 128, "mbs": 1, "gbs": 4}
TENSORS = {"hidden": 2048, "seq": 1024, "tp": 8, "dp": 1, "mbs": 8, "gbs": 8}
NODES = {"gpus": 32, "tp": 1, "dp": 32, "mbs": 1, "gbs": 32}


@pytest.mark.parametrize(
    ("key", "rows", "true", "made"),
    [
        ("launch", [SMALL], "9 us", {"launch": "9 us"}),
        ("host", [SMALL], "60 us", {"host": "60 us"}),
        ("link.bandwidth", [TENSORS], "120 GB/s", {"link": {"bandwidth": "120 GB/s"}}),
        ("link.latency", [TENSORS | SMALL], "20 us", {"link": {"latency": "20 us"}}),
        ("fabric.bandwidth", [NODES], "40 GB/s", {"fabric": {"bandwidth": "40 GB/s"}}),
        (
            "fabric.latency",
            [NODES | SMALL | {"gbs": 32}],
            "30 us",
            {"fabric": {"latency": "30 us"}},
        ),
    ],
)
def test_each_constant_is_found_again_from_steps_that_it_decides(
    tmp_path: Path, key: str, rows: list[dict[str, Any]], true: str, made: dict[str, Any]
) -> None:
    start = load("a100-8").accelerator
    achieved = {name: getattr(start, name) for name in TRUE}
    every: dict[str, Any] = LINKS
    links = {
        name: every[name] | own if isinstance(own, dict) else own for name, own in made.items()
    }
    of_links = key.count(".") == 1
    machine = {"links": LINKS | links} if of_links else made
    result = calibrate("a100-8", written(tmp_path, *steps(*rows, **achieved, **machine)), fit=[key])
    number, unit = true.split()
    said, own = result.stated[key].split()
    assert float(said) == pytest.approx(float(number), rel=0.02)
    assert own == unit
    assert result.mean < 2e-3
    # The array has it, and no other number has changed.
    table, _, name = key.rpartition(".")
    before, after = load("a100-8"), result.array
    changed = after.accelerator if not of_links else getattr(after.topology, table)
    assert float(getattr(changed, name)) == pytest.approx(result.constants[key])
    added = before.accelerator.model_copy(update={"update": after.accelerator.update})
    assert (added == after.accelerator) == of_links
    assert (before.topology == after.topology) != of_links


def test_the_efficiency_of_overlap_is_found_again_from_steps_with_sharded_weights(
    tmp_path: Path,
) -> None:
    start = load("a100-8").accelerator
    achieved = {name: getattr(start, name) for name in TRUE}
    of_fsdp = NODES | {"hidden": 2048, "zero": 3}
    links = LINKS | {"overlap_efficiency": 0.7}
    rows = steps(of_fsdp, of_fsdp | {"layers": 4}, links=links, **achieved)
    result = calibrate("a100-8", written(tmp_path, *rows), fit=["overlap"])
    assert result.constants["overlap"] == pytest.approx(0.7, abs=0.01)
    assert result.array.overlap_efficiency == result.constants["overlap"]
    assert result.array.topology == load("a100-8").topology
    # Others exchange nothing while they compute.
    plain = written(tmp_path, *steps(NODES, links=links, **achieved))
    with pytest.raises(HyparError, match="overlap: no step's seconds depend on it"):
        calibrate("a100-8", plain, fit=["overlap"])


def test_a_step_that_is_far_off_hardly_moves_the_constants(tmp_path: Path) -> None:
    rows = steps(*[COMPUTE | {"layers": layers} for layers in (2, 3, 4, 5)])
    rows[1]["seconds"] *= 1.5
    result = calibrate("a100-8", written(tmp_path, *rows), fit=["gemm"])
    assert abs(sorted(own.error for own in result)[-2]) < 0.02
    assert result.mean == pytest.approx(1 / 12, abs=0.02)


def test_either_half_of_enough_steps_is_held_out(tmp_path: Path) -> None:
    rows = steps(COMPUTE, COMPUTE | {"layers": 3}, ELEMENTS, ELEMENTS | {"layers": 3})
    result = calibrate("a100-8", written(tmp_path, *rows), fit=["gemm", "elementwise"])
    assert result.held_out is not None
    assert result.held_out < 0.01


@pytest.mark.parametrize(
    ("row", "fit", "said"),
    [
        ({"pp": 2}, None, "step 'one': gpus: should be tp 2 times pp 2 times dp 4, got 8"),
        ({"seconds": ""}, None, "step 'one' has no seconds to calibrate with"),
        ({}, ["gemm", "elementwise"], "2 constants need at least as many steps, got 1"),
        (
            {},
            ["speed"],
            "fit should be among gemm, conv, elementwise, flash, launch, host, link.bandwidth",
        ),
        ({}, ["fabric.bandwidth"], "fabric.bandwidth: no step's seconds depend on it"),
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


def test_a_constant_beyond_what_is_physical_is_warned_of(tmp_path: Path) -> None:
    """Steps that are shorter than they can be: their micro-batch, say, is not as stated."""
    rows = steps(COMPUTE | FUSED, COMPUTE | FUSED | {"layers": 3})
    honest = calibrate("a100-8", written(tmp_path, *rows), fit=["flash"])
    assert honest.warnings == []
    for row in rows:
        row["seconds"] *= 0.7
    file = written(tmp_path, *rows)
    found = calibrate("a100-8", file, fit=["flash"])
    assert found.constants["flash"] > 0.75
    said = "flash is beyond what is physical, some 0.75 at most: steps, or settings"
    (warning,) = found.warnings
    assert warning.startswith(said)
    assert found.document()["warnings"] == found.warnings
    done = command(["calibrate", "a100-8", file.name, "--fit", "flash"], tmp_path)
    assert f"hypar-opt: warning: {said}" in done.errors


def test_steps_of_another_file_are_held_out(tmp_path: Path) -> None:
    rows = steps(COMPUTE, COMPUTE | {"layers": 3})
    other = written(tmp_path, *rows[1:]).rename(tmp_path / "other.toml")
    result = calibrate("a100-8", written(tmp_path, rows[0]), fit=["gemm"], test=other)
    assert result.tested is not None
    assert len(result.tested) == 1
    assert result.tested.mean is not None
    assert result.tested.mean < 0.01
    call = ["calibrate", "a100-8", "runs.toml", "--fit", "gemm", "--test", "other.toml"]
    done = command(call, tmp_path)
    assert done.status == 0, done.errors
    assert "of 1 other steps, on which nothing is fitted" in done.output
    assert command([*call, "-o", "other.toml"], tmp_path).status == 2


def test_convolutions_have_a_constant_of_their_own(tmp_path: Path) -> None:
    """Of a network by name: what its steps take decides `conv`, and a GPT's do not."""
    sizes = dict.fromkeys(("layers", "hidden", "heads", "seq", "vocab"), "")
    row = {**sizes, "network": "resnet-50", "tp": 1, "dp": 8, "mbs": 64, "gbs": 512, "id": "r"}
    row |= {"attention": "flash", "machine": "ours"}
    columns = [*ROW, "network"]
    machine = machine_of(load("a100-8"))
    machine["accelerator"]["conv"] = 0.27
    row["seconds"] = Calculator().seconds(ROW | row, {"ours": machine})
    result = calibrate("a100-8", written(tmp_path, row, columns=columns), fit=["conv"])
    assert result.constants["conv"] == pytest.approx(0.27, rel=0.01)
    with pytest.raises(HyparError, match="conv: no step's seconds depend on it"):
        calibrate("a100-8", written(tmp_path, {}), fit=["conv"])


@pytest.mark.parametrize("name", ["a\nb.toml", "a\u202eb.toml"])
def test_any_name_of_a_file_is_a_source(tmp_path: Path, name: str) -> None:
    rows = steps(COMPUTE)
    file = written(tmp_path, *rows).rename(tmp_path / name)
    found = calibrate("a100-8", file)
    assert found.array.source.isprintable()
    assert found.array.source.endswith("b.toml")
