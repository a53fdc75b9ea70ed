"""The operator graph on the page, as a browser draws it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hypar_opt as ho
from hypar_opt.display.glyphs import glyph
from hypar_opt.display.operator_graph import operator_graph
from hypar_opt.display.plan_grid import Stored, drawn_keys
from hypar_opt.plan.plan import Plan
from tests.browser.test_page import (
    asked_for,
    browser,
    colours,
    log,
    open_page,
    show,
    wait_for,
    write,
)
from tests.slow import slow_after

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser

__all__ = ["browser"]  # a fixture

BOXES = """
const box = (node) => {
  const { x, y, width, height } = node.querySelector('rect').getBoundingClientRect();
  return { name: node.dataset.layer ?? 'input', x, y, width, height,
           glyphs: [...node.querySelectorAll('.glyph')].map((text) => text.textContent) };
};
return [...document.querySelectorAll('#graph-view .node')].map(box);
"""
ENDS = """
return [...document.querySelectorAll('#graph-view path.edge')].map((path) => {
  const length = path.getTotalLength();
  return [path.getPointAtLength(0).y, path.getPointAtLength(length - 20).y];
});
"""


NETWORKS = ["gpt:layers=3,hidden=64,heads=4,tokens=16", "resnet-50"]


@pytest.fixture(scope="module", params=slow_after(1, NETWORKS))
def plan(request: pytest.FixtureRequest) -> Plan:
    return ho.solve(request.param, array="hmc-htree-16", batch=64)


@pytest.fixture(scope="module")
def file(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(plan, tmp_path_factory.mktemp("page"))


@pytest.fixture
def opened(browser: Chrome, file: Path) -> Chrome:
    """The page as it opens: its blocks are folded, and it is not zoomed."""
    opened = open_page(browser, file, 1200)
    wait_for(opened, "return document.querySelector('#graph-view[data-drawn]') !== null")
    return opened


def boxes(opened: Chrome) -> list[dict[str, Any]]:
    drawn: list[dict[str, Any]] = opened.execute_script(BOXES)
    return drawn


def click(opened: Chrome, name: str) -> None:
    opened.execute_script("document.getElementById(arguments[0]).click()", name)


def check_apart(drawn: list[dict[str, Any]]) -> None:
    """Check that no two boxes overlap."""
    for n, one in enumerate(drawn):
        for other in drawn[n + 1 :]:
            beside = abs(one["x"] - other["x"]) >= one["width"]
            below = abs(one["y"] - other["y"]) >= one["height"]
            assert beside or below, (one["name"], other["name"])


def check_choices(drawn: list[dict[str, Any]], plan: Plan) -> None:
    """Check that each box has the glyphs of its layer's choices, H1 first."""
    position = {name: n for n, name in enumerate(plan.layers)}
    for box in drawn:
        if box["name"] != "input":
            n = position[box["name"]]
            assert box["glyphs"] == [glyph(row[n]) for row in plan.parallelism]


@pytest.mark.parametrize("plan", slow_after(1, NETWORKS), indirect=True)
def test_the_graph_is_drawn_with_its_blocks_folded_and_opens(
    opened: Chrome, plan: Plan, tmp_path: Path
) -> None:
    network = plan.network.description
    graph = operator_graph(
        plan.layers, network.sources, network.repeats, drawn_keys(plan, Stored.SHARED)
    )
    folded = boxes(opened)
    assert [box["name"] for box in folded] == [
        "input",
        *(plan.layers[node.position] for node in graph.nodes[1:]),
    ]
    check_apart(folded)
    check_choices(folded, plan)
    edges = opened.execute_script(ENDS)
    assert len(edges) == len(graph.edges)
    assert all(start < end for start, end in edges)

    click(opened, "graph-open")
    whole = boxes(opened)
    assert sorted(box["name"] for box in whole) == sorted(["input", *plan.layers])
    assert len(whole) > len(folded)
    check_apart(whole)
    check_choices(whole, plan)
    edges = opened.execute_script(ENDS)
    assert len(edges) == sum(map(len, network.sources))
    assert all(start < end for start, end in edges)
    click(opened, "graph-fit")
    view = opened.execute_script(
        "const v = document.getElementById('graph-view');"
        "return [v.scrollWidth - v.clientWidth, v.scrollHeight - v.clientHeight]"
    )
    assert view == [0, 0]
    click(opened, "graph-open")
    assert [box["name"] for box in boxes(opened)] == [box["name"] for box in folded]

    assert colours(opened, tmp_path, "graph", 3000) > 100
    assert log(opened, "browser") == []
    assert all(address.startswith(("file:", "data:", "blob:")) for address in asked_for(opened))


