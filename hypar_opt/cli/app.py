"""The ``hypar-opt`` command: reads options, calls the package, prints what it returns."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hypar_opt import __version__
from hypar_opt.cli import options
from hypar_opt.errors import CheckFailedError, HyparError

# Whatever a command needs is imported inside it, so that `--help` answers in a blink.
if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from hypar_opt.partition import Progress
    from hypar_opt.plan import Plan

app = typer.Typer(
    name="hypar-opt",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Choose data or model parallelism, layer by layer and level by level, so that a"
    " training step on 2^H accelerators moves as few bytes as possible (HyPar, HPCA 2019).",
    epilog="Start with: [bold]hypar-opt solve vgg-a[/bold]",
)
lists = typer.Typer(no_args_is_help=True, help="List what can be named: networks, solvers.")
app.add_typer(lists, name="list")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"hypar-opt {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


@app.command(epilog="Example: [bold]hypar-opt solve vgg-e --batch 32 --output plan.json[/bold]")
def solve(
    network: options.NETWORK,
    solver: options.SOLVER = "dp",
    search: options.SEARCH = "levelwise",
    batch: options.BATCH = 256,
    levels: options.LEVELS = 4,
    reading: options.READING = "text",
    element_bytes: options.ELEMENT_BYTES = 4,
    inference: options.INFERENCE = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the plan to this file.", show_default=False)
    ] = None,
    as_json: options.JSON = False,
) -> None:
    """Find a plan: each layer's parallelism at each level, and what it communicates."""
    from hypar_opt import pipeline
    from hypar_opt.plan import write_plan

    if output is not None and (output.is_dir() or not output.parent.is_dir()):
        raise HyparError(f"--output should be a file in a folder that is there, got {output}")
    with _progress() as progress:
        plan = pipeline.solve(
            network,
            solver=solver,
            search=search,
            batch=batch,
            levels=levels,
            reading=reading,
            element_bytes=element_bytes,
            inference=inference,
            progress=progress,
        )
    if output is not None:
        write_plan(plan, output)
    _print_plan(plan, as_json=as_json)


@app.command(
    epilog="Examples: [bold]hypar-opt show alexnet[/bold]; [bold]show plan.json --rerun[/bold]"
)
def show(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[NETWORK|PLAN]",
            help="A network, as for solve, or the path of a plan file.",
            autocompletion=options.complete_networks,
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Images of the shapes shown; 1 unless given.", show_default=False),
    ] = None,
    rerun: Annotated[
        bool,
        typer.Option(
            "--rerun", help="Solve the plan's problem again and compare; 1 if they differ."
        ),
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a network file.")
    ] = False,
    as_json: options.JSON = False,
) -> None:
    """Show a network's layers, or a plan, which is priced again first."""
    from hypar_opt import pipeline

    if schema:
        from hypar_opt.network import json_schema

        if what is not None:
            raise HyparError("--schema is the format's: it takes no NETWORK or PLAN")
        _print_json(json_schema())
        return
    if what is None:
        raise HyparError("show takes a NETWORK or a PLAN, or --schema")
    if pipeline.is_plan(what):
        plan = pipeline.read_plan(what)
        if batch is not None:
            raise HyparError("--batch is fixed by the plan; leave it out")
        if rerun:
            plan = _rerun(plan, what)
        _print_plan(plan, as_json=as_json)
        return
    if rerun:
        raise HyparError(f"--rerun takes a plan file, and {what!r} is a network")
    network = pipeline.find_network(what)
    shapes = pipeline.shapes_of(network, 1 if batch is None else batch)
    if as_json:
        _print_json(pipeline.describe(network, shapes))
    else:
        from hypar_opt.report import terminal

        _print(terminal.network_view(network, shapes))


@lists.command()
def networks(as_json: options.JSON = False) -> None:
    """The networks of the zoo."""
    from hypar_opt import models
    from hypar_opt.pipeline import shapes_of

    rows = []
    for name in models.names():
        network = models.load(name)
        weights = sum(shapes_of(network, 1).weights)
        rows.append(
            {
                "name": name,
                "layers": len(network.layers),
                "weights": weights,
                "source": network.source,
            }
        )
    _print_rows(rows, as_json=as_json)


@lists.command()
def solvers(as_json: options.JSON = False) -> None:
    """The solvers, and what each guarantees."""
    from hypar_opt.solvers import SOLVERS

    rows = [{"name": name, "summary": SOLVERS[name].summary} for name in SOLVERS]
    _print_rows(rows, as_json=as_json)


def _rerun(plan: Plan, file: str) -> Plan:
    from hypar_opt import pipeline

    with _progress() as progress:
        again = pipeline.solve_again(plan, progress)
    key = pipeline.difference(plan, again)
    if key is not None:
        raise CheckFailedError(f"{file}: {key} is not what solving again gives")
    return again


def _print_plan(plan: Plan, *, as_json: bool) -> None:
    from hypar_opt import pipeline

    for warning in pipeline.warnings(plan):
        print(f"hypar-opt: warning: {warning}", file=sys.stderr)
    if as_json:
        _print_json(plan.document())
    else:
        from hypar_opt.report import terminal

        _print(terminal.plan_view(plan, ascii_only=terminal.console().options.ascii_only))


def _print_rows(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        _print_json(rows)
        return
    from hypar_opt.report import terminal

    numbers = tuple(n for n, value in enumerate(rows[0].values()) if isinstance(value, int))
    texts = [[f"{v:,}" if isinstance(v, int) else v for v in row.values()] for row in rows]
    _print(terminal.rows_view(rows[0], texts, right=numbers))


def _print(view: RenderableType) -> None:
    from hypar_opt.report import terminal

    terminal.console().print(view)


def _print_json(document: object) -> None:
    print(json.dumps(document, indent=2, allow_nan=False))


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar of levels on standard error, on a terminal; it goes when the work is done."""
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("levels", total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


def run(args: list[str]) -> int:
    """Run one command line and return its exit status; errors become one line."""
    command = typer.main.get_command(app)
    try:
        status = command(args, prog_name="hypar-opt", standalone_mode=False)
        sys.stdout.flush()
    except HyparError as error:
        return _fail(str(error), error.exit_status)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context else ""
        message = error.format_message().rstrip(".")
        return _fail(message and message + hint, error.exit_code)
    except OSError as error:
        return _fail(f"standard output: {error.strerror}", 2)
    return status if isinstance(status, int) else 0


def _fail(message: str, status: int) -> int:
    if message:  # without one, the help has been printed
        print("hypar-opt:", " ".join(message.split()), file=sys.stderr)
    return status


def main() -> None:
    """Run the command line of this process."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    sys.exit(run(sys.argv[1:]))
