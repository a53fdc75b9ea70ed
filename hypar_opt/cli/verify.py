"""``hypar-opt verify``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hypar_opt.cli import options, output, request, shared
from hypar_opt.cli.show import is_plan
from hypar_opt.errors import CheckFailedError, HyparError, InputError, NoAnswerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network

EPILOG = (
    "Examples: [bold]hypar-opt verify vgg-a --solvers dp,ilp,cpsat[/bold];"
    " [bold]hypar-opt verify plan.json --certificate proof.json[/bold]"
)


@shared.takes(shared.problem)
def verify(
    context: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[NETWORK|PLAN]",
            help="A network, to have solvers agree on it; or a plan file, to check it.",
            autocompletion=options.complete_networks,
            show_default=False,
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A proof that the plan is optimal.", show_default=False),
    ] = None,
    solvers: Annotated[
        str, typer.Option(help="Who solves the tables, separated by commas.")
    ] = "dp,ilp,cpsat,brute",
    random: Annotated[
        int | None,
        typer.Option(metavar="N", help="Verify on N random chains instead.", show_default=False),
    ] = None,
    time_limit: options.TIME_LIMIT = None,
    seed: options.SEED = None,
    as_json: options.JSON = False,
) -> None:
    """Check a plan and its certificate, or that solvers agree; ends with 1 where they do not."""
    from hypar_opt.documents import validate
    from hypar_opt.plan.arguments import problem_of
    from hypar_opt.plan.plan import SolverSettings

    validate(SolverSettings, {"time_limit": time_limit, "seed": seed})
    if what is not None and is_plan(what):
        _verify_plan(what, certificate, as_json=as_json)
        return
    if certificate is not None:
        raise HyparError("--certificate goes with a plan file")
    problem = problem_of(**request.problem(context))
    _verify_solvers(
        what,
        solvers.split(","),
        problem,
        time_limit=time_limit,
        random=random,
        seed=seed,
        as_json=as_json,
    )


def _verify_plan(file: str, certificate: Path | None, *, as_json: bool) -> None:
    from hypar_opt.documents import parse_json, read_text
    from hypar_opt.pipeline import read_plan
    from hypar_opt.search import certificate as proofs

    parse_json(read_text(file), file=file)  # what is no JSON is a wrong call, not a wrong plan
    try:
        plan = read_plan(file)
    except InputError as error:
        raise CheckFailedError(error.message) from None
    try:
        proofs.check_price(plan)
    except CheckFailedError as error:
        raise CheckFailedError(f"{file}: {error.message}") from None
    row: dict[str, Any] = {"plan": file, "total": plan.cost.total, "priced": "agrees"}
    if certificate is not None:
        proof = proofs.read_certificate(certificate)
        try:
            proofs.check_certificate(plan, proof)
        except CheckFailedError as error:
            raise CheckFailedError(f"{certificate}: {error.message}") from None
        row["optimal"] = f"proved ({plan.solver.scope}{plan.constraints.within})"
    output.print_rows([row], as_json=as_json)


def _verify_solvers(
    what: str | None,
    solvers: list[str],
    problem: Problem,
    *,
    time_limit: float | None,
    random: int | None,
    seed: int | None,
    as_json: bool,
) -> None:
    from hypar_opt.models import find_network
    from hypar_opt.studies import crosscheck

    if (what is None) == (random is None):
        raise HyparError("verify takes a NETWORK, a PLAN, or --random N")
    networks: Iterable[Network]
    if what is not None:
        networks, count = [find_network(what)], 1
    else:
        count = random or 0
        networks = crosscheck.random_networks(count, seed or 0)
    rows: list[crosscheck.Row] = []
    with output.progress_bar("networks") as progress:
        for done, network in enumerate(networks):
            progress(done, count)
            rows += crosscheck.compare(network, solvers, problem, time_limit)
    output.print_rows([vars(row) for row in rows], as_json=as_json)
    wrong = [row for row in rows if row.verdict == "disagrees"]
    if wrong:
        first = wrong[0]
        raise CheckFailedError(
            f"{len(wrong)} of {len(rows)} disagree; first {first.solver} on {first.network},"
            f" {first.search}"
        )
    if all(row.verdict == "refused" for row in rows):
        raise NoAnswerError("all solvers refuse")
    if not any(row.verdict in {"agrees", "feasible"} for row in rows):
        raise NoAnswerError("no solver has an answer within the time limit")
