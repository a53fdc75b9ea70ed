"""One case of a sweep, and its row of results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from pydantic import Field

from hypar_opt.documents.document import Document, Name, Table, validate
from hypar_opt.documents.parsing import parse_json
from hypar_opt.errors import HyparError
from hypar_opt.frozen import FrozenDict
from hypar_opt.hardware.array import Array
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.plan.arguments import ProblemArguments
from hypar_opt.plan.plan import Plan
from hypar_opt.planning.solve import solve
from hypar_opt.search.plan_file import repriced
from hypar_opt.studies.simulation import simulated_step
from hypar_opt.units import format_bytes
from hypar_opt.version import __version__
from hypar_opt.workload import parallelism
from hypar_opt.workload.network import Network

PAPERS = ",".join(parallelism.PAPERS_CHOICES)
"""The default choices of a case, as on the command line."""

Cell = bool | int | float | str | None
"""The value of a table's cell."""

CHOICES = tuple(map(",".join, parallelism.SETS_OF_CHOICES))


@dataclass(frozen=True)
class Case:
    """One combination of a sweep's axes; network and array as JSON, for another process."""

    network: str
    array: str
    """An array, or without one the parts of the levels."""
    batch: int
    element_bytes: int
    choices: str
    cost: str
    solver: str
    search: str | None
    """None for the default of `solve`, which depends on the cost."""
    overlap: str | None
    """None if nothing is simulated."""
    reading: str
    names: tuple[str, str]
    """Of the network and the array as the sweep lists them, without what it varies."""
    varied: tuple[tuple[str, Any], ...] = ()
    """The keys that the sweep varies, as columns, with their values."""
    version: str = __version__

    def key(self) -> str:
        """A hash of everything that the row depends on."""
        # Includes the version, since another may give another row; sorted, so that the order of
        # fields does not matter.
        text = json.dumps(vars(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def columns(self) -> dict[str, Any]:
        """Return the columns that identify the case; None for a search left to `solve`."""
        columns = {name: value for name, value in vars(self).items() if name in COLUMNS}
        columns |= dict(zip(("network", "array"), self.names, strict=True))
        return {**columns, "varied": dict(self.varied), "levels": place_of(self.array).levels}


class SweepRow(Document):
    """A row of the table: a case, and the simulated step of its plan.

    Amounts are bytes, seconds and joules of one step. They are null in a refused case, with a
    ``reason``; those of the simulation are null if nothing is simulated.
    """

    network: Name
    batch: int
    element_bytes: int
    levels: int
    array: Name
    """The array's name; without one the accelerators, as ``2 x 3 = 6 accelerators``."""
    choices: str
    cost: str
    """The objective that the plan minimises."""
    solver: str
    search: str | None
    reading: str
    overlap: str | None
    status: Literal["optimal", "feasible", "refused"]
    bytes: int | float | None = None
    """Bytes moved by the plan in the reading."""
    executed_bytes: int | float | None = None
    """Bytes moved when the plan is run."""
    data_parallel_bytes: int | float | None = None
    """Bytes moved when Data Parallelism is run."""
    seconds: float | None = None
    compute_seconds: float | None = None
    communication_seconds: float | None = None
    joules: float | None = None
    memory_bytes: int | None = None
    """Bytes that one accelerator holds."""
    reason: str | None = None
    varied: Table[str, Cell] = Field(default_factory=FrozenDict)
    """What the sweep varies, by column; quantities are in base units."""
    speedup: float | None = None
    """Of a plan for time: Data Parallelism's over the plan's, as their costs have them."""

    def cells(self) -> dict[str, Any]:
        """Return the row as it is in a table: a column for each key that the sweep varies."""
        of_case, results = COLUMNS[: COLUMNS.index("status")], COLUMNS[COLUMNS.index("status") :]
        return {
            **{name: getattr(self, name) for name in of_case},
            **self.varied,
            **{name: getattr(self, name) for name in results},
        }

    def __repr__(self) -> str:
        moved = "" if self.bytes is None else f", {format_bytes(self.bytes)}"
        return (
            f"<SweepRow {self.network} on {self.array}: batch {self.batch:,}, reading"
            f" {self.reading}, {self.solver} {self.status}{moved}>"
        )


COLUMNS = tuple(name for name in SweepRow.model_fields if name not in ("varied", "speedup"))
"""The columns of every table, besides those of what a sweep varies."""


def cells_of(rows: Sequence[SweepRow]) -> list[dict[str, Any]]:
    """Return the rows of a table, at the end with the speed-up if it has plans for time."""
    by_time = any(row.cost == "time" for row in rows)
    return [row.cells() | ({"speedup": row.speedup} if by_time else {}) for row in rows]


def run_case(case: Case) -> SweepRow:
    """Solve a case, and simulate it if asked to; a refused case is a row with the reason.

    Raises
    ------
    HyparError
        If the sweep is of another version of hypar-opt, whose row might differ.
    """
    # A Dask worker may be another installation.
    if case.version != __version__:
        raise HyparError(
            f"a worker has hypar-opt {__version__}, and the sweep is of {case.version};"
            " install the same"
        )
    try:
        names = ("solver", "search", "batch", "element_bytes", "cost", "reading")
        arguments: dict[str, Any] = {name: getattr(case, name) for name in names}
        arguments |= {**on(place_of(case.array)), "choices": case.choices.split(",")}
        plan = solve(network_of(case.network), overlap="none", **arguments)
        simulated = {} if case.overlap is None else _simulated(plan, case.overlap)
    except HyparError as error:
        # One case that a solver refuses does not end a sweep of thousands.
        return row_of(case, {"status": "refused", "reason": error.for_shell})
    results = {
        # `solve` chooses if the sweep does not say.
        "search": plan.solver.search,
        "status": plan.solver.status,
        # A plan for time or energy has another cost, but still moves bytes.
        "bytes": repriced(plan, cost="bytes").cost.total,
        "executed_bytes": plan.cost.executed_bytes,
        "data_parallel_bytes": plan.cost.data_parallel_bytes,
        "speedup": plan.cost.ratios.data if plan.cost.kind == "time" else None,
    }
    return row_of(case, results | simulated)


def row_of(case: Case, results: dict[str, Any]) -> SweepRow:
    """Return the row of a case and its results."""
    return validate(SweepRow, case.columns() | results)


def _simulated(plan: Plan, overlap: str) -> dict[str, Any]:
    step = simulated_step(plan, overlap=overlap)
    parts = {"compute_seconds": step.compute, "communication_seconds": step.communication}
    whole = {"seconds": step.seconds, "joules": step.joules, "memory_bytes": step.memory}
    return {**whole, **parts}


# Cases that follow one another mostly share their network and array, and parsing is slow.
@lru_cache(16)
def network_of(text: str) -> Network:
    """Return a case's network."""
    return validate(Network, parse_json(text, file="a case's network"))


@lru_cache(16)
def place_of(text: str) -> Array | Hierarchy:
    """Return a case's array, or its levels without one."""
    parsed = parse_json(text, file="a case's array")
    return Hierarchy(tuple(parsed)) if isinstance(parsed, list) else validate(Array, parsed)


def levels_at(place: Array | Hierarchy) -> Hierarchy:
    """Return the parts of each level of a case's array, or those that it states without one."""
    return place if isinstance(place, Hierarchy) else place.hierarchy()


def on(place: Array | Hierarchy) -> ProblemArguments:
    """Return the arguments of a problem on an array, or on levels without one."""
    if isinstance(place, Hierarchy):
        return {"hierarchy": place.sizes, "whole_levels": True}
    return {"array": place}
