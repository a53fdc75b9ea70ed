"""Packages of others that fail: one line that names them, and all others still work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shell import written
from tests.commands import forked

MODULE = """
from hypar_opt.costs.base import CostModel
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.hardware.topologies.base import Topology
from hypar_opt.solvers.base import Solver, SolveResult, Status
from hypar_opt.workload.operators.base import Operator

anything = 3
class NoSolver: summary = "no solver at all"
class Half(Solver): pass
class HalfCost(CostModel): pass
class HalfTopology(Topology): pass
class HalfOperator(Operator): pass
class Raising(Solver):
    summary = "raises"
    def solve(self, table, options):
        raise KeyError("two\\nlines \\x1b[31m")
class RaisingCost(CommunicationCost):
    def node(self, *args):
        raise KeyError("two\\nlines \\x1b[31m")
class Zeros(Solver):
    summary = "all zeros"
    searches = False
    def solve(self, table, options):
        return SolveResult((0,) * table.layers, None, Status.FEASIBLE)
class Liar(Zeros):
    def solve(self, table, options):
        return SolveResult((0,) * table.layers, 0, Status.OPTIMAL, 0)
"""

KINDS = {
    "solvers": ("solver", "hypar_opt.solvers.base.Solver", "Half", "solve, summary"),
    "costs": ("cost", "hypar_opt.costs.base.CostModel", "HalfCost", "charge, unit"),
    "topologies": (
        "topology",
        "hypar_opt.hardware.topologies.base.Topology",
        "HalfTopology",
        "graph, levels, summary",
    ),
    "operators": (
        "kind of layer",
        "hypar_opt.workload.operators.base.Operator",
        "HalfOperator",
        "choices, contraction, maps, sizes, trick",
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which packages are installed that fail in every way, and two solvers."""
    lines = []
    for group, (_, _, half, _) in KINDS.items():
        lines += [
            f"[hypar_opt.{group}]",
            *("leaves = leaves:X", "shouts = shouts:X", "number = theirs:anything"),
            *("none = theirs:NoSolver", f"half = theirs:{half}"),
        ]
        if group == "solvers":
            lines += ["raising = theirs:Raising", "zeros = theirs:Zeros", "liar = theirs:Liar"]
            lines += ["dp = theirs:Liar"]
        if group == "costs":
            lines += ["raising = theirs:RaisingCost"]
    modules = {
        "theirs": MODULE,
        "leaves": "import sys\nsys.exit(0)\n",
        "shouts": "raise ValueError('\\x1b[31mred\\nof two lines')\n",
    }
    written(tmp_path, modules, lines)
    return tmp_path


@pytest.mark.parametrize("group", KINDS)
def test_what_cannot_be_loaded_is_listed_with_the_reason(group: str, folder: Path) -> None:
    kind, base, half, lacks = KINDS[group]
    listed = forked(["list", group, "--json"], folder)
    assert listed.status == 0, listed.errors
    document = json.loads(listed.output)
    rows = {row["name"]: row["summary"] for row in document["rows"]}
    assert rows["leaves"] == f"{kind} 'leaves' cannot be loaded from 'leaves:X': SystemExit: 0"
    assert rows["shouts"] == (
        f"{kind} 'shouts' cannot be loaded from 'shouts:X':"
        r" ValueError: \x1b[31mred\nof two lines"
    )
    derives = f"should be a class that derives from {base}"
    assert rows["number"] == f"{kind} 'number' cannot be loaded from 'theirs:anything': {derives}"
    assert rows["none"] == f"{kind} 'none' cannot be loaded from 'theirs:NoSolver': {derives}"
    assert rows["half"].startswith(
        f"{kind} 'half' cannot be loaded from 'theirs:{half}': should define"
    )
    assert all(name in rows["half"] for name in lacks.split(", "))
    # Ours are there, with what they say of themselves.
    assert sum("cannot be loaded" in summary for summary in rows.values()) == 5
    table = forked(["list", group], folder)
    assert table.status == 0
    assert "\x1b" not in table.output


@pytest.mark.parametrize("name", ["leaves", "shouts", "number", "none", "half"])
def test_a_solver_or_cost_that_cannot_be_loaded_is_one_line(name: str, folder: Path) -> None:
    for option in ("solver", "cost"):
        done = forked(["solve", "sfc", f"--{option}", name], folder)
        assert (done.status, done.output) == (2, "")
        (line,) = done.errors.splitlines()
        assert line.startswith(f"hypar-opt: {option} {name!r} cannot be loaded from ")


@pytest.mark.parametrize(
    ("option", "said"),
    [("solver", "solver 'raising' on SFC: failed"), ("cost", "cost 'raising' failed")],
)
def test_what_fails_at_work_is_named(option: str, said: str, folder: Path) -> None:
    done = forked(["solve", "sfc", f"--{option}", "raising"], folder)
    assert (done.status, done.output) == (2, "")
    assert done.errors == rf"hypar-opt: {said}: KeyError: 'two\nlines \x1b[31m'" + "\n"


def test_a_solver_of_theirs_takes_part_and_is_checked(folder: Path) -> None:
    zeros = forked(["solve", "sfc", "--solver", "zeros", "--json"], folder)
    assert json.loads(zeros.output)["parallelism"] == [["data"] * 4] * 4
    liar = forked(["solve", "sfc", "--solver", "liar"], folder)
    assert liar.status == 1
    assert "solver 'liar' on SFC: claims 0, its assignment costs" in liar.errors


def test_ours_work_beside_theirs(folder: Path) -> None:
    own = forked(["solve", "sfc", "--solver", "dp", "--json"], folder)
    assert json.loads(own.output)["solver"]["status"] == "optimal"
