"""``hypar-opt run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hypar_opt.cli import completion, inputs, options, output
from hypar_opt.errors import CheckFailedError

EXAMPLES = (
    "hypar-opt run plan.json",
    "hypar-opt run plan.json --scale-down --json",
)


PLAN = typer.Argument(metavar="PLAN", help="A plan file, as solve --output writes it.")
BACKEND = typer.Option(
    help="Virtual devices in numpy, or a program in jax.",
    autocompletion=completion.one_of("numpy", "jax"),
)
SEED = typer.Option(metavar="N", help="Random seed for inputs, targets and weights.")
SCALE_DOWN = typer.Option(
    "--scale-down",
    help="Run the same choices on a network of the same structure whose small sizes split evenly."
    " A note says where the plan itself could not run.",
)
MAX_MEMORY = typer.Option(
    "--max-memory",
    metavar="BYTES",
    help="Refuse runs that need more memory than this, as 8GB or 512MiB.",
)
WEIGHTS = typer.Option(
    metavar="MODEL.onnx",
    help="Take the weights of the model, ONNX or a program of PyTorch's (.pt2), that the plan's"
    " network was imported from, and compare the output with the model's, by onnx's reference"
    " evaluator.",
    autocompletion=completion.model_weights,
)
OUTPUT = options.result_option(help="Write the result as JSON, with every exchange.")


def run(
    plan: Annotated[str, PLAN],
    backend: Annotated[str, BACKEND] = "numpy",
    seed: Annotated[int, SEED] = 0,
    scale_down: Annotated[bool, SCALE_DOWN] = False,
    max_memory: Annotated[str, MAX_MEMORY] = "4GB",
    weights: Annotated[str | None, WEIGHTS] = None,
    dim: options.DIM = None,
    target: Annotated[Path | None, OUTPUT] = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.search.plan_file import read_plan
    from hypar_opt.studies import virtual_run

    with output.outputs_checked(target):
        planned = read_plan(plan)
    with output.progress_bar("layers") as progress:
        result = virtual_run.run(
            planned,
            backend=backend,
            seed=seed,
            scale_down=scale_down,
            max_memory=max_memory,
            weights=weights,
            dims=inputs.dimensions(dim),
            progress=progress,
        )
    if target is not None:
        output.write_json(result.document(), target)
    output.print_result(result, as_json=as_json)
    wrong = list(result.disagreements())
    if wrong:
        more = f"; and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise CheckFailedError(f"{wrong[0]}{more}")
