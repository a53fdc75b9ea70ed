"""The command as a user has it: real processes, what they print and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
import typer
from typer.core import TyperGroup

import hypar_opt as ho
from hypar_opt.cli.app import app, run
from tests.clocks import until

COMMAND = Path(sys.executable).with_name("hypar-opt")


def hypar(
    *args: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    env = env or {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    return subprocess.run(
        [COMMAND, *args], capture_output=True, text=True, check=False, env=env, cwd=cwd
    )


def test_solve_prints_a_glyph_a_layer_and_the_savings() -> None:
    done = hypar("solve", "vgg-a", "--solver", "dp")
    assert done.returncode == 0
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "VGG-A: batch 256, 2^4 = 16 accelerators, reading text, dp levelwise (each level optimal)"
    )
    levels = [line.split() for line in lines if line.startswith("H")]
    assert [level[0] for level in levels] == ["H1", "H2", "H3", "H4"]
    assert ["".join(level[1:3]) for level in levels] == ["○○○○○○○○●●●"] * 3 + ["○○○○○○○●●●●"]
    assert levels[0][3:] == ["109.6", "MB"]
    (total,) = [line for line in lines if line.startswith("total")]
    assert total.split() == ["total", "1.408", "GB"]
    (data,) = [line for line in lines if line.startswith("Data Parallelism")]
    assert data.split()[2:] == ["15.94", "GB", "11.3"]


def test_solve_is_readable_in_ascii() -> None:
    done = hypar("solve", "lenet-c", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert [line.split()[1:3] for line in done.stdout.splitlines() if line.startswith("H")] == [
        ["--", "MM"],
        ["--", "M-"],
        ["--", "--"],
        ["--", "MM"],
    ]


def test_json_is_the_plan_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    done = hypar("solve", "cifar-c", "--json", "--output", str(file))
    assert done.returncode == 0
    assert done.stdout == file.read_text()
    assert json.loads(done.stdout)["cost"]["total"] == 12_542_208
    assert done.stderr.startswith("hypar-opt: warning: when run, this plan moves 20.31 MB")


def test_show_prices_a_plan_with_no_other_file_at_hand(tmp_path: Path) -> None:
    network, plan = tmp_path / "net.toml", tmp_path / "plan.json"
    network.write_text(
        'name = "mine"\ninput = { features = 9 }\n[[layer]]\nname = "fc"\nkind = "fc"\nunits = 5\n'
    )
    solved = hypar("solve", str(network), "--output", str(plan), "--levels", "2")
    network.unlink()
    shown = hypar("show", str(plan), cwd=tmp_path)
    assert (solved.returncode, shown.returncode) == (0, 0)
    # Word for word, but for whose claim it is.
    assert shown.stdout.replace("(its file says ", "(") == solved.stdout
    assert "mine: batch 256" in shown.stdout
    assert "(its file says each level optimal)" in shown.stdout


def test_rerun_gives_the_file_byte_for_byte_but_for_seconds(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    ho.write_plan(ho.solve("alexnet", batch=32, reading="figures"), file)
    done = hypar("show", str(file), "--rerun", "--json")
    assert done.returncode == 0

    def timeless(text: str) -> list[str]:
        return [line for line in text.splitlines() if '"seconds":' not in line]

    assert timeless(done.stdout) == timeless(file.read_text())
    assert len(timeless(done.stdout)) == len(file.read_text().splitlines()) - 1


def test_rerun_ends_with_1_where_solving_again_gives_another_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = ho.solve("lenet-c", solver="data").document()
    document["solver"]["name"] = "dp"
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document))
    assert run(["show", str(file), "--rerun"]) == 1
    assert (
        capsys.readouterr().err
        == f"hypar-opt: {file}: parallelism is not what solving again gives\n"
    )


def test_one_accelerator_has_no_ratios() -> None:
    done = hypar("solve", "vgg-a", "--levels", "0", "--json")
    document = json.loads(done.stdout)
    assert document["parallelism"] == []
    assert document["cost"]["total"] == 0
    assert document["cost"]["ratios"] == {"data": None, "model": None}
    table = hypar("solve", "vgg-a", "--levels", "0").stdout
    (data,) = [line for line in table.splitlines() if line.startswith("Data Parallelism")]
    assert data.split()[-1] == "-"


def test_show_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "Lenet-C", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    counts = {"weights": 430_500, "feature_map": 4_190, "macs": 2_293_000}
    assert shown["total"] == {**counts, "parameters": 430_500}
    assert shown["layers"][0]["pooled"] == [1, 20, 12, 12]
    assert run(["show", "lenet-c"]) == 0
    table = capsys.readouterr().out
    assert "430,500" in table
    assert "2,293,000" in table
    assert run(["show", "lenet-c", "--batch", "2"]) == 0
    assert "4,586,000" in capsys.readouterr().out


def test_list(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # so that no summary wraps
    assert run(["list", "networks", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(ho.names())
    assert run(["list", "solvers"]) == 0
    listed = capsys.readouterr().out
    assert "layer-wise dynamic programming" in listed
    assert "cbc" in listed


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"]["layer"]["minItems"] == 1


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["solve", "vgg-aa"], "unknown network 'vgg-aa': did you mean vgg-a?"),
        (["solve", "nowhere.toml"], "nowhere.toml: cannot be read: No such file or directory"),
        (["solve", "."], ".: cannot be read: Is a directory"),
        (["solve", "sfc", "--solver", "dq"], "unknown solver 'dq': did you mean dp?"),
        (["solve", "sfc", "--reading", "table"], "unknown reading 'table': did you mean tables?"),
        (["solve", "sfc", "--search", "x"], "unknown search 'x': known: levelwise, joint"),
        (["solve", "sfc", "--batch", "0"], "--batch: should be greater than or equal to 1, got 0"),
        (["solve", "sfc", "--batch", "1.5"], "Invalid value for '--batch'"),
        (["solve", "sfc", "--batch", "nan"], "Invalid value for '--batch'"),
        (["solve", "sfc", "--batch", "9" * 5000], "Invalid value for '--batch'"),
        (
            ["solve", "sfc", "--levels", "65"],
            "--levels: should be less than or equal to 64, got 65",
        ),
        (
            ["solve", "sfc", "--element-bytes", "3"],
            "--element-bytes: should be one of 1, 2, 4, 8, got 3",
        ),
        (["solve", "sfc", "--output", "/nowhere/p.json"], "/nowhere/p.json: there is no folder"),
        (["solve", "sfc", "--output", "."], ".: should be a file, not a folder"),
        (["solve", "sfc", "--output", "/dev/stdout"], "/dev/stdout: should be a file; --json"),
        (["solve", "x" * 300 + ".toml"], "x"),
        (["solve", ""], "unknown network ''"),
        (["solve", "sfc", "--fix", "fc1"], "--fix should be LAYER[@LEVEL]=CHOICE"),
        (["solve", "sfc", "--memory", "much"], "--memory: should be bytes, as in 8GB"),
        (["solve", "sfc", "--optimizer", "lion"], "--optimizer: should be sgd"),
        (["solve", "sfc", "--level-weights", "8,x"], "--level-weights should be whole numbers"),
        (["solve", "sfc", "--solver-option", "x"], "--solver-option should be K=V"),
        (["solve", "sfc", "--threads", "2"], "solver 'dp' on SFC: takes no --threads"),
        (["solve", "sfc", "--best", "0"], "--best should be 1 or more, got 0"),
        (["solve", "sfc", "--time-limit", "-1"], "--time-limit: should be greater than 0"),
        (["verify"], "verify takes a NETWORK, a PLAN, or --random N"),
        (["verify", "sfc", "--certificate", "x"], "--certificate goes with a plan file"),
        (["verify", "sfc", "--solvers", "dp,x"], "unknown solver 'x'"),
        (["solve"], "Missing argument 'NETWORK'; see hypar-opt solve --help"),
        (["solve", "sfc", "--depth", "3"], "No such option: --depth"),
        (["slove", "sfc"], "No such command 'slove'"),
        (["show"], "show takes a NETWORK, a PLAN or an ARRAY, or --schema"),
        (
            ["show", "sfc", "--schema"],
            "--schema takes no NETWORK, PLAN, ARRAY or other option",
        ),
        (["show", "sfc", "--rerun"], "--rerun takes a plan file, and 'sfc' is a network"),
        (["show", "plan.json"], "plan.json: cannot be read: No such file or directory"),
    ],
)
def test_a_wrong_call_ends_with_2_and_one_line(
    args: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"hypar-opt: {complaint}")
    assert err.count("\n") == 1


def test_a_plan_fixes_its_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "plan.json"
    ho.write_plan(ho.solve("sconv"), file)
    assert run(["show", str(file), "--batch", "2"]) == 2
    assert capsys.readouterr().err == "hypar-opt: --batch is fixed by the plan; leave it out\n"


def test_a_solver_that_refuses_ends_with_2_and_the_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["solve", str(chain(tmp_path, 25)), "--solver", "brute"]) == 2
    assert "at most 16,777,216 assignments, and there are 33,554,432" in (capsys.readouterr().err)


@pytest.mark.parametrize(
    "options",
    [
        ["--batch", "1"],
        ["--batch", "7", "--levels", "5"],
        ["--levels", "30"],
        ["--levels", "64", "--element-bytes", "1", "--batch", "1"],
        ["--batch", "2147483647", "--levels", "64", "--solver", "model"],
    ],
)
def test_extremes_are_solved(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["solve", "alexnet", *options]) == 0
    assert "total" in capsys.readouterr().out


def test_a_chain_of_10_000_layers_is_solved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = chain(tmp_path, 10_000)
    assert run(["solve", str(file), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [len(row) for row in document["parallelism"]] == [10_000] * 4
    assert document["solver"]["bound"] == document["cost"]["total"]
    assert run(["solve", str(file)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 120


def chain(folder: Path, layers: int) -> Path:
    text = 'name = "chain"\ninput = { features = 300 }\n'
    for place in range(layers):
        text += f'[[layer]]\nname = "fc{place}"\nkind = "fc"\nunits = {100 + place % 37}\n'
    file = folder / "chain.toml"
    file.write_text(text)
    return file


def test_without_arguments_the_help_is_printed() -> None:
    done = hypar()
    assert done.returncode == 2
    assert "Usage: hypar-opt" in done.stdout
    assert done.stderr == ""


def test_a_module_and_a_version() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hypar_opt", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"hypar-opt {ho.__version__}\n"


def completed(words: str) -> list[str]:
    """What a real bash offers for the last of some words."""
    script = f"""
    eval "$(_HYPAR_OPT_COMPLETE=source_bash hypar-opt)"
    COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    $(complete -p hypar-opt | sed 's/.*-F \\([^ ]*\\) .*/\\1/') hypar-opt
    echo "${{COMPREPLY[@]}}"
    """
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": path},
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("hypar-opt so", "solve"),
        ("hypar-opt solve VGG-", "VGG-a VGG-b VGG-c VGG-d VGG-e"),
        ("hypar-opt solve sfc --solver d", "dp data"),
        ("hypar-opt solve sfc --reading t", "text tables"),
        ("hypar-opt show l", "lenet-c llama-70b llama-7b"),
        ("hypar-opt list n", "networks"),
    ],
)
def test_completion_in_a_real_bash(words: str, offered: str) -> None:
    assert completed(words) == offered.split()


def test_a_reader_that_goes_away_causes_no_traceback() -> None:
    done = subprocess.run(
        f"{COMMAND} show --schema | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "{\n"
    assert "Traceback" not in done.stderr
    full = subprocess.run(
        f"{COMMAND} show --schema > /dev/full",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert full.returncode == 2
    assert full.stderr == "hypar-opt: standard output: No space left on device\n"


@pytest.mark.parametrize("command", ["solve sfc", "solve sfc --json", "--version", "solve --help"])
def test_a_result_that_nobody_gets_is_an_error(command: str) -> None:
    closed = subprocess.run(
        f"{COMMAND} {command} >&-", shell=True, stderr=subprocess.PIPE, text=True, check=False
    )
    assert closed.stderr == "hypar-opt: standard output: is closed\n"
    assert closed.returncode == 2


def test_closed_streams_cause_no_traceback(tmp_path: Path) -> None:
    out = tmp_path / "out"
    deaf = subprocess.run(f"{COMMAND} solve cifar-c 2>&- >{out}", shell=True, check=False)
    assert deaf.returncode == 0
    assert "Cifar-c" in out.read_text()


def test_output_never_replaces_the_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = chain(tmp_path, 2)
    before = file.read_text()
    assert run(["solve", str(file), "--output", str(file)]) == 2
    assert "is read or written already" in capsys.readouterr().err
    assert file.read_text() == before


def test_narrow_terminals_lose_no_column() -> None:
    narrow = hypar("solve", "vgg-a", env={**os.environ, "COLUMNS": "20"})
    assert "H4" in narrow.stdout
    assert "fc1–fc3" in narrow.stdout
    assert "○○○○○○○●" in narrow.stdout
    nothing = hypar("show", "vgg-e", "--batch", "256", env={**os.environ, "COLUMNS": "0"})
    assert "22,196,256,768" in nothing.stdout


def test_nothing_is_imported_that_a_call_does_not_use() -> None:
    code = (
        "import sys; from hypar_opt.cli.app import run; status = run(sys.argv[1:]);"
        "print(*(m for m in ('numpy', 'networkx', 'pydantic', 'pulp', 'ortools')"
        " if m in sys.modules), file=sys.stderr); sys.exit(status)"
    )

    def imported(*args: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *args], capture_output=True, text=True, check=True
        )
        return done.stderr.strip()

    assert imported("--help") == ""
    assert imported("solve", "--help") in {"", "pydantic"}  # Typer's own, to read defaults
    assert imported("solve", "vgg-e") == "numpy pydantic"


def test_the_list_of_commands_has_the_start_of_each_ones_help() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    for name, command in group.commands.items():
        text = (command.help or "").partition("\n\n")[0]
        assert (name, command.short_help) == (name, " ".join(text.split()))


def test_a_third_partys_solver_takes_part_and_is_checked(tmp_path: Path) -> None:
    """A solver from another package, found by its entry point as an installed one is."""
    (tmp_path / "theirs.py").write_text(
        "from hypar_opt.solvers.base import Solver, SolveResult, Status\n"
        "class Zeros(Solver):\n"
        "    summary = 'all zeros'\n"
        "    searches = False\n"
        "    def solve(self, table, options):\n"
        "        return SolveResult((0,) * table.layers, None, Status.FEASIBLE)\n"
        "class Liar(Zeros):\n"
        "    def solve(self, table, options):\n"
        "        return SolveResult((0,) * table.layers, 0, Status.OPTIMAL, 0)\n"
    )
    info = tmp_path / "theirs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[hypar_opt.solvers]\nzeros = theirs:Zeros\nliar = theirs:Liar\ngone = theirs:Gone\n"
        "dp = theirs:Liar\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    zeros = hypar("solve", "sfc", "--solver", "zeros", "--json", env=env)
    assert json.loads(zeros.stdout)["parallelism"] == [["data"] * 4] * 4
    liar = hypar("solve", "sfc", "--solver", "liar", env=env)
    assert liar.returncode == 1
    assert "solver 'liar' on SFC: claims 0, its assignment costs" in liar.stderr
    gone = hypar("solve", "sfc", "--solver", "gone", env=env)
    assert gone.returncode == 2
    assert "solver 'gone' cannot be loaded from 'theirs:Gone'" in gone.stderr
    listed = hypar("list", "solvers", "--json", env=env)
    rows = json.loads(listed.stdout)["solvers"]
    assert {"zeros", "liar", "gone"} < {row["name"] for row in rows}
    own = hypar("solve", "sfc", "--solver", "dp", "--json", env=env)
    assert json.loads(own.stdout)["solver"]["status"] == "optimal"


def marked(mark: str) -> list[str]:
    """Return the processes whose environment holds a mark."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:  # gone, or somebody else's
            continue
    return found


