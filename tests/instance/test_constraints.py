"""Constraints: pins, even splits, memory; and what is said where nothing keeps to them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.instance.constraints import ConstraintSet
from hypar_opt.instance.least_loads import LeastLoads
from hypar_opt.instance.pins import Pin
from hypar_opt.plan.arguments import problem_of
from hypar_opt.workload.tensors import workload_of


def solve(name: str, search: str = "levelwise", **asked: Any) -> ho.Plan:
    constraints: dict[str, Any] = {
        key: asked.pop(key) for key in ("fix", "even", "memory", "optimizer") if key in asked
    }
    return ho.solve(name, search=search, constraints=constraints, **asked)


@pytest.mark.parametrize("search", ["levelwise", "joint"])
def test_a_pin_holds_at_its_level_or_at_all(search: str) -> None:
    plan = solve("vgg-a", search, fix=("fc1@H2=data", "conv5_2=model"))
    assert plan.parallelism[1][8] == "data"
    assert [row[7] for row in plan.parallelism] == ["model"] * 4
    free = solve("vgg-a", search)
    assert plan.cost.total > free.cost.total


def test_a_pattern_pins_every_layer_that_it_matches() -> None:
    plan = solve("vgg-a", fix=("fc?=data", "conv*=data"))
    assert plan.cost.total == plan.cost.baselines.data


def test_a_pin_reads_as_it_is_written() -> None:
    for text in ("fc1=data", "fc1@H2=model", "conv*@H1=output", "a@b@H3=data"):
        assert str(Pin.parse(text)) == text
    assert Pin.parse("fc1@2=data") == Pin.parse("fc1@H2=data")


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"fix": ("fc1",)}, "constraints.fix should be LAYER[@LEVEL]=CHOICE, as in fc1@H2=data"),
        ({"fix": ("fc1=both",)}, "constraints.fix should be LAYER[@LEVEL]=CHOICE"),
        ({"fix": ("fc1@top=data",)}, "constraints.fix should be LAYER[@LEVEL]=CHOICE"),
        ({"fix": ("fc9=data",)}, "constraints.fix='fc9=data': no layer is called 'fc9'"),
        (
            {"fix": ("fc1@H5=data",)},
            "constraints.fix='fc1@H5=data': the level should be from 1 to 4",
        ),
        (
            {"fix": ("fc1=output",)},
            "constraints.fix='fc1=output': output is not among choices='data,model'",
        ),
        (
            {"fix": ("fc1=data", "fc*@H2=model")},
            "constraints.fix='fc1=data' and constraints.fix='fc*@H2=model' conflict at fc1, H2",
        ),
        (
            {"even": True, "levels": 10},
            "constraints.even: no choice fits layer 'conv1' at H9; its batch is",
        ),
        (
            {"even": True, "fix": ("conv1@H1=model",)},
            "constraints.even, constraints.fix: no choice fits layer 'conv1' at H1",
        ),
        (
            {"memory": 10},
            "constraints.memory: no plan fits 10 bytes per accelerator; the smallest memory",
        ),
        ({"memory": 0}, "constraints, memory: should be greater than or equal to 1, got 0"),
        ({"memory": "8 parsecs"}, "constraints, memory: should be bytes, as in 8GB or 512MiB"),
        ({"optimizer": -1}, "constraints, optimizer: should be sgd, momentum, adam or the bytes"),
    ],
)
@pytest.mark.parametrize("search", ["levelwise", "joint"])
def test_what_no_plan_keeps_to_is_refused_by_name(
    search: str, asked: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ho.HyparError) as raised:
        solve("lenet-c", search, **asked)
    assert str(raised.value).startswith(complaint)


@pytest.mark.parametrize("search", ["levelwise", "joint"])
@pytest.mark.parametrize("name", ["lenet-c", "cifar-c", "alexnet"])
def test_the_smallest_memory_that_would_do_does_and_a_byte_less_does_not(
    name: str, search: str
) -> None:
    with pytest.raises(ho.HyparError, match="smallest memory") as raised:
        solve(name, search, memory=1)
    stated = re.search(r"suffices is ([\d,]+) bytes, counting every layer's", str(raised.value))
    assert stated is not None
    needed = int(stated[1].replace(",", ""))
    tight = solve(name, search, memory=needed)
    assert tight.cost.total >= solve(name, search).cost.total
    with pytest.raises(ho.HyparError, match=f"suffices is {needed:,} bytes"):
        solve(name, search, memory=needed - 1)


def test_memory_reads_decimal_and_binary_units() -> None:
    for text, bytes_ in (("8GB", 8 * 10**9), ("1.5 MiB", 3 * 2**19), ("2k", 2000), ("77", 77)):
        assert ho.Constraints(memory=text).memory == bytes_


def test_tight_memory_costs_communication() -> None:
    free = solve("vgg-a", "joint", batch=8, levels=3)
    tight = solve("vgg-a", "joint", batch=8, levels=3, memory=250_093_568)
    assert tight.parallelism != free.parallelism
    assert tight.cost.total / free.cost.total == pytest.approx(1.130, abs=5e-4)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--memory", "10"], "the smallest memory that suffices is"),
        (["--even", "--batch", "3", "--fix", "fc1=data"], "--even, --fix: no choice fits layer"),
        (["--solver", "data", "--memory", "400MB"], "a constraint: --memory: the plan takes"),
        (
            ["--solver", "data", "--fix", "fc1=model"],
            "a constraint: --fix: fc1 may not take data at",
        ),
        (
            ["--solver", "data", "--batch", "3", "--reading", "executed", "--runnable"],
            "a constraint: --runnable: fc1 may not take data at H2",
        ),
    ],
)
@pytest.mark.parametrize("search", ["levelwise", "joint"])
def test_what_is_proven_infeasible_ends_with_4(
    options: list[str], says: str, search: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["solve", "sfc", "--search", search, *options]) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err


def test_pins_alone_need_one_state_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often a choice was made above matters to even splits and memory, and not to pins."""
    kept: list[LeastLoads] = []
    made = LeastLoads.__init__

    def keep(self: LeastLoads, *args: Any) -> None:
        kept.append(self)
        made(self, *args)

    monkeypatch.setattr(LeastLoads, "__init__", keep)
    network = ho.load("lenet-c")
    arguments: Any = {"levels": 30, "choices": ("data", "model", "output"), "reading": "executed"}
    states = {}
    for constraints in ({"fix": ("fc1@H30=data",)}, {"fix": ("fc1@H30=data",), "even": True}):
        problem = problem_of(network, **arguments, batch=2**30, constraints=constraints)
        with suppress(ho.errors.InfeasibleError):
            workload = workload_of(network, problem.batch, problem.choices)
            ConstraintSet(problem, workload).check_feasible()
        states[len(constraints)] = sum(level == 30 for level, *_ in kept[-1]._least)
    # With 30 levels there are 496 ways to split.
    assert states == {1: 1, 2: 496}
