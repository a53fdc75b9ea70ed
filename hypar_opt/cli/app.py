"""The ``hypar-opt`` command: reads options, calls the package, prints what it returns."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from hypar_opt.cli import output
from hypar_opt.cli.commands import Commands
from hypar_opt.errors import HyparError, printable

if TYPE_CHECKING:
    from types import FrameType

app = typer.Typer(
    name="hypar-opt",
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Choose how to split the training of a neural network over an array of accelerators:"
    " data, tensor, context or expert parallelism, layer by layer and level by level (HyPar, HPCA"
    " 2019).",
    epilog="Start with: hypar-opt solve vgg-a",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from hypar_opt.studies.installation import summary

        output.print_line(summary())
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the version, and what is installed with it.",
        ),
    ] = False,
) -> None:
    pass


_COMMAND = typer.main.get_command(app)


def run(args: list[str]) -> int:
    """Run one command line and return its exit status; errors become one line."""
    try:
        # Not standalone: Typer would print its own errors, over several lines, and exit.
        status = _COMMAND(args, prog_name="hypar-opt", standalone_mode=False)
        sys.stdout.flush()
    except HyparError as error:
        return _fail(error.for_shell, error.exit_status)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        hint = f"; see {context.command_path} --help" if context else ""
        message = error.format_message().rstrip(".?")
        return _fail(message and message + hint, error.exit_code)
    except SystemExit as error:
        # Typer's own, where the reader of a help, as head, has stopped reading.
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        return output.BROKEN_PIPE
    except OSError as error:
        where = repr(error.filename) if error.filename else "standard output"
        return _fail(f"{where}: {error.strerror}", 2)
    except MemoryError as error:
        # numpy names the amount, in one line; others say nothing.
        wanted = f": {error}" if str(error).isprintable() and str(error) else ""
        return _fail(f"out of memory{wanted}", 2)
    except Exception as error:
        from hypar_opt.registry import plug_in_of

        plug_in = plug_in_of(error.__traceback__)
        if plug_in is None:
            raise
        return _fail(printable(f"{plug_in} failed: {type(error).__name__}: {error}"), 2)
    return status if isinstance(status, int) else 0


def _fail(message: str, status: int) -> int:
    if message:  # without one, the help has been printed
        output.note(message)
    return status


class _Closed(io.TextIOBase):
    """A standard output that is closed."""

    def write(self, text: str) -> NoReturn:  # noqa: ARG002
        raise OSError(errno.EBADF, "is closed")


def main() -> None:
    """Run the command line of this process."""
    # A closed stream is None: messages are dropped, but failing to print a result is an error.
    sys.stdout = sys.stdout or _Closed()
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        # A layer's name may have characters that the terminal's encoding lacks. A stream that a
        # caller puts there, such as a StringIO, takes all.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    sys.stderr = output.Escaped(sys.stderr)
    sys.exit(_until_interrupted(sys.argv[1:]))


def _until_interrupted(args: list[str]) -> int:
    """Run one command line; return `INTERRUPTED` after Ctrl-C, whatever exception it raised."""
    interrupted = False

    def interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.default_int_handler(signum, frame)

    # Where SIGINT is ignored, as in a script's background job, it stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        status = run(args)
    except BaseException:  # a compiled module turns it into an ImportError while it is imported
        if not interrupted:
            raise
        status = output.INTERRUPTED
    return output.INTERRUPTED if interrupted else status
