"""Input that is wrong in any way is refused in one printable line, never with a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.hardware.arrays import find_array
from tests.cli.shell import Shell, command
from tests.fuzz.calls import ARRAY, GRAPH, NETWORK, PROFILE, SWEEP, TOPOLOGIES
from tests.fuzz.mutations import to_json, to_toml

NINES = "9" * 5000
GIANT = 16**5000


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write("net.toml", NETWORK)
    write("array.toml", ARRAY | {"topology": TOPOLOGIES[0]})
    return tmp_path


def write(name: str, document: Any) -> str:
    text = to_toml(document) if name.endswith(".toml") else to_json(document)
    Path(name).write_text(text)
    return name


def changed(document: Any, where: str, value: Any) -> Any:
    """The document with a value at a path of keys and numbers, as ``solver.stopped_by``."""
    key, _, rest = where.partition(".")
    at: Any = int(key) if isinstance(document, list) else key
    copy = document.copy()
    copy[at] = changed(document[at], rest, value) if rest else value
    return copy


def brief(value: object) -> str:
    """A name for a test: Python does not print the longest numbers."""
    return "giant" if isinstance(value, int) and value > 10**30 else ascii(value)[:40]


@pytest.mark.parametrize(
    ("where", "value", "complaint"),
    [
        ("constraints.fix", [f"fc1@H{NINES}=data"], "--fix should be LAYER[@LEVEL]=CHOICE"),
        ("constraints.optimizer", [], "constraints, optimizer: should be sgd, momentum, adam"),
        ("constraints.optimizer", {}, "constraints, optimizer: should be sgd, momentum, adam"),
        ("constraints.optimizer", 10**30, "constraints, optimizer: should be sgd, momentum, adam"),
        ("schema", "\ud800", "schema: should be Unicode text"),
        ("batch", GIANT, "should be JSON: a number should have at most 1,000 digits"),
        ("batch", 10**1500, "batch: should have at most 1,000 digits"),
        ("solver.stopped_by", "\udfff", "stopped_by: should be Unicode text"),
        ("solver.stopped_by", "\x1b[31m", "solver, stopped_by: should be in printable characters"),
        ("solver.versions", {"\ud800": "1"}, "solver, versions: should be Unicode text"),
        ("solver.versions", {"cbc": "\x1b[31m"}, "versions, cbc: should be in printable"),
        ("solver.options.backend", "\x9b2J", "backend: should be in printable characters"),
        ("constraints.fix", ["\x1b*=data"], "constraints, fix[0]: should be in printable"),
    ],
    ids=brief,
)
@pytest.mark.parametrize("command", ["show", "report"])
def test_a_plan(where: str, value: Any, complaint: str, command: str, shell: Shell) -> None:
    plan = changed(ho.solve("net.toml", array="array.toml").document(), where, value)
    assert complaint in shell.refused(command, write("plan.json", plan))


@pytest.mark.parametrize(
    ("where", "value", "complaint"),
    [
        ("accelerator.units", GIANT, "units: should have at most 1,000 digits"),
        ("topology.kind", GIANT, "kind: should have at most 1,000 digits"),
        ("schema", GIANT, "schema: should have at most 1,000 digits"),
        ("topology.kind", [], "topology: kind: unknown topology '[]'"),
        ("accelerator.utilisation", 5e-324, "should be greater than or equal to 0.000000001"),
        ("accelerator.dram_capacity", "0.999 B", "should be from 1 to 1e30 B, got '0.999 B'"),
    ],
    ids=brief,
)
def test_an_array(where: str, value: Any, complaint: str, shell: Shell) -> None:
    write("array.toml", changed(ARRAY | {"topology": TOPOLOGIES[0]}, where, value))
    for called in ("solve", "simulate", "report", "compare"):
        said = shell.refused(called, "net.toml", "--array", "array.toml")
        assert said.startswith("array.toml: ")
        assert complaint in said


@pytest.mark.parametrize("growth", [1e-300, 5e-324, 0.0, 1e300])
def test_a_trees_growth(growth: float, shell: Shell) -> None:
    write("array.toml", ARRAY | {"topology": changed(TOPOLOGIES[3], "growth", growth)})
    assert "growth: should be " in shell.refused("simulate", "net.toml", "--array", "array.toml")


@pytest.mark.parametrize("name", ["\x1b[31ms", "\x00", "a\nb", "\u202es", "\ud800"])
def test_a_graphs_identifiers(name: str, shell: Shell) -> None:
    for ident in (name, [0, name]):
        graph = json.loads(json.dumps(GRAPH).replace('"s"', json.dumps(ident)))
        write("graph.json", graph)
        write("array.toml", ARRAY | {"topology": TOPOLOGIES[5]})
        said = shell.refused("simulate", "net.toml", "--array", "array.toml")
        assert "should be in printable characters" in said or "should be Unicode text" in said


@pytest.mark.parametrize("depth", [65, 980, 100_000])
def test_a_nest(depth: int, shell: Shell) -> None:
    Path("plan.json").write_text('{"schema": ' + "[" * depth + "]" * depth + "}")
    Path("net.toml").write_text("schema = " + "[" * depth + "]" * depth)
    for name in ("plan.json", "net.toml"):
        said = shell.refused("show", name)
        assert "should be at most 64 tables or arrays deep" in said or "recursion" in said


def test_a_network(shell: Shell) -> None:
    write("net.toml", changed(NETWORK, "layer.1.kind", GIANT))
    assert "kind: should have at most 1,000 digits" in shell.refused("show", "net.toml")


def test_a_profile(shell: Shell) -> None:
    write("profile.toml", changed(PROFILE, "batch", GIANT))
    call = ("simulate", "net.toml", "--array", "array.toml", "--profile", "profile.toml")
    assert "batch: should have at most 1,000 digits" in shell.refused(*call)


def test_a_sweep(shell: Shell) -> None:
    write("sweep.toml", changed(SWEEP, "batches", [GIANT]))
    said = shell.refused("sweep", "sweep.toml", "-o", "t.csv")
    assert "batches: should have at most 1,000 digits" in said
    for name in ("", ".", "/"):
        assert "should be a sweep file" in shell.refused("sweep", name)


def test_a_journals_row(shell: Shell) -> None:
    write("sweep.toml", SWEEP)
    Path("t.csv.journal").write_text('{"key": "\\ud800", "row": {}}\n')
    assert "should be Unicode text" in shell.refused("sweep", "sweep.toml", "-o", "t.csv")


def test_a_pin_of_thousands_of_digits(shell: Shell) -> None:
    said = shell.refused("solve", "net.toml", "--fix", f"fc1@H{NINES}=data")
    assert "--fix should be LAYER[@LEVEL]=CHOICE" in said
    assert len(said) < 200


@pytest.mark.parametrize(
    "option", ["--optimizer", "--memory", "--reading", "--cost", "--fix", "--solver", "--array"]
)
def test_an_option_that_is_no_utf_8(option: str, shell: Shell) -> None:
    assert "a\\udcff" in shell.refused("solve", "net.toml", option, "a\udcff")


def test_a_line_on_standard_error_has_an_end(shell: Shell) -> None:
    write("net.toml", NETWORK | {"x" * 100_000: 1})
    assert len(shell.refused("show", "net.toml")) < 2100


def test_a_page_may_have_a_name_that_is_no_utf_8() -> None:
    name = os.fsdecode(b"page\xff.html")
    done = command(["report", "net.toml", "--array", "array.toml", "-o", name], Path.cwd())
    assert (done.status, done.errors) == (0, "")
    assert "page?.html" in Path(name).read_text()


def test_names_in_any_script_are_drawn_without_a_word(shell: Shell) -> None:
    name = "畳み込み層"
    write("net.toml", changed(NETWORK, "name", name))
    for picture in ("p.svg", "p.png"):
        shell.output("solve", "net.toml", "--picture", picture)
    assert name in Path("p.svg").read_text()


def test_a_picture_of_any_names_is_xml() -> None:
    graph = json.loads(json.dumps(GRAPH).replace('"s"', '"<s> & \\"]]>"'))
    write("graph.json", graph)
    write("array.toml", ARRAY | {"topology": TOPOLOGIES[5]})
    call = ["simulate", "net.toml", "--array", "array.toml", "--picture", "p.svg"]
    assert run(call) == 0
    ET.parse("p.svg")


def test_the_slowest_array_that_is_taken_can_be_told(shell: Shell) -> None:
    slowest = changed(ARRAY, "accelerator.operations", "1e-30 OPS")
    slowest["accelerator"] = {k: v for k, v in slowest["accelerator"].items() if k != "pe_array"}
    slowest["accelerator"]["utilisation"] = 1e-9
    link = {"bandwidth": "1e-30 B/s", "latency": "1e30 s"}
    tree = {"kind": "htree", "accelerators": 4, "link": link, "growth": 1 / 1024}
    write("array.toml", slowest | {"topology": tree})
    assert find_array("array.toml").levels == 2
    for called in ("simulate", "compare"):
        status, out, _ = shell(called, "net.toml", "--array", "array.toml")
        assert (status, "nan" in out) == (0, False)
