"""``hypar-opt verify``."""

from __future__ import annotations

from typing import Annotated

import typer

from hypar_opt.cli import completion, inputs, options, output, request
from hypar_opt.cli.groups import ProblemOptions
from hypar_opt.cli.options import solving_option
from hypar_opt.cli.signatures import takes_groups
from hypar_opt.errors import shell_words

EXAMPLES = (
    "hypar-opt verify vgg-a --solvers dp,ilp,cpsat",
    "hypar-opt verify plan.json --certificate proof.json",
)

SOURCE = options.network_argument(
    metavar="NETWORK|PLAN",
    help="A network, on which to compare solvers; or a plan file to check.",
)
SOLVERS = typer.Option(help="Solvers to compare, separated by commas.")
RANDOM = typer.Option(
    metavar="N", help="Compare solvers on N random networks, chains and graphs, instead."
)
SEARCH = solving_option(
    help="Compare one search only, levelwise or joint (default: both).",
    autocompletion=completion.one_of("levelwise", "joint"),
)
SEED = solving_option(help="Random seed of the networks of --random.")


@takes_groups
def verify(
    context: typer.Context,
    source: Annotated[str | None, SOURCE] = None,
    *,  # the group needs no default
    problem: ProblemOptions,
    certificate: options.CERTIFICATE = None,
    solvers: Annotated[str, SOLVERS] = "dp,cut,ilp,cpsat,brute",
    random: Annotated[int | None, RANDOM] = None,
    search: Annotated[str | None, SEARCH] = None,
    stages: Annotated[str | None, options.STAGES] = None,
    schedule: Annotated[str | None, options.SCHEDULE] = None,
    time_limit: options.TIME_LIMIT = None,
    seed: Annotated[int | None, SEED] = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.documents.document import validate
    from hypar_opt.plan.plan import SolverSettings
    from hypar_opt.studies import verification
    from hypar_opt.studies.shown import is_plan_file

    if source is not None and is_plan_file(source):  # whatever its name, or standard input
        # Checking a plan needs neither, and would hide a mistake.
        validate(SolverSettings, {"time_limit": time_limit, "seed": seed})
        inputs.refuse_what_a_plan_fixes(context, "search", "stages", "schedule")
        result = verification.checked_plan(source, certificate)
    else:
        with output.progress_bar("networks") as progress:
            result = verification.verify(
                source,
                certificate=certificate,
                solvers=solvers.split(","),
                random=random,
                search=search,
                stages=request.stages(stages),
                time_limit=time_limit,
                seed=seed,
                progress=progress,
                **request.problem_arguments(problem) | {"schedule": schedule},
            )
    rows = [
        {
            name: shell_words(value) if isinstance(value, str) else value
            for name, value in row.items()
        }
        for row in result.rows()
    ]
    output.print_rows(rows, as_json=as_json)
    result.check()
