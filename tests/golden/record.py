"""What the calls of ``calls.txt`` print and write, as hashes that a file keeps."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

from tests.commands import command

HERE = Path(__file__).parent
RECORDED = HERE / "recorded.json"
MODELS = HERE.parent / "data" / "onnx"

TIMED = {"statistics", "versions", "values_difference", "gradients_difference"}
"""Keys of documents whose values differ from run to run, or with a library's version."""


def groups() -> list[list[str]]:
    """Return the calls, in lists of those that share a folder."""
    text = re.sub(r"^#.*\n", "", (HERE / "calls.txt").read_text(), flags=re.M)
    return [group.splitlines() for group in re.split(r"\n{2,}", text.strip())]


def record(calls: list[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Make calls, one after another, and return what each has printed and written.

    Returns
    -------
    dict
        For each call its exit status, and a hash of its standard output and of each file that it
        has written.
    """
    for file in (*HERE.glob("*.toml"), *HERE.glob("*.csv"), *MODELS.glob("*.onnx")):
        shutil.copy(file, folder)
    seen = _files(folder)
    made: dict[str, dict[str, Any]] = {}
    for call in calls:
        done = command(shlex.split(call), folder)
        result: dict[str, Any] = {"status": done.status}
        if {"--json", "--toml", "--schema"} & set(call.split()):
            result["printed"] = _hash("printed.json", done.output.encode())
        now = _files(folder)
        result |= {name: now[name] for name in sorted(now) if now[name] != seen.get(name)}
        made[call], seen = result, now
    return made


def _files(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): _hash(path.name, path.read_bytes()) for path in files}


def _hash(name: str, data: bytes) -> str:
    if name.endswith(".json"):
        with contextlib.suppress(ValueError):  # standard output is not always a document
            data = json.dumps(_lasting(json.loads(data))).encode()
    return hashlib.sha256(data).hexdigest()[:16]


def _lasting(document: Any) -> Any:
    """Return a document without what takes or depends on time; numbers to twelve digits."""
    if isinstance(document, float):
        return float(f"{document:.12g}")
    if isinstance(document, list):
        return [_lasting(item) for item in document]
    if not isinstance(document, dict):
        return document
    solver = "parameters" in document or "search" in document
    return {
        key: _lasting(value)
        for key, value in document.items()
        if not (key in TIMED or (solver and key == "seconds"))
        and not (key == "plan" and str(value).startswith("sha256:"))
    }
