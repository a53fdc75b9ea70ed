"""Figures: their data are what they should show, and their files are sound."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from numpy.typing import NDArray

import hypar_opt as ho
from hypar_opt import paper
from hypar_opt.workload.parallelism import CHOICES, PAPERS_CHOICES

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from hypar_opt.display import figures
from hypar_opt.display.figures.bar_charts import OURS, PRINTED, StackedPart, stacked
from hypar_opt.display.figures.maps import surface
from hypar_opt.display.figures.marks import SHAPES, shape_of
from hypar_opt.display.figures.points import near
from hypar_opt.display.figures.results import PLAN_NAMES
from hypar_opt.display.figures.style import CONFIG, Figure, legend
from hypar_opt.display.figures.timelines import lines_of
from hypar_opt.display.glyphs import MODEL_SYMBOL, SYMBOLS, symbol, symbol_of_part
from hypar_opt.display.palette import INK, PASSES, PLANS, SERIES, colours_of, shades
from hypar_opt.errors import HyparError
from hypar_opt.hardware.arrays import find_array
from hypar_opt.units import format_bytes, format_cost
from hypar_opt.workload.parallelism import part_word
from tests.display.graphs import texts
from tests.slow import slow_after

IMAGES = Path(__file__).parents[2] / "docs" / "images"

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Row:
    label: str
    reading: str
    ours: float | str
    printed: float | str


@cache
def reproduced() -> dict[str, list[paper.PaperRow]]:
    """The rows that are drawn, which are of one reading."""
    return paper.reproduce([f"fig{n}" for n in range(5, 14)], reading="figures")


@cache
def step(network: str, array: str = "hmc-htree-16", overlap: str = "none") -> Any:
    plan = ho.solve(network, array=array, reading="figures")
    return ho.simulate(plan, overlap=overlap, trace=True)


def data_of(figure: Any) -> dict[str, Rows]:
    """The rows of a figure's marks, by their names."""
    rows: dict[str, Rows] = figure.to_dict()["datasets"]
    return rows


def heading(figure: Any) -> str:
    title = figure.to_dict()["title"]
    return title if isinstance(title, str) else "\n".join(title)


def scales(described: object, channel: str) -> list[dict[str, Any]]:
    """The scales of a channel with a domain, wherever they are in a description."""
    if isinstance(described, list):
        return [own for part in described for own in scales(part, channel)]
    if not isinstance(described, dict):
        return []
    own = described.get("encoding", {}).get(channel, {}).get("scale") or {}
    found = [own] if "domain" in own else []
    return found + [one for part in described.values() for one in scales(part, channel)]


def domains(described: object, channel: str) -> list[list[Any]]:
    """The domains of a channel."""
    return [own["domain"] for own in scales(described, channel)]


def chosen(rows: Rows) -> dict[str, set[tuple[str, str]]]:
    """The layers and levels of each kind of mark."""
    marks: dict[str, set[tuple[str, str]]] = {}
    for row in rows:
        marks.setdefault(row["choice"], set()).add((row["layer"], row["level"]))
    return marks


def named(choice: str, choices: Sequence[str] = PAPERS_CHOICES) -> str:
    """Return the words of a choice of layers that have no others for it."""
    tensor = f"tensor parallelism ({choice})"
    return f"{choice} parallelism" if len(choices) == 2 or choice == "data" else tensor


def of_plan(
    layers: Iterable[str], rows: Iterable[Iterable[str]], choices: Sequence[str] = PAPERS_CHOICES
) -> dict[str, set[Any]]:
    marks: dict[str, set[tuple[str, str]]] = {}
    names = list(layers)
    for level, row in enumerate(rows, 1):
        for layer, choice in zip(names, row, strict=True):
            marks.setdefault(named(choice, choices), set()).add((layer, f"H{level}"))
    return marks


def lines_in(figure: Any) -> Rows:
    """The marks of a chain in all of its lines."""
    return [
        row
        for name, rows in data_of(figure).items()
        for row in rows
        if name.startswith("line") and "choice" in row
    ]


