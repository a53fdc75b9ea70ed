"""Arguments and options that several commands share.

Options that go together, as those that state a problem, are groups: `hypar_opt.cli.groups`.
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
from hypar_opt.workload.parallelism import SCHEDULES

# The groups of a command's help; those of `FURTHER` are in ``--help all`` alone.
FURTHER = (
    "The network and the array",
    "Choices of layers",
    "What is charged",
    "More of the run",
    "The solver",
    "What if",
)
problem_option = partial(typer.Option, rich_help_panel="The problem")
running_option = partial(typer.Option, rich_help_panel="The run")
size_option, choice_option, charge_option, step_option, solving_option, what_if_option = (
    partial(typer.Option, rich_help_panel=heading) for heading in FURTHER
)
network_argument = partial(typer.Argument, autocompletion=completion.networks)
file_option = partial(typer.Option, metavar="FILE")

NETWORK = Annotated[
    str,
    network_argument(
        metavar="NETWORK",
        help="A network of the zoo (see list networks; case is ignored), or the path of a network"
        " file or ONNX model.",
    ),
]
NETWORK_OR_PLAN = Annotated[
    str,
    network_argument(metavar="NETWORK|PLAN", help="A network, as for solve, or a plan file."),
]
BATCH = problem_option(
    help="Batch size: images or sequences per training step, over all accelerators."
)
TOKENS = size_option(
    help="Length of the network's sequences, in tokens. Default: the network file's."
)
ACCELERATORS = problem_option(
    metavar="N",
    help="How many accelerators: a power of two, as 16, is that many levels of two parts; another"
    " number has a level for each prime factor. Default: the array's, or 16.",
)
LEVELS = size_option(
    help="Hierarchy levels H, 0 to 64, of 2^H accelerators, in place of --accelerators."
)
HIERARCHY = size_option(
    metavar="N,N,...",
    help="The levels by their parts, H1 first: 2,2,2 is --levels 3; 6,8 is six nodes of eight,"
    " with one level per prime factor.",
)
STAGES = problem_option(
    metavar="N",
    help="Pipeline stages, each a part of the array: how many; or auto, for the fastest of all"
    " numbers. Where they are cut, and what each does inside, are searched. Default: no stages.",
    autocompletion=completion.one_of("auto"),
)
SCHEDULE = step_option(
    help="The order of passes in pipeline stages: 1f1b, gpipe or zb-h1. Default: 1f1b.",
    autocompletion=completion.one_of(*SCHEDULES),
)
WHOLE_LEVELS = size_option(
    "--whole-levels", help="Keep the levels of --hierarchy whole, in place of their prime factors."
)
ARRAY = problem_option(
    metavar="NAME|FILE",
    help="An accelerator array (see list arrays), or the path of an array file.",
    autocompletion=completion.arrays,
)
BUCKET = size_option(
    metavar="BYTES",
    help="The most bytes of gradients that are all-reduced together, as 25MB; 0: each gradient by"
    " itself. Default: the array's.",
)
OPTIMIZER = running_option(
    help="The optimizer, whose state counts as memory, and whose update takes the time that an"
    " array has for it: sgd (none), momentum, adam, or the bytes of state per weight, each read and"
    " written once and else updated as adam."
)
REDUCE_BYTES = step_option(
    metavar="BYTES",
    help="Bytes of an element in which gradients are exchanged and held: 2 or 4. Default:"
    " exchanged in the elements of the weights, held in 4 or those of a larger element.",
)
# The defaults are those of `hypar_opt.plan.arguments.default_reading`.
READING = Annotated[
    str | None,
    charge_option(
        help="The communication model: text (the paper's), tables, figures, executed (the bytes"
        " moved when the plan is run), or joined (when each all-to-all is one over all levels)."
        " Default: joined with --choices all at up to six levels, executed on any array but the"
        " paper's, text otherwise; for a plan file, the plan's own.",
        autocompletion=completion.readings,
    ),
]
DIM = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=N",
        help="The size of an ONNX model's dynamic dimension, as sequence=128. Repeatable. The batch"
        " size is not part of a network: --batch sets it when the network is used.",
    ),
]
TIME_LIMIT = Annotated[
    float | None,
    solving_option(
        metavar="SECONDS",
        help="Wall-clock limit for the whole call; the best plan known by then is the answer.",
    ),
]
SETTINGS = Annotated[
    list[str] | None,
    size_option(
        "--set",
        metavar="KEY=VALUE",
        help="Give a key of the network's or the array's file another value, as"
        " topology.link.bandwidth='50 GB/s' or input.tokens=8192; link.bandwidth is enough where"
        " it is the only one. Repeatable.",
        autocompletion=completion.settings,
    ),
]
EXPLAIN = Annotated[
    str | None,
    what_if_option(
        metavar="LAYER@LEVEL",
        help="Also show the charge of a layer at a level, as fc1@H2: each exchange as its formula"
        " with its numbers, in bytes, and in time on an array.",
    ),
]
OTHER_ARRAY = Annotated[
    bool,
    running_option(
        "--other-array", help="Allow an array other than the one that the plan was solved for."
    ),
]
CERTIFICATE = Annotated[
    Path | None,
    file_option(help="A proof that the plan is optimal, as solve --certificate writes it."),
]
# `--csv` is an older name of the option.
table_option = partial(file_option, "--output", "-o", "--csv")
result_option = partial(file_option, "--output", "-o")
PICTURE = Annotated[
    Path | None, file_option(help="Draw the result: .png, .svg or .pdf (needs the extra figures).")
]
JSON = Annotated[
    bool, typer.Option("--json", help="Print a single JSON document and nothing else.")
]


def several(option: OptionInfo, metavar: str, note: str = "") -> OptionInfo:
    """Return an option that takes a list, separated by commas, of the values that another takes.

    Parameters
    ----------
    note
        Added to its help.
    """
    # A copy, since other commands use the option unchanged.
    listed = copy(option)
    listed.metavar = f"{metavar},..."
    listed.help = f"{(option.help or '').removesuffix('.')}; several, separated by commas{note}."
    if option.autocompletion is not None:
        listed.autocompletion = completion.several_of(option.autocompletion)
    return listed
