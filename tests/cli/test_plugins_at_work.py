"""Solvers and costs of other packages, installed by entry point, through whole commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from tests.cli.shell import written
from tests.commands import forked
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
import numpy as np
from hypar_opt.costs.base import CostModel

class Plain(CostModel):
    unit = "bytes"
    def charge(self, operation):
        return operation.quarters * self.problem.element_bytes // 4
class Halves(Plain):
    def charge(self, operation):
        return operation.quarters / 2
class Negative(Plain):
    def charge(self, operation):
        return -operation.quarters
class Three(Plain):
    def charge(self, operation):
        return np.ones(3, int)
class Branches(Plain):
    def charge(self, operation):
        return 1 if operation.quarters > 1 else 0
class Slow(Plain):
    def charge(self, operation):
        return super().charge(operation) * (10 if operation.level == 0 else 1)
class Alike(Slow):
    def level_key(self, level):
        return "alike"
class Keys(Plain):
    def level_key(self, level):
        return [level]
class Five(Plain):
    unit = 5
class Zero(Plain):
    resolution = 0
class Lost(Plain):
    @classmethod
    def from_problem(cls, problem, workload):
        cls(problem, workload)
"""


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the solver of CONTRIBUTING.md, and others, installed by their entry points."""
    folder = tmp_path_factory.mktemp("theirs")
    named = {name: text for name, _, text in blocks(ROOT / "CONTRIBUTING.md") if name}
    modules = {"greedy": named["greedy.py"], "solvers_of": SOLVERS, "costs_of": COSTS}
    solvers = ("Guess", "Nothing", "Five", "Leaves", "Prints", "Never")
    costs = ["Plain", "Halves", "Negative", "Three", "Branches", "Slow", "Alike"]
    costs += ["Keys", "Five", "Zero", "Lost"]
    lines = ["[hypar_opt.solvers]", "greedy = greedy:Greedy"]
    lines += [f"{name.lower()} = solvers_of:{name}" for name in solvers]
    lines += ["[hypar_opt.costs]", *(f"{name.lower()} = costs_of:{name}" for name in costs)]
    written(folder, modules, lines)
    return folder


def plan_of(folder: Path, *args: str) -> ho.Plan:
    """Solve; read the plan that is written, which prices it again."""
    done = forked(["solve", *args, "-o", "plan.json"], folder)
    assert done.status == 0, done.errors
    return ho.read_plan(folder / "plan.json")


def document(folder: Path, *args: str) -> Any:
    done = forked(["solve", *args, "--json"], folder)
    assert done.status == 0, done.errors
    return json.loads(done.output)


# Chains, and graphs with shared tensors, replicas and shared weights; both searches.
PROBLEMS = [
    "lenet-c --levels 1",
    "gpt2 --levels 2 --batch 8",
    "lenet-c --levels 3 --search joint",
    "resnet-50 --levels 3 --batch 64",
    "alexnet --levels 4 --reading figures",
    "resnet-18 --levels 2 --batch 64 --search joint",
    "t5-base --levels 1 --batch 8",
    "densenet-121 --levels 2 --batch 8",
]


@pytest.mark.parametrize("problem", slow_after(3, PROBLEMS))
@pytest.mark.parametrize("solver", ["greedy", "guess"])
def test_a_heuristic_solves_chains_and_graphs_in_all_searches(
    solver: str, problem: str, theirs: Path
) -> None:
    """Whether it states what its assignment costs or not; no exact solver finds more."""
    found = plan_of(theirs, *problem.split(), "--solver", solver)
    assert (found.solver.name, found.solver.status) == (solver, "feasible")
    joint = "joint" in problem
    best = plan_of(theirs, *problem.split())
    assert not joint or best.cost.total <= found.cost.total
    assert forked(["verify", "plan.json"], theirs).status == 0


@pytest.mark.parametrize(
    ("solver", "said"),
    [
        ("nothing", "failed: its solve should return a SolveResult, got NoneType"),
        ("five", "failed: its solve should return a SolveResult, got int"),
        ("leaves", "failed: SystemExit: 0"),
    ],
)
def test_a_solver_without_a_result_is_one_line(solver: str, said: str, theirs: Path) -> None:
    done = forked(["solve", "sfc", "--solver", solver, "--json", "-o", "none.json"], theirs)
    assert (done.status, done.output) == (2, "")
    assert done.errors == f"hypar-opt: solver {solver!r} on SFC: {said}\n"
    assert not (theirs / "none.json").exists()


def test_what_a_solver_prints_is_no_part_of_a_document(theirs: Path) -> None:
    done = forked(["solve", "sfc", "--solver", "prints", "--json"], theirs)
    assert json.loads(done.output)["solver"]["name"] == "prints"
    assert "hello" in done.errors


def test_that_there_is_no_plan_is_not_believed(theirs: Path) -> None:
    for search in ("levelwise", "joint"):
        asked = ["solve", "sfc", "--solver", "never", "--search", search]
        done = forked(asked, theirs)
        assert done.status == 1
        assert "claims that there is no assignment, but there is one" in done.errors


# Six levels of three choices, which no search solves state by state.
SIX = "gpt2 --levels 6 --choices data,model,output"


@pytest.mark.parametrize("problem", slow_after(3, [SIX, *PROBLEMS]))
def test_bytes_that_declare_nothing_have_the_plans_of_ours(problem: str, theirs: Path) -> None:
    search = () if "--search" in problem else ("--search", "joint")
    asked = *problem.split(), *search
    ours, own = (document(theirs, *asked, "--cost", cost) for cost in ("bytes", "plain"))
    assert own["cost"].pop("kind") == "plain"
    assert ours["cost"].pop("kind") == "bytes"
    for key in ("cost", "parallelism", "layouts"):
        assert own[key] == ours[key]
    for key in ("name", "scope", "status", "bound"):
        assert own["solver"][key] == ours["solver"][key]
    assert own["solver"]["status"] == "optimal"


def test_levels_that_a_cost_charges_otherwise_are_told_apart(theirs: Path) -> None:
    slow = document(theirs, *SIX.split(), "--cost", "slow")
    weighted = document(
        theirs, *SIX.split(), "--search", "joint", "--level-weights", "10,1,1,1,1,1"
    )
    assert slow["cost"]["total"] == weighted["cost"]["total"]
    assert slow["parallelism"] == weighted["parallelism"]
    assert slow["solver"]["status"] == "optimal"


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        ("halves", "charge should return integers that are not negative, got"),
        ("negative", "charge should return integers that are not negative, got -"),
        ("three", "charge should return an integer for each of (4, 10) amounts, got (3,); see"),
        ("alike", "level_key should tell H1 and H2 apart, as charge does; see"),
        ("keys", "level_key should return a key that can be hashed, got [0]; see"),
        ("five", "unit should be a string, got 5; see"),
        ("zero", "resolution should be an integer from 1 on, got 0; see"),
        ("lost", "from_problem should return a CostModel, got NoneType; see"),
    ],
)
def test_a_cost_that_does_not_keep_to_the_contract_is_refused(
    cost: str, said: str, theirs: Path
) -> None:
    done = forked(["solve", "lenet-c", "--cost", cost], theirs)
    assert (done.status, done.output) == (2, "")
    (line,) = done.errors.splitlines()
    assert line.startswith(f"hypar-opt: cost {cost!r}: {said}"), line
    assert line.endswith("docs/adding-a-cost.md")


def test_what_a_charge_raises_is_one_line(theirs: Path) -> None:
    done = forked(["solve", "lenet-c", "--cost", "branches"], theirs)
    assert (done.status, done.output) == (2, "")
    (line,) = done.errors.splitlines()
    assert line.startswith("hypar-opt: cost 'branches' failed: ValueError: The truth value of an")
