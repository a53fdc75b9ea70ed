"""Least-error fits of constants to measured steps, for any model of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.errors import RefusedError

if TYPE_CHECKING:
    from hypar_opt.studies.validation.rows import Row

FACTOR = "factor"
"""A common factor on everything that kernels achieve, which a single step determines."""


OVERLAP = "overlap"
"""The efficiency of overlap, which steps with sharded gradients or weights depend on."""


class FittedConstant(NamedTuple):
    """A constant to fit: its start, unless the array states one, and its bounds.

    Parameters
    ----------
    reached
        The highest value known to be reached: beyond it, a step did not run as stated.
    """

    start: float
    least: float
    most: float
    unit: str = ""
    reached: float | None = None


_PART = 0.01, 1.0, ""
_TIME = 1e-8, 0.1, "us"
_BANDWIDTH = 1e6, 1e15, "GB/s"
UNITS = {"": 1.0, "us": 1e-6, "GB/s": 1e9}

CONSTANTS: Mapping[str, FittedConstant] = {
    "gemm": FittedConstant(0.7, *_PART, 0.9),
    "conv": FittedConstant(0.5, *_PART, 0.9),
    "elementwise": FittedConstant(0.7, *_PART, 0.98),
    "flash": FittedConstant(0.6, *_PART, 0.75),
    "launch": FittedConstant(5e-6, *_TIME, 20e-6),
    "host": FittedConstant(20e-6, *_TIME, 200e-6),
    "link.bandwidth": FittedConstant(100e9, *_BANDWIDTH),
    "link.latency": FittedConstant(5e-6, *_TIME),
    "fabric.bandwidth": FittedConstant(100e9, *_BANDWIDTH),
    "fabric.latency": FittedConstant(5e-6, *_TIME),
    OVERLAP: FittedConstant(1.0, *_PART),
}
"""By name: keys of the accelerator, of links, and the array's efficiency of overlap.

What is reached: by large products .81 of the peak of an H100 (docs/validation.md); by attention .75
(Shah et al., "FlashAttention-3", NeurIPS 2024); the others are assumed."""


def beyond_reach(constants: Mapping[str, float]) -> list[str]:
    """Return a sentence for each constant that is implausible, or at its bound."""
    said = []
    for key, value in constants.items():
        constant = CONSTANTS[key]
        if constant.reached is not None and value > constant.reached:
            limit = f"{constant.reached / UNITS[constant.unit]:g} {constant.unit}".strip()
            said.append(f"{key} is beyond what is physical, some {limit} at most")
        elif value in (constant.least, constant.most):
            said.append(f"{key} is at the bound within which it is fitted")
    return [f"{clause}: steps, or settings, may not be as the file says" for clause in said]


_OUTLIER = 0.02
"""Beyond about this error a step's loss is linear in the error, not quadratic (Huber)."""

_STEP = 0.02
"""The relative step of finite differences in a constant."""

_REWEIGHTED = 50
ROUNDS = 8
_SETTLED = 1e-3
"""The relative change of constants below which the fit has converged."""

Seconds = Callable[["Row", Mapping[str, float]], float]
"""Calculates a step's seconds from constants."""


@dataclass(frozen=True)
class Fit:
    """Constants, the steps' errors and the slopes of these, all in logarithms.

    Parameters
    ----------
    start
        The starting constants, to which ``moved`` is relative.
    moved : (keys,)
    errors : (steps,)
        Calculated over measured.
    slopes : (keys, steps)
    """

    keys: tuple[str, ...]
    start: Mapping[str, float]
    moved: Any
    errors: Any
    slopes: Any

    @property
    def constants(self) -> dict[str, float]:
        factors = dict(zip(self.keys, map(math.exp, self.moved.tolist()), strict=True))
        factor = factors.pop(FACTOR, 1.0)
        return {
            key: _bounded(CONSTANTS[key], value * factors.get(key, factor))
            for key, value in self.start.items()
        }

    def at(self, moved: Any, rows: Sequence[Row], seconds: Seconds) -> Fit:
        """Return the fit at other constants, its slopes updated from two points (Broyden).

        Source: C. G. Broyden, "A class of methods for solving nonlinear simultaneous equations",
        Mathematics of Computation 19, 1965.
        """
        fit, step = replace(self, moved=moved), moved - self.moved
        constants = fit.constants
        errors = _errors(rows, [seconds(row, constants) for row in rows])
        unforeseen = errors - self.errors - step @ self.slopes
        slopes = self.slopes + np.outer(step, unforeseen) / (step @ step)
        return replace(fit, errors=errors, slopes=slopes)


