"""The plan's provenance: the line on how it was solved, and the facts at the page's end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.report.labels import optimality
from hypar_opt.units import format_bytes, format_page_cost

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan, SolverRecord
    from hypar_opt.report.page.contents import Contents

_SCOPES = {"level": "each level given those above", "joint": "over all levels together"}


def provenance(contents: Contents) -> str:
    """Return one line on how the plan was solved."""
    solver, cost = contents.plan.solver, contents.plan.cost
    bound = (
        "no bound"
        if solver.bound is None
        else f"{solver.says}bound {format_page_cost(solver.bound, cost.unit)}"
    )
    return (
        f"Charged {cost.kind} by the reading {cost.reading}; found by {solver.name},"
        f" {solver.search}: {optimality(contents.plan)}; {bound};"
        f" {'a' if contents.proved else 'no'} certificate"
    )


def facts(contents: Contents) -> list[tuple[str, str]]:
    """Return the problem and its answer, as names and values."""
    return [*_problem_facts(contents), *_answer_facts(contents)]


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
    own = plan.array is not None and plan.array.digest == array.digest()
    if own and plan.placement != array.placement:
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
    kept = plan.constraints
    parts = [f"fixed {pin}" for pin in kept.fix]
    parts += ["even splits"] if kept.even else []
    parts += [f"memory {format_bytes(kept.memory)}"] if kept.memory is not None else []
    # sgd has no state and takes no memory.
    parts += [f"optimizer {kept.optimizer}"] if kept.optimizer != "sgd" else []
    parts += [f"elements of {plan.element_bytes} bytes"] if plan.element_bytes != 4 else []
    if plan.level_weights:
        parts.append(f"level weights {', '.join(map(str, plan.level_weights))}")
    return "; ".join(parts)


def _answer_facts(contents: Contents) -> list[tuple[str, str]]:
    plan = contents.plan
    solver = plan.solver
    return [
        ("solver", solver.name),
        ("search", solver.search),
        ("status", _status(solver)),
        ("scope", f"{solver.scope}: {_SCOPES[solver.scope]}{plan.constraints.within}"),
        ("total", format_page_cost(plan.cost.total, plan.cost.unit)),
        ("bound", _bound(solver, plan.cost.unit)),
        ("certificate", contents.proof),
    ]


def _status(solver: SolverRecord) -> str:
    stopped = f", stopped by {solver.stopped_by}" if solver.stopped_by else ""
    # `found_by` names the source of the plan if a limit stopped the solver first.
    status = solver.says + solver.status
    return status + stopped + (f", {solver.found_by}" if solver.found_by else "")


def _bound(solver: SolverRecord, unit: str) -> str:
    if solver.bound is None:
        return "none"
    # Relative: (total - bound) / total.
    gap = f", gap {solver.gap:.3g}" if solver.gap else ""
    # The sum of the levels' bounds is not a bound of the joint optimum.
    scope = " (the levels' bounds added up)" if solver.scope == "level" else ""
    return solver.says + format_page_cost(solver.bound, unit) + gap + scope