ENERGY: dict[str, Any] = {"cost": "energy", "array": "hmc-htree-16"}
PROBLEMS: list[tuple[str, dict[str, Any]]] = [("vgg-e", {"levels": 0}), ("vgg-e", {"levels": 10})]
PROBLEMS += [("vgg-e", ENERGY), *((name, {}) for name in ho.models.PAPER_NETWORKS)]


@pytest.mark.parametrize(("network", "stated"), slow_after(4, PROBLEMS))
def test_a_plans_marks_are_its_choices(network: str, stated: dict[str, Any]) -> None:
    plan = ho.solve(network, **stated)
    figure = figures.plan_dots(plan)
    assert chosen(lines_in(figure)) == of_plan(plan.layers, plan.parallelism)
    data = data_of(figure)
    assert [row["layer"] for row in data["line 1 names"]] == list(plan.layers)
    costs = plan.cost.communication or plan.cost.per_level
    assert [(row["level"], row["charge"]) for row in data["levels"]] == [
        (name, format_cost(cost, plan.cost.unit))
        for name, cost in zip(plan.level_names, costs, strict=True)
    ]
    # Compute and local memory belong to no level.
    assert ("'text': 'communication'" in str(figure.to_dict())) is (stated is ENERGY)
    # H1, the topmost, on top.
    assert all(first > last for first, last in domains(figure.to_dict(), "y"))


def test_filled_is_model_open_data_and_a_diamond_output_parallelism() -> None:
    plan = ho.solve("alexnet", choices=CHOICES)
    figure = figures.plan_dots(plan)
    assert chosen(lines_in(figure)) == of_plan(plan.layers, plan.parallelism, CHOICES)
    (marks,) = (
        part["encoding"]
        for part in figure.to_dict()["vconcat"][0]["layer"]
        if "shape" in part.get("encoding", {})
    )
    shapes, fills = (
        dict(zip(marks[kind]["scale"]["domain"], marks[kind]["scale"]["range"], strict=True))
        for kind in ("shape", "fill")
    )
    words = [named(choice, CHOICES) for choice in CHOICES]
    assert [shapes[word] for word in words] == ["circle", "circle", "diamond"]
    assert fills[words[0]] == "transparent"
    assert fills[words[1]] == MODEL_SYMBOL.colour
    assert marks["shape"]["legend"]["values"] == words


def test_symbols_differ_by_more_than_their_colours() -> None:
    of_choices = [shape_of(own) for own in SHAPES]
    assert len(set(of_choices)) == len(of_choices)
    parts = [shape_of(symbol_of_part(part_word(n))) for n in range(12)]
    assert parts[:8] == list(dict.fromkeys(parts))
    assert len(SYMBOLS) == len({own.colour for own in SYMBOLS})


@pytest.mark.parametrize("layers", [60, 96])
def test_a_deep_plan_is_no_strip_and_has_every_choice_once(layers: int) -> None:
    """Layers continue below, or beside, and each differs from the next."""
    names = [f"fc{n}" for n in range(layers)]
    network = ho.Network.model_validate(
        {
            "name": "deep",
            "input": {"features": 64},
            "layer": [{"name": name, "kind": "fc", "units": 64} for name in names],
        }
    )
    pins = [
        f"{name}@H{level}={'model' if n >> level - 1 & 1 else 'data'}"
        for n, name in enumerate(names)
        for level in (1, 2)
    ]
    plan = ho.solve(network, levels=2, constraints={"fix": pins})
    figure = figures.plan_dots(plan)
    described = figure.to_dict()
    parts = described["vconcat"] if layers <= 60 else described["hconcat"]
    assert len(parts) > 1
    assert all(max(part["width"], part["height"]) < 1000 for part in parts)
    rows = [row for own in data_of(figure).values() for row in own if "choice" in row]
    assert len(rows) == 2 * layers
    assert chosen(rows) == of_plan(names, plan.parallelism)


