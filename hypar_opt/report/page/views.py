"""What the template fills in: the page's contents as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypar_opt.report import terminal
from hypar_opt.report.page import charts
from hypar_opt.report.page.contents import Contents, Option, amount
from hypar_opt.report.page.links import links
from hypar_opt.report.page.timeline import timeline
from hypar_opt.report.terminal import feasible
from hypar_opt.studies.advice import readable_bytes

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.result import StepResult
    from hypar_opt.studies.evaluation import Steps

_SCOPE = {"level": "each level optimal", "joint": "optimal over all levels"}
_HOLDS = "weights, gradients, the optimizer's state, feature maps and errors"
_CHARGED = {"bytes": "communication", "time": "time", "energy": "energy"}


def of(contents: Contents) -> dict[str, Any]:
    """Return the template's names and what stands for them."""
    plan, step = contents.plan, contents.steps["plan"]
    drawn = [
        *([charts.by_level(contents.steps)] if plan.levels else []),
        charts.by_phase(contents.steps),
        charts.by_layer(step),
        charts.by_energy(contents.steps),
        *([timeline(step)] if step.trace is not None else []),
        *([links(contents.array, step)] if step.links else []),
    ]
    return {
        "title": f"{plan.network.name} on {contents.array.name}",
        "subtitle": _subtitle(contents),
        "found": _found(contents),
        "figures": _figures(contents),
        "facts": _facts(contents),
        "grid": _grid(contents),
        "note": contents.note,
        "charts": drawn,
        "untraced": step.trace is None,
        "memory": {
            "needed": readable_bytes(step.memory),
            "capacity": readable_bytes(step.capacity),
            "share": min(step.memory / step.capacity, 1.0),
            "percent": _percent(step.memory / step.capacity),
            "holds": "weights and feature maps" if plan.inference else _HOLDS,
            "vaults": f"{step.vault_words:,}" if step.vault_words else "",
        },
        "warnings": [_sentence(each, contents) for each in contents.warnings],
        "command": contents.command,
        "versions": [f"{name} {number}" for name, number in plan.solver.versions.items()],
    }


def _percent(share: float) -> str:
    return f"{share:.1%}" if share >= 0.0005 else "less than 0.1%"


def _sentence(warning: str, contents: Contents) -> str:
    """A name keeps its case, first word or not."""
    named = warning.startswith((contents.array.name, contents.plan.network.name))
    return (warning if named else warning[:1].upper() + warning[1:]) + "."


def _subtitle(contents: Contents) -> str:
    plan = contents.plan
    what = "inference" if plan.inference else "training"
    many = 2**plan.levels
    on = "one accelerator" if many == 1 else f"{many:,} accelerators"
    return f"One {what} step of a batch of {plan.batch:,} on {on}"


def _found(contents: Contents) -> str:
    """How the plan was found, in a line; the page's end says all of it."""
    plan = contents.plan
    solver, cost = plan.solver, plan.cost
    within = plan.constraints.within
    optimal = solver.status == "optimal"
    status = _SCOPE[solver.scope] + within if optimal else feasible(solver)
    bound = "no bound" if solver.bound is None else f"bound {amount(solver.bound, cost.unit)}"
    return (
        f"Charged {cost.kind} by the reading {cost.reading}; found by {solver.name},"
        f" {solver.search}: {status}; {bound}; {'a' if contents.proved else 'no'} certificate"
    )


def _figures(contents: Contents) -> list[tuple[str, str, str]]:
    """The few numbers to see first: what, how much, and how that compares."""
    own = contents.steps["plan"]
    by_reading = _against((own, contents.steps["data"]))
    shown = charts.seconds_of(own.seconds), readable_bytes(_moved(own))
    values = (*shown, charts.joules_of(own.energy.total))
    reading, against = contents.plan.cost.reading, by_reading
    if contents.executed is not None:
        executed = _against(contents.executed)
        against = [
            f"{one} by the reading {reading}; when run, {other}"
            for one, other in zip(by_reading, executed, strict=True)
        ]
    elif reading != "executed":
        unknown = "no run of output parallelism is known"
        against = [f"{one} by the reading {reading}; {unknown}" for one in by_reading]
    return list(zip(("step", "exchanged", "energy"), values, against, strict=True))


def _against(steps: Steps) -> list[str]:
    """Compare a plan's step with Data Parallelism's: time, bytes, energy."""
    own, data = steps
    return [
        _times(data.seconds, own.seconds, "faster", "slower"),
        _times(_moved(data), _moved(own), "fewer bytes", "more bytes"),
        _times(data.energy.total, own.energy.total, "less energy", "more energy"),
    ]


def _moved(step: StepResult) -> float:
    return sum(each.bytes for each in step.levels)


def _times(data: float, own: float, better: str, worse: str) -> str:
    """Compare with Data Parallelism in words, to three digits."""
    if data == own or (own and terminal.ratio(data / own) == "1"):
        return "as with Data Parallelism"
    if not own:
        return "Data Parallelism exchanges " + readable_bytes(data)
    if data > own:
        return f"{terminal.ratio(data / own)}× {better} than Data Parallelism"
    times = f"{terminal.ratio(own / data)}× " if data else ""
    return f"{times}{worse} than Data Parallelism"


