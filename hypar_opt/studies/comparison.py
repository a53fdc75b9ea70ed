"""The paper's plans side by side on an array: its figures 6 to 8, for any network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import exp, log
from pathlib import Path
from typing import Any, Literal, NamedTuple, Unpack

from hypar_opt.checked import checked, several
from hypar_opt.costs import COSTS
from hypar_opt.errors import HyparError, Sentence, UnknownNameError, argument
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import find_array
from hypar_opt.instance.instance import Instance
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import ProblemArguments, schedule_of_stages
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.stages import stage_counts
from hypar_opt.plan.stated import stated_problem
from hypar_opt.planning.priced import plan_of_configuration
from hypar_opt.planning.search import solve_problem
from hypar_opt.planning.stages import solve_in_stages
from hypar_opt.results import Column, Columns, Documented, Results
from hypar_opt.search.check_result import refused_baselines
from hypar_opt.search.plan_file import repriced
from hypar_opt.search.result import Progress, parts_of, silent
from hypar_opt.simulator.result import StepResult
from hypar_opt.step.readings import READINGS
from hypar_opt.studies.advice import EXECUTED, turns
from hypar_opt.studies.compared_plans import (
    CONFIGURED,
    CONFIGURED_STAGES,
    STAGED,
    ComparedPlan,
    compared_plans,
    strategy_of,
)
from hypar_opt.studies.configurations import best_configuration
from hypar_opt.studies.simulation import RunArguments, energy_ratio, simulate
from hypar_opt.units import format_bytes, format_percent, format_si
from hypar_opt.workload.network import Network

AMOUNTS = (
    *("bytes", "executed_bytes", "seconds", "closed_form_seconds", "joules"),
    *("speedup", "energy_efficiency"),
    *("executed_speedup", "executed_energy_efficiency"),
)


REFERENCE = "a reference, which cannot run: "
"""The prefix of the ``reason`` of an infeasible baseline, in JSON and CSV."""

NEARLY = 1 - 1e-9
"""The ratio from which two steps' seconds count as equal, as float sums are rounded."""


@dataclass(frozen=True)
class ComparisonRow:
    """One plan of one network: its bytes by the reading, its step simulated on an array.

    ``speedup`` and ``energy_efficiency`` are over Data Parallelism; those with ``executed_`` are
    of the same choices when run. Amounts are None where they are not known, for the ``reason``;
    a baseline may have one and be a reference alone, which the constraints refuse.
    """

    network: str
    batch: int
    levels: int
    array: str
    """The array's name; without one the accelerators, as ``2 x 3 = 6 accelerators``."""
    plan: str
    cost: str
    """The objective that the plan minimises."""
    reading: str
    bytes: int | float | None = None
    executed_bytes: int | float | None = None
    """Bytes moved when the plan is run."""
    data_parallel_bytes: int | float | None = None
    """Bytes moved when Data Parallelism is run."""
    seconds: float | None = None
    """Of the simulated step."""
    closed_form_seconds: float | None = None
    """Of the step in closed form: what the cost of time charges."""
    joules: float | None = None
    speedup: float | None = None
    energy_efficiency: float | None = None
    executed_speedup: float | None = None
    executed_energy_efficiency: float | None = None
    reason: str | None = None

    @property
    def case(self) -> tuple[str, int, str]:
        """The network, batch and array: a case, whose plans are compared."""
        return self.network, self.batch, self.array

    @property
    def reduction(self) -> float | None:
        """Data Parallelism's bytes when run over the plan's; None if either is 0 or not known."""
        moved, data = self.executed_bytes, self.data_parallel_bytes
        return data / moved if moved and data else None

    @property
    def has_output_parallelism(self) -> bool:
        """Whether the plan has output parallelism: by the reading ``executed``, as it is run."""
        return self.plan == "three" or strategy_of(self.plan) is not None

    @property
    def is_in_closed_form(self) -> bool:
        """Whether the simulated step takes the time of the closed form, or is not known."""
        shorter, longer = sorted((self.seconds or 0.0, self.closed_form_seconds or 0.0))
        return shorter >= longer * NEARLY

    def __repr__(self) -> str:
        amounts = [] if self.bytes is None else [format_bytes(self.bytes)]
        amounts += [] if self.seconds is None else [format_si(self.seconds, "s")]
        return f"<ComparisonRow {self}: {', '.join(amounts) or self.reason}>"

    def __str__(self) -> str:
        return f"{self.plan!r} of {self.network} (batch {self.batch:,}, {self.array})"


