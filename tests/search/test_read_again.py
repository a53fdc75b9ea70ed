"""What a search writes, every other command reads: random problems of any kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import hypar_opt as ho
from hypar_opt.execution.formats import FORMATS
from tests.cli.shell import Shell
from tests.slow import slow_after
from tests.strategies.any_problem import any_problem

READS = ("show", "verify", "simulate", "memory", "run", *FORMATS)
"""Commands, and formats of export."""

MAY_REFUSE = {"run", *FORMATS}
"""What cannot be run, or said in a format, is refused by name."""


def calls(plan: ho.Plan, file: Path) -> Iterator[list[str]]:
    for name in READS:
        if name in FORMATS:
            yield ["export", str(file), "--to", name]
        elif plan.array is not None or name not in ("simulate", "memory"):
            yield [name, str(file), *["--scale-down"] * (name == "run")]


# Problems 13, 16 and 26 take a search 7 to 17 seconds each.
@pytest.mark.parametrize("first", slow_after(1, [7, 32, *range(12, 32, 5), *range(37, 502, 5), 2]))
def test_a_plan_that_is_written_is_read(first: int, tmp_path: Path, shell: Shell) -> None:
    """Also where memory binds, groups are unequal, training is stated in part, or tokens split."""
    file = tmp_path / "plan.json"
    for seed in range(first, first + 5):
        network, asked = any_problem(seed)
        try:
            plan = ho.solve(network, **asked)
        except ho.HyparError:
            continue
        plan.save(file)
        for call in calls(plan, file):
            status, _, said = shell(*call)
            refuses = {call[0], call[-1]} & MAY_REFUSE and status == 2 and str(file) not in said
            assert status == 0 or refuses, (seed, call, said)
            assert said.count("\n") == 1 or not refuses, (seed, call, said)
