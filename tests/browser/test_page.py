"""The page as a browser shows it: Debian's Chromium, headless. ``make test-browser`` runs these."""

from __future__ import annotations

import base64
import json
import math
import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import hypar_opt as ho
from hypar_opt import models
from hypar_opt.display.page import exploration_page, page
from hypar_opt.display.page.contents import gather
from hypar_opt.hardware.arrays import find_array
from hypar_opt.plan.plan import Plan
from tests.slow import slow_after

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.browser

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--no-first-run", "--hide-scrollbars"),
)
DRAWN = "return document.querySelectorAll('.figure:not([data-drawn])').length === 0"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    from selenium import webdriver

    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs Debian's packages chromium and chromium-driver")
    asked = webdriver.ChromeOptions()
    asked.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        asked.add_argument(flag)
    asked.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=asked, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture(
    scope="module", params=slow_after(1, dict.fromkeys(("vgg-e", *models.PAPER_NETWORKS)))
)
def plan(request: pytest.FixtureRequest) -> Plan:
    return ho.solve(request.param, array="hmc-htree-16")


@pytest.fixture(scope="module")
def file(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(plan, tmp_path_factory.mktemp("page"))


@pytest.fixture
def opened(browser: Chrome, file: Path) -> Chrome:
    """The page, which a test may get as another left it."""
    return browser if is_shown(browser, file) else open_page(browser, file)


def is_shown(browser: Chrome, file: Path) -> bool:
    """Return whether the page is the browser's, as wide as `open_page` has it."""
    width = browser.execute_script("return window.innerWidth")
    return (browser.current_url, width) == (file.as_uri(), 1200)


def show(browser: Chrome, plan: Plan, folder: Path, width: int = 1200, height: int = 900) -> Chrome:
    return open_page(browser, write(plan, folder), width, height)


def write(plan: Plan, folder: Path) -> Path:
    assert plan.array is not None
    file = folder / "page.html"
    file.write_text(page(gather(plan, plan.array.description)), encoding="utf-8")
    return file


def open_page(browser: Chrome, file: Path, width: int = 1200, height: int = 900) -> Chrome:
    for kind in ("browser", "performance"):
        log(browser, kind)
    resize(browser, width, height)
    browser.get(file.as_uri())
    wait_for(browser, DRAWN)
    return browser


def resize(browser: Chrome, width: int, height: int) -> None:
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    command(browser, "Emulation.setDeviceMetricsOverride", **size)


def wait_for(browser: Chrome, script: str) -> None:
    """Wait until a script returns true."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, math.inf).until(lambda driver: driver.execute_script(script))


def command(browser: Chrome, name: str, **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = browser.execute_cdp_cmd(name, given)
    return found


def log(browser: Chrome, kind: str) -> list[dict[str, Any]]:
    """Return what the browser's log has since it was last read."""
    found: list[dict[str, Any]] = browser.get_log(kind)  # type: ignore[no-untyped-call]
    return found


def asked_for(browser: Chrome) -> list[str]:
    """Return the addresses that the page asked for since the log was last read."""
    messages = [json.loads(each["message"])["message"] for each in log(browser, "performance")]
    return [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
        # The browser has a start page of its own, which may still load.
        and not message["params"]["documentURL"].startswith("chrome")
    ]


def said(browser: Chrome) -> str:
    """Return what the panel beside the grid says of a cell."""
    panel = browser.find_element("id", "cell")
    return " ".join(panel.text.split())


def colours(browser: Chrome, folder: Path, name: str, height: int) -> int:
    """Take a picture of the page from its top, and count its colours."""
    from PIL import Image

    width = browser.execute_script("return window.innerWidth")
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    taken = command(browser, "Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
    picture = base64.b64decode(taken["data"])
    (folder / f"{name}.png").write_bytes(picture)
    with Image.open(BytesIO(picture)) as opened:
        return len(opened.convert("RGB").getcolors(2**24) or ())


def test_the_page_of_every_network_of_the_zoo_opens_clean(
    browser: Chrome, file: Path, plan: Plan, tmp_path: Path
) -> None:
    opened = open_page(browser, file)
    grid = opened.find_element("id", "grid")
    cells = opened.execute_script(
        "return [...arguments[0].querySelectorAll('[role=gridcell]')]"
        ".map(cell => cell.querySelector('.unseen').textContent)",
        grid,
    )
    assert cells == [
        f"H{level} {layer}: {choice}"
        for level, row in enumerate(plan.parallelism, 1)
        for layer, choice in zip(plan.layers, row, strict=True)
    ]
    point_at_each_of_a_few(opened, plan)
    drawn = opened.execute_script(
        "return [...document.querySelectorAll('.figure')]"
        ".map(figure => figure.querySelectorAll('.role-mark path, .role-mark line').length)"
    )
    assert len(drawn) == 7
    assert min(drawn) > 4
    height = opened.execute_script("return document.documentElement.scrollHeight")
    assert height > 2000
    assert colours(opened, tmp_path, "page", height) > 100
    assert log(opened, "browser") == []
    addresses = asked_for(opened)
    assert len(addresses) >= 1
    assert all(address.startswith(("file:", "data:", "blob:")) for address in addresses)


def point_at_each_of_a_few(opened: Chrome, plan: Plan) -> None:
    from selenium.webdriver import ActionChains

    for level, layer in ((1, 1), (plan.levels, len(plan.layers)), (2, len(plan.layers) // 2)):
        cell = opened.find_element("id", f"cell-{level}-{layer}")
        # The panel may lie over a cell that is in the window.
        opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", cell)
        ActionChains(opened).move_to_element(cell).perform()
        found = said(opened)
        assert found.startswith(
            f"{plan.layers[layer - 1]} at H{level} choice in the layer between layers regret"
        )
        taken = plan.parallelism[level - 1][layer - 1]
        others = [choice for choice in plan.choices if choice is not taken]
        assert found.count("chosen") == 1
        assert all(f" {other} " in found for other in (taken, *others))
        # The other choice's regret: an amount with its share, or nothing.
        assert "%)" in found or "nothing" in found


def test_the_grid_is_walked_with_the_arrow_keys(opened: Chrome, plan: Plan) -> None:
    from selenium.webdriver import Keys

    opened.execute_script("document.getElementById('cell-1-1').focus()")
    for key, (level, layer) in (
        (Keys.ARROW_RIGHT, (1, 2)),
        (Keys.ARROW_DOWN, (2, 2)),
        (Keys.END, (2, len(plan.layers))),
        (Keys.ARROW_RIGHT, (2, len(plan.layers))),
        (Keys.HOME, (2, 1)),
        (Keys.ARROW_UP, (1, 1)),
        (Keys.ARROW_UP, (1, 1)),
    ):
        opened.switch_to.active_element.send_keys(key)
        assert opened.switch_to.active_element.get_attribute("id") == f"cell-{level}-{layer}"
        assert said(opened).startswith(f"{plan.layers[layer - 1]} at H{level}")
    reached = "return document.querySelectorAll('#grid [tabindex=\"0\"]').length"
    assert opened.execute_script(reached) == 1
    assert log(opened, "browser") == []


def box(opened: Chrome, selector: str) -> dict[str, float]:
    """Return where an element is in the window."""
    script = "return document.querySelector(arguments[0]).getBoundingClientRect().toJSON()"
    found: dict[str, float] = opened.execute_script(script, selector)
    return found


def test_the_panel_of_a_cell_and_the_levels_costs_are_always_in_view(
    browser: Chrome, tmp_path: Path
) -> None:
    layers = [{"name": f"fc{n}", "kind": "fc", "units": 64 + n} for n in range(64)]
    network = ho.Network.model_validate(
        {"name": "deep", "input": {"features": 64}, "layer": layers}
    )
    # Each is fixed otherwise than the next: none are folded.
    pins = [f"fc{n}@H{n % 4 + 1}=model" for n in range(64)]
    plan = ho.solve(network, array="hmc-htree-16", constraints={"fix": pins})
    show(browser, plan, tmp_path)
    for width, height in ((1280, 807), (1024, 600), (400, 700)):
        resize(browser, width, height)
        walk_along_the_ends(browser, width, height)
        assert log(browser, "browser") == []


def walk_along_the_ends(opened: Chrome, width: int, height: int) -> None:
    from selenium.webdriver import Keys

    opened.execute_script("document.getElementById('cell-1-1').focus()")
    last = len(opened.find_elements("css selector", "#grid tbody tr:first-child [role=gridcell]"))
    assert last == 64
    for keys in ("", Keys.END, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_LEFT, Keys.HOME):
        opened.switch_to.active_element.send_keys(keys)
        panel, cell = box(opened, "#cell"), box(opened, "#grid .current")
        cost = box(opened, "#grid tbody tr:first-child .charge")
        level = box(opened, "#grid tbody tr:first-child th")
        assert 0 <= panel["top"] < panel["bottom"] <= height
        assert 0 <= level["left"] < level["right"] <= cell["left"]
        assert cell["right"] <= cost["left"] < cost["right"] <= width
        # The panel hides no cell that it tells of.
        assert cell["bottom"] <= panel["top"]


def test_the_dark_page_is_dark_and_its_charts_legible(opened: Chrome, tmp_path: Path) -> None:
    ink = (
        "const text = document.querySelector('#figure-by-level .role-legend-label text');"
        "return getComputedStyle(text).fill"
        " + getComputedStyle(document.body).backgroundColor"
    )
    dark = {"name": "prefers-color-scheme", "value": "dark"}
    command(opened, "Emulation.setEmulatedMedia", features=[dark])
    try:
        wait_for(opened, f"{ink} === 'rgb(228, 233, 239)rgb(20, 24, 29)'")
        assert colours(opened, tmp_path, "dark", 3000) > 100
    finally:
        command(opened, "Emulation.setEmulatedMedia", features=[])
    wait_for(opened, f"{ink} === 'rgb(28, 36, 48)rgb(255, 255, 255)'")


def test_a_bar_says_its_time_and_the_step_is_looked_at_closer(opened: Chrome) -> None:
    from selenium.webdriver import ActionChains

    bars = opened.find_elements("css selector", "#figure-timeline .mark-rect.role-mark path")
    widest = max(bars, key=lambda bar: bar.rect["width"])
    opened.execute_script("arguments[0].scrollIntoView({block: 'center'})", widest)
    assert " from " in (widest.get_attribute("aria-label") or "")
    ActionChains(opened).move_to_element(widest).perform()
    wait_for(opened, "return document.querySelector('#vg-tooltip-element.visible') !== null")
    told = opened.find_element("id", "vg-tooltip-element").text
    assert told == widest.get_attribute("aria-label")
    before = widest.rect["width"]
    page = opened.execute_script("return window.scrollY")
    opened.execute_script(
        "const { x, y, width, height } = arguments[0].getBoundingClientRect();"
        "arguments[0].dispatchEvent(new WheelEvent('wheel', { deltaY: -200, ctrlKey: true,"
        " bubbles: true, cancelable: true, clientX: x + width / 2, clientY: y + height / 2 }))",
        widest,
    )
    widths = "return [...document.querySelectorAll('#figure-timeline .mark-rect.role-mark path')]"
    wait_for(
        opened,
        f"{widths}.some(bar => bar.getBoundingClientRect().width > {1.1 * before})",
    )
    assert opened.execute_script("return window.scrollY") == page
    assert log(opened, "browser") == []


def test_a_phone_shows_it_all_and_nothing_hangs_over(
    browser: Chrome, file: Path, tmp_path: Path
) -> None:
    opened = open_page(browser, file, width=400)
    assert opened.execute_script("return document.documentElement.scrollWidth") == 400
    panel = "const p = document.getElementById('cell'); return p.scrollWidth - p.clientWidth"
    assert opened.execute_script(panel) <= 0
    assert colours(opened, tmp_path, "phone", 4000) > 100
    assert log(opened, "browser") == []


@pytest.mark.parametrize("array", slow_after(1, ["tpu-v4-4x4x4", "h100-8x8", "hmc-torus-16"]))
def test_other_topologies_open_clean(browser: Chrome, array: str, tmp_path: Path) -> None:
    opened = show(browser, ho.solve("cifar-c", array=array), tmp_path)
    points = "return document.querySelectorAll('#figure-links .mark-symbol.role-mark path').length"
    graph = opened.execute_script(points)
    assert graph == len(find_array(array).interconnect.graph)
    assert log(opened, "browser") == []


def test_the_page_of_an_exploration_opens_clean(browser: Chrome, tmp_path: Path) -> None:
    plan = ho.solve("lenet-c", array="hmc-htree-16")
    file = tmp_path / "explored.html"
    explored = ho.explore(plan, "conv2,fc1", objective="time")
    file.write_text(exploration_page(explored), encoding="utf-8")
    for width in (1200, 400):
        opened = open_page(browser, file, width)
        assert opened.execute_script("return document.documentElement.scrollWidth") == width
        # The front, the best and the solver's plan on the map.
        points = (
            "return document.querySelectorAll('#figure-map .mark-symbol.role-mark path').length"
        )
        assert explored.front is not None
        assert opened.execute_script(points) == explored.front.plans + explored.ties + 1
    assert colours(opened, tmp_path, "explored", 2000) > 100
    assert log(opened, "browser") == []
    assert all(address.startswith(("file:", "data:", "blob:")) for address in asked_for(opened))
