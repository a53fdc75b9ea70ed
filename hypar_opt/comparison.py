"""The paper's plans side by side on an array: its figures 6 to 8, for any network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

from hypar_opt.evaluation import simulate
from hypar_opt.hardware.array import Array, find_array
from hypar_opt.network import Network
from hypar_opt.partition import Progress
from hypar_opt.pipeline import find_network, solve

PLANS = {
    "model": ("model", "levelwise"),
    "data": ("data", "levelwise"),
    "trick": ("trick", "levelwise"),
    "hypar": ("dp", "levelwise"),
    "joint": ("dp", "joint"),
}
"""Each plan's solver and search."""

AMOUNTS = ("bytes", "seconds", "joules", "speedup", "energy_efficiency")


@dataclass(frozen=True)
class Row:
    """One plan of one network: its bytes by the reading, its step simulated.

    ``speedup`` and ``energy_efficiency`` are over Data Parallelism.
    """

    network: str
    batch: int
    levels: int
    array: str
    plan: str
    bytes: int | float
    seconds: float
    joules: float
    speedup: float
    energy_efficiency: float


def compare(
    networks: Sequence[str | Path | Network],
    arrays: Sequence[str | Path | Array],
    *,
    batches: Sequence[int] = (256,),
    progress: Progress = lambda done, of: None,
    run: dict[str, Any] | None = None,
    **asked: Any,
) -> list[Row]:
    """Compare Model and Data Parallelism, the Trick, HyPar and the joint optimum.

    Parameters
    ----------
    networks
        As `hypar_opt.solve` takes one.
    arrays, batches
        Each network is compared on each array with each batch.
    run
        Options of the simulation: ``collective``, ``overlap``.
    **asked
        Further fields of `hypar_opt.plan.Problem`: ``reading="text"``.

    Returns
    -------
    list of Row
        Five rows a case, in the order of the plans above.

    Raises
    ------
    HyparError
        If a network, an array or an option is wrong.
    """
    cases = [
        (find_network(network), batch, found)
        for found in map(find_array, arrays)
        for batch in batches
        for network in networks
    ]
    rows: list[Row] = []
    for done, (network, batch, array) in enumerate(cases):
        progress(done, len(cases))
        rows += _rows(network, batch, array, run or {}, asked)
    progress(len(cases), len(cases))
    return rows


def _rows(
    network: Network, batch: int, array: Array, run: dict[str, Any], asked: dict[str, Any]
) -> list[Row]:
    found = {}
    for name, (solver, search) in PLANS.items():
        plan = solve(network, solver=solver, search=search, batch=batch, array=array, **asked)
        step = simulate(plan, **run)
        found[name] = plan.cost.total, step.seconds, step.energy.total
    _, seconds, joules = found["data"]
    return [
        Row(
            network=network.name,
            batch=batch,
            levels=array.levels,
            array=array.name,
            plan=name,
            bytes=moved,
            seconds=taken,
            joules=used,
            speedup=seconds / taken,
            energy_efficiency=joules / used if used else 1.0,
        )
        for name, (moved, taken, used) in found.items()
    ]


def geometric_means(rows: Sequence[Row]) -> dict[str, dict[str, float | None]]:
    """Return each plan's geometric means over all rows; None where an amount is 0."""
    means: dict[str, dict[str, float | None]] = {}
    for name in PLANS:
        mine = [row for row in rows if row.plan == name]
        means[name] = {key: _mean([getattr(row, key) for row in mine]) for key in AMOUNTS}
    return means


def _mean(amounts: Sequence[float]) -> float | None:
    if not amounts or min(amounts) <= 0:
        return None
    return exp(sum(map(log, amounts)) / len(amounts))
