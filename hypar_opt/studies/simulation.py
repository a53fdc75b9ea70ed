"""Simulation of plans on an accelerator array, and the fastest of a problem's best plans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, Unpack

from hypar_opt.checked import checked
from hypar_opt.deadline import Deadline
from hypar_opt.errors import ARRAY, HyparError, RefusedError, UnknownNameError, argument, worded
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import find_array
from hypar_opt.hardware.profile import Profile
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.constraints import Constraints
from hypar_opt.plan.node_levels import shards_of_plan
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.plan.training import Training
from hypar_opt.planning.again import search_again
from hypar_opt.planning.overlap import or_of_wider_choices, with_overlap
from hypar_opt.planning.priced import plan_of, plans_of_stages
from hypar_opt.planning.search import solve_problem
from hypar_opt.results import Column, Columns
from hypar_opt.search.free_modes import has_wider_choices
from hypar_opt.search.plan_file import repriced
from hypar_opt.search.result import Progress, silent
from hypar_opt.search.solver_settings import SourceArguments
from hypar_opt.studies.advice import turns
from hypar_opt.studies.alternatives import best_plans
from hypar_opt.studies.memory import memory
from hypar_opt.studies.sources import is_network, planned
from hypar_opt.studies.targets import array_with, fitting, micro_batch, own_array, trained_on
from hypar_opt.units import PREFIXES
from hypar_opt.workload.parallelism import part_word
from hypar_opt.workload.patterns import Words

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.simulator.options import RunOptions
    from hypar_opt.simulator.pipeline import StagePasses
    from hypar_opt.simulator.pipeline_result import PipelineResult
    from hypar_opt.simulator.result import StepResult
    from hypar_opt.simulator.step import StepTimes
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload


class SimulatedStep(NamedTuple):
    """A simulated step, with its plan and array."""

    plan: Plan
    array: Array
    step: StepResult

    @property
    def placement(self) -> tuple[int, ...] | None:
        """The plan's; another array has its default, as a placement numbers its bisections."""
        plan = self.plan
        same = plan.array is not None and plan.array.digest == self.array.digest()
        return plan.placement if same else self.array.placement


SIMULATED = Columns(
    Column("network", of="plan.network.name"),
    Column("array", of="array.name"),
    Column("batch", of="plan.batch"),
    Column("reading", of="plan.cost.reading"),
    "placement",
    Column("parallelism", of="plan.parallelism"),
    Column("collective", of="step.collective", type=str),
    Column("overlap", of="step.overlap", type=str),
    Column("executed_bytes", of="plan.cost.executed_bytes"),
    Column("data_parallel_bytes", of="plan.cost.data_parallel_bytes"),
    entry=SimulatedStep,
)
"""What a document says of a `SimulatedStep`, before the step's own."""


class _StepArguments(TypedDict, total=False):
    collective: str | None
    overlap: str | None
    profile: Profile | None
    input_sizes: Mapping[str, tuple[int, int]]
    trace: bool
    early_stop: bool
    exact_shares: bool
    ring: bool | None
    hidden: float | None


class RunArguments(_StepArguments, total=False):
    """The fields of `hypar_opt.simulator.options.RunOptions`."""

    micro_batches: int
    recompute: Words
    shard: Words
    gather: Words
    reduce_bytes: int


class SimulateArguments(_StepArguments, SourceArguments, total=False):
    """Keyword arguments of `hypar_opt.simulate`: of the step, and of `solve` for a network."""


