"""Printing: tables or JSON on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

import typer

from hypar_opt.errors import HyparError, printable, shell_words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from rich.console import RenderableType

    from hypar_opt.search.result import Progress

# The exit status after a signal, by the shells' convention: 128 plus its number.
INTERRUPTED = 130
BROKEN_PIPE = 141

_MIN_WIDTH = 20
"""Characters per line, however narrow the terminal is."""

MAX_LINE = 2000
"""Characters of a line on standard error: it may quote a file, which may be of any length."""


def print_json(document: object) -> None:
    """Print one JSON document."""
    _write(_json(document))


def write_json(document: object, file: Path) -> None:
    """Write the document that `print_json` prints."""
    from hypar_opt.documents.files import write_whole

    write_whole(file, _json(document))


def print_text(text: str) -> None:
    """Print a file's text: as it is, but on a terminal with escapes for what is not printable."""
    if sys.stdout.isatty():
        lines = (line.replace("\t", "    ") for line in text.split("\n"))
        text = "\n".join(map(printable, lines))
    _write(text if text.endswith("\n") else text + "\n")


def print_line(sentence: str) -> None:
    """Print one line of printable characters."""
    _write(printable(sentence) + "\n")


def write_csv(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Write a table whose header is the keys of the rows."""
    from hypar_opt.documents.files import csv_text, write_whole

    write_whole(file, csv_text(rows[0], (row.values() for row in rows)))


@contextmanager
def outputs_checked(*outputs: Path | None, picture: Path | None = None) -> Iterator[None]:
    """Read a command's inputs in the context; then refuse outputs, before any work.

    Refused are outputs that cannot be written, or are also inputs.
    """
    from hypar_opt.documents.files import check_outputs, is_stream, recorded_reads

    with recorded_reads() as read:
        yield
    if picture is not None and is_stream(picture):
        raise HyparError(f"--picture {picture}: should be a file, which ends in .png, .svg or .pdf")
    check_outputs(read, *outputs, picture)
    if picture is not None:
        from hypar_opt.display.figures.style import checked_format

        checked_format(picture.suffix, str(picture))


def exported_models(model: Path | None) -> list[Path]:
    """Return the files that ``--export-model`` may write: one per level in a levelwise search."""
    from hypar_opt.plan.problem import MAX_LEVELS

    if model is None or not model.name:
        return [] if model is None else [model]
    # The number of levels is not known before the array is, so all possible names are checked.
    names = [f"{model.stem}-H{level}" for level in range(1, MAX_LEVELS + 1)]
    return [model, *map(model.with_stem, names)]


def draw(picture: Path | None, result: Any, **look: bool) -> None:
    """Draw a result if a picture is wanted; ``look`` as for `figures.figure_of`."""
    if picture is not None:
        from hypar_opt.display import figures

        figures.save(figures.figure_of(result, **look), picture)


def print_view(view: RenderableType, *, folds: bool = False) -> None:
    """Print a result, or a view of one, folded to the terminal's width.

    To a pipe a table is written at full width: programs read it by lines.

    Parameters
    ----------
    folds
        Fold it in a pipe too.
    """
    from hypar_opt.display.terminal.console import Shown, console, is_bounded

    screen, view = console(), Shown(view)
    if not folds and not is_bounded():
        # Measured without the terminal's width: a table cut to it would lose numbers.
        wide = screen.options.update(width=10_000)
        screen.width = max(screen.width, screen.measure(view, options=wide).minimum)
    with screen.capture() as capture:
        screen.print(view)
    _write("".join(line.rstrip() + "\n" for line in capture.get().splitlines()))


def print_result(
    result: Any, *, as_json: bool, document: object = None, folds: bool = False
) -> None:
    """Print a result's document, or a fuller one, as JSON; or its view, as `print_view` does."""
    if as_json:
        print_json(document or result.document())
    else:
        print_view(result, folds=folds)


def worded_for_shell(results: Any) -> Any:
    """Return results whose reasons name options of the command line, in place of arguments."""
    entries = (
        replace(entry, reason=entry.reason and shell_words(entry.reason)) for entry in results
    )
    return replace(results, entries=tuple(entries))


def print_rows(rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Print a table whose header is the keys of the rows."""
    if as_json:
        print_json({"rows": rows})
        return
    from hypar_opt.display.terminal.console import rows_table

    print_view(rows_table(rows))


class Escaped:
    """A text stream that escapes what is not printable.

    Warnings of libraries may quote files.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text, and return its length."""
        self.stream.write("\n".join(map(printable, text.split("\n"))))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def warn(sentence: str) -> None:
    """Print a warning about the answer on standard error."""
    note(f"warning: {shell_words(sentence)}")


def note(sentence: str) -> None:
    """Print one line of printable characters on standard error."""
    line = printable(shell_words(sentence))
    if len(line) > MAX_LINE:
        line = line[: MAX_LINE // 2] + " ... " + line[-MAX_LINE // 2 :]
    line = f"hypar-opt: {line}"
    if sys.stderr is not None and sys.stderr.isatty():
        line = _wrapped(line)
    with suppress(OSError):  # if standard error is closed, the exit status must do
        print(line, file=sys.stderr)


def _wrapped(line: str) -> str:
    """Wrap a message to the width of the terminal."""
    import shutil
    import textwrap

    width = max(shutil.get_terminal_size().columns, _MIN_WIDTH)
    # Long words, as paths, are broken if they do not fit on a line.
    return textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False)


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Show a progress bar and a clock if standard error is a terminal; they disappear when done."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TimeElapsedColumn

    # The clock goes on where one part of the work takes long.
    columns = (*Bar.get_default_columns()[:-1], TimeElapsedColumn())
    # The bar moves the cursor; what others write meanwhile still may not.
    stream = sys.stderr.stream if isinstance(sys.stderr, Escaped) else sys.stderr
    screen = Console(file=stream)
    with Bar(*columns, console=screen, transient=True, redirect_stderr=False) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _json(document: object) -> str:
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _write(text: str) -> None:
    """Write to standard output, to which nothing else here writes."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, as head, has stopped reading
        # Python flushes standard output once more at exit, where nothing could catch the error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(BROKEN_PIPE) from None