ENDLESS = {
    "brute": ("hypar_opt.solvers.brute_force", "_all_costs", ["--levels", "64"]),
    "ilp": ("hypar_opt.solvers.backends.cbc", "cbc_program", []),
    "cpsat": (
        "hypar_opt.solvers.cp_sat.search",
        "solve_interruptibly",
        ["--levels", "5", "--search", "joint", "--memory", "2400KB"],
    ),
}
"""Work that takes minutes at least, and the function with which it begins."""

TELLING = """
import importlib, sys
module = importlib.import_module({module!r})
begin = getattr(module, {function!r})
def tell(*args):
    print("begun", flush=True)
    return {program!r} or begin(*args)
setattr(module, {function!r}, tell)
from hypar_opt.__main__ import main
main()
"""


@pytest.mark.parametrize("solver", ENDLESS)
def test_ctrl_c_ends_with_130_and_leaves_neither_a_traceback_nor_a_file_nor_a_process(
    solver: str, tmp_path: Path
) -> None:
    file, output, mark = chain(tmp_path, 24), tmp_path / "plan.json", f"HYPAR_MARK={uuid4()}"
    module, function, options = ENDLESS[solver]
    program = tmp_path / "cbc" if solver == "ilp" else None
    if program:
        program.write_text("#!/bin/sh\nwhile :; do sleep 1; done\n")
        program.chmod(0o700)
    code = TELLING.format(module=module, function=function, program=str(program or ""))
    args: list[str | Path] = ["solve", file, "--solver", solver, "--output", output, *options]
    key, _, value = mark.partition("=")
    running = subprocess.Popen(
        [sys.executable, "-c", code, *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, key: value},
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "begun\n"
    if program:
        until(lambda: any(str(program) in each for each in marked(mark)))
    running.send_signal(signal.SIGINT)
    _, err = running.communicate()
    assert running.returncode == 130
    assert err == ""
    assert not output.exists()
    until(lambda: not marked(mark))


def test_no_answer_within_a_limit_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["solve", str(chain(tmp_path, 3000)), "--levels", "64", "--time-limit", "1e-9"]
    assert run([*args, "--fix", "*@H1=data", "--fix", "*@H2=model"]) == 3
    assert capsys.readouterr().err.endswith("no answer within the time limit\n")


def test_a_warm_start_is_a_plan_of_the_same_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    ho.write_plan(ho.solve("lenet-c", solver="trick"), file)
    start = ["--warm-start", str(file)]
    for solver in ("ilp", "cpsat"):
        for search in ("levelwise", "joint"):
            assert run(["solve", "lenet-c", "--solver", solver, "--search", search, *start]) == 0
    capsys.readouterr()
    assert run(["solve", "sconv", "--solver", "ilp", *start]) == 2
    assert "a warm start should be a plan of the same network" in capsys.readouterr().err
    assert run(["solve", "lenet-c", *start]) == 2
    assert "takes no --warm-start" in capsys.readouterr().err


def test_models_are_exported_one_a_level_or_one_for_all(tmp_path: Path) -> None:
    for solver, suffix in (("ilp", "mps"), ("ilp", "lp"), ("cpsat", "pb")):
        model = tmp_path / f"{solver}.{suffix}"
        args = ["solve", "lenet-c", "--levels", "2", "--solver", solver, "--export-model"]
        assert run([*args, str(model)]) == 0
        assert not model.exists()
        for level in ("H1", "H2"):
            model.with_stem(f"{model.stem}-{level}").unlink()
        assert run([*args, str(model), "--search", "joint"]) == 0
        assert model.stat().st_size > 0
        assert run([*args, str(model.with_suffix(".txt"))]) == 2


def test_regret_and_best_are_in_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["solve", "lenet-c", "--levels", "2", "--regret", "--best", "2", "--json"]
    assert run(args) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["regret"]) == 8
    assert set(document["regret"][0]) == {"layer", "level", "choice", "extra"}
    assert [set(each) for each in document["best"]] == [{"parallelism", "total", "count"}] * 2


def test_statistics_of_the_models_are_in_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    for solver in ("ilp", "cpsat"):
        assert run(["solve", "lenet-c", "--levels", "2", "--solver", solver, "--json"]) == 0
        record = json.loads(capsys.readouterr().out)["solver"]
        assert len(record["statistics"]) == 2
        assert {"rows", "columns", "nonzeros"} <= set(record["statistics"][0])
        assert len(record["versions"]) >= 2
        assert (record["status"], record["gap"]) == ("optimal", 0.0)
