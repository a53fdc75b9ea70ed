"""Plans that split sequences: what their proofs take, and what they refuse."""

from __future__ import annotations

import itertools
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import CheckFailedError
from hypar_opt.hardware.arrays import load
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.plan import words_of
from hypar_opt.proofs.check.rows import price_of
from tests.choices import WITH_TOKENS
from tests.strategies.plans import Asked
from tests.strategies.written_plans import (
    own_columns,
    random_rows,
    random_token_problem,
    storing,
    written,
)

MOST_PLANS = 2**7
TWO_AND_TOKENS = ("data", "model", "tokens")


def small_problem(rng: Random) -> tuple[ho.Network, Asked]:
    """Return a problem of few plans, at levels of the same weight."""
    while True:
        network, asked = random_token_problem(rng, "bytes")
        levels = len(asked["hierarchy"])
        if prod(map(len, own_columns(network, asked))) ** levels <= MOST_PLANS:
            return network, asked


@pytest.mark.parametrize("seed", range(12))
def test_of_all_plans_that_split_tokens_only_the_cheapest_are_proved(seed: int) -> None:
    """The others are refused with the bound that proofs of their own give."""
    rng = Random(seed)
    network, asked = small_problem(rng)
    write, own = written(network, "joint", **asked), own_columns(network, asked)
    problem = problem_of(network, **asked, constraints={"runnable": False})
    allow = Instance(network, problem).constraints.allow
    every = itertools.product(itertools.product(*own), repeat=len(asked["hierarchy"]))
    plans = [write(rows) for rows in every if allow(rows)]
    least = min(plan.cost.total for plan in plans)
    best = next(plan for plan in plans if plan.cost.total == least)
    assert ho.solve(network, **asked, constraints={"runnable": False}).cost.total == least
    ho.check_certificate(best, ho.certify(best))
    dearer = [plan for plan in plans if plan.cost.total > least]
    for plan in rng.sample(dearer, min(len(dearer), 4)):
        with pytest.raises(ho.HyparError, match=f"prove {float(least):.15g} .*, the plan costs"):
            ho.certify(plan)


def layer(name: str, kind: str, *inputs: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "inputs": list(inputs), **keys}


CROSS = ho.Network.model_validate(
    {
        "schema": "hypar-opt/network/2",
        "name": "cross",
        "input": {"tokens": 6, "features": 4},
        "layer": [
            layer("words", "embedding", vocabulary=2, features=4),
            layer("q", "fc", "input", units=4),
            layer("k", "fc", "words", units=4),
            layer("v", "fc", "words", units=4),
            layer("look", "attention", "q", "k", "v", heads=2),
            layer("sum", "add", "q", "look"),
            layer("mean", "global_pool", "sum", over="average"),
            layer("end", "output", "mean", loss="none"),
            layer("scaled", "mul", "sum", "mean"),
            layer("both", "concat", "scaled", "words", axis="tokens"),
        ],
    }
)
"""Attention of six tokens to two others; a scale broadcast over tokens; both sequences as one.

Several layers read the tensors ``words``, ``q``, ``sum`` and, of features alone, ``mean``."""


def test_tokens_are_proved_where_all_tensors_with_tokens_have_all_of_them() -> None:
    """Keys and values of another sequence are read whole, so they need not have them."""
    asked: Asked = {"batch": 2, "hierarchy": (2,), "whole_levels": True, "choices": WITH_TOKENS}
    asked |= {"reading": "executed", "levels": 1}
    columns = own_columns(CROSS, asked)
    taken = {one.name for one, own in zip(CROSS.layers, columns, strict=True) if 3 in own}
    assert taken == {"words", "q", "k", "v", "look", "sum"}
    write = written(CROSS, "joint", **asked)
    for n, one in enumerate(CROSS.layers):
        row = tuple(3 * (n == other) for other in range(len(CROSS.layers)))
        if one.name in taken:
            plan = write((row,))
            assert price_of(plan) == plan.cost.total
            continue
        with pytest.raises(ho.HyparError, match=f"layer '{one.name}': tokens needs all tokens in"):
            write((row,))
        words = words_of((row,), plan.words)
        with pytest.raises(CheckFailedError, match=f"{one.name} may not take tokens at H1"):
            price_of(plan.model_copy(update={"parallelism": words}))


@pytest.mark.parametrize("levels", [(2,), (2, 3)])
def test_a_plan_is_read_back_in_the_layouts_by_token_that_it_states(
    levels: tuple[int, ...], tmp_path: Path
) -> None:
    asked: Asked = {"batch": 1, "hierarchy": levels, "whole_levels": True, "reading": "executed"}
    plan = ho.solve(CROSS, solver="data", **asked, choices=WITH_TOKENS)
    # Of a file that states none they are those that cost least.
    assert price_of(plan.model_copy(update={"layouts": None})) == plan.cost.total
    workload = Instance.of_plan(plan).workload
    by_token = {node: 3 for node in workload.tensor_writers if not workload.forbidden[node].any()}
    assert by_token
    stored = storing(plan, tuple(by_token for _ in levels))
    assert "token" in {layout for own in (stored.layouts or {}).values() for layout in own}
    ho.write_plan(stored, tmp_path / "plan.json")
    assert price_of(ho.read_plan(tmp_path / "plan.json")) == stored.cost.total


def test_a_tensor_without_tokens_takes_no_time_as_if_they_were_split() -> None:
    """Of one image the parts are unequal: a choice that splits no axis would seem faster."""
    array = load("h100-8")
    asked: Asked = {"array": array, "cost": "time", "batch": 1, "choices": TWO_AND_TOKENS}
    asked |= {"reading": "executed"}
    rng, write = Random(0), written(CROSS, "joint", **asked)
    for _ in range(12):
        plan = write(random_rows(rng, CROSS, asked))
        assert price_of(plan) == plan.cost.total


def test_what_no_plan_fits_is_refused_with_the_sizes_of_axes_that_a_layer_has() -> None:
    """The mean of all tokens has none to split."""
    asked: Asked = {"batch": 3, "levels": 1, "reading": "executed", "choices": TWO_AND_TOKENS}
    pins = {"even": True, "fix": ("mean=data",)}
    with pytest.raises(
        ho.HyparError, match=r"'mean' at H1; it has 3 images, 4 channels; in conflict"
    ):
        ho.solve(CROSS, **asked, constraints=pins)


def test_a_tensor_is_stored_by_token_only_where_it_has_tokens_and_the_problem_splits_them() -> None:
    asked: Asked = {"batch": 4, "levels": 1, "reading": "executed"}
    for choices, name, complaint in [
        (WITH_TOKENS, "mean", "layouts, mean: should have one of batch, channel, whole for each"),
        (WITH_TOKENS[:3], "q", "layouts, q: should have one of batch, channel, whole for each of"),
        (TWO_AND_TOKENS, "q", None),
    ]:
        plan = ho.solve(CROSS, choices=choices, **asked)
        layouts = {**(plan.layouts or {}), name: ("token",)}
        wrong = plan.model_copy(update={"layouts": layouts})
        if complaint is None:
            assert price_of(wrong) >= plan.cost.total
            continue
        with pytest.raises(CheckFailedError, match=complaint):
            price_of(wrong)
