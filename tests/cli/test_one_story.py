"""A network of five layers on a user's own 4x2 torus: every command tells the same of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hypar_opt as ho
from hypar_opt.units import format_bytes, format_si
from tests.cli.shell import Shell

# Partial sums before conv3's pool are 64 times the map behind it: the text charges the latter.
NETWORK = """
name = "five"
input = { channels = 3, height = 32, width = 32 }
layer = [
  { name = "conv1", kind = "conv", filters = 32, kernel = 3, padding = 1, pool = { kind = "max", size = 2 } },
  { name = "conv2", kind = "conv", filters = 32, kernel = 3, padding = 1, pool = { kind = "max", size = 2 } },
  { name = "conv3", kind = "conv", filters = 64, kernel = 5, padding = 2, pool = { kind = "max", size = 8 } },
  { name = "fc1", kind = "fc", units = 512 },
  { name = "fc2", kind = "fc", units = 10 },
]
"""  # noqa: E501

ARRAY = """
name = "mine"

[accelerator]
units = 1
operations = "2 TOPS"
utilisation = 0.5
dram_bandwidth = "100 GB/s"
dram_capacity = "8 GB"

[topology]
kind = "torus"
shape = [4, 2]
link = { bandwidth = "500 MB/s", latency = "1 us" }

[energy]
mac = "4.6 pJ"
dram = "640 pJ"
remote = "1920 pJ"
"""


@pytest.fixture
def call(tmp_path: Path) -> list[str]:
    network, array = tmp_path / "five.toml", tmp_path / "mine.toml"
    network.write_text(NETWORK)
    array.write_text(ARRAY)
    return [str(network), "--array", str(array), "--batch", "32", "--choices", "data,model"]


def test_compare_simulate_report_and_solve_tell_one_story_and_the_fastest_is(
    call: list[str], tmp_path: Path, shell: Shell
) -> None:
    compared, warned = shell.told("compare", *call)
    assert warned == []
    rows = {row["plan"]: row for row in compared["rows"]}
    assert {row["reading"] for row in rows.values()} == {"executed"}
    assert all(row["bytes"] == row["executed_bytes"] for row in rows.values())
    # Time is what one's own array is planned for; three choices are faster still than two.
    three = rows.pop("three")
    fastest = min(rows.values(), key=lambda row: float(row["seconds"]))
    assert rows["joint"]["seconds"] == fastest["seconds"] > three["seconds"]

    # No plan that can run takes less: conv1's three channels are in two parts at most.
    args = ["explore", *call, "--free", "all", "--objective", "time"]
    explored, warned = shell.told(*args)
    assert warned == []
    assert explored["plans"] == 2**14
    assert explored["best"]["value"] == pytest.approx(fastest["seconds"])

    file, page = str(tmp_path / "plan.json"), tmp_path / "page.html"
    solved, warned = shell.told("solve", *call, "--output", file)
    assert warned == []
    assert solved["cost"]["total"] / 1e15 == pytest.approx(fastest["seconds"])
    step, warned = shell.told("simulate", file)
    assert warned == []
    assert (step["reading"], step["seconds"]) == ("executed", fastest["seconds"])
    assert step["executed_bytes"] == fastest["bytes"]
    assert step["data_parallel_bytes"] == rows["data"]["bytes"]
    own, _ = shell.told("simulate", *call)
    assert own["seconds"] == fastest["seconds"]

    assert shell("report", file, "-o", str(page))[0] == 0
    shown, faster = figures(page)["step"]
    assert shown == format_si(fastest["seconds"], "s")
    assert faster == f"{fastest['speedup']:.3g}× faster than Data Parallelism"
    assert "To know before running it" not in page.read_text()


def figures(page: Path) -> dict[str, tuple[str, str]]:
    """Return the report's first numbers: what each is, and how it compares."""
    found = re.findall(
        r'"what">(.*?)</span> <strong>(.*?)</strong> <span class="against">(.*?)</span>',
        page.read_text(),
    )
    return {what: (value, against) for what, value, against in found}


