"""What is shown of a plan in pipeline stages: its page, and its stages in words."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display.labels import stages_in_words
from hypar_opt.display.page import page
from hypar_opt.display.page.contents import gather
from hypar_opt.display.plan_grid import plan_grid
from hypar_opt.errors import RefusedError
from hypar_opt.instance.staged import StagedPlan
from hypar_opt.plan.plan import Plan, write_plan
from hypar_opt.plan.stages import even_stages
from hypar_opt.planning.priced import plan_of_stages
from hypar_opt.proofs.certificate import certify, write_certificate
from hypar_opt.simulator.pipeline_result import PipelineResult
from hypar_opt.studies.alternatives import best_plans, regrets
from hypar_opt.studies.targets import own_array
from hypar_opt.units import format_bytes, format_percent, format_si
from tests.cli.shell import Shell
from tests.display.test_figures import domains
from tests.display.test_report import Page
from tests.instance.test_staged import SMALL, nodes, problem, solved

COUNT, PARTS = 4, 2
TIMES = "forward", "backward", "once", "message"


@cache
def plan_of(chunks: int = 1) -> Plan:
    stated = problem(nodes(1, 4), PARTS, micro_batches=COUNT)
    return plan_of_stages(solved(SMALL, stated, even_stages(SMALL, PARTS, chunks)))


def explored(plan: Plan) -> object:
    return ho.explore(plan, "decoder.0.up@H2")


@cache
def page_of(chunks: int = 1) -> Page:
    plan = plan_of(chunks)
    return Page(page(gather(plan, own_array(plan))))


@pytest.mark.parametrize("chunks", [1, 2])
def test_the_page_shows_every_stage(chunks: int) -> None:
    plan, found = plan_of(chunks), page_of(chunks)
    assert found.open == []
    for row in plan_grid(plan, runs=False).rows:
        for level, choice in enumerate(row.choices, 1):
            assert f"H{level} {row.name}: {choice}" in found.text
    step = ho.simulate(plan)
    assert isinstance(step, PipelineResult)
    for own, taken in zip(step.stages, step.rows(), strict=True):
        amounts = (format_si(taken[key], "s") for key in (*TIMES, "tied"))
        said = [taken["layers"], *amounts, format_si(own.seconds, "s")]
        said += [format_percent(own.bubble, 1), f"{fmean(own.in_flight):g}"]
        assert " ".join([*said, format_bytes(own.memory.total)]) in found.text
    assert list(found.charts) == ["graph", "timeline", "by-stage"]
    timeline = found.charts["timeline"]
    passes: dict[tuple[int, str], list[float]] = {}
    for row in timeline["datasets"]["spans"]:
        # A task is named after its micro-batch, then its pass.
        key = row["line"], row["name"].partition(" ")[0]
        passes.setdefault(key, []).append(row["end"] - row["start"])
    numbers = [
        f"{number}.{chunk}" if chunks > 1 else f"{number}"
        for number in range(1, COUNT + 1)
        for chunk in range(1, chunks + 1)
    ]
    (end,) = {own[1] for own in domains(timeline, "x")}
    for stage, own in enumerate(step.stages):
        # Each micro-batch passes each chunk forward and backward, and nothing is where it waits.
        drawn = [passes[stage, number] for number in numbers]
        assert sum(passes[stage, "token"]) / end == pytest.approx(own.tied / step.seconds, rel=1e-4)
        assert all(len(two) == 2 for two in drawn)
        computes = COUNT * own.passes.micro_batch / step.seconds
        assert sum(map(sum, drawn)) / end == pytest.approx(computes, rel=1e-4)


def test_memory_on_the_page_is_that_of_each_stage() -> None:
    plan, drawn = plan_of(), page_of().charts["by-stage"]["datasets"]["parts"]
    sums = [max(row["end"] for row in drawn if row["line"] == stage) for stage in range(PARTS)]
    held = [ho.memory(plan, stage=stage + 1) for stage in range(PARTS)]
    unit = (held[0].total - held[0].reserve) / sums[0]
    expected = [own.total - own.reserve for own in held]
    assert [unit * own for own in sums] == pytest.approx(expected)


def test_the_page_names_what_stages_do_not_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "plan.json", tmp_path / "page.html"
    write_plan(plan_of(), file)
    assert run(["report", str(file), "-o", str(out)]) == 0
    text = Page(out.read_text()).text
    for said in (
        "A plan in stages has no regrets of other choices",
        "Cost against memory is not shown: each point takes a search of stages",
        "bytes by level, energy and links are not shown",
        "not looked for: the plan is not said to be optimal",
    ):
        assert said in text
    assert "no certificate" in text
    capsys.readouterr()
    proof = tmp_path / "proof.json"
    write_certificate(certify(ho.solve("sfc", levels=1)), proof)
    assert run(["report", str(file), "--certificate", str(proof), "-o", str(out)]) != 0
    assert "Traceback" not in capsys.readouterr().err


def test_the_page_says_what_a_certificate_of_stages_proves(tmp_path: Path) -> None:
    network = ho.gpt(layers=2, hidden=64, heads=4, tokens=32, vocabulary=256)
    asked: dict[str, Any] = {"batch": 16, "micro_batches": 4, "optimizer": "adam"}
    plan = ho.solve(network, array="rtx4090x4", stages=2, **asked)
    file, proof, out = tmp_path / "plan.json", tmp_path / "proof.json", tmp_path / "page.html"
    write_plan(plan, file)
    assert run(["report", str(file), "-o", str(out)]) == 0
    assert "not looked for: solve --certificate FILE writes one" in Page(out.read_text()).text
    write_certificate(certify(plan), proof)
    assert run(["report", str(file), "--certificate", str(proof), "-o", str(out)]) == 0
    text = Page(out.read_text()).text
    assert "tables, of stages and what they consist of, prove the plan optimal" in text
    assert "of all plans of 2 stages, cut between blocks, and 4 micro-batches" in text


def test_cells_have_the_choices_inside_stages() -> None:
    plan = plan_of()
    known = gather(plan, own_array(plan))
    assert all(not options for options in known.cells[0])
    for row, cells in zip(plan.parallelism[1:], known.cells[1:], strict=True):
        assert [own.choice for options in cells for own in options if own.chosen] == [*row]


@pytest.mark.parametrize("look", [regrets, lambda plan: best_plans(plan, 2), explored])
def test_what_would_take_a_search_of_stages_is_refused(look: Callable[[Plan], object]) -> None:
    with pytest.raises(RefusedError, match="stages"):
        look(plan_of())


@pytest.mark.parametrize(("chunks", "held"), [(1, "2 .. 1"), (2, "2.5 .. 1.5")])
def test_a_plan_says_its_bubble_and_what_is_in_flight(chunks: int, held: str) -> None:
    plan = plan_of(chunks)
    assert plan.stages is not None
    says = stages_in_words(plan, plan.stages)
    stages = plan.cost.stages or ()
    longest, sums = max(own.seconds for own in stages), sum(own.seconds for own in stages)
    (tied,) = StagedPlan.of_plan(plan).tied
    charged = longest + (sums - longest) / (COUNT * chunks) + float(tied.seconds)
    bubble = 1 - (fmean(own.seconds for own in stages) + float(tied.seconds)) / charged
    assert says.endswith(f"4 micro-batches, 1f1b; bubble {bubble:.1%}; in flight {held}")
    assert says.startswith(f"2 stages of 2{', 2 chunks each' if chunks > 1 else ''}: ")


def test_a_schedule_is_typed_and_reaches_the_page(tmp_path: Path, shell: Shell) -> None:
    network = "gpt:layers=2,hidden=32,heads=4,tokens=8,vocabulary=64"
    file, out = tmp_path / "plan.json", tmp_path / "page.html"
    asked = ["--array", "rtx4090x4", "--batch", "8", "--micro-batches", "4", "--schedule", "zb-h1"]
    said = shell.refused("solve", network, *asked)
    assert said == "--schedule: should be with stages, layers in parts of H1"
    assert run(["solve", network, *asked, "--stages", "2", "-o", str(file)]) == 0
    assert run(["report", str(file), "-o", str(out)]) == 0
    found = Page(out.read_text())
    # All stages hold two micro-batches, and weights' gradients are passes of their own.
    assert "4 micro-batches, zb-h1;" in found.text
    assert "in flight 2 solver" in found.text
    spans = found.charts["timeline"]["datasets"]["spans"]
    late = [row["name"].partition(" ")[0] for row in spans if row["pass"] == "gradient"]
    numbers = [text for text in late if text.isdigit()]
    assert sorted(numbers) == sorted(f"{number}" for number in range(1, 5) for _ in range(2))
