"""Parameters of a backend tune its search; they name no files and pose no other problem."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ortools.sat import sat_parameters_pb2

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.costs.table import CostTable, chain_ends
from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.plan.plan import write_plan
from hypar_opt.planning.again import search_again
from hypar_opt.solvers.backends.cbc import cbc_program
from hypar_opt.solvers.backends.tuning import TUNING, check_parameters
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.cp_sat.parameters import configured
from hypar_opt.solvers.ilp.solver import IntegerProgram
from tests.cli.shell import Shell

FILES = {
    "cbc": "solution export saveModel saveSolution basisOut basisIn import restoreSolution"
    " gsolution directory printMask mipstart priorityIn parametrics stdin - help",
    "HiGHS": "log_file solution_file write_model_file write_solution_file write_basis_file"
    " read_solution_file read_basis_file",
    "HiGHS_CMD": "log_file solution_file write_model_file read_solution_file",
    "GUROBI": "LogFile ResultFile SolFiles NodefileDir InputFile",
    "GUROBI_CMD": "LogFile ResultFile NodefileDir",
    "CPLEX_CMD": "logfile workdir",
    "SCIP_CMD": "visual/vbcfilename visual/bakfilename reoptimization/savelpbasis",
    "COPT": "LogFile",
    "XPRESS_CMD": "LOGFILE",
    "MOSEK": "MSK_SPAR_DATA_FILE_NAME MSK_SPAR_PARAM_WRITE_FILE_NAME",
}
OTHER_PROBLEMS = {
    "cbc": "direction maximize objectiveScale ratioGap ratio allowableGap increment cutoff"
    " integerTolerance primalTolerance constraintfromCutoff preprocess gomoryCuts cuts seconds"
    " dualBound zeroTolerance forceSolution",
    "HiGHS": "user_objective_scale user_bound_scale objective_bound objective_target"
    " mip_rel_gap mip_abs_gap mip_feasibility_tolerance primal_feasibility_tolerance time_limit",
    "GUROBI": "ObjScale MIPGap Cutoff BestObjStop IntFeasTol",
}
REFUSED = [
    (backend, name)
    for refused in (FILES, OTHER_PROBLEMS)
    for backend, names in refused.items()
    for name in names.split()
]


@pytest.mark.parametrize(("backend", "name"), REFUSED)
def test_what_names_a_file_or_changes_what_is_asked_is_refused_by_name(
    backend: str, name: str
) -> None:
    for spelled in (name, name.upper(), name.lower(), name[:5]):
        with pytest.raises(RefusedError, match=re.escape(f"parameters {spelled!r}")):
            check_parameters(backend, {spelled: "1"})


@pytest.mark.parametrize("backend", TUNING)
@pytest.mark.parametrize("value", ["/tmp/x", "a/b", "a b", "a\nwrite x", "", "x" * 41, "~", "é"])
def test_a_value_is_a_number_or_a_word_and_never_a_path(backend: str, value: str) -> None:
    name = TUNING[backend][0]
    with pytest.raises(RefusedError, match="should be a number or a word, got"):
        check_parameters(backend, {name: value})
    for right in ("on", "-1", "1e-3", "0.5"):
        check_parameters(backend, {name: right})


def test_cbc_knows_every_parameter_that_is_let_through() -> None:
    program = cbc_program()
    assert program is not None
    queries = [f"-{name}?" for name in TUNING["cbc"]]
    help_text = subprocess.run(
        [program, *queries, "-quit"], capture_output=True, text=True, check=True
    )
    described = re.findall(r"^(\w+)(?:\((\w+)\))? : ", help_text.stdout, re.MULTILINE)
    known = {start + rest for start, rest in described}
    assert {name.lower() for name in TUNING["cbc"]} <= {name.lower() for name in known}


@pytest.mark.parametrize(
    ("option", "wrong"), [("direction=maximize", "358"), ("objectiveScale=0", "163")]
)
def test_an_option_that_changes_the_question_leaves_no_false_optimum(
    option: str, wrong: str, shell: Shell
) -> None:
    """CBC claims 358 and 163 MB to be optimal, and 62.9 MB is."""
    args = ["solve", "alexnet", "--levels", "2", "--memory", "420MB", "--search", "joint"]
    err = shell.refused(*args, "--solver", "ilp", "--solver-option", option)
    assert wrong not in err
    assert f"takes no --solver-option {option.partition('=')[0]!r}" in err


@pytest.mark.parametrize("name", TUNING["cbc"])
def test_a_value_that_cbc_does_not_know_is_refused(name: str) -> None:
    """CBC itself would solve without it."""
    table = CostTable(np.array([[0, 1], [1, 0]]), np.ones((1, 2, 2), np.int64), chain_ends(2))
    with pytest.raises(RefusedError, match=f"no such parameter or value: {name}$"):
        IntegerProgram().solve(table, SolverOptions(parameters={name: "nonsense"}))


def test_parameters_that_tune_cbc_reach_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    table = CostTable(rng.integers(0, 99, (9, 3)), rng.integers(0, 99, (8, 3, 3)), chain_ends(9))
    plain = IntegerProgram().solve(table, SolverOptions())
    log = tmp_path / "log"
    options = SolverOptions(parameters={"heuristicsOnOff": "off", "passCuts": "3"}, log=log)
    tuned = IntegerProgram().solve(table, options)
    assert (tuned.assignment, tuned.status) == (plain.assignment, plain.status)
    assert "heuristicsOnOff" in log.read_text()


TEXTS = [
    field.name
    for field in sat_parameters_pb2.SatParameters.DESCRIPTOR.fields
    if field.type == field.TYPE_STRING
]


@pytest.mark.parametrize(
    "name", [*TEXTS, "debug_crash_on_bad_hint", "debug_postsolve_with_full_solver"]
)
def test_cp_sat_takes_no_text_and_nothing_that_can_end_the_process(name: str) -> None:
    assert TEXTS
    with pytest.raises(HyparError, match=f"no parameter '{name}'"):
        configured(SolverOptions(parameters={name: "true"}))


@pytest.mark.parametrize("name", ["log_to_stdout", "log_to_response", "log_search_progress"])
def test_cp_sats_log_goes_where_an_option_of_ours_says(name: str) -> None:
    with pytest.raises(HyparError, match=f"{name} is here"):
        configured(SolverOptions(parameters={name: "true"}))


def with_parameters(tmp_path: Path, parameters: dict[str, str], **problem: Any) -> Path:
    plan = ho.solve("sfc", levels=1, solver="ilp", **problem)
    options = plan.solver.options.model_copy(update={"parameters": parameters})
    solver = plan.solver.model_copy(update={"options": options})
    file = tmp_path / "plan.json"
    write_plan(plan.model_copy(update={"solver": solver}), file)
    return file


def test_a_plan_file_never_chooses_what_is_written(tmp_path: Path, shell: Shell) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    file = str(with_parameters(tmp_path, {"solution": str(victim)}))
    assert "--solver-option solution=" in shell.refused("show", file, "--rerun")
    said = shell.refused("show", file, "--rerun", "--plan-options")
    assert "takes no --solver-option 'solution'" in said
    with pytest.raises(RefusedError, match="used only on request"):
        ho.regrets(ho.read_plan(file))
    assert victim.read_text() == "mine"


def test_a_plans_own_parameters_are_handed_over_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(with_parameters(tmp_path, {"passCuts": "3"}))
    assert run(["show", file]) == 0
    assert run(["show", file, "--rerun"]) == 2
    assert "show --rerun --plan-options uses them" in capsys.readouterr().err
    assert run(["show", file, "--rerun", "--plan-options"]) == 0
    assert run(["show", file, "--plan-options"]) == 2
    again = search_again(ho.read_plan(file), parameters=True)
    assert again.solver.options.parameters == {"passCuts": "3"}


def test_a_report_of_a_plan_leaves_out_what_would_need_its_parameters(tmp_path: Path) -> None:
    from hypar_opt.display.page.contents import gather
    from hypar_opt.hardware.arrays import find_array

    plan = ho.read_plan(with_parameters(tmp_path, {"passCuts": "3"}))
    contents = gather(plan, find_array("hmc-htree-2"))
    assert not contents.regretted
    assert "--solver-option passCuts=3" in contents.note
    assert gather(plan, find_array("hmc-htree-2"), parameters=True).regretted
