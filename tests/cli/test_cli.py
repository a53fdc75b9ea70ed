"""The command as a user has it: what it prints, how it ends, what it imports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.cli.output import BROKEN_PIPE
from hypar_opt.hardware import arrays
from tests.cli.shell import COMMAND, Shell, chain, command, hypar, piped
from tests.clocks import until
from tests.commands import ended, forked, marked

# What is printed.


def test_solve_is_readable_in_ascii() -> None:
    done = hypar("solve", "lenet-c", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    levels = [line.split()[1:3] for line in done.stdout.splitlines() if line.startswith("H")]
    assert levels == [["--", "MM"], ["--", "M-"], ["--", "--"], ["--", "MM"]]


def test_narrow_terminals_lose_no_column(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    narrow = shell.output("solve", "vgg-a")
    assert all(part in narrow for part in ("H4", "fc1–fc3", "○○○○○○○●"))
    monkeypatch.setenv("COLUMNS", "0")
    assert "22,196,256,768" in shell.output("show", "vgg-e", "--batch", "256")


def test_json_is_the_plan_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    done = command(["solve", "cifar-c", "--json", "--output", str(file)], tmp_path)
    assert done.status == 0
    assert done.output == file.read_text()
    assert json.loads(done.output)["cost"]["total"] == 12_542_208
    assert done.errors.startswith("hypar-opt: warning: when run, this plan moves 20.31 MB")


def test_show_prices_a_plan_with_no_other_file_at_hand(tmp_path: Path) -> None:
    network, plan = chain(tmp_path, 1), tmp_path / "plan.json"
    solved = command(["solve", str(network), "--output", str(plan), "--levels", "2"], tmp_path)
    network.unlink()
    shown = command(["show", str(plan)], tmp_path)
    assert (solved.status, shown.status) == (0, 0)
    words = shown.output.split()
    # Word for word, but for whose claim it is.
    assert " ".join(words).replace("(its file says ", "(") == " ".join(solved.output.split())
    assert "chain: batch 256" in shown.output


def test_rerun_gives_the_file_byte_for_byte_but_for_seconds_or_ends_with_1(
    tmp_path: Path, shell: Shell
) -> None:
    def timeless(text: str) -> list[str]:
        return [line for line in text.splitlines() if '"seconds":' not in line]

    file = tmp_path / "plan.json"
    ho.write_plan(ho.solve("alexnet", batch=32, reading="figures"), file)
    again = shell.output("show", file, "--rerun", "--json")
    assert timeless(again) == timeless(file.read_text())
    assert len(timeless(again)) == len(again.splitlines()) - 1
    document = ho.solve("lenet-c", solver="data").document()
    document["solver"]["name"] = "dp"
    file.write_text(json.dumps(document))
    said = shell.refused("show", file, "--rerun", status=1)
    assert said == f"{file}: parallelism is not what solving again gives"


def test_one_accelerator_has_no_ratios(shell: Shell) -> None:
    document = shell.document("solve", "vgg-a", "--levels", "0")
    assert document["parallelism"] == []
    assert document["cost"]["total"] == 0
    assert document["cost"]["ratios"] == {"data": None, "model": None}
    table = shell.output("solve", "vgg-a", "--levels", "0")
    (data,) = [line for line in table.splitlines() if line.startswith("Data Parallelism")]
    assert data.split()[-1] == "-"


def test_list(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")  # so that no summary wraps
    assert [row["name"] for row in shell.document("list", "networks")["rows"]] == list(ho.names())
    assert "layer-wise dynamic programming" in shell.output("list", "solvers")
    assert "cbc" in shell.output("list", "backends")
    rows = shell.document("list", "arrays")["rows"]
    keys = ("name", "accelerators", "topology", "collective", "source")
    assert [row["name"] for row in rows] == list(arrays.names())
    for row in rows:
        array = arrays.load(row["name"])
        assert tuple(row) == keys
        assert (row["accelerators"], row["source"]) == (
            array.interconnect.accelerators,
            array.source,
        )
    assert shell.output("list", "arrays").split()[:4] == list(keys[:-1])


def test_statistics_of_the_models_are_in_the_json(shell: Shell) -> None:
    for solver in ("ilp", "cpsat"):
        record = shell.document("solve", "lenet-c", "--levels", "2", "--solver", solver)["solver"]
        assert len(record["statistics"]) == 2
        assert {"rows", "columns", "nonzeros"} <= set(record["statistics"][0])
        assert len(record["versions"]) >= 2
        assert (record["status"], record["gap"]) == ("optimal", 0.0)


def test_without_arguments_the_help_is_printed(tmp_path: Path) -> None:
    done = command([], tmp_path)
    assert (done.status, done.errors) == (2, "")
    assert "Usage: hypar-opt" in done.output


def test_a_module_and_a_version() -> None:
    done = ended(sys.executable, "-m", "hypar_opt", "--version")
    assert done.stdout.startswith(f"hypar-opt {ho.__version__} (Python ")


OFFERED = {
    "so": "solve",
    "list n": "networks",
    "list a": "arrays",
    "show l": "lenet-c llama-3-8b llama-70b llama-7b",
    "solve VGG-": "VGG-a VGG-b VGG-c VGG-d VGG-e",
    "solve sfc --solver d": "dp data",
    "solve sfc --reading t": "text tables",
    "solve sfc --cost t": "time",
    "solve sfc --array hmc-torus-1": "hmc-torus-16",
    "simulate sfc --array TPU-v4-4": "TPU-v4-4x4x4",
    "simulate sfc --overlap g": "gradient",
    "compare sfc --array hmc-htree-4,a100-4": "hmc-htree-4,a100-4x8",
    "compare sfc --collective r": "ring",
}


@pytest.mark.parametrize("words", OFFERED)
def test_completion(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What bash's function asks for, in this process."""
    monkeypatch.setenv("_HYPAR_OPT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"hypar-opt {words}")
    monkeypatch.setenv("COMP_CWORD", str(len(words.split())))
    with pytest.raises(SystemExit):
        run([])
    assert capsys.readouterr().out.split() == OFFERED[words].split()


def test_completion_in_a_real_bash() -> None:
    some = ("so", "show l", "solve VGG-", "compare sfc --array hmc-htree-4,a100-4")
    script = 'eval "$(_HYPAR_OPT_COMPLETE=source_bash hypar-opt)"\n'
    script += "function=$(complete -p hypar-opt | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\n"
    for words in some:
        script += f"""
    COMP_WORDS=(hypar-opt {words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
    $function hypar-opt
    echo "${{COMPREPLY[@]}}"
    """
    env = os.environ | {"PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"}
    offered = ended("bash", "-c", script, env=env).stdout.splitlines()
    assert [" ".join(line.split()) for line in offered] == [OFFERED[words] for words in some]


# What is refused, and how a command ends.


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("solve vgg-aa", "unknown network 'vgg-aa': did you mean vgg-a?"),
        ("solve nowhere.toml", "nowhere.toml: cannot be read: No such file or directory"),
        ("solve .", ".: cannot be read: Is a directory"),
        ("solve sfc --solver dq", "unknown solver 'dq': did you mean dp?"),
        ("solve sfc --reading table", "unknown reading 'table': did you mean tables?"),
        ("solve sfc --batch 0", "--batch: should be greater than or equal to 1, got 0"),
        ("solve sfc --batch 1.5", "Invalid value for '--batch'"),
        ("solve sfc --batch nan", "Invalid value for '--batch'"),
        ("solve sfc --batch " + "9" * 5000, "Invalid value for '--batch'"),
        ("solve sfc --levels 65", "--levels: should be less than or equal to 64, got 65"),
        ("solve sfc --output /nowhere/p.json", "/nowhere/p.json: there is no folder"),
        ("solve sfc --output .", ".: should be a file, not a folder"),
        ("solve sfc --output /dev/stdout", "/dev/stdout: should be a file; --json"),
        ("solve " + "x" * 300 + ".toml", "x"),
        ("solve ", "unknown network ''"),
        ("solve sfc --fix fc1", "--fix should be LAYER[@LEVEL]=CHOICE"),
        ("solve sfc --memory much", "--memory: should be bytes, as in 8GB"),
        ("solve sfc --level-weights 8,x", "--level-weights should be whole numbers"),
        ("solve sfc --solver-option x", "--solver-option should be K=V"),
        ("solve sfc --threads 2", "solver 'dp' on SFC: takes no --threads"),
        ("solve sfc --best 0", "--best should be 1 or more, got 0"),
        ("solve sfc --time-limit -1", "--time-limit: should be greater than 0"),
        ("verify", "verify takes a NETWORK, a PLAN, or --random N"),
        ("verify sfc --certificate x", "--certificate goes with a plan file"),
        ("verify sfc --solvers dp,x", "unknown solver 'x'"),
        ("solve", "Missing argument 'NETWORK'; see hypar-opt solve --help"),
        ("solve sfc --depth 3", "No such option: --depth"),
        ("slove sfc", "No such command 'slove'"),
        ("show", "show takes a NETWORK, a PLAN or an ARRAY, or --schema"),
        ("show sfc --schema", "unknown command with --json 'sfc'"),
        ("show solve --schema --rerun", "--schema takes no other option"),
        ("show sfc --rerun", "--rerun takes a plan file, and 'sfc' is a network"),
        ("show plan.json", "plan.json: cannot be read: No such file or directory"),
        ("verify plan.json", "plan.json: cannot be read: No such file or directory"),
        ("export plan.json --to json", "plan.json: cannot be read: No such file or directory"),
        ("simulate sfc --array ", "unknown array ''"),
        *(
            (
                f"simulate sfc --levels {levels}",
                "--levels should be from 1 to 6 for the paper's arrays, which have 2 to 64"
                f" accelerators, got {levels}; name another"
                " with --array",
            )
            for levels in (0, -1, 7)
        ),
        ("simulate sfc --collective tree", "unknown collective 'tree': known: pairwise, ring"),
        ("simulate sfc --overlap all", "unknown overlap 'all': known: none, gradient"),
        ("simulate sfc --trace /nowhere/t.json", "/nowhere/t.json: there is no folder '/nowhere'"),
        ("solve sfc --picture -", "--picture -: should be a file, which ends in .png"),
        ("solve sfc --picture /proc/x.svg", "--picture /proc/x.svg: should be a file"),
        ("simulate sfc --trace .", ".: should be a file, not a folder"),
        (
            "simulate sfc --profile none.toml",
            "none.toml: cannot be read: No such file or directory",
        ),
        ("explore lenet-c --free all --picture it.png", "--picture draws two levels or two layers"),
        (
            "solve lenet-c --simulate 3",
            "--simulate needs an array: --array NAME|FILE (list arrays)",
        ),
        (
            "solve lenet-c --array hmc-htree-16 --simulate 0",
            "--simulate should be 1 or more, got 0",
        ),
    ],
)
def test_a_wrong_call_ends_with_2_and_one_line(line: str, complaint: str, shell: Shell) -> None:
    assert shell.refused(*line.split(" ")).startswith(complaint)


