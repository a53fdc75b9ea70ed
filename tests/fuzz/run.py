"""What must hold of any call whatever its input."""

from __future__ import annotations

import io
import json
import signal
import traceback
import warnings
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from types import FrameType
from xml.etree import ElementTree as ET

from hypar_opt.cli.app import run
from tests.fuzz.calls import Call, call, place

STATUSES = {0, 1, 2, 3, 4}


MAX_MEMORY = 2**30
"""Bytes that a call may add to what the process has."""


class TooLongError(BaseException):
    """A call was not done in time; no handler of errors is to catch it."""


def broken(seed: int, folder: Path, *, seconds: float) -> str:
    """Run a seed's call in a folder of its own; return what did not hold, or nothing.

    Parameters
    ----------
    seconds
        Of the processor, that the call may take.
    """
    made = call(seed)
    place(made, folder)
    out, err = _stream(), _stream()
    before = _resident()
    try:
        with chdir(folder), redirect_stdout(out), redirect_stderr(err), _within(seconds):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                status = run([*made.args])
            out.flush()
    except TooLongError:
        return f"took longer than {seconds:g} s of the processor"
    except BaseException:
        return traceback.format_exc()
    said, told = _text(out), _text(err)
    return (
        _wrong_memory(before, told)
        or _wrong_status(status, told)
        or _wrong_text(said, told)
        or _wrong_json(made, status, said)
        or _wrong_files(made, folder, status)
    )


def _resident() -> int | None:
    """Begin to measure the most memory of this process, in bytes, and return what it has now."""
    with suppress(OSError):  # what Linux alone has
        Path("/proc/self/clear_refs").write_text("5")
        return _of_status("VmRSS")
    return None


def _of_status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) * 1024


def _wrong_memory(before: int | None, told: str) -> str:
    if "out of memory" in told:
        return told
    taken = 0 if before is None else _of_status("VmHWM") - before
    return f"took {taken / 2**20:,.0f} MiB" if taken > MAX_MEMORY else ""


def _wrong_status(status: int, told: str) -> str:
    if status not in STATUSES:
        return f"status {status}"
    return "" if status == 0 or told else f"status {status} without a word"


def _wrong_text(said: str, told: str) -> str:
    for line in told.splitlines():
        if not line.startswith("hypar-opt: ") or not line.isprintable():
            return f"standard error has {line[:300]!a}"
    raw = next((letter for letter in said if letter != "\n" and not _shows(letter)), None)
    return "" if raw is None else f"standard output has a raw {raw!a}"


def _shows(letter: str) -> bool:
    return letter.isprintable() or letter == "\N{NO-BREAK SPACE}"


def _wrong_json(made: Call, status: int, said: str) -> str:
    if status == 0 and "--json" in made.args:
        try:
            json.loads(said, parse_constant=_no_number)
        except ValueError as error:
            return f"no JSON: {error}"
    return ""


def _no_number(text: str) -> None:
    raise ValueError(text)


def _wrong_files(made: Call, folder: Path, status: int) -> str:
    for name, data in made.files.items():
        if (folder / name).read_bytes() != data and name in made.reads():
            return f"changed {name}"
    outputs = {path.name for path in folder.iterdir()} - made.files.keys() - {"sub"}
    strange = {name for name in outputs if name not in made.args and name != "out.csv.journal"}
    if strange:
        return f"left {sorted(strange)}"
    if "out.svg" in outputs:
        try:
            ET.parse(folder / "out.svg")
        except ET.ParseError as error:
            return f"no XML: {error}"
    # A certificate may be refused after the plan is written, and a sweep's picture after its table;
    # a journal keeps what is done.
    if status == 2 and outputs - {"out.csv", "out.csv.journal", "out.json", "out.svg"}:
        return f"refused, and wrote {sorted(outputs)}"
    return ""


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace", newline="\n")


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
