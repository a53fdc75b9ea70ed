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
        help="A built-in network (see list networks; case is ignored), or the path of a network"
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
    help="Number of accelerators. A power of two gives that many levels of two parts, as 16 gives"
    " four; any other number gives one level per prime factor. Default: the array's, or 16.",
)
LEVELS = size_option(
    help="Number of hierarchy levels H, 0 to 64, for 2^H accelerators, in place of --accelerators."
)
HIERARCHY = size_option(
    metavar="N,N,...",
    help="The number of parts of each level, H1 first: 2,2,2 is --levels 3; 6,8 is six nodes of"
    " eight, with one level per prime factor.",
)
STAGES = problem_option(
    metavar="N",
    help="Number of pipeline stages, each a part of the array, or auto for the fastest number. The"
    " search decides where to cut the network and what each stage does inside. Default: no stages.",
    autocompletion=completion.one_of("auto"),
)
SCHEDULE = step_option(
    help="The order of passes in pipeline stages: 1f1b, gpipe or zb-h1. Default: 1f1b.",
    autocompletion=completion.one_of(*SCHEDULES),
)
WHOLE_LEVELS = size_option(
    "--whole-levels",
    help="Keep the levels of --hierarchy as stated, instead of splitting them into prime factors.",
)
ARRAY = problem_option(
    metavar="NAME|FILE",
    help="An accelerator array (see list arrays), or the path of an array file.",
    autocompletion=completion.arrays,
)
BUCKET = size_option(
    metavar="BYTES",
    help="Gradient bucket: the most bytes that one all-reduce carries, as 25MB; 0 for no"
    " bucketing. Default: the array's.",
)
OPTIMIZER = running_option(
    help="The optimizer: sgd (no state), momentum, adam, or its bytes of state per weight. Its"
    " state counts as memory, and its update takes time if the array models it; a number of bytes"
    " is read and written once, and otherwise updated as adam."
)
REDUCE_BYTES = step_option(
    metavar="BYTES",
    help="Bytes per gradient element, exchanged and stored: 2 or 4. Default: exchanged in the"
    " element type of the weights, stored in at least 4.",
)
# The defaults are those of `hypar_opt.plan.arguments.default_reading`.
READING = Annotated[
    str | None,
    charge_option(
        help="The communication model: text (the paper's), tables, figures, executed (the bytes"
        " that a run moves), or joined (executed, with one all-to-all over several levels)."
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
        help="Wall-clock limit for the whole call; at the limit the best plan so far is returned.",
    ),
]
SETTINGS = Annotated[
    list[str] | None,
    size_option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the network's or the array's file, as topology.link.bandwidth='50"
        " GB/s' or input.tokens=8192; link.bandwidth is enough where it is unambiguous."
        " Repeatable.",
        autocompletion=completion.settings,
    ),
]
EXPLAIN = Annotated[
    str | None,
    what_if_option(
        metavar="LAYER@LEVEL",
        help="Also show how a layer is charged at a level, as fc1@H2: the formula of each exchange"
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
