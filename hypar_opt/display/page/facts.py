"""The plan's provenance: the line on how it was solved, and the facts at the page's end."""

from __future__ import annotations

from hypar_opt.display.labels import SCOPES, optimality, stages_in_words
from hypar_opt.display.page.contents import Contents
from hypar_opt.errors import shell_words
from hypar_opt.plan.degrees import degrees
from hypar_opt.plan.plan import Plan, SolverRecord
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.simulator.pipeline_result import PipelineResult
from hypar_opt.simulator.result import StepResult
from hypar_opt.studies.advice import refused_baselines
from hypar_opt.studies.simulation import Steps
from hypar_opt.units import (
    format_bytes,
    format_page_cost,
    format_percent,
    format_ratio,
    format_si,
)


def provenance(contents: Contents) -> str:
    """Return one line on how the plan was solved."""
    solver, cost = contents.plan.solver, contents.plan.cost
    bound = (
        "no bound"
        if solver.bound is None
        else f"{solver.attribution}bound {format_page_cost(solver.bound, cost.unit)}"
    )
    return (
        f"Charged {cost.kind} by the reading {cost.reading}; found by {solver.name},"
        f" {solver.search}: {optimality(contents.plan)}; {bound};"
        f" {'a' if contents.proved else 'no'} certificate"
    )


def facts(contents: Contents) -> list[tuple[str, str]]:
    """Return the problem and its answer, as names and values."""
    plan = contents.plan
    says = degrees(plan) if plan.stages is None else stages_in_words(plan, plan.stages)
    parallelism = [("parallelism", says)] if says else []
    refused = [("baseline", shell_words(sentence)) for sentence in refused_baselines(plan)]
    return [*_problem_facts(contents), *parallelism, *_answer_facts(contents), *refused]


def _problem_facts(contents: Contents) -> list[tuple[str, str]]:
    plan, array = contents.plan, contents.array
    network = plan.network.description
    pairs = [
        ("network", plan.network.name + (f" ({network.source})" if network.source else "")),
        ("layers", f"{len(plan.layers):,}"),
        ("batch", f"{plan.batch:,}"),
        ("array", array.name + (f" ({array.source})" if array.source else "")),
        ("topology", f"{array.topology.kind}, {array.interconnect.accelerators:,} accelerators"),
        ("collective", array.collective),
    ]
    # A placement numbers the bisections of one array and means nothing on another.
    is_plans_array = plan.array is not None and plan.array.digest == array.digest()
    if is_plans_array and plan.placement != array.placement:
        bits = ", ".join(map(str, plan.placement or ()))
        pairs.append(("placement", f"bits {bits}, H1 first"))
    pairs += [
        ("charged", f"{plan.cost.kind}, reading {plan.cost.reading}"),
        ("choices", ", ".join(plan.choices)),
    ]
    constraints = _constraints(plan)
    return [*pairs, ("constraints", constraints)] if constraints else pairs


def _constraints(plan: Plan) -> str:
    """Return the fields that differ from a problem's defaults."""
    constraints = plan.constraints
    parts = [f"fixed {pin}" for pin in constraints.fix]
    parts += (
        ["even splits"] if constraints.even else ["runnable plans"] if constraints.runnable else []
    )
    parts += (
        [f"memory {format_bytes(constraints.memory)}"] if constraints.memory is not None else []
    )
    # sgd has no state and takes no memory.
    of_bytes = isinstance(constraints.optimizer, int)
    said = " bytes per weight, each read and written once per update" if of_bytes else ""
    parts += [f"optimizer {constraints.optimizer}{said}"] if constraints.optimizer != "sgd" else []
    parts += [f"{plan.element_bytes}-byte elements"] if plan.element_bytes != 4 else []
    if plan.level_weights:
        parts.append(f"level weights {', '.join(map(str, plan.level_weights))}")
    return "; ".join(parts)


