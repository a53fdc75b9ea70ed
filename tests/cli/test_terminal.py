"""What a file, a name, a plug-in or an argument says is text on a terminal, and no command."""

from __future__ import annotations

import ast
import re
import sys
import unicodedata
from pathlib import Path

import pytest
from rich.console import Group
from rich.text import Text

import hypar_opt
from hypar_opt.cli.output import print_line, print_text, print_view
from hypar_opt.display.terminal.console import new_table, rows_table, texts
from hypar_opt.errors import printable
from tests.cli.shell import Shell, written
from tests.cli.test_plugins import MODULE
from tests.commands import ended, forked

ROOT = Path(hypar_opt.__file__).parent
COMMANDS = [
    chr(code)
    for code in range(0x3000)
    # Of these a line feed alone ends a line of a view's; rich takes tabs for spaces.
    if unicodedata.category(chr(code)) in ("Cc", "Cf", "Zl", "Zp") and chr(code) not in "\n\t"
]
"""Control characters, among them ESC and CSI, and marks of the order of letters."""

HOSTILE = "a\x1b[31mred\x1b]0;title\x07\x9b2J\u202eb\u2066c\x7f\rd"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output that says it is a terminal."""
    monkeypatch.setattr("_pytest.capture.CaptureIO.isatty", lambda _: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.usefixtures("terminal")
@pytest.mark.parametrize(
    "view",
    [
        lambda text: text,
        Text,
        lambda text: Group(Text("x"), Text(text, style="bold")),
        lambda text: new_table(texts("heading"), [[text]], totals=[[text]]),
        lambda text: new_table(texts(text), [[Text(text)]]),
        lambda text: rows_table([{text: text, "n": 1}]),
        lambda text: _captioned(text),
    ],
    ids=["str", "text", "group", "cells", "headings", "rows", "caption"],
)
def test_no_control_character_of_any_text_of_a_view_is_written(
    view: object, capsys: pytest.CaptureFixture[str]
) -> None:
    for character in COMMANDS:
        print_view(view(f"a{character}b"))  # type: ignore[operator]
    said = capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert "".join(said.split("\n")).isprintable()
    assert r"a\x9bb" in said


def _captioned(text: str) -> object:
    table = new_table(texts("heading"), [["x"]])
    table.caption = Text(text)
    return table


@pytest.mark.usefixtures("terminal")
def test_a_text_and_a_line_are_escaped_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_line(HOSTILE + "\n")
    print_text(f"one\n\ttwo {HOSTILE}\n")
    said = capsys.readouterr().out
    assert said == f"{printable(HOSTILE)}\\n\none\n    two {printable(HOSTILE)}\n"


def test_a_cell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Or a name could add a row to the table."""
    print_view(new_table(texts("name", "fits"), [["mine\nyours", "yes"]]))
    assert capsys.readouterr().out.splitlines()[1].split() == [r"mine\nyours", "yes"]


@pytest.mark.usefixtures("terminal")
def test_a_file_with_commands_in_a_comment_is_shown_on_a_terminal(
    shell: Shell, tmp_path: Path
) -> None:
    file = tmp_path / "net.toml"
    text = 'name = "net" # \u202e\ninput = { features = 4 }\n'
    file.write_text(text + '[[layer]]\nname = "fc"\nkind = "fc"\nunits = 4\n')
    assert r"# \u202e" in shell.output("show", file, "--toml")


def test_files_named_with_commands_are_named_without(shell: Shell, tmp_path: Path) -> None:
    for call, suffix in (("model", ".lp"), ("report", ".html")):
        file = tmp_path / (HOSTILE + suffix)
        out = shell.output(call, "sfc", "--levels", "1", "-o", file)
        assert printable(file.name) in out
        assert out[:-1].isprintable()
    shell.refused("show", tmp_path / HOSTILE)
    shell.refused(HOSTILE)
    shell.refused("solve", "sfc", "--" + HOSTILE)
    shell.refused("solve", "sfc", "--levels", HOSTILE)


def test_entry_points_named_with_commands_are_listed_without(tmp_path: Path) -> None:
    # A file of entry points has lines: their ends are no part of a name.
    name = HOSTILE.replace("\r", "")
    written(tmp_path, {"theirs": MODULE}, ["[hypar_opt.solvers]", f"{name} = theirs:Zeros"])
    for call in (["list", "solvers"], ["solve", "sfc", "--solver", "none"], ["doctor", "none"]):
        done = forked(call, tmp_path)
        assert (done.output + done.errors).replace("\n", "").isprintable()
        assert r"a\x1b[31mred\x1b]0;title" in done.output + done.errors


def test_what_libraries_say_of_files_is_text() -> None:
    program = """
import logging, sys, warnings
from hypar_opt.cli import output
sys.stderr = output.Escaped(sys.stderr)
warnings.warn({text!r})
logging.getLogger("library").warning({text!r})
print({text!r}, file=sys.stderr, flush=True)
"""
    done = ended(sys.executable, "-c", program.format(text=HOSTILE))
    assert done.stderr.replace("\n", "").isprintable()
    assert done.stderr.count(r"\x1b[31mred") >= 3


def test_one_module_alone_writes_to_the_terminal() -> None:
    """So that what it escapes is all there is."""
    for file in ROOT.rglob("*.py"):
        text = file.read_text()
        # Parsed only where it may be: most modules are not.
        for node in ast.walk(ast.parse(text)) if re.search(r"print\(|\.echo|\.std", text) else ():
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                writes = called in ("print", "typer.echo", "sys.stdout.write", "sys.stderr.write")
                assert not writes or file == ROOT / "cli" / "output.py", f"{file}:{node.lineno}"
