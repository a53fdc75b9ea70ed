"""Arguments and options that commands share, each written once.

What a command's options have in common besides, as those that state a problem, is a group:
`hypar_opt.cli.groups`.
"""

from __future__ import annotations

from copy import copy
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

# Nothing heavy is imported here: `--help` and completion read this file.
from hypar_opt.cli import completion

# The panels of a command's help.
PROBLEM = "The problem"
RUNNING = "The run"
SOLVING = "The solver"
WHAT_IF = "What if"

problem_option = partial(typer.Option, rich_help_panel=PROBLEM)
running_option = partial(typer.Option, rich_help_panel=RUNNING)
solving_option = partial(typer.Option, rich_help_panel=SOLVING)
what_if_option = partial(typer.Option, rich_help_panel=WHAT_IF)
network_argument = partial(typer.Argument, autocompletion=completion.networks)
file_option = partial(typer.Option, metavar="FILE")

NETWORK = Annotated[
    str,
    network_argument(
        metavar="NETWORK",
        help="A network of the zoo, in any case (list networks), or the path of a network file or"
        " of an ONNX model.",
    ),
]
NETWORK_OR_PLAN = Annotated[
    str,
    network_argument(
        metavar="NETWORK|PLAN", help="A network, as for solve, or the path of a plan file."
    ),
]
BATCH = problem_option(help="Images in a training step, over all accelerators.")
LEVELS = problem_option(
    help="Hierarchy levels H: 2^H accelerators, H from 0 to 64; 4, or the array's."
)
HIERARCHY = problem_option(
    metavar="N,N,...",
    help="The same by the parts of each level, H1 first: 2,2,2 is --levels 3.",
)
ARRAY = problem_option(
    metavar="NAME|FILE",
    help="An accelerator array (list arrays), or the path of an array file.",
    autocompletion=completion.arrays,
)
# The defaults are those of `hypar_opt.pipeline.default_reading`.
READING = Annotated[
    str | None,
    problem_option(
        help="The communication model: text (the paper's), tables, figures, or executed (the bytes"
        " that running a plan moves). Unless given, executed on an array that is not the paper's,"
        " else text; of a PLAN, its own.",
        autocompletion=completion.readings,
    ),
]
TIME_LIMIT = Annotated[
    float | None,
    solving_option(
        metavar="SECONDS",
        help="Wall-clock limit, counted from the call; then the best plan known is the answer.",
    ),
]
OTHER_ARRAY = Annotated[
    bool,
    running_option("--other-array", help="Simulate a plan on an array that it was not solved for."),
]
CERTIFICATE = Annotated[
    Path | None, file_option(help="A proof that the plan is optimal, of solve --certificate.")
]
# `--csv` is what the option was called where a command prints a table.
table_option = partial(file_option, "--output", "-o", "--csv")
result_option = partial(file_option, "--output", "-o")
PICTURE = Annotated[
    Path | None, file_option(help="Draw it: .png, .svg or .pdf (needs matplotlib).")
]
JSON = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, for programs, and nothing else.")
]


def several(option: OptionInfo, metavar: str, note: str = "") -> OptionInfo:
    """Return an option that takes several of what another takes one of, with commas between.

    Parameters
    ----------
    note
        What its help says besides.
    """
    # A copy: other commands take the option as it is.
    listed = copy(option)
    listed.metavar = f"{metavar},..."
    listed.help = f"{(option.help or '').removesuffix('.')}; several with commas{note}."
    if option.autocompletion is not None:
        listed.autocompletion = completion.several_of(option.autocompletion)
    return listed