def test_a_chain_of_a_thousand_layers_has_a_row_for_each_run() -> None:
    names = [f"$fc_{n}^$" for n in range(1000)]
    # Each choice is fixed, so that runs of several lengths are beside each other.
    layers = [
        {"name": name, "kind": "fc", "units": 8 if n < 400 else 4096}
        for n, name in enumerate(names)
    ]
    network = ho.Network.model_validate({"name": "long", "input": {"features": 8}, "layer": layers})
    plan = ho.solve(network, levels=2, batch=256)
    data = data_of(figures.plan_dots(plan))
    columns = list(zip(*plan.parallelism, strict=True))
    starts = [n for n in range(1000) if n == 0 or columns[n] != columns[n - 1]]
    labels = [row["text"] for row in data["panel 1 rows"]]
    assert len(labels) == len(starts) < 20
    assert [label.split("–")[0] for label in labels] == [names[n] for n in starts]
    drawn = {(row["line"], row["column"]): row["choice"] for row in data["panel 1"]}
    assert drawn == {
        (line, level): named(choice)
        for line, n in enumerate(starts)
        for level, choice in enumerate(columns[n])
    }


def bar_rows(figure: Any) -> Rows:
    return [row for rows in data_of(figure).values() for row in rows if "series" in row]


def test_bars_reach_their_numbers_ours_and_printed() -> None:
    ours = [4.97, 0.0374, None, 1.0]
    printed = [4.9, 0.04, 2.0, None]
    groups = ["VGG-A", "SCONV", "SFC", "one"]
    figure = figures.bars(groups, {"HyPar": ours}, {"HyPar": printed}, baseline=1)
    drawn = {(row["group"], row["by"]): row["value"] for row in bar_rows(figure)}
    assert drawn == {
        (group, by): value
        for by, values in ((OURS, ours), (PRINTED, printed))
        for group, value in zip(groups, values, strict=True)
        if value is not None
    }
    assert {row["base"] for row in bar_rows(figure)} == {1}
    shown = {row["amount"] for row in bar_rows(figure)}
    assert {"4.97", "0.0374", "4.90", "0.0400", "2.00"} < shown
    # Labels are inside the axis, above bars and below those that hang.
    for low, high in domains(figure.to_dict(), "y"):
        assert low < 0.0374 * 0.8
        assert high > 4.97 * 1.2


def test_bars_without_a_baseline_begin_at_a_power_of_ten() -> None:
    figure = figures.bars(["one", "two"], {"data": [16.9, 0.0121]})
    assert [(row["base"], row["value"]) for row in bar_rows(figure)] == [
        (pytest.approx(0.001), 16.9),
        (pytest.approx(0.001), 0.0121),
    ]
    assert bar_rows(figures.bars([], {})) == []


def test_many_bars_are_in_several_lines_on_one_axis() -> None:
    groups = [f"network {n}" for n in range(12)]
    series = {f"plan {k}": [float(n + k + 1) for n in range(12)] for k in range(4)}
    figure = figures.bars(groups, series)
    assert [row["group"] for row in bar_rows(figure)[::4]] == groups
    assert all(part["width"] < 600 for part in figure.to_dict()["vconcat"])
    assert len({tuple(domain) for domain in domains(figure.to_dict(), "y")}) == 1


def test_a_legend_has_as_many_columns_as_fit() -> None:
    words = [f"the plan number {n}" for n in range(9)]
    columns = legend(words).to_dict()["columns"]
    assert 2 <= columns <= 4
    assert legend(["a", "b"]).to_dict()["columns"] == 2


def test_stacked_parts_follow_each_other_and_a_row_is_cut_where_the_axis_ends() -> None:
    parts = [
        StackedPart("first", "#000", [1.0, 3.0], False),
        StackedPart("second", "#111", [2.0, 9.0], True),
    ]
    figure = stacked(["one", "two\n12 s"], parts, 1.0, "s", "{:g} s".format, end=4.0, limit=3.5)
    data = data_of(figure)
    assert [(row["line"], row["start"], row["end"], row["does"]) for row in data["parts"]] == [
        (0, 0, 1, "computes"),
        (1, 0, 3, "computes"),
        (0, 1, 3, "communicates"),
        (1, 3, 12, "communicates"),
    ]
    assert domains(figure.to_dict(), "x")[0] == [0, 4]
    assert data["limit"] == [{"start": 3.5}]
    assert data["rows"][1] == {"line": 1, "first": "two", "second": "12 s"}
    assert data["parts"][3]["says"] == "two, 12 s: second communicates: 9 s"


