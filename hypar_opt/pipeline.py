"""The whole flow on one page: network -> graph -> shapes -> cost -> search -> plan."""

from __future__ import annotations

import operator
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt import __version__, models
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.readings import READINGS
from hypar_opt.documents import LARGEST_SIZE, read_text
from hypar_opt.errors import HyparError, RefusedError, UnknownNameError, WrongClaimError
from hypar_opt.graph import layer_graph
from hypar_opt.network import Network, read_network
from hypar_opt.partition import SEARCHES, Progress
from hypar_opt.plan import (
    MOST_LEVELS,
    NetworkRecord,
    Plan,
    Problem,
    SolverRecord,
    amount,
    parallelism_of,
    parse_plan,
)
from hypar_opt.shapes import Shapes
from hypar_opt.solvers import SOLVERS
from hypar_opt.verify import check_plan, price, too_fine

if TYPE_CHECKING:
    from hypar_opt.solvers.base import Solver


def find_network(network: str | Path | Network) -> Network:
    """Return a network of the zoo by its name, in any case, or read a network file.

    Raises
    ------
    InputError
        If the file cannot be read or is no network.
    UnknownNameError
        If there is neither such a name nor such a file; it suggests the nearest name.
    """
    if isinstance(network, Network):
        return network
    name = str(network)
    if name.lower() in models.names():
        return models.load(name)
    path = Path(name)
    if path.suffix or len(path.parts) > 1 or path.exists():
        return read_network(path)
    raise UnknownNameError("network", name, list(models.names()))


def solve(
    network: str | Path | Network,
    *,
    solver: str = "dp",
    search: str = "levelwise",
    batch: int = 256,
    levels: int = 4,
    reading: str = "text",
    element_bytes: int = 4,
    inference: bool = False,
    progress: Progress = lambda done, of: None,
) -> Plan:
    """Choose each layer's parallelism at each level of 2^levels accelerators.

    Parameters
    ----------
    network
        A name of the zoo (``"vgg-a"``), the path of a network file, or a `Network`.
    solver
        A name of `hypar_opt.solvers.SOLVERS`.
    search
        ``levelwise``, the paper's Algorithm 2.
    batch
        Images a step, over all accelerators.
    levels
        0 to 64; 0 is one accelerator.
    reading
        What is charged: ``text``, ``tables``, ``figures`` or ``executed``.
    element_bytes
        Bytes of a tensor's element.
    inference
        Charge the forward pass only.
    progress
        Called with the number of levels done, and of levels.

    Returns
    -------
    Plan
        Priced from its choices alone, not from the solver's claims.

    Raises
    ------
    HyparError
        If the input is wrong or the solver refuses it; the message says what would do.

    Examples
    --------
    >>> solve("lenet-c", batch=256, levels=2).parallelism[0]
    (<Parallelism.DATA: 'data'>, <Parallelism.DATA: 'data'>, <Parallelism.MODEL: 'model'>, \
<Parallelism.MODEL: 'model'>)
    """
    levels = _whole("levels", levels, 0, MOST_LEVELS)
    if search not in SEARCHES:
        raise UnknownNameError("search", search, list(SEARCHES))
    described = find_network(network)
    cost = CommunicationCost(reading, element_bytes, inference)
    method: Solver = SOLVERS[solver]()

    shapes = shapes_of(described, batch)
    started = time.perf_counter()
    try:
        partition = SEARCHES[search](shapes, cost, method, levels, progress)
    except (RefusedError, WrongClaimError) as error:
        raise type(error)(f"solver {solver!r} on {described.name}: {error}") from None
    seconds = time.perf_counter() - started

    problem = Problem(shapes.batch, levels, reading, element_bytes, inference)
    return Plan(
        network=NetworkRecord.of(described),
        batch=shapes.batch,
        levels=levels,
        element_bytes=element_bytes,
        inference=inference,
        layers=tuple(layer.name for layer in described.layers),
        parallelism=parallelism_of(partition.assignments),
        cost=price(shapes, problem, partition.assignments),
        solver=SolverRecord(
            name=solver,
            search=search,
            status=partition.status.value,
            scope="level",
            bound=None if partition.bound is None else amount(partition.bound),
            seconds=seconds,
            options={},
            versions={"hypar-opt": __version__},
        ),
    )


