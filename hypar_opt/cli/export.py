"""``hypar-opt export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hypar_opt.cli import completion, options, output

EXAMPLES = (
    "hypar-opt export plan.json --to jax -o model_sharded.py",
    "hypar-opt export plan.json --to torch -o plan.py",
    "hypar-opt export plan.json --to megatron -o train.sh",
    "hypar-opt export plan.json --to chakra -o step.sh",
)

PLAN = typer.Argument(metavar="PLAN", help="A plan file, as solve --output writes it.")
TO = typer.Option(
    metavar="FORMAT",
    help="The format, such as jax, torch, megatron or chakra; list formats says what each writes.",
    autocompletion=completion.formats,
)
APPROXIMATE = typer.Option(
    "--approximate",
    help="Export a network that omits parts of its model, such as a mask. Formats that state the"
    " computation require this option for such a network; json and framework settings do not.",
)
OUTPUT = options.result_option(
    help="The file to write (default: print it). Chakra's is the script; its others are beside it."
)


def export(
    plan: Annotated[str, PLAN],
    to: Annotated[str, TO],
    approximate: Annotated[bool, APPROXIMATE] = False,
    output_file: Annotated[Path | None, OUTPUT] = None,
) -> None:
    from hypar_opt.search.plan_file import read_plan
    from hypar_opt.studies import export as study
    from hypar_opt.workload.omitted import omitted_parts, sentences

    with output.outputs_checked(output_file):
        described = read_plan(plan)
    text = study.export(described, to, output_file, approximate=approximate)
    if not approximate:
        # Of formats that say nothing of what is computed; the others are refused then.
        for sentence in sentences(omitted_parts(described.network.description), ()):
            output.note(sentence)
    if output_file is None:
        output.print_text(text)
