"""Reading and writing files: bounded reads, atomic writes, no output over an input."""

from __future__ import annotations

import csv
import io
import os
import secrets
import stat
import sys
import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hypar_opt.errors import InputError, worded

MAX_BYTES = 64 * 2**20
"""The size limit of a file that is read; devices such as /dev/zero never end."""

# Drafts are recognised by this prefix when leftovers are removed.
_DRAFT = ".hypar-opt-"
_A_DAY = 86_400
# A context variable, so that threads and nested recordings do not mix.
_reads: ContextVar[tuple[list[str], ...]] = ContextVar("_reads", default=())


@contextmanager
def recorded_reads() -> Iterator[list[str]]:
    """Record the paths of all files that are read in the context, for `check_outputs`."""
    read: list[str] = []
    before = _reads.set((*_reads.get(), read))
    try:
        yield read
    finally:
        _reads.reset(before)


def record_read(path: str | Path) -> None:
    """Record a file that is read, for `recorded_reads`."""
    for read in _reads.get():
        read.append(str(path))


@dataclass
class _StandardInput:
    """The content of standard input, which can be read only once, and its use so far."""

    stream: IO[str]
    data: bytes
    taken_as: str = ""


_standard_input: _StandardInput | None = None


def is_standard_input(path: str | Path) -> bool:
    """Whether a path stands for standard input: ``-``, or the device."""
    return str(path) in ("-", "/dev/stdin")


def file_name(path: str | Path) -> str:
    """Return a path as messages name it."""
    return "standard input" if is_standard_input(path) else str(path)


def take_standard_input(noun: str) -> None:
    """Refuse standard input for a second kind of document.

    Parameters
    ----------
    noun
        The kind of document, for the message.
    """
    record = _read_standard_input()
    if record.taken_as not in ("", noun):
        problem = f"is the {record.taken_as} already; name a file for the {noun}"
        raise InputError(problem, file=file_name("-"))
    record.taken_as = noun


def _read_standard_input() -> _StandardInput:
    """Return the content of standard input, read at the first call."""
    global _standard_input
    stream = sys.stdin
    if stream is None:
        raise InputError("is closed; name a file", file=file_name("-"))
    if _standard_input is None or _standard_input.stream is not stream:
        _standard_input = _StandardInput(stream, stream.buffer.read(MAX_BYTES + 1))
    return _standard_input


def read_text(path: str | Path) -> str:
    """Read a UTF-8 file, or standard input (``-``), of at most `MAX_BYTES`.

    Raises
    ------
    InputError
        Naming the file and the reason.
    """
    file = file_name(path)
    try:
        if is_standard_input(path):
            data = _read_standard_input().data
        else:
            record_read(path)
            with Path(path).open("rb") as stream:
                # One byte more than allowed tells a file that is too large; its size on disk would
                # not tell a pipe or a device.
                data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InputError(f"should have at most {MAX_BYTES // 2**20} MiB", file=file)
        # Line endings become "\n", as when a file is opened as text.
        return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8").read()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=file) from None
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"should be UTF-8 text: {error}", file=file) from None


def exists(path: Path) -> bool:
    """Return whether a path exists; True if that cannot be determined: reading it reports why."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return True


def check_outputs(read: Iterable[str | Path], *outputs: str | Path | None) -> None:
    """Refuse, before the work, outputs that cannot be written or would overwrite an input.

    Parameters
    ----------
    read
        The files that the work reads, by any path.
    *outputs
        The files that it writes; None for one that is not requested.

    Raises
    ------
    InputError
        Naming the first output that is not writable, is also read, or is another output.
    """
    if all(path is None for path in outputs):
        return
    used = {name for path in read for name in _names(path)}
    for path in outputs:
        if path is None:
            continue
        check_writable(path)
        names = _names(path)
        if names & used:
            raise InputError("is read or written already; write to another", file=str(path))
        used |= names


def _names(path: str | Path) -> set[Hashable]:
    """Return a file's identities: its resolved path, and its inode if it exists."""
    with suppress(OSError, ValueError, RuntimeError):  # a loop of links is for reading to refuse
        names: set[Hashable] = {str(Path(path).resolve())}
        with suppress(FileNotFoundError):
            there = Path(path).stat()
            if not stat.S_ISREG(there.st_mode):
                return set()  # a pipe or a device holds nothing that could be lost
            names.add((there.st_dev, there.st_ino))
        return names
    return set()


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file atomically: a reader sees all of it, or its former content.

    Pipes and devices are written to directly.

    Raises
    ------
    InputError
        Naming the file and the reason; its former content is unchanged.
    """
    check_writable(path)
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(data)
            return
        target = target.resolve()  # a link stays, what it leads to is replaced
        _remove_stale_drafts(target.parent)
        # In the same folder: replacing is atomic only within a file system.
        draft = target.with_name(_DRAFT + secrets.token_hex(8))
        former = _mode(target)
        # Only the owner reads a draft of what may be private. The mode of a new file is the
        # system's, by the umask, which cannot be read without setting it for all threads.
        mode = 0o666 if former is None else 0o600
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(data)
                stream.flush()
                if former is not None:
                    os.fchmod(stream.fileno(), former)
                # On disk before the rename, so that a crash cannot leave a renamed, empty file.
                os.fsync(stream.fileno())
            draft.replace(target)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from None


def _mode(target: Path) -> int | None:
    """Return the mode of the file that is replaced; None for a new file."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    return None


def _remove_stale_drafts(folder: Path) -> None:
    """Remove drafts that a killed process left: those older than a day, longer than any write."""
    with suppress(OSError):
        for draft in folder.glob(f"{_DRAFT}{'[0-9a-f]' * 16}"):
            there = draft.lstat()
            stale = time.time() - there.st_mtime > _A_DAY
            if stale and stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid():
                draft.unlink(missing_ok=True)


def is_stream(path: str | Path) -> bool:
    """Whether a path stands for standard output, or for what a process has open."""
    return str(path) == "-" or str(path).startswith(("/dev/std", "/dev/fd", "/proc/"))


def check_writable(path: str | Path) -> None:
    """Refuse a file that cannot be written, before any work is done for it.

    Raises
    ------
    InputError
        Naming the file and what would be right.
    """
    target = Path(path)
    try:
        if is_stream(target):
            problem = "should be a file" + worded("", "; --json prints to standard output")
            raise InputError(problem, file=str(path))
        with suppress(FileNotFoundError):
            target.stat()  # a loop of links, a name too long: the system says which
        if not str(path) or target.is_dir():
            raise InputError("should be a file, not a folder", file=str(path))
        folder = target.resolve().parent
        if not folder.is_dir():
            raise InputError(f"there is no folder {str(folder)!r}", file=str(path))
        if not os.access(target if target.exists() else folder, os.W_OK):
            raise InputError("cannot be written: Permission denied", file=str(path))
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from None
    except ValueError as error:  # a null byte
        raise InputError(f"should be a file name: {error}", file=str(path)) from None


def csv_text(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV; text that a spreadsheet would evaluate gets an apostrophe."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(map(_no_formula, row) for row in rows)
    return text.getvalue()


def _no_formula(cell: object) -> object:
    is_formula = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{cell}" if is_formula else cell
