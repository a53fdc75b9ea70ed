"""Searches of plans in pipeline stages, stated or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import floor
from typing import TYPE_CHECKING, Literal

from hypar_opt.errors import HyparError, argument
from hypar_opt.frozen import FrozenDict
from hypar_opt.instance.instance import Instance
from hypar_opt.integers import divisors
from hypar_opt.plan.plan import Plan, SolverRecord
from hypar_opt.plan.stages import stage_counts
from hypar_opt.plan.stated import gathered_as
from hypar_opt.plan.stated_degrees import pinned, stated_degrees
from hypar_opt.planning.priced import plan_of_stages, priced_plan, unproved
from hypar_opt.planning.search import SolveRequest, nothing_fits
from hypar_opt.search.free_modes import COUNT, CUTS, searched_training
from hypar_opt.search.memory.incumbent import NothingFitsError
from hypar_opt.search.result import Progress, SearchRequest, silent
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions, Status

if TYPE_CHECKING:
    from hypar_opt.plan.configuration import Configuration
    from hypar_opt.plan.problem import Problem
    from hypar_opt.plan.stages import Stages
    from hypar_opt.plan.training import Training
    from hypar_opt.search.stages import StatedStages
    from hypar_opt.workload.network import Network


def solve_in_stages(
    network: Network,
    problem: Problem,
    stages: int | Literal["auto"],
    schedule: str,
    *,
    solver: str | None = None,
    options: SolverOptions | None = None,
    progress: Progress = silent,
) -> Plan:
    """Solve a validated problem in stages; the other parameters and errors are those of `solve`.

    Parameters
    ----------
    schedule
        The order of passes, one of `hypar_opt.workload.parallelism.SCHEDULES`.
    solver
        None for the search of stages; otherwise it solves the stages of all cuts, one by one.
    """
    how = SolveRequest.of(solver, "joint", options)
    return solve_stages(network, problem, how, stages, schedule, progress)


def in_stated_stages(
    network: Network,
    problem: Problem,
    degrees: str,
    choices: Sequence[str] | None,
    cuts: Sequence[str],
    how: SolveRequest,
    schedule: str,
    progress: Progress,
) -> Plan:
    """Return the fastest plan of stated degrees with stages; training settings are searched."""
    from hypar_opt.plan.stages import even_stages, stages_before

    stated_stages = stated_degrees(network, problem, degrees, choices)
    if cuts:
        stages = stages_before(network, stated_stages.pp, cuts)
        if stages.chunks != stated_stages.interleave:
            wanted = stated_stages.pp * stated_stages.interleave - 1
            raise HyparError(f"{argument('cuts')} should be {wanted:,}, got {len(cuts):,}")
    else:
        stages = even_stages(network, stated_stages.pp, stated_stages.interleave)
    return in_given_stages(network, problem, stated_stages, stages, how, schedule, progress)


def in_given_stages(
    network: Network,
    problem: Problem,
    configuration: Configuration,
    stages: Stages,
    how: SolveRequest,
    schedule: str,
    progress: Progress,
) -> Plan:
    """Return the fastest plan of stages whose degrees are those of a configuration."""
    from hypar_opt.plan.stages import check_schedule
    from hypar_opt.search.stages import StatedStages

    problem = gathered_as(configuration, network, problem)
    data, count = (
        configuration.dp_replicate * configuration.dp_shard,
        problem.training.micro_batches,
    )
    if problem.batch % (data * (count or 1)):
        raise HyparError(
            f"{argument('degrees')}: dp x micro_batches = {data * (count or 1):,} should divide the"
            f" batch of {problem.batch:,}"
        )
    counts = [count] if count else divisors(problem.batch // data)
    if configuration.interleave > 1 and not count:
        counts = [n for n in counts if n % configuration.pp == 0] or counts[-1:]
    check_schedule(schedule, configuration.pp, counts[-1], configuration.interleave)

    def inside(instance: Instance) -> Instance:
        return Instance.to_search(
            instance.network, pinned(instance.network, instance.problem, configuration.inside)
        )

    stated = StatedStages(stages, counts, inside)

    def as_stated(staged: Problem) -> Problem:
        return pinned(network, staged, configuration)

    return solve_stages(
        network, problem, how, configuration.pp, schedule, progress, stated, as_stated
    )


def solve_stages(
    network: Network,
    problem: Problem,
    how: SolveRequest,
    stages: int | Literal["auto"],
    schedule: str,
    progress: Progress,
    stated: StatedStages | None = None,
    as_stated: Callable[[Problem], Problem] = lambda problem: problem,
) -> Plan:
    """Return the fastest plan with a number of pipeline stages, or with any number.

    Parameters
    ----------
    stated
        The stages, if they are stated.
    as_stated
        Returns the problem in stages with everything else that is stated.
    """
    # Imported late: most problems have no stages.
    from hypar_opt.instance.staged import StagedPlan, in_stages_of
    from hypar_opt.search.stages import in_stages

    started = time.perf_counter()
    request = SearchRequest(
        Instance.to_search(network, problem),
        SOLVERS[how.solver or "dp"](),
        how.options,
        None,
        progress,
        how.deadline,
    )
    counts, exhaustive = stage_counts(stages), how.solver is not None
    try:
        result = in_stages(request, counts, schedule=schedule, stated=stated, exhaustive=exhaustive)
    except NothingFitsError as error:
        raise nothing_fits(error, f"stages of {network.name}") from None
    parts = result.stages.parts

    def record(bound: float, training: Training, *, proved: bool) -> SolverRecord:
        searched = searched_training(problem.training, training)
        searched |= {} if stated else {CUTS: 1}
        searched |= {COUNT + schedule: 1} if counts is None else {}
        update = {
            "name": how.solver or "dp",
            "statistics": (FrozenDict(searched),) if searched else (),
            "status": "optimal" if proved else "feasible",
            "stopped_by": result.stopped_by,
            "seconds": time.perf_counter() - started,
        }
        return unproved(bound, how.settings).model_copy(update=update)

    proved = result.status is Status.OPTIMAL
    if parts == 1:
        (alone,) = result.plans
        bound: int | float = floor(result.bound * alone.instance.per_second)
        solver = record(bound, alone.instance.problem.training, proved=proved)
        return priced_plan(alone.instance, alone.rows, solver, result.results[0])
    staged_problem = as_stated(in_stages_of(problem, parts, result.micro_batches, schedule))
    staged = StagedPlan.of(network, staged_problem, result.stages, result.plans)
    # Sent tensors are received in their stored layouts: stages that assumed others take longer.
    proved = proved and staged.seconds == result.seconds
    total = staged.cost.total
    bound = total if proved else min(total, floor(result.bound * staged.per_second))
    return plan_of_stages(staged, record(bound, staged.problem.training, proved=proved))


def check_goes_with_stages(**given: object) -> None:
    """Refuse options that a search of stages does not support."""
    for name, value in given.items():
        if value not in (None, False) and (name, value) not in (
            ("solver", "dp"),
            ("search", "joint"),
            ("overlap", "none"),
        ):
            raise HyparError(f"{argument(name)} is not supported with {argument('stages')}")
