"""Attention and losses are whole only where no split that fits is left: every plan, exhausted."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import prod
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.errors import HyparError, InfeasibleError
from hypar_opt.execution.export import sharded_plan
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_plans
from hypar_opt.plan.arguments import problem_of
from hypar_opt.workload.parallelism import CHOICES
from tests.execution.jax.steps import results
from tests.execution.jax.test_steps import assert_as_planned
from tests.slow import slow_after

HEADS, WORDS = 3, 6

Rows = tuple[tuple[int, ...], ...]


def network(words: int = WORDS, heads: int = HEADS) -> ho.Network:
    """Attention, a head and its loss; queries, keys and values are read as they are."""
    layers = [
        {"name": "attention", "kind": "attention", "heads": heads},
        {"name": "head", "kind": "fc", "units": words},
        {"name": "loss", "kind": "output"},
    ]
    given = {"tokens": 2, "features": 36}
    schema = "hypar-opt/network/2"
    return validate(
        ho.Network, {"name": "words", "schema": schema, "input": given, "layer": layers}
    )


def asked_of(sizes: tuple[int, ...], **more: Any) -> dict[str, Any]:
    return {"hierarchy": sizes, "choices": CHOICES, "reading": "executed", **more}


def is_even(sizes: tuple[int, ...], column: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether a layer's choices divide its axes; an axis of 0 is not divided."""
    parts = [prod(n for n, c in zip(sizes, column, strict=True) if c == own) for own in range(3)]
    return all(axis % n == 0 for axis, n in zip(axes, parts, strict=True))