def test_by_the_papers_text_every_command_says_what_a_run_takes(
    call: list[str], tmp_path: Path, shell: Shell
) -> None:
    """The text's plan moves more than Data Parallelism when run, and takes longer."""
    network, array = call[0], call[2]
    file, page = str(tmp_path / "plan.json"), tmp_path / "page.html"
    text = [*call, "--reading", "text"]
    solved, warned = shell.told("solve", *text, "--output", file)
    moved, data = (solved["cost"][key] for key in ("executed_bytes", "data_parallel_bytes"))
    assert solved["cost"]["total"] < data < moved
    assert warned[0].startswith("hypar-opt: warning: when run, this plan moves ")
    assert "--reading executed moves" in warned[0]

    # By the text it is faster than Data Parallelism; the same choices, run, are slower.
    by_text, warned = shell.told("simulate", file)
    assert any("when run, this plan moves" in line for line in warned)
    assert any("the time of this plan, but when run 0." in line for line in warned)
    when_run, warned = shell.told("simulate", file, "--reading", "executed")
    assert warned == [
        f"hypar-opt: warning: when run, this plan moves {format_bytes(moved)},"
        f" Data Parallelism {format_bytes(data)}"
    ]
    assert when_run["parallelism"] == by_text["parallelism"]
    baseline = ho.simulate(ho.solve(network, solver="data", array=array, batch=32)).seconds
    assert by_text["seconds"] < baseline < when_run["seconds"]

    compared, warned = shell.told("compare", *text)
    row = next(row for row in compared["rows"] if row["plan"] == "hypar")
    assert row["seconds"] == by_text["seconds"]
    assert row["executed_bytes"] == moved
    assert row["executed_speedup"] == pytest.approx(baseline / when_run["seconds"])
    assert any(line.startswith("hypar-opt: warning: when run, Data Par") for line in warned)
    assert any("takes more time than 'hypar'" in line for line in warned)

    explored, warned = shell.told("explore", file, "--free", "H1", "--objective", "time")
    assert explored["plan"]["executed_bytes"] == moved
    assert explored["plan"]["executed_ratio"] == pytest.approx(row["executed_speedup"])
    assert any("the time of this plan, but when run 0." in line for line in warned)

    assert shell("report", file, "-o", str(page))[0] == 0
    for _, against in figures(page).values():
        assert re.search("(faster|fewer bytes|less energy) .* by the reading text; when", against)
        assert re.search("when run, .* (slower|more bytes|more energy) than Data", against)
    assert "When run, this plan moves" in page.read_text()
    assert shell("report", file, "--reading", "executed", "-o", str(page))[0] == 0
    assert figures(page)["step"][1].endswith(" slower than Data Parallelism")


def test_a_plan_is_shown_by_another_reading_with_the_same_choices(
    call: list[str], tmp_path: Path, shell: Shell
) -> None:
    file = str(tmp_path / "plan.json")
    ho.write_plan(ho.solve(call[0], array=call[2], batch=32, reading="text", search="joint"), file)
    own, _ = shell.told("show", file)
    other, _ = shell.told("show", file, "--reading", "executed")
    assert other["cost"]["total"] == other["cost"]["executed_bytes"]
    assert other["cost"]["executed_bytes"] == own["cost"]["executed_bytes"]
    assert own["solver"]["status"] == "optimal"
    claims = {"status": "feasible", "bound": None, "gap": None}
    assert other["solver"] == own["solver"] | claims
    for key in own.keys() - {"cost", "solver"}:
        assert other[key] == own[key]
    shown = " ".join(shell("show", file, "--reading", "executed")[1].split())
    assert "dp joint (not proved optimal)" in shown
    assert "leave --reading out" in shell.refused("show", file, "--reading", "executed", "--rerun")
    assert "--reading takes a plan file" in shell.refused(
        *["show", call[0], "--reading", "executed"]
    )
