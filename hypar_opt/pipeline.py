"""The flow on one page: network -> tensors -> cost -> search -> plan -> priced again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import floor, inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, cast

from hypar_opt.checked import checked
from hypar_opt.deadline import NEVER, TIME_LIMIT, Deadline
from hypar_opt.documents.files import check_outputs, recorded_reads
from hypar_opt.errors import (
    HyparError,
    InfeasibleError,
    Need,
    NoAnswerError,
    RefusedError,
    UnknownNameError,
    WrongClaimError,
    argument,
)
from hypar_opt.frozen import FrozenDict
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import layouts_of, price, tensors_of
from hypar_opt.integers import divisors
from hypar_opt.plan.arguments import ProblemArguments, schedule_of_stages
from hypar_opt.plan.configuration import check, degrees_of_stages, rows_of, training_of
from hypar_opt.plan.costs import json_number
from hypar_opt.plan.degrees import degrees
from hypar_opt.plan.plan import (
    Plan,
    SolverRecord,
    SolverSettings,
    WithOverlap,
    columns_of,
    words_of,
)
from hypar_opt.plan.problem import NetworkRecord, ProblemFields
from hypar_opt.plan.schemas import schema_of
from hypar_opt.plan.stages import stage_counts
from hypar_opt.plan.stated import gathered_as, stated_problem
from hypar_opt.plan.stated_degrees import pinned, stated_degrees, states_stages
from hypar_opt.plan.trained import trained
from hypar_opt.search.default_solver import default_solver
from hypar_opt.search.free_modes import (
    COUNT,
    CUTS,
    SEARCHED,
    WIDENED,
    problem_left_open,
    searched_training,
)
from hypar_opt.search.level_order import fastest_order
from hypar_opt.search.memory.incumbent import NothingFitsError
from hypar_opt.search.memory.modes import amount_of_memory
from hypar_opt.search.memory.shares import search_within_memory
from hypar_opt.search.model_file import (
    SOLUTION,
    ModelSize,
    check_model_file,
    read_solution,
    write_instance,
)
from hypar_opt.search.placement import best_placement
from hypar_opt.search.result import (
    Progress,
    SearchRequest,
    SearchResult,
    rows_to_start_from,
    silent,
)
from hypar_opt.search.searches import SEARCHES
from hypar_opt.search.shares import shared_out, was_searched
from hypar_opt.search.solver_settings import (
    SolveArguments,
    options_among,
    options_from,
    options_of,
    settings_of,
)
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions, Status
from hypar_opt.version import __version__

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Tensors
    from hypar_opt.instance.staged import StagedPlan
    from hypar_opt.plan.configuration import Configuration
    from hypar_opt.plan.costs import Cost
    from hypar_opt.plan.problem import Problem
    from hypar_opt.plan.stages import Stages
    from hypar_opt.plan.training import Training
    from hypar_opt.search.overlap import Rows
    from hypar_opt.search.stages import StatedStages
    from hypar_opt.solvers.solution.solver import SolutionFile
    from hypar_opt.workload.network import Network


Overlap = Literal["none", "gradient", "prefetch"]
"""What may overlap in the time that is minimised."""


@checked
def solve(
    network: str | Path | Network,
    *,
    solver: str | None = None,
    search: str | None = None,
    options: SolverOptions | Mapping[str, Any] | None = None,
    start: Plan | None = None,
    solution: str | Path | SolutionFile | None = None,
    place: bool = False,
    stages: int | Literal["auto"] | None = None,
    cuts: Sequence[str] = (),
    overlap: Overlap | None = None,
    progress: Progress = silent,
    **arguments: Unpack[SolveArguments],
) -> Plan:
    """Choose each layer's parallelism at each level of 2^levels accelerators.

    Parameters
    ----------
    network
        A name of the zoo (``"vgg-a"``), the path of a network file, or a `Network`.
    solver
        A name of `hypar_opt.solvers.SOLVERS`; unless given ``dp``, on a graph that is not a chain
        ``cut`` where it solves the problem.
    search
        ``levelwise``, Algorithm 2, the default for bytes but in the reading ``joined`` (that of all
        choices, unless it is asked for); or ``joint``, over all levels together.
    options
        Limits and settings of the solver, as ``{"time_limit": 10}``: seconds from this call,
        after which the best plan known so far is returned, which may be a baseline's.
    start
        A plan of the same problem for the solver to start from.
    solution
        A solution file of HiGHS, CBC, GLPK or Gurobi, of the model that ``hypar-opt model``
        wrote of this problem: its plan is checked and priced like a solver's.
    place
        Also choose the best placement of the levels among those that the topology allows.
    stages
        How many pipeline stages, each a part of the array; ``auto`` for the fastest of all numbers,
        1 among them; None for a plan without. Where they are cut, and what each does inside, are
        searched, to least time without overlap.
    cuts
        With stages in ``degrees``: the layers or blocks that each chunk but the first begins with,
        by name; else chunks have equally many blocks.
    overlap
        Which exchanges of gradients and weights overlap in the time that is minimised, as in the
        simulator: ``gradient``, ``prefetch`` or ``none``. None for what the array says, in a joint
        search of the time on it. The plan's cost is that without overlap;
        ``solver.with_overlap`` has the time and a bound.
    **arguments
        `hypar_opt.plan.arguments.ProblemArguments`: ``batch=256``, ``levels=4``, ``cost``,
        ``reading``, ``array``, ``fix``, ``memory``, ``settings``, ..., and fields of ``options``.

    Raises
    ------
    HyparError
        If the input is wrong or the solver does not accept it.
    InfeasibleError
        If no plan satisfies the constraints, or fits the memory of the array's accelerators: its
        ``least`` says what the plan needs that needs least.
    NoAnswerError
        If no feasible plan is known when a limit is reached, or none was found that fits.

    Examples
    --------
    >>> plan = solve("lenet-c", batch=256, levels=2)
    >>> [list(row) for row in plan.parallelism]
    [['data', 'data', 'model', 'model'], ['data', 'data', 'model', 'data']]
    """
    options, problem = options_among(options, arguments)
    recorded = settings_of(options, warm_start=start is not None)
    # Started before anything is read or built: the limit is that of the whole call.
    deadline = Deadline.after(options.time_limit)
    degrees = problem.pop("degrees", None) if states_stages(problem.get("degrees")) else None
    if cuts and degrees is None:
        raise HyparError(f"{argument('cuts')} goes with pp among {argument('degrees')}")
    in_stages = stages is not None or degrees is not None
    schedule = schedule_of_stages(problem, stages) if in_stages else ""
    with recorded_reads() as read:
        described, stated = stated_problem(network, problem, search)
        answer = None if solution is None else read_solution(solution)
    # An output that would overwrite an input is refused before hours of work, not after.
    check_outputs(read, options.log, options.export)
    if answer is not None:
        _check_goes_with_solution(solver=solver, search=search, start=start, place=place)
        search = "joint"  # its model has all levels
    how = SolveRequest(
        solver, _search_for(stated, search), options, recorded, start, deadline, answer
    )
    if in_stages:
        unsupported = options.given() - SOLVERS["dp"].supported_options
        check_goes_with_stages(
            **dict.fromkeys(sorted(unsupported), True),
            solver=solver,
            search=search,
            start=start,
            place=place,
            overlap=overlap,
            solution=solution,
        )
        how = replace(how, solver=None)
        if degrees is None:
            assert stages is not None
            return _in_stages(described, stated, how, stages, schedule, progress)
        if stages is not None:
            raise HyparError(f"{argument('stages')} goes without pp among {argument('degrees')}")
        choices = None if problem.get("choices") is None else stated.choices
        description = described, stated, degrees, choices
        return _in_stated_stages(*description, cuts, how, schedule, progress)
    instance = Instance.to_search(described, stated)
    is_stated = overlap is not None
    if overlap is None:
        overlap = _overlap_of(instance, how)
    if overlap != "none":
        from hypar_opt.search.overlap import check_overlap

        check_overlap(instance, overlap)
    if place:
        plan = best_placement(stated, partial(_solve_placed, described, how), progress, deadline)
    else:
        plan = _solve(instance, how, progress)
    try:
        plan = plan if overlap == "none" else with_overlap(plan, overlap, deadline)
        # If choices are stated, layers have no others.
        if not is_stated and problem.get("choices") is None and _searches_time(instance, how):
            plan = or_of_wider_choices(plan, overlap, deadline)
    except RefusedError:  # too large to simulate
        if is_stated:
            raise
    return plan


@checked
def write_model(
    network: str | Path | Network, model: str | Path, **problem: Unpack[ProblemArguments]
) -> ModelSize:
    """Write the model of all levels together for other solvers.

    `solve` reads their solutions as ``solution``. A column ``x[conv1,H2,model]`` is 1 if that layer
    has that choice at that level, and ``x[conv1,H1.H2,data.model]`` if it has these choices at
    these levels. If a model of all plans would be too large, it has the plans up to a cutoff, which
    is above the optimum.

    Parameters
    ----------
    network, **problem
        As for `solve`.
    model
        The file: ``.lp`` or ``.mps``, a 0-1 program; ``.pb``, or ``.pbtxt`` as text, for CP-SAT.

    Returns
    -------
    ModelSize
        ``columns``, ``rows``, ``cutoff`` and its ``unit``.

    Raises
    ------
    InputError
        If the suffix is that of no format, or the file cannot be written.
    RefusedError
        If the model would be too large, or the format cannot hold its costs or names.
    InfeasibleError
        If no plan satisfies the constraints.

    Examples
    --------
    >>> write_model("lenet-c", "lenet.lp", levels=2)  # doctest: +SKIP
    ModelSize(columns=15, rows=12, cutoff=None, unit='bytes')
    """
    model = Path(model)
    check_model_file(model)
    with recorded_reads() as read:
        described, stated = stated_problem(network, problem)
    check_outputs(read, model)
    return write_instance(Instance.to_search(described, stated), model)


def solve_problem(
    network: Network,
    problem: Problem,
    *,
    solver: str | None = None,
    search: str | None = None,
    options: SolverOptions | None = None,
    progress: Progress = silent,
) -> Plan:
    """Solve a validated problem; the other parameters and the errors are those of `solve`."""
    how = SolveRequest.of(solver, _search_for(problem, search), options)
    return _solve(Instance.to_search(network, problem), how, progress)


def solve_jointly(instance: Instance, solver: str | None, progress: Progress = silent) -> Plan:
    """Solve an instance over all levels together, on tables that it may share with others."""
    return _solve(instance, SolveRequest.of(solver, "joint"), progress)


@dataclass(frozen=True)
class SolveRequest:
    """The solver, the search and their options for a problem."""

    solver: str | None
    search: str
    options: SolverOptions
    settings: SolverSettings
    start: Plan | None
    deadline: Deadline
    answer: SolutionFile | None = None
    """A solution file to read in place of solving; None without one."""

    @classmethod
    def of(cls, solver: str | None, search: str, options: SolverOptions | None = None) -> Self:
        """Return a request whose time limit starts now, without a plan to start from."""
        options = options_from(options)
        settings = settings_of(options, warm_start=False)
        return cls(solver, search, options, settings, None, Deadline.after(options.time_limit))


def _check_goes_with_solution(**given: object) -> None:
    """Refuse options of a search, which a solution file makes unnecessary."""
    for name, value in given.items():
        if value not in (None, False) and (name, value) != ("search", "joint"):
            solution = argument("solution")
            raise HyparError(f"{argument(name)} goes without {solution}, which has the plan")


def _search_for(problem: Problem, search: str | None) -> str:
    """Return the search by name, or the default of the problem's objective."""
    if search is None:
        # Bytes: the paper's search. Time and energy: levels differ and parts of the charge depend
        # on the final shards, which only the joint search charges exactly
        # (docs/decisions/0007-arrays-and-time.md).
        jointly = problem.joins_levels or problem.device_memory is not None
        return "levelwise" if problem.cost == "bytes" and not jointly else "joint"
    if search not in SEARCHES:
        raise UnknownNameError("search", search, list(SEARCHES))
    return search


