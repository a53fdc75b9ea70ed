"""Comparison of solvers on the same problem."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from hypar_opt.errors import (
    InfeasibleError,
    NoAnswerError,
    RefusedError,
    Sentence,
    UnknownNameError,
)
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.problem import Problem
from hypar_opt.planning.search import solve_problem
from hypar_opt.planning.stages import solve_in_stages
from hypar_opt.search.searches import SEARCHES
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.workload.network import Network


@dataclass(frozen=True)
class CrosscheckRow:
    """One solver on one network by one search.

    ``verdict``: ``agrees``; ``disagrees``, where it contradicts another solver's answer;
    ``feasible``, a plan that contradicts none; ``refused``; or ``no answer``, where a limit
    came before the solver's own plan.
    """

    network: str
    search: str
    solver: str
    objective: int | float | None
    unit: str | None
    status: str
    bound: int | float | None
    seconds: float | None
    verdict: str


def compare(
    network: Network,
    solvers: Sequence[str],
    problem: Problem,
    time_limit: float | None,
    *,
    searches: Sequence[str] | None = None,
    stages: tuple[int | Literal["auto"], str] | None = None,
) -> list[CrosscheckRow]:
    """Solve a problem with each solver, level by level and jointly; in stages jointly.

    The search of stages is that of ``dp``; other solvers solve the stages of all cuts.

    Parameters
    ----------
    solvers
        Names in `hypar_opt.solvers.SOLVERS`.
    time_limit
        Seconds for one solve, for the solvers that have the option; None for no limit.
    searches
        Names in `hypar_opt.search.searches.SEARCHES`; None for all that the problem has.
    stages
        How many pipeline stages, and their schedule; None for plans without.

    Returns
    -------
    list of Row
        By search, then in the order of the solvers.

    Raises
    ------
    HyparError
        If a name is unknown, or an option is wrong.
    InfeasibleError
        If a search proves that no plan keeps to the problem's constraints.
    """
    for solver in solvers:
        SOLVERS[solver]  # an unknown name is an error, not a refusal
    for search in searches or ():
        if search not in SEARCHES:
            raise UnknownNameError("search", search, list(SEARCHES))
    rows: list[CrosscheckRow] = []
    default = ["joint"] if problem.joins_levels or stages else [*SEARCHES]
    for search in searches or default:
        answers = {
            solver: _answer(network, solver, search, problem, time_limit, stages)
            for solver in solvers
        }
        plans = {solver: plan for solver, plan in answers.items() if isinstance(plan, Plan)}
        for solver in solvers:
            answer = answers[solver]
            if isinstance(answer, Plan):
                rows.append(_row(solver, search, plans))
                continue
            verdict, _, why = answer.partition(": ")
            status = Sentence(why or "-")
            rows.append(
                CrosscheckRow(network.name, search, solver, None, None, status, None, None, verdict)
            )
    return rows


def _answer(
    network: Network,
    solver: str,
    search: str,
    problem: Problem,
    time_limit: float | None,
    stages: tuple[int | Literal["auto"], str] | None,
) -> Plan | str:
    """Return a solver's plan; without one, the verdict and, after a colon, the reason."""
    options = SolverOptions()
    # A solver without a time limit would refuse one.
    if time_limit is not None and "time_limit" in SOLVERS[solver].supported_options:
        options = SolverOptions(time_limit=time_limit)
    try:
        if stages is None:
            plan = solve_problem(network, problem, solver=solver, search=search, options=options)
        else:
            named = None if solver == "dp" else solver
            plan = solve_in_stages(network, problem, *stages, solver=named, options=options)
    except RefusedError as error:
        return f"refused: {error.message}"
    except NoAnswerError:
        return "no answer"
    except InfeasibleError as error:
        # A search proves the problem infeasible; a baseline only its own plan.
        if SOLVERS[solver].searches:
            raise
        return f"refused: {error.message}"
    # A plan found by another solver (`found_by`) is no answer of this one.
    return plan if plan.solver.found_by is None else "no answer"


def _row(solver: str, search: str, plans: dict[str, Plan]) -> CrosscheckRow:
    plan = plans[solver]
    contradicted = any(_contradict(plan, other) for other in plans.values())
    optimal = plan.solver.status == "optimal"
    verdict = "disagrees" if contradicted else "agrees" if optimal else "feasible"
    return CrosscheckRow(
        network=plan.network.name,
        search=search,
        solver=solver,
        objective=plan.cost.total,
        unit=plan.cost.unit,
        status=plan.solver.status,
        bound=plan.solver.bound,
        seconds=round(plan.solver.seconds, 6),
        verdict=verdict,
    )


def _contradict(plan: Plan, other: Plan) -> bool:
    """Return whether two answers of one search contradict each other.

    Two optima are one plan, ties included; in stages they may be cut otherwise. Over all levels no
    plan costs less than a bound; level by level the search is greedy, so two plans that differ at
    one level solve different problems below it, and either may cost less in the end.
    """
    if plan.solver.status == other.solver.status == "optimal":
        is_other = plan.parallelism != other.parallelism and not (plan.is_staged or other.is_staged)
        return is_other or plan.cost.total != other.cost.total
    if plan.solver.scope != "joint":
        return False
    totals = (plan.cost.total, other.cost.total)
    # A feasible plan may cost anything above the optimum; only a bound can contradict it.
    bounds = [p.solver.bound for p in (plan, other) if p.solver.bound is not None]
    return any(bound > total for bound in bounds for total in totals)