def grid() -> NDArray[np.float64]:
    values = np.arange(12, dtype=float).reshape(3, 4)
    values[0, 2] = 11.0  # ties with the last
    return values


def places(figure: Any) -> dict[str, set[tuple[str, str]]]:
    """The cells of each kind of mark on a map, by its entry in the legend."""
    marks: dict[str, set[tuple[str, str]]] = {}
    for row in data_of(figure)["marks"]:
        marks.setdefault(row["mark"], set()).add((row["x"], row["y"]))
    return marks


def test_the_largest_values_are_starred_and_marks_are_where_they_should_be() -> None:
    figure = figures.surface(grid(), "abcd", "xyz", {"HyPar's plan": ("b", "y")})
    assert places(figure) == {
        "largest: 11.0, 2 tie": {("c", "x"), ("d", "z")},
        "HyPar's plan: 5.00": {("b", "y")},
    }
    cells = {(row["x"], row["y"]): row["value"] for row in data_of(figure)["cells"]}
    assert cells == {
        (x, y): grid()[m, n] for m, y in enumerate("xyz") for n, x in enumerate("abcd")
    }
    (domain,) = {tuple(own) for own in domains(figure.to_dict(), "y")}
    assert domain == ("z", "y", "x")  # upwards
    with pytest.raises(ValueError, match="3 rows of 3 values"):
        figures.surface(grid(), "abc", "xyz")


def test_scaling_has_gains_as_lines_and_communication_as_bars_on_another_axis() -> None:
    figure = figures.scaling(
        [1, 2, 4],
        {"HyPar": [1, 2, 3.9], "Data Parallelism": [1, None, 3.5]},
        {"HyPar": [0, 0.2, 0.6]},
        printed_gains={"HyPar": [1, 2.0, 3.8]},
        printed_gigabytes={"HyPar": [0, 0.21, 0.61]},
    )
    data = data_of(figure)
    values = {
        kind: {(row["series"], row["by"], row["accelerators"]): row["value"] for row in data[kind]}
        for kind in ("gains", "gigabytes")
    }
    assert values["gains"]["HyPar", OURS, "4"] == 3.9
    assert values["gains"]["HyPar", PRINTED, "4"] == 3.8
    assert ("Data Parallelism", OURS, "2") not in values["gains"]
    assert values["gigabytes"]["HyPar", PRINTED, "2"] == 0.21
    assert figure.to_dict()["resolve"] == {"scale": {"y": "independent"}}


@pytest.mark.parametrize(
    ("network", "array"), [("vgg-a", "hmc-htree-16"), ("alexnet", "hmc-torus-16")]
)
def test_a_timelines_spans_add_up_to_the_step(network: str, array: str) -> None:
    done = step(network, array)
    data = data_of(figures.timeline(done, accelerators=[3], links=[]))
    # On an axis of seconds or milliseconds.
    unit = done.seconds / max(row["end"] for row in data["spans"])
    sums: dict[tuple[str, str], float] = {}
    for row in data["spans"]:
        key = row["pass"], row["does"]
        sums[key] = sums.get(key, 0.0) + unit * (row["end"] - row["start"])
    for phase, (compute, communication) in done.phases.items():
        assert sums.pop((phase, "computes")) == pytest.approx(compute, rel=1e-4)
        assert sums.pop((phase, "communicates"), 0.0) == pytest.approx(communication, rel=1e-4)
    assert sums == {}


def test_a_timeline_shows_a_few_rows_one_of_each_kind() -> None:
    figure = figures.timeline(step("vgg-a"))
    names = [(row["first"], row["second"]) for row in data_of(figure)["tracks"]]
    assert names == [
        ("accelerator 0", "1 of 16 identical ones"),
        ("link 0-switch2.0", "1 of 16 identical ones"),
        ("link switch2.0-switch4.0", "1 of 8 identical ones"),
        ("link switch4.0-switch8.0", "1 of 4 identical ones"),
        ("link switch8.0-switch16.0", "1 of 2 identical ones"),
    ]
    # Names without their pass, which wide bars show.
    labels = {row["label"] for row in data_of(figure)["spans"] if row["does"] == "computes"}
    assert labels == set(step("vgg-a").plan.layers)
    (zoom,) = figure.to_dict()["params"]
    assert zoom["bind"] == "scales"
    assert zoom["select"]["encodings"] == ["x"]


