"""Pipeline stages on the command line and in Python: what is refused, in one line and at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.hardware import arrays
from hypar_opt.plan.plan import write_plan
from hypar_opt.search import stages as stage_search
from hypar_opt.search.plan_file import read_plan
from hypar_opt.simulator.pipeline_result import PipelineResult
from tests.cli.shell import Shell
from tests.slow import slow_after, slow_off_diagonal

NETWORK = "gpt:layers=4,hidden=256,heads=4,tokens=64,vocabulary=1000"
ASKED = (NETWORK, "--array", "rtx4090x4", "--batch", "16")
SMALL = ("gpt:layers=2,hidden=32,heads=4,tokens=8,vocabulary=64", *ASKED[1:])
FOUR_BLOCKS = SMALL[0].replace("layers=2", "layers=4")
IN_PYTHON: dict[str, Any] = {"array": "rtx4090x4", "batch": 16}


NO_INFERENCE = "inference is not supported with pipeline stages"


@pytest.mark.parametrize("command", ["solve", "simulate", "memory", "report"])
@pytest.mark.parametrize("stages", [("--stages", "2"), ("--stages", "auto"), ("--degrees", "pp=2")])
def test_inference_has_no_stages(command: str, stages: tuple[str, str], shell: Shell) -> None:
    assert shell.refused(command, *ASKED, *stages, "--inference") == f"--{NO_INFERENCE}"


def test_inference_has_no_stages_in_python() -> None:
    for arguments in ({"stages": 2}, {"degrees": "pp=2"}):
        with pytest.raises(ho.HyparError) as caught:
            ho.solve(NETWORK, **IN_PYTHON, **arguments, inference=True)
        assert str(caught.value) == NO_INFERENCE
    row = ho.compare(NETWORK, "rtx4090x4", batches=16, stages=2, inference=True)[-1]
    assert (row.plan, row.reason) == ("stages", NO_INFERENCE)


@pytest.fixture(scope="module")
def plan_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan in two stages."""
    file = tmp_path_factory.mktemp("staged") / "plan.json"
    write_plan(ho.solve(SMALL[0], **IN_PYTHON, stages=2), file)
    return file


@pytest.mark.parametrize("stages", [("--stages", "2"), ("--degrees", "pp=2")])
@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("x", ""),
        ("", ""),
        ("1F1B", ""),
        ("interleaved", ""),
        ("zbv", ", which has stages in a V, 1 2 3 4 4 3 2 1: not modelled"),
        ("ZB-V", ", which has stages in a V, 1 2 3 4 4 3 2 1: not modelled"),
        ("DualPipe", ", which runs micro-batches from both ends, with all weights twice"),
    ],
)
def test_an_unknown_schedule_is_refused(
    stages: tuple[str, str], schedule: str, why: str, shell: Shell
) -> None:
    for command in ("solve", "simulate", "memory"):
        said = shell.refused(command, *SMALL, *stages, "--schedule", schedule)
        assert f'--schedule: should be 1f1b, gpipe or zb-h1, got "{schedule}"{why}' in said
    listed: Any = [schedule]
    with pytest.raises(ho.HyparError, match=r"^schedule: should be 1f1b, .* got \["):
        ho.solve(SMALL[0], **IN_PYTHON, stages=2, schedule=listed)


@pytest.mark.parametrize("command", ["solve", "compare"])
def test_a_schedule_is_of_several_stages(command: str, shell: Shell) -> None:
    for stages in ((), ("--stages", "1")):
        said = shell.refused(command, *SMALL, *stages, "--schedule", "gpipe")
        assert said == "--schedule: should be with stages, layers in parts of H1"


@pytest.mark.parametrize("schedule", ["gpipe", "x"])
def test_a_plan_fixes_its_schedule(schedule: str, plan_file: Path, shell: Shell) -> None:
    for command in ("memory", "simulate"):
        said = shell.refused(command, plan_file, "--schedule", schedule)
        assert said == "--schedule is fixed by the plan; leave it out"
    for look in (ho.memory, ho.simulate):
        with pytest.raises(ho.HyparError, match=r"^schedule is fixed by the plan; leave it out"):
            look(plan_file, schedule=schedule)


def test_memory_is_of_a_schedule(shell: Shell) -> None:
    gpipe = ho.memory(SMALL[0], **IN_PYTHON, stages=2, schedule="gpipe", micro_batches=8)
    stated = ("--stages", "2", "--schedule", "gpipe", "--micro-batches", "8", "--json")
    assert json.loads(shell.output("memory", *SMALL, *stated))["bytes"] == gpipe.total


