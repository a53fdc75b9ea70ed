"""Options that commands share. An option means the same wherever it stands."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

# Nothing heavy is imported here: `--help` and completion read this file.
from hypar_opt import models


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    typed = len(incomplete)  # what was typed stays as it is, in its own case
    return [incomplete + n[typed:] for n in names if n.startswith(incomplete.lower())]


def complete_networks(incomplete: str) -> list[str]:
    return _starting(incomplete, models.names())


def _solvers(incomplete: str) -> list[str]:
    from hypar_opt.solvers import SOLVERS

    return _starting(incomplete, SOLVERS)


def _readings(incomplete: str) -> list[str]:
    from hypar_opt.costs.readings import READINGS

    return _starting(incomplete, READINGS)


def _searches(incomplete: str) -> list[str]:
    return _starting(incomplete, ["levelwise"])


NETWORK = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK",
        help="A network of the zoo, in any case (list networks), or the path of a network file.",
        autocompletion=complete_networks,
        show_default=False,
    ),
]
SOLVER = Annotated[
    str,
    typer.Option(help="How a level is solved (list solvers).", autocompletion=_solvers),
]
SEARCH = Annotated[
    str,
    typer.Option(
        help="How the levels are searched: levelwise, the paper's Algorithm 2.",
        autocompletion=_searches,
    ),
]
BATCH = Annotated[int, typer.Option(help="Images a training step, over all accelerators.")]
LEVELS = Annotated[
    int, typer.Option(help="Levels H of the hierarchy: 2^H accelerators, H from 0 to 64.")
]
READING = Annotated[
    str,
    typer.Option(
        help="What is charged: text (the paper's), tables, figures, or executed (what runs).",
        autocompletion=_readings,
    ),
]
ELEMENT_BYTES = Annotated[
    int, typer.Option(help="Bytes of a tensor's element: 4, or 2 for half precision; 1, 8.")
]
INFERENCE = Annotated[
    bool, typer.Option("--inference", help="Charge the forward pass only: no gradients, no errors.")
]
JSON = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, for programs, and nothing else.")
]
