"""``hypar-opt calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hypar_opt.cli import completion, options, output

EXAMPLES = (
    "hypar-opt calibrate a100-8 steps.toml -o ours.toml",
    "hypar-opt calibrate ours.toml steps.toml --fit gemm,flash",
)

ARRAY = typer.Argument(
    metavar="ARRAY",
    help="An array of nodes, a preset's name or a file; any number of its nodes.",
    autocompletion=completion.arrays,
)
STEPS = typer.Argument(
    metavar="STEPS.toml",
    help="Measured steps, with the columns that docs/validation.md lists.",
)
OUTPUT = options.result_option(help="The array file with the fitted constants.")
FIT = typer.Option(
    metavar="KEYS",
    help="The constants to fit: gemm, conv, elementwise, flash, launch, host, and of link and"
    " fabric bandwidth and latency, as link.latency; and overlap, its efficiency. Default: one"
    " factor on gemm, elementwise and flash for one step; gemm and elementwise for more, and flash"
    " if attention is fused.",
)
TEST = typer.Option(
    metavar="FILE",
    help="Further measured steps, predicted with the fitted constants but not used in the fit.",
)


def calibrate(
    array: Annotated[str, ARRAY],
    steps: Annotated[str, STEPS],
    output_file: Annotated[Path | None, OUTPUT] = None,
    fit: Annotated[str | None, FIT] = None,
    test: Annotated[Path | None, TEST] = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.documents.files import record_read, write_whole
    from hypar_opt.documents.toml import toml_text
    from hypar_opt.hardware.arrays import find_array
    from hypar_opt.studies import calibration

    with output.outputs_checked(output_file):
        description = find_array(array)
        for path in filter(None, (Path(steps), test)):
            record_read(path)
    with output.progress_bar("calculations") as progress:
        keys = None if fit is None else fit.split(",")
        result = calibration.calibrate(description, steps, fit=keys, test=test, progress=progress)
    if result.left_aside:
        output.note(f"columns left aside: {', '.join(result.left_aside)}")
    for sentence in result.warnings:
        output.warn(sentence)
    if output_file is not None:
        write_whole(output_file, toml_text(result.array.description()))
    output.print_result(result, as_json=as_json)