@pytest.mark.parametrize("stages", [("--stages", "2"), ("--degrees", "pp=2")])
@pytest.mark.parametrize(
    "option",
    [
        ("--gap", "0.1"),
        ("--hint",),
        ("--threads", "2"),
        ("--seed", "3"),
        ("--solver-option", "x=1"),
        ("--solver-log", "solver.log"),
        ("--export-model", "model.lp"),
        ("--solver", "ilp"),
        ("--place",),
        ("--regret",),
        ("--best", "2"),
        ("--simulate", "2"),
    ],
)
def test_options_of_other_searches_are_refused_before_the_search(
    stages: tuple[str, str], option: tuple[str, ...], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_search, "in_stages", None)
    said = shell.refused("solve", *SMALL, *stages, *option)
    assert said == f"{option[0]} is not supported with --stages"


def test_a_plan_to_start_from_is_no_search_of_stages(plan_file: Path, shell: Shell) -> None:
    said = shell.refused("solve", *SMALL, "--stages", "2", "--warm-start", plan_file)
    assert said == "--warm-start is not supported with --stages"


NO_PINS = "H1 holds the stages, which cannot be pinned; --cuts states where they begin"


@pytest.mark.parametrize("pin", ["*@H1=data", "*@H1=first", "*=second", "decoder.0.*@H1=second"])
def test_h1_has_no_pins_in_stages(pin: str, plan_file: Path, shell: Shell) -> None:
    for stages in (("--stages", "2"), ("--degrees", "pp=2")):
        said = shell.refused("solve", *SMALL, *stages, "--fix", pin)
        assert said == f"--fix {pin}: {NO_PINS}"
    document = json.loads(plan_file.read_text())
    document["constraints"]["fix"] = [pin]
    said = shell.refused("show", "-", piped=json.dumps(document))
    assert said.endswith(f": --fix {pin}: {NO_PINS}")


def test_a_compared_plan_in_stages_has_no_pins_of_h1() -> None:
    fix = ["*@H1=data"]
    compared = ho.compare(SMALL[0], "rtx4090x4", batches=16, stages=2, fix=fix)
    (row,) = (row for row in compared if row.plan == "stages")
    assert row.reason is not None
    assert row.reason.startswith("constraints.fix='*@H1=data': H1 holds the stages")


def test_any_number_of_stages_keeps_to_pins() -> None:
    plan = ho.solve(SMALL[0], **IN_PYTHON, stages="auto", degrees="dp=4")
    assert plan.stages is None
    assert {word for row in plan.parallelism for word in row} == {"data"}
    with pytest.raises(ho.HyparError, match="first is not among"):
        ho.solve(SMALL[0], **IN_PYTHON, stages="auto", fix=["*@H1=first"])


def test_pins_are_of_the_levels_of_the_plan(tmp_path: Path) -> None:
    """H1 of four stages is what two levels of the array are without."""
    pinned: dict[str, Any] = {**IN_PYTHON, "array": "h100-8", "fix": ["*.up@H2=model"]}
    pinned["micro_batches"] = 4
    plan = ho.solve(SMALL[0], **pinned, stages=4)
    assert plan.hierarchy.sizes == (4, 2)
    ups = [n for n, name in enumerate(plan.layers) if name.endswith(".up")]
    assert {plan.parallelism[1][n] for n in ups} == {"model"}
    write_plan(plan, tmp_path / "plan.json")
    assert ho.read_plan(tmp_path / "plan.json") == plan
    for fix, says in (
        ("*.up@H3=model", "constraints.fix='*.up@H3=model': the level should be from 1 to 2"),
        ("up@H2=model", "constraints.fix='up@H2=model': no layer is called 'up'"),
        ("*.up@H2=rows", "constraints.fix='*.up@H2=rows': rows is not among choices="),
    ):
        with pytest.raises(ho.HyparError) as caught:
            ho.solve(SMALL[0], **pinned | {"fix": [fix]}, stages=4)
        assert says in str(caught.value)
    free = ho.solve(SMALL[0], **pinned | {"fix": ["*.up@H3=model"]}, stages="auto")
    assert free.stages is None or free.stages.parts == 2


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--stages 3", "should be 1 or 2 on the array rtx4090x4, in equal parts of two acc"),
        ("--stages 99999999999", "should be 1 or 2 on the array rtx4090x4, in equal parts of two"),
        ("--stages two", "should be a number of stages or auto, got 'two'"),
        ("--stages 2 --array h100-8x8 --degrees pp=2", "goes without pp among --degrees"),
        ("--stages 2 --array tpu-v4-8", "should be 1 on the array tpu-v4-8, whose 4 accelerators"),
        (
            "--stages 2 --array hmc-htree-4",
            "should be 1 on the array hmc-htree-4, which has the model",
        ),
        ("--stages 2 --cost bytes", "needs --cost time, got bytes"),
        ("--stages 2 --reading text", "needs --reading executed or --reading joined, got text"),
    ],
)
def test_what_has_no_such_stages_says_what_has(typed: str, said: str, shell: Shell) -> None:
    assert shell.refused("solve", *SMALL, *typed.split()).startswith(f"--stages {said}")


