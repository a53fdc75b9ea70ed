"""A sweep's table is the same however it came about: cores, a cluster, kills in between."""

from __future__ import annotations

import csv
import fcntl
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.studies.sweep import journal_of, sweep
from hypar_opt.studies.sweep.case import COLUMNS, run_case
from hypar_opt.studies.sweep.journal import Journal
from hypar_opt.studies.sweep.run import _cores as cores
from hypar_opt.studies.sweep.run import _only_installed_modules as only_installed_modules
from hypar_opt.studies.sweep.run import _run_chunk, is_solved_together
from hypar_opt.studies.sweep.spec import read_spec
from tests.cli.shell import Shell, written
from tests.clocks import until
from tests.commands import ended

COMMAND = Path(sys.executable).with_name("hypar-opt")

SMALL = """
schema = "hypar-opt/sweep/1"
networks = ["lenet-c", "sfc"]
batches = [32, 256]
levels = [2]
solvers = ["data", "dp", "dp joint"]
overlap = ["none", "gradient"]
readings = ["text", "executed"]
"""
LONG = """
schema = "hypar-opt/sweep/1"
networks = ["lenet-c", "sfc"]
batches = [64, 256, 512, 1024]
arrays = ["hmc-htree-4", "hmc-torus-4"]
overlap = ["none", "gradient"]
solvers = ["gated"]
"""
LONG_CASES = 32
GATED = """
import os, pathlib, time
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
class Gated(DynamicProgramming):
    def solve(self, table, options):
        folder = pathlib.Path(os.environ["GATED"])
        journal = folder / "t.csv.journal"
        while not (folder / "open").exists() and (
            journal.exists() and journal.read_bytes().count(b"\\n") > 8
        ):
            time.sleep(0.01)
        return super().solve(table, options)
"""
"""A solver from elsewhere with which a sweep stays where it is after some eight cases."""


@pytest.fixture
def gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment in which processes find that solver; return the file that frees it."""
    env = written(tmp_path, {"gated": GATED}, ["[hypar_opt.solvers]", "gated = gated:Gated"])
    monkeypatch.setenv("PYTHONPATH", env["PYTHONPATH"])
    monkeypatch.setenv("GATED", str(tmp_path))
    return tmp_path / "open"


@pytest.fixture
def whole(gated: Path) -> bytes:
    """The table of the long sweep, of one process."""
    folder = gated.parent / "whole"
    folder.mkdir()
    spec, table = spec_of(folder, LONG), folder / "whole.csv"
    subprocess.run([COMMAND, "sweep", spec, "-o", table, "--workers", "1"], check=True)
    return table.read_bytes()


def spec_of(folder: Path, text: str) -> Path:
    file = folder / "spec.toml"
    file.write_text(text)
    return file


def lines_of(table: Path) -> list[str]:
    """The keys of a journal's whole lines."""
    journal = journal_of(table)
    if not journal.exists():
        return []
    return [
        json.loads(line)["key"]
        for line in journal.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]


