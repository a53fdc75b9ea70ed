"""Models written for other solvers, and their solutions read back as plans."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError, InfeasibleError, InputError
from hypar_opt.models import find_network
from hypar_opt.solvers.backends.cbc import cbc_program
from hypar_opt.solvers.model_names import fields_of
from hypar_opt.solvers.solution.formats import parse_solution

RECORDED = Path(__file__).parent.parent / "data" / "solutions"
"""Solutions of Lenet-c at two levels by CBC 2.10, HiGHS 1.11 and GLPK 5.0, of models that we wrote;
that in Gurobi's format is written by its reference manual."""

NETWORK: dict[str, Any] = {
    "name": "odd names",
    "input": {"features": 64},
    "layer": [
        {"name": name, "kind": "fc", "units": units}
        for name, units in (("a,b [c] 50%", 32), ("größe/relu:0", 128), ("x(1)+-", 16))
    ],
}
ODD = ho.Network.model_validate(NETWORK)

PROBLEMS: list[tuple[str | ho.Network, dict[str, Any]]] = [
    ("alexnet", {"batch": 8}),
    (ODD, {"levels": 2}),
    (ODD, {"levels": 2, "constraints": {"fix": ("x*@H2=model",)}}),
    ("lenet-c", {"levels": 2, "choices": ("data", "model", "output")}),
    ("lenet-c", {"levels": 2, "constraints": {"memory": 13_000_000}}),
    ("lenet-c", {"cost": "time", "array": "hmc-htree-4"}),
    ("resnet-18", {"levels": 1}),
]

PINNED: dict[str, Any] = {"constraints": {"fix": ("conv1@H2=model",)}}
"""A pin at one level tells levels apart: the model has states."""

HIGHS = """
import sys, highspy
for model in sys.argv[1:]:
    highs = highspy.Highs()
    highs.silent()
    highs.setOptionValue("mip_rel_gap", 0.0)
    assert highs.readModel(model) == highspy.HighsStatus.kOk
    highs.run()
    for style in range(5):
        highs.writeSolution(f"{model}.{style}", style)
"""

GLPK = """
import sys
from swiglpk import *
glp_term_out(GLP_OFF)
for model in sys.argv[1:]:
    program = glp_create_prob()
    if model.endswith(".lp"):
        assert glp_read_lp(program, None, model) == 0
    else:
        assert glp_read_mps(program, GLP_MPS_FILE, None, model) == 0
    options = glp_iocp()
    glp_init_iocp(options)
    options.presolve = GLP_ON
    assert glp_intopt(program, options) == 0
    assert glp_print_mip(program, model + ".txt") == 0  # glpsol --output
    assert glp_write_mip(program, model + ".sol") == 0  # glpsol --write
"""


def written_models(directory: Path) -> dict[Path, tuple[str | ho.Network, dict[str, Any]]]:
    models = {}
    for number, (network, problem) in enumerate(PROBLEMS):
        for suffix in (".lp", ".mps"):
            model = directory / f"{number}{suffix}"
            ho.write_model(network, model, **problem)
            models[model] = network, problem
    return models


def test_what_highs_finds_is_the_joint_optimum_in_each_of_its_formats(tmp_path: Path) -> None:
    models = written_models(tmp_path)
    # HiGHS in a process of its own: its wheel and that of OR-Tools do not share one.
    subprocess.run([sys.executable, "-c", HIGHS, *models], check=True)
    for model, (network, problem) in models.items():
        best = ho.solve(network, search="joint", **problem)
        for style in range(5):
            plan = ho.solve(network, solution=f"{model}.{style}", **problem)
            assert plan.cost.total == best.cost.total
            assert (plan.solver.name, plan.solver.status) == ("solution", "feasible")


@pytest.mark.parametrize("suffix", [".lp", ".mps"])
def test_what_cbc_finds_is_the_joint_optimum(suffix: str, tmp_path: Path) -> None:
    model, solution = tmp_path / f"odd{suffix}", tmp_path / "odd.sol"
    ho.write_model(ODD, model)
    cbc = cbc_program()
    assert cbc is not None
    subprocess.run([cbc, model, "solve", "solution", solution], check=True, capture_output=True)
    assert ho.solve(ODD, solution=solution).parallelism == ho.solve(ODD, search="joint").parallelism


def test_what_glpk_finds_is_the_joint_optimum_in_both_of_its_formats(tmp_path: Path) -> None:
    models = written_models(tmp_path)
    subprocess.run([sys.executable, "-c", GLPK, *models], check=True)
    for model, (network, problem) in models.items():
        best = ho.solve(network, search="joint", **problem)
        for suffix in ("txt", "sol"):
            assert ho.solve(network, solution=f"{model}.{suffix}", **problem).cost == best.cost


