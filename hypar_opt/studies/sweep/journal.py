"""Rows as they are finished, a line each, so that a sweep that was killed goes on."""

from __future__ import annotations

import fcntl
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from hypar_opt.documents import Document, parse_json, validate
from hypar_opt.errors import InputError
from hypar_opt.studies.sweep.case import Row

if TYPE_CHECKING:
    from types import TracebackType


class Line(Document):
    """A case's key and its row."""

    key: str
    row: Row


class Journal:
    """The rows of a file of JSON lines; one process at a time has it.

    A line is there whole or not at all: a last line that ends without its newline, torn by
    a kill, is dropped.

    Raises
    ------
    InputError
        If another sweep has the file, or it is no journal: what is in it stays.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}

    def __enter__(self) -> Self:
        file = str(self.path)
        if self.path.exists() and not self.path.is_file():
            raise InputError("should be a regular file: rows are read from it again", file=file)
        while not self._locked(file):
            pass
        try:
            self._read(file)
        except BaseException:
            self._stream.close()
            raise
        return self

    def _locked(self, file: str) -> bool:
        """Open and lock the file; False if another sweep removed it in between."""
        try:
            self._stream: IO[bytes] = self.path.open("ab", buffering=0)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", file=file) from None
        ours = False
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                ours = os.path.samestat(os.fstat(self._stream.fileno()), self.path.stat())
        except OSError:
            raise InputError("another sweep is at work on it", file=file) from None
        finally:
            if not ours:
                self._stream.close()
        return ours

    def _read(self, file: str) -> None:
        whole = 0
        *lines, torn = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines, 1):
            where = f"{file}, line {number}"
            found = validate(
                Line, parse_json(line.decode(errors="replace"), file=where), file=where
            )
            self.rows[found.key] = found.row
            whole += len(line) + 1
        # A file of one line with no end may be anybody's.
        if torn and not lines and not re.match(rb'\{"key": "[^\x00-\x1f]*$', torn):
            raise InputError("should be a journal of rows, a line each; remove it", file=file)
        self._stream.truncate(whole)

    def add(self, key: str, row: Row) -> None:
        """Write a row, and be sure that it is on the disk."""
        text = json.dumps({"key": key, "row": row.model_dump()}, allow_nan=False) + "\n"
        line = text.encode()
        try:
            while line:  # a full disk takes a part, and refuses the rest
                line = line[self._stream.write(line) :]
            self.rows[key] = row
            os.fsync(self._stream.fileno())
        except OSError as error:
            problem = f"cannot be written: {error.strerror}"
            raise InputError(problem, file=str(self.path)) from None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.rows:  # a call that did nothing leaves nothing
            self.path.unlink(missing_ok=True)
        self._stream.close()