def states_of_layers(sizes: tuple[int, ...], batch: int) -> list[list[tuple[int, ...]]]:
    """The states of each layer: of the even ones those that are whole in the fewest parts.

    A loss that has to be whole has no sums over channels beside it.
    """
    every = list(itertools.product(range(3), repeat=len(sizes)))

    def least_whole(states: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
        whole = [prod(n for n, c in zip(sizes, s, strict=True) if c == 2) for s in states]
        return [s for s, n in zip(states, whole, strict=True) if n == min(whole)]

    attention, head, loss = (
        [state for state in every if is_even(sizes, state, axes)]
        for axes in ((batch, HEADS, 0), (batch, 12, WORDS), (batch, WORDS, 0))
    )
    if 2 in least_whole(loss)[0]:
        loss = [state for state in loss if 1 not in state]
    return [least_whole(attention), head, least_whole(loss)]


@pytest.mark.parametrize("sizes", [(2,), (3,), (2, 2), (2, 3)])
@pytest.mark.parametrize("batch", slow_after(2, [1, 3, 2, 4]))
def test_every_solver_finds_the_least_of_the_plans_that_are_as_little_whole_as_can_be(
    sizes: tuple[int, ...], batch: int
) -> None:
    asked = asked_of(sizes, batch=batch, constraints={"even": True, "runnable": True})
    instance = Instance(network(), problem_of(network(), **asked))
    plans: list[Rows] = [
        tuple(zip(*columns, strict=True))
        for columns in itertools.product(*states_of_layers(sizes, batch))
    ]
    if not plans:
        with pytest.raises(InfeasibleError, match="layer 'head'"):
            ho.solve(network(), **asked)
        return
    shared = [None] * len(plans)
    totals = [
        sum(charges, Fraction())
        for charges in price_plans(instance.workload, instance.cost, plans, shared)
    ]
    for solver in ("dp", "brute", "cpsat", "ilp"):
        plan = ho.solve(network(), solver=solver, search="joint", **asked)
        assert plan.cost.total == plan.solver.bound == min(totals), solver
        assert plan.assignments() in plans
        ho.check_certificate(plan, ho.certify(plan))
    level_by_level = ho.solve(network(), search="levelwise", **asked)
    assert level_by_level.cost.total >= min(totals)
    ho.check_certificate(level_by_level, ho.certify(level_by_level))


@pytest.mark.parametrize("sizes", slow_after(2, [[2], [2, 3], [2, 2]]))
def test_whatever_is_whole_moves_what_is_modelled_and_learns_what_one_device_does(
    sizes: list[int],
) -> None:
    ran = 0
    for batch in (1, 2, 3):
        for columns in itertools.product(*states_of_layers(tuple(sizes), batch)):
            words = [dict(enumerate(row)) for row in network().words(CHOICES)]
            fix = [
                f"{layer.name}@H{level}={words[n][choice]}"
                for n, (layer, column) in enumerate(zip(network().layers, columns, strict=True))
                for level, choice in enumerate(column, 1)
            ]
            constraints = {"even": True, "runnable": True, "fix": fix}
            plan = ho.solve(
                network(), **asked_of(tuple(sizes), batch=batch, constraints=constraints)
            )
            step = ho.run(plan)
            assert all(row.modelled == row.counted for row in step.exchanges), fix
            assert step.agrees, fix
            ran += any("=whole" in pin for pin in fix)
    assert ran > 3


@pytest.mark.parametrize("heads", [2, 4, 6])
def test_what_can_be_split_is_never_whole(heads: int) -> None:
    """Its work would be repeated, for which bytes charge nothing."""
    for constraints in ({"even": True}, {"runnable": True}, {"runnable": False}):
        asked = asked_of((2, 2), batch=2, constraints=constraints)
        plan = ho.solve(network(8, heads), **asked)
        assert {plan["attention"][level] for level in ("H1", "H2")} <= {"data", "heads"}
        assert {plan["loss"][level] for level in ("H1", "H2")} <= {"data", "channel"}
        for solver in ("brute", "cpsat"):
            assert ho.solve(network(8, heads), solver=solver, **asked).cost == plan.cost
    wanted = {"even": True, "fix": ["attention@H1=whole"]}
    pinned = ho.solve(network(8, heads), **asked_of((2, 2), batch=2, constraints=wanted))
    assert pinned["attention"]["H1"] == "whole"
    assert pinned["attention"]["H2"] != "whole"


def test_time_charges_the_work_that_each_part_repeats() -> None:
    """One image and three heads on two accelerators: as on one."""
    asked: Any = {"choices": CHOICES, "reading": "executed", "constraints": {"even": True}}
    plan = ho.solve(network(), batch=1, array="h100-8", cost="time", **asked)
    seconds = {(row.layer, row.phase): row.compute for row in ho.simulate(plan).layers}
    assert {*plan["attention"].values()} == {"whole"}
    split = ho.solve(network(), batch=8, array="h100-8", cost="time", **asked)
    apart = {(row.layer, row.phase): row.compute for row in ho.simulate(split).layers}
    assert seconds["attention", "forward"] == pytest.approx(apart["attention", "forward"])


def test_with_two_choices_it_is_whole_too() -> None:
    asked: Any = {"batch": 1, "hierarchy": (2,), "choices": CHOICES[:2]}
    plan = ho.solve(network(), reading="executed", constraints={"even": True}, **asked)
    assert plan["attention"] == {"H1": "whole"}
    assert plan.choices == (*CHOICES[:2], "whole")


def test_a_paper_reading_has_no_whole_and_the_message_names_one_that_has() -> None:
    given = {"channels": 3, "height": 1, "width": 1}
    layer = [{"name": "fc", "kind": "fc", "units": 5}]
    primes = validate(ho.Network, {"name": "primes", "input": given, "layer": layer})
    asked: Any = {"batch": 1, "levels": 1, "constraints": {"even": True}}
    with pytest.raises(InfeasibleError) as raised:
        ho.solve(primes, reading="text", **asked)
    assert "layer 'fc' at H1; its batch is 1, its channels 3 in and 5 out" in str(raised.value)
    assert "; with reading='executed' it may be whole" in str(raised.value)
    assert ho.solve(primes, reading="executed", **asked)["fc"] == {"H1": "whole"}


def test_a_pin_offers_it_where_no_constraint_does() -> None:
    asked: Any = {"batch": 4, "hierarchy": (2, 2), "choices": CHOICES, "reading": "executed"}
    plan = ho.solve(network(), fix=["head@H2=whole"], **asked)
    assert plan["head"]["H2"] == "whole"
    assert plan["head"]["H1"] != "whole"


def test_a_jax_program_repeats_what_is_whole() -> None:
    plans = []
    for sizes, fix in (
        ((2,), ["attention=whole", "head=output", "loss=whole"]),
        ((2, 2), ["attention@H1=whole", "head=output", "loss@H2=whole"]),
        ((2, 2), ["attention=whole", "head@H1=output", "loss@H1=whole", "loss@H2=data"]),
    ):
        constraints = {"even": True, "fix": fix}
        plans.append(ho.solve(network(8, 6), **asked_of(sizes, batch=4, constraints=constraints)))
    sharded = [sharded_plan(plan) for plan in plans]
    found = results([(one.network, one.program) for one in sharded])
    for one, plan in zip(found, plans, strict=True):
        assert_as_planned(one, plan.parallelism)
    # Partial sums for a whole reader are scattered by batch, of which one image has one part.
    plan = ho.solve(network(5), **asked_of((2,), batch=1, constraints={"even": True}))
    with pytest.raises(HyparError, match="'attention', key-value heads: its size 3 should be div"):
        sharded_plan(plan)
