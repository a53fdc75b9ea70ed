"""Published steps in pipeline stages: their seconds and bytes, with nothing fitted to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import pytest

import hypar_opt as ho
from hypar_opt.studies.validation.calculated import Calculator
from hypar_opt.studies.validation.machines import known_machines, read_constants
from hypar_opt.studies.validation.rows import measured_bytes, read_steps
from tests.slow import slow_after

HERE = Path(__file__).parent
CALCULATOR = Calculator()


class Found(NamedTuple):
    """The error of a step's seconds, and of its bytes."""

    seconds: float
    bytes: float | None


def errors(name: str, file: Path | None = HERE / "staged.toml", **changed: Any) -> dict[str, Found]:
    """Return the errors of a set's steps in stages, by their names."""
    machines = read_constants(HERE / "machines.toml").machines
    return {row["id"]: error(row | changed, machines) for row in staged(name, file)}


def staged(name: str, file: Path | None) -> Iterator[dict[str, Any]]:
    steps = read_steps(file)
    rows = (row for own in steps.sets if own.name == name for row in steps.rows_of(own))
    return (dict(row) for row in rows if row["pp"] > 1)


def error(row: Mapping[str, Any], machines: Any) -> Found:
    step, held = CALCULATOR.step(row, machines), measured_bytes(row)
    found = step.bytes / held - 1 if isinstance(held, int) else None
    return Found(step.seconds / row["seconds"] - 1, found)


def mean(found: Mapping[str, Found]) -> float:
    return fmean(abs(own.seconds) for own in found.values())


def test_llamas_cut_to_few_layers_on_b200() -> None:
    """SimuMax: two stages of four, 4, 8 and 32 micro-batches; constants of kernels alone."""
    found = errors("simumax-b200")
    assert len(found) == 6
    assert mean(found) <= 0.1
    assert max(own.seconds for own in found.values()) < 0  # what is measured is not less
    held = [abs(own.bytes) for own in found.values() if own.bytes is not None]
    assert len(held) == 6
    assert fmean(held) <= 0.04


FIGURE = {
    "22B": (48, 6144, 64, 4, 1, 1, (59.25, 9.5625)),
    "175B": (96, 12288, 96, 1, 8, 3, (66.84375, 12.3515625)),
    "530B": (105, 20480, 128, 1, 35, 3, (114.0234375, 23.076171875)),
    "1T": (128, 25600, 160, 1, 64, 1, (131.25, 26.5625)),
}
"""Layers, features, heads, sequences, stages and chunks; GiB of activations of the first stage, all
and selectively recomputed with sequence parallelism.

Source: Korthikanti et al., MLSys 2023, figure 1."""


@pytest.mark.parametrize("name", slow_after(1, ["175B", "22B", "530B", "1T"]))
def test_the_first_stage_holds_what_korthikantis_figure_1_says(name: str) -> None:
    """To the last digit; the figure leaves out what is saved outside of the blocks."""
    layers, hidden, heads, batch, stages, chunks, gibibytes = FIGURE[name]
    row: dict[str, Any] = {"machine": "selene", "gpus": 8 * stages, "layers": layers}
    row |= {"hidden": hidden, "heads": heads, "seq": 2048, "vocab": 51200, "interleave": chunks}
    row |= {"tp": 8, "pp": stages, "dp": 1, "mbs": batch, "gbs": 4 * stages * batch, "zero": 0}
    row |= {"attention": "megatron", "precision": "fp16"}
    for recompute, expected in zip(("none", "selective"), gibibytes, strict=True):
        how = {"recompute": recompute, "sp": recompute == "selective"}
        first, *_ = CALCULATOR._row_stages(row | how, known_machines()).stages
        run: dict[str, Any] = {k: own for k, own in first.run.items() if k != "early_stop"}
        held = ho.memory(first.plan, first.array, **run)
        blocks = [own.saved for own in held.layers if own.layer.startswith("decoder.")]
        assert sum(blocks) / 2**30 == expected


PER_ROW = {
    "sc21-39B": -0.1,
    "sc21-76B": -7.0,
    "sc21-145B": -4.3,
    "sc21-310B": -6.6,
    "sc21-530B": -5.3,
    "sc21-1T": -3.0,
    "kort-175B-full": 1.2,
    "kort-175B-selective": -3.1,
    "kort-530B-full": 3.7,
    "kort-530B-selective": -0.8,
    "kort-1T-full": 5.1,
    "kort-1T-selective": 3.6,
}
"""Errors of Megatron-LM's steps in percent, as docs/validation.md shows them."""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sc21", "korthikanti"])
def test_megatron_lms_steps_in_stages(name: str) -> None:
    found = errors(name, None)
    assert len(found) == 6
    assert mean(found) <= 0.045
    assert {row: round(100 * own.seconds, 1) for row, own in found.items()} == {
        row: percent for row, percent in PER_ROW.items() if row in found
    }


@pytest.mark.slow
def test_eight_replicas_of_530b() -> None:
    (found,) = errors("korthikanti").values()
    assert found.seconds == pytest.approx(-0.032, abs=5e-4)


@pytest.mark.slow
def test_steps_of_vtrain_on_many_nodes() -> None:
    """Four of 42 are 16 to 36 % too short; all have stages that are two nodes or more."""
    found = errors("vtrain-multi")
    assert len(found) == 42
    assert mean(found) <= 0.08
    assert sum(abs(own.seconds) > 0.16 for own in found.values()) == 3


@pytest.mark.slow
def test_steps_of_vtrain_on_one_node() -> None:
    """Of 12 or 20 small layers, in 2, 4 and 8 stages of one accelerator and more."""
    found = errors("vtrain-single")
    assert len(found) == 360
    assert mean(found) <= 0.065


@pytest.mark.slow
def test_cuts_by_cost_are_those_of_nanotron() -> None:
    """Its stages have as many multiplications each; with as many blocks the last takes longer."""
    by_cost = errors("nanotron")
    assert len(by_cost) == 15
    by_blocks = {
        row["id"]: error(row | {"balance": "blocks"}, read_constants(HERE / "machines.toml")[0])
        for row in staged("nanotron", HERE / "staged.toml")
        if row["layers"] % row["pp"] == 0
    }
    assert len(by_blocks) == 14
    assert mean(by_cost) <= 0.18
    assert mean(by_blocks) > mean(by_cost) + 0.08
