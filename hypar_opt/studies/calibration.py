"""An array's constants, fitted on measured steps of one's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from hypar_opt.checked import checked
from hypar_opt.errors import HyparError, RefusedError, argument
from hypar_opt.frozen import FrozenDict
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import find_array
from hypar_opt.results import Results
from hypar_opt.search.result import Progress, silent
from hypar_opt.studies.validation.calculated import NotModelledError, step_of
from hypar_opt.studies.validation.rows import Row, read_steps, setting

FACTOR = "factor"
"""One factor on all that kernels achieve, which a single step decides."""

_START = {"gemm": 0.7, "elementwise": 0.7, "flash": 0.6}
_LEAST, _MOST = 0.01, 1.0
_STEP = 0.02
"""Relative: of a constant, to see by how much it changes the steps."""

_ROUNDS = 8
_SETTLED = 1e-4
"""A round that changes every constant by less than this part ends the fit."""


@dataclass(frozen=True)
class CalibratedStep:
    """A measured step, and what the fitted constants calculate of it, in seconds."""

    name: str
    measured: float
    before: float
    after: float

    @property
    def error(self) -> float:
        """Calculated over measured, less one."""
        return self.after / self.measured - 1


@dataclass(frozen=True, repr=False)
class Calibration(Results[CalibratedStep]):
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
    """

    array: Array
    constants: Mapping[str, float]
    held_out: float | None

    @property
    def mean(self) -> float:
        """The mean of the absolute errors of all steps, on which the constants were fitted."""
        return fmean(abs(step.error) for step in self)

    def __repr__(self) -> str:
        fitted = ", ".join(f"{key} {value}" for key, value in self.constants.items())
        return f"<Calibration of {self.array.name} on {len(self)} steps: {fitted}>"

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each step, in seconds: the rows of a data frame."""
        return [{"id": own.name, **vars(own), "error": own.error} for own in self]

    def document(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return {
            "constants": dict(self.constants),
            "steps": [
                {"id": own.name, "measured": own.measured, "before": own.before, "after": own.after}
                for own in self
            ],
            "mean": self.mean,
            "held_out": self.held_out,
            "array": self.array.description(),
        }


@checked
def calibrate(
    array: str | Path | Array,
    steps: str | Path,
    *,
    fit: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Calibration:
    """Fit an array's constants on measured steps, by least squares of logarithms.

    Parameters
    ----------
    array
        Nodes of accelerators; any number of them, with the same links, ran the steps.
    steps
        A file as `hypar_opt.validate` reads; its column ``machine`` is left aside.
    fit
        Keys of the accelerator: ``gemm``, ``elementwise``, ``flash``. By default one factor on all
        of them for one step; ``gemm`` and ``elementwise`` for more, and ``flash`` if any step has
        fused attention and there are three or more.
    progress
        Called with the calculations done, and an upper bound on all.

    Raises
    ------
    InputError
        Naming the file, the row and the column, and what would be right.
    RefusedError
        Naming a step that is not modelled or has no seconds, or too many constants for the steps.
    """
    target = find_array(array)
    machine = _machine(target)
    measured = read_steps(steps)
    rows = [{**row, "machine": ""} for own in measured.sets for row in measured.rows_of(own)]
    for row in rows:
        if row["seconds"] == "":
            raise RefusedError(f"step {row['id']!r} has no seconds to calibrate with")
    keys = _keys(fit, rows)
    done = 0
    halves = [rows[::2], rows[1::2]] if len(rows) >= max(4, 2 * len(keys)) else []
    total = (len(keys) + 1) * _ROUNDS * (len(rows) * (1 + bool(halves))) + 2 * len(rows)

    def seconds(row: Row, constants: Mapping[str, float]) -> float:
        nonlocal done
        done += 1
        progress(min(done, total), total)
        try:
            own = {**machine, "accelerator": {**machine["accelerator"], **constants}}
            return step_of(row, {"": own}).seconds
        except NotModelledError as error:
            raise RefusedError(f"step {row['id']!r}: {error.message}") from None

    start = {key: float(machine["accelerator"].get(key, 1.0)) for key in _START}
    before = [seconds(row, start) for row in rows]
    fitted = _fitted(rows, keys, start, seconds)
    errors: list[float] = []
    for own, others in zip(halves, reversed(halves), strict=True):
        of_others = _fitted(others, keys, start, seconds)
        errors += [abs(seconds(row, of_others) / row["seconds"] - 1) for row in own]
    after = [seconds(row, fitted) for row in rows]
    changed = fitted if FACTOR in keys else {key: fitted[key] for key in keys}
    return Calibration(
        tuple(
            CalibratedStep(str(row["id"]), row["seconds"], *pair)
            for row, *pair in zip(rows, before, after, strict=True)
        ),
        array=_calibrated(target, machine["accelerator"], changed, Path(steps).name, len(rows)),
        constants=FrozenDict(changed),
        held_out=fmean(errors) if errors else None,
    )


def _machine(array: Array) -> dict[str, Any]:
    """Return an array of nodes as a machine of any number of them, by kernels."""
    topology = array.description()["topology"]
    if array.groups or topology["kind"] != "nodes":
        kind = "two groups" if array.groups else topology["kind"]
        raise RefusedError(f"array {array.name}: should be nodes of equal accelerators, got {kind}")
    accelerator = array.description()["accelerator"]
    rest = {k: v for k, v in accelerator.items() if k not in ("utilisation", "pe_array")}
    own = {**_START, "launch": "5 us", "update": "44 B"} if "gemm" not in accelerator else {}
    return {
        "per_node": topology["per_node"],
        "link": topology["link"],
        "fabric": topology["fabric"],
        "accelerator": {**own, **rest},
    }


def _keys(fit: Sequence[str] | None, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the constants to fit; no more than there are steps."""
    fused = any(setting(row, "attention") == "flash" for row in rows)
    if fit is None:
        if len(rows) == 1:
            return (FACTOR,)
        return ("gemm", "elementwise", *(("flash",) if fused and len(rows) > 2 else ()))
    for key in fit or [""]:
        if key not in _START:
            known = ", ".join(_START)
            raise HyparError(f"{argument('fit')} should be among {known}, got {key!r}")
    if "flash" in fit and not fused:
        raise RefusedError("flash: no step has fused attention, which it is of")
    if len(fit) > len(rows):
        raise RefusedError(f"{len(fit)} constants need as many steps, got {len(rows)}")
    return tuple(dict.fromkeys(fit))


