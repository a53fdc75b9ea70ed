"""Solvers and costs of other packages, installed by entry point, through whole commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from tests.cli.shell import written
from tests.commands import command
from tests.slow import slow_after
from tests.test_docs import ROOT, blocks

SOLVERS = """
from random import Random
import numpy as np
from hypar_opt.solvers.base import Solver, SolveResult, Status

class Guess(Solver):
    summary = "any assignment"
    def solve(self, table, options):
        allowed = np.ones(table.node.shape, bool) if table.allowed is None else table.allowed
        rng = Random(table.layers)
        found = tuple(rng.choice(np.flatnonzero(row).tolist()) for row in allowed)
        return SolveResult(found, table.price(found), Status.FEASIBLE)
class Nothing(Guess):
    def solve(self, table, options):
        return None
class Five(Guess):
    def solve(self, table, options):
        return 5
class Leaves(Guess):
    def solve(self, table, options):
        raise SystemExit(0)
class Prints(Guess):
    def solve(self, table, options):
        print("hello")
        return super().solve(table, options)
class Never(Guess):
    def solve(self, table, options):
        return SolveResult(None, None, Status.INFEASIBLE)
"""

COSTS = """
from dataclasses import dataclass
from hypar_opt.costs.base import CostModel
from hypar_opt.costs.communication import CommunicationCost

@dataclass(frozen=True)
class Plain(CostModel):
    bytes: CommunicationCost
    unit = "plain bytes"
    @classmethod
    def from_problem(cls, problem, workload):
        return cls(CommunicationCost.from_problem(problem, workload))
    def node(self, *asked):
        return [2 * row for row in self.bytes.node(*asked)]
    def edge(self, *asked):
        return [2 * row for row in self.bytes.edge(*asked)]
class Alike(Plain):
    def symmetries(self, workload, levels):
        return self.bytes.symmetries(workload, levels)
class OneBlock(Plain):
    def node(self, workload, nodes, states):
        return [row.sum(axis=0) for row in states]
class FirstOfBlock(Plain):
    def node(self, workload, nodes, states):
        charges = self.bytes.node(workload, nodes, states)
        return [row * (1 + len(states)) for row in charges]
class Below(Plain):
    def edge(self, workload, boundaries, sources, targets):
        rows = list(self.bytes.edge(workload, boundaries, sources, targets))
        rows[0] = rows[0] + targets[-1][-1]
        return rows
class Stated(Below):
    def by_levels(self, workload):
        return None
"""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the solver of CONTRIBUTING.md, and others, installed by their entry points."""
    folder = tmp_path_factory.mktemp("theirs")
    named = {name: text for name, _, text in blocks(ROOT / "CONTRIBUTING.md") if name}
    modules = {"greedy": named["greedy.py"], "solvers_of": SOLVERS, "costs_of": COSTS}
    solvers = ("Guess", "Nothing", "Five", "Leaves", "Prints", "Never")
    costs = ("Plain", "Alike", "OneBlock", "FirstOfBlock", "Below", "Stated")
    lines = ["[hypar_opt.solvers]", "greedy = greedy:Greedy"]
    lines += [f"{name.lower()} = solvers_of:{name}" for name in solvers]
    lines += ["[hypar_opt.costs]", *(f"{name.lower()} = costs_of:{name}" for name in costs)]
    written(folder, modules, lines)
    return folder


def plan_of(folder: Path, *args: str) -> ho.Plan:
    """Solve; read the plan that is written, which prices it again."""
    done = command(["solve", *args, "-o", "plan.json"], folder)
    assert done.status == 0, done.errors
    return ho.read_plan(folder / "plan.json")


# Chains, and graphs with shared tensors, replicas and shared weights; both searches.
PROBLEMS = [
    ("lenet-c", "--levels", "1"),
    ("gpt2", "--levels", "2", "--batch", "8"),
    ("lenet-c", "--levels", "3", "--search", "joint"),
    ("resnet-50", "--levels", "3", "--batch", "64"),
    ("alexnet", "--levels", "4", "--reading", "figures"),
    ("resnet-18", "--levels", "2", "--batch", "64", "--search", "joint"),
    ("t5-base", "--levels", "1", "--batch", "8"),
    ("densenet-121", "--levels", "2", "--batch", "8"),
]