def test_a_refusal_is_one_line_in_a_process_too(tmp_path: Path) -> None:
    done = forked(["solve", "sfc", "--cost", "time"], tmp_path)
    assert (done.status, done.output) == (2, "")
    assert done.errors.startswith("hypar-opt: ")
    assert done.errors.count("\n") == 1


def test_what_has_no_answer_has_a_status_of_its_own(tmp_path: Path, shell: Shell) -> None:
    late = ["solve", chain(tmp_path, 3000), "--levels", "64", "--time-limit", "1e-9"]
    said = shell.refused(*late, "--fix", "*@H1=data", "--fix", "*@H2=model", status=3)
    assert said.endswith("no answer within the time limit")
    said = shell.refused("simulate", "sfc", "--memory", "1kB", status=4)
    assert said.startswith("--memory: no plan fits 1,000 bytes per accelerator")
    said = shell.refused("solve", chain(tmp_path, 25), "--solver", "brute")
    assert "at most 16,777,216 assignments, and there are 33,554,432" in said


def test_a_warm_start_is_a_plan_of_the_same_problem(tmp_path: Path, shell: Shell) -> None:
    file = tmp_path / "plan.json"
    ho.write_plan(ho.solve("lenet-c", solver="trick"), file)
    start = ["--warm-start", file]
    for solver in ("ilp", "cpsat"):
        for search in ("levelwise", "joint"):
            shell.output("solve", "lenet-c", "--solver", solver, "--search", search, *start)
    said = shell.refused("solve", "sconv", "--solver", "ilp", *start)
    assert "a warm start should be a plan of the same network" in said
    assert "takes no --warm-start" in shell.refused("solve", "lenet-c", *start)