_MEANS = Mapping[str, Mapping[str, float | None]]


def _means(rows: Comparison) -> dict[str, dict[str, float | None]]:
    return geometric_means(rows)


@dataclass(frozen=True, repr=False)
class Comparison(Documented, Results[ComparisonRow]):
    """The plans of some cases side by side: one `ComparisonRow` per plan and case."""

    row_columns = Columns.of(ComparisonRow)
    contents = Columns(
        Column("rows", of="entries", type=row_columns),
        Column("gmean", of=_means, type=_MEANS),
        Column("notes", of=lambda rows: disagreements(rows), type=tuple[str, ...]),
    )

    def __repr__(self) -> str:
        cases = {row.case for row in self}
        plans = ", ".join(dict.fromkeys(row.plan for row in self))
        return f"<Comparison of {plans}: {len(cases):,} {'case' if len(cases) == 1 else 'cases'}>"


class _Measured(NamedTuple):
    """A plan, its step on an array, and that by the reading ``executed``, where it is known."""

    plan: Plan
    step: StepResult | None
    executed: StepResult | None


@checked
def compare(
    networks: str | Path | Network | Sequence[str | Path | Network],
    arrays: str | Path | Array | Sequence[str | Path | Array] | None = None,
    *,
    batches: int | Sequence[int] = (256,),
    progress: Progress = silent,
    run: RunArguments | None = None,
    stages: int | Literal["auto"] | None = None,
    **problem: Unpack[ProblemArguments],
) -> Comparison:
    """Compare Model and Data Parallelism, OWT, HyPar and the optima over all levels.

    Parameters
    ----------
    networks
        One or several, as `hypar_opt.solve` takes one.
    arrays, batches
        Each network is compared on each array with each batch. Without arrays nothing is
        simulated: plans are compared by their bytes, on ``levels`` or a ``hierarchy`` of any parts.
    run
        Options of the simulation: ``collective``, ``overlap``.
    stages
        As for `hypar_opt.solve`: with a row ``stages``, of the fastest plan in so many stages, by
        the ``schedule``, and on an array that has configurations ``configured-stages``, of the
        fastest configuration that `hypar_opt.configure` finds of them.
    **problem
        Further fields of `hypar_opt.plan.problem.Problem`: ``reading``, ``cost="bytes"``, which the
        rows ``hypar`` and ``joint`` minimise, and ``constraints``, which every row keeps to.

    Returns
    -------
    Comparison
        One row per plan and case, in the order above: ``joint`` is the optimum over all levels
        by the cost, ``time`` the plan of the least time in closed form, ``three`` the optimum of
        three choices in the reading ``executed``; on an array of groups ``equal`` and ``ratio``
        split every layer, in equal parts and as the groups compute, and of two groups of as many
        accelerators ``accpar`` has AccPar's types, at the one ratio that is best for them.
        Infeasible and refused plans have a reason.

    Raises
    ------
    HyparError
        If a network, an array or an option is wrong, or no row at all has an answer.
    """
    for one, several_of in (("array", "arrays"), ("batch", "batches")):
        if one in problem:
            raise HyparError(f"compare takes {several_of}, one or several, and no {one}")
    stage_counts(stages)  # refused before the first row
    needing = {**(run or {}), "stages": stages}
    for option, value in needing.items() if arrays is None else ():
        if value not in (None, "none"):
            raise HyparError(
                f"{argument(option)} applies to a simulated step, which needs an array"
            )
    network_names: Sequence[str | Path | Network] = several(networks)
    places: Sequence[str | Path | Array | None] = [None] if arrays is None else several(arrays)
    tokens = problem.pop("tokens", None)
    schedule = schedule_of_stages(problem, stages) if stages is not None else ""
    described = [find_network(network, tokens) for network in network_names]
    cases = [
        stated_problem(network, problem | {"batch": batch, "array": array})
        for array in [place if place is None else find_array(place) for place in places]
        for batch in several(batches)
        for network in described
    ]
    for network, stated in cases:
        _check_names(network, stated)
    rows: list[ComparisonRow] = []
    failures: list[HyparError] = []
    for (network, stated), case in parts_of(progress, cases):
        plans = compared_plans(network, stated, in_stages=stages is not None)
        measured = {
            name: _measured(plan, network, run or {}, (stages or "auto", schedule), part)
            for (name, plan), part in parts_of(case, [*plans.items()])
        }
        # One infeasible plan is a row with a reason; a wrong input fails every row.
        failures += [answer for answer in measured.values() if isinstance(answer, HyparError)]
        # A baseline is a reference, also where it cannot run.
        references = refused_baselines(Instance.to_search(network, stated))
        for name, plan in plans.items():
            row = _row(name, plan, network, stated, measured)
            if name in references and row.reason is None:
                row = replace(row, reason=f"{REFERENCE}{references[name]}")
            rows.append(row)
    if failures and len(failures) == len(rows):
        raise failures[0]
    return Comparison(tuple(rows))


