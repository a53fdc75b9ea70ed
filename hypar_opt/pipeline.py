"""The whole flow on one page: network -> graph -> shapes -> cost -> search -> plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt import models
from hypar_opt.costs import COSTS
from hypar_opt.deadline import TIME_LIMIT, Deadline
from hypar_opt.documents import find, read_text, validate
from hypar_opt.errors import (
    HyparError,
    InfeasibleError,
    InputError,
    RefusedError,
    UnknownNameError,
    WrongClaimError,
)
from hypar_opt.files import check_outputs, recorded_reads
from hypar_opt.hardware import arrays
from hypar_opt.hardware.arrays import find_array
from hypar_opt.plan.plan import Plan, SolverRecord, SolverSettings, json_number, parse_plan
from hypar_opt.plan.problem import ArrayRecord, NetworkRecord, Problem, ProblemFields
from hypar_opt.search.constraints import Limits
from hypar_opt.search.level_order import fastest_order
from hypar_opt.search.partition import SEARCHES, Progress, Search
from hypar_opt.search.pricing import check_plan, price
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.version import __version__
from hypar_opt.workload.graph import layer_graph
from hypar_opt.workload.network import Network, read_network
from hypar_opt.workload.parallelism import Parallelism
from hypar_opt.workload.tensors import Workload

if TYPE_CHECKING:
    from hypar_opt.costs.base import CostModel
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.interconnect import BisectionLink

MOST_ORDERS = 50_000
"""Orders of an array's splits that are looked at; those that differ are solved for."""


def find_network(network: str | Path | Network) -> Network:
    """Return a network of the zoo by its name, in any case, or read a network file.

    Raises
    ------
    InputError
        If the file cannot be read or is no network.
    UnknownNameError
        If there is neither such a name nor such a file; it suggests the nearest name.
    """
    return find("network", network, Network, models.names(), models.load, read_network)


