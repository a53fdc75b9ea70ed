"""An exploration as a page and as a picture: what is marked, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display.figures import exploration_map
from hypar_opt.display.page import exploration_page
from hypar_opt.studies.exploration import Exploration
from tests.display.test_figures import data_of, heading, places
from tests.display.test_report import Page


@pytest.fixture(scope="module")
def explored() -> Exploration:
    plan = ho.solve("vgg-a", array="hmc-htree-16")
    return ho.explore(plan, "conv5_2,fc1", objective="time")


def marked(explored: Exploration) -> dict[str, set[tuple[str, str]]]:
    """The plans to be marked, by their digits: of fc1, along x, and of conv5_2."""
    grid, plan = explored.grid("conv5_2", "fc1"), explored.plan

    def digits(layer: str) -> str:
        return "".join(str(int(choice == "model")) for choice in plan[layer].values())

    def labels(where: NDArray[np.bool_]) -> set[tuple[str, str]]:
        return {(grid.columns[x], grid.rows[y]) for y, x in np.argwhere(where)}

    assert explored.front is not None
    front = explored.grid("conv5_2", "fc1", of=explored.front.on_front.astype(float))
    return {
        "the solver's plan": {(digits("fc1"), digits("conv5_2"))},
        "best": labels(grid.values <= explored.best_cost * (1 + 1e-12)),
        "on the Pareto front": labels(front.values == 1),
    }


def test_the_page_marks_the_plan_the_best_and_the_front(explored: Exploration) -> None:
    text = exploration_page(explored)
    found = Page(text)
    assert found.open == []
    drawn = found.charts
    assert list(drawn) == ["map", "trade-off", "distribution"]
    plan, ties = explored.plan, explored.ties
    expected = marked(explored)
    best = f"largest: {max(row['value'] for row in drawn['map']['datasets']['cells']):.2f}"
    marks: dict[str, set[tuple[str, str]]] = {}
    for row in drawn["map"]["datasets"]["marks"]:
        marks.setdefault(row["mark"], set()).add((row["x"], row["y"]))
    own = f"{plan.solver.name} {plan.solver.search}"
    assert marks == {
        f"{own}: {best.removeprefix('largest: ')}": expected["the solver's plan"],
        "Pareto front: 5 plans": expected["on the Pareto front"],
        f"{best}, {ties} tie": expected["best"],
    }
    grid = explored.grid("conv5_2", "fc1")
    values = {(row["x"], row["y"]): row["value"] for row in drawn["map"]["datasets"]["cells"]}
    for (m, n), cost in np.ndenumerate(grid.values):
        ratio = explored.data_parallel_cost / cost
        assert values[grid.columns[n], grid.rows[m]] == pytest.approx(ratio, rel=1e-5)
    front = drawn["trade-off"]["datasets"]["front"]
    assert explored.front is not None
    assert len(front) == explored.front.plans
    assert sum(row["count"] for row in drawn["distribution"]["datasets"]["ranges"]) == 256
    said = found.text
    for words_ in (
        "256 plans by time, batch 256, reading text; free: conv5_2,fc1",
        "0 data, 1 model: conv5_2: H1 to H4; fc1: H1 to H4",
        "The Pareto front of time, energy and memory: 5 plans; the solver's plan is on it.",
        "Data Parallelism's time / the plan's",
    ):
        assert words_ in said
    assert exploration_page(explored) == text


def test_the_picture_names_metric_reading_and_order_and_marks_the_same(
    explored: Exploration,
) -> None:
    figure = exploration_map(explored)
    drawn = {mark.partition(": ")[0]: cells for mark, cells in places(figure).items()}
    expected = marked(explored)
    assert drawn == {
        "dp levelwise": expected["the solver's plan"],
        "Pareto front": expected["on the Pareto front"],
        "largest": expected["best"],
    }
    said = heading(figure)
    assert "every plan by time, reading text" in said
    assert "0 data, 1 model; the front is of time, energy, memory" in said
    described = str(figure.to_dict())
    for words in ("Data Parallelism's time / the plan's", "conv5_2: H1 to H4", "fc1: H1 to H4"):
        assert words in described


def test_a_map_has_no_cell_for_what_constraints_forbid(tmp_path: Path) -> None:
    plan = ho.solve("lenet-c", levels=2, constraints={"fix": ["fc1@H1=model"]})
    explored = ho.explore(plan, "H1,H2")
    drawn = Page(exploration_page(explored)).charts["map"]["datasets"]["cells"]
    assert len(drawn) == explored.values.size == 128
    assert len(data_of(exploration_map(explored))["cells"]) == 128


def test_the_command_writes_the_page_beside_what_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plans.html"
    args = ["explore", "lenet-c", "--free", "fc*", "--page", str(file)]
    assert run([*args, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = Page(file.read_text())
    assert f"hypar-opt explore lenet-c --free 'fc*' --page {file} --json" in found.text
    assert f"{document['front']['plans']} plan" in found.text
    assert "H1 to H4 of each of fc1 to fc2" in found.text


def test_choices_that_two_parts_share_make_no_map() -> None:
    """All levels of a layer and all layers of a level: the layer's choice there is in both."""
    plan = ho.solve("lenet-c", levels=2)
    explored = ho.explore(plan, "fc1,H1")
    assert explored.two_parts is None
    assert ho.explore(plan, "H1,H2").two_parts == ("H1", "H2")
    assert "map" not in Page(exploration_page(explored)).charts
    with pytest.raises(ho.HyparError, match=r"draws two levels or two layers, as H1,H4; got 'fc1,"):
        exploration_map(explored)
