"""``hypar-opt solve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hypar_opt.cli import options, output, request, shared
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan

EPILOG = "Example: [bold]hypar-opt solve vgg-e --batch 32 --search joint --output plan.json[/bold]"


@shared.takes(shared.problem, shared.solving)
def solve(
    context: typer.Context,
    network: options.NETWORK,
    array: options.ARRAY = None,
    warm_start: options.WARM_START = None,
    solver_log: options.SOLVER_LOG = None,
    export_model: options.EXPORT_MODEL = None,
    regret: Annotated[
        bool,
        typer.Option(
            "--regret",
            help="What each other choice would cost, all else re-optimised.",
            rich_help_panel=options.WHAT_IF,
        ),
    ] = False,
    best: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="The K best plans over all levels together.",
            rich_help_panel=options.WHAT_IF,
            show_default=False,
        ),
    ] = None,
    simulate: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="Simulate the K best plans over all levels together, and take the fastest.",
            rich_help_panel=options.WHAT_IF,
            show_default=False,
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a proof that the plan is optimal, for verify.",
            show_default=False,
        ),
    ] = None,
    plan_file: Annotated[
        Path | None,
        typer.Option("--output", help="Write the plan to this file.", show_default=False),
    ] = None,
    picture: options.PICTURE = None,
    as_json: options.JSON = False,
) -> None:
    """Find a plan: each layer's parallelism at each level, and what it communicates."""
    from hypar_opt import pipeline
    from hypar_opt.files import recorded_reads
    from hypar_opt.models import find_network
    from hypar_opt.plan.plan import write_plan

    with recorded_reads() as read:
        start = None if warm_start is None else pipeline.read_plan(warm_start)
        found, on = find_network(network), request.array_named(array)
    models = request.exported(export_model)
    request.check_outputs(read, plan_file, certificate, solver_log, *models, picture=picture)
    plan = request.solved(context, found, on, start=start)
    if simulate is not None:
        plan = _fastest(plan, simulate)
    if plan_file is not None:
        write_plan(plan, plan_file)
    if picture is not None:
        from hypar_opt.report import pictures

        pictures.save(pictures.plan_dots(plan), picture)
    print_plan(plan, regret=regret, best=best, as_json=as_json)
    if certificate is not None:  # last: it may be refused, and the plan stands all the same
        from hypar_opt.search.certificate import certify, write_certificate

        write_certificate(certify(plan), certificate)


def print_plan(
    plan: Plan, *, regret: bool = False, best: int | None = None, as_json: bool = False
) -> None:
    """Print a plan, and what was asked about others, with warnings beside it."""
    from hypar_opt.studies import advice, alternatives

    if best is not None and best < 1:
        raise HyparError(f"--best should be 1 or more, got {best}")
    regrets: list[alternatives.Regret] = []
    if regret:
        with output.progress_bar("choices") as progress:
            # Its parameters, if any, were typed with this very command.
            regrets = alternatives.regrets(plan, progress, parameters=True)
    plans = alternatives.best_plans(plan, best) if best is not None else []
    for sentence in (*advice.warnings(plan), *advice.warnings_of_cost(plan)):
        output.warn(sentence)
    if as_json:
        document: dict[str, Any] = plan.document()
        if regret:
            document["regret"] = [vars(each) for each in regrets]
        if best is not None:
            document["best"] = [vars(each) for each in plans]
        output.print_json(document)
        return
    from hypar_opt.report import terminal

    joint = advice.joint_optimum(plan) if plan.solver.scope == "level" else None
    output.print_view(terminal.plan_view(plan, joint, regrets, plans), folds=True)


def _fastest(plan: Plan, number: int) -> Plan:
    """Return the fastest of the best plans, and say how well their cost foretold that."""
    from hypar_opt.report import terminal
    from hypar_opt.studies import evaluation

    with output.progress_bar("plans") as progress:
        found = evaluation.contenders(plan, number, progress=progress)
    fastest, preferred = evaluation.fastest(found), found[0]
    takes = terminal.scaled(fastest.seconds, "s")
    within = plan.constraints.within
    plans = "1 plan" if len(found) == 1 else f"{len(found)} plans"
    sentence = f"of {plans}{within} simulated, the fastest takes {takes}; "
    place, kind = found.index(fastest) + 1, plan.cost.kind
    if fastest is preferred:
        sentence += f"it is the first by {kind}"
    else:
        own = fastest.plan.parallelism == plan.parallelism
        which = "the search's own" if own else f"number {place} by {kind}"
        others = terminal.scaled(preferred.seconds, "s")
        more = preferred.seconds / fastest.seconds - 1
        sentence += f"it is {which}; the first by {kind} takes {others}, {more:.2%} more"
    if plan.cost.kind == "time":
        charged = preferred.plan.cost.total / evaluation.per_second(preferred.plan)
        off = charged / preferred.seconds - 1
        amount = f"{abs(off):.2%} {'less' if off < 0 else 'more'}"
        sentence += "; the cost foretold " + (amount if abs(off) >= 5e-5 else "as much")
    output.note(sentence)
    return fastest.plan
