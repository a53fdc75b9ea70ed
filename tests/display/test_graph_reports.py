"""Plans and networks that are graphs, on the terminal, as pictures and on the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display import figures
from hypar_opt.display.glyphs import glyph, legend, stored_legend, symbol
from hypar_opt.display.page.cells import cell_costs
from hypar_opt.display.page.graph import graph_view
from hypar_opt.display.page.grid import grid_view
from hypar_opt.display.plan_grid import (
    MAX_CHAIN,
    drawn_choices,
    is_short_chain,
    layer_times,
    plan_grid,
)
from hypar_opt.display.terminal.network import network_view
from hypar_opt.display.terminal.plan import plan_view
from hypar_opt.plan.plan import Plan
from hypar_opt.workload.description import describe
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import CHOICES, PAPERS_CHOICES
from tests.cli.shell import Shell
from tests.display.graphs import texts
from tests.display.test_figures import data_of

GPT = """
schema = "hypar-opt/network/2"
name = "small GPT"
input = { tokens = 8, vocabulary = 64 }
layer = [
  { name = "token", kind = "embedding", features = 16 },
  { name = "norm", kind = "norm", inputs = ["decoder"], norm = "layer" },
  { name = "head", kind = "fc", units = 64 },
]
[[block]]
name = "decoder"
repeat = 4
inputs = ["token"]
layer = [
  { name = "qkv", kind = "fc", units = 48, bias = true },
  { name = "attention", kind = "attention", heads = 4 },
  { name = "add", kind = "add", inputs = ["input", "attention"] },
]
"""


@pytest.fixture(scope="module")
def gpt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("gpt") / "gpt.toml"
    file.write_text(GPT)
    return file


@pytest.fixture(scope="module")
def plan(gpt: Path) -> Plan:
    """A plan of which the last two repetitions are other than the first two."""
    fix = ["decoder.[01].*=data", "decoder.[23].qkv=model", "decoder.[23].attention=heads"]
    return ho.solve(gpt, batch=4, levels=2, constraints={"fix": [*fix, "decoder.[23].add=channel"]})


def printed(view: RenderableType, width: int = 200) -> list[str]:
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(view)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_plan_of_a_graph_prints_a_row_for_layers_alike(plan: Plan) -> None:
    lines = printed(plan_view(plan))
    # All layers of a repetition are alike. The second stores its output as the third reads it.
    assert ["decoder.0", "○○", "○○"] in map(str.split, lines)
    assert ["decoder.1", "○○", "●●"] in map(str.split, lines)
    assert ["decoder.2-3", "×", "2", "●●", "●●"] in map(str.split, lines)
    legends = [line for line in lines if line.startswith("○ data parallelism")]
    assert legends == [
        "○ data parallelism   ● model parallelism (heads, channel)   ◆ model parallelism (output)"
    ]
    shown = {
        position: row.positions[0] for row in plan_grid(plan).rows for position in row.positions
    }
    assert sorted(shown) == list(range(len(plan.layers)))
    for position, first in shown.items():
        for level in plan.parallelism:
            assert symbol(level[position]) == symbol(level[first])


def test_the_layouts_of_every_tensor_are_shown_on_demand(plan: Plan) -> None:
    lines = printed(plan_view(plan, layouts=True))
    assert ["layers", "H1–H2", "stored"] in map(str.split, lines)
    shown = [line.split() for line in lines if line.endswith(("○", "●", "□"))]
    # In the last repetition too, whose output has one reader.
    assert ["decoder.2-3", "×", "2", "●●", "●●"] in shown
    assert all(len(row[-1]) == plan.levels for row in shown)
    assert "stored tensors: ○ split by batch   ● split by channel" in lines


def test_what_is_whole_has_a_symbol_of_its_own() -> None:
    whole = "whole"
    assert glyph(whole) == "□"
    assert glyph(whole, ascii_only=True) == "W"
    assert legend([whole], CHOICES) == [(symbol(whole), "whole")]
    every = stored_legend(["batch", "channel", "whole"])
    assert [(own.glyph, name) for own, name in every] == [
        ("○", "split by batch"),
        ("●", "split by channel"),
        ("□", "whole"),
    ]


def test_a_plan_of_a_thousand_layers_fits_on_a_screen() -> None:
    plan = ho.solve("llama-70b", levels=2, batch=64)
    assert len(plan.layers) > 1000
    assert len(printed(plan_view(plan))) < 50


def test_the_papers_networks_have_a_glyph_a_layer() -> None:
    for name in ho.models.PAPER_NETWORKS:
        assert is_short_chain(ho.solve(name, levels=1))


def test_a_chain_too_long_for_a_line_is_folded() -> None:
    layers = [{"name": f"fc{n}", "kind": "fc", "units": 8} for n in range(MAX_CHAIN + 1)]
    network = Network.model_validate({"name": "long", "input": {"features": 8}, "layer": layers})
    lines = printed(plan_view(ho.solve(network, levels=2, batch=64)))
    assert any(line.startswith("fc0") for line in lines)
    assert len(lines) < MAX_CHAIN


def test_a_chain_of_many_kinds_has_rows_too() -> None:
    layers = [
        {"name": f"{kind}{n}", "kind": kind, **more}
        for n in range(10)
        for kind, more in (("fc", {"units": 8}), ("norm", {"norm": "layer"}))
    ]
    network = Network.model_validate(
        {"schema": "hypar-opt/network/2", "name": "n", "input": {"features": 8}, "layer": layers}
    )
    plan = ho.solve(network, levels=2, batch=64)
    assert is_short_chain(plan)
    assert max(map(len, printed(plan_view(plan)))) < 100


def test_a_symbol_is_a_column_whatever_a_kind_calls_it() -> None:
    words = ["data", "output", "channel", "heads", "model"]
    assert [glyph(word) for word in words] == ["○", "◆", "●", "●", "●"]
    assert [text for _, text in legend(words, CHOICES)] == [
        "data parallelism",
        "tensor parallelism (model, channel, heads)",
        "tensor parallelism (output)",
    ]
    assert [text for _, text in legend(words, PAPERS_CHOICES)] == [
        "data parallelism",
        "model parallelism (channel, heads)",
        "model parallelism (output)",
    ]


def test_show_prints_a_block_once_and_what_layers_read(gpt: Path) -> None:
    network = ho.read_network(gpt)
    description = describe(network, 1)
    lines = [line.split() for line in printed(network_view(network))]
    names = [words[0] for words in lines if words]
    assert names[2:8] == ["token", "decoder.0-3", "qkv", "attention", "add", "norm"]
    heading = next(words for words in lines if words and words[0] == "decoder.0-3")
    assert heading[1:] == ["x4", f"{4 * 16 * 48:,}", "2,560", f"{4 * 8 * (16 * 48 + 16 * 16):,}"]
    add = next(words for words in lines if words and words[0] == "add")
    assert add[1:4] == ["add", "input,", "attention"]
    parameters = 64 * 16 + 4 * (16 * 48 + 48) + 2 * 16 + 16 * 64
    assert description["total"]["parameters"] == parameters
    assert f"{parameters:,} parameters, with biases, scales and shifts." in " ".join(
        " ".join(words) for words in lines
    )


def test_the_json_says_what_each_layer_reads_and_counts_parameters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["show", "resnet-50", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["total"]["parameters"] == 25_557_032
    assert round(shown["total"]["macs"] / 1e9, 3) == 4.089
    inputs = {layer["name"]: layer["inputs"] for layer in shown["layers"]}
    assert inputs["conv1"] == ["input"]
    assert len(inputs["stage2.rest.0.add"]) == 2
    assert run(["show", "gpt2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["parameters"] == 124_439_808


def test_a_networks_picture_has_every_layer_once_or_unfolded(gpt: Path, tmp_path: Path) -> None:
    file = tmp_path / "net.svg"
    assert run(["show", str(gpt), "--picture", str(file)]) == 0
    found = texts(file.read_text())
    assert {"token", "qkv", "attention", "add", "norm", "head", "input"} < set(found)
    assert found.count("qkv") == 1
    assert "decoder.0-3 × 4" in found
    assert run(["show", str(gpt), "--picture", str(file), "--unfolded"]) == 0
    found = texts(file.read_text())
    assert found.count("qkv") == 4
    assert {f"decoder.{n}" for n in range(4)} < set(found)


@pytest.mark.parametrize("network", ["gpt2", "resnet-18", "vgg-a"])
def test_boxes_of_a_graph_are_apart_and_have_their_shapes(network: str) -> None:
    described = ho.load(network)
    figure = figures.network_graph(described)
    boxes = data_of(figure)["boxes"]
    names = {layer.name for layer in described.layers}
    assert {row["layer"] for row in boxes if row["kind"] != "input"} <= names
    for n, one in enumerate(boxes):
        for other in boxes[n + 1 :]:
            beside = one["x2"] < other["x"] or other["x2"] < one["x"]
            assert beside or one["y2"] < other["y"] or other["y2"] < one["y"]
    size = figure.to_dict()
    assert all(0 <= row["x"] < row["x2"] <= size["width"] for row in boxes)
    assert all(0 <= row["y"] < row["y2"] <= size["height"] for row in boxes)


def test_a_plans_figure_is_folded_as_its_rows_are(plan: Plan) -> None:
    data = data_of(figures.plan_dots(plan))
    labels = [row["text"] for row in data["panel 1 rows"]]
    assert "decoder.2-3 × 2" in labels
    assert len(data["panel 1"]) == len(labels) * plan.levels
    # What a repetition writes has several readers: the next one reads it twice.
    assert len(data["panel 1 stored"]) == (len(labels) - 1) * plan.levels
    assert labels[-1] == "norm–head"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--unfolded"], "--unfolded goes with --picture"),
        (["--picture", "net.txt"], "net.txt: a picture is one of png, svg, pdf, got '.txt'"),
    ],
)
def test_a_wrong_picture_is_refused(given: list[str], said: str, shell: Shell) -> None:
    assert shell.refused("show", "sfc", *given) == said


def test_a_cells_costs_are_its_layers_added_up(gpt: Path) -> None:
    from hypar_opt.display.page.contents import gather

    plan = ho.solve(gpt, batch=4, array="hmc-htree-4", reading="text")
    assert plan.array is not None
    contents = gather(plan, plan.array.description)
    grid = grid_view(contents)
    costs = cell_costs(plan, [])
    assert sum(span for _, span in grid["groups"]) == len(grid["layers"])
    assert grid["folded"]
    for level, row in enumerate(grid["levels"]):
        assert sum(cell["count"] for cell in row["cells"]) == len(plan.layers)
        chosen = [o for options in costs[level] for o in options if o.chosen]
        # Each edge stands with both of its ends.
        total = sum(option.layer + option.neighbours / 2 for option in chosen)
        assert total == plan.cost.per_level[level]


def test_the_time_of_layers_is_that_of_the_step(gpt: Path) -> None:
    plan = ho.solve(gpt, batch=4, array="hmc-htree-4", reading="text")
    step = ho.simulate(plan)
    times = layer_times(plan, step)
    positions = [n for group, _, _ in times for n in group.positions]
    assert sorted(positions) == list(range(len(plan.layers)))
    assert len(times) < len(plan.layers)
    assert sum(compute for _, compute, _ in times) == pytest.approx(step.compute)
    assert sum(moved for _, _, moved in times) == pytest.approx(step.communication)


def test_one_accelerator_has_no_levels_and_a_view(gpt: Path) -> None:
    plan = ho.solve(gpt, batch=4, levels=0)
    assert drawn_choices(plan) == [()] * len(plan.layers)
    assert any(line.startswith("decoder.0-3 × 4") for line in printed(plan_view(plan)))


def test_plans_of_one_network_stand_side_by_side(gpt: Path) -> None:
    plans = {f"batch {batch}": ho.solve(gpt, batch=batch, levels=2) for batch in (4, 4096)}
    data = data_of(figures.plans_side_by_side(plans))
    labels = [row["text"] for row in data["plans rows"]]
    assert {"token", "qkv", "attention", "add", "norm", "head"} <= set(labels)
    rows = sum(not label.startswith("decoder") for label in labels)
    assert len(data["plans"]) == rows * 2 * len(plans)
    assert [row["text"] for row in data["headings"]] == ["batch 4", "batch 4096"]
    with pytest.raises(ho.HyparError, match="should be of one network"):
        figures.plans_side_by_side({**plans, "other": ho.solve("sfc")})


def test_the_pages_graph_says_how_tensors_are_stored(plan: Plan) -> None:
    graph = graph_view(plan)
    assert graph is not None
    assert plan.layouts is not None
    assert graph.header[-1] == "stored"
    assert [row[-1] for row in graph.rows] == [
        ", ".join(plan.layouts[name]) for name in plan.layers
    ]
    drawn = json.loads(graph.drawing)
    # Read by the next repetition's first layer, and added to its output.
    several = [bool(own) for own in drawn["shared"]]
    assert [name for name, own in zip(plan.layers, several, strict=True) if own] == [
        "token",
        *(f"decoder.{n}.add" for n in range(3)),
    ]
    assert [words for *_, words in graph.legend] == ["split by batch", "split by channel"]


def test_layouts_are_of_a_plan(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plan.json"
    ho.write_plan(plan, file)
    assert run(["show", str(file), "--layouts"]) == 0
    assert (
        "stored tensors: ○ split by batch   ● split by channel"
        in capsys.readouterr().out.splitlines()
    )
    assert run(["show", "sfc", "--layouts"]) == 2
    message = "hypar-opt: --layouts takes a plan file, and 'sfc' is a network\n"
    assert capsys.readouterr().err == message
