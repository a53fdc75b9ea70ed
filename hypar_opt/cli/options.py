"""Options that commands share. An option means the same wherever it stands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

# Nothing heavy is imported here: `--help` and completion read this file.
from hypar_opt import models


def starting(incomplete: str, names: Iterable[str]) -> list[str]:
    typed = len(incomplete)  # what was typed stays as it is, in its own case
    return [incomplete + n[typed:] for n in names if n.startswith(incomplete.lower())]


def complete_networks(incomplete: str) -> list[str]:
    return starting(incomplete, models.names())


def _solvers(incomplete: str) -> list[str]:
    from hypar_opt.solvers import SOLVERS

    return starting(incomplete, SOLVERS)


def _readings(incomplete: str) -> list[str]:
    from hypar_opt.costs.readings import READINGS

    return starting(incomplete, READINGS)


def _searches(incomplete: str) -> list[str]:
    return starting(incomplete, ["levelwise", "joint"])


def complete_arrays(incomplete: str) -> list[str]:
    from hypar_opt.hardware import arrays

    return starting(incomplete, arrays.names())


def _costs(incomplete: str) -> list[str]:
    from hypar_opt.costs import COSTS

    return starting(incomplete, COSTS)


def _overlaps(incomplete: str) -> list[str]:
    return starting(incomplete, ["none", "gradient"])


def _collectives(incomplete: str) -> list[str]:
    return starting(incomplete, ["pairwise", "ring"])


PROBLEM = "The problem"
RUNNING = "The run"
SOLVING = "The solver"
WHAT_IF = "What if"

NETWORK = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK",
        help="A network of the zoo, in any case (list networks), or the path of a network file.",
        autocompletion=complete_networks,
        show_default=False,
    ),
]
BATCH = Annotated[
    int,
    typer.Option(help="Images a training step, over all accelerators.", rich_help_panel=PROBLEM),
]
LEVELS = Annotated[
    int | None,
    typer.Option(
        help="Levels H of the hierarchy: 2^H accelerators, H from 0 to 64; 4, or the array's.",
        rich_help_panel=PROBLEM,
        show_default=False,
    ),
]
ARRAY = Annotated[
    str | None,
    typer.Option(
        metavar="NAME|FILE",
        help="An accelerator array (list arrays), or the path of an array file.",
        autocompletion=complete_arrays,
        rich_help_panel=PROBLEM,
        show_default=False,
    ),
]
COST = Annotated[
    str,
    typer.Option(
        help="What is charged: bytes; time or energy, of an array.",
        autocompletion=_costs,
        rich_help_panel=PROBLEM,
    ),
]
PLACE = Annotated[
    bool,
    typer.Option(
        "--place",
        help="Choose as well which of the array's splits is which level.",
        rich_help_panel=PROBLEM,
    ),
]
OVERLAP = Annotated[
    str,
    typer.Option(
        help="none, or gradient: gradients are exchanged beside the work that follows.",
        autocompletion=_overlaps,
        rich_help_panel=RUNNING,
    ),
]
COLLECTIVE = Annotated[
    str | None,
    typer.Option(
        help="How sums are made: pairwise (the paper's) or ring; the array's own unless given.",
        autocompletion=_collectives,
        rich_help_panel=RUNNING,
        show_default=False,
    ),
]
READING = Annotated[
    str | None,
    typer.Option(
        help="The communication model: text (the paper's), tables, figures, or executed (what"
        " running a plan moves). Unless given, executed on an array that is not the paper's,"
        " else text; of a PLAN, its own.",
        autocompletion=_readings,
        rich_help_panel=PROBLEM,
        show_default=False,
    ),
]
ELEMENT_BYTES = Annotated[
    int,
    typer.Option(
        help="Bytes of a tensor's element: 4, or 2 for half precision; 1, 8.",
        rich_help_panel=PROBLEM,
    ),
]
INFERENCE = Annotated[
    bool,
    typer.Option(
        "--inference",
        help="Charge the forward pass only: no gradients, no errors.",
        rich_help_panel=PROBLEM,
    ),
]
CHOICES = Annotated[
    str,
    typer.Option(
        help="What a layer may choose from: data,model or data,model,output (AccPar's Type III;"
        " readings text and tables).",
        rich_help_panel=PROBLEM,
    ),
]
LEVEL_WEIGHTS = Annotated[
    str | None,
    typer.Option(
        metavar="W,W,...",
        help="What a byte costs at each level, H1 first, as 8,4,2,1.",
        rich_help_panel=PROBLEM,
        show_default=False,
    ),
]
FIX = Annotated[
    list[str] | None,
    typer.Option(
        metavar="LAYER[@LEVEL]=CHOICE",
        help="Pin a choice, as fc1@H2=data; the layer may be a pattern. Repeatable.",
        rich_help_panel=PROBLEM,
        show_default=False,
    ),
]
EVEN = Annotated[
    bool,
    typer.Option(
        "--even",
        help="Only splits that divide the batch and the channels, so that the plan can run.",
        rich_help_panel=PROBLEM,
    ),
]
MEMORY = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        help="Memory of an accelerator, as 8GB or 512MiB; array for what the array has.",
        rich_help_panel=PROBLEM,
        show_default=False,
    ),
]
OPTIMIZER = Annotated[
    str,
    typer.Option(
        help="What the optimizer keeps in memory: sgd, momentum, adam, or bytes a weight.",
        rich_help_panel=PROBLEM,
    ),
]
SOLVER = Annotated[
    str,
    typer.Option(
        help="How a table is solved (list solvers).",
        autocompletion=_solvers,
        rich_help_panel=SOLVING,
    ),
]
SEARCH = Annotated[
    str | None,
    typer.Option(
        help="levelwise: each level given those above, the paper's Algorithm 2, and the default"
        " for bytes; joint: all levels together, for time and energy.",
        autocompletion=_searches,
        rich_help_panel=SOLVING,
        show_default=False,
    ),
]
BACKEND = Annotated[
    str | None,
    typer.Option(
        help="The program behind ilp: cbc, highs, or another that PuLP finds.",
        rich_help_panel=SOLVING,
        show_default=False,
    ),
]
SOLVER_OPTION = Annotated[
    list[str] | None,
    typer.Option(
        metavar="K=V",
        help="A parameter that tunes the backend's search. Repeatable.",
        rich_help_panel=SOLVING,
        show_default=False,
    ),
]
TIME_LIMIT = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        help="From the call; then the best plan known is the answer.",
        rich_help_panel=SOLVING,
        show_default=False,
    ),
]
GAP = Annotated[
    float,
    typer.Option(
        help="Stop at this (total - bound) / total; 0 asks for an optimum.",
        rich_help_panel=SOLVING,
    ),
]
THREADS = Annotated[
    int | None,
    typer.Option(
        help="Of the backend; one unless given.", rich_help_panel=SOLVING, show_default=False
    ),
]
SEED = Annotated[
    int | None,
    typer.Option(help="Of the backend.", rich_help_panel=SOLVING, show_default=False),
]
WARM_START = Annotated[
    Path | None,
    typer.Option(
        metavar="PLAN", help="A plan to start from.", rich_help_panel=SOLVING, show_default=False
    ),
]
HINT = Annotated[
    bool,
    typer.Option("--hint", help="Start from dp's answer.", rich_help_panel=SOLVING),
]
SOLVER_LOG = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="The backend's own log.", rich_help_panel=SOLVING, show_default=False
    ),
]
EXPORT_MODEL = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the model that the solver was given: .lp or .mps (ilp), .pb (cpsat); levelwise"
        " one a level, FILE-H1 and so on.",
        rich_help_panel=SOLVING,
        show_default=False,
    ),
]
PICTURE = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Draw it: .png, .svg or .pdf (needs matplotlib).",
        show_default=False,
    ),
]
JSON = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, for programs, and nothing else.")
]
