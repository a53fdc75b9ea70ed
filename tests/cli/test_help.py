"""What ``--help`` and ``--help all`` show of each command."""

from __future__ import annotations

import re

import pytest
from typer._click import Context
from typer.core import TyperCommand, TyperOption

from hypar_opt.cli.commands import SUMMARIES, _imported
from hypar_opt.hardware.array import COLLECTIVES
from hypar_opt.simulator.streams import OVERLAPS
from hypar_opt.workload.parallelism import GATHERED, RECOMPUTED, SCHEDULES, SHARDED
from tests.cli.shell import Shell

COMMANDS = [name for name in SUMMARIES if name != "list"]

MOST = 20
"""The most options of a help that is not asked for all."""


def options_in(text: str) -> list[str]:
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, flags=re.M)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_has_the_options_that_most_need_and_all_on_request(
    command: str, shell: Shell
) -> None:
    short, full = shell.output(command, "--help"), shell.output(command, "--help", "all")
    names = [
        next(opt for opt in param.opts if opt.startswith("--"))
        for param in _imported(command)["params"]
        if isinstance(param, TyperOption)
    ]
    assert sorted(options_in(full)) == sorted([*names, "--help"])
    shown = options_in(short)
    assert {*shown} <= {*options_in(full)}
    assert len(shown) <= MOST
    left = len(names) + 1 - len(shown)
    more = f"{left} more options: hypar-opt {command} --help all"
    assert (more in short) == (left > 0)
    assert "more options" not in full


def test_all_options_are_those_of_a_help_that_follows_arguments(shell: Shell) -> None:
    full = shell.output("solve", "--help", "all")
    assert shell.output("solve", "vgg-a", "--batch", "4", "--help", "all") == full


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("collective", COLLECTIVES),
        ("overlap", OVERLAPS),
        ("schedule", SCHEDULES),
        ("recompute", RECOMPUTED),
        ("shard", SHARDED),
        ("gather", GATHERED),
    ],
)
def test_an_option_has_each_of_its_words_in_its_help_and_completes_them(
    name: str, words: tuple[str, ...]
) -> None:
    option = next(one for one in _imported("simulate")["params"] if one.name == name)
    completed = [
        item.value for item in option.shell_complete(Context(TyperCommand("simulate")), "")
    ]
    assert tuple(completed) == words
    assert {*words} <= {*re.findall(r"[\w-]+", option.help)}


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_word_of_a_help_is_cut(
    command: str, width: int, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = shell.output(command, "--help", "all")
    assert max(map(len, text.splitlines())) <= width
    words = " ".join(text.split())
    described = _imported(command)
    helps = [param.help for param in described["params"]]
    for whole in [*helps, *described["epilog"].splitlines()]:
        assert " ".join(whole.split()) in words
