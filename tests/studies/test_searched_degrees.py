"""The fastest configuration of each tensor parallelism in each number of stages."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.output import print_view
from hypar_opt.errors import HyparError, InfeasibleError, NoAnswerError
from hypar_opt.integers import divisors
from hypar_opt.models.gpt import gpt
from hypar_opt.search.degrees import Evaluated, Searched
from hypar_opt.studies import searched_degrees
from hypar_opt.studies.configurations import Configurations
from hypar_opt.units import format_bytes, format_si
from tests.cli.shell import Shell
from tests.slow import slow_after

NETWORK = gpt(layers=4, hidden=2048, heads=4, tokens=256, vocabulary=4096)
NAMED = "gpt:layers=4,hidden=2048,heads=4,tokens=256,vocabulary=4096"
ARRAY = "rtx4090x4"
TIGHT: dict[str, Any] = {"margin": 22_880_000_000}
"""Of five degrees two fit."""


@cache
def by_degrees(**asked: Any) -> Configurations:
    return ho.configure(NETWORK, ARRAY, **{"batch": 8, "by_degrees": True, **asked})


@pytest.mark.parametrize("limit", slow_after(1, [TIGHT, {}]))
def test_each_is_the_fastest_of_its_degrees(limit: dict[str, Any]) -> None:
    """As `configure` finds it where these are pinned, or what that says needs least."""
    cells = by_degrees(**limit).cells
    for pp in divisors(4):
        for tp in divisors(4):
            asked: dict[str, Any] = {"batch": 8, "bound": "none", "best": 1, "stages": pp, **limit}
            entry = cells.get((tp, pp))
            if isinstance(entry, Evaluated):
                assert ho.configure(NETWORK, ARRAY, fix=f"tp={tp}", **asked).best == entry
                continue
            with pytest.raises(HyparError) as refused:
                ho.configure(NETWORK, ARRAY, fix=f"tp={tp}", **asked)
            assert isinstance(refused.value, InfeasibleError) == (entry is not None)
            least = getattr(refused.value, "least", None)
            assert (least and least.bytes) == (entry and entry.memory)


def test_rows_are_those_that_fit_by_time_and_then_the_others() -> None:
    configured = by_degrees(**TIGHT)
    room = configured.capacity - configured.margin
    rows = configured.rows()
    fit = [row for row in rows if row["seconds"] is not None]
    assert rows[: len(fit)] == fit == sorted(fit, key=lambda row: row["seconds"])
    assert all((row["memory"] <= room) == (row in fit) for row in rows)
    assert 0 < len(fit) < len(rows) == len(configured.cells)
    assert len({tuple(row) for row in rows}) == 1
    for number, row in enumerate(fit):
        plan = configured.plan(number)
        assert row["seconds"] == pytest.approx(ho.simulate(plan).seconds, rel=1e-9)
        assert row["memory"] == ho.memory(plan).total


def test_pins_and_stages_leave_fewer_degrees() -> None:
    every = by_degrees().cells
    row = by_degrees(stages=2).cells
    assert row == {cell: entry for cell, entry in every.items() if cell[1] == 2}
    assert by_degrees(fix="tp=2").cells.keys() == {cell for cell in every if cell[0] == 2}
    assert by_degrees(fix="tp=2,pp=2").cells.keys() == {(2, 2)}
    for one in by_degrees(fix="zero=weights,micro_batches=2"):
        assert (one.configuration.zero, one.configuration.micro_batches) == ("weights", 2)


def test_one_that_fits_nowhere_is_refused_with_what_needs_least() -> None:
    with pytest.raises(InfeasibleError, match="the 3 that need least take") as refused:
        by_degrees(margin=23_000_000_000)
    fewest = min(entry.memory for entry in by_degrees(**TIGHT).cells.values())
    assert refused.value.least is not None
    assert refused.value.least.bytes <= fewest


def test_degrees_that_a_time_limit_leaves_are_not_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    search = searched_degrees.fastest_configurations

    def late(network: Any, problem: Any, counts: Any, **limits: Any) -> Searched:
        if counts == [2]:
            return Searched((), 0, 0, 0, (), complete=False)
        return search(network, problem, counts, **limits)

    monkeypatch.setattr(searched_degrees, "fastest_configurations", late)
    configured = ho.configure(NETWORK, ARRAY, batch=8, by_degrees=True)
    assert configured.unknown == ((1, 2), (2, 2))
    assert not configured.complete
    print_view(configured)
    printed = capsys.readouterr().out
    assert "not known" in printed
    assert "others may be faster" in printed
    assert "not known" in text_of(configured)
    with pytest.raises(NoAnswerError, match="time limit"):
        ho.configure(NETWORK, ARRAY, batch=8, by_degrees=True, stages=2)


def text_of(configured: Configurations) -> str:
    rows = configured.figure().to_dict()["datasets"]["cells"]
    return "\n".join(row["text"] for row in rows)


def test_the_map_has_the_time_and_memory_of_each() -> None:
    configured = by_degrees(**TIGHT)
    drawn = text_of(configured)
    for entry in configured.cells.values():
        seconds = format_si(entry.seconds, "s") if isinstance(entry, Evaluated) else ""
        assert f"{seconds}\n{format_bytes(entry.memory)}".strip() in drawn
    described = configured.figure().to_dict()
    (star,) = described["datasets"]["marks"]
    first = configured.best.configuration
    assert (star["x"], star["y"]) == (f"{first.tp}", f"{first.pp}")
    assert star["mark"].startswith(format_si(configured.best.seconds, "s"))
    assert all(len(line) < 70 for line in star["mark"].split("\n"))  # no wider than the widest map
    assert "grey: none fits in 2.52 GB; the least memory that one takes" in str(described)


def test_the_shell_prints_and_writes_it(shell: Shell, tmp_path: Path) -> None:
    table, picture = tmp_path / "cells.csv", tmp_path / "map.svg"
    typed = ("configure", NAMED, "--array", ARRAY, "--batch", "8", "--by-degrees")
    tight = (*typed, "--margin", str(TIGHT["margin"]))
    printed = shell.output(*tight, "--csv", table, "--picture", picture).splitlines()
    configured = by_degrees(**TIGHT)
    head = next(number for number, line in enumerate(printed) if line.startswith("pp"))
    assert printed[head].split() == ["pp", "tp", "1", "tp", "2", "tp", "4"]
    fastest = format_si(configured.best.seconds, "s").split()
    least = format_bytes(configured.cells[1, 2].memory).split()
    assert printed[head + 2].split() == ["2", *least, "*", *fastest, "-"]
    document = shell.document(*tight)
    assert document["rows"] == configured.rows()
    assert (document["by_degrees"], document["unknown"]) == (True, [])
    with table.open() as file:
        assert [row["memory"] for row in csv.DictReader(file)] == [
            str(row["memory"]) for row in configured.rows()
        ]
    assert "tensor parallelism" in picture.read_text()
    said = shell.refused(*typed, "--best", "3")
    assert said == "--best does not go with --by-degrees, which lists one of each"
