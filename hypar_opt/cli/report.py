"""``hypar-opt report``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from hypar_opt.cli import options, output, request, shared
from hypar_opt.cli.show import is_plan
from hypar_opt.cli.simulate import default_array
from hypar_opt.errors import HyparError

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
    from hypar_opt.advice import readable_bytes
    from hypar_opt.certificate import read_certificate
    from hypar_opt.documents import write_whole
    from hypar_opt.hardware.array import find_array
    from hypar_opt.report.page import check_installed, page
    from hypar_opt.report.page.contents import gather

    check_installed()
    request.check_output(page_file, what, certificate, array)
    proof = None if certificate is None else read_certificate(certificate)
    command = _command(context)
    from_file = is_plan(what)
    if from_file:
        plan = request.read_plan(context, what)
    else:
        default = default_array(levels) if array is None else None
        plan, array = request.solved(context, what, default), None
    found = None if array is None else find_array(array)
    if found is None:
        if plan.array is None:
            raise HyparError("the plan was found without an array; name one: --array NAME|FILE")
        found = plan.array.description
    with output.progress_bar("simulations and choices") as progress:
        contents = gather(
            plan,
            found,
            proof=proof,
            command=command,
            other_array=other_array,
            parameters=not from_file,
            progress=progress,
            collective=collective,
            overlap=overlap,
        )
    text = page(contents)
    write_whole(page_file, text)
    print(f"{page_file}: {readable_bytes(len(text.encode()))}")


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
    return shlex.join(words)
