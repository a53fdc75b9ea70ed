"""What the paper prints, against what the model gives."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.level_tables import level_table
from hypar_opt.costs.table import CostTable
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price
from hypar_opt.plan.problem import Problem

PRINTED: dict[str, Any] = tomllib.loads((Path(__file__).parent / "paper.toml").read_text())
NETWORKS = list(PRINTED)
ROWS = [(name, level) for name in NETWORKS for level in range(4)]


def digits(plan: ho.Plan) -> list[str]:
    return ["".join(map(str, row)) for row in plan.assignments()]


def top_table(workload: ho.Workload) -> CostTable:
    """The table of level H1, in the default reading."""
    return level_table(CommunicationCost("text"), workload)


def single_layer(layer: dict[str, object], reads: dict[str, int], batch: int) -> ho.Workload:
    network = ho.Network.model_validate({"name": "one", "input": reads, "layer": [layer]})
    return ho.Workload.of(ho.layer_graph(network), batch)


@pytest.mark.parametrize("name", NETWORKS)
def test_figure_5_is_reproduced_row_by_row_by_the_figures_reading(name: str) -> None:
    assert digits(ho.solve(name, reading="figures")) == PRINTED[name]["fig5"]


@pytest.mark.parametrize("name", NETWORKS)
def test_figure_5_is_reproduced_by_the_text_but_for_one_row(name: str) -> None:
    ours, printed = digits(ho.solve(name, reading="text")), PRINTED[name]["fig5"]
    differing = [f"{name} H{h}" for h in range(1, 5) if ours[h - 1] != printed[h - 1]]
    assert differing == (["Cifar-c H2"] if name == "Cifar-c" else [])


def test_where_the_text_differs_from_figure_5_our_row_costs_less() -> None:
    ours = ho.solve("cifar-c", reading="text")
    instance = Instance(ho.load("cifar-c"), Problem(batch=256, levels=4))
    rows = [[int(digit) for digit in row] for row in PRINTED["Cifar-c"]["fig5"]]
    printed = price(instance, rows)
    assert ours.cost.per_level[:2] == (1_163_008, 1_965_568)
    assert printed.per_level[:2] == (1_163_008, 2_326_016)
    # The levels below pay for it: level by level is greedy, and the printed rows together
    # cost 0.26 % less (docs/decisions/0003-readings.md).
    assert ours.cost.total == 12_542_208
    assert printed.total == 12_509_440


@pytest.mark.parametrize("reading", ["text", "figures", "executed"])
@pytest.mark.parametrize("name", NETWORKS)
def test_figure_8_data_parallelism_within_its_labels_rounding(name: str, reading: str) -> None:
    plan = ho.solve(name, solver="data", reading=reading)
    assert plan.cost.total / 1e9 == pytest.approx(PRINTED[name]["fig8"]["data"], rel=0.006)


@pytest.mark.parametrize(("reading", "rows"), [("tables", 32), ("executed", 35)])
def test_the_other_readings_find_fewer_rows_of_figure_5(reading: str, rows: int) -> None:
    found = [digits(ho.solve(name, reading=reading)) for name in NETWORKS]
    printed = [PRINTED[name]["fig5"] for name in NETWORKS]
    assert int((np.concatenate(found) == np.concatenate(printed)).sum()) == rows


@pytest.mark.parametrize("name", NETWORKS)
def test_figure_8_hypar_by_the_text_within_8_percent_and_by_the_tables_half(name: str) -> None:
    printed = PRINTED[name]["fig8"]
    text, tables = (ho.solve(name, reading=reading).cost for reading in ("text", "tables"))
    assert text.total / 1e9 == pytest.approx(printed["hypar"], rel=0.08)
    assert 2 * tables.baselines.data / 1e9 == pytest.approx(printed["data"], rel=0.006)
    assert tables.total < 0.6 * 1e9 * printed["hypar"]


@pytest.mark.parametrize("name", NETWORKS)
def test_figure_8_hypar_within_its_labels_rounding(name: str) -> None:
    total = ho.solve(name, reading="figures").cost.total / 1e9
    printed = PRINTED[name]["fig8"]["hypar"]
    if name == "VGG-B":  # the label is VGG-A's, whose two layers less Figure 5 shows
        assert total == pytest.approx(1.491, abs=0.0005)
        assert total != pytest.approx(printed, rel=0.006)
    else:
        assert total == pytest.approx(printed, rel=0.006)


def test_section_3_4_a_fully_connected_layer_favours_model_parallelism() -> None:
    workload = single_layer({"name": "fc", "kind": "fc", "units": 100}, {"features": 70}, 32)
    table = top_table(workload)
    assert table.node.tolist() == [[56_000, 25_600]]


def test_section_3_4_a_convolution_favours_data_parallelism() -> None:
    layer = {"name": "conv", "kind": "conv", "filters": 50, "kernel": 5}
    workload = single_layer(layer, {"channels": 20, "height": 12, "width": 12}, 32)
    assert workload.layers[0].output == (32, 50, 8, 8)
    table = top_table(workload)
    assert table.node.tolist() == [[200_000, 819_200]]


def test_section_6_5_2_conv5_at_batch_32() -> None:
    workload = ho.Workload.of(ho.layer_graph(ho.load("vgg-e")), 32)
    for place, layer in enumerate(workload.layers):
        if layer.name in {"conv5_1", "conv5_2", "conv5_3", "conv5_4"}:
            assert workload.weights[place] == 2_359_296
            assert workload.outputs[place] == 3_211_264


def test_section_6_5_2_fc3_at_batch_4096_is_settled_by_the_boundary() -> None:
    workload = ho.Workload.of(ho.layer_graph(ho.load("vgg-e")), 4096)
    assert workload.layers[-1].name == "fc3"
    assert workload.weights[-1] == workload.pooled[-1] == 4_096_000
    table = top_table(workload)
    data, model = range(2)
    assert table.node[-1, data] == table.node[-1, model]
    assert table.edge[-1, data, data] == 0
    assert (table.edge[-1].reshape(-1)[1:] > 0).all()
    assert digits(ho.solve("vgg-e", batch=4096))[0].endswith("0")
    assert digits(ho.solve("vgg-e", batch=4096, solver="trick"))[0].endswith("1")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("reading", ["text", "tables", "figures", "executed"])
def test_section_3_4_inference_is_best_in_data_parallelism(name: str, reading: str) -> None:
    plan = ho.solve(name, reading=reading, inference=True)
    assert not np.array(plan.assignments()).any()
    assert plan.cost.total == 0
    assert plan.cost.baselines.model > 0
    assert plan.cost.ratios.model is None


def test_a_plan_that_would_move_more_than_data_parallelism_is_flagged() -> None:
    plan = ho.solve("cifar-c", batch=256, levels=4, reading="text")
    assert plan.cost.executed_bytes is not None
    assert plan.cost.executed_bytes / 1e6 == pytest.approx(20.3, abs=0.05)
    assert plan.cost.data_parallel_bytes / 1e6 == pytest.approx(17.4, abs=0.05)
    better = ho.better_reading(plan)
    assert better is not None
    reading, moved = better
    assert reading == "executed"
    assert moved == ho.solve("cifar-c", reading="executed").cost.executed_bytes
    assert moved < plan.cost.data_parallel_bytes


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "Cifar-c"])
def test_the_other_networks_plans_are_better_than_data_parallelism_when_run(name: str) -> None:
    plan = ho.solve(name)
    assert plan.cost.executed_bytes is not None
    assert plan.cost.executed_bytes <= plan.cost.data_parallel_bytes
    assert ho.better_reading(plan) is None