def _check_names(network: Network, problem: Problem) -> None:
    """Refuse an unknown cost or reading, or one without its array: they fail every row."""
    COSTS[problem.cost]
    if problem.cost == "energy" and problem.array is not None:
        _ = problem.array.description.energies
    if problem.reading not in READINGS:
        raise UnknownNameError("reading", problem.reading, list(READINGS))
    if problem.array is None:
        _ = Instance(network, problem).cost


def _measured(
    compared: ComparedPlan,
    network: Network,
    run: RunArguments,
    in_stages: tuple[int | Literal["auto"], str],
    progress: Progress,
) -> _Measured | HyparError:
    """Solve one of the plans, and simulate it on an array; return the error if it has no answer.

    Parameters
    ----------
    in_stages
        Of the plan in stages: how many, and their schedule.
    """
    try:
        problem = compared.stated(network)
        if compared.solver == STAGED:
            plan = solve_in_stages(network, problem, *in_stages, progress=progress)
        elif compared.solver in (CONFIGURED, CONFIGURED_STAGES):
            stages = None
            if compared.solver == CONFIGURED_STAGES:
                stages, schedule = in_stages
                training = problem.training.model_copy(update={"schedule": schedule})
                problem = problem.model_copy(update={"training": training})
            best = best_configuration(network, problem, stages=stages)
            plan = plan_of_configuration(network, problem, best.configuration)
        else:
            plan = solve_problem(
                network, problem, solver=compared.solver, search=compared.search, progress=progress
            )
        if plan.array is None:
            return _Measured(plan, None, None)
        step = simulate(plan, **run)
    except HyparError as error:
        return error
    try:
        executed = repriced(plan, reading=plan.problem.run_reading)
    except HyparError:  # output parallelism, which has no run in this case
        return _Measured(plan, step, None)
    # `repriced` returns the same plan if its reading is that of a run already.
    return _Measured(plan, step, step if executed is plan else simulate(executed, **run))


def _row(
    name: str,
    compared: ComparedPlan,
    network: Network,
    problem: Problem,
    measured: dict[str, _Measured | HyparError],
) -> ComparisonRow:
    case = ComparisonRow(
        network=network.name,
        batch=problem.batch,
        levels=problem.levels,
        array=problem.array.name if problem.array else f"{problem.hierarchy.shown} accelerators",
        plan=name,
        cost=compared.problem.cost,
        reading=compared.problem.reading,
    )
    outcome, data = measured[name], measured["data"]
    if isinstance(outcome, HyparError):
        who = f"solver {compared.solver!r} on {network.name}: "
        return replace(case, reason=Sentence(outcome.message.removeprefix(who)))
    executed = outcome.plan.cost.executed_bytes
    amounts: dict[str, Any] = {
        # The plan for least time has a cost of time, and its bytes are still to be compared.
        "bytes": executed
        if outcome.plan.is_staged
        else repriced(outcome.plan, cost="bytes").cost.total,
        "executed_bytes": executed,
        "data_parallel_bytes": outcome.plan.cost.data_parallel_bytes,
        "seconds": outcome.step and outcome.step.seconds,
        "closed_form_seconds": outcome.step and outcome.step.closed_form,
        "joules": outcome.step and outcome.step.joules,
    }
    # A layer pinned to model parallelism makes Data Parallelism infeasible: there is no baseline.
    if not isinstance(data, HyparError):
        # Data Parallelism by the plan's reading.
        by_reading = data.step if case.reading == problem.reading else data.executed
        steps = (("", outcome.step, by_reading), ("executed_", outcome.executed, data.executed))
        for prefix, ours, base in steps:
            if ours is not None and base is not None:
                amounts[f"{prefix}speedup"] = base.seconds / ours.seconds
                amounts[f"{prefix}energy_efficiency"] = energy_ratio(ours, base)
    return replace(case, **amounts)


