"""The fastest configurations: as their plans are simulated, and refused in one line."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import cache
from itertools import cycle, product
from math import inf, prod
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.output import print_view
from hypar_opt.errors import HyparError, InfeasibleError, NoAnswerError
from hypar_opt.execution.settings import FRAMEWORKS, TrainingRun
from hypar_opt.hardware.array import Array
from hypar_opt.models import find_network, names
from hypar_opt.plan.configuration import (
    Configuration,
    configuration_of,
    family,
    key_value_heads,
)
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.stated import stated_problem
from hypar_opt.planning.priced import plan_of_configuration
from hypar_opt.search.degrees import Evaluated, search_degrees
from hypar_opt.search.staged_degrees import StagedEvaluator
from hypar_opt.studies import configurations
from hypar_opt.studies.configurations import (
    Configurations,
    abbreviated_cuts,
    beside,
    best_configuration,
    in_words,
    operations,
    pins,
)
from hypar_opt.units import format_si
from tests.cli.shell import Shell, command
from tests.slow import slow_after

TINY = "gpt:layers=2,hidden=64,heads=4,tokens=32,vocabulary=100"
WIDE = "gpt:layers=4,hidden=2048,heads=4,tokens=256,vocabulary=4096"
NEARLY = 1 + 1e-9
"""Relative: the seconds of an event simulation are summed in another order."""


@cache
def found(network: str = TINY, array: str = "h100-8", **asked: Any) -> Configurations:
    return ho.configure(network, array, **{"batch": 8, "bound": "none", **asked})


def problem(
    network: str = TINY, array: str | Array = "h100-8", batch: int = 8
) -> tuple[Any, Problem]:
    return stated_problem(network, {"array": array, "batch": batch, "optimizer": "adam"})


@pytest.mark.parametrize(
    ("network", "array", "batch"),
    slow_after(
        3,
        [
            (TINY, "h100-8", 8),
            ("gpt2", "h100-8x8", 256),
            ("vit-b16", "a100-8", 64),
            ("mixtral-8x7b", "h100-8x8", 512),
            ("llama-3-8b", "a100-4x8", 64),
            ("t5-base", "h100-8", 64),
        ],
    ),
)
def test_rows_say_what_the_simulator_says_of_their_plans(
    network: str, array: str, batch: int
) -> None:
    configured = found(network, array, batch=batch)
    for number, row in list(enumerate(configured.rows()))[::4]:
        plan = configured.plan(number)
        step = ho.simulate(plan)
        assert row["seconds"] == pytest.approx(step.seconds, rel=1e-12)
        assert row["memory"] == step.memory == ho.memory(plan).total
        assert row["spare"] == step.capacity - step.memory >= 0
        assert 0 <= row["exposed"] < 1


def test_rows_are_in_order_and_distinct() -> None:
    configured = found()
    seconds = [one.seconds for one in configured]
    assert seconds == sorted(seconds)
    assert len({one.configuration for one in configured}) == len(configured) == 10
    assert configured.fitting is not None
    assert configured.simulated <= configured.fitting <= configured.considered
    assert found(best=3).entries == configured[:3]


STRATEGIES: dict[str, dict[str, Any]] = {
    "data parallelism": {"degrees": "dp_shard=8", "shard": "none"},
    "ZeRO-1": {"degrees": "dp_shard=8", "shard": "state"},
    "FSDP": {"degrees": "dp_shard=8", "shard": "weights"},
    "HSDP": {"degrees": "dp_shard=8", "shard": "weights@H2-H3"},
    "tp 2": {"degrees": "tp=2", "shard": "state"},
    "tp 4": {"degrees": "tp=4", "shard": "state"},
    "cp 2": {"degrees": "cp=2", "shard": "state"},
}


@pytest.mark.parametrize(
    ("network", "array", "batch"),
    slow_after(
        1,
        [
            (TINY, "h100-8", 8),
            *product(
                ("gpt2", "bert-base", "vit-b16", "llama-7b", "t5-base", "mixtral-8x7b"),
                ("h100-8", "a100-8", "rtx4090x4", "v100-16", "h100-8x8"),
                (8, 64, 512),
            ),
        ],
    ),
)
def test_none_is_slower_than_a_named_strategy(network: str, array: str, batch: int) -> None:
    """By the simulator, at the same batch, of what fits: all its micro-batches and recomputation.

    Plans come from `solve`, which reads degrees by itself.
    """
    try:
        best = found(network, array, batch=batch).best.seconds
    except HyparError:  # none fits, or the batch has too few samples for any
        best = float("inf")
    described, stated = problem(network, array, batch)
    levels, compared, too_large = stated.levels, 0, 0
    for own, count, again in product(STRATEGIES.values(), (1, 4), ("none", "full")):
        shard = own["shard"].replace("H2-H3", f"H2-H{levels}")
        degrees = own["degrees"].replace("=8", f"={stated.accelerators}")
        try:
            plan = ho.solve(
                described,
                array=array,
                batch=batch,
                optimizer="adam",
                degrees=degrees,
                shard=shard,
                micro_batches=count,
                recompute=again,
            )
            configuration_of(plan)  # one of unequal parts is none
        except InfeasibleError:
            too_large += 1
            continue
        except HyparError:
            continue
        step = ho.simulate(plan)
        assert step.memory <= step.capacity
        compared += 1
        assert best <= step.seconds * NEARLY, (own, count, again)
    assert compared or too_large or batch % stated.accelerators


def strategies(stated: Problem) -> Iterator[Configuration]:
    """Yield data parallelism, FSDP, HSDP, and Megatron's degrees, inside nodes and across them."""
    count, sizes = stated.accelerators, stated.hierarchy.sizes
    replicas = prod(sizes[: len(sizes) // 2])
    yield Configuration(dp_shard=count)
    yield Configuration(dp_shard=count, zero="weights")
    if 1 < replicas < count:
        yield Configuration(dp_replicate=replicas, dp_shard=count // replicas, zero="weights")
    for first, sp in product(range(len(sizes)), (True, False)):
        tp = prod(sizes[first:])
        zero = "state" if tp < count else "none"
        yield Configuration(dp_shard=count // tp, tp=tp, sp=sp, zero=zero)


REPEATED = [name for name in names() if find_network(name).repeats]
ARRAYS = (
    *("a100-8", "a100-4x8", "h100-8", "h100-8x8", "h100-16x8", "gb200-nvl72"),
    *("mi300x-8", "rtx4090x4", "v100-16", "tpu-v4-8", "tpu-v4-4x4x4"),
)


@pytest.mark.parametrize(
    ("network", "array", "batch"),
    slow_after(
        2,
        [
            ("vit-b16", "h100-8", 64),
            # The fastest has tensor parallelism across nodes.
            ("gpt:layers=2,hidden=2048,heads=16,tokens=512,vocabulary=512", "h100-8x8", 4),
            (TINY, "tpu-v4-8", 64),
            *(
                (*one, batch)
                for one, batch in zip(product(REPEATED, ARRAYS), cycle((8, 64, 512)), strict=False)
            ),
        ],
    ),
)
def test_none_is_slower_than_a_strategy_in_any_memory(network: str, array: str, batch: int) -> None:
    """By the simulator: the fastest of all of any memory, and of those that fit.

    On tpu-v5e-256 accelerators are out of lockstep: a step of some takes minutes to simulate.
    """
    described, stated = problem(network, array, batch)
    assert stated.array is not None
    ample = stated.array.description.description()
    ample["accelerator"]["dram_capacity"] = "1 PB"
    fastest = [
        min((one.seconds for one in search_degrees(described, own, count=1).best), default=inf)
        for own in (problem(network, Array.model_validate(ample), batch)[1], stated)
    ]
    for one in strategies(stated):
        # No framework has words for replicated KV heads: only a stated tp is above them.
        if one.tp > (key_value_heads(described) or one.tp):
            continue
        local = batch // (one.dp_shard * one.dp_replicate)
        for count, again in ((1, "none"), (max(local, 1), "full")):
            own = one._replace(micro_batches=count, recompute=again)
            try:
                plan = plan_of_configuration(described, stated, own)
            except HyparError:  # it does not divide
                continue
            step = ho.simulate(plan)
            assert fastest[step.memory <= step.capacity] <= step.seconds * NEARLY, own
            assert fastest[0] <= step.seconds * NEARLY, own


def test_every_configuration_is_no_faster() -> None:
    """Brute force: the plan of each, by events."""
    configured = found(array="rtx4090x4", fix="micro_batches=1,recompute=none")
    described, stated = problem(array="rtx4090x4")
    steps = [
        ho.simulate(plan_of_configuration(described, stated, one))
        for one in family(described, stated)
        if (one.micro_batches, one.recompute) == (1, "none")
    ]
    assert len(steps) == configured.considered
    fastest = sorted(step.seconds for step in steps)[: len(configured)]
    assert [one.seconds for one in configured] == pytest.approx(fastest, rel=1e-12)
    assert len(configured.points()) == len(steps)


def test_no_bound_is_above_the_fastest() -> None:
    configured = found(bound="memory")
    assert configured.bound is not None
    assert 0 < configured.bound <= configured.best.seconds * NEARLY
    assert found().bound is None


def test_pins_hold_and_what_keeps_to_them_is_not_faster() -> None:
    fixed = found(fix="tp=2,sp=no,zero=state,micro_batches=2")
    assert fixed.best.seconds >= found().best.seconds
    for one in fixed:
        own = one.configuration
        assert (own.tp, own.sp, own.zero, own.micro_batches) == (2, False, "state", 2)
    assert pins(None) == {}


def test_only_a_pinned_tp_replicates_key_value_heads() -> None:
    """No framework has words for it; their settings name what they lack."""
    network = "gpt:layers=2,hidden=256,heads=8,kv_heads=2,tokens=64,vocabulary=128,gated=true"
    free = found(network=network)
    assert {one.configuration.tp for one in free} <= {1, 2}
    pinned = found(network=network, fix="tp=8", best=2)
    assert {one.configuration.tp for one in pinned} == {8}
    assert {one.configuration.tp for one in pinned.points()} == {8}
    assert ho.simulate(pinned.plan()).seconds == pytest.approx(pinned.best.seconds, rel=1e-12)
    assert any("key-value heads in tp of 8" in lack for lack in pinned.lacks("megatron"))
    with pytest.raises(HyparError, match=r"cannot express any of the \d+ configurations with tp=8"):
        found(network=network, fix="tp=8", frameworks=("megatron", "maxtext"))


def test_frameworks_leave_what_each_has_words_for_of_all() -> None:
    """Of every configuration of a family, by the settings of its plan."""
    described, stated = problem()
    every = [*family(described, stated, recompute=("none", "op", "full"))]
    run = TrainingRun.of(plan_of_configuration(described, stated, every[-1]))
    for name, framework in FRAMEWORKS.items():
        words = {one for one in every if not framework.lacks(one, run)}
        assert 0 < len(words) < len(every)
        assert found(frameworks=name, best=1).considered == len(words)


@pytest.mark.parametrize(
    ("network", "array", "batch", "margin", "framework"),
    slow_after(
        2,
        [
            (TINY, "h100-8", 8, 0, "maxtext"),
            ("gpt2", "h100-8", 256, "66GB", "torchtitan"),
            *(("gpt2", "h100-8", 256, "66GB", own) for own in ("megatron", "nemo", "accelerate")),
            *(("mixtral-8x7b", "h100-8x8", 64, 0, own) for own in ("nemo", "deepspeed", "maxtext")),
        ],
    ),
)
def test_frameworks_have_words_for_all_that_is_left(
    network: str, array: str, batch: int, margin: int | str, framework: str
) -> None:
    """With little memory, too, where the fastest run k of n blocks again."""
    fix = "tp=1,cp=1,micro_batches=1" if margin else None
    asked: dict[str, Any] = {"batch": batch, "margin": margin, "fix": fix, "best": 4}
    configured = found(network, array, **asked, frameworks=framework)
    for number, one in enumerate(configured):
        assert configured.lacks(framework, number) == []
        assert "Not expressed" not in configured.to(framework, number)
        if framework in ("torchtitan", "maxtext", "accelerate"):
            assert one.configuration.blocks is None
    free = found(network, array, **asked)
    assert configured.considered < free.considered
    assert configured.best.seconds >= free.best.seconds
    if margin:
        assert free.best.configuration.blocks is not None


def test_a_margin_is_left_free() -> None:
    whole = found()
    capacity = whole.capacity - whole.best.memory
    within = found(margin=capacity + 1)
    assert within.capacity == whole.capacity
    assert whole.fitting is not None
    assert within.fitting is not None
    assert within.fitting < whole.fitting
    assert all(one.memory < whole.best.memory for one in within)
    assert within.plan().array == whole.plan().array


def test_a_plan_of_a_configuration_is_it_again() -> None:
    configured = found()
    for number, one in enumerate(configured[:3]):
        own, again = one.configuration, configuration_of(configured.plan(number))
        assert again[2:8] == own[2:8]
        assert again.dp_replicate * again.dp_shard == own.dp_replicate * own.dp_shard


def test_without_sharded_weights_is_the_fastest_of_those_or_needs_least() -> None:
    own = found().unsharded
    assert own == found(fix="zero=none").best or own is not None
    assert own is not None
    assert own.seconds <= found(fix="zero=state").best.seconds
    # Of 70 billion weights none fits whole beside the optimizer.
    large = found("llama-70b", "h100-8x8", batch=64, fix="tp=1", best=1)
    assert large.unsharded is not None
    assert large.unsharded.memory > large.capacity
    assert large.best.configuration.zero in ("weights", "state+weights")


def test_operations_are_six_a_weight_and_token_and_those_of_attention() -> None:
    """PaLM's count, appendix B, of a causal mask by half."""
    layers, hidden, tokens, vocabulary = 2, 64, 32, 100
    weights = layers * 12 * hidden**2 + vocabulary * hidden
    attention = layers * 12 * hidden * tokens // 2
    assert operations(found().network) == tokens * (6 * weights + attention)
    row, configured = found().rows()[0], found()
    peak = 989.4e12 * 8
    assert row["mfu"] * row["seconds"] * peak == pytest.approx(8 * operations(configured.network))
    assert row["per_second"] == pytest.approx(8 * tokens / row["seconds"] / 8)


def test_images_are_counted_where_there_are_no_tokens() -> None:
    configured = found("vit-b16", "a100-8", batch=64)
    assert (configured.unit, configured.tokens) == ("images", None)
    row = configured.rows()[0]
    assert row["per_second"] == pytest.approx(64 / row["seconds"] / 8)


def test_words_name_what_is_not_one() -> None:
    own = Configuration(2, 4, 1, 8, 1, sp=True, micro_batches=2, recompute="full", blocks=3)
    said = "tp 8 with sp, dp_shard 4, dp_replicate 2, 2 micro-batches"
    said += ", full recomputation of 3 of 12 blocks"
    assert in_words(own, 12) == said
    assert in_words(Configuration(), 12) == "one accelerator"
    hybrid = Configuration(2, zero="state+weights", recompute="full")
    said = "dp_replicate 2, full recomputation, optimizer state and weights sharded (ZeRO++)"
    assert in_words(hybrid, 12) == said


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"fix": "tp=3"}, "fix: tp should be one of 1, 2, 4 for batch 8"),
        ({"fix": "tp=8"}, "8 should divide the 4 key-value heads"),
        ({"fix": "sp=no,tp=1"}, "fix: sp should be one of yes with tp=1"),
        ({"fix": "tp"}, "fix should be as tp=8,zero=weights, got 'tp'"),
        ({"fix": "pq=2"}, "unknown key of fix 'pq': did you mean"),
        ({"fix": "tp=2,tp=4"}, "fix: tp is stated twice"),
        ({"fix": "tp=0"}, "fix: tp should be a whole number from 1, got '0'"),
        ({"fix": "zero=all"}, "unknown value of zero 'all'"),
        ({"best": 0}, "best should be 1 or more, got 0"),
        ({"bound": "tight"}, "unknown bound 'tight': known: none, memory"),
        ({"margin": "much"}, "margin: should be bytes"),
        ({"margin": "80GB"}, "margin should leave some of the 80 GB"),
        ({"frameworks": "torchtian"}, "unknown framework 'torchtian': did you mean torchtitan?"),
        ({"optimizer": "adan"}, "optimizer"),
        ({"tokens": 31, "fix": "cp=2"}, "fix: cp should be one of 1"),
        ({"network": "vgg-a"}, "configurations need a network of repeated blocks, unlike VGG-A"),
        ({"array": "a100-h100-2x8"}, "configurations need equal accelerators"),
        ({"network": "resnet-18", "fix": "tp=2"}, "tp needs attention, or fully-connected layers"),
        ({"network": "resnet-18", "batch": 4}, "8 should divide the batch of 4"),
        (
            {"network": "vit-b16", "array": "h100-8x8", "batch": 1},
            "there is no configuration for batch 1 of ViT-B/16 on h100-8x8",
        ),
    ],
)
def test_what_is_refused_is_named(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(HyparError) as error:
        found(**asked)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.exit_status == 2


@pytest.mark.parametrize(
    ("cuts", "said"),
    [((8, 4), "8+4"), ((3, *(30 * [4]), 3), "3+30x4+3"), ((2, 2, 1, 1, 1), "2+2+3x1"), ((), "")],
)
def test_cuts_of_many_stages_are_said_in_short(cuts: tuple[int, ...], said: str) -> None:
    assert abbreviated_cuts(cuts) == said


def test_where_nothing_fits_the_three_that_need_least_are_named(shell: Shell) -> None:
    call = ("configure", "gpt2", "--array", "h100-8", "--batch", "8", "--margin", "79.9GB")
    status, out, err = shell(*call)
    assert (status, out) == (4, "")
    assert len(err.splitlines()) == 1
    assert "the 3 that need least take " in err
    with pytest.raises(InfeasibleError) as error:
        found("gpt2", margin="79.9GB")
    least = error.value.least
    assert least is not None
    assert least.bytes > least.capacity == 85 * 10**9 - 79_900_000_000


def test_a_time_limit_of_nothing_leaves_no_answer() -> None:
    with pytest.raises(NoAnswerError):
        found(time_limit=0.0)


def test_the_shell_has_the_same_rows(tmp_path: Path, shell: Shell) -> None:
    table, plan = tmp_path / "rows.csv", tmp_path / "plan.json"
    call = ("configure", TINY, "--array", "h100-8", "--batch", "8", "--bound", "none")
    document = shell.document(*call, "--csv", table, "-o", plan)
    assert document == json.loads(json.dumps(found().document()))
    head, *lines = csv.reader(table.read_text().splitlines())
    assert head == [*document["rows"][0]]
    assert len(lines) == len(document["rows"])
    step = shell.document("simulate", plan)
    assert step["seconds"] == pytest.approx(document["rows"][0]["seconds"], rel=1e-12)
    assert shell.document("memory", plan)["bytes"] == document["rows"][0]["memory"]
    assert "agrees" in shell.output("verify", plan)


def test_settings_are_a_file_or_all_that_is_printed(tmp_path: Path, shell: Shell) -> None:
    arguments = tmp_path / "args.sh"
    call = ("configure", TINY, "--array", "h100-8", "--batch", "8", "--bound", "none")
    framework = ("--to", "megatron", "--frameworks", "megatron")
    printed = shell.output(*call, *framework)
    table = shell.output(*call, *framework, "-o", arguments)
    assert arguments.read_text() == printed == found(frameworks="megatron").to("megatron")
    assert table.startswith(TINY)
    # What a framework cannot express is named.
    status, out, err = shell(*call, "--to", "accelerate", "--fix", "zero=state")
    assert (status, "Not expressed" in out) == (0, True)
    assert err.startswith("hypar-opt: warning: accelerate cannot express ")


def test_the_command_prints_and_draws(tmp_path: Path) -> None:
    call = ("configure", TINY, "--array", "h100-8", "--batch", "8")
    done = command([*call, "--picture", "dots.svg"], tmp_path)
    assert (done.status, done.errors) == (0, "")
    assert "No plan without stages that fits in 85 GB takes less than " in done.output
    rows = [line for line in done.output.splitlines() if line.strip()[:1].isdigit()]
    assert len(rows) == 10
    text = (tmp_path / "dots.svg").read_text()
    assert "configurations that fit" in text
    missing = command(["configure", "gpt2"], tmp_path)
    assert missing.status == 2
    assert "Missing option '--array'" in missing.errors


def test_a_result_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    configured = found()
    print_view(configured)
    lines = capsys.readouterr().out.splitlines()
    # One row each, however wide: a pipe is read by lines.
    assert sum(line.split()[:1] == [str(n)] for n in range(1, 11) for line in lines) == 10
    assert repr(configured).startswith("<Configurations of gpt:layers=2")
    data = configured.figure().to_dict()["datasets"]
    numbers = [row["what"].partition(":")[0] for row in data["fastest"]]
    assert numbers == [f"{n}" for n in range(1, 11)]


def test_the_picture_has_configurations_with_stages_and_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: dict[str, Any] = {"network": WIDE, "array": "rtx4090x4", "fix": "cp=1,micro_batches=4"}
    without, staged, both = (found(**asked, stages=stages) for stages in (1, 2, "auto"))
    points = both.points()
    assert points == [*without.points(), *staged.points()]
    described, stated = problem(WIDE, "rtx4090x4")
    evaluator = StagedEvaluator(described, stated, 2)
    fixed = {"cp": 1, "micro_batches": 4, "dp_replicate": 1}
    own = family(described, evaluator.problem, fixed=fixed, recompute=("none",))
    # In this memory nothing has to be computed again, and sequence parallelism holds less.
    every = {one for cut in evaluator.cut([*own]) for one in cut if one.sp or one.tp == 1}
    assert {one.configuration for one in staged.points()} == every
    drawn: dict[str, set[float]] = {}
    for row in both.figure().to_dict()["datasets"]["points"]:
        drawn.setdefault(row["what"], set()).add(row["memory"])
    assert drawn == {
        f"{len(own)} {what}": {float(f"{one.memory / 1e9:.4g}") for one in own}
        for own, what in (
            (without.points(), "configurations that fit, recomputing no more than they must"),
            (staged.points(), "in stages that fit"),
        )
    }
    monkeypatch.setattr(configurations, "POINTS", 3)
    fastest = sorted(one.seconds for one in staged.points())
    assert [one.seconds for one in found(**asked, stages=2, best=2).points()] == fastest[:3]


@pytest.mark.parametrize("training", [{}, {"micro_batches": 4, "shard": "weights"}])
def test_a_plan_has_the_best_configuration_beside_it(training: dict[str, Any]) -> None:
    """Both simulated; what the plan's training states the configuration keeps to."""
    pinned = "micro_batches=4,zero=weights,dp_replicate=1" if training else None
    plan = ho.solve(TINY, array="h100-8", batch=8, **training)
    best = found(optimizer="sgd", fix=pinned, best=1).best
    own, plans = (format_si(x, "s") for x in (best.seconds, ho.simulate(plan).seconds))
    said = f"The best configuration takes {own} with overlap (prefetch), this plan {plans}: "
    assert beside(plan) == f"{said}{in_words(best.configuration, 2)}."


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        ("lenet-c", {"array": "h100-8"}),  # without blocks
        (TINY, {"levels": 3}),
        (TINY, {"array": "h100-8", "cost": "bytes"}),
        (TINY, {"array": "h100-8", "fix": ("*@H1=data",)}),
        (TINY, {"array": "h100-8", "inference": True}),
        (TINY, {"array": "a100-h100-2x8", "batch": 32, "share": 0.3}),
    ],
)
def test_a_plan_without_configurations_has_none_beside_it(
    network: str, problem: dict[str, Any]
) -> None:
    assert beside(ho.solve(network, **{"batch": 8, **problem})) is None


