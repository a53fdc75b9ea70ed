"""Make all calls and record what they write: ``make golden``, after a change that was wanted."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.golden.record import RECORDED, file_name, groups, record

if __name__ == "__main__":
    made: dict[str, str] = {}
    for calls in groups():
        with tempfile.TemporaryDirectory() as folder:
            made |= record(calls, Path(folder))
    shutil.rmtree(RECORDED, ignore_errors=True)
    RECORDED.mkdir()
    for call, text in made.items():
        (RECORDED / file_name(call)).write_bytes(text.encode())
