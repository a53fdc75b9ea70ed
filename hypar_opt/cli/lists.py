"""``hypar-opt list``."""

from __future__ import annotations

from typing import Any

import typer

from hypar_opt.cli import options, output
from hypar_opt.errors import HyparError

app = typer.Typer(no_args_is_help=True, help="List what can be named: networks, arrays, solvers.")


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
    except AttributeError as error:  # one that loads, and is no solver
        return {"name": name, "summary": str(error), "takes": []}
