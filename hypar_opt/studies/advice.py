"""Advice: warnings before a plan is run, better plans to try, and how two plans differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hypar_opt.checked import checked
from hypar_opt.deadline import NEVER, TIME_LIMIT, Deadline
from hypar_opt.errors import HyparError, Sentence, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.costs import Cost
from hypar_opt.plan.oversplit import oversplit_warnings
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.problem import RUN_READINGS, Problem
from hypar_opt.planning.search import solve_problem
from hypar_opt.search import check_result
from hypar_opt.search.plan_file import repriced
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.baselines import BASELINES
from hypar_opt.step.readings import READINGS
from hypar_opt.studies.memory import memory
from hypar_opt.units import format_bytes

EXECUTED = argument("reading", "executed")
"""The reading that counts the bytes of a run, as messages name it."""

MAX_STATES = 2**12
"""The joint optimum is computed as advice up to this many product states per layer."""

MAX_GRAPH_STATES = 3**4
"""The same on a graph, whose tables have three layers' states or more."""


def executed_note(cost: Cost, name: str = "") -> str | None:
    """Return a note on the bytes that a run of the plan moves; None if they equal its total.

    Parameters
    ----------
    name
        The plan's name, if several are shown.
    """
    if cost.reading in RUN_READINGS and cost.unit == "bytes":
        return None
    which = f"{name}, executed" if name else "Executed"
    if cost.executed_bytes is None:
        return None
    moved, data = map(format_bytes, (cost.executed_bytes, cost.data_parallel_bytes))
    return f"{which}: {moved} (Data Parallelism: {data})."


def refused_baselines(plan: Plan) -> Iterator[str]:
    """Yield a sentence for each baseline shown beside a plan that breaks the plan's constraints.

    Or that, trained as the plan is, does not fit the memory of a device.
    """
    if plan.is_staged:  # baselines have no stages
        return
    instance = Instance.of_plan(plan)
    why = check_result.refused_baselines(instance)
    too_large = check_result.too_large_baselines(instance)
    for name in ("Data Parallelism", "Model Parallelism"):
        key = BASELINES[name]
        if key in why:
            yield f"{name} violates a constraint: {why[key]}."
        elif key in too_large:
            yield f"{name} does not fit: {too_large[key]}."


def more_bytes_warning(cost: Cost, name: str = "this plan") -> str | None:
    """Return a warning if a plan moves more than Data Parallelism when it is run, else None.

    A plan for least time or energy may have good reason to move more.
    """
    moved, data = cost.executed_bytes, cost.data_parallel_bytes
    if moved is None or moved <= data or (cost.reading in RUN_READINGS and cost.kind != "bytes"):
        return None
    return f"when run, {name} moves {format_bytes(moved)}, Data Parallelism {format_bytes(data)}"


def turns(
    quantity: str,
    reading: str,
    ratio: float | None,
    executed: float | None,
    name: str = "this plan",
) -> str | None:
    """Return a warning if a plan beats Data Parallelism by its reading but not when run, else None.

    Parameters
    ----------
    quantity
        The quantity compared: ``time`` or ``energy``.
    ratio, executed
        Data Parallelism's amount over the plan's, so that more than 1 favours the plan: by the
        plan's reading, and by the reading ``executed``; None where not known.
    """
    if ratio is None or executed is None or ratio < 1 or executed >= 1:
        return None
    return Sentence(
        f"by the reading {reading} Data Parallelism takes {ratio:.4g} times the {quantity} of"
        f" {name}, but when run {executed:.4g} times; {EXECUTED} plans for that"
    )


@checked
def better_reading(plan: Plan, deadline: Deadline = NEVER) -> tuple[str, int | float] | None:
    """Return the reading whose plan moves the fewest bytes when run, and those bytes.

    None unless a plan for fewest bytes moves more, when run, than Data Parallelism, and that
    reading's plan of the same problem moves less.
    """
    moved = plan.cost.executed_bytes
    if plan.cost.kind != "bytes" or moved is None or moved <= plan.cost.data_parallel_bytes:
        return None
    executed: dict[str, int | float] = {}
    run = plan.problem.run_reading
    for reading in sorted(READINGS, key=lambda name: name != run):
        problem = plan.problem.model_copy(update={"level_weights": (), "reading": reading})
        if problem.run_reading != run:  # whose runs move other bytes
            continue
        try:
            alternative = _solved(plan, problem, deadline)
        except HyparError:  # a reading may lack some choices, and time may be up
            continue
        if alternative.cost.executed_bytes is not None:
            executed[reading] = alternative.cost.executed_bytes
    if not executed:
        return None
    best = min(
        executed, key=executed.__getitem__
    )  # the reading of a run comes first, and wins ties
    return (best, executed[best]) if executed[best] < moved else None