@pytest.mark.parametrize(("solver", "suffix"), [("ilp", "mps"), ("ilp", "lp"), ("cpsat", "pb")])
def test_models_are_exported_one_a_level_or_one_for_all(
    solver: str, suffix: str, tmp_path: Path, shell: Shell
) -> None:
    model = tmp_path / f"model.{suffix}"
    args = ["solve", "lenet-c", "--levels", "2", "--solver", solver, "--export-model"]
    shell.output(*args, model)
    assert {file.name for file in tmp_path.iterdir()} == {f"model-H{n}.{suffix}" for n in (1, 2)}
    shell.output(*args, model, "--search", "joint")
    assert model.stat().st_size > 0
    shell.refused(*args, model.with_suffix(".txt"))


@pytest.mark.parametrize(
    "options",
    [
        "--batch 1",
        "--batch 7 --levels 5",
        "--levels 30",
        "--levels 64 --element-bytes 1 --batch 1",
        "--batch 2147483647 --levels 64 --solver model",
    ],
)
def test_extremes_are_solved(options: str, shell: Shell) -> None:
    assert "total" in shell("solve", "alexnet", *options.split())[1]


def test_a_chain_of_10_000_layers_is_solved(tmp_path: Path, shell: Shell) -> None:
    file = chain(tmp_path, 10_000)
    shown = shell("solve", file, "--output", str(tmp_path / "plan.json"))[1]
    document = json.loads((tmp_path / "plan.json").read_text())
    assert [len(row) for row in document["parallelism"]] == [10_000] * 4
    assert document["solver"]["bound"] == document["cost"]["total"]
    assert max(map(len, shown.splitlines())) <= 120