@contextmanager
def started(*command: str | Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


COSTS = """
networks = ["lenet-c"]
element_bytes = [4, 2]
arrays = ["hmc-torus-4"]
costs = ["bytes", "time", "energy"]
solvers = ["dp", "dp levelwise"]
readings = ["figures"]
"""


@pytest.mark.parametrize(
    ("text", "cases", "first"),
    [
        (
            SMALL,
            48,
            [
                ("levelwise", "data", *rest)
                for rest in (
                    ("none", "text"),
                    ("none", "executed"),
                    ("gradient", "text"),
                    ("gradient", "executed"),
                )
            ],
        ),
        (
            COSTS,
            12,
            [
                (search, "dp", "none", "figures")
                for search in (
                    "levelwise",
                    "levelwise",
                    "joint",
                    "levelwise",
                )
            ],
        ),
    ],
)
def test_each_row_is_what_simulating_its_case_says(
    text: str, cases: int, first: list[tuple[str, ...]], tmp_path: Path
) -> None:
    table = tmp_path / "t.csv"
    swept = sweep(spec_of(tmp_path, text), table, workers=1)
    assert (len(swept), swept.done_before, swept.refused) == (cases, 0, 0)
    with table.open() as stream:
        rows = list(csv.DictReader(stream))
    by_time = ["speedup"] * any(row.cost == "time" for row in swept)
    assert list(rows[0]) == [*COLUMNS, *by_time]
    order = ("search", "solver", "overlap", "reading")
    assert [tuple(row[name] for name in order) for row in rows[:4]] == first
    for row in swept[:: 5 if text is SMALL else 1]:
        asked: Any = {"batch": row.batch, "array": row.array, "reading": row.reading}
        asked |= {"element_bytes": row.element_bytes, "cost": row.cost}
        plan = ho.solve(row.network, solver=row.solver, search=row.search, **asked)
        step = ho.simulate(plan, overlap=row.overlap or "none")
        assert (row.seconds, row.joules) == (step.seconds, step.energy.total)
        moved = problem_of(**{**dict(plan.problem), "cost": "bytes"})
        priced = price(Instance(plan.network.description, moved), plan.assignments())
        assert row.bytes == priced.total
        assert (row.status, row.reason) == (plan.solver.status, None)
        if row.cost == "time":
            data = ho.solve(row.network, solver="data", **asked)
            assert row.speedup == pytest.approx(data.cost.total / plan.cost.total, rel=1e-12)
        else:
            assert row.speedup is None
    assert [json.loads(row["bytes"]) for row in rows] == [row.bytes for row in swept]


PRICED = """
networks = ["lenet-c", "tiny"]
batches = [96]
element_bytes = [1, 4]
arrays = ["hmc-htree-4", "hmc-torus-16"]
choices = ["data,model", "data,model,output"]
solvers = ["dp", "dp joint", "cut"]
simulate = false
"""


def test_hierarchies_are_priced_without_an_array(tmp_path: Path) -> None:
    """Of any parts, whose prime factors are levels; a batch that three do not divide says so."""
    text = """
networks = ["lenet-c"]
batches = [48, 50]
hierarchies = [[6, 8], [3], [2, 2]]
solvers = ["dp joint"]
simulate = false
"""
    spec, table = spec_of(tmp_path, text), tmp_path / "t.csv"
    swept = sweep(spec, table, workers=1)
    by_case = {(row.batch, row.array): row for row in swept}
    asked: Any = {"search": "joint"}
    for sizes, shown in (
        ((6, 8), "2 x 3 x 2 x 2 x 2 = 48 accelerators"),
        ((3,), "3 accelerators"),
        ((2, 2), "2^2 = 4 accelerators"),
    ):
        plan = ho.solve("lenet-c", batch=48, hierarchy=sizes, **asked)
        row = by_case[48, shown]
        assert (row.levels, row.reading) == (plan.levels, plan.cost.reading)
        assert (row.bytes, row.executed_bytes) == (plan.cost.total, plan.cost.executed_bytes)
        assert row.seconds is None
        assert by_case[50, shown].bytes is not None
    assert sweep(spec, table, workers=1).done_before == len(swept) == 6
    whole = spec_of(tmp_path, f"{text}whole_levels = true\n")
    assert sweep(whole, tmp_path / "w.csv", workers=1)[0].array == "6 x 8 = 48 accelerators"
    for wrong, said in (("[3, 1]", r"H2 should have 2 to .* parts"), ("[6, 2, 4]", "there twice")):
        spec = spec_of(tmp_path, text.replace("[3]", wrong))
        with pytest.raises(ho.HyparError, match=rf"hierarchies\[1\]: .*{said}"):
            sweep(spec, table)


def test_without_simulation_chains_are_solved_together_to_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny.toml").write_text(
        'name = "tiny"\ninput = { features = 3 }\n[[layer]]\nname = "fc"\nkind = "fc"\nunits = 5\n'
    )
    text = PRICED.replace('"tiny"', '"tiny.toml"')
    together, alone = tmp_path / "together.csv", tmp_path / "alone.csv"
    with_readings = spec_of(tmp_path, text + 'readings = ["text", "executed"]\n')
    swept = sweep(with_readings, together, workers=1)
    monkeypatch.setattr("hypar_opt.studies.sweep.is_solved_together", lambda case: False)
    sweep(with_readings, alone, workers=1)
    assert together.read_bytes() == alone.read_bytes()
    # Minimum cuts are of two choices.
    assert {row.status for row in swept} == {"optimal", "refused"}
    assert {(row.seconds, row.joules, row.memory_bytes, row.overlap) for row in swept} == {
        (None,) * 4
    }


