"""Documents, models, modules and exit statuses of 150 calls are what they were."""

from __future__ import annotations

from difflib import unified_diff
from itertools import islice
from pathlib import Path

import pytest

from tests.golden.record import RECORDED, file_name, groups, record
from tests.slow import slow_after

LONG = 5
"""The last groups, of one call each that takes seconds."""
SHOWN = 100
"""Lines of the difference, of one call."""


@pytest.mark.parametrize("calls", slow_after(-LONG, groups()), ids=lambda calls: calls[0])
def test_what_calls_write_has_not_changed(calls: list[str], tmp_path: Path) -> None:
    changed = []
    for call, made in record(calls, tmp_path).items():
        file = RECORDED / file_name(call)
        recorded = file.read_bytes().decode()
        if made != recorded:
            name = f"tests/golden/recorded/{file.name}"
            lines = unified_diff(recorded.split("\n"), made.split("\n"), name, "now", lineterm="")
            changed.append("\n".join(islice(lines, SHOWN)))
    if changed:
        pytest.fail("\n".join([*changed, "If this is wanted: make golden"]), pytrace=False)


def test_what_is_recorded_is_called() -> None:
    names = [file_name(call) for calls in groups() for call in calls]
    assert sorted(file.name for file in RECORDED.iterdir()) == sorted(names)