def test_stages_need_an_array_of_two_accelerators_for_each(tmp_path: Path, shell: Shell) -> None:
    assert shell.refused("solve", SMALL[0], "--stages", "2").startswith("--stages needs an array:")
    text = arrays.file_text("rtx4090x4").replace("per_node = 4", "per_node = 1")
    (tmp_path / "one.toml").write_text(text)
    said = shell.refused("solve", SMALL[0], "--array", tmp_path / "one.toml", "--stages", "2")
    assert "which has 1 accelerator, got 2" in said


@pytest.mark.parametrize(
    ("cuts", "said"),
    [
        ("token", "'token' should follow the network's first layer"),
        ("decoder.1,", "should be names of layers or blocks, got ''"),
        ("decoder.9", "no layer or block is called 'decoder.9'; did you mean decoder."),
        ("decoder.1,decoder.1", "'decoder.1' should follow what the chunk before it begins with"),
        ("decoder.0,decoder.1", "should be one fewer than a multiple of the 2 stages, got 2"),
    ],
)
def test_cuts_that_a_network_does_not_have_are_refused(cuts: str, said: str, shell: Shell) -> None:
    asked = (*SMALL, "--degrees", "pp=2", "--cuts")
    assert shell.refused("solve", *asked, cuts).startswith(f"--cuts: {said}")
    numbers: Any = [2]
    with pytest.raises(ho.HyparError, match=r"^cuts should be a list of strings, got \[2\]"):
        ho.solve(SMALL[0], **IN_PYTHON, degrees="pp=2", cuts=numbers)


@pytest.mark.parametrize(
    ("network", "cut"),
    [("vgg-a", "fc1"), ("gpt:layers=3,hidden=32,heads=4,tokens=8,vocabulary=64", "decoder.2")],
)
def test_stages_that_are_cut_need_no_equal_blocks(network: str, cut: str) -> None:
    with pytest.raises(ho.HyparError, match=r"2 stages of equal blocks .*; cuts says where others"):
        ho.solve(network, **IN_PYTHON, degrees="pp=2")
    plan = ho.solve(network, **IN_PYTHON, degrees="pp=2", cuts=[cut])
    assert plan.stages is not None
    begins = plan.layers[plan.stages.ends[0]]
    assert begins in (cut, f"{cut}.norm1")
    assert plan.solver.status == "optimal"


def test_a_network_is_run_in_stages_on_an_array(plan_file: Path) -> None:
    ran = ho.run(SMALL[0], **IN_PYTHON, stages=2)
    assert ran.agrees
    assert ran.counted == ho.run(plan_file).counted
    assert ho.run(SMALL[0], **IN_PYTHON).agrees
    with pytest.raises(ho.HyparError, match=r"^array is fixed by the plan; leave it out"):
        ho.run(plan_file, array="rtx4090x4")


@pytest.mark.parametrize(
    ("degrees", "recompute"),
    slow_off_diagonal(["pp=2,tp=2", "pp=2,cp=2", "pp=2,dp=2"], ["none", "full"]),
)
def test_a_plan_of_degrees_in_stages_is_run(degrees: str, recompute: str) -> None:
    """What joins levels inside stages, too, by which tensor and context parallelism are read."""
    trained: dict[str, Any] = {"micro_batches": 4, "recompute": recompute, "optimizer": "adam"}
    plan = ho.solve(SMALL[0], **IN_PYTHON, **trained, degrees=degrees)
    assert plan.joins_levels == ("dp" not in degrees)
    ran = ho.run(plan)
    assert ran.agrees
    assert ran.counted == ran.modelled == ran.priced
    assert sum(ran.counted or ()) == plan.cost.executed_bytes
    small = ho.run(plan, scale_down=True)
    assert small.agrees
    assert bool(small.priced) != plan.joins_levels


