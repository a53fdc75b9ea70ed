"""The page about a plan: one file, whole, and nothing in it that a browser would fetch."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display.page import page, views
from hypar_opt.display.page.contents import Contents, gather
from hypar_opt.display.page.trade_offs import trade_offs
from hypar_opt.hardware.arrays import find_array
from hypar_opt.plan.plan import Plan, write_plan
from hypar_opt.proofs.certificate import certify, write_certificate
from hypar_opt.search.plan_file import repriced
from hypar_opt.studies.alternatives import regrets
from hypar_opt.units import format_bytes
from tests.cli.shell import Shell

VOID = {"meta", "link", "br", "hr", "img", "input"}
ADDRESSED = {"src", "href", "srcset", "action", "data", "poster", "background", "xlink:href"}


class Page(HTMLParser):
    """A page read as a browser reads it: elements, and the text in each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def text(self) -> str:
        unread = {"script", "style"}
        return " ".join(" ".join(data for tag, data in self.texts if tag not in unread).split())

    def of(self, tag: str) -> list[str]:
        return [data for inside, data in self.texts if inside == tag]

    @property
    def charts(self) -> dict[str, Any]:
        """The description of each figure, by its name."""
        scripts = [attrs for tag, attrs in self.elements if tag == "script"]
        return {
            str(attrs["id"]).removeprefix("data-"): json.loads(text)
            for attrs, text in zip(scripts, self.of("script"), strict=True)
            if str(attrs.get("id")).startswith("data-")
        }


def contents(plan: Plan) -> Contents:
    assert plan.array is not None
    return gather(plan, plan.array.description)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return ho.solve("lenet-c", array="hmc-htree-16")


@pytest.fixture(scope="module")
def text(plan: Plan) -> str:
    return page(contents(plan))


def test_the_page_says_the_plan_cell_by_cell(plan: Plan, text: str) -> None:
    found = Page(text)
    assert found.open == []
    for level, row in enumerate(plan.parallelism, 1):
        for layer, choice in zip(plan.layers, row, strict=True):
            assert f"H{level} {layer}: {choice}" in found.text
    assert "LeNet-c".lower() in found.of("title")[0].lower()


def test_each_cell_says_the_regret_of_each_choice(plan: Plan) -> None:
    known = contents(plan)
    asked = {(each.level, each.layer, each.choice): each.extra for each in regrets(plan)}
    for level, row in enumerate(known.cells, 1):
        for layer, options in zip(plan.layers, row, strict=True):
            assert [option.choice for option in options] == list(plan.choices)
            for option in options:
                if not option.chosen:
                    assert option.extra == asked[level, layer, option.choice]


def test_nothing_on_the_page_is_fetched(text: str) -> None:
    found = Page(text)
    addresses = [
        value for _, attrs in found.elements for name, value in attrs.items() if name in ADDRESSED
    ]
    assert addresses == ["data:,", "#facts"]
    styles = " ".join(found.of("style"))
    styles += " ".join(attrs.get("style") or "" for _, attrs in found.elements)
    assert not re.search(r"url\(|@import|https?:", styles)
    (policy,) = [attrs["content"] for _, attrs in found.elements if "http-equiv" in attrs]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert not re.search(r"https?:|\*", policy)


def test_the_page_is_the_same_each_time(plan: Plan, text: str) -> None:
    assert page(contents(plan)) == text


def test_every_chart_has_its_numbers_as_a_table(text: str) -> None:
    found = Page(text)
    ids = [attrs["id"] for tag, attrs in found.elements if attrs.get("class") == "figure"]
    assert ids == [f"figure-{name}" for name in found.charts]
    assert list(found.charts) == [
        *("by-level", "by-phase", "by-layer", "by-energy", "by-memory", "timeline", "links")
    ]
    assert found.of("summary").count("The numbers") == len(ids)


def test_the_fronts_on_the_page_are_those_of_pareto_and_the_plan_is_marked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hypar_opt.display.page.cells.MAX_CELLS", 0)
    plan = ho.solve("lenet-c", array="hmc-htree-16", batch=64)
    fronts = ho.pareto("lenet-c", array="hmc-htree-16", batch=64)
    assert max(map(len, fronts)) > 1
    text = page(contents(plan))
    data = Page(text).charts["by-memory"]["datasets"]
    for front in fronts:
        drawn = [row for row in data["points"] if row["objective"] == front.objective]
        expected = [(point.memory, front.ratio(point)) for point in reversed(front)]
        unit = expected[-1][0] / drawn[-1]["memory"]
        assert [row["memory"] * unit for row in drawn] == pytest.approx([m for m, _ in expected])
        assert [row["ratio"] for row in drawn] == pytest.approx([ratio for _, ratio in expected])
    own = {
        "bytes": plan.cost.total,
        "time": repriced(plan, cost="time").cost.total,
        "energy": repriced(plan, cost="energy").cost.total,
    }
    for front, star in zip(fronts, data["plan"], strict=True):
        assert star["ratio"] == pytest.approx(own[front.objective] / front[0].total)
    assert f"No plan takes less memory than {fronts[0][-1].memory:,} bytes." in Page(text).text


