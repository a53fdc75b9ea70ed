"""Pictures: what stands in them is what was asked to be drawn, and their files are sound."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from numpy.typing import NDArray

import hypar_opt as ho
from hypar_opt import paper
from hypar_opt.workload.parallelism import CHOICES

pytest.importorskip("matplotlib")

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection, QuadMesh
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from hypar_opt.display import pictures
from hypar_opt.display.glyphs import MODEL_SYMBOL
from hypar_opt.units import format_bytes, format_cost
from tests.display.graphs import texts
from tests.slow import slow_after

IMAGES = Path(__file__).parents[2] / "docs" / "images"


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


def words(figure: Figure) -> list[str]:
    """All text of a figure, once it is laid out."""
    figure.draw_without_rendering()
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def overlaps(texts: Iterable[Text]) -> list[tuple[str, str]]:
    boxes = [(text.get_text(), text.get_window_extent().padded(-0.5)) for text in texts]
    return [
        (one, other)
        for n, (one, box) in enumerate(boxes)
        for other, second in boxes[n + 1 :]
        if box.overlaps(second)
    ]


def is_whole(figure: Figure) -> bool:
    """Whether all that is drawn stands on the paper."""
    figure.draw_without_rendering()
    drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    return bool(
        min(drawn.x0, drawn.y0) > -0.01 and drawn.x1 < width + 0.01 and drawn.y1 < height + 0.01
    )


def marks(axes: Axes) -> dict[str, set[tuple[int, int]]]:
    """The places of each sort of mark: layer and level."""
    return {
        str(drawn.get_gid()): {(int(x), int(y)) for x, y in np.asarray(drawn.get_offsets())}
        for drawn in axes.collections
        if isinstance(drawn, PathCollection)
    }


def chosen(rows: Iterable[Iterable[object]]) -> dict[str, set[tuple[int, int]]]:
    found: dict[str, set[tuple[int, int]]] = {}
    for level, row in enumerate(rows):
        for layer, choice in enumerate(row):
            found.setdefault(str(choice), set()).add((layer, level))
    return found


def heights(axes: Axes) -> dict[str, list[float]]:
    """What the bars of each series reach to, whichever way they go."""
    found = {}
    for bars in axes.containers:
        rectangles = [each for each in bars.get_children() if isinstance(each, Rectangle)]
        found[str(bars.get_label())] = [each.get_y() + each.get_height() for each in rectangles]
    return found


ENERGY: dict[str, Any] = {"cost": "energy", "array": "hmc-htree-16"}
ASKED: list[tuple[str, dict[str, Any]]] = [("vgg-e", {"levels": 0}), ("vgg-e", {"levels": 10})]
ASKED += [("vgg-e", ENERGY), *((name, {}) for name in ho.models.PAPER_NETWORKS)]


@pytest.mark.parametrize(("network", "asked"), slow_after(6, ASKED))
def test_a_plans_marks_are_its_choices(network: str, asked: dict[str, Any]) -> None:
    plan = ho.solve(network, **asked)
    figure = pictures.plan_dots(plan)
    (axes,) = figure.axes
    assert marks(axes) == chosen(plan.parallelism)
    assert [label.get_text() for label in axes.get_xticklabels()] == list(plan.layers)
    assert [label.get_text() for label in axes.get_yticklabels()] == list(plan.level_names)
    assert axes.yaxis.get_inverted()  # H1, the topmost, on top
    found = words(figure)
    # Compute and local memory belong to no level.
    assert ("communication" in found) is (asked is ENERGY)
    for cost in plan.cost.communication or plan.cost.per_level:
        assert format_cost(cost, plan.cost.unit) in found
    assert is_whole(figure)


def test_filled_is_model_open_data_and_a_diamond_output_parallelism() -> None:
    plan = ho.solve("alexnet", choices=CHOICES)
    figure = pictures.plan_dots(plan)
    (axes,) = figure.axes
    assert marks(axes) == chosen(plan.parallelism)
    assert {"data", "model", "output"} == set(marks(axes))
    fills = {str(each.get_gid()): np.asarray(each.get_facecolor())[0] for each in axes.collections}
    assert fills["data"][:3].tolist() == [1, 1, 1]
    assert to_hex(fills["model"]) == MODEL_SYMBOL.colour
    corners = {
        str(each.get_gid()): len(np.asarray(each.get_paths()[0].vertices))
        for each in axes.collections
    }
    assert corners["output"] == 5
    assert corners["model"] > 5
    assert {"data parallelism", "model parallelism", "output parallelism"} < set(words(figure))


def test_a_long_network_with_odd_names_has_its_picture(tmp_path: Path) -> None:
    """Dollars are no mathematics."""
    names = [f"$fc_{n}^$" for n in range(60)]
    layers = [{"name": name, "kind": "fc", "units": 8} for name in names]
    network = ho.Network.model_validate(
        {"name": "a $\\long$ one", "input": {"features": 8}, "layer": layers}
    )
    figure = pictures.plan_dots(ho.solve(network, levels=2))
    assert [label.get_text() for axes in figure.axes for label in axes.get_xticklabels()] == names
    assert is_whole(figure)
    pictures.save(figure, tmp_path / "long.svg")
    assert "a $\\long$ one" in (tmp_path / "long.svg").read_text()


def test_a_chain_of_a_thousand_layers_has_a_row_for_each_run() -> None:
    names = [f"$fc_{n}^$" for n in range(1000)]
    # Each choice is fixed, so that runs of several lengths stand side by side.
    layers = [
        {"name": name, "kind": "fc", "units": 8 if n < 400 else 4096}
        for n, name in enumerate(names)
    ]
    network = ho.Network.model_validate({"name": "long", "input": {"features": 8}, "layer": layers})
    plan = ho.solve(network, levels=2, batch=256)
    figure = pictures.plan_dots(plan)
    (axes,) = figure.axes
    labels = [label.get_text().strip() for label in axes.get_yticklabels()]
    columns = list(zip(*plan.parallelism, strict=True))
    starts = [n for n in range(1000) if n == 0 or columns[n] != columns[n - 1]]
    assert len(labels) == len(starts) < 20
    assert [label.split("–")[0] for label in labels] == [names[n] for n in starts]
    assert marks(axes) == chosen(columns[n] for n in starts)
    assert is_whole(figure)


@pytest.mark.parametrize("layers", [60, 96])
def test_a_deep_plan_is_no_strip_and_has_every_choice_once(layers: int) -> None:
    """Layers go on below, or beside, and none is alike the next."""
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
    figure = pictures.plan_dots(plan)
    width, height = figure.get_size_inches()
    assert max(width, height) < 4 * min(width, height)
    assert is_whole(figure)
    in_rows = layers > 60
    drawn = []
    for axes in figure.axes:
        shown = [text for text in axes.findobj(Text) if text.get_text() and text.get_visible()]
        assert overlaps(shown) == []
        labels = axes.get_yticklabels() if in_rows else axes.get_xticklabels()
        for choice, places in marks(axes).items():
            for place in places:
                layer, level = reversed(place) if in_rows else place
                drawn.append((labels[layer].get_text(), level, choice))
    assert sorted(drawn) == sorted(
        (name, level, str(choice))
        for level, row in enumerate(plan.parallelism)
        for name, choice in zip(names, row, strict=True)
    )


def test_bars_reach_their_numbers_ours_and_printed() -> None:
    ours = [4.97, 0.0374, None, 1.0]
    printed = [4.9, 0.04, 2.0, None]
    figure = pictures.bars(
        ["VGG-A", "SCONV", "SFC", "one"], {"HyPar": ours}, {"HyPar": printed}, baseline=1
    )
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    assert heights(axes) == {
        "HyPar, ours": pytest.approx([4.97, 0.0374, 1.0]),
        "HyPar, printed": pytest.approx([4.9, 0.04, 2.0]),
    }
    rectangles = [bar for bars in axes.containers for bar in bars.get_children()]
    hatched = [bar.get_hatch() for bar in rectangles if isinstance(bar, Rectangle)]
    assert [bool(each) for each in hatched] == [False] * 3 + [True] * 3
    assert {"4.97", "0.0374", "4.90", "0.0400", "2.00", "as the paper prints it"} < set(
        words(figure)
    )


def test_bars_without_a_baseline_stand_on_a_power_of_ten() -> None:
    figure = pictures.bars(["one", "two"], {"data": [16.9, 0.0121]})
    (axes,) = figure.axes
    assert axes.get_ylim()[0] == pytest.approx(0.01)
    assert heights(axes) == {"data, ours": pytest.approx([16.9, 0.0121])}
    assert pictures.bars([], {}).axes


def test_a_legend_of_many_names_takes_as_many_rows_as_it_needs() -> None:
    names = [f"the plan number {n}" for n in range(9)]
    assert is_whole(pictures.bars(["one"], {name: [1.5] for name in names}, baseline=1))


def grid() -> NDArray[np.float64]:
    values = np.arange(12, dtype=float).reshape(3, 4)
    values[0, 2] = 11.0  # ties with the last
    return values


def places(axes: Axes) -> dict[str, set[tuple[float, float]]]:
    return {
        str(line.get_gid()): {(float(x), float(y)) for x, y in np.asarray(line.get_xydata())}
        for line in axes.get_lines()
    }


def test_the_stars_stand_where_the_values_are_largest_and_the_rings_where_asked() -> None:
    figure = pictures.surface(grid(), "abcd", "xyz", {"HyPar's plan": ("b", "y")})
    axes = figure.axes[0]
    assert places(axes) == {"largest": {(2.5, 0.5), (3.5, 2.5)}, "HyPar's plan": {(1.5, 1.5)}}
    (mesh,) = (each for each in axes.collections if isinstance(each, QuadMesh))
    assert np.asarray(mesh.get_array()).tolist() == grid().tolist()
    assert {"largest: 11.0, 2 tie", "HyPar's plan: 5.00"} < set(words(figure))
    with pytest.raises(ValueError, match="3 rows of 3 values"):
        pictures.surface(grid(), "abc", "xyz")


def test_scaling_has_gains_as_lines_and_communication_as_bars_on_the_other_axis() -> None:
    figure = pictures.scaling(
        [1, 2, 4],
        {"HyPar": [1, 2, 3.9], "Data Parallelism": [1, None, 3.5]},
        {"HyPar": [0, 0.2, 0.6]},
        printed_gains={"HyPar": [1, 2.0, 3.8]},
        printed_gigabytes={"HyPar": [0, 0.21, 0.61]},
    )
    left, right = figure.axes
    lines = {str(line.get_label()): np.asarray(line.get_ydata()).tolist() for line in left.lines}
    assert lines["HyPar"] == [1, 2, 3.9]
    assert lines["HyPar, printed"] == [1, 2, 3.8]
    assert math.isnan(lines["Data Parallelism"][1])
    assert heights(right) == {"HyPar, ours": [0, 0.2, 0.6], "HyPar, printed": [0, 0.21, 0.61]}
    assert [label.get_text() for label in left.get_xticklabels()] == ["1", "2", "4"]


def spans(figure: Figure) -> dict[str, float]:
    """The seconds of each kind of span, all tracks together, of an axis in seconds or ms."""
    (axes,) = figure.axes
    unit = {"s": 1.0, "ms": 1e-3}[axes.get_xlabel()]
    found: dict[str, float] = {}
    for drawn in axes.collections:
        assert isinstance(drawn, PolyCollection)
        for path in drawn.get_paths():
            box = path.get_extents()
            found[str(drawn.get_gid())] = found.get(str(drawn.get_gid()), 0.0) + box.width * unit
    return found


@pytest.mark.parametrize(
    ("network", "array"), [("vgg-a", "hmc-htree-16"), ("alexnet", "hmc-torus-16")]
)
def test_a_timelines_spans_add_up_to_the_step(network: str, array: str) -> None:
    done = step(network, array)
    figure = pictures.timeline(done.trace, accelerators=[3], links=[])
    found = spans(figure)
    for phase, (compute, _) in done.phases.items():
        assert found.pop(phase) == pytest.approx(compute, rel=1e-4)
    assert sum(found.values()) == pytest.approx(done.communication, rel=1e-4)
    assert set(found) == {"H1", "H2", "H3", "H4"}


def test_a_timeline_shows_a_few_tracks_the_first_of_each_sort() -> None:
    figure = pictures.timeline(step("vgg-a").trace)
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    tiers = ["0-switch2.0", "switch2.0-switch4.0", "switch4.0-switch8.0", "switch8.0-switch16.0"]
    assert names == ["accelerator 0", "accelerator 1", *tiers]
    found = set(words(figure))
    assert {"forward", "gradient", "backward", "exchange H1", "exchange H4", "conv4_2"} < found
    assert is_whole(figure)


def test_gradients_beside_other_work_have_a_track_of_their_own() -> None:
    trace = step("vgg-a", overlap="gradient").trace
    figure = pictures.timeline(trace, accelerators=[0, 9], links=["0-switch2.0"])
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [
        *("accelerator 0", "accelerator 0 gradients"),
        *("accelerator 9", "accelerator 9 gradients"),
        "0-switch2.0",
    ]


def test_a_ring_crosses_several_levels_and_a_part_of_a_step_can_be_looked_at() -> None:
    plan = ho.solve("lenet-c", array="hmc-htree-16")
    done = ho.simulate(plan, collective="ring", trace=True)
    assert done.trace is not None
    half = done.seconds / 2
    figure = pictures.timeline(done.trace, between=(half, done.seconds))
    assert "exchange several levels" in words(figure)
    low, high = figure.axes[0].get_xlim()
    assert low == pytest.approx(high / 2)
    assert "forward" not in spans(pictures.timeline(done.trace, between=(half, done.seconds)))


def test_an_unknown_track_is_refused_by_name() -> None:
    with pytest.raises(ho.HyparError, match="no accelerator 16: there are 16, from 0"):
        pictures.timeline(step("vgg-a").trace, accelerators=[16])
    with pytest.raises(ho.HyparError, match="no link 'wire'"):
        pictures.timeline(step("vgg-a").trace, links=["wire"])


MAKERS: dict[str, Callable[[], Figure]] = {
    "plan_dots": lambda: pictures.plan_dots(ho.solve("lenet-c")),
    "timeline": lambda: pictures.timeline(step("lenet-c").trace),
    "bars": lambda: pictures.bars(["one"], {"HyPar": [2.0]}, {"HyPar": [2.1]}, baseline=1),
    "surface": lambda: pictures.surface(grid(), "abcd", "xyz"),
    "scaling": lambda: pictures.scaling([1], {"HyPar": [1.0]}, {"HyPar": [1.0]}),
}


@pytest.mark.parametrize("maker", slow_after(2, MAKERS))
def test_the_three_formats_are_sound_and_twice_the_same(tmp_path: Path, maker: str) -> None:
    make = MAKERS[maker]
    starts = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF-1."}
    assert set(pictures.FORMATS) == set(starts)
    one, other = make(), make()
    for kind, start in starts.items():
        files = [tmp_path / f"{n}.{kind}" for n in range(2)]
        for figure, file in zip((one, other), files, strict=True):
            pictures.save(figure, file)
        written, again = (file.read_bytes() for file in files)
        assert written == again
        assert written.startswith(start)
        if kind == "svg":
            assert ET.fromstring(written).tag == "{http://www.w3.org/2000/svg}svg"
        if kind == "pdf":
            assert written.rstrip().endswith(b"%%EOF")
    assert len(list(tmp_path.iterdir())) == 6  # no drafts are left


def test_text_stays_text_and_nothing_says_when_or_with_what(tmp_path: Path) -> None:
    pictures.save(pictures.plan_dots(ho.solve("vgg-a")), tmp_path / "plan.SVG")
    text = (tmp_path / "plan.SVG").read_text()
    assert {"conv5_2", "H4", "data parallelism"} < set(texts(text))
    pictures.save(pictures.plan_dots(ho.solve("vgg-a")), tmp_path / "plan.pdf")
    for content in (text.encode(), (tmp_path / "plan.pdf").read_bytes()):
        assert b"Matplotlib" not in content
        assert b"/CreationDate" not in content
        assert b"<dc:date>" not in content


def test_the_readers_own_settings_change_nothing_and_are_not_changed(tmp_path: Path) -> None:
    pictures.save(pictures.bars(["one"], {"HyPar": [2.0]}), tmp_path / "plain.svg")
    before = dict(rcParams)
    rcParams["font.size"], rcParams["axes.facecolor"] = 20, "red"
    try:
        pictures.save(pictures.bars(["one"], {"HyPar": [2.0]}), tmp_path / "own.svg")
        assert rcParams["font.size"] == 20
    finally:
        rcParams["font.size"], rcParams["axes.facecolor"] = (
            before["font.size"],
            before["axes.facecolor"],
        )
    assert dict(rcParams) == before
    assert (tmp_path / "own.svg").read_bytes() == (tmp_path / "plain.svg").read_bytes()


@pytest.mark.parametrize("name", ["plan.jpg", "plan"])
def test_an_unknown_suffix_is_refused_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(ho.HyparError, match="one of png, svg, pdf, got"):
        pictures.save(pictures.plan_dots(ho.solve("sfc")), tmp_path / name)
    with pytest.raises(ho.HyparError, match="one of png, svg, pdf, got 'gif'"):
        pictures.draw_paper({}, tmp_path / "folder", ["png", "gif"])
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure, plan = pictures.plan_dots(ho.solve("sfc")), ho.solve("sfc")
    for name in [each for each in sys.modules if each.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    message = r"^pictures need matplotlib: pip install 'hypar-opt\[plot\]'$"
    calls: list[Callable[[], object]] = [
        *MAKERS.values(),
        lambda: pictures.plan_dots(plan),
        lambda: pictures.save(figure, tmp_path / "plan.png"),
        lambda: pictures.draw_paper({}, tmp_path / "folder"),
    ]
    for call in calls:
        with pytest.raises(ho.HyparError, match=message):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Figure]:
    """The paper's figures by their files' names, from a real reproduction."""
    found: dict[str, Figure] = {}

    def keep(figure: Figure, path: Path) -> None:
        found[path.stem] = figure

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("hypar_opt.display.pictures.paper.save", keep)
        pictures.draw_paper(reproduced(), tmp_path_factory.mktemp("pictures"))
    return found


def test_every_figure_of_the_paper_is_drawn_with_nothing_cut_off(drawn: dict[str, Figure]) -> None:
    assert list(drawn) == [f"figure{n}" for n in range(5, 14)]
    for name, figure in drawn.items():
        assert is_whole(figure), name
        for axes in figure.axes:
            labels = [text for text in axes.texts if text.get_text()]
            assert overlaps(labels) == [], name


def test_figure_5_has_every_networks_dots(drawn: dict[str, Figure]) -> None:
    panels = {str(axes.get_label()).lower(): axes for axes in drawn["figure5"].axes}
    assert list(panels) == list(ho.models.PAPER_NETWORKS)
    for name, axes in panels.items():
        assert marks(axes) == chosen(ho.solve(name, reading="figures").parallelism)


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
def test_bars_are_the_reproductions_rows(
    drawn: dict[str, Figure], figure: str, series: dict[str, str]
) -> None:
    found = heights(drawn[figure.replace("fig", "figure")].axes[0])
    for word, name in series.items():
        rows = [row for row in reproduced()[figure] if row.label.endswith(f" {word}")]
        assert len(rows) in (7, 11)
        assert found[f"{name}, ours"] == pytest.approx([row.ours for row in rows])
        assert found[f"{name}, printed"] == pytest.approx([row.printed for row in rows])


def test_the_surfaces_have_256_plans_and_their_peaks(drawn: dict[str, Figure]) -> None:
    for name, peak, at in (("figure9", 3.055, (3.5, 3.5)), ("figure10", 4.973, (1.5, 15.5))):
        axes = drawn[name].axes[0]
        (mesh,) = (each for each in axes.collections if isinstance(each, QuadMesh))
        values = np.asarray(mesh.get_array())
        assert (values.shape, values.max()) == ((16, 16), pytest.approx(peak, abs=5e-4))
        found = places(axes)
        assert found["HyPar's plan"] == {at}
        assert at in found["largest"]
        for x, y in found["largest"]:
            assert values[int(y), int(x)] == pytest.approx(values.max(), rel=1e-9)
    (printed,) = (value for name, value in places(axes).items() if "5.05" in name)
    assert printed == {(8.5, 15.5)}  # conv5_2 1000, fc1 1111
    assert printed < found["largest"]


def test_figure_11_has_the_rows_of_vgg_e(drawn: dict[str, Figure]) -> None:
    left, right = drawn["figure11"].axes
    rows = {row.label: row for row in reproduced()["fig11"]}
    lines = {str(line.get_label()): line for line in left.lines if isinstance(line, Line2D)}
    counts = [int(label.get_text()) for label in left.get_xticklabels()]
    assert counts[-1] == 64
    for word, name in (("hypar", "HyPar"), ("data", "Data Parallelism")):
        gains = [rows[f"VGG-E {word} gain {n}"] for n in counts]
        moved = [rows[f"VGG-E {word} GB {n}"] for n in counts]
        ours, theirs = lines[name].get_ydata(), lines[f"{name}, printed"].get_ydata()
        assert np.asarray(ours).tolist() == [row.ours for row in gains]
        assert np.asarray(theirs).tolist() == [row.printed for row in gains]
        assert heights(right)[f"{name}, ours"] == pytest.approx([row.ours for row in moved])
        assert heights(right)[f"{name}, printed"] == pytest.approx([row.printed for row in moved])


def test_what_has_no_place_in_a_picture_is_left_out(tmp_path: Path) -> None:
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
    written = pictures.draw_paper(rows, tmp_path / "new", formats=("svg", "pdf"))
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
            pictures.draw_paper({}, folder)


def test_where_the_paper_differs_a_square_stands_around_the_mark() -> None:
    from hypar_opt.display.pictures.paper import _draw

    rows = [Row("SFC H1", "figures", "1111", "1011"), Row("SFC H2", "figures", "1111", "1111")]
    figure = _draw("fig5", rows)
    assert figure is not None
    assert marks(figure.axes[0])["not as printed"] == {(1, 0)}
    said = words(figure)
    assert "not as printed" in said
    assert any(text.endswith("; reading figures: 1 of 2 rows as printed") for text in said)
    alike = _draw("fig5", rows[1:])
    assert alike is not None
    assert "not as printed" not in words(alike)


def test_the_pictures_in_the_documentation_are_of_the_present_runs() -> None:
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