@checked
def simulate(
    plan: Plan | str | Path | Network,
    array: str | Path | Array | None = None,
    *,
    other_array: bool = False,
    **arguments: Unpack[SimulateArguments],
) -> StepResult:
    """Simulate one training step of a plan; of one in stages, each stage and then its schedule.

    Parameters
    ----------
    plan
        A plan, the path of a plan file, or a network, which is solved first.
    array
        A preset's name, a path or an `Array`; None for the plan's array, and for a network the
        paper's.
    other_array
        Allow an array that the plan was not solved for.
    **arguments
        Of the step, as `RunArguments`: ``collective``, ``overlap``, ``profile``, ``input_sizes``,
        ``trace=False``; ``settings`` of the array, as for `hypar_opt.solve`; and for a network
        the other arguments of `hypar_opt.solve`.

    Raises
    ------
    RefusedError
        If the array is not the plan's, or not as large.
    HyparError
        If there is no array, or an option is wrong.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> plan = ho.solve("vgg-a", array="hmc-htree-16")
    >>> step = ho.simulate(plan)
    >>> f"{step.seconds:.2f} s, of which {step.communication:.2f} s communicating"
    '1.12 s, of which 0.44 s communicating'
    """
    # Imported late: planning alone needs no simulator.
    from hypar_opt.simulator.options import RunOptions

    solved = is_network(plan)
    run, rest = _split(arguments, set(RunOptions.__dataclass_fields__), of_plan=not solved)
    settings = None if solved else rest.pop("settings", None)
    plan, array = planned(plan, rest, array, needs_array=True)
    if settings:
        array, other_array = array_with(plan, array, settings), True
    if plan.is_staged:
        return _simulated_stages(plan, _target(plan, array, other_array=other_array), run)
    return simulated_step(plan, array, other_array=other_array, **run)


def _simulated_stages(plan: Plan, array: Array, run: Mapping[str, Any]) -> PipelineResult:
    """Simulate the passes of each stage, and then its schedule.

    Parameters
    ----------
    run
        As for `hypar_opt.simulate`.

    Raises
    ------
    RefusedError
        If the array has no such parts, or an option is not of steps in stages.
    """
    # Imported late: planning alone needs no simulator.
    from hypar_opt.costs.stage_messages import seconds_of_tied
    from hypar_opt.instance.staged import StagedPlan
    from hypar_opt.simulator.options import RunOptions
    from hypar_opt.simulator.pipeline import pipeline_step
    from hypar_opt.simulator.pipeline_order import in_flight_of_stages
    from hypar_opt.simulator.pipeline_result import PipelineResult, StageTime, trace_of_stages

    for name in ("profile", "input_sizes"):
        if run.get(name):
            raise RefusedError(f"{name} is not supported with stages")
    plan = trained_on(plan, array, run)
    stages, training = plan.stages, plan.training
    assert stages is not None
    count = training.micro_batches or 1
    outside_stages = {*Training.model_fields, "trace"}
    inside = {name: value for name, value in run.items() if name not in outside_stages}
    plans = plans_of_stages(plan)
    passes = [simulated_passes(stage, own_array(stage), **inside) for stage in plans]
    tied = StagedPlan.of_plan(plan).tied
    step = pipeline_step(passes, training.schedule, count, tied=tied)
    in_flight = in_flight_of_stages(stages, training.schedule, count)
    times = [
        StageTime(
            part_word(part),
            " and ".join(stages.labels[part :: stages.parts]),
            stage,
            step.busy[part],
            float(seconds_of_tied(tied, part)),
            step.bubbles[part],
            in_flight[part],
            memory(plans[part], exact_shares=inside.get("exact_shares", False)),
        )
        for part, stage in enumerate(passes)
    ]
    names = [f"stage {number}" for number in range(1, stages.parts + 1)]
    trace = trace_of_stages(step, names) if run.get("trace") else None
    how, charged = RunOptions(**inside).on(array), plan.cost.total / per_second(plan)
    return PipelineResult.of(plan, array.name, how, step, charged, tuple(times), trace)


def simulated_step(
    plan: Plan,
    array: str | Path | Array | None = None,
    *,
    other_array: bool = False,
    **run: Unpack[RunArguments],
) -> StepResult:
    """Simulate one training step of a plan without stages; parameters as for `simulate`.

    Raises
    ------
    RefusedError
        If it is in stages, or the array is not the plan's, or not as large.
    """
    from hypar_opt.simulator.simulation import simulate_step

    if "schedule" in run:
        raise HyparError(f"{argument('schedule')} needs a plan in stages")
    step, rows = step_of(plan, _target(plan, array, other_array=other_array), run)
    return simulate_step(*step, rows=rows)


