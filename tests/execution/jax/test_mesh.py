"""The axes of exported meshes: names of the field, levels alike as one, and the plan's bytes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.execution.export import jax_module, jax_shardings, sharded_plan
from hypar_opt.execution.jax.mesh import mesh_axes
from hypar_opt.execution.shardings import shardings
from hypar_opt.plan.megatron import tensor_parallelism
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import CHOICES
from tests.choices import WITH_EXPERTS, WITH_TOKENS
from tests.execution.jax.steps import results
from tests.execution.jax.test_steps import assert_as_planned
from tests.execution.small_networks import cnn, gpt
from tests.slow import slow_after
from tests.strategies.mixtures import eight_groups

GPT, MIXTURE = gpt(tied=False), eight_groups(0)
SPLIT = tensor_parallelism(GPT) | {"up": "output", "down": "model", "head": "output"}
SPLIT |= {"wide": "output", "narrow": "model"}
"""Choices under tensor parallelism; other layers are split by token: sequence parallelism."""


def word(layer: Any, words: tuple[str | None, ...], degree: str) -> str:
    """Return a layer's choice where a degree of parallelism divides the accelerators."""
    if "ep" in degree and layer.kind == "experts":
        return "experts"
    wanted = {"cp": "tokens", "ep in cp": "tokens", "tp": SPLIT.get(layer.name, "tokens")}
    own = wanted.get(degree, "data")
    return own if own in words else "data"


def plan_of(network: Network, *degrees: str, **asked: Any) -> ho.Plan:
    """Return a plan whose levels, of two parts, are of data, tensor or other parallelism."""
    choices = WITH_EXPERTS if network is MIXTURE else WITH_TOKENS
    layers = [*zip(network.layers, network.words(choices), strict=True)]
    fix = tuple(
        f"{layer.name}@H{level}={word(layer, words, degree)}"
        for level, degree in enumerate(degrees, 1)
        for layer, words in layers
    )
    return ho.solve(
        network,
        **{"batch": 8, "choices": choices, "reading": "executed", "search": "joint", **asked},
        levels=len(degrees),
        constraints={"even": True, "fix": fix},
    )


def axes_of(plan: ho.Plan) -> dict[str, int]:
    """Return the axes of the mesh in a plan's module, and their sizes."""
    sharded = sharded_plan(plan)
    names = [axis.name for axis in sharded.axes]
    return dict(zip(names, sharded.hierarchy.sizes, strict=True))


PLANS: list[tuple[Network, tuple[str, ...], dict[str, int]]] = [
    (GPT, ("dp", "tp", "tp"), {"dp": 2, "tp": 4}),
    (GPT, ("cp", "cp"), {"cp": 4}),
    (MIXTURE, ("ep", "tp"), {"ep": 2, "tp": 2}),
    (GPT, ("dp", "dp", "dp"), {"dp": 8}),
    (GPT, ("dp", "cp", "tp"), {"dp": 2, "cp": 2, "tp": 2}),
    (GPT, ("dp", "tp", "dp"), {"dp1": 2, "tp": 2, "dp2": 2}),
    (GPT, ("tp", "tp"), {"tp": 4}),
    (MIXTURE, ("dp", "ep"), {"dp": 2, "ep": 2}),
    (MIXTURE, ("dp", "ep in cp"), {"dp": 2, "ep": 2}),
    (MIXTURE, ("cp", "tp"), {"cp": 2, "tp": 2}),
]


@pytest.mark.parametrize(("network", "degrees", "axes"), slow_after(3, PLANS))
def test_degrees_name_the_axes_and_the_step_moves_what_is_planned(
    network: Network, degrees: tuple[str, ...], axes: dict[str, int]
) -> None:
    """By the plan's levels and in all, with the numbers of one device.

    Experts are split at a level of data parallelism, or of context parallelism ("ep in cp").
    """
    plan = plan_of(network, *degrees)
    assert axes_of(plan) == axes
    sharded = sharded_plan(plan)
    (found,) = results([(sharded.network, sharded.by_level)])
    assert_as_planned(found, degrees)
    assert found["moved"] + Fraction(found["unused"]) == plan.cost.total


