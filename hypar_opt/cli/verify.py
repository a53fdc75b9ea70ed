"""``hypar-opt verify``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hypar_opt.cli import completion, inputs, options, output, request
from hypar_opt.cli.groups import ProblemOptions
from hypar_opt.cli.options import solving_option
from hypar_opt.cli.signatures import takes_groups
from hypar_opt.errors import CheckFailedError, HyparError, InputError, NoAnswerError, shell_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypar_opt.plan.problem import Problem
    from hypar_opt.studies.crosscheck import CrosscheckRow
    from hypar_opt.workload.network import Network

EPILOG = (
    "Examples: [bold]hypar-opt verify vgg-a --solvers dp,ilp,cpsat[/bold];"
    " [bold]hypar-opt verify plan.json --certificate proof.json[/bold]"
)

SOURCE = options.network_argument(
    metavar="[NETWORK|PLAN]",
    help="A network, on which to compare solvers; or a plan file to check.",
)
SOLVERS = typer.Option(help="Solvers to compare, separated by commas.")
RANDOM = typer.Option(
    metavar="N", help="Compare solvers on N random networks instead: chains and graphs."
)
SEARCH = solving_option(
    help="Compare in one search only: levelwise or joint (default: both).",
    autocompletion=completion.one_of("levelwise", "joint"),
)
SEED = solving_option(help="Random seed of the networks of --random.")


@takes_groups
def verify(
    source: Annotated[str | None, SOURCE] = None,
    *,  # the group needs no default
    problem: ProblemOptions,
    certificate: options.CERTIFICATE = None,
    solvers: Annotated[str, SOLVERS] = "dp,cut,ilp,cpsat,brute",
    random: Annotated[int | None, RANDOM] = None,
    search: Annotated[str | None, SEARCH] = None,
    time_limit: options.TIME_LIMIT = None,
    seed: Annotated[int | None, SEED] = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.documents.document import validate
    from hypar_opt.plan.arguments import problem_of
    from hypar_opt.plan.plan import SolverSettings
    from hypar_opt.plan.stated import OF_NETWORK, stated_problem

    # Before anything is read, since checking a plan needs neither and would hide a mistake.
    validate(SolverSettings, {"time_limit": time_limit, "seed": seed})
    if source is not None and inputs.is_plan(source):
        if search is not None:
            raise HyparError("--search is fixed by the plan; leave it out")
        output.print_rows([_checked_plan(source, certificate)], as_json=as_json)
        return
    if certificate is not None:
        raise HyparError("--certificate goes with a plan file")
    arguments = request.problem_arguments(problem)
    checked: Any = {name: own for name, own in arguments.items() if name not in OF_NETWORK}
    problem_of(**checked)  # before thousands of networks are generated
    networks, count = _networks(source, problem.tokens, random, seed)
    # The default reading is a network's own.
    stated = (stated_problem(network, arguments) for network in networks)
    rows = _compared(stated, count, solvers.split(","), time_limit, search)
    rows = [replace(row, status=shell_words(row.status)) for row in rows]
    output.print_rows([vars(row) for row in rows], as_json=as_json)
    _check_verdicts(rows)


def _checked_plan(file: str, certificate: Path | None) -> dict[str, Any]:
    """Check a plan and its certificate; return one row with the result.

    Raises
    ------
    CheckFailedError
        If the plan is invalid or its price is wrong, or the certificate does not prove it.
    """
    from hypar_opt.documents.document import file_name, read_text
    from hypar_opt.documents.parsing import parse_json
    from hypar_opt.proofs import certificate as proofs
    from hypar_opt.search.plan_file import read_plan

    # A file that is not JSON is a wrong call, not a wrong plan.
    parse_json(read_text(file), file=file_name(file))
    try:
        plan = read_plan(file)
    except InputError as error:
        raise CheckFailedError(error.message) from None
    try:
        # Independent of the tables that the search solves: see hypar_opt.proofs.reference.
        proofs.check_price(plan)
    except CheckFailedError as error:
        raise CheckFailedError(f"{file_name(file)}: {error.message}") from None
    row: dict[str, Any] = {
        "plan": file_name(file),
        "total": plan.cost.total,
        "unit": plan.cost.unit,
        "priced": "agrees",
    }
    if certificate is not None:
        proof = proofs.read_certificate(certificate)
        try:
            proofs.check_certificate(plan, proof)
        except CheckFailedError as error:
            raise CheckFailedError(f"{certificate}: {error.message}") from None
        alike = ", of plans that train alike" if plan.training.unlike_defaults else ""
        row["optimal"] = f"proved ({plan.solver.scope}{plan.constraints.within}{alike})"
    return row


def _networks(
    name: str | None, tokens: int | None, random: int | None, seed: int | None
) -> tuple[Iterable[Network], int]:
    """Return the networks to compare solvers on, and their number."""
    from hypar_opt.models import find_network
    from hypar_opt.studies.random_networks import random_networks

    if (name is None) == (random is None):
        raise HyparError("verify takes a NETWORK, a PLAN, or --random N")
    if name is not None:
        return [find_network(name, tokens)], 1
    if tokens is not None:
        raise HyparError("--tokens goes with a NETWORK: random ones have lengths of their own")
    # The range is checked where the networks are generated.
    count = random or 0
    return random_networks(count, seed or 0), count


def _compared(
    problems: Iterable[tuple[Network, Problem]],
    count: int,
    solvers: list[str],
    time_limit: float | None,
    search: str | None,
) -> list[CrosscheckRow]:
    from hypar_opt.studies import crosscheck

    searches = None if search is None else (search,)
    rows: list[CrosscheckRow] = []
    with output.progress_bar("networks") as progress:
        for done, (network, problem) in enumerate(problems):
            progress(done, count)
            # Networks are generated one at a time, so that thousands take little memory.
            rows += crosscheck.compare(network, solvers, problem, time_limit, searches=searches)
    return rows


def _check_verdicts(rows: list[CrosscheckRow]) -> None:
    """Raise if solvers disagree, or none has an answer."""
    # A disagreement outranks everything else; a refusal alone is not an error.
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