def test_tensor_among_choices_is_model_and_output(tmp_path: Path) -> None:
    text = 'networks = ["sfc"]\nbatches = [64]\nchoices = ["data,tensor", "data,tensor,tokens"]\n'
    choices = [case.choices for case in read_spec(spec_of(tmp_path, text))]
    assert choices == ["data,model,output", "data,model,output,tokens"]


def test_all_choices_are_those_of_a_single_solve(tmp_path: Path) -> None:
    text = 'networks = ["lenet-c"]\nbatches = [64]\nchoices = ["all"]\ncosts = ["bytes", "time"]\n'
    text += 'arrays = ["tpu-v4-8", "tpu-v2-v3-16"]\n'
    for readings in ("", 'readings = ["executed"]\n'):
        for case in read_spec(spec_of(tmp_path, text + readings)):
            asked: Any = {"cost": case.cost, "reading": "executed" if readings else None}
            asked |= {"array": case.names[1], "choices": "all"}
            problem = problem_of(find_network("lenet-c"), **asked)
            assert (case.choices, case.reading) == (",".join(problem.choices), problem.reading)
    plan = ho.solve("lenet-c", batch=64, **asked)
    assert run_case(case).executed_bytes == plan.cost.executed_bytes


def test_what_is_solved_together_is_in_bytes_by_dp_with_two_choices(tmp_path: Path) -> None:
    text = PRICED.replace('"tiny"', '"resnet-18"') + 'costs = ["bytes", "time"]\n'
    for case in read_spec(spec_of(tmp_path, text)):
        plan = ("bytes", "dp", "data,model")
        assert is_solved_together(case) == ((case.cost, case.solver, case.choices) == plan)
    for case in read_spec(spec_of(tmp_path, SMALL)):
        assert not is_solved_together(case)
    # There plans are those that can run, unless an array is the paper's.
    text = 'networks = ["lenet-c"]\narrays = ["h100-8x8"]\ncosts = ["bytes"]\nsimulate = false\n'
    assert not any(map(is_solved_together, read_spec(spec_of(tmp_path, text))))


def test_all_networks_may_be_asked_for_by_text_or_in_a_list(tmp_path: Path) -> None:
    by_text, listed = (
        read_spec(spec_of(tmp_path, f"networks = {asked}")) for asked in ('"all"', '["all"]')
    )
    assert by_text == listed
    assert len(listed) == len(ho.models.names())


def test_one_worker_for_each_core_that_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5}, raising=False)
    assert cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert cores() == 7


def test_cores_give_the_table_of_one_process(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, SMALL)
    one, two = tmp_path / "1.csv", tmp_path / "2.csv"
    sweep(spec, one, workers=1)
    seen: list[tuple[int, int]] = []
    sweep(spec, two, workers=2, progress=lambda done, of: seen.append((done, of)))
    assert one.read_bytes() == two.read_bytes()
    assert seen == [(done, 48) for done in range(49)]