def test_other_names_of_axes_follow_from_the_plan() -> None:
    for network, degrees, axes in PLANS:
        assert axes_of(plan_of(network, *degrees)) == axes
    layer = {"kind": "conv", "filters": 4, "kernel": 3, "padding": 1}
    layers = [{"name": "one", **layer}, {"name": "two", **layer}]
    given = {"channels": 4, "height": 8, "width": 8}
    images = Network.model_validate({"name": "images", "input": given, "layer": layers})
    asked: dict[str, Any] = {"choices": (*CHOICES, "rows"), "reading": "executed"}
    for words, axes in {
        ("rows", "rows"): {"spatial": 4},
        ("data", "rows"): {"dp": 2, "spatial": 2},
    }.items():
        fix = tuple(f"*@H{level}={own}" for level, own in enumerate(words, 1))
        plan = ho.solve(images, batch=4, levels=2, constraints={"fix": fix}, **asked)
        assert axes_of(plan) == axes


def test_a_level_at_which_layers_differ_keeps_its_number() -> None:
    up = ("decoder.0.up@H2=output", "decoder.0.down@H2=model")
    others = tuple(
        f"{layer.name}@H{level}=data"
        for level in (1, 2)
        for layer in GPT.layers
        if level == 1 or layer.name not in ("decoder.0.up", "decoder.0.down")
    )
    asked: dict[str, Any] = {"batch": 8, "levels": 2, "choices": ("data", "model", "output")}
    plan = ho.solve(GPT, constraints={"fix": (*up, *others)}, **asked)
    assert axes_of(plan) == {"dp": 2, "h2": 2}
    for text in (jax_module(plan), jax_shardings(plan)):
        assert "h2 (H2, 2 parts): layers are split differently." in " ".join(text.split())
        assert 'LEVELS = ("dp", "h2")\n' in text
    assert "# decoder.0.up: dp data, h2 output" in jax_module(plan)
    # The document by name has an axis for each level, whose choices it states.
    assert shardings(plan)["mesh"] == {"h1": 2, "h2": 2}


@pytest.mark.parametrize(
    ("shard", "axes"),
    [
        ("none", {"dp": 8}),
        ("gradients", {"dp": 8}),
        ("weights", {"fsdp": 8}),
        ("weights@H2-H3", {"dp_replicate": 2, "fsdp": 4}),
        ("state+weights@H3", {"dp_replicate": 4, "fsdp": 2}),
        ("state@H2-H3", {"dp1": 2, "dp2": 4}),
    ],
)
def test_what_is_sharded_tells_axes_of_data_parallelism(shard: str, axes: dict[str, int]) -> None:
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "solver": "data"}
    plan = ho.solve(GPT, training={"shard": shard}, **asked)
    assert axes_of(plan) == axes
    if "fsdp" in axes:
        made: dict[str, Any] = {}
        exec(text := jax_shardings(plan), made)
        assert tuple(made["PARAMETERS"]["decoder.0.up"]) == (None, "fsdp")
        assert tuple(made["PARAMETERS"]["decoder.0.down"]) == ("fsdp", None)
        assert tuple(made["BIASES"]["decoder.0.qkv"]) == (None,)
        assert "Of sharded weights" in text


def test_shards_on_joined_levels_move_what_is_planned() -> None:
    asked: dict[str, Any] = {"batch": 16, "array": "h100-8", "solver": "data"}
    plan = ho.solve(GPT, training={"shard": "weights@H2-H3", "micro_batches": 2}, **asked)
    sharded = sharded_plan(plan)
    (found,) = results([(sharded.network, sharded.by_level)])
    assert_as_planned(found, plan)
    assert found["updated"] < 1e-5


def test_all_to_alls_one_by_one_keep_their_levels_in_the_step_alone() -> None:
    """One over both levels moves 3/4 of a tensor where two move all of it."""
    one_by_one, joined = (
        plan_of(MIXTURE, "ep", "ep", reading=reading) for reading in ("executed", "joined")
    )
    assert joined.cost.total < one_by_one.cost.total
    assert axes_of(joined) == {"ep": 4}
    assert axes_of(one_by_one) == {"ep1": 2, "ep2": 2}
    for plan in (one_by_one, joined):
        assert 'LEVELS = ("ep",)\nSIZES = (4,)\n' in jax_shardings(plan)
        sharded = sharded_plan(plan)
        (found,) = results([(sharded.network, sharded.by_level)])
        assert_as_planned(found, plan)
        assert found["moved"] + Fraction(found["unused"]) == plan.cost.total


def test_a_mesh_has_the_devices_of_the_plan_in_its_order() -> None:
    """Each axis joins levels that follow one another: no device changes its number."""
    for network in (GPT, cnn()):
        plan = ho.solve(network, batch=64, levels=4)
        program = sharded_plan(plan).by_level
        axes = mesh_axes(program)
        assert [level for axis in axes for level in axis.levels] == [*range(4)]
        assert len({axis.name for axis in axes}) == len(axes)
