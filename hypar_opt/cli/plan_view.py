"""Printing a plan, with the regrets and the best plans of its problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypar_opt.cli import output
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.errors import HyparError, NoAnswerError

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.studies.alternatives import BestPlans, Regrets


def check_explanation(explain: str | None, *, as_json: bool) -> None:
    """Refuse ``--explain`` beside a document, which has no place for it."""
    if explain is not None and as_json:
        raise HyparError("--explain is not in a JSON document: leave out --json or -o -")


def print_plan(
    plan: Plan,
    *,
    regret: bool = False,
    best: int | None = None,
    layouts: bool = False,
    explain: str | None = None,
    as_json: bool = False,
    deadline: Deadline = NEVER,
) -> None:
    """Print a plan and, on request, its regrets and the best plans; warnings on standard error.

    Parameters
    ----------
    explain
        ``LAYER@LEVEL``, whose charge is printed, too.
    deadline
        When to stop. The plan is printed anyway.

    Raises
    ------
    NoAnswerError
        After printing, if the deadline passed before the regrets and best plans were known.
    """
    from hypar_opt.studies import advice
    from hypar_opt.studies.explained import explain as explanation
    from hypar_opt.workload.omitted import reading_remarks

    explained = None if explain is None else explanation(plan, explain)
    late: NoAnswerError | None = None
    plans: BestPlans | None = None
    regrets: Regrets | None = None
    try:
        # The best plans first: a refusal of them is immediate, while regrets may take long.
        if best is not None:
            from hypar_opt.studies.alternatives import best_plans

            plans = best_plans(plan, best, deadline)
        if regret:
            from hypar_opt.studies.alternatives import regrets as regrets_of

            with output.progress_bar("choices") as bar:
                # The solver's parameters, if any, were typed in this command: they are trusted.
                regrets = regrets_of(plan, bar, parameters=True, deadline=deadline)
    except NoAnswerError as error:
        late = error
    for sentence in (*advice.warnings(plan, deadline), *advice.warnings_of_cost(plan)):
        output.warn(sentence)
    for remark in reading_remarks(plan.network.description):
        output.note(f"{plan.network.name}: {remark}")
    if as_json:
        document: dict[str, Any] = plan.document()
        for key, rows in (("regret", regrets), ("best", plans)):
            if rows is not None:
                document[key] = [vars(row) for row in rows]
        output.print_json(document)
    else:
        from hypar_opt.display.terminal.plan import plan_view

        joint = advice.joint_optimum(plan, deadline) if plan.solver.scope == "level" else None
        view = plan_view(plan, joint, regrets, plans, layouts=layouts)
        output.print_view(view, folds=True)
    if explained is not None:
        from hypar_opt.display.terminal.explained import explanation_view

        output.print_line("")
        output.print_view(explanation_view(explained), folds=True)
    if late is not None:
        raise late
