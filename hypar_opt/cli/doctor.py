"""``hypar-opt doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from hypar_opt.cli import options, output
from hypar_opt.errors import CheckFailedError

EPILOG = "Examples: [bold]hypar-opt doctor[/bold]; [bold]hypar-opt doctor jax onnx[/bold]"

PARTS = typer.Argument(
    metavar="[PART]...",
    help="Parts that are needed, as jax, plot or cpsat; each of them has to be there. Default: all"
    " parts, of which extras may be missing.",
)


def doctor(
    parts: Annotated[list[str] | None, PARTS] = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.studies import installation

    found = installation.checks(parts or ())
    sound = installation.is_sound(found, asked=bool(parts))
    if as_json:
        output.print_json(installation.document(found, sound=sound))
    else:
        rows = [{"part" if key == "name" else key: v for key, v in vars(c).items()} for c in found]
        output.print_rows(rows, as_json=False)
    if not sound:
        wrong = next(one for one in found if not installation.is_sound([one], asked=bool(parts)))
        raise CheckFailedError(f"{wrong.name}: {wrong.status}; {wrong.note}")