def first_fit(
    rows: Sequence[Row],
    before: Sequence[float],
    keys: tuple[str, ...],
    start: Mapping[str, float],
    seconds: Seconds,
) -> Fit:
    """Return the constants from which a fit starts.

    Parameters
    ----------
    before : (steps,)
        The seconds calculated with them.
    """
    flat = np.zeros((len(keys), len(rows)))
    first = Fit(keys, start, np.zeros(len(keys)), _errors(rows, before), flat)
    # Downwards, as efficiencies are at most 1.
    for move in -_STEP * np.eye(len(keys)):
        first = replace(first, slopes=first.at(move, rows, seconds).slopes)
    return first


def fitted(rows: Sequence[Row], fit: Fit, seconds: Seconds) -> Fit:
    """Return the constants of the least errors: Gauss-Newton in their logarithms, reweighted.

    Source: P. J. Huber, "Robust estimation of a location parameter", Annals of Mathematical
    Statistics 35(1), 1964: a step that is far off counts for less than by its square.

    Raises
    ------
    RefusedError
        If no step depends on a constant.
    """
    for key, slope in zip(fit.keys, fit.slopes, strict=True):
        if not slope.any():
            raise RefusedError(f"{key}: no step's seconds depend on it")
    for _ in range(ROUNDS):
        step = np.zeros(len(fit.keys))
        for _ in range(_REWEIGHTED):  # negligible next to calculating the steps
            foreseen = fit.errors + step @ fit.slopes
            weights = (1 + (foreseen / _OUTLIER) ** 2) ** -0.25
            step, *_ = np.linalg.lstsq((fit.slopes * weights).T, -fit.errors * weights, rcond=1e-6)
        step = np.clip(step, -0.5, 0.5)
        while float(np.abs(step).max()) >= _SETTLED:
            after = fit.at(fit.moved + step, rows, seconds)
            if _loss(after.errors) < _loss(fit.errors):
                break
            step = step / 4
        else:
            break
        fit = after
    return fit


def held_out(rows: Sequence[Row], fit: Fit, seconds: Seconds) -> float | None:
    """Return the mean error of each half of the steps, with constants fitted on the other.

    Either half's search starts from the constants of all.
    """
    halves, errors = (slice(0, None, 2), slice(1, None, 2)), list[float]()
    for tested, rest in zip(halves, reversed(halves), strict=True):
        half = replace(fit, errors=fit.errors[rest], slopes=fit.slopes[:, rest])
        try:
            constants = fitted(rows[rest], half, seconds).constants
        except RefusedError:  # this half does not determine some constant
            return None
        errors += [abs(seconds(row, constants) / row["seconds"] - 1) for row in rows[tested]]
    return fmean(errors)


def _errors(rows: Sequence[Row], calculated: Sequence[float]) -> Any:
    return np.log(calculated) - np.log([row["seconds"] for row in rows])


def _bounded(constant: FittedConstant, value: float) -> float:
    """Return a value within bounds, in the four digits that a file states."""
    within = min(max(value, constant.least), constant.most)
    return float(f"{within:.4g}") if constant.unit else round(within, 4)


def _loss(errors: Any) -> float:
    """Return the Huber loss: quadratic in small errors, linear in large ones."""
    return float(np.sum(np.sqrt(1 + (errors / _OUTLIER) ** 2) - 1))