def _target(plan: Plan, array: str | Path | Array | None, *, other_array: bool) -> Array:
    """Return the array that a plan is simulated on."""
    described = plan.array.description if plan.array else None
    target = own_array(plan) if array is None else find_array(array)
    if described is not None and target.digest() != described.digest() and not other_array:
        raise RefusedError(
            f"the plan was solved for the array {described.name}, and {target.name} is another;"
            f" {argument('other_array', True)} simulates it anyway"
        )
    return target


def simulated_times(plan: Plan, array: Array, **run: Unpack[RunArguments]) -> StepTimes:
    """Return the seconds from which those of `simulate` follow, for any number of micro-batches."""
    from hypar_opt.simulator.simulation import step_times

    step, rows = step_of(plan, array, run)
    return step_times(*step, rows=rows)


def simulated_passes(plan: Plan, array: Array, **run: Unpack[RunArguments]) -> StagePasses:
    """Return the seconds of the passes of a plan of a pipeline stage, on its accelerators."""
    from hypar_opt.simulator.pipeline import stage_passes

    (_, workload, on, options), rows = step_of(plan, array, run)
    network = plan.network.description
    return stage_passes(network, plan.problem, workload, on, options, rows=rows)


def step_of(
    plan: Plan, array: Array, run: Mapping[str, Any]
) -> tuple[tuple[Plan, Workload, Array, RunOptions], Rows]:
    """Return the inputs of a plan's step: its problem on the array, and the nodes' choices."""
    from hypar_opt.simulator.options import RunOptions

    if plan.is_staged:
        raise RefusedError("a plan in pipeline stages is simulated stage by stage, not as one")
    stated = {**plan.training.stated, **run}
    if "shard" in stated:
        stated["shard"] = shards_of_plan(stated["shard"], plan, fitting(plan, array))
    options = RunOptions(**stated)
    options.check_levels(plan.levels)
    workload = micro_batch(plan, options.micro_batches).workload
    rows = rows_of_plan(plan, workload) if workload.shared else plan.assignments()
    return (plan, workload, fitting(plan, array), options), rows