def _fitted(
    rows: Sequence[Row],
    keys: Sequence[str],
    start: Mapping[str, float],
    seconds: Callable[[Row, Mapping[str, float]], float],
) -> dict[str, float]:
    """Return the constants of the least squares of log errors: Gauss-Newton in their logarithms."""
    logs = np.zeros(len(keys))

    def constants(moved: Sequence[float]) -> dict[str, float]:
        factors = dict(zip(keys, map(math.exp, moved), strict=True))
        every = factors.pop(FACTOR, 1.0)
        own = {key: value * factors.get(key, every) for key, value in start.items()}
        # Whole ten-thousandths, as a file states them.
        return {key: round(min(max(value, _LEAST), _MOST), 4) for key, value in own.items()}

    def errors(moved: Sequence[float]) -> Any:
        found = constants(moved)
        return np.array([math.log(seconds(row, found) / row["seconds"]) for row in rows])

    now = errors(logs.tolist())
    for _ in range(_ROUNDS):
        slopes = []
        for number in range(len(keys)):
            shifted = logs.copy()
            # Down: what is achieved is at most all.
            shifted[number] -= _STEP
            slopes.append((now - errors(shifted.tolist())) / _STEP)
        step, *_ = np.linalg.lstsq(np.array(slopes).T, -now, rcond=1e-6)
        step = np.clip(step, -0.5, 0.5)
        while float(np.abs(step).max()) >= _SETTLED:
            after = errors((logs + step).tolist())
            if float(after @ after) < float(now @ now):
                break
            step = step / 4
        else:
            break
        logs, now = logs + step, after
    return constants(logs.tolist())


def _calibrated(
    array: Array,
    accelerator: Mapping[str, Any],
    constants: Mapping[str, float],
    file: str,
    steps: int,
) -> Array:
    """Return the array with an accelerator of some constants, and their source."""
    described = array.description()
    said = f"{', '.join(constants)} fitted on {steps} measured step{'s' * (steps > 1)} of {file}"
    source = "; ".join(filter(None, (described.get("source", ""), said)))
    own = {**accelerator, **constants}
    return Array.model_validate({**described, "source": source, "accelerator": own})
