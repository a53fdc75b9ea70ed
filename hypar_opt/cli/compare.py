"""``hypar-opt compare``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hypar_opt.cli import options, output, request
from hypar_opt.cli.groups import CostOptions, RunningOptions
from hypar_opt.cli.options import several
from hypar_opt.cli.signatures import takes_groups
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array


EXAMPLES = (
    "hypar-opt compare paper --reading figures",
    "hypar-opt compare vgg-a vgg-e --batch 32,256 --array hmc-torus-16",
)

NETWORKS = options.network_argument(
    metavar="NETWORK|all|paper",
    help="Networks, as for solve; all: the whole zoo, paper: the paper's ten.",
)
BATCHES = several(options.BATCH, "B")
LEVELS = several(options.LEVELS, "H", ", for the paper's arrays; other arrays have fixed levels")
ARRAYS = several(
    options.ARRAY,
    "NAME|FILE",
    ". Default: the paper's H tree; for a --hierarchy of other parts none, and bytes alone",
)
CSV = options.table_option(help="Write the rows to this CSV file.")


@takes_groups
def compare(
    networks: Annotated[list[str], NETWORKS],
    batch: Annotated[str, BATCHES] = "256",
    tokens: Annotated[int | None, options.TOKENS] = None,
    accelerators: Annotated[int | None, options.ACCELERATORS] = None,
    levels: Annotated[str | None, LEVELS] = None,
    hierarchy: Annotated[str | None, options.HIERARCHY] = None,
    whole_levels: Annotated[bool, options.WHOLE_LEVELS] = False,
    array: Annotated[str | None, ARRAYS] = None,
    bucket: Annotated[str | None, options.BUCKET] = None,
    settings: options.SETTINGS = None,
    stages: Annotated[str | None, options.STAGES] = None,
    schedule: Annotated[str | None, options.SCHEDULE] = None,
    *,  # the groups need no default
    cost: CostOptions,
    running: RunningOptions,
    csv_file: Annotated[Path | None, CSV] = None,
    picture: options.PICTURE = None,
    as_json: options.JSON = False,
) -> None:
    from hypar_opt.models import find_network, named
    from hypar_opt.plan.arguments import hierarchy_of_accelerators
    from hypar_opt.studies import comparison

    sizes = None if levels is None else request.whole_numbers("--levels", levels, "32,256")
    arguments = request.cost_arguments(cost) | ({} if bucket is None else {"bucket": bucket})
    arguments |= {"settings": request.key_values(settings), "schedule": schedule}
    parts = None
    if accelerators is not None:
        if levels is not None:
            raise HyparError("--accelerators states the levels; leave --levels out")
        arguments["accelerators"] = accelerators
        parts = hierarchy_of_accelerators(accelerators)
    if hierarchy is not None:
        if levels is not None:
            raise HyparError("--hierarchy states the levels; leave --levels out")
        parts = request.hierarchy(hierarchy, whole=whole_levels)
        arguments["hierarchy"] = request.sizes(hierarchy)
        arguments["whole_levels"] = whole_levels
    if parts is not None:
        sizes = (parts.levels,) if parts.is_binary else None
    with output.outputs_checked(csv_file, picture=picture):
        described = [find_network(name, tokens) for typed in networks for name in named(typed)]
        # The paper's arrays have levels of two parts: others are compared without one, by bytes.
        alone = array is None and parts is not None and sizes is None
        arrays = None if alone else _arrays(array, sizes)
    # The default arrays are made for the levels; named arrays have fixed levels.
    if array is not None and arrays and sizes and accelerators is None:
        _check_levels(arrays, sizes, typed=levels or str(sizes[0]))
    with output.progress_bar("networks") as progress:
        compared = comparison.compare(
            described,
            arrays,
            batches=request.whole_numbers("--batch", batch, "32,256"),
            progress=progress,
            run={"collective": running.collective, "overlap": running.overlap},
            stages=request.stages(stages),
            **arguments,
        )
    compared = output.worded_for_shell(compared)
    for sentence in comparison.warnings_of_rows(compared):
        output.warn(sentence)
    if csv_file is not None:
        output.write_csv(compared.rows(), csv_file)
    output.draw(picture, compared)
    output.print_result(compared, as_json=as_json)


def _arrays(names: str | None, sizes: tuple[int, ...] | None) -> list[Array]:
    """Return the arrays named, or the paper's array of each size."""
    from hypar_opt.hardware.arrays import find_array, papers

    if names is None:
        return [find_array(papers(levels)) for levels in sizes or [None]]
    return [find_array(name) for name in names.split(",")]


def _check_levels(arrays: list[Array], sizes: tuple[int, ...], *, typed: str) -> None:
    """Refuse levels other than those of the named arrays."""
    if set(sizes) == {array.levels for array in arrays}:
        return
    wrong = next((array for array in arrays if array.levels not in sizes), arrays[0])
    raise HyparError(
        f"--levels should be {wrong.levels}, since the array {wrong.name} has"
        f" {wrong.interconnect.accelerators} accelerators, got {typed}"
    )