def joint_optimum(plan: Plan, deadline: Deadline = NEVER) -> Plan | None:
    """Return the cheapest plan over all levels jointly; None if that takes too long.

    Nothing is solved after a time limit has stopped the plan's search.
    """
    if plan.solver.stopped_by == TIME_LIMIT:
        return None
    max_states = MAX_STATES if plan.network.description.is_chain else MAX_GRAPH_STATES
    try:
        # Interchangeable levels separate into one problem each: fast at any size. Otherwise a layer
        # has choices^levels product states (decision 5).
        many = len(plan.choices) ** plan.levels > max_states
        if many and Instance.of_plan(plan).thresholds is None:
            return None
        # Advice only: a refused joint search does not affect the plan.
        return _solved(plan, plan.problem, deadline, search="joint")
    except HyparError:
        return None


def _solved(plan: Plan, problem: Problem, deadline: Deadline, search: str | None = None) -> Plan:
    """Solve a problem on a plan's network; raise NoAnswerError if the deadline passes first."""
    deadline.check()
    options = SolverOptions(time_limit=deadline.left())
    alternative = solve_problem(plan.network.description, problem, search=search, options=options)
    if alternative.solver.stopped_by == TIME_LIMIT:
        deadline.expire()
    return alternative


def warnings(plan: Plan, deadline: Deadline = NEVER) -> list[str]:
    """Return warnings to read before running a plan, one sentence each.

    Parameters
    ----------
    deadline
        When to stop looking for a better plan.
    """
    sentences: list[str] = []
    more = more_bytes_warning(plan.cost)
    if more is not None and "data" not in check_result.refused_baselines(Instance.of_plan(plan)):
        better = better_reading(plan, deadline)
        if better is not None:
            reading, moved = better
            dp = f"{argument('solver', 'dp')} {argument('reading', reading)}"
            more += f"; the plan of {dp} moves {format_bytes(moved)}"
        elif plan.cost.kind != "bytes" and plan.cost.reading not in RUN_READINGS:
            more += f"; {EXECUTED} plans for that"
        sentences.append(Sentence(more))
    if plan.solver.stopped_by is not None:
        whose = f"; the plan is {plan.solver.found_by}" if plan.solver.found_by else ""
        sentences.append(f"the search was stopped by its {plan.solver.stopped_by}{whose}")
    return [*sentences, *oversplit_warnings(plan), *_over_memory(plan)]


def _over_memory(plan: Plan) -> list[str]:
    """Return a warning if a plan takes more memory than an accelerator of its array has."""
    if plan.array is None or not plan.step_model.memory_by_tensor:
        return []
    if plan.has_unequal_parts or plan.groups or plan.is_staged:
        return []
    usage = memory(plan)
    if usage.fits:
        return []
    return [
        f"needs {format_bytes(usage.total)} of memory per accelerator of {plan.array.name}, which"
        f" has {format_bytes(usage.capacity or 0)}"
    ]


def warnings_of_cost(plan: Plan) -> list[str]:
    """Return warnings if a plan for least time or energy loses to Data Parallelism when run."""
    cost = plan.cost
    if cost.kind == "bytes":
        return []
    try:
        run = repriced(plan, plan.problem.run_reading).cost
    except HyparError:  # a plug-in's cost may have readings of its own
        return []
    reversal = turns(cost.kind, cost.reading, cost.ratios.data, run.ratios.data)
    return [] if reversal is None else [reversal]


def difference(plan: Plan, other: Plan) -> str | None:
    """Return the first key in which two plans differ, ignoring seconds and versions."""
    # Seconds and versions differ between machines where the answer is the same.
    ours, theirs = dict(_keys(plan.document())), dict(_keys(other.document()))
    return next((key for key in [*ours, *theirs] if ours.get(key) != theirs.get(key)), None)


def _keys(table: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        path = before + key
        if isinstance(value, dict) and path != "solver.versions":
            yield from _keys(value, f"{path}.")
        elif path not in {"solver.seconds", "solver.versions"}:
            yield path, value