def test_what_runs_beside_other_work_has_a_row_of_its_own() -> None:
    done = step("vgg-a", overlap="gradient")
    lines = lines_of(done, [0, 9], ["0-switch2.0"])
    assert [line.label for line in lines] == [
        *("accelerator 0", "accelerator 0\ngradients"),
        *("accelerator 9", "accelerator 9\ngradients"),
        "0-switch2.0",
    ]


def test_spans_below_a_pixel_are_joined_and_cover_what_they_did() -> None:
    plan = ho.solve("lenet-c", array="hmc-htree-16")
    done = ho.simulate(plan, collective="ring", trace=True)
    (line,) = lines_of(done, [0], [])
    assert done.trace is not None
    spans = done.trace.accelerators[0].streams()[0].spans
    assert len(line.bars) <= len(spans)
    last = max((span.start_us + span.duration_us) * 1e-6 for span in spans)
    assert line.bars[-1].end == pytest.approx(last)
    assert all(a.end <= b.start + 1e-12 for a, b in zip(line.bars, line.bars[1:], strict=False))


def test_a_part_of_a_step_is_drawn_alone() -> None:
    done = step("vgg-a")
    half = done.seconds / 2
    figure = figures.timeline(done, between=(half, done.seconds))
    low, high = domains(figure.to_dict(), "x")[0]
    assert low == pytest.approx(high / 2)
    assert {row["pass"] for row in data_of(figure)["spans"]} < set(PASSES)


def test_what_cannot_be_drawn_is_refused_by_name() -> None:
    with pytest.raises(ho.HyparError, match="no accelerator 16: there are 16, from 0"):
        figures.timeline(step("vgg-a"), accelerators=[16])
    with pytest.raises(ho.HyparError, match="no link 'wire'"):
        figures.timeline(step("vgg-a"), links=["wire"])
    with pytest.raises(ho.HyparError, match="simulate it with trace=True"):
        figures.timeline(ho.simulate("sfc"))


FIGURES = {
    "bars": lambda: figures.bars(["one"], {"HyPar": [2.0]}, {"HyPar": [2.1]}, baseline=1),
    "plan": lambda: figures.plan_dots(ho.solve("lenet-c")),
    "surface": lambda: figures.surface(grid(), "abcd", "xyz"),
}


@pytest.mark.parametrize("name", slow_after(2, FIGURES))
def test_the_three_formats_are_sound_and_twice_the_same(tmp_path: Path, name: str) -> None:
    starts = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<svg", "pdf": b"%PDF-1."}
    assert set(figures.FORMATS) == set(starts)
    one, other = FIGURES[name](), FIGURES[name]()
    for kind, start in starts.items():
        files = [tmp_path / f"{n}.{kind}" for n in range(2)]
        for figure, file in zip((one, other), files, strict=True):
            figures.save(figure, file)
        written, again = (file.read_bytes() for file in files)
        # In a PDF objects are in any order, if there are several kinds of them.
        assert written == again or (kind == "pdf" and name != "plan")
        assert len(written) == len(again)
        assert written.startswith(start)
        if kind == "svg":
            assert ET.fromstring(written).tag == "{http://www.w3.org/2000/svg}svg"
        if kind == "pdf":
            assert written.rstrip().endswith(b"%%EOF")
    assert len(list(tmp_path.iterdir())) == 6  # no drafts are left


def test_text_stays_text_and_marks_have_words(tmp_path: Path) -> None:
    name = "a $\\long$ <one>"
    layers = [{"name": "fc & co", "kind": "fc", "units": 8}]
    network = ho.Network.model_validate({"name": name, "input": {"features": 8}, "layer": layers})
    file = tmp_path / "plan.SVG"
    figures.save(figures.plan_dots(ho.solve(network, levels=1)), file)
    text = file.read_text()
    assert {"fc & co", "H1", "data parallelism"} < set(texts(text))
    assert any(own.startswith(name) for own in texts(text))
    assert 'aria-label="fc &amp; co at H1: ' in text


