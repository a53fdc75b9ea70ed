"""Shards inside the nodes, named by the word instead of by levels."""

from __future__ import annotations

from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.hardware.arrays import load
from tests.cli.shell import command

GPT = "gpt:layers=2,hidden=64,heads=4,tokens=32,vocabulary=128"


def of_nodes(nodes: int, per_node: int) -> ho.Array:
    described = load("h100-8").description()
    topology = described["topology"] | {"nodes": nodes, "per_node": per_node}
    return ho.Array.model_validate({**described, "topology": topology})


@pytest.mark.parametrize(
    ("nodes", "per_node", "inside"),
    [(1, 8, "H1-H3"), (8, 8, "H4-H6"), (12, 8, "H4-H6"), (3, 4, "H2-H3"), (6, 9, "H3-H4")],
)
def test_a_word_names_the_levels_inside_the_nodes(nodes: int, per_node: int, inside: str) -> None:
    """In a plan, in a step and in a count of memory; its levels are the prime factors of both."""
    array, batch = of_nodes(nodes, per_node), nodes * per_node
    asked: dict[str, Any] = {"batch": batch, "array": array, "solver": "data"}
    above = "state+weights" if nodes > 1 else "weights"
    by_word, by_level = (
        ho.solve(GPT, **asked, shard=shard, recompute="none", micro_batches=1)
        for shard in ("state+weights@node", f"{above}@{inside}")
    )
    if nodes > 1:
        assert by_word.training == by_level.training
    assert by_word.cost == by_level.cost
    plain = ho.solve(GPT, **asked)
    for shard in ("weights@{}", "decoder.*=weights@{},*=state"):
        named, stated = shard.format("node"), shard.format(inside)
        assert ho.simulate(plain, shard=named).seconds == ho.simulate(plain, shard=stated).seconds
        assert ho.memory(plain, shard=named).total == ho.memory(plain, shard=stated).total


def test_levels_that_others_lie_between_have_no_word() -> None:
    array = load("a100-4x8")
    assert array.inside_nodes() == [3, 4, 5]
    assert array.inside_nodes((4, 2, 3, 1, 0)) == []
    assert load("tpu-v4-8").inside_nodes() == []
    assert load("gb200-nvl72").inside_nodes() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("array", "said"),
    [
        ("tpu-v4-8", "@node needs an array of nodes of several accelerators"),
        (of_nodes(4, 1), "@node needs an array of nodes of several accelerators"),
    ],
)
def test_an_array_without_nodes_has_no_such_levels(array: Any, said: str) -> None:
    plan = ho.solve(GPT, batch=8, array=array, solver="data")
    for refused in (
        lambda: ho.solve(GPT, batch=8, array=array, solver="data", shard="weights@node"),
        lambda: ho.simulate(plan, shard="weights@node"),
        lambda: ho.memory(plan, shard="weights@node"),
    ):
        with pytest.raises(HyparError, match=said):
            refused()
    with pytest.raises(HyparError, match="inside the nodes of an array, as weights@node"):
        ho.solve(GPT, batch=8, levels=3, solver="data", shard="weights@node")


def test_the_command_line_has_the_word(tmp_path: Any) -> None:
    call = ["memory", GPT, "--array", "h100-8x8", "--batch", "64", "--solver", "data"]
    call += ["--micro-batches", "1", "--recompute", "none", "--shard"]
    by_word, by_level = (
        command([*call, own], tmp_path) for own in ("weights@node", "weights@H4-H6")
    )
    assert by_word.status == 0, by_word.errors
    assert by_word.output == by_level.output