def _overlap_of(instance: Instance, how: SolveRequest) -> Overlap:
    """Return what overlaps if it is not stated: in a search of time, by the array's default."""
    array = instance.problem.array
    overlap = (array and array.description.overlap) or "none"
    if overlap == "none" or not _searches_time(instance, how):
        return "none"
    from hypar_opt.search.overlap import OVERLAPS

    return cast(Overlap, overlap) if overlap in OVERLAPS else "none"


def _searches_time(instance: Instance, how: SolveRequest) -> bool:
    """Return whether the plan of least time on an array is searched over all levels."""
    is_searched = how.search == "joint" and how.answer is None
    if not is_searched or not (how.solver is None or SOLVERS[how.solver].searches):
        return False
    from hypar_opt.search.overlap import lacks_for_overlap

    return instance.problem.array is not None and not lacks_for_overlap(instance)


def _solve_placed(network: Network, how: SolveRequest, problem: Problem) -> Plan:
    return _solve(Instance.to_search(network, problem), how, silent)


def _solve(instance: Instance, how: SolveRequest, progress: Progress) -> Plan:
    """Search, order the levels, and price the plan again, independently of the solver's claims."""
    started = time.perf_counter()
    named = how.solver
    if how.answer is not None:
        named = SOLUTION
    elif named is not None:
        SOLVERS[named]  # before tables are built: a wrong name should fail quickly
    # Built before the search, so that their errors are not attributed to the solver.
    _ = instance.cost, instance.constraints
    solver = named or default_solver(instance, how.search)
    method = how.answer or SOLVERS[solver]()
    try:
        start = None if how.start is None else rows_to_start_from(how.start, instance)
        request = SearchRequest(instance, method, how.options, start, progress, how.deadline)
        search_once = SEARCHES[how.search]
        search, share_statistics = shared_out(request, search_once, joint=how.search == "joint")
        if how.answer is None:
            search, partition = search_within_memory(request, search, search_once)
        else:
            partition = search_once(search)
        instance = search.instance
    except NothingFitsError as error:
        raise _nothing_fits(error, f"solver {solver!r} on {instance.network.name}") from None
    except (RefusedError, WrongClaimError, InfeasibleError) as error:
        # The same type, to keep the exit status; prefixed with the solver, since a study may run
        # several solvers.
        who = f"solver {solver!r} on {instance.network.name}"
        who = who if how.answer is None else how.answer.file
        raise type(error)(f"{who}: {error.message}") from None
    rows = partition.assignments
    if how.search == "joint":
        # The joint optimum in bytes leaves the order of levels free; time on the array decides it.
        rows = tuple(fastest_order(instance, rows, how.deadline))
    # The gap is computed in `_priced`, from the total priced there.
    record = SolverRecord(
        name=solver,
        search=cast(Literal["levelwise", "joint"], how.search),
        status=cast(Literal["optimal", "feasible"], partition.status.value),
        scope=cast(Literal["level", "joint"], partition.scope),
        bound=None if partition.bound is None else json_number(partition.bound),
        gap=None,
        stopped_by=partition.stopped_by,
        found_by=partition.found_by,
        seconds=time.perf_counter() - started,
        options=how.settings,
        statistics=tuple(dict(model) for model in (*partition.statistics, *share_statistics)),
        versions={"hypar-opt": __version__, **partition.versions},
    )
    return _priced(instance, rows, record, partition if rows == partition.assignments else None)