@pytest.mark.parametrize("name", ["plan.jpg", "plan"])
def test_an_unknown_suffix_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ho.HyparError, match="one of png, svg, pdf, got"):
        figures.save(figures.plan_dots(ho.solve("sfc")), tmp_path / name)
    with pytest.raises(ho.HyparError, match="one of png, svg, pdf, got 'gif'"):
        figures.draw_paper({}, tmp_path / "folder", ["png", "gif"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["altair", "vl_convert"])
def test_without_the_extra_one_line_names_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "hypar_opt.display.figures")
    monkeypatch.delattr("hypar_opt.display.figures")
    message = r"^figures need altair and vl-convert-python: pip install 'hypar-opt\[figures\]'$"
    with pytest.raises(ho.HyparError, match=message):
        importlib.import_module("hypar_opt.display.figures")
    with pytest.raises(ho.HyparError, match=message):
        ho.load("sfc").figure()


def luminance(colour: str) -> float:
    parts = (int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5))
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_mean_one_thing_and_are_seen_on_white_and_on_black() -> None:
    for colours in (list(PASSES.values()), list(SERIES)):
        assert len(set(colours)) == len(colours)
        for colour in colours:
            light = luminance(colour)
            assert 1.05 / (light + 0.05) > 1.5
            assert (light + 0.05) / 0.05 > 1.5
    own = colours_of(["Data Parallelism", "HyPar", "a third", "a fourth"])
    assert own["Data Parallelism"] == symbol("data").colour == PLANS["Data Parallelism"]
    assert own["HyPar"] == colours_of(["This plan"])["This plan"]
    assert len(set(own.values())) == 4
    # Amounts are sequential: every next colour is darker.
    ramp = list(map(luminance, shades(5)))
    assert ramp == sorted(ramp, reverse=True)
    assert INK in str(CONFIG)


def test_every_plan_of_a_comparison_has_a_colour_of_its_own() -> None:
    """Eleven of them, and tensor parallelism of four degrees."""
    names = [*PLAN_NAMES.values(), *(f"megatron-{n}" for n in (1, 2, 4, 8))]
    assert len({*colours_of(names).values()}) == len(names)


def test_a_map_of_more_plans_than_can_be_told_apart_is_refused() -> None:
    labels = [f"{n:08b}" for n in range(2**8)]
    with pytest.raises(HyparError, match="at most 16,384 plans in a picture, got 65,536"):
        surface(np.ones((2**8, 2**8)), labels, labels)


@cache
def drawn(name: str) -> Figure:
    figure = figures.paper_figure(name, reproduced()[name])
    assert figure is not None
    return figure


def test_figure_5_has_every_networks_dots() -> None:
    data = data_of(drawn("fig5"))
    for name in ho.models.PAPER_NETWORKS:
        plan = ho.solve(name, reading="figures")
        assert chosen(data[plan.network.name]) == of_plan(plan.layers, plan.parallelism)


@pytest.mark.parametrize(
    ("figure", "series"),
    [
        ("fig6", {"model": "Model Parallelism", "hypar": "HyPar"}),
        ("fig7", {"model": "Model Parallelism", "hypar": "HyPar"}),
        ("fig8", {"model": "Model Parallelism", "data": "Data Parallelism", "hypar": "HyPar"}),
        ("fig12", {"htree": "H tree"}),
        ("fig13", {"performance": "performance", "energy": "energy efficiency"}),
    ],
)
def test_bars_are_the_reproductions_rows(figure: str, series: dict[str, str]) -> None:
    values: dict[tuple[str, str], list[float]] = {}
    for row in bar_rows(drawn(figure)):
        values.setdefault((row["series"], row["by"]), []).append(row["value"])
    for word, name in series.items():
        rows = [row for row in reproduced()[figure] if row.label.endswith(f" {word}")]
        assert len(rows) in (7, 11)
        assert values[name, OURS] == pytest.approx([row.ours for row in rows])
        assert values[name, PRINTED] == pytest.approx([row.printed for row in rows])


