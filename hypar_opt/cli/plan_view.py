"""A plan on standard output, with the regrets and the best plans of its problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hypar_opt.cli import output

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.studies.alternatives import Alternative, Regret


def print_plan(
    plan: Plan,
    *,
    regret: bool = False,
    best: int | None = None,
    layouts: bool = False,
    as_json: bool = False,
) -> None:
    """Print a plan, its regrets and its problem's best plans if wanted; warnings go beside it."""
    from hypar_opt.studies import advice

    # The best plans first: they are refused at once, and regrets may take long.
    plans: Sequence[Alternative] = () if best is None else _best_plans(plan, best)
    regrets: Sequence[Regret] = _regrets(plan) if regret else ()
    for sentence in (*advice.warnings(plan), *advice.warnings_of_cost(plan)):
        output.warn(sentence)
    if as_json:
        document: dict[str, Any] = plan.document()
        if regret:
            document["regret"] = [vars(row) for row in regrets]
        if best is not None:
            document["best"] = [vars(row) for row in plans]
        output.print_json(document)
        return
    from hypar_opt.report.plan import plan_view

    joint = advice.joint_optimum(plan) if plan.solver.scope == "level" else None
    output.print_view(plan_view(plan, joint, regrets, plans, layouts=layouts), folds=True)


def _best_plans(plan: Plan, number: int) -> Sequence[Alternative]:
    from hypar_opt.studies import alternatives

    return alternatives.best_plans(plan, number)


def _regrets(plan: Plan) -> Sequence[Regret]:
    from hypar_opt.studies import alternatives

    with output.progress_bar("choices") as progress:
        # The solver's parameters, if any, were typed with this very command, so they are trusted.
        return alternatives.regrets(plan, progress, parameters=True)