@pytest.mark.slow
def test_a_script_without_a_guard_sweeps_on_all_cores_also_if_it_is_no_file(tmp_path: Path) -> None:
    spec, table = spec_of(tmp_path, SMALL), tmp_path / "table.csv"
    script = (
        f"import hypar_opt as ho; print(len(ho.sweep({str(spec)!r}, {str(table)!r}, workers=2)))"
    )
    (tmp_path / "script.py").write_text(script)
    for call in ("-", tmp_path / "script.py"):
        done = ended(sys.executable, call, input=script)
        assert int(done.stdout) == len(read_spec(spec))
        journal_of(table).unlink()


def test_two_threads_that_start_processes_leave_the_callers_script_as_it_was() -> None:
    main, safe = sys.modules["__main__"], os.environ.get("PYTHONSAFEPATH")
    entered, leave = Event(), Event()

    def start() -> None:
        with only_installed_modules():
            entered.set()
            leave.wait()

    other = Thread(target=start)
    with only_installed_modules():
        assert (sys.modules["__main__"] is main, os.environ["PYTHONSAFEPATH"]) == (False, "1")
        other.start()
        # The other one waits: else it would take this one's substitute for the script.
        assert not entered.wait(0.1)
    leave.set()
    other.join()
    assert sys.modules["__main__"] is main
    assert os.environ.get("PYTHONSAFEPATH") == safe


