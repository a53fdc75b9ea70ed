"""``hypar-opt list``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from hypar_opt.cli import options, output
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypar_opt.registry import Registry

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="List what can be named: networks, arrays, solvers and more.",
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
                # Of a batch of one: weights do not depend on it. Those that are shared count once.
                "weights": sum(workload_of(network, 1).stored),
                "source": network.source,
            }
        )
    output.print_rows(rows, as_json=as_json)


@app.command()
def arrays(as_json: options.JSON = False) -> None:
    """List the accelerator arrays, what connects them, and the collective each stands for."""
    from hypar_opt.hardware.arrays import load, names

    rows: list[dict[str, Any]] = []
    for name in names():
        array = load(name)
        rows.append(
            {
                "name": name,
                "accelerators": array.interconnect.accelerators,
                "topology": array.topology.kind,
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
    """List the topologies that an array file may name, and the keys of each."""
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
    """List the kinds of layers of a network file, and the axis that each choice halves."""
    from hypar_opt.workload.operators import OPERATORS

    def splits(operator: Any) -> dict[str, Any]:
        halved = (f"{choice.word} {choice.axis}".strip() for choice in operator.choices)
        return {"axes": str(operator.contraction), "choices": ", ".join(halved)}

    output.print_rows(_rows(OPERATORS, splits), as_json=as_json)


@app.command()
def formats(as_json: options.JSON = False) -> None:
    """List the formats that export --to takes."""
    from hypar_opt.execution.formats import FORMATS

    output.print_rows(_rows(FORMATS), as_json=as_json)


def _rows(
    registry: Registry[Any], more: Callable[[Any], dict[str, Any]] = lambda _: {}
) -> list[dict[str, Any]]:
    """Return a row an entry; one of another package that cannot be loaded says why."""
    rows = []
    for name in registry:
        try:
            entry = registry[name]
            rows.append({"name": name, "summary": _summary(entry), **more(entry)})
        except HyparError as error:
            rows.append({"name": name, "summary": error.for_shell})
    # A table has the columns of its first row; a broken plug-in's are empty.
    return [{**dict.fromkeys(rows[0], ""), **row} for row in rows]


def _summary(entry: Any) -> str:
    """Return what a class says of itself in a line: its ``summary``, else its docstring's."""
    own = getattr(entry, "summary", None)
    if isinstance(own, str):
        return own
    first = (entry.__doc__ or "").strip().partition("\n")[0]
    return first.replace("``", "'").removesuffix(".")


@app.command()
def solvers(as_json: options.JSON = False) -> None:
    """List the solvers, what each guarantees, and the backends of ilp that are there."""
    from hypar_opt.solvers import SOLVERS
    from hypar_opt.solvers.backends.catalogue import installed_backends
    from hypar_opt.solvers.base import flags

    # A solver of another package that cannot be loaded has a row too, saying why.
    rows = [_solver_row(name) for name in SOLVERS]
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


def _solver_row(name: str) -> dict[str, Any]:
    from hypar_opt.solvers import SOLVERS
    from hypar_opt.solvers.base import flags

    try:
        solver = SOLVERS[name]
        return {"name": name, "summary": solver.summary, "takes": flags(solver.supported_options)}
    except HyparError as error:  # an entry point of another package that cannot be loaded
        return {"name": name, "summary": error.for_shell, "takes": []}
