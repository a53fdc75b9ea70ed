"""``hypar-opt doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from hypar_opt.cli import options, output

EXAMPLES = (
    "hypar-opt doctor",
    "hypar-opt doctor jax onnx",
)

PARTS = typer.Argument(
    metavar="PART",
    help="Parts that are needed, as jax, figures or cpsat; each of them has to be there. Default:"
    " all parts, of which extras may be missing.",
)


def doctor(
    parts: Annotated[list[str] | None, PARTS] = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.studies import installation

    result = installation.doctor(parts or ())
    output.print_result(result, as_json=as_json)
    result.check()
