"""The flow on one page: network -> tensors -> cost -> search -> plan -> priced again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from hypar_opt.checked import checked
from hypar_opt.deadline import Deadline
from hypar_opt.documents.files import check_outputs, recorded_reads
from hypar_opt.errors import HyparError, RefusedError, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import ProblemArguments, schedule_of_stages
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.stated import stated_problem
from hypar_opt.plan.stated_degrees import states_stages
from hypar_opt.planning.overlap import or_of_wider_choices, with_overlap
from hypar_opt.planning.search import SolveRequest, search_for, solve_instance
from hypar_opt.planning.stages import check_goes_with_stages, in_stated_stages, solve_stages
from hypar_opt.search.model_file import ModelSize, check_model_file, read_solution, write_instance
from hypar_opt.search.placement import best_placement
from hypar_opt.search.result import Progress, silent
from hypar_opt.search.solver_settings import SolveArguments, options_among, settings_of
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.base import SolverOptions

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem
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
        solver, search_for(stated, search), options, recorded, start, deadline, answer
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
            return solve_stages(described, stated, how, stages, schedule, progress)
        if stages is not None:
            raise HyparError(f"{argument('stages')} goes without pp among {argument('degrees')}")
        choices = None if problem.get("choices") is None else stated.choices
        description = described, stated, degrees, choices
        return in_stated_stages(*description, cuts, how, schedule, progress)
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
        plan = solve_instance(instance, how, progress)
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


def _check_goes_with_solution(**given: object) -> None:
    """Refuse options of a search, which a solution file makes unnecessary."""
    for name, value in given.items():
        if value not in (None, False) and (name, value) != ("search", "joint"):
            solution = argument("solution")
            raise HyparError(f"{argument(name)} goes without {solution}, which has the plan")


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
    return solve_instance(Instance.to_search(network, problem), how, silent)