def _answer_facts(contents: Contents) -> list[tuple[str, str]]:
    plan = contents.plan
    solver = plan.solver
    stopped = f", stopped by {solver.stopped_by}" if solver.stopped_by else ""
    # `found_by` names the source of the plan if a limit stopped the solver first.
    status = solver.attribution + solver.status + stopped
    return [
        ("solver", solver.name),
        ("search", solver.search),
        ("status", status + (f", {solver.found_by}" if solver.found_by else "")),
        ("scope", f"{solver.scope}: {SCOPES[solver.scope]}{plan.constraints.within}"),
        ("total", format_page_cost(plan.cost.total, plan.cost.unit)),
        ("bound", _bound(solver, plan.cost.unit)),
        ("certificate", contents.proof),
    ]


def _bound(solver: SolverRecord, unit: str) -> str:
    if solver.bound is None:
        return "none"
    # Relative: (total - bound) / total.
    gap = f", gap {solver.gap:.3g}" if solver.gap else ""
    # The sum of the levels' bounds is not a bound of the joint optimum.
    scope = " (the levels' bounds added up)" if solver.scope == "level" else ""
    return solver.attribution + format_page_cost(solver.bound, unit) + gap + scope


def headline(contents: Contents) -> list[tuple[str, str, str]]:
    """Return the names of time, bytes and energy of a step, their amounts and comparisons."""
    if contents.staged is not None:
        return _headline_of_stages(contents.staged)
    step, reading = contents.steps["plan"], contents.plan.cost.reading
    names = ["step", "exchanged"]
    values = [format_si(step.seconds, "s"), format_bytes(_moved(step))]
    # An array need not have energies.
    if step.joules is not None:
        names.append("energy")
        values.append(format_si(step.joules, "J"))
    # A reading may favour a plan that loses when run, so both comparisons are shown.
    by_reading = _comparisons((step, contents.steps["data"]))
    comparisons = by_reading
    if contents.executed is not None:
        comparisons = [
            f"{by_own} by the reading {reading}; when run, {by_run}"
            for by_own, by_run in zip(by_reading, _comparisons(contents.executed), strict=True)
        ]
    # No step in `executed` although the reading differs: output parallelism has no run.
    elif reading not in RUN_READINGS:
        unknown = "no run of output parallelism is known"
        comparisons = [f"{by_own} by the reading {reading}; {unknown}" for by_own in by_reading]
    return list(zip(names, values, comparisons, strict=True))


def _headline_of_stages(step: PipelineResult) -> list[tuple[str, str, str]]:
    """Return the same for a step in stages; its baselines, without stages, are not simulated."""
    cost, charged = step.plan.cost, format_si(step.closed_form, "s")
    moved = format_bytes(cost.executed_bytes or 0)
    data = f"Data Parallelism exchanges {format_bytes(cost.data_parallel_bytes)}"
    times = format_ratio(cost.ratios.data)
    return [
        ("step", format_si(step.seconds, "s"), f"charged {charged}, Data Parallelism {times}×"),
        ("exchanged", moved, data),
        ("bubble", format_percent(step.bubble, 1), "the part in which a stage waits, on average"),
    ]


def _comparisons(steps: Steps) -> list[str]:
    """Compare a plan's step with that of Data Parallelism: time, bytes and, if known, energy."""
    step, data = steps
    comparisons = [
        _comparison(data.seconds, step.seconds, "faster", "slower"),
        _comparison(_moved(data), _moved(step), "fewer bytes", "more bytes"),
    ]
    if step.joules is not None and data.joules is not None:
        comparisons.append(_comparison(data.joules, step.joules, "less energy", "more energy"))
    return comparisons


def _moved(step: StepResult) -> float:
    return sum(traffic.bytes for traffic in step.levels)


def _comparison(data: float, amount: float, better: str, worse: str) -> str:
    """Compare with Data Parallelism in words, to three digits."""
    if data == amount or (amount and format_ratio(data / amount) == "1"):
        return "as with Data Parallelism"
    # Only bytes can be 0 where Data Parallelism's are not: any step takes time and energy.
    if not amount:
        return "Data Parallelism exchanges " + format_bytes(data)
    if data > amount:
        return f"{format_ratio(data / amount)}× {better} than Data Parallelism"
    times = f"{format_ratio(amount / data)}× " if data else ""
    return f"{times}{worse} than Data Parallelism"