def solve_again(plan: Plan, progress: Progress = lambda done, of: None) -> Plan:
    """Solve a plan's own problem with its own solver and search."""
    return solve(
        plan.network.description,
        solver=plan.solver.name,
        search=plan.solver.search,
        progress=progress,
        **plan.problem._asdict(),
    )


def read_plan(path: str | Path) -> Plan:
    """Read a plan file and price it again.

    Raises
    ------
    InputError
        If it is no plan, a newer one, or says anything that its choices do not bear out.
    """
    plan = parse_plan(read_text(path), file=str(path))
    check_plan(plan, file=str(path))
    return plan


def is_plan(name: str) -> bool:
    """Whether a name is a plan file's, not a network's: JSON opens with a brace, TOML cannot."""
    path = Path(name)
    if name.lower() in models.names() or not path.is_file():
        return False
    return read_text(path).lstrip().startswith("{")


def difference(plan: Plan, other: Plan) -> str | None:
    """Return the first key in which two plans differ, the seconds of the search aside."""

    def keys(table: dict[str, Any], before: str = "") -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for key, value in table.items():
            inner = keys(value, f"{before}{key}.") if isinstance(value, dict) else {}
            flat |= inner or {before + key: value}
        return flat

    ours, theirs = keys(plan.document()), keys(other.document())
    return next(
        (
            key
            for key in [*ours, *theirs]
            if key != "solver.seconds" and ours.get(key) != theirs.get(key)
        ),
        None,
    )


def warnings(plan: Plan) -> list[str]:
    """Say, a sentence each, what a plan's user should know before running it."""
    found = []
    better = better_reading(plan)
    if better is not None:
        reading, moved = better
        found.append(
            f"run, this plan moves {plan.cost.executed_bytes / 1e6:.1f} MB,"
            f" Data Parallelism {plan.cost.data_parallel_bytes / 1e6:.1f} MB;"
            f" the plan of --solver dp --reading {reading} moves {moved / 1e6:.1f} MB"
        )
    return [*found, *too_fine(plan)]


def better_reading(plan: Plan) -> tuple[str, int | float] | None:
    """Return the reading whose plan moves the fewest bytes when run, and those bytes.

    None unless the plan would move more, when run, than Data Parallelism.
    """
    if plan.cost.executed_bytes <= plan.cost.data_parallel_bytes:
        return None
    problem = plan.problem._asdict()
    executed = {
        reading: solve(plan.network.description, **problem | {"reading": reading}).cost
        for reading in ("executed", *READINGS)  # of equals, the one made for it
    }
    best = min(executed, key=lambda reading: executed[reading].executed_bytes)
    return best, executed[best].executed_bytes


def shapes_of(network: Network, batch: int) -> Shapes:
    """Return a network's tensors for a batch."""
    return Shapes.of(layer_graph(network), _whole("batch", batch, 1, LARGEST_SIZE))


def describe(network: Network, shapes: Shapes) -> dict[str, Any]:
    """Return what is known of a network's layers as plain data; counts are the batch's."""
    layers = [
        {
            "name": layer.name,
            "kind": layer.kind,
            "input": layer.input,
            "weight": layer.weight,
            "output": layer.output,
            "pooled": layer.pooled,
            "weights": weights,
            "feature_map": elements,
            "macs": layer.macs,
        }
        for layer, weights, elements in zip(
            shapes.layers, shapes.weights, shapes.pooled, strict=True
        )
    ]
    total = {
        "weights": sum(shapes.weights),
        "feature_map": sum(shapes.pooled),
        "macs": sum(layer.macs for layer in shapes.layers),
    }
    head = {"name": network.name, "source": network.source, "digest": network.digest()}
    return {**head, "batch": shapes.batch, "layers": layers, "total": total}


def _whole(name: str, value: Any, least: int, most: int) -> int:
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None or not least <= number <= most:
        raise HyparError(f"{name} should be a whole number from {least} to {most}, got {value!r}")
    return number