def test_a_page_without_fronts_says_why(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gather(plan, find_array("hmc-torus-16"), other_array=True)
    text = page(found)
    assert 'id="figure-by-memory"' not in text
    assert "the plan was not solved for this array" in Page(text).text
    monkeypatch.setattr("hypar_opt.display.page.trade_offs.MAX_STATES", 15)
    assert "a layer has 2^4 = 16 states" in Page(page(contents(plan))).text
    array = find_array("hmc-torus-4")
    graph = ho.solve(ho.gpt(layers=1, hidden=8, heads=2, tokens=4), array="hmc-torus-4", batch=4)
    assert "on a graph each point takes a search of its own" in trade_offs(graph, array).note


def test_a_name_is_text_wherever_it_stands(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    network = tmp_path / "net.toml"
    network.write_text(
        f'name = "{evil}"\nsource = "{evil}"\ninput = {{ features = 64 }}\n'
        f'[[layer]]\nname = "{evil}"\nkind = "fc"\nunits = 32\n'
        '[[layer]]\nname = "<img src=x onerror=alert(1)>"\nkind = "fc"\nunits = 8\n'
    )
    file = tmp_path / "page.html"
    assert run(["report", str(network), "--levels", "2", "-o", str(file)]) == 0
    found = Page(file.read_text())
    assert evil in found.of("title")[0]
    assert not [tag for tag, _ in found.elements if tag == "img"]
    assert not [text for text in found.of("script") if text.startswith("alert")]
    assert found.open == []
    # Figures draw names as texts: nothing reads tags in these.
    assert evil in {row["first"] for row in found.charts["by-layer"]["datasets"]["rows"]}


def test_the_command_writes_the_page_and_says_its_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a page.html"
    given = ["report", "sfc", "--array", "hmc-torus-4", "--fix", "fc1=data", "-o", str(file)]
    assert run(given) == 0
    said, aside = capsys.readouterr()
    assert said == f"{file}: {format_bytes(file.stat().st_size)}\n"
    assert aside == ""
    found = Page(file.read_text())
    again = f"hypar-opt report sfc --array hmc-torus-4 --fix fc1=data --output '{file}'"
    assert again in found.text
    assert "fixed fc1=data" in found.text


def test_a_plan_file_fixes_its_options(
    tmp_path: Path, plan: Plan, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "plan.json", tmp_path / "page.html"
    write_plan(plan, file)
    assert run(["report", str(file), "--batch", "4", "-o", str(out)]) == 2
    assert "--batch is fixed by the plan" in capsys.readouterr().err
    assert run(["report", str(file), "-o", str(file)]) == 2
    assert "write to another" in capsys.readouterr().err
    assert run(["report", str(file), "-o", str(out)]) == 0
    last = "How it was found"
    assert Page(out.read_text()).text.split(last)[0] == Page(text).text.split(last)[0]


def test_a_certificate_is_checked(
    tmp_path: Path, plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    file, proof, out = tmp_path / "plan.json", tmp_path / "proof.json", tmp_path / "page.html"
    write_plan(plan, file)
    write_certificate(certify(plan), proof)
    assert run(["report", str(file), "--certificate", str(proof), "-o", str(out)]) == 0
    assert "prove the plan optimal" in Page(out.read_text()).text
    write_certificate(certify(ho.solve("lenet-c", array="hmc-htree-16", batch=32)), proof)
    capsys.readouterr()
    assert run(["report", str(file), "--certificate", str(proof), "-o", str(out)]) == 1
    assert "the certificate belongs to another plan" in capsys.readouterr().err


def test_a_plan_of_no_search_has_no_certificate_and_still_a_page(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    given = ["report", "cifar-c", "--solver", "trick", "--array", "hmc-htree-4", "-o", str(out)]
    assert run(given) == 0
    text = Page(out.read_text()).text
    assert "no bound; no certificate" in text
    assert "feasible" in text


def test_a_large_plan_goes_without_regrets(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    monkeypatch.setattr("hypar_opt.display.page.cells.MAX_CELLS", 15)
    found = contents(plan)
    assert not found.regretted
    text = Page(page(found)).text
    assert "solve --regret computes them" in text
    assert "not asked" in text


def test_a_long_step_goes_without_its_timeline(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    monkeypatch.setattr("hypar_opt.display.page.contents.MAX_SPANS", 10)
    text = page(contents(plan))
    assert 'id="figure-timeline"' not in text
    assert "simulate --trace" in Page(text).text


def test_a_single_accelerator_has_a_page_too(tmp_path: Path) -> None:
    array = find_array("hmc-htree-2")
    alone = array.topology.model_copy(update={"accelerators": 1})
    one = array.model_validate(array.description() | {"topology": alone.model_dump(mode="json")})
    found = Page(page(contents(ho.solve("sfc", array=one))))
    assert "on one accelerator" in found.text
    ids = [attrs["id"] for _, attrs in found.elements if attrs.get("class") == "figure"]
    assert [each and each.removeprefix("figure-") for each in ids] == [
        *("by-phase", "by-layer", "by-energy", "timeline")
    ]


def test_links_that_cannot_be_told_apart_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = ho.solve("sfc", array="hmc-htree-4")
    for most, drawn in ((6, True), (5, False)):
        monkeypatch.setattr(views, "MAX_LINKS", most)
        assert ("What the links carry" in Page(page(contents(plan))).text) == drawn


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shell: Shell
) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    monkeypatch.delitem(sys.modules, "hypar_opt.display.figures", raising=False)
    said = "figures need altair and vl-convert-python: pip install 'hypar-opt[figures]'"
    assert shell.refused("report", "sfc", "-o", tmp_path / "page.html") == said
    assert list(tmp_path.iterdir()) == []


def test_a_page_is_small_and_has_one_script_for_all_figures(text: str) -> None:
    assert len(text.encode()) < 1_300_000
    assert text.count("window.vegaEmbed = vegaEmbed;") <= 1
    assert '"config":' not in "".join(map(json.dumps, Page(text).charts.values()))


def test_the_page_is_no_stream(shell: Shell) -> None:
    assert "-: should be a file" in shell.refused("report", "sfc", "-o", "-")
