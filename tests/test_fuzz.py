"""A short run of the fuzzers; ``make fuzz N=100000`` is a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.calls import MODEL, call, valid
from tests.fuzz.run import broken
from tests.slow import slow_after


@pytest.mark.parametrize("first", slow_after(2, range(0, 120, 40)))
def test_whatever_the_input_a_call_ends_well(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for seed in range(first, first + 40):
        assert broken(seed, tmp_path / "here", seconds=120) == "", f"seed {seed}"


def test_a_seed_gives_the_same_call_each_time() -> None:
    calls = [call(seed) for seed in range(50)]
    assert [call(seed) for seed in range(50)] == calls
    assert len({made.args for made in calls}) > 10
    assert {name for made in calls for name in made.files} == {MODEL, *valid()}
