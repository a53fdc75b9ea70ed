"""``hypar-opt configure``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hypar_opt.cli import completion, options, output, request
from hypar_opt.cli.options import file_option, problem_option, solving_option

EXAMPLES = (
    "hypar-opt configure llama-3-8b --array h100-8x8 --batch 512",
    "hypar-opt configure llama-70b --array h100-8x8 --batch 64 --to megatron -o args.sh",
    "hypar-opt configure gpt2 --array a100-4x8 --batch 64 --by-degrees --picture map.svg",
)

FIX = problem_option(
    metavar="KEY=VALUE,...",
    help="Pin columns, as tp=8,zero=weights: tp, sp (yes or no), cp, ep, dp_shard, dp_replicate,"
    " zero (none, state, gradients, weights, state+weights), micro_batches, recompute (none,"
    " selective, op, full); with stages pp, interleave.",
)
MARGIN = problem_option(
    metavar="BYTES",
    help="Memory to leave free on each accelerator, beside the array's reserve, as 8GB.",
)
FRAMEWORKS = options.several(
    problem_option(
        help="Only configurations that this framework can express (see list formats).",
        autocompletion=completion.frameworks,
    ),
    "NAME",
    ": one of them is enough",
)
BEST = problem_option(metavar="N", help="How many configurations to list. Default: 10.")
BOUND = solving_option(
    help="The lower bound over all plans, including those that no framework expresses: memory"
    " (plans that fit), or none, which takes no time.",
    autocompletion=completion.one_of("none", "memory"),
)
STAGES = problem_option(
    metavar="N",
    help="Number of pipeline stages, each a part of the array, or auto for any number including 1."
    " Default: no stages.",
    autocompletion=completion.one_of("auto"),
)
BY_DEGREES = problem_option(
    "--by-degrees",
    help="List the fastest configuration for each pair of tensor-parallel degree and number of"
    " stages, as a map; where none fits, the memory that it would take. Stages are auto unless"
    " stated.",
)
TO = typer.Option(
    metavar="FRAMEWORK",
    help="Print the fastest configuration as a framework's settings and nothing else (see list"
    " formats); with -o write them to the file.",
    autocompletion=completion.frameworks,
)
OUTPUT = options.result_option(
    help="Write the fastest configuration to this file, as a plan or, with --to, as the"
    " framework's settings."
)
CSV = file_option("--csv", help="Write one row per configuration to this CSV file.")


def configure(
    network: options.NETWORK,
    array: Annotated[str, options.ARRAY],
    batch: Annotated[int, options.BATCH] = 256,
    tokens: Annotated[int | None, options.TOKENS] = None,
    optimizer: Annotated[str, options.OPTIMIZER] = "adam",
    reduce_bytes: Annotated[int | None, options.REDUCE_BYTES] = None,
    settings: options.SETTINGS = None,
    margin: Annotated[str, MARGIN] = "0",
    fix: Annotated[str | None, FIX] = None,
    frameworks: Annotated[str | None, FRAMEWORKS] = None,
    best: Annotated[int | None, BEST] = None,
    bound: Annotated[str, BOUND] = "memory",
    stages: Annotated[str | None, STAGES] = None,
    by_degrees: Annotated[bool, BY_DEGREES] = False,
    time_limit: options.TIME_LIMIT = None,
    to: Annotated[str | None, TO] = None,
    output_file: Annotated[Path | None, OUTPUT] = None,
    csv_file: Annotated[Path | None, CSV] = None,
    picture: options.PICTURE = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.documents.files import write_whole
    from hypar_opt.hardware.arrays import find_array
    from hypar_opt.models import find_network
    from hypar_opt.plan.plan import write_plan
    from hypar_opt.studies import configurations

    if to is not None:
        from hypar_opt.execution.settings import framework

        framework(to)  # an unknown name is refused before the work
    with output.outputs_checked(output_file, csv_file, picture=picture):
        described, hardware = find_network(network, tokens), find_array(array)
    with output.progress_bar("configurations") as progress:
        configured = configurations.configure(
            described,
            hardware,
            batch=batch,
            optimizer=optimizer,
            reduce_bytes=reduce_bytes,
            settings=request.key_values(settings),
            margin=margin,
            fix=fix,
            frameworks=() if frameworks is None else frameworks.split(","),
            best=best,
            bound=bound,
            stages=request.stages(stages),
            by_degrees=by_degrees,
            time_limit=time_limit,
            progress=progress,
        )
    text = None if to is None else configured.to(to)
    for lack in () if to is None else configured.lacks(to):
        output.warn(f"{to} cannot express {lack}; --frameworks {to} excludes such configurations")
    if text is not None and output_file is not None:
        write_whole(output_file, text)
    elif output_file is not None:
        write_plan(configured.plan(), output_file)
    if csv_file is not None:
        output.write_csv(configured.rows(), csv_file)
    output.draw(picture, configured)
    if text is not None and output_file is None:
        output.print_text(text)
    else:
        output.print_result(configured, as_json=as_json)