def test_one_block_is_opened_by_its_name_with_the_keyboard_too(opened: Chrome) -> None:
    from selenium.webdriver import Keys

    names = opened.find_elements("css selector", "#graph-view .frame [role=button]")
    before = len(boxes(opened))
    length = "return JSON.parse(document.getElementById('data-graph').textContent).frames"
    frames = [frame for frame in opened.execute_script(length) if frame["count"] > 1]
    assert [name.text for name in names] == [f"{f['label']} × {f['count']} +" for f in frames]
    first = frames[0]
    added = first["length"] * (first["count"] - 1)
    names[0].click()
    assert len(boxes(opened)) == before + added
    focused = opened.switch_to.active_element
    assert focused.text.endswith(" −")
    focused.send_keys(Keys.ENTER)
    assert len(boxes(opened)) == before


def test_the_graph_is_zoomed_and_moved(opened: Chrome) -> None:
    from selenium.webdriver import ActionChains, Keys

    width = "return document.querySelector('#graph-view svg').getBoundingClientRect().width"
    scrolled = "return document.getElementById('graph-view').scrollTop"
    before = opened.execute_script(width)
    click(opened, "graph-in")
    assert opened.execute_script(width) == pytest.approx(1.25 * before)
    view = opened.find_element("id", "graph-view")
    opened.execute_script("arguments[0].scrollIntoView({ block: 'center' })", view)
    view.send_keys("-")
    assert opened.execute_script(width) == pytest.approx(before)
    for _ in range(4):  # so that there is more than the view shows
        click(opened, "graph-in")
    before = opened.execute_script(width)
    opened.execute_script("arguments[0].scrollTop = 0", view)
    at = opened.execute_script(scrolled)
    ActionChains(opened).drag_and_drop_by_offset(view, 0, -120).perform()
    assert opened.execute_script(scrolled) == pytest.approx(at + 120, abs=2)
    page = opened.execute_script("return window.scrollY")
    ActionChains(opened).key_down(Keys.CONTROL).perform()
    opened.execute_script(
        "arguments[0].dispatchEvent(new WheelEvent('wheel',"
        " { deltaY: -60, ctrlKey: true, cancelable: true, clientX: 600, clientY: 400 }))",
        view,
    )
    ActionChains(opened).key_up(Keys.CONTROL).perform()
    assert opened.execute_script(width) == pytest.approx(before * math.exp(0.2), rel=1e-3)
    assert opened.execute_script("return window.scrollY") == page


def test_on_a_phone_the_graph_stays_in_its_frame(browser: Chrome, file: Path) -> None:
    opened = open_page(browser, file, width=400)
    assert opened.execute_script("return document.documentElement.scrollWidth") == 400
    assert log(opened, "browser") == []


def test_names_are_text_and_what_is_injected_does_not_run(browser: Chrome, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=\"console.error('ran')\">"
    fc = {"kind": "fc", "units": 8}
    described = {
        "schema": "hypar-opt/network/2",
        "name": evil,
        "input": {"features": 8},
        "layer": [
            {"name": f"{evil}0", **fc},
            {"name": "b", **fc},
            {"name": "add", "kind": "add", "inputs": [f"{evil}0", "b"]},
        ],
    }
    network = ho.Network.model_validate(described)
    opened = show(browser, ho.solve(network, array="hmc-htree-4"), tmp_path)
    assert opened.find_element("tag name", "h1").text.startswith(evil)
    assert [box["name"] for box in boxes(opened)] == ["input", f"{evil}0", "b", "add"]
    assert log(opened, "browser") == []
    assert all(address.startswith("file:") for address in asked_for(opened) if address != "data:,")