def lenet(solution: Path) -> ho.Plan:
    return ho.solve("lenet-c", levels=2, solution=solution)


def formats() -> list[str]:
    return sorted(file.name for file in RECORDED.iterdir())


@pytest.mark.parametrize("name", formats())
def test_a_recorded_solution_of_each_format_is_the_plan(name: str) -> None:
    plan = lenet(RECORDED / name)
    best = ho.solve("lenet-c", levels=2, search="joint")
    assert plan.parallelism == best.parallelism
    assert plan.cost == best.cost


@pytest.mark.parametrize("name", formats())
def test_a_solution_cut_off_anywhere_is_refused(name: str, tmp_path: Path) -> None:
    """Or it still says all: the objective alone, after every choice, may be what is left out."""
    text = (RECORDED / name).read_text()
    best = lenet(RECORDED / name)
    lines, refusals = text.splitlines(keepends=True), list[str]()
    cut = tmp_path / "cut.sol"
    for kept in range(0, len(lines), 3):
        cut.write_text("".join(lines[:kept]))
        try:
            plan = lenet(cut)
        except HyparError as error:
            refusals.append(str(error))
        else:
            assert plan.parallelism == best.parallelism
    assert refusals
    assert all(refusal.startswith(str(cut)) for refusal in refusals)


def test_whatever_a_solution_file_holds_is_read_or_refused() -> None:
    rng, outcomes = Random(0), Counter[str]()
    words = ["", "1", "-1", "nan", "1e999", "x[", "# Columns", "j", "s mip 1 2 o", "**", "9" * 30]
    for name in formats() * 100:
        lines = (RECORDED / name).read_text().splitlines()
        for _ in range(rng.randint(1, 3)):
            line = rng.randrange(len(lines))
            parts = lines[line].split() or [""]
            parts[rng.randrange(len(parts))] = rng.choice(words)
            lines[line] = rng.choice([" ".join(parts), *parts])
        # An error of any other type fails the test.
        try:
            outcomes["read"] += bool(parse_solution("\n".join(lines), file="some.sol"))
        except InputError as error:
            outcomes["refused"] += str(error).startswith("some.sol")
    assert outcomes.total() == 100 * len(formats())
    assert min(outcomes["read"], outcomes["refused"]) > 10