def _facts(contents: Contents) -> list[tuple[str, str]]:
    plan, array = contents.plan, contents.array
    solver, cost = plan.solver, plan.cost
    own = plan.array is not None and plan.array.digest == array.digest()
    network = plan.network.description
    scope = {"level": "each level given those above", "joint": "over all levels together"}
    facts = [
        ("network", plan.network.name + (f" ({network.source})" if network.source else "")),
        ("layers", f"{len(plan.layers):,}"),
        ("batch", f"{plan.batch:,}"),
        ("array", array.name + (f" ({array.source})" if array.source else "")),
        ("topology", f"{array.topology.kind}, {2**array.levels:,} accelerators"),
        ("collective", array.collective),
    ]
    if own and plan.placement != array.placement:
        facts.append(("placement", f"bits {', '.join(map(str, plan.placement or ()))}, H1 first"))
    facts += [
        ("charged", f"{cost.kind}, reading {cost.reading}"),
        ("choices", ", ".join(plan.choices)),
        *_constraints(plan),
        ("solver", solver.name),
        ("search", solver.search),
        (
            "status",
            solver.status
            + (f", stopped by {solver.stopped_by}" if solver.stopped_by else "")
            + (f", {solver.found_by}" if solver.found_by else ""),
        ),
        ("scope", f"{solver.scope}: {scope[solver.scope]}{plan.constraints.within}"),
        ("total", amount(cost.total, cost.unit)),
        ("bound", "none" if solver.bound is None else _bound(plan)),
        ("certificate", contents.proof),
    ]
    return facts


def _bound(plan: Plan) -> str:
    solver, unit = plan.solver, plan.cost.unit
    assert solver.bound is not None
    gap = f", gap {solver.gap:.3g}" if solver.gap else ""
    within = " (the levels' bounds added up)" if solver.scope == "level" else ""
    return amount(solver.bound, unit) + gap + within


def _constraints(plan: Plan) -> list[tuple[str, str]]:
    kept = plan.constraints
    found = [f"fixed {each}" for each in kept.fix]
    found += ["even splits"] if kept.even else []
    found += [f"memory {readable_bytes(kept.memory)}"] if kept.memory is not None else []
    found += [f"optimizer {kept.optimizer}"] if kept.optimizer != "sgd" else []
    found += [f"elements of {plan.element_bytes} bytes"] if plan.element_bytes != 4 else []
    if plan.level_weights:
        found.append(f"level weights {', '.join(map(str, plan.level_weights))}")
    return [("constraints", "; ".join(found))] if found else []


def _grid(contents: Contents) -> dict[str, Any]:
    plan, cost = contents.plan, contents.plan.cost
    per_level = cost.per_level if cost.communication is None else cost.communication
    levels: list[dict[str, Any]] = []
    for level, (row, charge) in enumerate(zip(contents.cells, per_level, strict=True), 1):
        cells = []
        for layer, options in zip(plan.layers, row, strict=True):
            taken = next(option for option in options if option.taken)
            tied = any(
                each.extra is not None and each.extra <= 0 for each in options if not each.taken
            )
            cells.append(
                {
                    "layer": layer,
                    "level": f"H{level}",
                    "choice": str(taken.choice),
                    "glyph": terminal.GLYPHS[taken.choice],
                    "tied": tied and contents.regretted,
                    "options": [_option(option, plan, contents.regretted) for option in options],
                }
            )
        levels.append({"name": f"H{level}", "cells": cells, "charge": amount(charge, cost.unit)})
    local = None
    if cost.communication is not None:
        over = cost.total - sum(cost.communication)
        local = (terminal.LOCAL.get(cost.kind, "local"), amount(over, cost.unit))
    return {
        "layers": plan.layers,
        "levels": levels,
        "heading": _CHARGED.get(cost.kind, cost.kind),
        "local": local,
        "total": amount(cost.total, cost.unit),
        "legend": [(str(choice), terminal.GLYPHS[choice]) for choice in plan.choices],
        "tied": any(cell["tied"] for level in levels for cell in level["cells"]),
    }


def _unbroken(text: str) -> str:
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def _option(option: Option, plan: Plan, regretted: bool) -> dict[str, Any]:
    unit = plan.cost.unit
    if option.taken:
        extra = "chosen"
    elif not regretted:
        extra = "not asked"
    elif option.extra is None:
        extra = "no plan has it"
    elif option.extra == 0:
        extra = "nothing"
    else:
        share = f" ({option.extra / plan.cost.total:+.2%})" if plan.cost.total else ""
        sign = "−" if option.extra < 0 else "+"
        extra = sign + _unbroken(amount(option.extra, unit)) + share.replace("-", "−")
    return {
        "choice": str(option.choice),
        "glyph": terminal.GLYPHS[option.choice],
        "taken": option.taken,
        "layer": _unbroken(amount(float(option.layer), unit)),
        "neighbours": _unbroken(amount(float(option.neighbours), unit)),
        "extra": extra,
    }
