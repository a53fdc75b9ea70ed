"""What the calls of ``calls.txt`` print and write, as text that a folder keeps, a file per call."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.cli.shell import command
from tests.commands import forked

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"
MODELS = HERE.parent / "data" / "onnx"

TIMED = {"statistics", "versions", "values_difference", "gradients_difference"}
"""Keys of documents whose values differ from run to run, or with a library's version."""

WIDTH = 100
MOST_LETTERS = 120
"""Of a file's name: some file systems take no more than 143."""
LONGEST = 1000
"""Lines of a file that are kept, and lines of each block of the others, which have one digest."""


def groups() -> list[list[str]]:
    """Return the calls, in lists of those that share a folder."""
    text = re.sub(r"^#.*\n", "", (HERE / "calls.txt").read_text(), flags=re.M)
    return [group.splitlines() for group in re.split(r"\n{2,}", text.strip())]


def file_name(call: str) -> str:
    """Return the name of the file of ``recorded`` that keeps what a call writes."""
    return re.sub(r"[^\w.,=@-]+", "_", call)[:MOST_LETTERS] + ".txt"


def record(calls: list[str], folder: Path) -> dict[str, str]:
    """Make calls, one after another, and return what each has printed and written.

    Returns
    -------
    dict
        For each call its exit status, its standard output, where that is a document, and each
        file that it has written.
    """
    for file in (*HERE.glob("*.toml"), *HERE.glob("*.csv"), *MODELS.glob("*.onnx")):
        shutil.copy(file, folder)
    seen = _files(folder)
    made: dict[str, str] = {}
    for call in calls:
        args = shlex.split(call)
        # JAX has the devices of its first use in a process.
        done = (forked if "--backend" in args else command)(args, folder)
        parts = [f"$ hypar-opt {call}\nexit status {done.status}\n"]
        if {"--json", "--toml", "--schema"} & set(call.split()):
            parts.append(_part("standard output", done.output.encode(), json_like=True))
        now = _files(folder)
        parts += [
            _part(name, now[name], json_like=name.endswith(".json"))
            for name in sorted(now)
            if now[name] != seen.get(name)
        ]
        made[call], seen = "\n".join(parts), now
    return made


def _files(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _part(name: str, data: bytes, *, json_like: bool) -> str:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"--- {name}: {len(data)} bytes, {_digest(data)}\n"
    if json_like:
        text = _document(text)
    return f"--- {name}\n" + "".join(f"{line}\n" for line in _kept(text.split("\n")))


def _document(text: str) -> str:
    try:
        return _laid_out(_lasting(json.loads(text)))
    except ValueError:  # standard output is not always a document
        return text


def _laid_out(value: Any, indent: str = "") -> str:
    """Return JSON in which each list and table is on one line, or has a line per item."""
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, list | dict) or len(indent) + len(flat) < WIDTH:
        return flat
    deeper = indent + " "
    if isinstance(value, list):
        items = [_laid_out(item, deeper) for item in value]
    else:
        items = [f"{json.dumps(key)}: {_laid_out(value[key], deeper)}" for key in value]
    first, last = "[]" if isinstance(value, list) else "{}"
    return first + "".join(f"\n{deeper}{item}," for item in items)[:-1] + f"\n{indent}{last}"


def _kept(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a file; of a long one its first, and digests of blocks of the others."""
    yield from lines[:LONGEST]
    for start in range(LONGEST, len(lines), LONGEST):
        block = lines[start : start + LONGEST]
        digest = _digest("\n".join(block).encode())
        yield f"(lines {start + 1} to {start + len(block)}: {digest})"


def _digest(data: bytes) -> str:
    return "sha256 " + hashlib.sha256(data).hexdigest()[:16]


def _lasting(document: Any, digits: int = 12) -> Any:
    """Return a document without what takes or depends on time, and its numbers to some digits."""
    if isinstance(document, float):
        return float(f"{document:.{digits}g}")
    if isinstance(document, list):
        return [_lasting(item, digits) for item in document]
    if not isinstance(document, dict):
        return document
    solver = "parameters" in document or "search" in document
    if document.get("backend") == "jax":  # in float32, of which XLA makes what the processor has
        digits = 5
    return {
        key: _lasting(value, digits)
        for key, value in document.items()
        if not (key in TIMED or (solver and key == "seconds"))
        and not (key == "plan" and str(value).startswith("sha256:"))
    }