def _nothing_fits(error: NothingFitsError, who: str) -> HyparError:
    """Return the error with the memory that the smallest plan needs."""
    counted = error.counted
    instance, result = counted.mode.instance, counted.result
    plan = _priced(instance, result.assignments, _unproved(), result)
    training = trained(plan.training.non_default, plan) or "the whole batch at once"
    how = "; ".join(filter(None, [degrees(plan), training]))
    bytes_held, capacity = counted.with_reserve
    need, limit = amount_of_memory(bytes_held, capacity), argument("constraints.memory")
    stated = f"{limit}: " if instance.problem.constraints.memory is not None else ""
    smallest_need = Need(bytes_held, capacity, how)
    if error.proved:
        message = f"{stated}nothing fits; the least that was found is {need} of a device, by {how}"
        return InfeasibleError(f"{who}: {message}", smallest_need)
    why = f" within the {error.stopped_by}" if error.stopped_by == TIME_LIMIT else ""
    message = f"{stated}no plan was found{why} that fits; the least is {need} of a device, by {how}"
    return NoAnswerError(f"{who}: {message}", error.stopped_by, smallest_need)


def _unproved(bound: float | None = None, options: SolverSettings | None = None) -> SolverRecord:
    """Return the record of a plan that is known in addition to a search's."""
    return SolverRecord(
        name="dp",
        search="joint",
        status="feasible",
        scope="joint",
        bound=bound,
        gap=None,
        stopped_by=None,
        seconds=0.0,
        options=options or SolverSettings(),
        statistics=(),
        versions={"hypar-opt": __version__},
    )


