"""What a Python caller writes, and what is said of it where it is wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import ARRAY, HyparError, Sentence, argument, shell_words, worded
from hypar_opt.hardware.arrays import find_array
from hypar_opt.plan.arguments import ProblemArguments, problem_of
from hypar_opt.plan.constraints import Constraints
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.training import Training
from hypar_opt.solvers.base import SolverOptions

NETWORK: dict[str, Any] = {
    "name": "one",
    "input": {"features": 3},
    "layer": [{"name": "a", "kind": "fc", "units": 2}],
}


def test_a_misspelt_argument_is_refused_by_name_and_by_mypy() -> None:
    """An ignore that mypy does not need is an error itself: this file is type checked."""
    with pytest.raises(ho.HyparError, match="unknown argument 'bacth': did you mean batch"):
        ho.solve("vgg-a", bacth=3)  # type: ignore[call-arg]


def test_the_arguments_of_a_problem_are_its_fields() -> None:
    """Its levels are stated by a number of accelerators or a hierarchy, too, and a bucket is.

    The length of sequences is its network's, as settings are its and its array's; degrees are pins.
    What a stage depends on in others is nobody's to state.
    """
    stated = {
        "accelerators",
        "hierarchy",
        "whole_levels",
        "bucket",
        "tokens",
        "settings",
        "degrees",
    }
    fields = (set(Problem.model_fields) | stated) - {"parts", "stage"}
    fields |= Constraints.model_fields.keys() | Training.model_fields.keys()
    assert set(ProblemArguments.__annotations__) == fields


@pytest.mark.parametrize("more", [(), ("tokens",), ("rows", "columns")])
@pytest.mark.parametrize("sequence", [tuple, list])
def test_tensor_among_choices_is_model_and_output(
    more: tuple[str, ...], sequence: Callable[[tuple[str, ...]], Any]
) -> None:
    problem = problem_of(choices=sequence(("data", "tensor", *more)))
    assert problem == problem_of(choices=("data", "model", "output", *more))


def test_tensor_is_not_stated_beside_model() -> None:
    with pytest.raises(
        HyparError,
        match="choices: tensor is model and output: leave these out, got data, model, tensor",
    ):
        problem_of(choices=("data", "model", "tensor"))
    with pytest.raises(HyparError, match="unknown choice 'tensro': did you mean tensor"):
        problem_of(choices=("data", "tensro"))


@pytest.mark.parametrize("count", range(1, 65))
def test_a_number_of_accelerators_states_the_levels(count: int) -> None:
    problem = problem_of(accelerators=count)
    assert problem.hierarchy.accelerators == count
    levels = count.bit_length() - 1
    if count == 2**levels:
        assert problem == problem_of(levels=levels)
    else:
        assert problem == problem_of(hierarchy=(count,))
        assert [*problem.hierarchy.sizes] == sorted(problem.hierarchy.sizes)


def test_a_number_of_accelerators_is_that_of_the_array() -> None:
    for name in ("hmc-htree-8", "h100-8x8"):
        count = problem_of(array=name).hierarchy.accelerators
        assert problem_of(array=name, accelerators=count) == problem_of(array=name)
    # Levels of 2, 3, 2, 2, 2 parts, which are no sorted factors.
    nodes = find_array("h100-8x8").description()
    nodes["topology"] = {**nodes["topology"], "nodes": 6}
    six = type(find_array("h100-8x8")).model_validate(nodes)
    assert problem_of(array=six, accelerators=48) == problem_of(array=six)
    assert problem_of(array=six).hierarchy.sizes == (2, 3, 2, 2, 2)
    assert ho.simulate("lenet-c", accelerators=4).array == "hmc-htree-4"


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"accelerators": 0}, "should be a whole number from 1 to 4,294,967,296, got 0"),
        ({"accelerators": 2**33}, "should be a whole number from 1 to 4,294,967,296, got"),
        ({"accelerators": True}, "should be a whole number from 1 to 4,294,967,296, got true"),
        ({"accelerators": 2 * 1031}, "should have prime factors of at most 1,024, got 2,062 with"),
        ({"accelerators": 4, "levels": 2}, "states the levels; leave levels out"),
        ({"accelerators": 4, "hierarchy": (4,)}, "states the levels; leave hierarchy out"),
        ({"accelerators": 4, "array": "h100-8"}, "should be 8, as the array h100-8 has, got 4"),
    ],
)
def test_a_wrong_number_of_accelerators_is_refused(stated: Any, said: str) -> None:
    with pytest.raises(HyparError) as raised:
        problem_of(**stated)
    assert str(raised.value).startswith(f"accelerators {said}")


def test_options_are_a_mapping_or_a_dataclass() -> None:
    plans = [
        ho.solve("lenet-c", levels=2, options=options)
        for options in ({"time_limit": 60.0}, SolverOptions(time_limit=60.0))
    ]
    assert plans[0].solver.options == plans[1].solver.options
    assert plans[0].cost == plans[1].cost
    with pytest.raises(
        ho.HyparError, match="unknown solver option 'time': did you mean time_limit"
    ):
        ho.solve("lenet-c", options={"time": 1})
    with pytest.raises(ho.HyparError, match="should be a SolverOptions or a mapping, got 5"):
        ho.solve("lenet-c", options=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ho.Network(layers=[]),  # type: ignore[call-arg]
            "unknown key 'layers': did you mean layer? known: schema, name, source, input, inputs,"
            " layer",
        ),
        (
            lambda: ho.Network(**NETWORK | {"name": ""}),
            "name: should be a name in printable characters, got ''",
        ),
        (
            lambda: ho.Network(**NETWORK | {"layer": [{"name": "a", "kind": "fcc"}]}),
            "layer 'a', kind: should be one of 'conv', 'fc'",
        ),
        (lambda: ho.Problem(batch=0), "batch: should be greater than or equal to 1, got 0"),
        (lambda: ho.Constraints(fix="a"), 'fix: should be a list, got "a"'),
        (lambda: ho.Array(name="x"), "missing key 'accelerator'"),  # type: ignore[call-arg]
        (lambda: ho.solve("sfc", choices="data,model"), "choices: should be a list"),
        (lambda: ho.solve("sfc", inference=1), "inference: should be True or False, got 1"),  # type: ignore[arg-type]
        (lambda: ho.best_plans(ho.solve("sfc"), 0), "number should be 1 or more, got 0"),
    ],
)
def test_wrong_arguments_are_one_line_in_pythons_words(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(ho.HyparError) as raised:
        make()
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)


def test_a_network_made_in_python_is_that_of_its_description() -> None:
    assert ho.Network(**NETWORK) == ho.Network.model_validate(NETWORK)


def test_one_network_or_array_is_compared_as_several_of_one() -> None:
    assert ho.compare("lenet-c", "hmc-htree-2", batches=8) == ho.compare(
        ["lenet-c"], ["hmc-htree-2"], batches=[8]
    )


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
            "array": "tpu-v4-4x4x4",
            "search": "levelwise",
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


@pytest.mark.parametrize("placement", [[[1], 0], [1.0, 0], [None, 0], ["1", "0"], "10", 5])
def test_a_placement_that_is_no_list_of_digits_is_refused_by_name(placement: Any) -> None:
    with pytest.raises(HyparError, match=r"^placement"):
        problem_of(array="hmc-torus-4", placement=placement)


def test_none_leaves_an_argument_to_the_array_or_the_default() -> None:
    given = problem_of(levels=None, array=None, placement=None, reading=None)
    assert given == problem_of()
    assert problem_of(array="hmc-htree-8", levels=None).levels == 3
