"""The journal of finished rows, one per line, from which a killed sweep resumes."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Self

from hypar_opt.documents.document import Document, validate
from hypar_opt.documents.parsing import parse_json
from hypar_opt.errors import InputError
from hypar_opt.studies.sweep.case import SweepRow

SYNC_SECONDS = 1.0
"""Rows that end within this time are flushed to the disk together."""


class JournalLine(Document):
    """A case's key, its row and a checksum: an edited row is not a result."""

    key: str
    row: SweepRow
    checksum: str


def _checksum(key: object, row: object) -> str:
    """Return the checksum of a line, which ignores white space."""
    return hashlib.sha256(json.dumps([key, row]).encode()).hexdigest()[:16]


class Journal:
    """The rows of a file of JSON lines, locked by one process at a time.

    Only complete lines count: a last line without its newline, torn by a kill, is dropped.

    Raises
    ------
    InputError
        If another sweep has the file, or it is not a journal; its content stays.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, SweepRow] = {}
        self._synced = -SYNC_SECONDS
        self._waiting = False

    def __enter__(self) -> Self:
        file = str(self.path)
        if self.path.exists() and not self.path.is_file():
            raise InputError("should be a regular file: rows are read from it again", file=file)
        # As often as another sweep removes the file between our opening and locking it.
        while not self._lock(file):
            pass
        try:
            self._read(file)
        except BaseException:
            self._stream.close()
            raise
        return self

    def _lock(self, file: str) -> bool:
        """Open and lock the file; False if another sweep removed it in between."""
        try:
            # Unbuffered, and each line one write: a kill tears at most the last line.
            self._stream: IO[bytes] = self.path.open("ab", buffering=0)
        except OSError as error:
            raise self._unwritable(error) from None
        ours = False
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                ours = os.path.samestat(os.fstat(self._stream.fileno()), self.path.stat())
        except OSError:
            raise InputError("another sweep is using it", file=file) from None
        finally:
            if not ours:
                self._stream.close()
        return ours

    def _read(self, file: str) -> None:
        complete_bytes = 0
        *lines, torn = self.path.read_bytes().split(b"\n")
        for line_number, line in enumerate(lines, 1):
            where = f"{file}, line {line_number}"
            data = parse_json(line.decode(errors="replace"), file=where)
            entry = validate(JournalLine, data, file=where)
            if entry.checksum != _checksum(data["key"], data["row"]):
                problem = "does not match the row: the line was edited; remove it"
                raise InputError(problem, where="checksum", file=where)
            self.rows[entry.key] = entry.row
            complete_bytes += len(line) + 1
        # A file of one line without a newline may be any file: a journal begins with a key.
        if torn and not lines and not re.match(rb'\{"key": "[^\x00-\x1f]*$', torn):
            raise InputError("should be a journal with one row per line; remove it", file=file)
        self._stream.truncate(complete_bytes)

    def add(self, key: str, row: SweepRow) -> None:
        """Write a row, so that it outlives this process.

        Once a second, and when the journal is closed, wait until rows are on the disk, so that
        results of hours survive even a loss of power.

        Raises
        ------
        InputError
            If the disk is full, or the file cannot be written.
        """
        # A plan for bytes or energy has no place for it.
        unstated = {"speedup"} if row.speedup is None else set()
        entry: dict[str, Any] = {"key": key, "row": row.model_dump(exclude=unstated)}
        entry["checksum"] = _checksum(key, entry["row"])
        line = (json.dumps(entry, allow_nan=False) + "\n").encode()
        try:
            while line:  # a full disk takes part of a line and refuses the rest
                line = line[self._stream.write(line) :]
            self.rows[key] = row
            self._waiting = True
            if time.monotonic() - self._synced >= SYNC_SECONDS:
                self._sync()
        except OSError as error:
            raise self._unwritable(error) from None

    def _sync(self) -> None:
        os.fsync(self._stream.fileno())
        self._synced, self._waiting = time.monotonic(), False

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"cannot be written: {error.strerror}", file=str(self.path))

    def __exit__(self, *_: object) -> None:
        if not self.rows:  # a sweep that finished no case leaves no file
            self.path.unlink(missing_ok=True)
        try:
            if self._waiting:
                self._sync()
        except OSError as error:
            raise self._unwritable(error) from None
        finally:
            self._stream.close()