@checked
def geometric_means(
    rows: Sequence[ComparisonRow], amounts: Sequence[str] = AMOUNTS
) -> dict[str, dict[str, float | None]]:
    """Return the geometric means of each plan over the rows that have an amount.

    None if no row has an amount, or if one is 0.
    """
    means: dict[str, dict[str, float | None]] = {}
    for name in dict.fromkeys(row.plan for row in rows):
        plan_rows = [row for row in rows if row.plan == name]
        means[name] = {
            key: _mean([amount for row in plan_rows if (amount := getattr(row, key)) is not None])
            for key in amounts
        }
    return means


def _mean(amounts: Sequence[float]) -> float | None:
    if not amounts or min(amounts) <= 0:
        return None
    # Geometric, as the paper's means of ratios; by logarithms no product can overflow.
    return exp(sum(map(log, amounts)) / len(amounts))


def disagreements(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return one sentence per case whose plan of the fewest bytes is not the fastest."""
    sentences = []
    # `compare` returns the rows of a case one after the other, as groupby needs.
    for _, case in groupby(rows, key=lambda row: row.case):
        # Bytes of one reading are compared with those of that reading.
        same = [row for row in case if row.seconds and row.reason is None]
        answered = [row for row in same if row.reading == same[0].reading]
        if not answered:
            continue
        # Ties are broken by the other amount, or a tie would count as a disagreement.
        frugal = min(answered, key=lambda row: (row.bytes or 0, row.seconds or 0))
        fastest = min(answered, key=lambda row: (row.seconds or 0, row.bytes or 0))
        slower, faster = frugal.seconds or 0, fastest.seconds or 0
        if faster < slower * NEARLY:
            more = format_percent(slower / faster - 1)
            moved, moved_by_fastest = map(format_bytes, (frugal.bytes or 0, fastest.bytes or 0))
            sentences.append(
                f"{frugal} moves the fewest bytes, {moved}, and takes {more} more time"
                f" than {fastest.plan!r}, which moves {moved_by_fastest} and is the fastest"
            )
    return sentences


def warnings_of_rows(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return one sentence per case whose plans beat Data Parallelism by their reading only."""
    sentences: list[str] = []
    for (network, batch, array), grouped in groupby(rows, key=lambda row: row.case):
        case = list(grouped)
        case = [row for row in case if row.reading == case[0].reading]
        where = f"of {network} (batch {batch:,}, {array})"
        data = next((row for row in case if row.plan == "data"), None)
        more = [row.plan for row in case if _moves_more_when_run(row, data)]
        if more:
            sentences.append(
                f"when run, Data Parallelism moves fewer bytes than {_listed(more)} {where}"
            )
        for quantity, key in (("time", "speedup"), ("energy", "energy_efficiency")):
            reversed_plans = [
                row.plan
                for row in case
                if turns(key, row.reading, getattr(row, key), getattr(row, f"executed_{key}"))
            ]
            if reversed_plans:
                sentences.append(
                    Sentence(
                        f"by the reading {case[0].reading} Data Parallelism takes more"
                        f" {quantity} than {_listed(reversed_plans)} {where}, but less when run;"
                        f" {EXECUTED} plans for that"
                    )
                )
    return sentences


def _moves_more_when_run(row: ComparisonRow, data: ComparisonRow | None) -> bool:
    """Return whether a plan moves more than Data Parallelism when run, but not by its reading."""
    if row.bytes is None or row.executed_bytes is None or row.data_parallel_bytes is None:
        return False
    # If the reading itself favours Data Parallelism, or it is refused, the table shows it already.
    denied = data is None or (data.bytes is not None and row.bytes <= data.bytes)
    return denied and row.executed_bytes > row.data_parallel_bytes


def _listed(plans: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(map(repr, plans[:-1])), repr(plans[-1]))))