def test_a_sweep_that_was_killed_goes_on_and_simulates_nothing_twice(
    tmp_path: Path, gated: Path, whole: bytes
) -> None:
    spec, table = spec_of(tmp_path, LONG), tmp_path / "t.csv"
    with started(COMMAND, "sweep", spec, "-o", table, "--workers", "2") as killed:
        until(lambda: len(lines_of(table)) >= LONG_CASES // 4)
        children = Path(f"/proc/{killed.pid}/task/{killed.pid}/children").read_text().split()
        killed.send_signal(signal.SIGKILL)
    until(lambda: not any(_lives(pid) for pid in children))  # its workers go with it
    before = lines_of(table)
    assert LONG_CASES // 4 <= len(before) < LONG_CASES
    assert not table.exists()
    with journal_of(table).open("a") as stream:
        stream.write('{"key": "torn')  # as if it had been killed while writing
    gated.touch()
    done = subprocess.run(
        [COMMAND, "sweep", spec, "-o", table, "--workers", "1", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["before"] == len(before)
    after = lines_of(table)
    assert after[: len(before)] == before
    assert len(set(after)) == len(after) == LONG_CASES
    assert table.read_bytes() == whole


def _lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_process_that_is_killed_ends_the_sweep_in_one_line(
    tmp_path: Path, gated: Path
) -> None:
    spec, table = spec_of(tmp_path, LONG), tmp_path / "t.csv"
    command = (COMMAND, "sweep", spec, "-o", table, "--workers", "2")
    with started(*command, stderr=subprocess.PIPE) as running:
        until(lambda: len(lines_of(table)) >= 4)
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        worker = next(
            pid for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()
        )
        os.kill(int(worker), signal.SIGKILL)
        _, err = running.communicate()
    assert running.returncode == 2
    assert err.startswith("hypar-opt: a worker process was killed, perhaps for lack of memory;")
    assert err.count("\n") == 1
    assert 4 <= len(lines_of(table)) < LONG_CASES


def test_ctrl_c_ends_with_130_and_one_line(tmp_path: Path, gated: Path) -> None:
    spec, table = spec_of(tmp_path, LONG), tmp_path / "t.csv"
    # In a session of its own, so that all of its processes get the signal, as in a terminal.
    with started(
        *(COMMAND, "sweep", spec, "-o", table, "--workers", "2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as running:
        until(lambda: len(lines_of(table)) >= 4)
        os.killpg(running.pid, signal.SIGINT)
        out, err = running.communicate()
    assert running.returncode == 130
    assert out == ""
    done = len(lines_of(table))
    assert 4 <= done < LONG_CASES
    assert err == f"hypar-opt: stopped after {done} of {LONG_CASES} cases; rerun to resume\n"
    assert not table.exists()


def test_a_changed_sweep_keeps_what_still_applies(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    sweep(spec_of(tmp_path, SMALL), table, workers=1)
    changed = SMALL.replace('"sfc"', '"sconv"').replace("[32, 256]", "[256, 64]")
    swept = sweep(spec_of(tmp_path, changed), table, workers=1)
    assert (len(swept), swept.done_before) == (48, 12)
    assert [row.batch for row in swept[::12]] == [256, 64, 256, 64]
    again = sweep(spec_of(tmp_path, SMALL), table, workers=1)
    assert again.done_before == 48


def test_a_refused_case_is_a_row_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SMALL.replace('"data"', '"brute joint"').replace('"sfc"', '"vgg-e"')
    table = tmp_path / "t.csv"
    args = ["sweep", str(spec_of(tmp_path, text)), "-o", str(table), "--workers", "1"]
    assert run([*args, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    refused = [row for row in document["rows"] if row["status"] == "refused"]
    assert len(refused) == document["refused"] > 0
    assert {row["solver"] for row in refused} == {"brute"}
    assert all("solver 'brute' on" in row["reason"] for row in refused)
    assert all(row["seconds"] is None for row in refused)
    assert run(args) == 0
    assert capsys.readouterr().out == (
        f"{table}: 48 rows, {len(refused)} of them refused, 48 done before\n"
    )


def test_parquet_has_the_csvs_rows(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    text = SMALL.replace('"dp joint"', '"brute joint"').replace('"sfc"', '"vgg-e"')
    spec = spec_of(tmp_path, text)
    sweep(spec, tmp_path / "t.csv", workers=1)
    sweep(spec, tmp_path / "t.parquet", workers=1)
    found = parquet.read_table(tmp_path / "t.parquet")
    with (tmp_path / "t.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert found.column_names == list(rows[0])
    assert [
        {key: "" if value is None else str(value) for key, value in row.items()}
        for row in found.to_pylist()
    ] == rows


def test_a_network_and_an_array_may_be_files_beside_the_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = 'name = "mine"\ninput = { features = 8 }\n[[layer]]\nname = "fc"\nkind = "fc"\n'
    (tmp_path / "mine.toml").write_text(network + "units = 4\n")
    preset = Path(ho.__file__).parent / "hardware" / "arrays" / "hmc-torus-4.toml"
    (tmp_path / "here.toml").write_text(preset.read_text())
    text = 'schema = "hypar-opt/sweep/1"\nnetworks = ["mine.toml"]\narrays = ["here.toml"]\n'
    monkeypatch.chdir("/")
    swept = sweep(spec_of(tmp_path, text), tmp_path / "t.csv")
    assert [(row.network, row.array, row.levels) for row in swept] == [("mine", "hmc-torus-4", 2)]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"lenet-c"', '"lenet"', "networks[0]: unknown network 'lenet': did you mean lenet-c?"),
        ('"lenet-c"', '"SFC"', "networks[1]: 'sfc' is listed twice"),
        ('"lenet-c"', '"all"', "networks[1]: 'sfc' is listed twice"),
        ('"lenet-c"', '"no.toml"', "networks[0]: {folder}/no.toml: cannot be read"),
        ('["lenet-c", "sfc"]', "[]", "networks: should have at least one entry, got []"),
        ("networks", "network", "unknown key 'network': did you mean networks"),
        ("sweep/1", "sweep/2", "schema: 'hypar-opt/sweep/2' is newer than this version"),
        ("[32, 256]", "[0]", "batches[0]: should be greater than or equal to 1, got 0"),
        ("[32, 256]", '["32"]', 'batches[0]: should be a whole number, got "32"'),
        ("[32, 256]", "[32, 32]", "batches[1]: '32' is listed twice"),
        (
            "levels = [2]",
            "element_bytes = [4, 3]",
            "element_bytes[1]: unknown element size '3': known: 1, 2, 4, 8",
        ),
        (
            "levels = [2]",
            "element_bytes = [4.0]",
            "element_bytes[0]: should be a whole number, got 4.0",
        ),
        ("levels = [2]", "element_bytes = [2, 2]", "element_bytes[1]: '2' is listed twice"),
        ("levels = [2]", 'costs = ["tim"]', "costs[0]: unknown cost 'tim': did you mean time?"),
        ('["lenet-c", "sfc"]', '"sfc"', 'networks: should be an array, got "sfc"'),
        ("[2]", "[7]", "levels[0]: should be less than or equal to 6, got 7"),
        (
            "levels = [2]",
            'levels = [2, 3]\narrays = ["hmc-htree-4"]',
            "arrays[0]: hmc-htree-4 has 4 accelerators, 2 levels, which does not fit 3 among",
        ),
        ("levels = [2]", 'arrays = ["hmc"]', "arrays[0]: unknown array 'hmc'"),
        ('"data"', '"dq"', "solvers[0]: unknown solver 'dq': did you mean dp?"),
        ('"data"', '"dp jointly"', "solvers[0]: unknown search 'jointly': did you mean joint?"),
        ('"data"', '"dp"', "solvers[1]: 'dp' is listed twice"),
        ('"data"', '"a b c"', "solvers[0]: should be a solver, or a solver and a search"),
        ('"data"', '""', "solvers[0]: should be a solver, or a solver and a search"),
        ('"none"', '"full"', "overlap[0]: unknown overlap 'full': known: none, gradient"),
        ('"text"', '"txt"', "readings[0]: unknown reading 'txt': did you mean text?"),
        (
            "levels = [2]",
            'choices = ["data"]',
            "choices[0]: should be 'all', or 'data,model' and some of output,tokens,rows,columns,",
        ),
        (
            "levels = [2]",
            "simulate = false",
            "overlap: is of simulated steps; leave it out, or simulate = false",
        ),
        ("levels = [2]", "simulate = 0", "simulate: should be true or false, got 0"),
        ("levels = [2]", "levels = [2]\nhierarchies = [[3]]", "hierarchies: state the levels"),
        ("levels = [2]", "hierarchies = [[3]]", "simulate: should be false with hierarchies"),
        ("schema =", "schema", "should be TOML"),
    ],
)
def test_a_wrong_sweep_is_refused_in_one_line_before_any_work(
    old: str, new: str, complaint: str, tmp_path: Path, shell: Shell
) -> None:
    assert old in SMALL
    file = spec_of(tmp_path, SMALL.replace(old, new, 1))
    said = shell.refused("sweep", file)
    assert said.startswith(f"{file}: {complaint.format(folder=tmp_path)}")
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["-o", "t.xlsx"], "t.xlsx: should end in .csv or .parquet"),
        (["-o", "/nowhere/t.csv"], "/nowhere/t.csv: there is no folder"),
        (["--workers", "0"], "--workers should be 1 or more, got 0"),
        (["--workers", "2", "--scheduler", "tcp://127.0.0.1:1"], "--workers is for this machine"),
        (["--scheduler", "nowhere"], "--scheduler should be an address, as tcp://HOST:8786"),
    ],
)
def test_a_wrong_call_is_refused_in_one_line(
    args: list[str], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    spec = spec_of(tmp_path, SMALL)
    monkeypatch.chdir(tmp_path)
    assert shell.refused("sweep", spec, *args).startswith(complaint)
    assert list(tmp_path.iterdir()) == [spec]


def test_a_table_is_not_written_over_its_sweep(tmp_path: Path, shell: Shell) -> None:
    file = spec_of(tmp_path, SMALL).rename(tmp_path / "spec.csv")
    said = f"{file}: is read or written already; write to another"
    assert shell.refused("sweep", file) == said
    assert file.read_text() == SMALL


def test_what_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell
) -> None:
    spec = spec_of(tmp_path, SMALL)
    monkeypatch.setitem(sys.modules, "distributed", None)
    said = shell.refused("sweep", spec, "--scheduler", "tcp://127.0.0.1:1")
    assert said == "--scheduler needs Dask's distributed: pip install 'hypar-opt[dask]'"
    monkeypatch.setattr("hypar_opt.studies.sweep.table.find_spec", lambda name: None)
    said = shell.refused("sweep", spec, "-o", "t.parquet")
    assert said == "t.parquet: Parquet needs pyarrow: pip install 'hypar-opt[parquet]'"


def test_a_worker_of_another_version_is_refused(tmp_path: Path) -> None:
    case = read_spec(spec_of(tmp_path, SMALL))[0]
    with pytest.raises(ho.HyparError, match=r"a worker has hypar-opt .*, and the sweep is of 0\.0"):
        run_case(replace(case, version="0.0"))


def test_two_sweeps_do_not_share_a_journal(tmp_path: Path, gated: Path) -> None:
    spec, table = spec_of(tmp_path, LONG), tmp_path / "t.csv"
    with started(COMMAND, "sweep", spec, "-o", table, "--workers", "1"):
        until(lambda: lines_of(table))
        second = subprocess.run(
            [COMMAND, "sweep", spec, "-o", table], capture_output=True, text=True, check=False
        )
    assert second.returncode == 2
    assert "another sweep is using it" in second.stderr


def test_a_journal_that_is_removed_before_it_is_locked_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another sweep that did nothing leaves just then."""
    path, lock = tmp_path / "t.csv.journal", fcntl.flock
    removed: list[IO[bytes]] = []

    def flock(stream: IO[bytes], how: int) -> None:
        if len(removed) < 2:  # once gone, once another file in its place
            path.unlink()
            if removed:
                path.touch()
            removed.append(stream)
        lock(stream, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    row = run_case(read_spec(spec_of(tmp_path, SMALL))[0])
    with Journal(path) as journal:
        assert all(stream.closed for stream in removed)
        journal.add("key", row)
    assert len(removed) == 2
    with Journal(path) as journal:
        assert journal.rows == {"key": row}


def test_rows_of_one_second_wait_for_the_disk_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = run_case(read_spec(spec_of(tmp_path, PRICED.replace(', "tiny"', "")))[0])
    table, now, waited = tmp_path / "t.csv", [100.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "fsync", lambda file: waited.append(len(lines_of(table))))
    with Journal(journal_of(table)) as journal:
        for second in (0, 0.1, 0.2, 1.1, 1.2):
            now[0] = 100 + second
            journal.add(f"key {second}", row)
            # Whatever is on the disk, a row outlives the process at once.
            assert lines_of(table)[-1] == f"key {second}"
        assert waited == [1, 4]
    assert waited == [1, 4, 5]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError, OSError])
def test_dasks_log_speaks_again_whatever_happens(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def client(*args: object, **options: object) -> None:
        assert log.level > logging.CRITICAL
        raise error

    log = logging.getLogger("distributed.client")
    monkeypatch.setattr("distributed.Client", client)
    level = log.level
    with pytest.raises(ho.HyparError if error is OSError else error):
        sweep(spec_of(tmp_path, SMALL), tmp_path / "t.csv", scheduler="tcp://127.0.0.1:1")
    assert log.level == level


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    spec, table = spec_of(tmp_path, SMALL), tmp_path / "t.csv"
    journal_of(table).write_text("hello\n")
    with pytest.raises(ho.HyparError, match=r"t\.csv\.journal, line 1: should be JSON"):
        sweep(spec, table)
    assert journal_of(table).read_text() == "hello\n"


def test_a_row_of_a_journal_that_was_edited_is_refused(tmp_path: Path) -> None:
    spec, table = spec_of(tmp_path, SMALL), tmp_path / "t.csv"
    sweep(spec, table, workers=1)
    journal = journal_of(table)
    first, *others = journal.read_text().splitlines()
    entry = json.loads(first)
    edits = [{**entry, "key": "another"}]
    for name, value in entry["row"].items():
        other = value + 1 if isinstance(value, int | float) else f"{value}x"
        edits.append({**entry, "row": {**entry["row"], name: other}})
    for edit in edits:
        journal.write_text("\n".join([json.dumps(edit), *others, ""]))
        with pytest.raises(ho.HyparError, match=r"t\.csv\.journal, line 1"):
            sweep(spec, table)
    # Spaces are not what it says.
    spaced = json.dumps(entry, separators=(" ,  ", " : "))
    journal.write_text("\n".join([spaced, *others, ""]))
    assert sweep(spec, table, workers=1).done_before == len(others) + 1


def test_a_task_ends_after_a_while_and_returns_what_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases: list[Any] = [(str(number), number) for number in range(3)]
    rows: list[Any] = [("0", 0), ("1", -1), ("2", -2)]
    monkeypatch.setattr("hypar_opt.studies.sweep.run.run_case", lambda case: -case)
    monkeypatch.setattr("hypar_opt.studies.sweep.run.CHUNK_SECONDS", 1000)
    assert _run_chunk(cases) == (rows, [])
    monkeypatch.setattr("hypar_opt.studies.sweep.run.CHUNK_SECONDS", -1)
    assert _run_chunk(cases) == (rows[:1], cases[1:])


@pytest.mark.slow
def test_on_a_cluster_that_loses_a_worker_the_table_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gated: Path, whole: bytes
) -> None:
    """A real scheduler and two workers on loopback; one is killed half-way."""
    from distributed import Client

    spec, table = spec_of(tmp_path, LONG), tmp_path / "t.csv"
    dask, address = [sys.executable, "-m"], tmp_path / "scheduler.json"
    local = ["--host", "127.0.0.1", "--no-dashboard", "--dashboard-address", "127.0.0.1:0"]
    logs = [tmp_path / f"worker-{number}.log" for number in range(2)]
    with ExitStack() as stack:
        stack.enter_context(
            started(
                *(*dask, "distributed.cli.dask_scheduler", *local, "--port", "0"),
                *("--scheduler-file", address),
                stderr=subprocess.DEVNULL,
                cwd=tmp_path,
            )
        )
        until(lambda: address.exists() and address.read_text().endswith("}"))
        scheduler = json.loads(address.read_text())["address"]
        assert scheduler.startswith("tcp://127.0.0.1:")
        small = spec_of(gated.parent / "whole", SMALL)
        with monkeypatch.context() as patch:
            wait = Client.wait_for_workers
            patch.setattr(
                Client, "wait_for_workers", lambda self, n, timeout: wait(self, n, timeout=0.01)
            )
            with pytest.raises(ho.HyparError, match=r"no worker has joined within 30 s"):
                sweep(small, table, scheduler=scheduler)
            patch.setattr("hypar_opt.studies.sweep.run.TIMEOUT", 0.5)
            with pytest.raises(ho.HyparError, match=r"tcp://127\.0\.0\.1:1: cannot be reached"):
                sweep(small, table, scheduler="tcp://127.0.0.1:1")
        workers = [
            stack.enter_context(
                started(
                    *(*dask, "distributed.cli.dask_worker", scheduler, *local),
                    *("--no-nanny", "--nthreads", "1", "--local-directory", tmp_path),
                    stderr=stack.enter_context(log.open("w")),
                    cwd=tmp_path,
                )
            )
            for log in logs
        ]
        until(lambda: all("Registered to" in log.read_text() for log in logs))
        args = [COMMAND, "sweep", spec, "-o", table, "--scheduler", scheduler, "--json"]
        running = stack.enter_context(
            started(*args, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        until(lambda: len(lines_of(table)) >= LONG_CASES // 4)
        assert len(lines_of(table)) < LONG_CASES
        workers[0].send_signal(signal.SIGKILL)
        gated.touch()
        out, err = running.communicate()
    assert (running.returncode, err) == (0, "")
    assert json.loads(out)["before"] == 0
    keys = lines_of(table)
    assert len(set(keys)) == len(keys) == LONG_CASES
    assert table.read_bytes() == whole
