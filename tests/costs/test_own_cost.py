"""The cost of `docs/adding-a-cost.md`, installed as another package's and used like ours."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tests.commands import forked
from tests.test_docs import ROOT, install_page


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder on the path, with the page's module and its entry point."""
    install_page(ROOT / "docs" / "adding-a-cost.md", tmp_path)
    return tmp_path


def document(theirs: Path, *args: str) -> Any:
    status, output, errors = forked([*args, "--json"], theirs)
    assert status == 0, errors
    return json.loads(output)


# Of a pair of layers: what text and figures exchange in between, forward and backward.
PAIRS = {
    "text": {"dd": 0, "dm": 2, "mm": 1, "md": 1},
    "figures": {"dd": 0, "dm": 2, "mm": 0, "md": 0},
}


def counted(rows: tuple[str, ...], reading: str) -> int:
    """One message for each layer's sums, and those between layers."""
    between = sum(PAIRS[reading][a + b] for row in rows for a, b in itertools.pairwise(row))
    return sum(map(len, rows)) + between


def every_plan(levels: int) -> Iterator[tuple[str, ...]]:
    rows = ["".join(row) for row in itertools.product("dm", repeat=4)]
    return itertools.product(rows, repeat=levels)


@pytest.mark.parametrize("reading", PAIRS)
@pytest.mark.parametrize("pinned", ["", "fc1=model", "fc1@H2=model", "conv1=data"])
def test_the_least_number_of_messages_is_brute_forces(
    theirs: Path, reading: str, pinned: str
) -> None:
    levels = 2
    plan = document(
        theirs,
        *("solve", "lenet-c", "--cost", "messages", "--levels", str(levels)),
        *("--reading", reading),
        *(["--fix", pinned] if pinned else []),
    )
    keeps: Callable[[tuple[str, ...]], bool] = {
        "": lambda rows: True,
        "fc1=model": lambda rows: all(row[2] == "m" for row in rows),
        "fc1@H2=model": lambda rows: rows[1][2] == "m",
        "conv1=data": lambda rows: all(row[0] == "d" for row in rows),
    }[pinned]
    cost = plan["cost"]
    assert (cost["kind"], cost["unit"], cost["reading"]) == ("messages", "messages", reading)
    assert cost["communication"] is None
    found = tuple("".join(choice[0] for choice in row) for row in plan["parallelism"])
    assert cost["total"] == sum(cost["per_level"]) == counted(found, reading)
    assert cost["total"] == min(
        counted(rows, reading) for rows in every_plan(levels) if keeps(rows)
    )
    assert keeps(found)
    solver = plan["solver"]
    assert (solver["search"], solver["scope"], solver["status"]) == ("joint", "joint", "optimal")


def test_solvers_agree_on_it_and_a_certificate_proves_it(theirs: Path) -> None:
    asked = ("lenet-c", "--cost", "messages", "--fix", "fc1=model")
    rows = document(theirs, "verify", *asked, "--solvers", "dp,ilp,cpsat")["rows"]
    assert [(row["search"], row["solver"], row["verdict"]) for row in rows] == [
        (search, solver, "agrees")
        for search in ("levelwise", "joint")
        for solver in ("dp", "ilp", "cpsat")
    ]
    assert {row["objective"] for row in rows} == {28}
    document(theirs, "solve", *asked, "--output", "plan.json", "--certificate", "proof.json")
    (row,) = document(theirs, "verify", "plan.json", "--certificate", "proof.json")["rows"]
    assert (row["total"], row["optimal"]) == (28, "proved (joint with --fix fc1=model)"), row


def test_what_it_cannot_charge_is_refused_and_without_the_package_it_is_unknown(
    theirs: Path,
) -> None:
    asked = ["solve", "sfc", "--cost", "messages"]
    assert forked([*asked, "--level-weights", "8,4,2,1"], theirs) == (
        2,
        "",
        "hypar-opt: --level-weights goes with --cost bytes, not with messages\n",
    )
    elsewhere = theirs / "elsewhere"
    elsewhere.mkdir()
    status, _, errors = forked(asked, elsewhere)
    assert status == 2
    assert errors.startswith("hypar-opt: unknown cost 'messages'"), errors


def test_dollars_are_the_seconds_of_all_accelerators_at_their_price(theirs: Path) -> None:
    asked = ["solve", "vgg-a", "--array", "h100-8x8", "--bucket", "0", "--overlap", "none"]
    dollars, time = (document(theirs, *asked, "--cost", cost) for cost in ("dollars", "time"))
    assert (dollars["cost"]["unit"], time["cost"]["unit"]) == ("picodollars", "femtoseconds")
    exact = Fraction(time["cost"]["total"], 10**15) * 64 * Fraction("2.99") * 10**12 / 3600
    # Each charge is rounded by itself: of each layer and level at most four.
    assert abs(dollars["cost"]["total"] - exact) <= 11 * 6 * 4
    assert dollars["solver"]["status"] == "optimal"
    status, _, errors = forked([*asked[:2], "--array", "hmc-htree-4", "--cost", "dollars"], theirs)
    refused = "hypar-opt: dollars has prices of a100-4x8, h100-8x8, not of hmc-htree-4"
    assert (status, errors.strip()) == (2, refused)
