"""Plans of least time with overlap, of the choices and the training that a search left open."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import NoAnswerError
from hypar_opt.frozen import FrozenDict
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.plan import Plan, WithOverlap
from hypar_opt.planning.priced import priced_plan
from hypar_opt.planning.search import SolveRequest, solve_instance
from hypar_opt.search.free_modes import SEARCHED, WIDENED, problem_left_open
from hypar_opt.search.result import SearchResult, silent
from hypar_opt.search.solver_settings import options_of
from hypar_opt.solvers.base import Status

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem
    from hypar_opt.search.overlap import Rows


def with_overlap(plan: Plan, overlap: str, deadline: Deadline = NEVER) -> Plan:
    """Return the plan of least time with overlap, of those with a plan's training settings.

    If the problem leaves training open, and a configuration takes less time than the plan, its
    training settings are used. The claim on its cost without overlap is that of the plan that is
    fastest without overlap, of those with the same training settings.

    Parameters
    ----------
    overlap
        ``gradient`` or ``prefetch``, as in the simulator.
    """
    # Imported late: most searches need no simulator.
    from hypar_opt.search.overlap import faster_configuration

    started = time.perf_counter()
    fastest_without, further_starts = plan, []
    if faster := faster_configuration(plan, overlap, deadline):
        if faster.problem.training.non_default == plan.training.non_default:
            further_starts = [faster.rows]
        else:
            with suppress(NoAnswerError):  # none within the time limit
                plan, further_starts = _solved_as(plan, faster.problem, deadline), [faster.rows]
    started -= fastest_without.solver.seconds
    return _fastest_with_overlap(
        plan,
        overlap,
        deadline,
        further_starts=further_starts,
        fastest_without=fastest_without,
        started=started,
    )


def or_of_wider_choices(plan: Plan, overlap: str, deadline: Deadline = NEVER) -> Plan:
    """Return a plan of default choices, or one of less time of a named configuration's choices.

    The latter is searched if such a configuration takes less time than the plan. Layers that it
    leaves whole although choices split them are pinned. Bounds then cover plans of these choices
    and pins, and with overlap also plans of the default choices.

    Parameters
    ----------
    overlap
        What overlaps in the time that is minimised.
    """
    from hypar_opt.search.overlap import faster_configuration

    started = time.perf_counter() - plan.solver.seconds
    faster = faster_configuration(plan, overlap, deadline, wider=True)
    if faster is None:
        return plan
    trained, narrower = faster.problem, plan.solver.with_overlap
    opened = trained.model_copy(update={"training": problem_left_open(plan).training})
    for problem in (opened, trained):
        try:
            widened = _solved_as(plan, problem, deadline)
        except NoAnswerError:  # none within the time limit
            break
        if narrower is None:
            solver = widened.solver.vouched(seconds=time.perf_counter() - started)
            widened = widened.model_copy(update={"solver": solver})
            is_faster = widened.cost.total < plan.cost.total
        else:
            same_training = widened.training.non_default == trained.training.non_default
            further_starts = [faster.rows] if same_training else []
            widened = _fastest_with_overlap(
                widened,
                overlap,
                deadline,
                further_starts=further_starts,
                started=started,
                narrower=narrower,
            )
            widened_time = widened.solver.with_overlap
            is_faster = same_training or (
                widened_time is not None and widened_time.seconds <= faster.seconds
            )
        if is_faster:
            return widened
    return plan


def _fastest_with_overlap(
    plan: Plan,
    overlap: str,
    deadline: Deadline,
    *,
    further_starts: Sequence[Rows],
    started: float,
    fastest_without: Plan | None = None,
    narrower: WithOverlap | None = None,
) -> Plan:
    """Return the plan of least time with overlap, of those with a plan's training settings.

    Parameters
    ----------
    further_starts
        Plans with the same training settings, from which the search starts, too.
    started
        When the search began.
    fastest_without
        The plan that is fastest without overlap, if it is another one.
    narrower
        The result for plans of fewer choices: the bound is at its prices, and covers these plans,
        too.
    """
    from hypar_opt.search.overlap import least_time

    prices, bound = (tuple(map(int, narrower.prices)), narrower.bound) if narrower else (None, inf)
    best = least_time(
        plan,
        overlap,
        deadline,
        further_starts=further_starts,
        fastest_without=fastest_without,
        prices=prices,
    )
    with_overlap = best.time._replace(bound=min(best.time.bound, bound))
    instance, solver = Instance.of_plan(plan), plan.solver
    shared, writers = instance.workload.shared, instance.workload.tensor_writers
    rows = tuple(row[shared:] for row in best.rows)
    tensors = tuple({node: row[node] for node in writers} for row in best.rows)
    result = SearchResult(
        rows, Status.FEASIBLE, solver.scope, None, tensors=tensors, priced=tensors
    )
    record = solver.model_copy(
        update={
            "status": "feasible",
            "stopped_by": best.stopped_by or solver.stopped_by,
            "seconds": time.perf_counter() - started,
            "statistics": (
                *solver.statistics,
                FrozenDict(with_overlap.statistics),
                FrozenDict({"simulated plans": best.simulated}),
            ),
        }
    )
    priced = priced_plan(instance, rows, record, result)
    if solver.status != "optimal" or priced.cost.total > plan.cost.total:
        return priced
    # Without overlap it takes as long as the optimum, and so is another optimum.
    return priced.model_copy(update={"solver": priced.solver.vouched(status="optimal")})


def _solved_as(plan: Plan, problem: Problem, deadline: Deadline) -> Plan:
    """Return the plan of a problem with settled training, solved as a plan was."""
    network, options = plan.network.description, options_of(plan, parameters=True)
    record = plan.solver
    how = SolveRequest(record.name, record.search, options, record.options, None, deadline)
    solved = solve_instance(Instance.to_search(network, problem), how, silent)
    opened = problem_left_open(plan)
    chosen = {
        SEARCHED + name: 1
        for name, word in dict(opened.training).items()
        if word is None and getattr(problem.training, name) is not None
    }
    if problem.choices != plan.choices or problem.constraints != opened.constraints:
        chosen[WIDENED] = 1
    statistics = (*solved.solver.statistics, FrozenDict(chosen))
    solver = solved.solver.vouched(statistics=statistics)
    return solved.model_copy(update={"solver": solver})