def test_a_reader_that_goes_away_causes_no_traceback() -> None:
    done = piped("hypar show --schema | head -n 1")
    assert (done.stdout, done.stderr) == ("{\n", "")
    for call in ("--help", "solve --help", "list formats"):
        done = piped(f"(hypar {call}; echo $? >&2) | true")
        assert (done.stdout, done.stderr) == ("", f"{BROKEN_PIPE}\n")
    full = piped("hypar show --schema > /dev/full")
    assert full.returncode == 2
    assert full.stderr == "hypar-opt: standard output: No space left on device\n"


@pytest.mark.parametrize("command", ["solve sfc --json", "--version", "solve --help"])
def test_a_result_that_nobody_gets_is_an_error(command: str) -> None:
    closed = piped(f"hypar {command} >&-", stderr=subprocess.PIPE)
    assert (closed.returncode, closed.stderr) == (2, "hypar-opt: standard output: is closed\n")


def test_messages_that_nobody_gets_are_dropped(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for errors in ("2>&-", "2>/dev/full"):
        done = piped(f"hypar solve cifar-c {errors} >{out}", stdin=None)
        assert done.returncode == 0
        assert "Cifar-c" in out.read_text()


COMMAND_LINE = {"annotated_doc", "shellingham", "typer"}
TERMINAL = {"attr", "markdown_it", "mdurl", "pygments", "rich"}
CHECKING = {"annotated_types", "pydantic", "pydantic_core", "typing_extensions"}
CHECKING |= {"typing_inspection"}


def test_nothing_is_imported_that_a_call_does_not_use() -> None:
    code = (
        "import sys; before = {*sys.modules};"
        "from hypar_opt.cli.app import run; status = run(sys.argv[1:]);"
        "names = {name.partition('.')[0] for name in {*sys.modules} - before};"
        "print(*names - sys.stdlib_module_names, file=sys.stderr); sys.exit(status)"
    )

    def imported(*args: str) -> set[str]:
        done = ended(sys.executable, "-c", code, *args)
        names = {name for name in done.stderr.split() if not name.startswith("_sysconfigdata")}
        return names - {"hypar_opt", *COMMAND_LINE}

    assert imported("--help") <= {"typing_extensions"}
    assert imported("solve", "--help") <= CHECKING  # Typer's own, to read defaults
    assert imported("solve", "vgg-a") <= {"numpy", *CHECKING, *TERMINAL}
    assert imported("configure", "gpt2", "--array", "h100-8", "--batch", "8") <= {
        "numpy",
        *CHECKING,
        *TERMINAL,
    }


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
    assert (running.returncode, err) == (130, "")
    assert not output.exists()
    until(lambda: not marked(mark))
