"""No command destroys a file that it reads, nor one output by another, however each is spelled."""

from __future__ import annotations

import csv
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import as_file
from importlib.resources import files as resources
from itertools import combinations, cycle, product
from pathlib import Path

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.documents import files
from hypar_opt.proofs.certificate import certify, write_certificate
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.studies.sweep import sweep
from hypar_opt.studies.sweep.journal import Journal
from tests.cli.shell import COMMAND, Shell
from tests.commands import ended
from tests.hardware.cubes import WIRED
from tests.onnx.graph_writer import EXPORTED

NETWORK = """name = "mine"
input = { features = 64 }
[[layer]]
name = "fc1"
kind = "fc"
units = 32
"""
PROFILE = """batch = 256
[[layer]]
name = "fc1"
forward = "1 us"
backward = "1 us"
gradient = "1 us"
"""
WIRES = {
    "nodes": [{"id": number, "accelerator": number} for number in (0, 1)],
    "edges": [{"source": 0, "target": 1, "bandwidth": "1 GB/s"}],
}
SWEEP = 'networks = ["net.toml"]\narrays = ["array.toml"]\n'

ARRAY = ("array.toml", "wires.json")
READ = {
    "solve net.toml --array array.toml --warm-start start.json --solver ilp": (
        ("net.toml", *ARRAY, "start.json"),
        ("--output", "--certificate", "--solver-log", "--export-model", "--picture"),
    ),
    "simulate net.toml --array array.toml --profile profile.toml": (
        ("net.toml", *ARRAY, "profile.toml"),
        ("--trace", "--output", "--picture"),
    ),
    "simulate plan.json --array array.toml": (
        ("plan.json", *ARRAY),
        ("--trace", "--output", "--picture"),
    ),
    "explore plan.json --free H1": (("plan.json",), ("-o", "--page", "--picture")),
    "pareto net.toml --array array.toml": (("net.toml", *ARRAY), ("-o", "--picture")),
    "configure net.toml --array array.toml": (
        ("net.toml", *ARRAY),
        ("-o", "--csv", "--picture"),
    ),
    "compare net.toml lenet-c --array array.toml,hmc-htree-2": (
        ("net.toml", *ARRAY),
        ("--csv", "--picture"),
    ),
    "report plan.json --certificate proof.json": (("plan.json", "proof.json"), ("-o",)),
    "import model.onnx": (("model.onnx",), ("-o",)),
    "sweep sweep.toml": (("sweep.toml", "net.toml", *ARRAY), ("-o",)),
}
"""Commands, the files that each reads, and its options for an output."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("inputs")
    (at / "sub").mkdir()
    (at / "net.toml").write_text(NETWORK)
    (at / "profile.toml").write_text(PROFILE)
    (at / "array.toml").write_text(WIRED)
    (at / "wires.json").write_text(json.dumps(WIRES))
    (at / "sweep.toml").write_text(SWEEP)
    shutil.copy(EXPORTED / "gpt2.onnx", at / "model.onnx")
    plan = ho.solve(at / "net.toml", array=at / "array.toml")
    ho.write_plan(plan, at / "plan.json")
    ho.write_plan(plan, at / "start.json")
    write_certificate(certify(plan), at / "proof.json")
    return at


@pytest.fixture
def folder(inputs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hard_link(path: Path) -> Path:
    os.link(path, "hard")
    return Path("hard")


def soft_link(path: Path) -> Path:
    Path("soft").symlink_to(path)
    return Path("soft")


def through_a_linked_folder(path: Path) -> Path:
    Path("sub/back").symlink_to("..")
    return Path("sub/back") / path.name


SPELLINGS: tuple[Callable[[Path], Path], ...] = (
    lambda path: path,
    Path.absolute,
    lambda path: Path("sub/..") / path.name,
    soft_link,
    through_a_linked_folder,
    hard_link,
)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def refused(command: tuple[str, ...], folder: Path, shell: Shell) -> str:
    """Return the one line that refuses a command, which changes no file."""
    before = contents(folder)
    said = shell.refused(*command)
    assert contents(folder) == before
    return said


@pytest.mark.parametrize("command", READ)
def test_no_output_goes_over_a_file_that_the_call_reads(
    command: str, folder: Path, shell: Shell
) -> None:
    read, options = READ[command]
    for (name, option), spelled in zip(product(read, options), cycle(SPELLINGS)):
        output = spelled(Path(name))
        said = refused((*command.split(), option, str(output)), folder, shell)
        assert said == f"{output}: is read or written already; write to another"
        for link in ("hard", "soft", "sub/back"):
            Path(link).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("command", "one", "other"),
    [
        (command, one, other)
        for command, (_, options) in READ.items()
        for one, other in combinations(options, 2)
    ],
)
def test_two_outputs_are_two_files(
    command: str,
    one: str,
    other: str,
    folder: Path,
    shell: Shell,
) -> None:
    call = (*command.split(), one, "out.json", other, "sub/../out.json")
    said = refused(call, folder, shell)
    assert said == "sub/../out.json: is read or written already; write to another"


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize("there", [False, True])
def test_one_file_is_one_file_however_it_is_spelled(
    spelled: Callable[[Path], Path], there: bool, folder: Path, shell: Shell
) -> None:
    if there:
        Path("out.json").write_text("kept")
    elif spelled is hard_link:
        return  # of nothing there is none
    again = str(spelled(Path("out.json")))
    call = ("solve", "net.toml", "--output", again, "--certificate", "out.json")
    assert "is read or written already" in refused(call, folder, shell)


def test_a_levelwise_export_spares_the_inputs_that_its_names_for_levels_hit(
    folder: Path, shell: Shell
) -> None:
    network = Path("net.toml").rename("m-H2.lp")
    call = ["solve", "m-H2.lp", "--solver", "ilp", "--export-model", "m.lp"]
    assert shell.refused(*call).startswith("m-H2.lp: is read or written already")
    assert network.read_text() == NETWORK
    call[1:2] = ["lenet-c", "--output", "m-H1.lp"]
    assert run(call) == 2


def test_the_files_behind_names_are_read_too(folder: Path, shell: Shell) -> None:
    for package, name in (
        ("hypar_opt.models", "lenet-c"),
        ("hypar_opt.hardware.arrays", "h100-8x8"),
    ):
        with as_file(resources(package) / f"{name}.toml") as own:
            before = own.read_bytes()
            Path("link").symlink_to(own)
            call = ["solve", "lenet-c", "--array", "h100-8x8", "--output", "link"]
            assert run(call) == 2
            assert own.read_bytes() == before
        Path("link").unlink()


def test_from_python_too(folder: Path) -> None:
    before = contents(folder)
    for name in ("net.toml", "array.toml", "wires.json"):
        for options in (SolverOptions(log=Path(name)), SolverOptions(export=Path("sub/..") / name)):
            with pytest.raises(ho.HyparError, match="is read or written already"):
                ho.solve("net.toml", array="array.toml", solver="ilp", options=options)
    with pytest.raises(ho.HyparError, match="is read or written already"):
        sweep("sweep.toml", "wires.json")
    assert contents(folder) == before


def test_a_journal_is_an_output_too(folder: Path, shell: Shell) -> None:
    for name in ("sweep.toml", "net.toml", "wires.json"):
        for taken in (soft_link, hard_link):
            link = taken(Path(name)).rename("t.csv.journal")
            said = refused(("sweep", "sweep.toml", "-o", "t.csv"), folder, shell)
            assert "t.csv.journal: is read or written already" in said
            link.unlink()
    spec = Path("sweep.toml").rename("t.csv.journal")
    assert run(["sweep", str(spec), "-o", "t.csv"]) == 2
    assert spec.read_text() == SWEEP
    Path("u.csv.journal").symlink_to("u.csv")
    assert run(["sweep", str(spec), "-o", "u.csv"]) == 2


def test_devices_can_be_given_twice(folder: Path) -> None:
    call = ["solve", "net.toml", "--output", "/dev/null", "--certificate", "/dev/null"]
    assert run(call) == 0


@pytest.mark.parametrize(
    "foreign",
    [b"my notes", b"{", b'{"a": 1}', b'{"key": "a\rb', b"\x00" * 9, b'{"key": 1}\n', b"\n"],
)
def test_a_file_that_is_no_journal_stays_as_it_is(foreign: bytes, folder: Path) -> None:
    journal = Path("t.csv.journal")
    journal.write_bytes(foreign)
    assert run(["sweep", "sweep.toml", "-o", "t.csv"]) == 2
    assert journal.read_bytes() == foreign
    assert not Path("t.csv").exists()


def test_a_journal_with_other_line_ends_loses_no_row(folder: Path) -> None:
    assert run(["sweep", "sweep.toml", "-o", "t.csv"]) == 0
    journal = Path("t.csv.journal")
    rows = journal.read_bytes()
    journal.write_bytes(rows.replace(b"\n", b"\r"))
    assert run(["sweep", "sweep.toml", "-o", "t.csv"]) == 2
    assert journal.read_bytes() == rows.replace(b"\n", b"\r")
    journal.write_bytes(rows.replace(b"\n", b"\r\n"))
    assert sweep("sweep.toml", "t.csv").done_before == 1


def test_a_first_row_torn_by_a_kill_is_dropped(folder: Path) -> None:
    sweep("sweep.toml", "t.csv")
    journal = Path("t.csv.journal")
    whole = journal.read_bytes()
    for length in (9, 40, 80, len(whole) - 1):
        journal.write_bytes(whole[:length])
        assert sweep("sweep.toml", "t.csv").done_before == 0
        assert journal.read_bytes() == whole


def test_a_journal_is_a_regular_file(folder: Path, shell: Shell) -> None:
    Path("t.csv.journal").symlink_to("/dev/null")
    said = shell.refused("sweep", "sweep.toml", "-o", "t.csv")
    assert "t.csv.journal: should be a regular file" in said
    assert Path("t.csv.journal").is_symlink()


@pytest.mark.parametrize(
    ("key", "value"), [("network", "=cmd"), ("batch", -5), ("reading", "figures"), ("levels", 7)]
)
def test_a_row_of_a_journal_is_its_cases(
    key: str, value: object, folder: Path, shell: Shell
) -> None:
    sweep("sweep.toml", "t.csv")
    journal = Path("t.csv.journal")
    line = json.loads(journal.read_text())
    line["row"][key] = value
    journal.write_text(json.dumps(line) + "\n")
    Path("t.csv").unlink()
    assert shell.refused("sweep", "sweep.toml", "-o", "t.csv") == (
        "t.csv.journal, line 1: checksum: does not match the row: the line was edited; remove it"
    )
    assert not Path("t.csv").exists()


def test_text_that_a_spreadsheet_would_run_is_quoted_and_numbers_are_not() -> None:
    cells = ["=1+1", "+x", "-x", "@x", "\tx", "a=b", "", None, -5, -1.5]
    assert files.csv_text(["h"], [cells]) == "h\n'=1+1,'+x,'-x,'@x,'\tx,a=b,,,-5,-1.5\n"


@pytest.mark.parametrize("name", ["=cmd", "-2+3", "@here"])
def test_names_in_tables_are_no_formulas(name: str, folder: Path) -> None:
    Path("net.toml").write_text(NETWORK.replace("mine", name))
    assert run(["sweep", "sweep.toml", "-o", "t.csv"]) == 0
    assert run(["compare", "net.toml", "--levels", "1", "--csv", "c.csv"]) == 0
    for table in ("t.csv", "c.csv"):
        rows = Path(table).read_text().splitlines()[1:]
        assert all(row.startswith(f"'{name},") for row in rows)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_a_draft_is_private_and_the_file_is_as_the_umask_and_the_old_file_say(
    tmp_path: Path, umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    sync, make = os.fsync, os.open

    def opened(path: Path, flags: int, mode: int) -> int:
        handle = make(path, flags, mode)
        seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return handle

    def synced(handle: int) -> None:
        seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        sync(handle)

    target = tmp_path / ("y" * 255)  # a draft has a name of its own
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", synced)
        patched.setattr(os, "open", opened)
        files.write_whole(target, "one")
        assert stat.S_IMODE(target.stat().st_mode) == 0o640
        target.chmod(0o604)
        files.write_whole(target, "two")
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("two", 0o604)
    # As it is made, and once it is whole: a draft of what exists is its owner's until then.
    assert seen == [0o640, 0o640, 0o600, 0o604]


def test_writing_a_file_never_sets_the_umask(
    tmp_path: Path, umask: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is that of all threads: two that write at once could leave the process with another's.
    with monkeypatch.context() as patched:
        patched.setattr(os, "umask", None)
        files.write_whole(tmp_path / "plan.json", "one")
    assert stat.S_IMODE((tmp_path / "plan.json").stat().st_mode) == 0o640


def test_a_draft_that_a_kill_left_is_removed_a_day_later(tmp_path: Path) -> None:
    old, new = (tmp_path / f".hypar-opt-{letter * 16}" for letter in "ab")
    other = tmp_path / ".hypar-opt-notes"
    for file in (old, new, other):
        file.touch()
    two_days_ago = time.time() - 2 * 86_400
    for file in (old, other):
        os.utime(file, (two_days_ago, two_days_ago))
    files.write_whole(tmp_path / "out", "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((new.name, other.name, "out"))


@pytest.mark.parametrize(
    "call",
    [
        ("solve", "/dev/zero"),
        ("solve", "lenet-c", "--array", "/dev/zero"),
        ("solve", "lenet-c", "--warm-start", "/dev/zero"),
        ("simulate", "lenet-c", "--profile", "/dev/zero"),
        ("report", "lenet-c", "--certificate", "/dev/zero"),
        ("sweep", "/dev/zero", "-o", "t.csv"),
    ],
)
def test_a_file_without_end_is_refused(call: tuple[str, ...], folder: Path, shell: Shell) -> None:
    assert shell.refused(*call) == "/dev/zero: should have at most 64 MiB"


def test_input_comes_through_pipes_as_well(folder: Path, shell: Shell) -> None:
    @contextmanager
    def array() -> Iterator[int]:
        read, write = os.pipe()
        os.write(write, WIRED.replace("wires.json", str(folder / "wires.json")).encode())
        os.close(write)
        yield read
        os.close(read)

    def piped(*args: str) -> str:
        with array() as read:
            found = ("--array", f"/dev/fd/{read}")
            return ended(COMMAND, *args, *found, input=NETWORK, pass_fds=[read]).stderr

    assert piped("solve", "/dev/stdin", "--output", "out.json") == ""
    assert Path("out.json").exists()
    piped("compare", "/dev/stdin", "lenet-c", "--batch", "32,64")
    with array() as read:
        picture = ("--picture", "s.svg")
        assert shell("simulate", "plan.json", "--array", f"/dev/fd/{read}", *picture)[0] == 0


def test_a_journal_without_rows_is_gone(tmp_path: Path) -> None:
    with Journal(tmp_path / "j"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_a_command_makes_is_written_by_one_option() -> None:
    """`-o` everywhere; tables' `--csv` is another word for it."""
    from typer.main import get_command

    from hypar_opt.cli.app import app

    commands = get_command(app).commands  # type: ignore[attr-defined]
    # These print, and write no file but a picture.
    printing = {"doctor", "list", "memory", "show", "verify"}
    options = {
        name: {option for parameter in command.params for option in parameter.opts}
        for name, command in commands.items()
    }
    assert {name for name, own in options.items() if "-o" not in own} == printing
    for name, own in options.items():
        assert ("--output" in own) == ("-o" in own), name
    tables = {name for name, own in options.items() if "--csv" in own}
    # What `configure` makes is a plan or settings, beside its table.
    assert tables == {"compare", "configure", "explore", "pareto", "reproduce", "validate"}


def test_a_step_and_the_papers_rows_are_written_as_they_are_printed(
    tmp_path: Path, shell: Shell
) -> None:
    made = tmp_path / "step.json"
    printed = shell.output("simulate", "lenet-c", "--levels", "1", "--json", "-o", made)
    assert made.read_text() == printed
    table = tmp_path / "rows.csv"
    rows = shell.document("reproduce", "fig9", "-o", table)["figures"]["fig9"]["rows"]
    head, *lines = csv.reader(table.read_text().splitlines())
    assert head == ["figure", *rows[0]]
    assert [[line[1], line[6]] for line in lines] == [[r["label"], r["verdict"]] for r in rows]
