"""Attention that splits the queries of a key-value head: charges, and what devices do of it."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.execution.index_labels import labels_of
from hypar_opt.execution.ties import Axis
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.configuration import Configuration
from hypar_opt.planning.priced import plan_of_configuration
from hypar_opt.sharding.passes import Phase
from hypar_opt.sharding.program import Program
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_QUERIES
from tests.execution.any_plan import drawn_plan, moved
from tests.slow import slow_after

WHOLE_TOO = (*WITH_QUERIES, "whole")

SMALL = ho.gpt(
    layers=1, hidden=16, heads=4, kv_heads=2, tokens=8, vocabulary=16, ffn=16, gated=True
)


@pytest.mark.parametrize("seed", slow_after(4, range(80)))
def test_any_plan_moves_what_is_charged_and_computes_what_one_device_does(seed: int) -> None:
    """Queries and key-value heads at any levels, keys and values whole or gathered."""
    rng = Random(seed)
    kv_heads, queries = rng.choice([(1, 4), (2, 4), (4, 2), (3, 6)])
    tokens = 24
    network = ho.gpt(
        layers=1,
        hidden=kv_heads * queries * 4,
        heads=kv_heads * queries,
        kv_heads=kv_heads,
        tokens=tokens,
        vocabulary=24,
        ffn=24,
        gated=rng.random() < 0.5,
        rotary=rng.random() < 0.5,
    )
    sizes = [(2,), (2, 2), (4,)] if kv_heads * queries < 18 else [(3,), (3, 2), (2, 3)]
    moved(network, drawn_plan(rng, network, WHOLE_TOO, sizes))


def test_every_way_of_keys_and_values_beside_queries() -> None:
    """By hand: what keys and values move in each way, between two parts; proj reads by channel.

    K and V are of 8 x 8 x batch elements, their weights of 16 x 8.
    """
    workload = workload_of(SMALL, 2, WHOLE_TOO, shared_tensors=True)
    names = [node.name for node in workload.nodes]
    k = 2 * 8 * 8  # elements of K; of the norm's output, twice as many
    weights = 16 * 8
    # The projection's weights, and its output on the way to attention, forward and back.
    ways = {"data": (2 * weights, 2 * k), "tokens": (2 * weights, 2 * k)}
    ways |= {"whole": (2 * weights, 0), "output": (0, 2 * k), "model": (0, 2 * k + 2 * k)}
    moved_by = {}
    for key, value in product(ways, repeat=2):
        chosen = {"attention": "queries", "proj": "model", "query": "output"}
        chosen |= {"key": key, "value": value, "gate": "output", "up": "output", "down": "model"}
        row = [
            words.index(chosen.get(name.removeprefix("decoder.0."), "data"))
            for name, words in zip(names, workload.words, strict=True)
        ]
        (moved_by[key, value],) = moved(SMALL, Program(workload, [row], Hierarchy((2,))))
    least = moved_by["whole", "whole"]
    for (key, value), total in moved_by.items():
        extra = 0
        for way in (key, value):
            own, other = ways[way], ways["whole"]
            extra += sum(own) - sum(other)
            # Of the norm, which is stored by batch, `whole` and `output` read all.
            read = {
                "whole": 2 * 2 * k,
                "output": 2 * 2 * k,
                "data": 0,
                "tokens": 2 * k,
                "model": 2 * k,
            }
            extra += read[way] - read["whole"]
        assert total - least == 4 * extra, (key, value)


@pytest.mark.parametrize("words", [("heads", "queries"), ("queries", "heads")])
def test_each_part_has_as_many_heads_with_their_keys(words: tuple[str, str]) -> None:
    """One head of four, and the key-value head that it reads."""
    workload = workload_of(SMALL, 4, WHOLE_TOO, shared_tensors=True)
    names = [node.name for node in workload.nodes]
    rows = []
    for word in words:
        kept = "output" if word == "heads" else "whole"
        chosen = {"query": "output", "key": kept, "value": kept, "attention": word}
        rows.append(
            [
                own.index(chosen.get(name.removeprefix("decoder.0."), "data"))
                for name, own in zip(names, workload.words, strict=True)
            ]
        )
    program = Program(workload, rows, Hierarchy((2, 2)))
    labels = labels_of(SMALL, program).of
    query, key = (
        labels[Axis(names.index(f"decoder.0.{name}") - workload.shared)]
        for name in ("query", "key")
    )
    heads, of_keys = query.reshape(2, 2, 4), key.reshape(2, 4)
    assert sorted(heads[..., 0].flat) == [0, 1, 2, 3]
    assert (heads == heads[..., :1]).all()
    level = words.index("heads")
    digit = program.hierarchy.digit
    assert (digit(of_keys, 1 - level) == 0).all()
    assert (digit(heads, level) == digit(of_keys, level)[:, :1, None]).all()


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_replicas_of_key_value_heads_add_up_their_gradients(tp: int) -> None:
    """Of two heads over 8 parts: each head's gradient is all-reduced between its four replicas."""
    network = ho.gpt(
        layers=1, hidden=32, heads=8, kv_heads=2, tokens=16, vocabulary=16, ffn=16, gated=True
    )
    problem = problem_of(network, hierarchy=(2,) * 3, batch=8)
    own = Configuration(dp_shard=8 // tp, tp=tp)
    plan = plan_of_configuration(network, problem, own)
    result = ho.run(plan)
    assert result.agrees
    weights, replicas = 32 * 2 * 4, max(1, tp // 2)
    words = [plan.parallelism[level][plan.layers.index("decoder.0.key")] for level in range(3)]
    assert words.count("whole") == {2: 0, 4: 1, 8: 2}[tp]
    gradients = [
        row
        for row in result.exchanges
        if row.phase == Phase.GRADIENT and row.layer == "decoder.0.key"
    ]
    # Parts that have the same shard: replicas and those of data parallelism.
    alike = replicas * (8 // tp)
    assert sum(row.counted for row in gradients) == 4 * 2 * (alike - 1) * weights


def test_optima_are_those_of_brute_force_and_take_queries_where_heads_are_few() -> None:
    """Of one sequence, whose only key-value head no level can split evenly."""
    layers: list[dict[str, Any]] = [
        {"name": name, "kind": "fc", "units": units, "inputs": ["input"]}
        for name, units in (("q", 32), ("k", 8), ("v", 8))
    ]
    attention = {"name": "attention", "kind": "attention", "heads": 4, "kv_heads": 1}
    layers += [attention | {"inputs": ["q", "k", "v"]}, {"name": "proj", "kind": "fc", "units": 32}]
    network = ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "one key-value head",
            "input": {"tokens": 4, "features": 32},
            "layer": layers,
        }
    )
    asked: dict[str, Any] = {"batch": 1, "levels": 1, "constraints": {"even": True}}
    costs = {
        (choices, solver): ho.solve(network, solver=solver, choices=choices, **asked).cost.total
        for choices in (WITH_QUERIES, WITH_QUERIES[:-1])
        for solver in ("dp", "brute")
    }
    for choices in (WITH_QUERIES, WITH_QUERIES[:-1]):
        assert costs[choices, "dp"] == costs[choices, "brute"]
    assert costs[WITH_QUERIES, "dp"] < costs[WITH_QUERIES[:-1], "dp"]
