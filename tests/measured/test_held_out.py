"""Constants fitted on one half of measured steps, and tested on the other."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from hypar_opt.studies.fitted_constants import first_fit, fitted
from hypar_opt.studies.validation.calculated import Calculator
from hypar_opt.studies.validation.machines import known_machines
from hypar_opt.studies.validation.rows import read_steps

Rows = list[dict[str, Any]]

FURTHER = Path(__file__).with_name("published.toml")
"""Further published steps, too many to be part of the package."""


CALCULATOR = Calculator()


def seconds(row: Mapping[str, Any], constants: Mapping[str, float]) -> float:
    machine = known_machines()[row["machine"]]
    own = {**machine, "accelerator": {**machine["accelerator"], **constants}}
    return CALCULATOR.seconds(row, {row["machine"]: own})


def modelled(file: str | Path | None, *sets: str) -> Rows:
    """Return the rows of some sets without stages and with all settings."""
    steps = read_steps(file)
    rows = [dict(row) for own in steps.sets if own.name in sets for row in steps.rows_of(own)]
    return [row for row in rows if row["pp"] == 1 and row["mbs"] != ""]


def held_out(rows: Rows, keys: tuple[str, ...]) -> float:
    """Return the mean of absolute errors of either half, with constants fitted on the other."""
    errors: list[float] = []
    for offset in (0, 1):
        fitted_on, held = rows[offset::2], rows[1 - offset :: 2]
        of_machine = known_machines()[rows[0]["machine"]]["accelerator"]
        start = {key: float(of_machine[key]) for key in keys}
        before = [seconds(row, start) for row in fitted_on]
        first = first_fit(fitted_on, before, keys, start, seconds)
        constants = fitted(fitted_on, first, seconds).constants
        errors += map(partial(error, constants), held)
    return fmean(errors)


def error(constants: Mapping[str, float], row: Mapping[str, Any]) -> float:
    return float(abs(seconds(row, constants) / row["seconds"] - 1))


def test_each_of_two_steps_gives_the_other() -> None:
    """Full and selective recomputation on one machine: Korthikanti et al., table 5, 22B."""
    rows = modelled(None, "korthikanti")
    assert len(rows) == 2
    assert held_out(rows, ("gemm",)) <= 0.06


@pytest.mark.slow
def test_published_steps_of_megatron_lm() -> None:
    """Two constants from two steps give the other two: SC21's and Korthikanti's."""
    rows = modelled(None, "sc21", "korthikanti")
    assert len(rows) == 4
    assert held_out(rows, ("gemm", "elementwise")) <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of_set", "machine", "keys", "bound"),
    [
        ("vtrain-multi", "vtrain-a100", ("gemm", "elementwise"), 0.08),
        ("llm-foundry", "mosaic-a100-80", ("gemm", "elementwise", "flash"), 0.07),
        ("llm-foundry", "mosaic-a100-40", ("gemm", "elementwise", "flash"), 0.07),
        ("llm-foundry", "mosaic-h100", ("gemm", "elementwise", "flash"), 0.07),
    ],
)
def test_further_steps(of_set: str, machine: str, keys: tuple[str, ...], bound: float) -> None:
    rows = [row for row in modelled(FURTHER, of_set) if row["machine"] == machine]
    assert rows
    assert held_out(rows, keys) <= bound
