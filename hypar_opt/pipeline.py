"""The whole flow on one page: network -> graph -> shapes -> cost -> search -> plan."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt import models
from hypar_opt.costs import COSTS
from hypar_opt.documents import exists, read_text, validate
from hypar_opt.errors import HyparError, InputError, RefusedError, UnknownNameError, WrongClaimError
from hypar_opt.graph import layer_graph
from hypar_opt.limits import Limits
from hypar_opt.network import Network, read_network
from hypar_opt.partition import SEARCHES, Progress, Search
from hypar_opt.plan import (
    NetworkRecord,
    Plan,
    Problem,
    SolverRecord,
    SolverSettings,
    json_number,
    parse_plan,
)
from hypar_opt.shapes import Shapes
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.verify import check_plan, price
from hypar_opt.version import __version__

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel


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
    if not isinstance(network, str | Path):
        raise HyparError(f"a network should be a name, a path or a Network, got {network!r}")
    name = str(network)
    if name.lower() in models.names():
        return models.load(name)
    path = Path(name)
    if name and (path.suffix or len(path.parts) != 1 or exists(path)):
        return read_network(path)
    raise UnknownNameError("network", name, list(models.names()))


def solve(
    network: str | Path | Network,
    *,
    solver: str = "dp",
    search: str = "levelwise",
    options: SolverOptions | None = None,
    start: Plan | None = None,
    progress: Progress = lambda done, of: None,
    **asked: Any,
) -> Plan:
    """Choose each layer's parallelism at each level of 2^levels accelerators.

    Parameters
    ----------
    network
        A name of the zoo (``"vgg-a"``), the path of a network file, or a `Network`.
    solver
        A name of `hypar_opt.solvers.SOLVERS`.
    search
        ``levelwise``, the paper's Algorithm 2, or ``joint``, over all levels together.
    options
        Limits and settings of the solver.
    start
        A plan of the same problem for the solver to start from.
    progress
        Called with the number of tables solved, and of tables.
    **asked
        The fields of `Problem`: ``batch=256``, ``levels=4`` (0 to 64; 0 is one
        accelerator), ``reading="text"``, ``element_bytes=4``, ``inference=False``,
        ``choices``, ``level_weights``, ``constraints``.

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
    >>> plan = solve("lenet-c", batch=256, levels=2)
    >>> [[choice.value for choice in row] for row in plan.parallelism]
    [['data', 'data', 'model', 'model'], ['data', 'data', 'model', 'data']]
    """
    problem = validate(Problem, asked)
    if search not in SEARCHES:
        raise UnknownNameError("search", search, list(SEARCHES))
    method = SOLVERS[solver]()
    described = find_network(network)
    options = options or SolverOptions()

    shapes = shapes_of(described, problem.batch)
    cost: CostModel = COSTS["bytes"].asked(problem)
    limits = Limits(problem, shapes)
    started = time.perf_counter()
    try:
        rows = None if start is None else _rows_to_start_from(start, described, problem)
        request = Search(shapes, cost, problem.levels, limits, method, options, rows, progress)
        partition = SEARCHES[search](request)
    except (RefusedError, WrongClaimError) as error:
        raise type(error)(f"solver {solver!r} on {described.name}: {error}") from None
    seconds = time.perf_counter() - started

    priced = price(shapes, problem, partition.assignments)
    bound = None if partition.bound is None else json_number(partition.bound)
    total = priced.total
    return Plan(
        network=NetworkRecord.of(described),
        layers=tuple(layer.name for layer in shapes.layers),
        parallelism=named(partition.assignments, problem),
        cost=priced,
        solver=SolverRecord(
            name=solver,
            search=search,
            status=partition.status.value,
            scope=partition.scope,
            bound=bound,
            gap=None if bound is None else (total - bound) / total if total else 0.0,
            stopped_by=partition.stopped_by,
            seconds=seconds,
            options=_settings(options, start),
            statistics=tuple(dict(each) for each in partition.statistics),
            versions={"hypar-opt": __version__, **partition.versions},
        ),
        **{name: getattr(problem, name) for name in Problem.model_fields if name != "reading"},
    )


def solve_again(plan: Plan, progress: Progress = lambda done, of: None) -> Plan:
    """Solve a plan's own problem with its own solver, search and options."""
    return solve(
        plan.network.description,
        solver=plan.solver.name,
        search=plan.solver.search,
        options=SolverOptions(**plan.solver.options.model_dump(exclude={"warm_start"})),
        progress=progress,
        **dict(plan.problem),
    )


def named(rows: Sequence[Sequence[int]], problem: Problem) -> tuple[tuple[Any, ...], ...]:
    """Return columns of a cost table as the choices they stand for."""
    return tuple(tuple(problem.choices[choice] for choice in row) for row in rows)


def read_plan(path: str | Path) -> Plan:
    """Read a plan file and price it again.

    Raises
    ------
    InputError
        If it is no plan, a newer one, says a cost that its choices do not have, or does not
        keep to its own constraints.
    """
    plan = parse_plan(read_text(path), file=str(path))
    check_plan(plan, file=str(path))
    if plan.constraints.any:
        try:
            Limits(plan, shapes_of(plan.network.description, plan.batch)).check(plan.assignments())
        except HyparError as error:
            raise InputError(str(error), file=str(path)) from None
    return plan


def shapes_of(network: Network, batch: int) -> Shapes:
    """Return a network's tensors for a batch."""
    return Shapes.of(layer_graph(network), batch)


def describe(network: Network, batch: int) -> dict[str, Any]:
    """Return what is known of a network's layers as plain data; counts are the batch's."""
    shapes = shapes_of(network, validate(Problem, {"batch": batch}).batch)
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


def _settings(options: SolverOptions, start: Plan | None) -> SolverSettings:
    names = SolverSettings.model_fields.keys() - {"warm_start"}
    return SolverSettings(
        warm_start=start is not None,
        **{name: getattr(options, name) for name in names},
    )


def _rows_to_start_from(
    start: Plan, network: Network, problem: Problem
) -> tuple[tuple[int, ...], ...]:
    same = (
        start.network.digest == network.digest()
        and start.levels == problem.levels
        and start.choices == problem.choices
    )
    if not same:
        raise RefusedError("a warm start should be a plan of the same network, levels and choices")
    return start.assignments()
