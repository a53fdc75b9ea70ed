"""Documents, models, modules and exit statuses of 150 calls are what they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.record import RECORDED, groups, record
from tests.slow import slow_after

EXPECTED = json.loads(RECORDED.read_text())
LONG = 4
"""The last groups, of one call each that takes seconds."""


@pytest.mark.parametrize("calls", slow_after(-LONG, groups()), ids=lambda calls: calls[0])
def test_what_calls_write_has_not_changed(calls: list[str], tmp_path: Path) -> None:
    assert record(calls, tmp_path) == {call: EXPECTED[call] for call in calls}


def test_what_is_recorded_is_called() -> None:
    assert list(EXPECTED) == [call for calls in groups() for call in calls]
