"""One case of a sweep, and the row that it comes to."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from hypar_opt.documents import Document, Name, parse_json, validate
from hypar_opt.errors import HyparError
from hypar_opt.hardware.array import Array
from hypar_opt.pipeline import repriced, solve
from hypar_opt.studies.evaluation import simulate
from hypar_opt.version import __version__
from hypar_opt.workload.network import Network


@dataclass(frozen=True)
class Case:
    """A network and an array, whole, as JSON: all that another process needs."""

    network: str
    array: str
    batch: int
    element_bytes: int
    cost: str
    solver: str
    search: str | None
    """None for what `solve` takes for the cost."""
    overlap: str
    reading: str
    version: str = __version__

    def key(self) -> str:
        """A fingerprint of everything that the row depends on."""
        text = json.dumps(vars(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def columns(self) -> dict[str, Any]:
        """Return what its row says of the case itself; the search may be left to `solve`."""
        array = _array(self.array)
        return {
            "network": _network(self.network).name,
            "batch": self.batch,
            "element_bytes": self.element_bytes,
            "levels": array.levels,
            "array": array.name,
            "cost": self.cost,
            "solver": self.solver,
            "search": self.search,
            "reading": self.reading,
            "overlap": self.overlap,
        }


class Row(Document):
    """A line of the table: a case, and its plan's step simulated.

    What a refused case would have is null, and ``reason`` says why.
    """

    network: Name
    batch: int
    element_bytes: int
    levels: int
    array: Name
    cost: str
    """What the plan was found for."""
    solver: str
    search: str | None
    reading: str
    overlap: str
    status: Literal["optimal", "feasible", "refused"]
    bytes: int | float | None = None
    """What the plan moves, by the reading."""
    executed_bytes: int | float | None = None
    """What running the plan moves."""
    data_parallel_bytes: int | float | None = None
    """What running Data Parallelism moves."""
    seconds: float | None = None
    compute_seconds: float | None = None
    communication_seconds: float | None = None
    joules: float | None = None
    memory_bytes: int | None = None
    """What the plan takes of an accelerator's memory."""
    reason: str | None = None


def run(case: Case) -> Row:
    """Solve and simulate a case; one that is refused is a row with the reason.

    Raises
    ------
    HyparError
        If another version of hypar-opt asks: its row might be another.
    """
    if case.version != __version__:
        raise HyparError(
            f"a worker has hypar-opt {__version__}, and the sweep is of {case.version};"
            " install the same"
        )
    network, array = _network(case.network), _array(case.array)
    asked = case.columns()
    try:
        plan = solve(
            network,
            solver=case.solver,
            search=case.search,
            batch=case.batch,
            element_bytes=case.element_bytes,
            array=array,
            cost=case.cost,
            reading=case.reading,
        )
        step = simulate(plan, overlap=case.overlap)
    except HyparError as error:
        return validate(Row, {**asked, "status": "refused", "reason": error.for_shell})
    found = {
        "search": plan.solver.search,
        "status": plan.solver.status,
        "bytes": repriced(plan, cost="bytes").cost.total,
        "executed_bytes": plan.cost.executed_bytes,
        "data_parallel_bytes": plan.cost.data_parallel_bytes,
        "seconds": step.seconds,
        "compute_seconds": step.compute,
        "communication_seconds": step.communication,
        "joules": step.energy.total,
        "memory_bytes": step.memory,
    }
    return validate(Row, asked | found)


# Cases that follow one another mostly share these.
@lru_cache(16)
def _network(text: str) -> Network:
    return validate(Network, parse_json(text, file="a case's network"))


@lru_cache(16)
def _array(text: str) -> Array:
    return validate(Array, parse_json(text, file="a case's array"))
