"""Commands in pipes: what comes on standard input, and a plan on standard output."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import main, run
from hypar_opt.hardware import arrays
from hypar_opt.models import __file__ as models_file
from tests.cli.shell import Shell, piped

LENET = (Path(models_file).parent / "lenet-c.toml").read_text()
ARRAY = (Path(arrays.__file__).parent / "hmc-torus-4.toml").read_text()


@pytest.fixture
def plan(shell: Shell) -> str:
    return shell.output("solve", "lenet-c", "--levels", "2", "--json")


def test_a_real_pipe_takes_a_plan_from_solve_to_simulate() -> None:
    done = piped("hypar solve sfc --levels 2 --json | hypar simulate - --array hmc-torus-4 --json")
    plan = ho.solve("sfc", levels=2)
    simulated = json.loads(done.stdout)
    assert simulated["array"] == "hmc-torus-4"
    assert simulated["parallelism"] == [list(row) for row in plan.parallelism]


def test_a_network_comes_on_standard_input(shell: Shell) -> None:
    named = json.loads(shell.output("solve", "lenet-c", "--json"))
    for path in ("-", "/dev/stdin"):
        piped = json.loads(shell.output("solve", path, "--json", piped=LENET))
        assert {**piped, "solver": None} == {**named, "solver": None}


def test_an_array_comes_on_standard_input(shell: Shell) -> None:
    plan = json.loads(shell.output("solve", "lenet-c", "--array", "-", "--json", piped=ARRAY))
    assert (plan["array"]["name"], plan["levels"]) == ("hmc-torus-4", 2)


def test_what_is_shown_of_standard_input_is_told_by_its_keys_and_its_schema(
    shell: Shell, plan: str, tmp_path: Path
) -> None:
    named = shell.output("show", "hmc-torus-4")
    assert shell.output("show", "-", piped=ARRAY) == named
    assert shell.output("show", "-", "--toml", piped=ARRAY) == ARRAY
    assert "Lenet-c" in shell.output("show", "-", piped=LENET)
    assert "Lenet-c" in shell.output("show", "-", piped=plan)
    # With a key of the wrong form it is an array all the same.
    (file := tmp_path / "array.toml").write_text('name = "x"\n[[accelerator]]\n')
    said = shell.refused("show", file)
    assert "input" not in said
    assert "missing key 'topology'" in said or "accelerator" in said


def test_a_plan_is_told_from_a_network(shell: Shell, plan: str) -> None:
    for command in ("show", "simulate"):
        array = [] if command == "show" else ["--array", "hmc-torus-4"]
        assert "Lenet-c" in shell.output(command, "-", *array, piped=plan)
        assert "Lenet-c" in shell.output(command, "-", *array, piped=LENET)
    assert "standard input" in shell.output("verify", "-", piped=plan)


def test_output_dash_prints_the_file_that_a_plan_has(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    shell.output("solve", "lenet-c", "-o", str(file))
    printed = json.loads(shell.output("solve", "lenet-c", "-o", "-"))
    written: dict[str, Any] = json.loads(file.read_text())
    assert {**printed, "solver": None} == {**written, "solver": None}
    said = shell.refused("solve", "lenet-c", "-o", "-", "--regret")
    assert "--regret and --best need a file" in said


@pytest.mark.parametrize(
    ("call", "document", "said"),
    [
        (["solve", "-"], "plan", "standard input: this is a plan file"),
        (["solve", "-"], ARRAY, "this is an array file: use --array"),
        (["solve", "sfc", "--array", "-"], LENET, "this is a network file"),
        (["simulate", "-", "--array", "-"], "plan", "is the plan already; name a file for the arr"),
        (["solve", "-", "--array", "-"], LENET, "is the network already; name a file for the arr"),
        (["export", "-", "--to", "json"], LENET, "this is a network file: use it as NETWORK"),
        (["run", "-"], LENET, "this is a network file"),
        (["solve", "-"], "", "standard input: missing key 'name'"),
        (["show", "-"], "{", "standard input: should be JSON"),
        (["solve", "-"], b"\xff", "standard input: should be UTF-8 text"),
    ],
)
def test_the_wrong_document_is_refused_by_name(
    call: list[str], document: str | bytes, said: str, shell: Shell, plan: str
) -> None:
    assert said in shell.refused(*call, piped=plan if document == "plan" else document)


def test_a_closed_standard_input_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run(["solve", "-"]) == 2
    assert "standard input: is closed" in capsys.readouterr().err


def test_a_model_goes_out_and_its_solution_comes_back(shell: Shell, tmp_path: Path) -> None:
    model = tmp_path / "model.lp"
    said = shell.output("model", "lenet-c", "--levels", "2", "-o", str(model))
    assert said == f"{model}: 15 columns, 12 rows\n"
    recorded = Path(__file__).parent.parent / "data" / "solutions" / "highs-raw.sol"
    call = ["solve", "lenet-c", "--levels", "2"]
    plan = shell.document(*call, "--solution", recorded)
    best = shell.document(*call, "--search", "joint")
    assert plan["cost"] == best["cost"]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    assert "from a solution file" in shell.refused("show", file, "--rerun")
    shell.refused(*call, "--solution", recorded, "-o", recorded)


def test_verify_compares_by_one_search(shell: Shell) -> None:
    rows = shell.document("verify", "sfc", "--search", "joint", "--solvers", "dp,cut")["rows"]
    assert [row["search"] for row in rows] == ["joint", "joint"]
    assert "did you mean joint" in shell.refused("verify", "sfc", "--search", "joints")


def test_main_writes_to_whatever_stream_a_caller_puts_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As in a notebook, or under `contextlib.redirect_stdout`."""
    monkeypatch.setattr(sys, "argv", ["hypar-opt", "solve", "lenet-c", "--levels", "2", "--json"])
    out = io.StringIO()
    with contextlib.redirect_stdout(out), pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert json.loads(out.getvalue())["network"]["name"] == "Lenet-c"
    err = io.StringIO()
    monkeypatch.setattr(sys, "argv", ["hypar-opt", "solve", "no-such-network"])
    with contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "no-such-network" in err.getvalue()