@pytest.mark.parametrize("problem", slow_after(3, PROBLEMS), ids=" ".join)
@pytest.mark.parametrize("solver", ["greedy", "guess"])
def test_a_heuristic_solves_chains_and_graphs_in_all_searches(
    solver: str, problem: tuple[str, ...], theirs: Path
) -> None:
    """Whether it states what its assignment costs or not; no exact solver finds more."""
    found = plan_of(theirs, *problem, "--solver", solver)
    assert (found.solver.name, found.solver.status) == (solver, "feasible")
    joint = "joint" in problem
    best = plan_of(theirs, *problem)
    assert not joint or best.cost.total <= found.cost.total
    assert command(["verify", "plan.json"], theirs).status == 0


@pytest.mark.parametrize(
    ("solver", "said"),
    [
        ("nothing", "failed: its solve should return a SolveResult, got NoneType"),
        ("five", "failed: its solve should return a SolveResult, got int"),
        ("leaves", "failed: SystemExit: 0"),
    ],
)
def test_a_solver_without_a_result_is_one_line(solver: str, said: str, theirs: Path) -> None:
    done = command(["solve", "sfc", "--solver", solver, "--json", "-o", "none.json"], theirs)
    assert (done.status, done.output) == (2, "")
    assert done.errors == f"hypar-opt: solver {solver!r} on SFC: {said}\n"
    assert not (theirs / "none.json").exists()


def test_what_a_solver_prints_is_no_part_of_a_document(theirs: Path) -> None:
    done = command(["solve", "sfc", "--solver", "prints", "--json"], theirs)
    assert json.loads(done.output)["solver"]["name"] == "prints"
    assert "hello" in done.errors


def test_that_there_is_no_plan_is_not_believed(theirs: Path) -> None:
    for search in ("levelwise", "joint"):
        asked = ["solve", "sfc", "--solver", "never", "--search", search]
        done = command(asked, theirs)
        assert done.status == 1
        assert "claims that there is no assignment, but there is one" in done.errors


def test_a_search_that_is_large_for_lack_of_symmetries_says_so(theirs: Path) -> None:
    asked = ["solve", "gpt2", "--choices", "data,model,output", "--cost"]
    lacks = "the cost plain declares no symmetries, so that no levels are searched together"
    small = command([*asked, "plain", "--levels", "3"], theirs)
    large = command([*asked, "plain", "--levels", "6"], theirs)
    assert (small.status, large.status) == (0, 0)
    assert (lacks in small.errors, lacks in large.errors) == (False, True)
    alike = command([*asked, "alike", "--levels", "6"], theirs)
    assert (alike.status, "optimal over all levels" in alike.output) == (0, True)
    assert "symmetries" not in alike.errors


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        ("oneblock", "node should return the charges of each of 4 levels, got 1: states are block"),
        ("firstofblock", "node should charge states alike in one block of levels and in several"),
        ("below", "by_levels should be defined: what it charges boundaries at a level depends on"),
    ],
)
def test_a_cost_that_does_not_keep_to_the_contract_is_refused(
    cost: str, said: str, theirs: Path
) -> None:
    done = command(["solve", "lenet-c", "--cost", cost], theirs)
    assert (done.status, done.output) == (2, "")
    (line,) = done.errors.splitlines()
    assert line.startswith(f"hypar-opt: cost {cost!r}: {said}")
    assert "docs/adding-a-cost.md" in line


def test_charges_that_depend_on_levels_below_are_searched_together(theirs: Path) -> None:
    asked: list[Any] = ["lenet-c", "--levels", "2", "--cost", "stated"]
    done = command(["verify", *asked, "--search", "joint", "--solvers", "dp,brute"], theirs)
    assert done.status == 0, done.errors
