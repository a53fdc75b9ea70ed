"""A model with constraints of one's own has the best of the plans that keep to them."""

from __future__ import annotations

import itertools
import sys
from importlib.util import find_spec
from typing import Any

import pytest
from ortools.math_opt.python import mathopt  # before PuLP, which would load highspy

import hypar_opt as ho
from hypar_opt.costs import COSTS
from hypar_opt.plan.arguments import problem_of
from hypar_opt.solvers.ilp.solver import IntegerProgram
from hypar_opt.solvers.solution.solver import SolutionFile
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.commands import ended
from tests.slow import slow_after
from tests.strategies.plans import Asked, every_plan, totals_of

pytestmark = pytest.mark.filterwarnings("ignore:PULP_CBC_CMD:DeprecationWarning")


def chain(*units: int) -> ho.Network:
    layers = [{"name": f"fc {n}", "kind": "fc", "units": size} for n, size in enumerate(units)]
    given = {"features": 6}
    return ho.Network.model_validate({"name": "chain", "input": given, "layer": layers})


def solved_by_cbc(model: Any) -> tuple[Any, float]:
    import pulp

    model.problem.solve(pulp.PULP_CBC_CMD(msg=False))
    return None, model.problem.objective.value()


def solved_by_mathopt(model: Any) -> tuple[Any, float]:
    result = mathopt.solve(model.problem, mathopt.SolverType.CP_SAT)
    return result, result.objective_value()


@pytest.mark.parametrize(
    ("interface", "constrain", "solve"),
    [
        ("pulp", lambda model, rule: model.problem.addConstraint(rule), solved_by_cbc),
        (
            "mathopt",
            lambda model, rule: model.problem.add_linear_constraint(rule),
            solved_by_mathopt,
        ),
    ],
)
@pytest.mark.parametrize("reading", ["text", "executed"])
@pytest.mark.parametrize("choices", [2, 3])
def test_the_best_of_the_plans_that_keep_to_a_constraint(
    choices: int, reading: str, interface: str, constrain: Any, solve: Any
) -> None:
    network, words = chain(4, 9, 5), CHOICES[:choices]
    asked: Any = {"batch": 3, "levels": 2, "choices": words, "reading": reading}
    problem = problem_of(network, **asked)
    workload = workload_of(network, 3, words, shared_tensors=reading == "executed")
    plans = list(every_plan(3, 2, choices))
    totals = totals_of(workload, COSTS["bytes"].from_problem(problem, workload), plans)
    found = []
    for least in range(7):
        model = ho.model(network, interface=interface, **asked)
        places = list(itertools.product(range(3), (1, 2)))
        data = sum(model.takes(f"fc {n}", level, "data") for n, level in places)
        constrain(model, data >= least)
        result, objective = solve(model)
        kept = [
            total
            for plan, total in zip(plans, totals, strict=True)
            if sum(row.count(0) for row in plan) >= least
        ]
        plan = model.plan(result)
        assert plan.cost.total == min(kept) == round(objective)
        assert sum(row.count("data") for row in plan.parallelism) >= least
        assert plan.solver.status == "feasible"
        found.append(plan.cost.total)
    assert found[0] == ho.solve(network, search="joint", **asked).cost.total < found[-1]


def test_up_to_its_cutoff_a_pruned_model_has_the_best_plan_of_any_constraint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each choice at each level, here: a dearer one is not there, or its plan may cost more."""
    for solver in (IntegerProgram, SolutionFile):
        monkeypatch.setattr(solver, "max_columns", 60)
    network = chain(4, 9, 5)
    asked: Asked = {"batch": 3, "levels": 2, "choices": CHOICES[:3]}
    problem = problem_of(network, **asked)
    plans = list(every_plan(3, 2, 3))
    workload = workload_of(network, 3, CHOICES[:3], shared_tensors=False)
    totals = totals_of(workload, COSTS["bytes"].from_problem(problem, workload), plans)
    within = set()
    for layer, level, choice in itertools.product(range(3), range(2), range(3)):
        of_choice = zip(plans, totals, strict=True)
        lowest = min(total for plan, total in of_choice if plan[level][layer] == choice)
        model = ho.model(network, **asked)
        assert model.cutoff is not None
        within.add(lowest <= model.cutoff)
        try:
            takes = model.takes(f"fc {layer}", level + 1, CHOICES[choice])
        except ho.HyparError:
            assert lowest > model.cutoff
            continue
        model.problem += takes == 1
        _, objective = solved_by_cbc(model)
        if lowest <= model.cutoff:
            assert model.plan().cost.total == lowest == round(objective)
        else:
            assert objective is None or objective > model.cutoff
    assert within == {True, False}


def test_what_the_model_has_not_and_what_is_not_solved_are_refused_by_name() -> None:
    model = ho.model(chain(4), batch=2, levels=1)
    for layer, level, word in (("fc", 1, "data"), ("fc 0", 2, "data"), ("fc 0", 1, "output")):
        with pytest.raises(ho.HyparError, match=f"no choice '{word}' of '{layer}' at H{level}"):
            model.takes(layer, level, word)
    with pytest.raises(ho.HyparError, match="has no solution"):
        model.plan()
    assert model.takes("fc 0", "H1", "data") == model.takes("fc 0", 1, "data")
    model.problem += model.takes("fc 0", 1, "data") + model.takes("fc 0", 1, "model") >= 2
    solved_by_cbc(model)
    with pytest.raises(ho.HyparError, match="has no solution"):
        model.plan()
    with pytest.raises(ho.HyparError, match="unknown interface 'pulpp': did you mean pulp"):
        ho.model("lenet-c", interface="pulpp")
    model = ho.model("lenet-c", levels=1, interface="mathopt")
    with pytest.raises(ho.HyparError, match=r"plan\(result\), with what its solve returned"):
        model.plan()
    model.problem.add_linear_constraint(model.takes("fc1", 1, "data") >= 2)
    with pytest.raises(ho.HyparError, match="has no solution"):
        model.plan(mathopt.solve(model.problem, mathopt.SolverType.CP_SAT))
    with pytest.raises(ho.HyparError, match="levels should be 1 or more"):
        ho.model("lenet-c", levels=0)


@pytest.mark.skipif(not find_spec("highspy"), reason="needs highspy")
@pytest.mark.parametrize("first", slow_after(1, ["ho.solve('sfc', solver='ilp')", "None"]))
def test_the_model_and_its_caller_have_highs(first: str) -> None:
    program = (
        "import hypar_opt as ho\n"
        f"{first}\n"
        "model = ho.model('sfc', levels=2)\n"
        "import pulp\n"
        "assert type(model.problem) is pulp.LpProblem\n"
        "model.problem.solve(pulp.HiGHS(msg=False))\n"
        "assert model.plan().cost.total == ho.solve('sfc', levels=2, search='joint').cost.total\n"
        "assert ho.solve('sfc', levels=2, solver='cpsat').solver.status == 'optimal'\n"
        "try:\n"
        "    ho.model('sfc', interface='mathopt')\n"
        "except ho.HyparError as error:\n"
        "    print(error)\n"
    )
    said = ended(sys.executable, "-c", program).stdout
    assert said.startswith("MathOpt cannot be loaded, as in a process that has loaded highspy: ")
    assert len(said.splitlines()) == 1
