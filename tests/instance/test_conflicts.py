"""A conflict is irreducible: no plan keeps to all of it, and there is one without any member."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.instance.conflicts import (
    Member,
    conflict,
    described_member,
    members_of,
    with_members,
)
from hypar_opt.instance.constraints import ConstraintSet
from hypar_opt.instance.pins import Pin
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.problem import Problem
from hypar_opt.solvers.backends.base import load_pulp
from hypar_opt.solvers.model_names import fields_of
from hypar_opt.workload.patterns import matching
from hypar_opt.workload.tensors import Workload, workload_of
from tests.cli.shell import Shell
from tests.strategies.groups import nodes
from tests.strategies.plans import every_plan

pytestmark = pytest.mark.filterwarnings("ignore:PULP_CBC_CMD:DeprecationWarning")
BATCH, UNITS, LEVELS = 4, (6, 4, 3), 2
WORDS = ("data", "model", "output")


def chain() -> ho.Network:
    layers = [{"name": f"fc{n}", "kind": "fc", "units": size} for n, size in enumerate(UNITS[1:])]
    given = {"features": UNITS[0]}
    return ho.Network.model_validate({"name": "chain", "input": given, "layer": layers})


def keeps(plan: Sequence[Sequence[int]], member: Member, free: ConstraintSet, memory: int) -> bool:
    """Whether a plan keeps to a constraint, by its definition."""
    name, pin = member
    if name == "memory":
        return free.memory_of(plan) <= memory
    columns = list(zip(*plan, strict=True))
    if name == "even":
        return all(
            size % 2 ** column.count(choice) == 0
            for n, column in enumerate(columns)
            for choice, size in enumerate((BATCH, UNITS[n], UNITS[n + 1]))
        )
    stated = Pin.parse(pin)
    levels = range(LEVELS) if stated.level is None else [stated.level - 1]
    layers = matching([f"fc{n}" for n in range(len(columns))], stated.layer)
    return all(WORDS[columns[n][level]] == stated.choice for n in layers for level in levels)


def drawn(count: int) -> Iterator[tuple[Problem, Workload]]:
    """Yield problems with constraints of all kinds, most of them infeasible."""
    rng = random.Random(7)
    network = chain()
    for _ in range(count):
        levels = [f"@H{n + 1}" for n in range(LEVELS)]
        pins = [
            rng.choice(["fc0", "fc1", "fc*"]) + rng.choice(["", *levels]) + "=" + rng.choice(WORDS)
            for _ in range(rng.randrange(5))
        ]
        stated: Any = {"fix": pins, "even": rng.random() < 0.7}
        stated["memory"] = rng.choice([None, 335, 350, 370, 390])
        problem = problem_of(network, batch=BATCH, levels=LEVELS, choices=WORDS, **stated)
        yield problem, workload_of(network, BATCH, WORDS, shared_tensors=False)


def test_a_conflict_is_irreducible() -> None:
    plans = list(every_plan(len(UNITS) - 1, LEVELS, len(WORDS)))
    sizes = []
    for problem, workload in drawn(60):
        alone = problem.model_copy(update={"constraints": with_members(problem.constraints, ())})
        free, memory = ConstraintSet(alone, workload), problem.constraints.memory or 0
        kept = {
            member: {n for n, plan in enumerate(plans) if keeps(plan, member, free, memory)}
            for member in members_of(problem.constraints)
        }
        everything = set(range(len(plans)))
        found = conflict(problem, workload)
        if everything.intersection(*kept.values()):
            assert found == ()
            continue
        assert not everything.intersection(*(kept[member] for member in found))
        for member in found:
            others = (kept[other] for other in found if other != member)
            assert everything.intersection(*others), found
        sizes.append(len(found))
    assert set(sizes) >= {1, 2, 3}


def test_a_model_says_which_constraints_conflict(tmp_path: Path) -> None:
    """The rows of the conflict are infeasible; without those of any one member they are not."""
    pulp, file, tried = load_pulp(), tmp_path / "infeasible.mps", 0
    for problem, workload in drawn(20):
        found = conflict(problem, workload)
        if len(found) < 2:
            continue
        asked: Any = dict(problem.constraints) | {"runnable": None}
        with pytest.raises(ho.HyparError, match="is infeasible, with rows named after") as error:
            ho.write_model(
                chain(), file, batch=BATCH, levels=LEVELS, choices=WORDS, constraints=asked
            )
        assert error.value.exit_status == 4
        assert all(described_member(member) in error.value.message for member in found)
        text = file.read_text()
        for kept in itertools.chain([found], itertools.combinations(found, len(found) - 1)):
            file.write_text("".join(_without_others(text, kept, members_of(problem.constraints))))
            _, live = pulp.LpProblem.fromMPS(file)
            live.solve(pulp.PULP_CBC_CMD(msg=False))
            assert (live.sol_status == pulp.LpSolutionInfeasible) is (kept == found), (found, kept)
        tried += 1
        if tried == 3:
            return


def test_the_memory_of_each_part_between_groups_is_a_row(tmp_path: Path) -> None:
    """Also that of the second group, where only it holds too little."""
    pulp, file = load_pulp(), tmp_path / "groups.mps"
    described = nodes(2).description()
    described["accelerator"][1]["dram_capacity"] = "1 kB"
    array = ho.Array.model_validate(described)
    asked: Any = {"array": array, "cost": "bytes", "batch": 16, "share": 0.4}
    asked["fix"] = ["*@H1=data"]
    with pytest.raises(ho.HyparError, match="is infeasible, with rows named after"):
        ho.write_model("lenet-c", file, memory="array", **asked)
    text = file.read_text()
    assert all(f" memory[H1.{part}]\n" in text for part in (1, 2))
    _, live = pulp.LpProblem.fromMPS(file)
    live.solve(pulp.PULP_CBC_CMD(msg=False))
    assert live.sol_status == pulp.LpSolutionInfeasible


def _without_others(text: str, kept: Sequence[Member], all_: Sequence[Member]) -> Iterator[str]:
    """Yield the lines of an MPS file without the rows of constraints that are not kept."""
    for line in text.splitlines(keepends=True):
        for kind, *fields in map(fields_of, line.split()):
            member = (kind, fields[0] if kind == "fix" else "")
            assert kind not in ("fix", "even", "memory") or member in all_
            if member in all_ and member not in kept:
                break
        else:
            yield line


def test_pins_that_conflict_are_no_plan_and_no_wrong_call(shell: Shell, tmp_path: Path) -> None:
    pins = ("--fix", "fc1=data", "--fix", "fc*@H2=model", "--even")
    said = shell.refused("solve", "lenet-c", *pins, status=4)
    assert said == "--fix fc1=data and --fix fc*@H2=model conflict at fc1, H2"
    pins = ("--fix", "conv1@H1=model", "--fix", "fc1=data", "--even")
    file = tmp_path / "pins.lp"
    said = shell.refused("model", "lenet-c", *pins, "--levels", "2", "-o", file, status=4)
    assert "; in conflict: --fix conv1@H1=model and --even; the model" in said
    assert " even(conv1): " in file.read_text()
    too_large = shell.refused("model", "vgg-a", "--even", "--levels", "11", "-o", file, status=4)
    assert "the model" not in too_large
