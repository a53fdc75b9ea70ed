"""An array's constants, fitted on measured steps of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path
from statistics import fmean
from typing import Any

from hypar_opt.checked import checked
from hypar_opt.documents.document import validate
from hypar_opt.errors import HyparError, RefusedError, argument, printable
from hypar_opt.frozen import FrozenDict
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import find_array
from hypar_opt.results import Column, Columns, Documented, Results
from hypar_opt.search.result import Progress, silent
from hypar_opt.studies.fitted_constants import (
    CONSTANTS,
    FACTOR,
    OVERLAP,
    ROUNDS,
    UNITS,
    beyond_reach,
    first_fit,
    fitted,
    held_out,
)
from hypar_opt.studies.validation import Validation
from hypar_opt.studies.validation import validate as validate_steps
from hypar_opt.studies.validation.calculated import Calculator, NotModelledError
from hypar_opt.studies.validation.machines import EFFICIENCY, machine_of
from hypar_opt.studies.validation.rows import Row, measured_seconds, read_steps, setting
from hypar_opt.units import SECONDS, format_signed

_OURS = "ours"
"""The machine's name, which is arbitrary."""

_ACHIEVED = ("gemm", "elementwise", "flash")
"""Constants that a single step can scale only by a common factor."""


@dataclass(frozen=True)
class CalibratedStep:
    """A measured step and the step calculated with the fitted constants, in seconds."""

    name: str
    measured: float
    before: float
    after: float

    @property
    def error(self) -> float:
        """Calculated over measured, less one."""
        return self.after / self.measured - 1


@dataclass(frozen=True, repr=False)
class Calibration(Documented, Results[CalibratedStep]):
    """Constants fitted on measured steps.

    Parameters
    ----------
    array
        With the fitted constants.
    constants
        Those that were fitted, by key.
    held_out
        The mean of the absolute errors of each half of the steps, calculated with constants that
        were fitted on the other; None of fewer than four steps.
    tested
        Steps of another file, calculated with the constants; None where there is none.
    left_aside
        The file's columns that are not read.
    """

    row_columns = Columns(
        Column("id", "step", of="name"),
        "name",
        Column("measured", "measured", SECONDS),
        Column("before", "before", SECONDS),
        Column("after", "after", SECONDS),
        Column("error", "error", format_signed),
        entry=CalibratedStep,
    )
    contents = Columns(
        "constants",
        Column("steps", of="entries", type=row_columns.select("id", "measured", "before", "after")),
        *("mean", "held_out", "tested", "warnings"),
        Column("array", of="array.description"),
    )

    array: Array
    constants: Mapping[str, float]
    held_out: float | None
    tested: Validation | None = None
    left_aside: tuple[str, ...] = ()

    @property
    def warnings(self) -> list[str]:
        """What makes the constants doubtful: one sentence for each."""
        return beyond_reach(self.constants)

    @property
    def mean(self) -> float:
        """The mean of the absolute errors of all steps, on which the constants were fitted."""
        return fmean(abs(step.error) for step in self)

    @property
    def stated(self) -> dict[str, str]:
        """The constants in the units of files."""
        return {key: str(_file_value(key, value)) for key, value in self.constants.items()}

    def __repr__(self) -> str:
        fitted = ", ".join(f"{key} {value}" for key, value in self.stated.items())
        return f"<Calibration of {self.array.name} on {len(self)} steps: {fitted}>"