def _split(
    arguments: Mapping[str, Any], of_step: set[str], *, of_plan: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a step, and the others, which state a problem.

    How a step trains belongs to both; of a network it is the problem's.
    """
    names = of_step if of_plan else of_step - Training.model_fields.keys()
    takes = {**dict.fromkeys(sorted(names)), **SimulateArguments.__annotations__}
    for name in arguments:
        if name not in takes:
            raise UnknownNameError("argument", name, list(takes))
    run = {name: value for name, value in arguments.items() if name in names}
    return run, {name: value for name, value in arguments.items() if name not in names}


def baseline(plan: Plan, array: Array, solver: str) -> Plan:
    """Return the plan of ``data``, ``model`` or ``trick`` for a plan's problem, unconstrained."""
    of_array = plan.array is not None and plan.array.digest == array.digest()
    fields: dict[str, Any] = dict(plan.problem) | {
        "cost": "bytes",
        "level_weights": (),
        # A pin would change the baseline; the optimizer stays, as its state takes memory.
        "constraints": Constraints(optimizer=plan.constraints.optimizer),
        "array": array,
        # A placement numbers the bisections of one array and means nothing on another.
        "placement": plan.placement if of_array else None,
    }
    problem = problem_of(**fields)
    return solve_problem(plan.network.description, problem, solver=solver, search="levelwise")


Steps = tuple["StepResult", "StepResult"]
"""A plan's step, and Data Parallelism's."""


def steps_when_run(
    plan: Plan, array: Array, *, other_array: bool = False, **run: Unpack[RunArguments]
) -> Steps | None:
    """Simulate a plan and Data Parallelism by the reading of a run.

    None if that is the plan's reading already, or if its cost has no such reading.
    """
    try:
        # The same choices, repriced; `executed` itself might choose another plan.
        executed = repriced(plan, reading=plan.problem.run_reading)
    except HyparError:  # of a plug-in cost
        return None
    if executed is plan:
        return None
    data = baseline(executed, array, "data")
    step = simulated_step(executed, array, other_array=other_array, **run)
    return step, simulated_step(data, array, **run)


def warnings_of_run(reading: str, steps: Steps, executed: Steps | None) -> list[str]:
    """Return warnings if a plan beats Data Parallelism by its reading but not when run.

    The steps are by the plan's reading, and as `steps_when_run` returns them.
    """
    if executed is None:
        return []
    (steps_of_plan, data), (own_run, data_run) = steps, executed
    times = data.seconds / steps_of_plan.seconds, data_run.seconds / own_run.seconds
    energies = energy_ratio(steps_of_plan, data), energy_ratio(own_run, data_run)
    sentences = (turns("time", reading, *times), turns("energy", reading, *energies))
    return [sentence for sentence in sentences if sentence is not None]


def energy_ratio(step: StepResult, data: StepResult) -> float | None:
    """Return Data Parallelism's energy over the plan's; None if energies are not known."""
    if step.joules is None or data.joules is None:
        return None
    # With energies of 0 an array charges every plan 0: none is better.
    return data.joules / step.joules if step.joules else 1.0


CONSIDERED = worded("number", "--simulate")


@dataclass(frozen=True)
class Contender:
    """One of the best plans by a cost, and the seconds of its simulated step."""

    plan: Plan
    seconds: float


def contenders(
    plan: Plan,
    number: int,
    *,
    progress: Progress = silent,
    deadline: Deadline | None = None,
    **run: Unpack[RunArguments],
) -> list[Contender]:
    """Simulate the best plans of a plan's problem over all levels jointly, best first.

    Parameters
    ----------
    plan
        A plan of the problem, whose cost is the proxy for time; it is simulated too, and comes
        last if it is not among the best.
    number
        How many of the best plans to simulate.
    deadline
        When to stop simulating; by default after the plan's time limit, counted from this call.

    Raises
    ------
    NoAnswerError
        If the deadline passes before the first of them is known.
    RefusedError
        As `simulate` and `hypar_opt.studies.alternatives.best_plans`.
    """
    if number < 1:
        raise HyparError(f"{CONSIDERED} should be 1 or more, got {number}")
    if plan.array is None:
        raise HyparError(f"{CONSIDERED} needs an array: {ARRAY}")
    deadline = deadline or Deadline.after(plan.solver.options.time_limit)
    cheapest = best_plans(plan, number, deadline)
    candidates = [alternative.parallelism for alternative in cheapest]
    # With the plan itself among them, simulating never makes the answer slower.
    if plan.parallelism not in candidates:
        candidates.append(plan.parallelism)
    simulated: list[Contender] = []
    for done, parallelism in enumerate(candidates):
        progress(done, len(candidates))
        if simulated and deadline.passed():
            break
        # The cheapest plan's total is the optimum, and so a bound for all of them.
        candidate = plan_of(plan, parallelism, bound=cheapest[0].total, considered=number)
        simulated.append(Contender(candidate, simulate(candidate, **run).seconds))
    progress(len(candidates), len(candidates))
    return simulated


def fastest(candidates: list[Contender]) -> Contender:
    """Return the fastest plan; among equals the one that the cost prefers."""
    # `min` returns the first of equals, and `contenders` has them in order of cost.
    return min(candidates, key=lambda contender: contender.seconds)


def solve_again(plan: Plan, progress: Progress = silent, *, parameters: bool = False) -> Plan:
    """Solve a plan's problem again, as it was solved, and simulate again if it was simulated."""
    considered, overlapped = plan.solver.options.simulate, plan.solver.with_overlap
    if considered is None:
        again = search_again(plan, progress, parameters=parameters)
        again = with_overlap(again, overlapped.overlap) if overlapped else again
        overlap = overlapped.overlap if overlapped else "none"
        return or_of_wider_choices(again, overlap) if has_wider_choices(plan) else again
    return fastest(contenders(plan, considered, progress=progress)).plan


def per_second(plan: Plan) -> int:
    """Return the number of units of a cost of time per second."""
    return next(parts for parts, name in PREFIXES.items() if plan.cost.unit == f"{name}seconds")