def _priced(
    instance: Instance,
    rows: Sequence[Sequence[int]],
    solver: SolverRecord,
    result: SearchResult | None = None,
    tensors: Tensors | None = None,
) -> Plan:
    """Return the plan priced from its choices, with the gap to the bound that the solver claims.

    The record is that of our own search: only here a plan's claims become ours. Shared tensors are
    stored as stated, or as the search found, or in the cheapest layouts.
    """
    if tensors is None and result is not None:
        tensors = result.priced
    if tensors is None:
        tensors = tensors_of(instance, rows)
    cost = price(instance, rows, tensors, result.charged if result else None)
    words = words_of(rows, instance.network.words(instance.problem.choices))
    layouts = layouts_of(instance, rows, tensors)
    return _plan(instance.network, instance.problem, words, layouts, cost, solver)


def _plan(
    network: Network,
    problem: Problem,
    parallelism: Sequence[Sequence[str]],
    layouts: Mapping[str, Sequence[str]],
    cost: Cost,
    solver: SolverRecord,
) -> Plan:
    """Return a priced plan with the gap to the bound that the solver claims."""
    total, bound = cost.total, solver.bound
    # A lower bound above a feasible plan's cost disproves itself.
    if bound is not None and bound > total:
        raise WrongClaimError(f"claims the bound {bound}, above its plan's {total}")
    # Nothing to move, as for a single accelerator: the bound is tight, and 0 / 0 is a gap of 0.
    gap = None if bound is None else (total - bound) / total if total else 0.0
    fields = {name: getattr(problem, name) for name in ProblemFields.model_fields}
    return Plan(
        schema=schema_of(problem),
        network=NetworkRecord.of(network),
        layers=tuple(layer.name for layer in network.layers),
        parallelism=parallelism,
        layouts=layouts,
        cost=cost,
        solver=solver.vouched(gap=gap),
        **fields,
    )


