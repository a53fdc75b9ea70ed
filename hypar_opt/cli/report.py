"""``hypar-opt report``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from hypar_opt.cli import options, output, request, shared
from hypar_opt.cli.simulate import default_array

EPILOG = (
    "Examples: [bold]hypar-opt report vgg-a -o vgg-a.html[/bold];"
    " [bold]hypar-opt report plan.json --certificate proof.json -o plan.html[/bold]"
)


@shared.takes(shared.problem, shared.solving)
def report(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK|PLAN",
            help="A network, as for solve, or the path of a plan file.",
            autocompletion=options.complete_networks,
            show_default=False,
        ),
    ],
    levels: options.LEVELS = None,
    array: options.ARRAY = None,
    collective: options.COLLECTIVE = None,
    overlap: options.OVERLAP = "none",
    other_array: Annotated[
        bool,
        typer.Option(
            "--other-array",
            help="Simulate a plan on an array that it was not found for.",
            rich_help_panel=options.RUNNING,
        ),
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A proof that the plan is optimal.", show_default=False),
    ] = None,
    page_file: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Write the page to this file.")
    ] = Path("report.html"),
) -> None:
    """Write a page about a plan and its step: one HTML file that needs no network."""
    from hypar_opt.files import recorded_reads, write_whole
    from hypar_opt.report.page import check_installed, page
    from hypar_opt.report.page.contents import gather
    from hypar_opt.search.certificate import read_certificate
    from hypar_opt.studies.evaluation import own_array
    from hypar_opt.units import format_bytes

    check_installed()
    with recorded_reads() as read:
        proof = None if certificate is None else read_certificate(certificate)
        plan, network = request.plan_or_network(context, what)
        on = request.array_named(array)
    request.check_outputs(read, page_file)
    from_file = plan is not None
    if plan is None:
        plan, on = request.solved(context, network, on or default_array(levels)), None
    with output.progress_bar("simulations and choices") as progress:
        contents = gather(
            plan,
            on or own_array(plan),
            proof=proof,
            command=_command(context),
            other_array=other_array,
            parameters=not from_file,
            progress=progress,
            collective=collective,
            overlap=overlap,
        )
    text = page(contents)
    write_whole(page_file, text)
    print(f"{page_file}: {format_bytes(len(text.encode()))}")


def _command(context: typer.Context) -> str:
    """Return the command line again, as a shell takes it."""
    words = ["hypar-opt", "report", context.params["what"]]
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        if source is None or source.name != "COMMANDLINE" or option.name == "what":
            continue
        value = context.params[option.name or ""]
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [option.opts[0]] if each is True else [option.opts[0], str(each)]
    # A file's name may be in no encoding at all; the page is in UTF-8.
    return shlex.join(words).encode(errors="replace").decode()
