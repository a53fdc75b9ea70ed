"""A search may start from a plan of the same network and levels, of its choices or fewer."""

from __future__ import annotations

from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.plan import words_of
from hypar_opt.search.result import rows_to_start_from

FEWER = [
    (("data", "model"), ("data", "model")),
    (("data", "model"), ("data", "model", "output")),
    (("data", "model"), "all"),
    (("data", "model", "output"), "all"),
]


@pytest.mark.parametrize("name", ["lenet-c", "mobilenet-v2", "gpt2", "mixtral-8x7b"])
@pytest.mark.parametrize(("fewer", "choices"), FEWER)
def test_a_plan_of_fewer_choices_is_a_start(name: str, fewer: Any, choices: Any) -> None:
    network = ho.load(name)
    start = ho.solve(network, levels=2, batch=4, choices=fewer, reading="executed")
    problem = problem_of(network, levels=2, batch=4, choices=choices, reading="executed")
    rows = rows_to_start_from(start, Instance.to_search(network, problem))
    assert words_of(rows, network.words(problem.choices)) == start.parallelism


def test_a_start_costs_no_more_than_itself() -> None:
    start = ho.solve("lenet-c", levels=2, reading="executed")
    for solver in ("ilp", "cpsat"):
        wider = ho.solve(
            "lenet-c", levels=2, solver=solver, choices="all", reading="executed", start=start
        )
        assert wider.solver.options.warm_start
        assert wider.cost.total <= start.cost.total


def test_a_plan_of_more_choices_or_other_levels_is_none() -> None:
    problem = problem_of(ho.load("lenet-c"), levels=2, reading="executed")
    instance = Instance.to_search(ho.load("lenet-c"), problem)
    changes: list[dict[str, Any]] = [{"choices": ("data", "model", "output")}, {"levels": 3}]
    for change in changes:
        stated: dict[str, Any] = {"levels": 2, "reading": "executed"} | change
        start = ho.solve("lenet-c", **stated)
        with pytest.raises(RefusedError, match="same network and levels, and of the same choices"):
            rows_to_start_from(start, instance)