def plan_of_stages(staged: StagedPlan, solver: SolverRecord | None = None) -> Plan:
    """Return the plan of stages, priced by its stages.

    Parameters
    ----------
    solver
        The record of the search; None if nothing is proved.
    """
    described = staged.network, staged.problem, staged.parallelism, staged.layouts
    return _plan(*described, staged.cost, solver or _unproved())


def _in_stated_stages(
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
    return _in_given_stages(network, problem, stated_stages, stages, how, schedule, progress)


def _in_given_stages(
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

    return _in_stages(
        network, problem, how, configuration.pp, schedule, progress, stated, as_stated
    )


def _in_stages(
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
        raise _nothing_fits(error, f"stages of {network.name}") from None
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
        return _unproved(bound, how.settings).model_copy(update=update)

    proved = result.status is Status.OPTIMAL
    if parts == 1:
        (alone,) = result.plans
        bound: int | float = floor(result.bound * alone.instance.per_second)
        solver = record(bound, alone.instance.problem.training, proved=proved)
        return _priced(alone.instance, alone.rows, solver, result.results[0])
    staged_problem = as_stated(in_stages_of(problem, parts, result.micro_batches, schedule))
    staged = StagedPlan.of(network, staged_problem, result.stages, result.plans)
    # Sent tensors are received in their stored layouts: stages that assumed others take longer.
    proved = proved and staged.seconds == result.seconds
    total = staged.cost.total
    bound = total if proved else min(total, floor(result.bound * staged.per_second))
    return plan_of_stages(staged, record(bound, staged.problem.training, proved=proved))


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
    return _in_stages(network, problem, how, stages, schedule, progress)


def check_goes_with_stages(**given: object) -> None:
    """Refuse options that a search of stages does not support."""
    for name, value in given.items():
        if value not in (None, False) and (name, value) not in (
            ("solver", "dp"),
            ("search", "joint"),
            ("overlap", "none"),
        ):
            raise HyparError(f"{argument(name)} is not supported with {argument('stages')}")


def plans_of_stages(plan: Plan) -> tuple[Plan, ...]:
    """Return each stage of a plan, as a plan on its part of the array."""
    from hypar_opt.instance.staged import StagedPlan

    return tuple(
        _priced(stage.instance, stage.rows, _unproved(), tensors=stage.tensors)
        for stage in StagedPlan.of_plan(plan).plans
    )


def plan_of_configuration(network: Network, problem: Problem, configuration: Configuration) -> Plan:
    """Return the plan of a configuration: its choices, stored layouts and training settings.

    Parameters
    ----------
    problem
        Its batch, accelerators and objective are used; its choices are replaced.

    Raises
    ------
    HyparError
        If the network has no such configuration on these accelerators, naming the degree; or if it
        does not keep to the problem's constraints.
    """
    if configuration.pp > 1:
        from hypar_opt.instance.staged import StagedPlan

        return plan_of_stages(StagedPlan.of_configuration(network, problem, configuration))
    check(configuration, network, problem)
    training = training_of(configuration, network, problem.hierarchy, problem.training)
    problem = problem.model_copy(update={"training": training})
    instance = Instance(network, pinned(network, problem, configuration))
    workload = instance.executed_workload
    nodes = rows_of(configuration, network, workload, problem.hierarchy)
    rows = [row[workload.shared :] for row in nodes]
    instance.constraints.check(rows, nodes)
    tensors = [{node: row[node] for node in workload.tensor_writers} for row in nodes]
    return _priced(instance, rows, _unproved(), tensors=tensors)


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
    priced = _priced(instance, rows, record, result)
    if solver.status != "optimal" or priced.cost.total > plan.cost.total:
        return priced
    # Without overlap it takes as long as the optimum, and so is another optimum.
    return priced.model_copy(update={"solver": priced.solver.vouched(status="optimal")})


def _solved_as(plan: Plan, problem: Problem, deadline: Deadline) -> Plan:
    """Return the plan of a problem with settled training, solved as a plan was."""
    network, options = plan.network.description, options_of(plan, parameters=True)
    record = plan.solver
    how = SolveRequest(record.name, record.search, options, record.options, None, deadline)
    solved = _solve(Instance.to_search(network, problem), how, silent)
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


def plan_of(
    plan: Plan,
    parallelism: Sequence[Sequence[str]],
    *,
    bound: float,
    considered: int,
) -> Plan:
    """Return another plan of the same problem, one of the ``considered`` best.

    Parameters
    ----------
    parallelism : (levels, layers)
        The plan's choices.
    bound
        The cost of the best plan: a lower bound on all plans.
    considered
        The number of best plans that were compared.

    Raises
    ------
    WrongClaimError
        If this plan costs less than the bound.
    """
    rows = columns_of(parallelism, plan.words)
    record = _unproved(bound, SolverSettings(simulate=considered))
    priced = _priced(Instance.of_plan(plan), rows, record)
    # At the bound it is an optimum, too, only not the canonical one.
    if priced.cost.total > bound:
        return priced
    solver = priced.solver.model_copy(update={"status": "optimal"})
    return priced.model_copy(update={"solver": solver})


def search_again(plan: Plan, progress: Progress = silent, *, parameters: bool = False) -> Plan:
    """Solve a plan's own problem with its own solver, search and options.

    Parameters
    ----------
    parameters
        Also pass the solver-specific parameters in the plan file; see `options_of`.

    Raises
    ------
    RefusedError
        If the plan file has such parameters and they are not to be passed, or its stages were not
        found by a search of stages.
    """
    if plan.solver.name == SOLUTION:
        raise RefusedError("the plan is from a solution file: there is no search to repeat")
    if plan.is_staged or any(CUTS in row for row in plan.solver.statistics):
        return _search_stages_again(plan, progress, parameters=parameters)
    problem = problem_left_open(plan)
    if was_searched(plan):
        problem = problem.model_copy(update={"share": None})
    return solve_problem(
        plan.network.description,
        problem,
        solver=plan.solver.name,
        search=plan.solver.search,
        options=options_of(plan, parameters=parameters),
        progress=progress,
    )


def _search_stages_again(plan: Plan, progress: Progress, *, parameters: bool) -> Plan:
    """Solve a plan in stages, or the result of a search over stages, as it was solved."""
    from hypar_opt.instance.staged import before_stages

    network, problem = plan.network.description, problem_left_open(plan)
    stages, schedule = plan.stages, plan.training.schedule
    options = options_of(plan, parameters=parameters)
    deadline = Deadline.after(options.time_limit)
    how = SolveRequest(None, "joint", options, plan.solver.options, None, deadline)
    searched = {name for row in plan.solver.statistics for name in row}
    if CUTS in searched:
        of_any = [own.removeprefix(COUNT) for own in searched if own.startswith(COUNT)]
        count: int | Literal["auto"] = "auto" if of_any else stages.parts if stages else 1
        problem = before_stages(problem) if stages else problem
        return _in_stages(network, problem, how, count, (*of_any, schedule)[0], progress)
    assert stages is not None
    if plan.solver.bound is None:
        raise RefusedError("the plan is of a configuration: there is no search to repeat")
    try:
        stated_by_plan = degrees_of_stages(plan)
        pins = pinned(network, problem, stated_by_plan).constraints.fix[
            len(problem.constraints.fix) :
        ]
    except HyparError as error:
        raise RefusedError(
            f"the plan does not say how its stages were stated: {error.message}"
        ) from None
    constraints = problem.constraints
    fix = constraints.fix[: len(constraints.fix) - len(pins)]
    if constraints.fix[len(fix) :] != pins:
        raise RefusedError("the plan's pins are not those of its stages' degrees")
    update = {"constraints": constraints.model_copy(update={"fix": fix})}
    problem = before_stages(problem).model_copy(update=update)
    return _in_given_stages(network, problem, stated_by_plan, stages, how, schedule, progress)
