"""``hypar-opt list``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from hypar_opt.cli import options, output
from hypar_opt.cli.commands import SUMMARIES
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypar_opt.registry import Registry

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help=SUMMARIES["list"],
)


@app.command()
def networks(as_json: options.JSON = False) -> None:
    """List the networks of the zoo."""
    from hypar_opt import models
    from hypar_opt.workload.tensors import workload_of

    rows = []
    for name in models.names():
        network = models.load(name)
        rows.append(
            {
                "name": name,
                "layers": len(network.layers),
                # For a batch of one, on which weights do not depend; shared weights count once.
                "weights": sum(workload_of(network, 1).stored),
                "source": network.source,
            }
        )
    output.print_rows(rows, as_json=as_json)


@app.command()
def arrays(as_json: options.JSON = False) -> None:
    """List the accelerator arrays, their topologies and their collectives."""
    from hypar_opt.hardware.arrays import load, names

    rows: list[dict[str, Any]] = []
    for name in names():
        array = load(name)
        rows.append(
            {
                "name": name,
                "accelerators": array.interconnect.accelerators,
                "topology": ", ".join([array.topology.kind, *array.kinds]),
                "collective": array.collective,
                "source": array.source,
            }
        )
    # A citation is wider than the rest of the table; --json has it.
    if not as_json:
        rows = [{key: row[key] for key in row if key != "source"} for row in rows]
    output.print_rows(rows, as_json=as_json)


@app.command()
def topologies(as_json: options.JSON = False) -> None:
    """List the topologies that an array file may use, and the keys of each."""
    from hypar_opt.hardware.topologies import TOPOLOGIES

    def keys(topology: Any) -> dict[str, Any]:
        fields = topology.model_fields.items()
        return {"keys": ", ".join(field.alias or name for name, field in fields if name != "kind")}

    output.print_rows(_rows(TOPOLOGIES, keys), as_json=as_json)


@app.command()
def costs(as_json: options.JSON = False) -> None:
    """List the objectives that --cost takes."""
    from hypar_opt.costs import COSTS

    output.print_rows(_rows(COSTS), as_json=as_json)


@app.command()
def operators(as_json: options.JSON = False) -> None:
    """List the kinds of layers of a network file, and the axis that each choice splits."""
    from hypar_opt.workload.operators import OPERATORS

    def splits(operator: Any) -> dict[str, Any]:
        halved = (f"{choice.word} {choice.axis}".strip() for choice in operator.choices.values())
        return {"axes": str(operator.contraction), "choices": ", ".join(halved)}

    output.print_rows(_rows(OPERATORS, splits), as_json=as_json)


@app.command()
def choices(as_json: options.JSON = False) -> None:
    """List what --choices takes, and what each kind of layer splits under it."""
    from hypar_opt.workload.operators import OPERATORS
    from hypar_opt.workload.parallelism import ALL_CHOICES, LEFT_WHOLE

    rows = []
    for word in ALL_CHOICES:
        kinds: dict[str, list[str]] = {}
        for name in OPERATORS:
            choice = OPERATORS[name].choices.get(word)
            if choice is not None:
                kinds.setdefault(f"{choice.part}s" if choice.axis else "nothing", []).append(name)
        rows += [
            {"name": word, "splits": split, "kinds": ", ".join(own)} for split, own in kinds.items()
        ]
    kinds_of_whole = "every other, where no split of it fits"
    rows.append({"name": LEFT_WHOLE, "splits": "nothing", "kinds": kinds_of_whole})
    output.print_rows(rows, as_json=as_json)


@app.command()
def formats(as_json: options.JSON = False) -> None:
    """List the formats that export --to takes."""
    from hypar_opt.execution.formats import FORMATS

    output.print_rows(_rows(FORMATS), as_json=as_json)


def _rows(
    registry: Registry[Any], more: Callable[[Any], dict[str, Any]] = lambda _: {}
) -> list[dict[str, Any]]:
    """Return one row per entry; for a plug-in that cannot be loaded, with the reason."""
    rows = []
    for name in registry:
        try:
            entry = registry[name]
            rows.append({"name": name, "summary": _summary(entry), **more(entry)})
        except HyparError as error:
            rows.append({"name": name, "summary": error.for_shell})
    # A table has the columns of its first row; those of a broken plug-in are empty.
    return [{**dict.fromkeys(rows[0], ""), **row} for row in rows]


def _summary(entry: Any) -> str:
    """Return one line about a class: its ``summary``, or the first line of its docstring."""
    summary = getattr(entry, "summary", None)
    if isinstance(summary, str):
        return summary
    first = (entry.__doc__ or "").strip().partition("\n")[0]
    return first.replace("``", "'").removesuffix(".")


@app.command()
def solvers(as_json: options.JSON = False) -> None:
    """List the solvers with their guarantees, and the installed backends of ilp."""
    from hypar_opt.solvers import SOLVERS
    from hypar_opt.solvers.backends.catalogue import installed_backends
    from hypar_opt.solvers.base import flags

    def takes(solver: Any) -> dict[str, Any]:
        return {"takes": flags(solver.supported_options)}

    rows = [{**row, "takes": row["takes"] or []} for row in _rows(SOLVERS, takes)]
    available = [
        {
            "backend": backend.name,
            "version": backend.version,
            "takes": flags(backend.supported_options),
        }
        for backend in installed_backends()
    ]
    if as_json:
        output.print_json({"solvers": rows, "backends": available})
        return
    for table in (rows, available):
        lines = [{**row, "takes": " ".join(row["takes"]) or "-"} for row in table]
        output.print_rows(lines, as_json=False)