@checked
def calibrate(
    array: str | Path | Array,
    steps: str | Path,
    *,
    fit: Sequence[str] | None = None,
    test: str | Path | None = None,
    progress: Progress = silent,
) -> Calibration:
    """Fit an array's constants on measured steps: the least sum of errors, in logarithms.

    Parameters
    ----------
    array
        Nodes of accelerators; any number of them, with the same links, ran the steps.
    steps
        A file as `hypar_opt.validate` reads; its column ``machine`` is left aside.
    fit
        Keys of the accelerator, ``gemm``, ``conv``, ``elementwise``, ``flash``, ``launch``,
        ``host``, and of links, ``link.bandwidth``, ``link.latency``, ``fabric.bandwidth``,
        ``fabric.latency``; or ``overlap``, the array's ``overlap_efficiency``, of steps with
        sharded gradients or weights. By default one factor on ``gemm``, ``elementwise`` and
        ``flash`` for one step; ``gemm`` and ``elementwise`` for more, and ``flash`` if any step has
        fused attention and there are three or more.
    test
        A file of further steps, on which nothing is fitted, to calculate with the constants.
    progress
        Called with the calculations done, and an upper bound on all.

    Raises
    ------
    InputError
        Naming the file, the row and the column, and what would be right.
    RefusedError
        Naming a step that is not modelled or has no seconds, a constant on which no step depends,
        or too many constants for the steps.
    """
    target = find_array(array)
    kernels = {key: _file_value(key, CONSTANTS[key].start) for key in (*_ACHIEVED, "launch")}
    machine = machine_of(target, kernels)
    measured = read_steps(steps)
    rows = [
        {**row, "machine": _OURS}
        for step_set in measured.sets
        for row in measured.rows_of(step_set)
    ]
    for row in rows:
        if measured_seconds(row) is None:
            raise RefusedError(f"step {row['id']!r} has no seconds to calibrate with")
    calculator = Calculator(Path(steps).parent)
    keys = _keys(fit, rows)
    done, in_halves = 0, len(rows) >= max(4, 2 * len(keys))
    total = (len(keys) + 2 + ROUNDS * (1 + in_halves)) * len(rows)

    def seconds(row: Row, constants: Mapping[str, float]) -> float:
        nonlocal done
        done += 1
        progress(min(done, total), total)
        try:
            return calculator.seconds(row, {_OURS: _with(machine, constants)})
        except NotModelledError as error:
            raise RefusedError(f"step {row['id']!r}: {error.message}") from None

    start = _start(target, keys)
    before = [seconds(row, start) for row in rows]
    best = fitted(rows, first_fit(rows, before, keys, start, seconds), seconds)
    constants = best.constants
    after = [row["seconds"] * exp(error) for row, error in zip(rows, best.errors, strict=True)]
    calibrated = _calibrated(
        target, _with(machine, constants), constants, Path(steps).name, len(rows)
    )
    return Calibration(
        tuple(
            CalibratedStep(str(row["id"]), row["seconds"], *pair)
            for row, *pair in zip(rows, before, after, strict=True)
        ),
        array=calibrated,
        constants=FrozenDict(constants),
        held_out=held_out(rows, best, seconds) if in_halves else None,
        tested=None if test is None else validate_steps(test, constants=calibrated),
        left_aside=measured.left_aside,
    )


def _start(array: Array, keys: Sequence[str]) -> dict[str, float]:
    """Return a fit's starting point: the array's own values, if they are not zero."""
    starts = {}
    for key in _ACHIEVED if FACTOR in keys else keys:
        table, _, name = key.rpartition(".")
        if key == OVERLAP:
            starts[key] = array.efficiency_of_overlap
            continue
        section = getattr(array.topology, table) if table else array.accelerator
        starts[key] = float(getattr(section, name) or CONSTANTS[key].start)
    return starts


def _with(machine: Mapping[str, Any], constants: Mapping[str, float]) -> dict[str, Any]:
    """Return a machine with other constants, given in the units of files."""
    changed = dict(machine)
    for key, value in constants.items():
        table, _, name = key.rpartition(".")
        if key == OVERLAP:
            changed[EFFICIENCY] = value
            continue
        section = table or "accelerator"
        changed[section] = {**changed[section], name: _file_value(key, value)}
    return changed


def _file_value(key: str, value: float) -> float | str:
    """Return a constant as a file states it."""
    unit = CONSTANTS[key].unit
    return f"{value / UNITS[unit]:.4g} {unit}" if unit else value


def _keys(fit: Sequence[str] | None, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the constants to fit; no more than there are steps."""
    fused = any(setting(row, "attention") == "flash" for row in rows)
    if fit is None:
        if len(rows) == 1:
            return (FACTOR,)
        return ("gemm", "elementwise", *(("flash",) if fused and len(rows) > 2 else ()))
    for key in fit or [""]:
        if key not in CONSTANTS:
            names = ", ".join(CONSTANTS)
            raise HyparError(f"{argument('fit')} should be among {names}, got {key!r}")
    if "flash" in fit and not fused:
        raise RefusedError("flash: no step has fused attention to fit it to")
    if len(set(fit)) > len(rows):
        raise RefusedError(
            f"{len(set(fit))} constants need at least as many steps, got {len(rows)}"
        )
    return tuple(dict.fromkeys(fit))


def _calibrated(
    array: Array,
    machine: Mapping[str, Any],
    constants: Mapping[str, float],
    file: str,
    steps: int,
) -> Array:
    """Return the array with a machine's constants, and their source."""
    described = array.description()
    said = f"{', '.join(constants)} fitted on {steps} measured step{'s' * (steps > 1)} of"
    said += f" {printable(file)}"
    source = "; ".join(filter(None, (described.get("source", ""), said)))
    links = {key: machine[key] for key in ("link", "fabric")}
    changed = {"accelerator": machine["accelerator"], "topology": described["topology"] | links}
    changed |= {key: machine[key] for key in (EFFICIENCY,) if key in machine}
    return validate(Array, {**described, "source": source, **changed})