def test_the_surfaces_have_256_plans_and_their_peaks() -> None:
    for name, peak, at in (("fig9", 3.055, ("0011", "0011")), ("fig10", 4.973, ("0001", "1111"))):
        cells = data_of(drawn(name))["cells"]
        assert len(cells) == 256
        largest = max(row["value"] for row in cells)
        assert largest == pytest.approx(peak, abs=5e-4)
        marks = {mark.split(":")[0]: cells for mark, cells in places(drawn(name)).items()}
        assert marks["HyPar's plan"] == {at}
        assert at in marks["largest"]
        values = {(row["x"], row["y"]): row["value"] for row in cells}
        assert {values[own] for own in marks["largest"]} == {largest}
    (printed,) = (own for mark, own in places(drawn("fig10")).items() if "5.05" in mark)
    assert printed == {("1000", "1111")}  # conv5_2, fc1


def test_figure_11_has_the_rows_of_vgg_e() -> None:
    rows = {row.label: row for row in reproduced()["fig11"]}
    data = data_of(drawn("fig11"))
    for kind, quantity in (("gains", "gain"), ("gigabytes", "GB")):
        for own in data[kind]:
            word = {"HyPar": "hypar", "Data Parallelism": "data"}[own["series"]]
            row = rows[f"VGG-E {word} {quantity} {own['accelerators']}"]
            assert own["value"] == (row.ours if own["by"] == OURS else row.printed)
    assert data["gains"][-1]["accelerators"] == "64"


def test_what_has_no_place_in_a_figure_is_left_out(tmp_path: Path) -> None:
    rows = {
        "tables": [Row("Table 1 dp", "text", 1.0, 1.0)],
        "fig5": [Row("Mine H1", "figures", "01", "01")],
        "fig6": [
            Row("VGG-A hypar", "figures", 4.97, 4.97),
            Row("VGG-A hypar", "text", 5.2, 4.97),
            Row("VGG-A of the authors", "figures", 1.0, 1.0),
        ],
        "fig7": [],
        "fig9": [],
        "fig11": [Row("VGG-E", "figures", 1.0, 1.0)],
        "fig12": [Row("SFC torus", "figures", 12.1, ">10")],
    }
    written = figures.draw_paper(rows, tmp_path / "new", formats=("svg", "pdf"))
    assert [path.name for path in written] == [
        *("figure6.svg", "figure6.pdf"),
        *("figure12.svg", "figure12.pdf"),
    ]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
        path.name for path in written
    )
    text = written[0].read_text()
    assert ">4.97<" in text
    assert ">5.20<" not in text


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "folder"):
        with pytest.raises(ho.HyparError, match=r"file.*: cannot be made: "):
            figures.draw_paper({}, folder)


def test_a_square_is_around_what_the_paper_prints_otherwise() -> None:
    rows = [Row("SFC H1", "figures", "1111", "1011"), Row("SFC H2", "figures", "1111", "1111")]
    figure = figures.paper_figure("fig5", rows)
    marks = data_of(figure)["SFC"]
    assert [(row["layer"], row["level"]) for row in marks if row["differs"]] == [("fc2", "H1")]
    assert heading(figure).endswith("1 of 2 rows as printed; squares: not as printed")
    equal = figures.paper_figure("fig5", rows[1:])
    assert "not as printed" not in heading(equal)


def test_a_front_has_its_points_and_the_plan_is_starred() -> None:
    points = {"bytes": [(2000, 1.0), (1000, 1.5)], "time": [(2000, 1.0)]}
    figure = figures.fronts(points, plan=(1500, {"bytes": 1.2, "time": 1.1}))
    data = data_of(figure)
    # On an axis of kilobytes.
    expected = {(name, size / 1000, ratio) for name in points for size, ratio in points[name]}
    assert {(row["objective"], row["memory"], row["ratio"]) for row in data["points"]} == expected
    assert [(row["memory"], row["ratio"]) for row in data["plan"]] == [(1.5, 1.2), (1.5, 1.1)]
    # Steps end beyond the most memory, at the least cost.
    assert data["steps"][-1]["memory"] > 2
    assert data["steps"][-1]["ratio"] == 1.0


