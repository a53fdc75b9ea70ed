"""Models of the plans up to a cutoff, where one of all plans would be too large."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.costs.pruned_table import PrunedTable
from hypar_opt.costs.state_charges import states_of
from hypar_opt.errors import RefusedError
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search.model_file import ModelSize
from hypar_opt.search.reductions import reduction_of
from hypar_opt.solvers.backends.cbc import cbc_program
from hypar_opt.solvers.cp_sat.solver import ConstraintProgram
from hypar_opt.solvers.ilp.solver import IntegerProgram
from hypar_opt.solvers.solution.solver import SolutionFile
from tests.search.test_model_file import HIGHS
from tests.slow import slow_after
from tests.strategies.graph_problems import priced_graph_plans, random_graph_problem
from tests.strategies.plans import Asked
from tests.strategies.staged_plans import nodes_of_a100s

SIX_OF_EIGHT: dict[str, Any] = {"array": nodes_of_a100s(6, 8)}


def limit_columns(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    for solver in (IntegerProgram, ConstraintProgram, SolutionFile):
        monkeypatch.setattr(solver, "max_columns", most)


def solved_by_cbc(model: Path) -> Path:
    cbc, solution = cbc_program(), model.with_suffix(".sol")
    assert cbc is not None
    subprocess.run([cbc, model, "solve", "solution", solution], check=True, capture_output=True)
    return solution


def solved_by_highs(model: Path) -> Path:
    subprocess.run([sys.executable, "-c", HIGHS, model], check=True)
    return Path(f"{model}.0")


def least_by_cp_sat(model: Path) -> float:
    from ortools.sat import cp_model_pb2
    from ortools.sat.python import cp_model

    text = model.read_text() if model.suffix == ".pbtxt" else None
    stated = cp_model.CpModel()
    stated.Proto().parse_text_format(
        text or str(cp_model_pb2.CpModelProto.FromString(model.read_bytes()))
    )
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(stated) == cp_model.OPTIMAL
    return solver.objective_value


def check_models(
    network: ho.Network | str, directory: Path, asked: Asked, resolution: int = 1
) -> tuple[ho.Plan, ModelSize]:
    """Compare the optima of the problem's models, in every format, with the joint search's."""
    best = ho.solve(network, solver="dp", search="joint", **asked)
    lp, mps, pb, text = (directory / f"model.{suffix}" for suffix in ("lp", "mps", "pb", "pbtxt"))
    sizes = [ho.write_model(network, model, **asked) for model in (lp, mps, pb, text)]
    for solution in (solved_by_highs(lp), solved_by_cbc(mps)):
        plan = ho.solve(network, solution=solution, **asked)
        assert (plan.cost.total, plan.solver.status) == (best.cost.total, "feasible")
    assert least_by_cp_sat(pb) == least_by_cp_sat(text) == best.cost.total * resolution
    assert sizes[0] == sizes[1]
    assert sizes[0].unit == best.cost.unit
    return best, sizes[0]


def pruned_problem(rng: Random) -> tuple[ho.Network, Asked, PrunedTable]:
    """Return a problem whose model would be too large, and the table that is left."""
    while True:
        network, asked = random_graph_problem(rng)
        instance = Instance.to_search(network, problem_of(network, **asked))
        try:
            table = reduction_of(instance).pruned(IntegerProgram())
        except ho.HyparError:  # without a plan, or too large all the same
            continue
        if table is not None:
            return network, asked, table


@pytest.mark.parametrize("seed", slow_after(4, range(150)))
def test_a_pruned_model_has_all_plans_up_to_its_cutoff_and_so_their_optimum(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    limit_columns(monkeypatch, rng.choice([40, 100, 300]))
    network, asked, table = pruned_problem(rng)
    every = priced_graph_plans(network, asked)
    best, size = check_models(network, tmp_path, asked, table.resolution)
    assert best.cost.total == every[0][0]
    assert size.cutoff == table.cutoff // table.resolution
    workload = Instance.to_search(network, problem_of(network, **asked)).workload
    states = states_of(workload, asked["levels"])
    left = [{states[number] for number in row} for row in table.states[workload.shared :]]
    for total, rows in every:
        if total * table.resolution <= table.cutoff:
            assert all(map(set.__contains__, left, zip(*rows, strict=True)))


def test_a_transformer_on_48_accelerators_has_a_model_in_each_format(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_columns(monkeypatch, 400)
    network = "gpt:layers=2,hidden=768,heads=12,tokens=1024,vocabulary=50257"
    best, size = check_models(network, tmp_path, SIX_OF_EIGHT)
    assert size.columns <= 401
    assert size.cutoff is not None
    assert size.cutoff > best.cost.total
    scope = f"all plans that cost at most {size.cutoff}, and some that cost more"
    assert (tmp_path / "model.lp").read_text().startswith(f"\\ Has {scope}\n")
    assert (tmp_path / "model.mps").read_text().startswith(f"* Has {scope}\n")
    assert f'name: "{scope}"' in (tmp_path / "model.pbtxt").read_text()


def test_a_solution_with_numbered_columns_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CBC's reader of LP files takes names of at most 100 characters, or numbers all columns."""
    limit_columns(monkeypatch, 500)
    ho.write_model("gpt2", tmp_path / "model.lp", **SIX_OF_EIGHT)
    with pytest.raises(RefusedError, match=r"names no column .* give it the \.mps file"):
        ho.solve("gpt2", solution=solved_by_cbc(tmp_path / "model.lp"), **SIX_OF_EIGHT)


@pytest.mark.slow
def test_as_many_plans_are_left_as_a_solver_takes(tmp_path: Path) -> None:
    model = tmp_path / "model.mps"
    best = ho.solve("gpt2", **SIX_OF_EIGHT)
    size = ho.write_model("gpt2", model, **SIX_OF_EIGHT)
    assert 1_001 < size.columns <= 500_001
    assert size.cutoff is not None
    assert size.cutoff > 1.02 * best.cost.total
    plan = ho.solve("gpt2", solution=solved_by_cbc(model), **SIX_OF_EIGHT)
    assert plan.cost.total == best.cost.total


def test_a_model_that_is_too_large_at_the_optimum_is_refused_with_both_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_columns(monkeypatch, 300)
    said = (
        r"builds at most 300 columns, this may need 11,075,940; the states of the cheapest plans"
        r" alone need \d+; take fewer levels"
    )
    with pytest.raises(RefusedError, match=said):
        ho.write_model("gpt2", tmp_path / "model.lp", **SIX_OF_EIGHT)
