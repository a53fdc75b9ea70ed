"""What a Python caller writes, and what is said of it where it is wrong."""

from __future__ import annotations

import re
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import ARRAY, HyparError, Sentence, argument, shell_words, worded
from hypar_opt.plan.arguments import ProblemArguments, problem_of
from hypar_opt.plan.problem import Problem
from hypar_opt.solvers.base import SolverOptions


def test_a_misspelt_argument_is_refused_by_name_and_by_mypy() -> None:
    """An ignore that mypy does not need is an error itself: this file is type checked."""
    with pytest.raises(ho.HyparError, match="unknown key 'bacth'; known: batch, levels"):
        ho.solve("vgg-a", bacth=3)  # type: ignore[call-arg]


def test_the_arguments_of_a_problem_are_its_fields() -> None:
    assert set(ProblemArguments.__annotations__) == set(Problem.model_fields)


def test_options_are_a_mapping_or_a_dataclass() -> None:
    plans = [
        ho.solve("lenet-c", levels=2, options=options)
        for options in ({"time_limit": 60.0}, SolverOptions(time_limit=60.0))
    ]
    assert plans[0].solver.options == plans[1].solver.options
    assert plans[0].cost == plans[1].cost
    with pytest.raises(ho.HyparError, match="options: unknown 'time'; known: backend, "):
        ho.solve("lenet-c", options={"time": 1})
    with pytest.raises(ho.HyparError, match="options should be SolverOptions or a mapping, got 5"):
        ho.solve("lenet-c", options=5)  # type: ignore[arg-type]


def test_what_is_no_plan_and_no_argument_of_a_step_is_refused_by_name() -> None:
    with pytest.raises(ho.HyparError, match=r"start should be a Plan, got 'plan\.json'"):
        ho.solve("lenet-c", solver="cpsat", start="plan.json")  # type: ignore[arg-type]
    plan = ho.solve("lenet-c", array="hmc-htree-4")
    with pytest.raises(ho.HyparError, match="unknown argument 'overlp': did you mean overlap"):
        ho.simulate(plan, overlp="gradient")  # type: ignore[call-arg]


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"constraints": {"memory": "array"}}, "constraints.memory='array' needs", "--memory array"),
    ({"cost": "time"}, "cost='time' needs an array: array=", "--cost time needs an array: --array"),
    ({"place": True}, "place=True goes with array and cost='time'", "--place goes with --array"),
    (
        {"constraints": {"fix": ["fc9=data"]}},
        "constraints.fix='fc9=data': no",
        "--fix fc9=data: no",
    ),
    ({"constraints": {"memory": 1}}, "constraints.memory: no plan fits", "--memory: no plan fits"),
    ({"options": {"backend": "cbc"}}, "takes no backend", "takes no --backend"),
    (
        {"cost": "time", "array": "hmc-htree-16", "level_weights": (1, 2, 3, 4)},
        "level_weights goes with cost='bytes'",
        "--level-weights goes with --cost bytes",
    ),
    (
        {
            "cost": "time",
            "array": "hmc-htree-16",
            "search": "levelwise",
            "constraints": {"memory": 9**9},
        },
        "it needs search='joint'",
        "it needs --search joint",
    ),
]


@pytest.mark.parametrize(("asked", "python", "shell"), WRONG, ids=[row[2] for row in WRONG])
def test_an_error_speaks_python_to_python_and_options_to_a_shell(
    asked: dict[str, Any], python: str, shell: str
) -> None:
    with pytest.raises(HyparError) as raised:
        ho.solve("sfc", **asked)
    assert python in str(raised.value)
    assert shell in raised.value.for_shell
    assert not re.search(r"--[a-z]", str(raised.value))
    assert str(raised.value).isprintable()
    assert raised.value.for_shell.isprintable()


def test_a_message_within_a_message_is_worded_once() -> None:
    inner = HyparError(f"{argument('level_weights')} and {argument('place', True)}; {ARRAY}")
    outer = HyparError(f"solver 'dp': {inner.message}")
    assert str(outer) == f"solver 'dp': {inner}"
    assert outer.for_shell == f"solver 'dp': {inner.for_shell}"
    assert "--level-weights and --place; --array NAME|FILE" in outer.for_shell


def test_a_sentence_has_both_wordings() -> None:
    sentence = Sentence(f"take {worded('parameters=True', '--plan-options')}")
    assert (sentence, shell_words(sentence)) == ("take parameters=True", "take --plan-options")
    assert shell_words("as it is") == "as it is"


def test_none_leaves_an_argument_to_the_array_or_the_default() -> None:
    given = problem_of(levels=None, array=None, placement=None, reading=None)
    assert given == problem_of()
    assert problem_of(array="hmc-htree-8", levels=None).levels == 3