def test_solve_says_the_best_configuration_in_its_last_line(shell: Shell) -> None:
    args = ("solve", TINY, "--array", "h100-8", "--batch", "8")
    printed = shell.output(*args).partition("The best configuration takes ")[2]
    assert len(printed.splitlines()) in (1, 2)  # as wide as the terminal
    assert "configuration" not in json.loads(shell.output(*args, "--json"))


@pytest.mark.parametrize("cost", slow_after(1, ["time", "bytes"]))
def test_a_comparison_has_the_best_configuration_as_a_row(cost: str) -> None:
    rows = {row.plan: row for row in ho.compare(TINY, "h100-8", batches=8, cost=cost)}
    best = found(optimizer="sgd", best=1)
    assert rows["configured"].seconds == best.best.seconds
    assert rows["configured"].executed_bytes == best.plan().cost.executed_bytes
    assert "configured" not in {row.plan for row in ho.compare(TINY, batches=8, levels=3)}


def test_a_stated_memory_is_of_tensors_alone() -> None:
    """As for `solve`: the reserve is beside it."""
    fastest = found().plan()
    held = ho.memory(fastest)
    assert held.reserve > held.tensors > 0

    def within(memory: int) -> Evaluated:
        asked: Any = {"array": "h100-8", "batch": 8, "optimizer": "adam", "memory": memory}
        return best_configuration(*stated_problem(TINY, asked))

    assert within(held.tensors).configuration == found().best.configuration
    less = within(held.tensors - 1)
    plan = plan_of_configuration(*problem(TINY), less.configuration)
    assert ho.memory(plan).tensors < held.tensors
    assert less.seconds >= found().best.seconds
    with pytest.raises(InfeasibleError, match="none of 618 configurations fits in 1 kB"):
        within(1000)
