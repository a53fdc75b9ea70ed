"""A short run of the fuzzers; ``make fuzz N=100000`` is a long one."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.fuzz.calls import ARRAY, CALLS, MODEL, TOPOLOGIES, Call, call, place, texts, valid
from tests.fuzz.mutations import to_toml
from tests.fuzz.run import broken
from tests.slow import slow_after


@pytest.mark.parametrize("first", slow_after(2, range(0, 120, 20)))
def test_whatever_the_input_a_call_ends_well(
    first: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    for seed in range(first, first + 20):
        assert broken(seed, tmp_path / "here", seconds=120) == "", f"seed {seed}"


def test_a_seed_gives_the_same_call_each_time() -> None:
    calls = [call(seed) for seed in range(50)]
    assert [call(seed) for seed in range(50)] == calls
    assert len({made.args for made in calls}) > 10
    assert {name for made in calls for name in made.files} == {MODEL, *valid()}


def test_what_is_made_wrong_is_right_at_first(shell: Shell, tmp_path: Path) -> None:
    """Of kinds whose files fit one another: else only what is read first would be tried."""
    files = {**texts(), "array.toml": to_toml(ARRAY | {"topology": TOPOLOGIES[0]}).encode()}
    tried = set()
    for args in dict.fromkeys(CALLS):
        if {"vary.toml", "measured.toml", "machines.toml", "--set"} & {*args}:
            place(Call(args, files), tmp_path / "here")
            with chdir(tmp_path / "here"):
                status, _, told = shell(*args)
            assert status == 0, (args, told)
            tried.add(args[0])
    assert tried == {"calibrate", "compare", "memory", "simulate", "solve", "sweep", "validate"}