def test_a_figure_has_what_its_result_holds() -> None:
    held = ho.memory("lenet-c", array="hmc-htree-4", optimizer="adam")
    rows = [row for row in data_of(held.figure())["parts"] if row["line"] == 0]
    assert [row["amount"] for row in rows] == [
        format_bytes(own) for own in held.categories.values() if own
    ]
    compared = ho.compare("sfc", "hmc-htree-2")
    ratios = {(row["group"], row["series"]): row["value"] for row in bar_rows(compared.figure())}
    assert ratios["SFC", "HyPar"] == next(row.speedup for row in compared if row.plan == "hypar")
    every = ho.solve_all_batches("lenet-c", levels=1)
    choices = data_of(every.figure())["choices"]
    assert {row["choice"] for row in choices} <= {"data", "model"}
    assert max(row["last"] for row in choices) == every.hi + 0.5


def test_the_figures_in_the_documentation_are_of_the_present_runs() -> None:
    plan = ho.solve("vgg-a", array="hmc-htree-16")
    dots = (IMAGES / "plan-vgg-a.svg").read_text()
    for bytes_ in plan.cost.per_level:
        assert f">{format_bytes(bytes_)}<" in dots
    seconds = ho.simulate(plan).seconds
    assert f"{seconds:.2f} s<" in (IMAGES / "step-vgg-a.svg").read_text()
    for figure, series in (("fig6", ("hypar", "model")), ("fig8", ("hypar", "data", "model"))):
        text = (IMAGES / f"{figure.replace('fig', 'figure')}.svg").read_text()
        for row in reproduced()[figure]:
            if row.label.endswith(series):
                for value in (row.ours, row.printed):
                    assert f">{value:#.3g}".rstrip(".") + "<" in text, row
    assert ">largest: 4.97, 4 tie<" in (IMAGES / "figure10.svg").read_text()
    assert ">8.25<" in (IMAGES / "figure11.svg").read_text()


def test_numbers_of_the_fastest_configurations_do_not_lie_on_one_another() -> None:
    asked: Any = {"array": "h100-8", "batch": 256, "bound": "none"}
    configured = ho.configure("gpt2", **asked, fix="tp=1,cp=1")
    data = configured.figure().to_dict()["datasets"]
    runs = [run for row in data["numbers"] for run in row["number"].split(",")]
    ends = [(int(run.partition("-")[0]), int(run.rpartition("-")[2])) for run in runs]
    named = sorted(n for first, last in ends for n in range(first, last + 1))
    assert named == [*range(1, len(configured) + 1)]
    # On an axis of 480 pixels that ends at the capacity or beyond.
    most = max(row["memory"] for rows in data.values() for row in rows if "memory" in row)
    assert most >= data["limits"][0]["memory"]
    places = sorted(480 * row["memory"] / most for row in data["numbers"])
    assert 1 < len(places) < len(configured)
    assert all(after - before > 10 for before, after in pairwise(places))


def test_near_places_are_labelled_together_and_far_ones_apart() -> None:
    places = [(0.0, 0.0), (100.0, 0.0), (15.0, 5.0), (30.0, 10.0), (0.0, 50.0)]
    # The third and the fourth join what is between them and their neighbours.
    assert sorted(near(places, (16, 12))) == [[0, 2, 3], [1], [4]]
    assert sorted(near([*places, (45.0, 5.0)], (16, 12))) == [[0, 2, 3, 5], [1], [4]]


def test_a_dashed_line_is_dashed_in_the_legend() -> None:
    drawn = figures.batch_ranges(ho.solve_all_batches("lenet-c", levels=2)).to_dict()
    line = drawn["vconcat"][0]["layer"][1]["encoding"]
    dash, colour = line["strokeDash"], line["color"]
    assert dash["legend"] == colour["legend"]
    assert dash["legend"]["symbolType"] == "stroke"
    assert dash["scale"]["domain"] == colour["scale"]["domain"]
    # Legends of two channels are one only if both are the part's own.
    assert {drawn["resolve"]["scale"][name] for name in ("color", "strokeDash")} == {"independent"}


def test_ridges_are_plain_numbers() -> None:
    data = figures.array_roofline(find_array("h100-8x8")).to_dict()["datasets"]
    assert [row["ridge"] for row in data["ridges"]] == ["195.2", "16,350", "1,896"]