def solve(
    network: str | Path | Network,
    *,
    solver: str = "dp",
    search: str | None = None,
    options: SolverOptions | None = None,
    start: Plan | None = None,
    place: bool = False,
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
        ``levelwise``, the paper's Algorithm 2, or ``joint``, over all levels together. None
        for the paper's with bytes, and joint with what an array decides.
    options
        Limits and settings of the solver. A time limit counts from this call; the answer is
        then the best plan known, if only Data Parallelism, Model Parallelism or the Trick.
    start
        A plan of the same problem for the solver to start from.
    place
        Choose as well which of the array's splits is which level: the best of all orders
        that its topology allows.
    progress
        Called with the number of tables solved, and of tables.
    **asked
        The fields of `Problem`: ``batch=256``, ``levels=4`` (0 to 64; 0 is one
        accelerator), ``reading``, ``element_bytes=4``, ``inference=False``, ``choices``,
        ``level_weights``, ``constraints``, ``cost="bytes"``; ``array``, a preset's name, a
        path or an `Array`, which decides the levels, and ``placement``. The reading is that
        of `default_reading` unless given.

    Returns
    -------
    Plan
        Priced from its choices alone, not from the solver's claims.

    Raises
    ------
    HyparError
        If the input is wrong or the solver refuses it; the message says what would do.
    InfeasibleError
        If no plan keeps to the constraints.
    NoAnswerError
        If the limits leave no plan that does.

    Examples
    --------
    >>> plan = solve("lenet-c", batch=256, levels=2)
    >>> [[choice.value for choice in row] for row in plan.parallelism]
    [['data', 'data', 'model', 'model'], ['data', 'data', 'model', 'data']]
    """
    options = options or SolverOptions()
    settings = _settings(options, start)
    deadline = Deadline.after(options.time_limit)
    with recorded_reads() as read:
        problem, described = problem_of(**asked), find_network(network)
    check_outputs(read, options.log, options.export)
    if search is None:
        search = "levelwise" if problem.cost == "bytes" else "joint"
    if search not in SEARCHES:
        raise UnknownNameError("search", search, list(SEARCHES))
    solved = partial(
        _solve, described, solver, search, options, settings, start, deadline, progress=progress
    )
    return _placed(problem, solved, progress, deadline) if place else solved(problem)


def _placed(
    problem: Problem, solved: Callable[..., Plan], progress: Progress, deadline: Deadline
) -> Plan:
    """Solve for every order of the array's splits; of equals keep the first, the default.

    Orders that give every exchange the same are one and the same to a plan. When the deadline
    comes, the best of the orders that were solved is the answer, and no bound is known.
    """
    if problem.array is None or problem.cost == "bytes":
        raise HyparError("--place goes with --array and --cost time or energy")
    array = problem.array.description
    orders: dict[tuple[BisectionLink, ...], tuple[int, ...]] = {}
    for count, order in enumerate(array.orders()):
        if count >= MOST_ORDERS:
            raise RefusedError(f"--place: {array.name} allows {MOST_ORDERS} orders or more")
        if orders and deadline.passed():
            break
        orders.setdefault(_given(array, order), order)
    best: Plan | None = None
    for done, order in enumerate(orders.values()):
        progress(done, len(orders))
        plan = solved(problem.model_copy(update={"placement": order}), progress=_silent)
        if best is None or plan.cost.total < best.cost.total:
            best = plan
        if deadline.passed():
            break
    progress(len(orders), len(orders))
    assert best is not None
    if not deadline.passed():
        return best
    stopped = {"status": "feasible", "bound": None, "gap": None, "stopped_by": TIME_LIMIT}
    return best.model_copy(update={"solver": best.solver.model_copy(update=stopped)})


def _given(array: Array, order: tuple[int, ...]) -> tuple[BisectionLink, ...]:
    """Return what an array gives each exchange that a plan may make under a placement."""
    pairs = tuple(map(array.interconnect.bisection, order))
    if array.collective == "pairwise":
        return pairs
    sizes = range(1, len(order) + 1)
    rings = chain.from_iterable(combinations(order, size) for size in sizes)
    return (*pairs, *map(array.interconnect.ring, rings))


def _silent(done: int, of: int) -> None:
    pass


def _solve(
    described: Network,
    solver: str,
    search: str,
    options: SolverOptions,
    settings: SolverSettings,
    start: Plan | None,
    deadline: Deadline,
    problem: Problem,
    *,
    progress: Progress,
) -> Plan:
    started = time.perf_counter()
    method = SOLVERS[solver]()
    workload = workload_of(described, problem.batch)
    cost: CostModel = COSTS[problem.cost].from_problem(problem, workload)
    limits = Limits(problem, workload)
    try:
        begin = None if start is None else _rows_to_start_from(start, described, problem)
        request = Search(
            workload, cost, problem.levels, limits, method, options, begin, progress, deadline
        )
        partition = SEARCHES[search](request)
    except (RefusedError, WrongClaimError, InfeasibleError) as error:
        raise type(error)(f"solver {solver!r} on {described.name}: {error}") from None
    rows = partition.assignments
    if search == "joint":
        rows = tuple(fastest_order(problem, workload, rows, deadline))
    seconds = time.perf_counter() - started
    bound = None if partition.bound is None else json_number(partition.bound)
    return _priced(
        described,
        problem,
        rows,
        solver,
        bound,
        search=search,
        status=partition.status.value,
        scope=partition.scope,
        stopped_by=partition.stopped_by,
        found_by=partition.found_by,
        seconds=seconds,
        options=settings,
        statistics=tuple(dict(each) for each in partition.statistics),
        versions={"hypar-opt": __version__, **partition.versions},
    )


def _priced(
    described: Network,
    problem: Problem,
    rows: Sequence[Sequence[int]],
    solver: str,
    bound: float | None,
    **record: Any,
) -> Plan:
    """Return a plan priced from its choices."""
    workload = workload_of(described, problem.batch)
    cost = price(workload, problem, rows)
    total = cost.total
    if bound is not None and bound > total:
        raise WrongClaimError(f"claims the bound {bound}, above its plan's {total}")
    gap = None if bound is None else (total - bound) / total if total else 0.0
    return Plan(
        network=NetworkRecord.of(described),
        layers=tuple(layer.name for layer in workload.layers),
        parallelism=named(rows, problem),
        cost=cost,
        solver=SolverRecord(name=solver, bound=bound, gap=gap, **record),
        **{name: getattr(problem, name) for name in ProblemFields.model_fields},
    )


def plan_of(
    plan: Plan,
    parallelism: Sequence[Sequence[Parallelism]],
    *,
    bound: float,
    considered: int,
) -> Plan:
    """Return another plan of a plan's problem, one of the ``considered`` best.

    Parameters
    ----------
    bound
        What the best of them costs: no plan costs less.

    Raises
    ------
    WrongClaimError
        If this one does.
    """
    rows = [[plan.choices.index(choice) for choice in row] for row in parallelism]
    priced = _priced(
        plan.network.description,
        plan.problem,
        rows,
        "dp",
        bound,
        search="joint",
        status="feasible",
        scope="joint",
        stopped_by=None,
        seconds=0.0,
        options=SolverSettings(simulate=considered),
        statistics=(),
        versions={"hypar-opt": __version__},
    )
    if priced.cost.total > bound:
        return priced
    solver = priced.solver.model_copy(update={"status": "optimal"})
    return priced.model_copy(update={"solver": solver})


def problem_of(**asked: Any) -> Problem:
    """Return what is asked of a search, validated; an array decides the levels.

    ``array`` may be a preset's name, a path or an `Array`; ``memory="array"`` among the
    constraints is the array's capacity.

    Raises
    ------
    HyparError
        Naming what is wrong, and what would be right.
    """
    # None leaves these to the array, or the default.
    decided = {"levels", "array", "placement", "reading"}
    asked = {key: value for key, value in asked.items() if value is not None or key not in decided}
    array = asked.get("array")
    if array is not None:
        if not isinstance(array, ArrayRecord):
            array = ArrayRecord.of(find_array(array))
        described = array.description
        asked = {"levels": described.levels, "placement": described.placement, **asked}
        asked["array"] = array
    constraints = asked.get("constraints")
    if isinstance(constraints, dict) and constraints.get("memory") == "array":
        if array is None:
            raise HyparError("--memory array needs an array: --array NAME|FILE")
        memory = int(array.description.accelerator.dram_capacity)
        asked["constraints"] = constraints | {"memory": memory}
    problem = validate(Problem, asked)
    if "reading" in asked:
        return problem
    return problem.model_copy(update={"reading": default_reading(problem)})


def default_reading(problem: Problem) -> str:
    """Return the reading of a problem that names none.

    ``text``, the paper's, without an array, on one of the paper's arrays and with output
    parallelism, of which no run is known; else ``executed``, what running a plan moves.
    """
    if problem.array is None or Parallelism.OUTPUT in problem.choices:
        return "text"
    return "text" if arrays.is_papers(problem.array.description) else "executed"


def repriced(plan: Plan, reading: str | None = None, *, cost: str | None = None) -> Plan:
    """Return the same choices priced by another reading, or as another cost of the same array.

    What the solver proved was of the other price: the plan is then feasible, without a bound.

    Raises
    ------
    HyparError
        If there is no such reading or cost, or the cost is not one of the plan's problem.
    """
    asked = {"reading": reading or plan.cost.reading, "cost": cost or plan.cost.kind}
    if asked == {"reading": plan.cost.reading, "cost": plan.cost.kind}:
        return plan
    workload = workload_of(plan.network.description, plan.batch)
    priced = price(workload, plan.problem.model_copy(update=asked), plan.assignments())
    claims = {"status": "feasible", "bound": None, "gap": None}
    solver = plan.solver.model_copy(update=claims)
    return plan.model_copy(update={"cost": priced, "solver": solver})


def solve_again(
    plan: Plan, progress: Progress = lambda done, of: None, *, parameters: bool = False
) -> Plan:
    """Solve a plan's own problem with its own solver, search and options.

    Parameters
    ----------
    parameters
        Hand over the solver's parameters that the plan's file says, too.
    """
    return solve(
        plan.network.description,
        solver=plan.solver.name,
        search=plan.solver.search,
        options=options_of(plan, parameters=parameters),
        progress=progress,
        **dict(plan.problem),
    )


def options_of(plan: Plan, *, parameters: bool) -> SolverOptions:
    """Return the options that a plan was solved with.

    Parameters
    ----------
    parameters
        Hand over the solver's parameters that the plan's file says, too. Who wrote the file
        chose them, so that they are refused unless the caller knows them.

    Raises
    ------
    RefusedError
        Naming the parameters.
    """
    settings = plan.solver.options
    if settings.parameters and not parameters:
        named = " ".join(f"{key}={value}" for key, value in settings.parameters.items())
        raise RefusedError(
            f"the plan was solved with --solver-option {named}, and solving again with what a"
            " file says is not done unasked: show --rerun --plan-options does it"
        )
    return SolverOptions(**settings.model_dump(exclude={"warm_start", "simulate"}))


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
            Limits(plan, workload_of(plan.network.description, plan.batch)).check(
                plan.assignments()
            )
        except HyparError as error:
            raise InputError(str(error), file=str(path)) from None
    return plan


def workload_of(network: Network, batch: int) -> Workload:
    """Return a network's tensors for a batch."""
    return Workload.of(layer_graph(network), batch)


def describe(network: Network, batch: int) -> dict[str, Any]:
    """Return what is known of a network's layers as plain data; counts are the batch's."""
    workload = workload_of(network, validate(Problem, {"batch": batch}).batch)
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
            workload.layers, workload.weights, workload.pooled, strict=True
        )
    ]
    total = {
        "weights": sum(workload.weights),
        "feature_map": sum(workload.pooled),
        "macs": sum(layer.macs for layer in workload.layers),
    }
    head = {"name": network.name, "source": network.source, "digest": network.digest()}
    return {**head, "batch": workload.batch, "layers": layers, "total": total}


def _settings(options: SolverOptions, start: Plan | None) -> SolverSettings:
    names = SolverSettings.model_fields.keys() - {"warm_start", "simulate"}
    given = {name: getattr(options, name) for name in names}
    given["parameters"] = dict(options.parameters)
    return validate(SolverSettings, {**given, "warm_start": start is not None})


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
