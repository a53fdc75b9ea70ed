"""Values of odd types for any argument of any public function: one line of our own error."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.documents.document import preset_text
from hypar_opt.plan.arguments import ProblemArguments
from hypar_opt.search.solver_settings import PlanArguments, SolveArguments, SourceArguments
from hypar_opt.studies.simulation import SimulateArguments
from hypar_opt.studies.sweep import sweep
from tests import slow
from tests.onnx.graph_writer import EXPORTED
from tests.public import steps_file, sweep_file


class InTwoLines:
    def __repr__(self) -> str:
        return "two\nlines"


ODD = [
    *(None, True, 3, -1, 2.0, float("nan"), float("inf"), 10**30, 1j),
    *("", "2", "no\nname", b"x", [], ["dp"], [3], [[]], (), {}, {"parameters": 3}, {1: 2}, set()),
    *(object(), InTwoLines(), pytest, np.array([1.5]), np.float64(1), np.int64(-1), 10**5000),
    *(np.array([1, 2]), np.array(["data", "model"]), np.array(3), np.eye(2)),
]
"""Some are right for some arguments. Of each argument ``make test`` tries a sixth."""

FUNCTIONS = {
    name: function
    for name in ho.__all__
    # Those of modules are tried where PyTorch is: in tests/torch.
    if inspect.isfunction(function := getattr(ho, name)) and name != "from_torch"
}


@cache
def plan() -> ho.Plan:
    return ho.solve("lenet-c", levels=1, batch=2)


def needed(name: str, folder: Path) -> dict[str, Any]:
    """Return arguments that are right, for those that have no default."""
    files = {"read_array": "array.toml", "read_network": "network.toml", "read_plan": "plan.json"}
    ho.write_plan(plan(), folder / "plan.json")
    (folder / "array.toml").write_text(preset_text("hypar_opt.hardware.arrays", "hmc-htree-2"))
    (folder / "network.toml").write_text(preset_text("hypar_opt.models", "lenet-c"))
    return {
        "layers": 1,
        "hidden": 8,
        "heads": 2,
        "array": "a100-8",
        "steps": steps_file(folder),
        "arrays": "hmc-htree-2",
        "certificate": ho.certify(plan()),
        "free": "H1",
        "model": folder / "model.lp",
        "name": "sfc",
        "network": "lenet-c" if name != "layer_graph" else ho.load("lenet-c"),
        "networks": "lenet-c",
        "number": 2,
        "path": folder / files.get(name, "written.json"),
        "plan": ho.solve("lenet-c", array="hmc-htree-2")
        if name in ("simulate", "report")
        else plan(),
        "rows": (),
        "source": "sfc",
        "spec": sweep_file(folder),
        "output": folder / "table.csv",
        "to": "json",
    }


SMALL_GPT = "gpt:layers=1,hidden=32,heads=2,tokens=16,vocabulary=50"


def arguments_of(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    unpacked = next((p.annotation for p in parameters if p.kind == p.VAR_KEYWORD), "")
    more: dict[str, Any] = {
        "Unpack[ProblemArguments]": ProblemArguments.__annotations__,
        "Unpack[SimulateArguments]": SimulateArguments.__annotations__,
        "Unpack[SolveArguments]": SolveArguments.__annotations__,
        "Unpack[PlanArguments]": PlanArguments.__annotations__,
        "Unpack[SourceArguments]": SourceArguments.__annotations__,
        "Never": {},
        "": {},
    }[unpacked]
    return [*(p.name for p in parameters if p.kind != p.VAR_KEYWORD), *more]


def is_refused_in_a_line(function: Callable[..., object], *args: Any, **given: Any) -> bool:
    try:
        function(*args, **given)
    except ho.HyparError as error:
        return len(str(error).splitlines()) == len(error.for_shell.splitlines()) == 1
    return False


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_value_of_an_odd_type_is_refused_in_a_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hypar_opt.paper.FIGURES", ("fig9",))  # all of them take seconds
    function = FUNCTIONS[name]
    parameters = inspect.signature(function).parameters
    right = needed(name, tmp_path)
    own = [p for p in parameters.values() if p.kind != p.VAR_KEYWORD]
    given = {p.name: right[p.name] for p in own if p.default is p.empty}
    # Those of the package take seconds.
    quick: dict[str, Any] = {
        "configure": {"network": SMALL_GPT, "array": "rtx4090x4", "batch": 4, "bound": "none"},
        "validate": {"file": right["steps"]},
        "doctor": {"parts": ["numpy"]},
        "import_": {"model": EXPORTED / "gpt2.onnx"},
        "verify": {"plan": "sfc", "solvers": ["dp", "brute"], "levels": 1},
    }
    given |= quick.get(name, {})
    assert not is_refused_in_a_line(function, **given)
    for place, argument in enumerate(arguments_of(function)):
        others = [
            value
            for value in ODD
            if argument not in parameters or value is not parameters[argument].default
        ]
        drawn = others if slow.ALL else others[place % 6 :: 6]
        # An argument that takes anything would be one that nothing reads.
        odd = [is_refused_in_a_line(function, **{**given, argument: value}) for value in drawn]
        assert any(odd), argument


OTHER: Any = ho


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: OTHER.solve("sfc", solver=["dp"]), "solver should be a string, got ['dp']"),
        (lambda: OTHER.solve("sfc", constraints=3), "constraints: should be a mapping, got 3"),
        (lambda: OTHER.solve("sfc", progress=3), "progress should be a function, got 3"),
        (lambda: OTHER.best_plans(plan(), 2.0), "number should be a whole number, got 2.0"),
        (lambda: OTHER.best_plans(plan(), "2"), "number should be a whole number, got '2'"),
        (
            lambda: OTHER.pareto("sfc", points=float("nan")),
            "points should be a whole number, got nan",
        ),
        (
            lambda: OTHER.solve("gpt2", array="rtx4090x4", stages=0),
            "stages should be a number of stages or auto, got 0",
        ),
        (
            lambda: OTHER.configure("gpt2", batch=8, array="rtx4090x4", stages=0),
            "stages should be a number of stages or auto, got 0",
        ),
        (
            lambda: OTHER.compare("gpt2", arrays="rtx4090x4", stages=0),
            "stages should be a number of stages or auto, got 0",
        ),
        (lambda: OTHER.explore(plan(), None), "free should be a string, got None"),
        (lambda: OTHER.write_plan({}, "plan.json"), "plan should be a Plan, got {}"),
        (lambda: OTHER.regrets(plan(), parameters=1), "parameters should be True or False, got 1"),
        (lambda: cast(Any, sweep)(3, "table.csv"), "spec should be a string or a path, got 3"),
    ],
)
def test_what_should_be_given_is_said_in_words(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ho.HyparError) as error:
        call()
    assert str(error.value) == said


def test_methods_of_results_refuse_odd_types_too() -> None:
    many = ho.solve_many("lenet-c", batch=[1, 2], levels=1)
    (front,) = ho.pareto("lenet-c", levels=1)
    explored = ho.explore(plan(), "H1")
    methods: list[Callable[[Any], object]] = [
        many.choices,
        many.plan,
        lambda odd: many.plan(0, 0, 0, odd),
        front.within,
        front.ratio,
        plan().at,
        plan().__getitem__,
        lambda odd: explored.grid(odd, "fc*"),
        lambda odd: explored.best_plans(odd),
    ]
    for method in methods:
        # As a list, also what a place of one is: none of them takes one.
        for odd in (*ODD[9:12], [], ["dp"], {}, object(), InTwoLines(), np.array([1.5, 2])):
            assert is_refused_in_a_line(method, odd), (method, odd)


def test_numbers_of_numpy_are_numbers() -> None:
    assert len(ho.best_plans(plan(), np.int64(3))) == 3  # type: ignore[arg-type]
    assert ho.solve_many("sfc", batch=np.array([8, 16])).batch == (8, 16)  # type: ignore[arg-type]


def test_a_function_keeps_what_it_says_of_itself() -> None:
    for name, function in FUNCTIONS.items():
        assert function.__name__ == name
        assert function.__doc__
        assert "return" in function.__annotations__
