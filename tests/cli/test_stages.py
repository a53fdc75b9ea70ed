"""Pipeline stages on the command line and in Python: what is refused, in one line and at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.plan.plan import write_plan
from hypar_opt.search import stages as stage_search
from tests.cli.shell import Shell

NETWORK = "gpt:layers=4,hidden=256,heads=4,tokens=64,vocabulary=1000"
ASKED = (NETWORK, "--array", "rtx4090x4", "--batch", "16")
SMALL = ("gpt:layers=2,hidden=32,heads=4,tokens=8,vocabulary=64", *ASKED[1:])
IN_PYTHON: dict[str, Any] = {"array": "rtx4090x4", "batch": 16}


NO_INFERENCE = "inference is not supported with pipeline stages"


@pytest.mark.parametrize("command", ["solve", "simulate", "memory", "report"])
@pytest.mark.parametrize("stages", [("--stages", "2"), ("--stages", "auto"), ("--degrees", "pp=2")])
def test_inference_has_no_stages(command: str, stages: tuple[str, str], shell: Shell) -> None:
    assert shell.refused(command, *ASKED, *stages, "--inference") == f"--{NO_INFERENCE}"


def test_inference_has_no_stages_in_python() -> None:
    for arguments in ({"stages": 2}, {"degrees": "pp=2"}):
        with pytest.raises(ho.HyparError) as caught:
            ho.solve(NETWORK, **IN_PYTHON, **arguments, inference=True)
        assert str(caught.value) == NO_INFERENCE
    row = ho.compare(NETWORK, "rtx4090x4", batches=16, stages=2, inference=True)[-1]
    assert (row.plan, row.reason) == ("stages", NO_INFERENCE)


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan in two stages."""
    file = tmp_path_factory.mktemp("staged") / "plan.json"
    write_plan(ho.solve(SMALL[0], **IN_PYTHON, stages=2), file)
    return file


@pytest.mark.parametrize("stages", [("--stages", "2"), ("--degrees", "pp=2")])
@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("x", ""),
        ("", ""),
        ("1F1B", ""),
        ("interleaved", ""),
        ("zbv", ", which has stages in a V, 1 2 3 4 4 3 2 1: not modelled"),
        ("ZB-V", ", which has stages in a V, 1 2 3 4 4 3 2 1: not modelled"),
        ("DualPipe", ", which runs micro-batches from both ends, with all weights twice"),
    ],
)
def test_an_unknown_schedule_is_refused(
    stages: tuple[str, str], schedule: str, why: str, shell: Shell
) -> None:
    for command in ("solve", "simulate", "memory"):
        said = shell.refused(command, *SMALL, *stages, "--schedule", schedule)
        assert f'--schedule: should be 1f1b, gpipe or zb-h1, got "{schedule}"{why}' in said
    listed: Any = [schedule]
    with pytest.raises(ho.HyparError, match=r"^schedule: should be 1f1b, .* got \["):
        ho.solve(SMALL[0], **IN_PYTHON, stages=2, schedule=listed)


@pytest.mark.parametrize("command", ["solve", "compare"])
def test_a_schedule_is_of_several_stages(command: str, shell: Shell) -> None:
    for stages in ((), ("--stages", "1")):
        said = shell.refused(command, *SMALL, *stages, "--schedule", "gpipe")
        assert said == "--schedule: should be with stages, layers in parts of H1"


@pytest.mark.parametrize("schedule", ["gpipe", "x"])
def test_a_plan_fixes_its_schedule(schedule: str, plan_file: Path, shell: Shell) -> None:
    for command in ("memory", "simulate"):
        said = shell.refused(command, plan_file, "--schedule", schedule)
        assert said == "--schedule is fixed by the plan; leave it out"
    for look in (ho.memory, ho.simulate):
        with pytest.raises(ho.HyparError, match=r"^schedule is fixed by the plan; leave it out"):
            look(plan_file, schedule=schedule)
    gpipe = ho.memory(SMALL[0], **IN_PYTHON, stages=2, schedule="gpipe", micro_batches=8)
    stated = ("--stages", "2", "--schedule", "gpipe", "--micro-batches", "8", "--json")
    assert json.loads(shell.output("memory", *SMALL, *stated))["bytes"] == gpipe.total


@pytest.mark.parametrize("stages", [("--stages", "2"), ("--degrees", "pp=2")])
@pytest.mark.parametrize(
    "option",
    [
        ("--gap", "0.1"),
        ("--hint",),
        ("--threads", "2"),
        ("--seed", "3"),
        ("--solver-option", "x=1"),
        ("--solver-log", "solver.log"),
        ("--export-model", "model.lp"),
        ("--solver", "ilp"),
        ("--place",),
        ("--regret",),
        ("--best", "2"),
        ("--simulate", "2"),
    ],
)
def test_options_of_other_searches_are_refused_before_the_search(
    stages: tuple[str, str], option: tuple[str, ...], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_search, "in_stages", None)
    said = shell.refused("solve", *SMALL, *stages, *option)
    assert said == f"{option[0]} is not supported with --stages"


def test_a_plan_to_start_from_is_no_search_of_stages(plan_file: Path, shell: Shell) -> None:
    said = shell.refused("solve", *SMALL, "--stages", "2", "--warm-start", plan_file)
    assert said == "--warm-start is not supported with --stages"