def test_a_report_takes_a_schedule_and_micro_batches(
    plan_file: Path, shell: Shell, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    stated = ("--schedule", "gpipe", "--micro-batches", "4")
    status, _, err = shell("report", *SMALL, "--degrees", "pp=2,dp=2", *stated, "-o", page)
    assert (status, err) == (0, "")
    assert "4 micro-batches, gpipe;" in page.read_text()
    for option in (stated[:2], stated[2:], ("--recompute", "full")):
        said = shell.refused("report", plan_file, *option, "-o", page)
        assert said == f"{option[0]} is fixed by the plan; leave it out"


@pytest.mark.parametrize(
    ("asked", "parts"),
    slow_after(
        5,
        [
            ({"stages": 2}, 2),
            ({"stages": "auto", "optimizer": "sgd", "network": "lenet-c", "schedule": "gpipe"}, 1),
            ({"stages": 2, "shard": "weights@H2", "micro_batches": 2, "schedule": "zb-h1"}, 2),
            ({"degrees": "pp=2,tp=2"}, 2),
            ({"degrees": "pp=2,dp=2", "cuts": ["decoder.1"], "fix": ["norm@H2=data"]}, 2),
            ({"stages": 1, "recompute": "full"}, 1),
            ({"degrees": "pp=2,tp=2", "memory": 200_000}, 2),
            ({"degrees": "pp=2,v=2", "micro_batches": 4, "network": FOUR_BLOCKS}, 2),
        ],
    ),
)
def test_a_plan_in_stages_is_solved_again_as_it_was(
    asked: dict[str, Any], parts: int, shell: Shell, tmp_path: Path
) -> None:
    """What was searched is searched again, and what was stated is not."""
    stated = {"network": SMALL[0], "optimizer": "adam", **asked}
    plan, file = ho.solve(**IN_PYTHON, **stated), tmp_path / "plan.json"
    assert (plan.stages.parts if plan.stages else 1) == parts
    write_plan(plan, file)
    shell.output("show", file, "--rerun")
    open_ones = {name for row in plan.solver.statistics for name in row}
    assert ("searched cuts" in open_ones) == ("degrees" not in asked)
    assert any("stages" in name for name in open_ones) == (asked.get("stages") == "auto")
    assert ("searched micro_batches" in open_ones) == (parts > 1 and "micro_batches" not in asked)


def test_another_plan_in_stages_is_not_what_solving_again_gives(
    plan_file: Path, shell: Shell, tmp_path: Path
) -> None:
    plan = read_plan(plan_file)
    fixed = ("decoder.0.norm1@H2=channel",)
    other = ho.solve(SMALL[0], **IN_PYTHON, stages=2, fix=fixed)
    constraints = other.constraints.model_copy(update={"fix": ()})
    worse = other.model_copy(update={"constraints": constraints})
    assert worse.cost.total > plan.cost.total
    write_plan(worse, tmp_path / "worse.json")
    status, _, err = shell("show", tmp_path / "worse.json", "--rerun")
    assert (status, "is not what solving again gives" in err) == (1, True)


def test_a_configuration_in_stages_has_no_search_to_repeat(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    write_plan(ho.configure(SMALL[0], **IN_PYTHON, stages=2).plan(), file)
    said = shell.refused("show", file, "--rerun")
    assert said == "the plan is of a configuration: there is no search to repeat"


@pytest.mark.parametrize("command", ["compare", "configure", "pareto"])
def test_a_plan_is_no_network(command: str, plan_file: Path, shell: Shell) -> None:
    said = shell.refused(command, plan_file, "--array", "rtx4090x4")
    assert said == f"{plan_file}: this is a plan file: use it as PLAN, as in simulate PLAN"


def test_frameworks_without_stages_say_so(shell: Shell) -> None:
    asked = ("configure", *SMALL, "--stages", "2")
    said = shell.refused(*asked, "--to", "accelerate")
    assert said == "Accelerate has no pipeline stages, got pp 2"
    said = shell.refused(*asked, "--frameworks", "accelerate")
    assert said.startswith("there is no configuration of 2 stages that accelerate can express for ")


@pytest.mark.parametrize(("chunks", "held"), [(1, "2"), (2, "2.5")])
def test_what_is_in_flight_is_in_micro_batches(chunks: int, held: str, shell: Shell) -> None:
    stated: dict[str, Any] = {"degrees": f"pp=2,v={chunks}", "micro_batches": 4}
    step = ho.simulate(ho.solve(NETWORK, **IN_PYTHON, **stated))
    assert isinstance(step, PipelineResult)
    assert f"{step.rows()[0]['in_flight']:g}" == held
    asked = (*ASKED, "--degrees", stated["degrees"], "--micro-batches", "4")
    assert f"in flight {held} .. " in " ".join(shell.output("solve", *asked).split())
    # Columns that a line has no room for follow in a table of their own.
    rows = [row for row in shell.output("simulate", *asked).splitlines() if row[:2] == "1 "]
    assert held in " ".join(rows).split()
    fix = f"micro_batches=4,interleave={chunks}"
    configured = ho.configure(NETWORK, "rtx4090x4", batch=16, stages=2, fix=fix)
    assert {row["in_flight"] for row in configured.rows()} == {float(held)}


def test_one_micro_batch_is_one(shell: Shell) -> None:
    said = shell.output("simulate", *SMALL, "--stages", "2", "--micro-batches", "1")
    assert "1 micro-batch, 1f1b" in said