def changed(name: str, old: str, new: str, tmp_path: Path) -> Path:
    text = (RECORDED / name).read_text()
    assert old in text
    file = tmp_path / name
    file.write_text(text.replace(old, new))
    return file


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("gurobi.sol", "x(fc2,H2,model) 0\n", "", r"has no value of x\[fc2,H2,model\]"),
        ("gurobi.sol", "fc2,H2,model) 0", "fc2,H2,model) 0.5", r"should be 0 or 1, got 0\.5"),
        ("gurobi.sol", "fc2,H2,model) 0", "fc2,H2,model) nan", "should be 0 or 1, got nan"),
        ("gurobi.sol", "fc2,H2,model) 0", "fc2,H2,model) 1", "claims 5,075,680, its choices cost"),
        ("gurobi.sol", "x(fc2,H2,model)", "x(fc3,H2,model)", "is not a column of this problem's"),
        ("gurobi.sol", "x(fc2,H2,model) 0", "x(fc2,H2,model) no", "line 10: should be a number"),
        ("gurobi.sol", "x(fc2,H2,model) 0", "x(fc2,H2,model)", "line 10: should be a column"),
        ("cbc.sol", "Optimal", "Infeasible", "its status is 'Infeasible'"),
        ("highs-raw.sol", "Feasible", "None", "its status is 'Optimal'"),
        ("highs-raw.sol", "Columns 15", "Columns 16", "ends after 15 of its 16 columns"),
        ("highs-pretty.sol", "status: Optimal", "status: Infeasible", "its status is 'Infeasible'"),
        ("glpk-output.sol", "INTEGER OPTIMAL", "INTEGER EMPTY", "its status is 'INTEGER EMPTY'"),
        ("glpk-write.sol", "15 o", "15 n", "its status is 'none exists'"),
        ("glpk-write.sol", "j 15 1\n", "", "ends after 14 of its 15 columns"),
        ("glpk-write.sol", "s mip", "s bas", "should be of an integer program"),
    ],
)
def test_a_wrong_solution_is_refused_by_name(
    name: str, old: str, new: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(HyparError, match=said) as refusal:
        lenet(changed(name, old, new, tmp_path))
    assert str(refusal.value).startswith(str(tmp_path / name))


def test_a_solution_of_another_problem_is_refused() -> None:
    with pytest.raises(HyparError, match="may be of another problem"):
        ho.solve("lenet-c", levels=2, batch=32, solution=RECORDED / "highs-raw.sol")
    with pytest.raises(HyparError, match="columns of this problem's model, got 15"):
        ho.solve("lenet-c", levels=3, solution=RECORDED / "glpk-write.sol")
    with pytest.raises(HyparError, match=r"cost .*; it may be of another"):
        ho.solve("lenet-c", levels=2, inference=True, solution=RECORDED / "cbc.sol")


def test_what_is_for_a_search_goes_without_a_solution() -> None:
    best = ho.solve("lenet-c", levels=2)
    searched: list[dict[str, Any]] = [
        {"solver": "dp"},
        {"search": "levelwise"},
        {"start": best},
        {"place": True},
    ]
    for given in searched:
        with pytest.raises(HyparError, match="goes without solution, which has the plan"):
            ho.solve("lenet-c", levels=2, solution=RECORDED / "cbc.sol", **given)
    with pytest.raises(HyparError, match="takes no time_limit"):
        ho.solve("lenet-c", levels=2, solution=RECORDED / "cbc.sol", options={"time_limit": 3})


def test_a_solution_without_the_constraints_is_taken_if_it_keeps_to_them() -> None:
    solution = RECORDED / "cbc.sol"
    with pytest.raises(HyparError, match=r"x\[conv1,H1,model\] is not a column"):
        ho.solve("lenet-c", levels=2, solution=solution, **PINNED)
    # A pin for all levels forbids columns of the same model.
    with pytest.raises(HyparError, match="choice that is not allowed"):
        ho.solve("lenet-c", levels=2, solution=solution, constraints={"fix": ("conv1=model",)})
    free = ho.solve("lenet-c", levels=2, solution=solution)
    kept = ho.solve("lenet-c", levels=2, solution=solution, constraints={"fix": ("conv1=data",)})
    assert (kept.parallelism, kept.cost) == (free.parallelism, free.cost)


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ({"conv1": "data.data"}, "choice that is not allowed"),
        ({"conv1": "model.model", "fc1": None}, "should have the value 1 for one of x"),
    ],
)
def test_a_solution_that_keeps_to_no_constraint_is_refused(
    choices: dict[str, str | None], complaint: str, tmp_path: Path
) -> None:
    solution = tmp_path / "plan.sol"
    layers = [layer.name for layer in find_network("lenet-c").layers]
    chosen = {**dict.fromkeys(layers, "data.data"), **choices}
    states = ("data.data", "data.model", "model.data", "model.model")
    lines = [
        f"x[{layer},H1.H2,{state}] {int(chosen[layer] == state)}"
        for layer in layers
        for state in states
    ]
    ho.write_model("lenet-c", tmp_path / "model.mps", levels=2, **PINNED)
    others = {
        line.split()[0]
        for line in (tmp_path / "model.mps").read_text().splitlines()
        if line.startswith((" y[", " constant"))
    }
    solution.write_text("\n".join([*lines, *(f"{column} 0" for column in others)]))
    with pytest.raises(HyparError, match=complaint) as refusal:
        ho.solve("lenet-c", levels=2, solution=solution, **PINNED)
    assert str(refusal.value).startswith(str(solution))


def test_the_models_columns_name_every_layer_level_and_choice(tmp_path: Path) -> None:
    ho.write_model("lenet-c", tmp_path / "model.mps", levels=2)
    lines = (tmp_path / "model.mps").read_text().splitlines()
    found = {fields_of(line.split()[0]) for line in lines if line.startswith(" x[")}
    layers = [layer.name for layer in find_network("lenet-c").layers]
    assert found == {("x", layer, level, "model") for layer in layers for level in ("H1", "H2")}


def test_cp_sat_has_the_same_names(tmp_path: Path) -> None:
    from ortools.sat import cp_model_pb2

    ho.write_model(ODD, tmp_path / "model.pb", levels=1)
    model = cp_model_pb2.CpModelProto.FromString((tmp_path / "model.pb").read_bytes())
    named = [fields_of(variable.name) for variable in model.variables if variable.name]
    assert named == [("x", layer.name, "H1", "model") for layer in ODD.layers]


def test_what_has_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model\.txt: should end in one of \.lp, \.mps"):
        ho.write_model("sfc", tmp_path / "model.txt")
    with pytest.raises(HyparError, match="with 0 levels there is nothing to choose"):
        ho.write_model("sfc", tmp_path / "model.lp", levels=0)
    with pytest.raises(HyparError, match="at most 500,000 columns, this may need 302,067,712"):
        ho.write_model("vgg-e", tmp_path / "m.lp", levels=12, level_weights=range(1, 13))
    with pytest.raises(InfeasibleError):
        ho.write_model("sfc", tmp_path / "model.lp", constraints={"memory": 1})
    long = {**NETWORK, "layer": [{"name": "n" * 250, "kind": "fc", "units": 8}]}
    with pytest.raises(HyparError, match="names of at most 255 characters"):
        ho.write_model(ho.Network.model_validate(long), tmp_path / "model.lp")
