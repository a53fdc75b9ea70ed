"""Make all calls and record what they write: ``make golden``, after a change that was wanted."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.golden.record import RECORDED, groups, record

if __name__ == "__main__":
    made: dict[str, dict[str, Any]] = {}
    for calls in groups():
        with tempfile.TemporaryDirectory() as folder:
            made |= record(calls, Path(folder))
    RECORDED.write_text(json.dumps(made, indent=1) + "\n")
