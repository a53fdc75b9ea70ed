"""Sequences as an axis that is split: totals by hand, known optima, all plans of small graphs.

The totals of LLaMA and GPT-2 were found by another program, from the rules alone.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import InfeasibleError
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.plan.strategies import STRATEGIES, all_degrees, degrees, strategy_pins
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_TOKENS
from tests.execution.drawn_plans import graph
from tests.slow import slow_after


def of_tokens(name: str, tokens: int, **more: Any) -> ho.Network:
    """Return a network of the zoo for longer sequences."""
    document = ho.load(name).description()
    document["input"] |= {"tokens": tokens}
    for layer in document["layer"]:
        layer |= more.get(layer["name"], {})
    return ho.Network.model_validate(document)


@pytest.mark.parametrize(
    ("tokens", "sizes", "total"),
    [
        (4096, (2,), 86_178_430_976),
        # Context parallelism: all layers split sequences, and keys and values are gathered.
        (1_048_576, (2, 2, 2), 13_483_419_041_792),
    ],
)
def test_llamas_optima(tokens: int, sizes: tuple[int, ...], total: int) -> None:
    network = of_tokens("llama-70b", tokens)
    asked: Any = {"batch": 1, "hierarchy": sizes, "constraints": {"even": True}, "search": "joint"}
    assert ho.solve(network, choices=WITH_TOKENS, **asked).cost.total == total


LONG = "gpt:layers=12,hidden=768,heads=12,tokens=16384,vocabulary=50304"
"""GPT-2 of 16,384 tokens, whose words eight parts divide."""


@pytest.mark.parametrize(
    ("levels", "joined", "executed"),
    [
        (1, 2_523_574_272, 2_523_574_272),
        (2, 6_136_270_848, 6_438_260_736),
        (3, 11_335_028_736, 11_637_018_624),
    ],
)
def test_gpt_2s_optima_for_long_sequences(levels: int, joined: int, executed: int) -> None:
    """Positions are split with the tokens that they are of; at three levels queries are, too.

    Twelve heads are in four parts at most: at a third level parts read keys and values whole,
    but of the queries, results of the same layer, their own alone.
    """
    asked: Any = {"batch": 1, "levels": levels, "choices": "all", "search": "joint"}
    asked["constraints"] = {"even": True}
    assert ho.solve(LONG, reading="joined", **asked).cost.total == joined
    assert ho.solve(LONG, reading="executed", **asked).cost.total == executed


def attention(
    kv_heads: int, heads: int = 8, tokens: int = 16, *, fused: bool = False
) -> ho.Network:
    features, keys = 2 * heads, 2 * kv_heads
    fc = {"kind": "fc", "inputs": ["token"]}
    units = {"q": features, "k": keys, "v": keys}
    units = {"qkv": sum(units.values())} if fused else units
    own = {"heads": heads, "kv_heads": kv_heads, "inputs": [*units]}
    return ho.Network.model_validate(
        {
            "schema": "hypar-opt/network/2",
            "name": "attention",
            "input": {"tokens": tokens, "vocabulary": 8},
            "layer": [
                {"name": "token", "kind": "embedding", "features": features},
                *({"name": name, "units": count, **fc} for name, count in units.items()),
                {"name": "attention", "kind": "attention", **own},
                {"name": "proj", "kind": "fc", "units": features},
            ],
        }
    )


@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("kv_heads", [1, 2, 8])
@pytest.mark.parametrize("fused", [False, True])
def test_context_parallelism_gathers_keys_and_values(
    kv_heads: int, parts: int, *, fused: bool
) -> None:
    """4 rho (n - 1) A elements, rho the heads of keys and values over those of queries.

    Ulysses exchanges queries, keys, values and the output: 4 (1 + rho) (n - 1) / n A, where there
    are heads for all parts. Queries, keys and values that one layer writes are three results.
    """
    network, batch = attention(kv_heads, fused=fused), 2
    asked: Any = {"batch": batch, "hierarchy": (parts,), "choices": WITH_TOKENS}
    weights = sum(workload_of(network, batch).stored)
    queries = batch * 16 * 16
    gathered = 4 * kv_heads * (parts - 1) * queries // 8

    def exchanged(strategy: str) -> float:
        fix = strategy_pins(network, (parts,), strategy, parts)
        plan = ho.solve(network, whole_levels=True, constraints={"fix": fix}, **asked)
        run = ho.run(plan)
        assert run.priced == run.modelled == run.counted
        assert run.agrees
        return plan.cost.total / 4 - 2 * weights * (parts - 1)

    assert exchanged("context") == gathered
    if kv_heads % parts == 0:
        assert exchanged("ulysses") == 4 * (8 + kv_heads) * (parts - 1) * queries // (8 * parts)


def has_tokens(network: ho.Network) -> bool:
    """Whether any layer may split sequences: batch norms of tokens do not."""
    lacks = workload_of(network, 1, WITH_TOKENS).forbidden[:, WITH_TOKENS.index("tokens")]
    return not bool(lacks.all())


@pytest.mark.parametrize("seed", slow_after(4, range(100)))
def test_searches_find_the_best_of_all_plans(seed: int) -> None:
    rng = random.Random(seed)
    network = attention(2, 4, 6)
    while len(network.layers) > 5 or not has_tokens(network):
        network = graph(rng, rng.choice([1, 2, 3]), most=2)
    sizes = rng.choice([(2,), (3,), (2, 2), (2, 3)])
    sizes = sizes if len(sizes) * len(network.layers) <= 9 else sizes[:1]
    choices = rng.choice([WITH_TOKENS, ("data", "model", "tokens")])
    asked: Any = {"batch": rng.choice([1, 2, 3, 6]), "hierarchy": sizes, "choices": choices}
    asked |= {"element_bytes": rng.choice([1, 2, 4]), "search": "joint"}
    asked["constraints"] = rng.choice([{}, {}, {"even": True}, {"runnable": True}])
    try:
        brute = ho.solve(network, solver="brute", **asked)
    except InfeasibleError:
        return
    for solver in ("dp", "ilp", "cpsat"):
        plan = ho.solve(network, solver=solver, **asked)
        assert (plan.cost.total, plan.parallelism) == (brute.cost.total, brute.parallelism)
    workload = workload_of(network, asked["batch"], plan.choices, shared_tensors=True)
    program = Program(workload, rows_of_plan(plan, workload), plan.hierarchy)
    moved = sum(exchange.elements for exchange in exchanges_of_step(program))
    assert moved * asked["element_bytes"] == plan.cost.total


OF_TOKENS = ("llama-7b", "llama-70b", "llama-3-8b", "gpt-j-6b", "mixtral-8x7b", "deepseek-moe-16b")
"""Those whose sequences may have any length."""


@pytest.mark.parametrize(
    ("batch", "tokens"),
    slow_after(3, [(1, 1024), (8, 16384), (64, 1024), (1, 16384), (8, 1024), (64, 16384)]),
)
def test_no_named_strategy_moves_fewer_bytes_than_the_optimum(batch: int, tokens: int) -> None:
    document = of_tokens("llama-7b", tokens).description()
    document["block"][0]["repeat"] = 2
    network = ho.Network.model_validate(document)
    asked: Any = {"batch": batch, "hierarchy": (2, 2), "choices": WITH_TOKENS}
    best = ho.solve(network, search="joint", **asked).cost.total
    for strategy in STRATEGIES:
        for degree in degrees(network, (2, 2)):
            fix = strategy_pins(network, (2, 2), strategy, degree)
            assert best <= ho.solve(network, constraints={"fix": fix}, **asked).cost.total


@pytest.mark.parametrize("seed", slow_after(1, range(300)))
def test_on_no_zoo_network_does_a_named_strategy_move_fewer_bytes(seed: int) -> None:
    """Each at batch 1 to 512; those of sequences of any length at 1 k to 128 k tokens."""
    rng = random.Random(seed)
    name = ho.networks[seed % len(ho.networks)]
    tokens = 1024 * 2 ** rng.randrange(8)
    network = of_tokens(name, tokens) if name in OF_TOKENS else ho.load(name)
    asked: Any = {"batch": 2 ** rng.randrange(10), "hierarchy": (2, 2), "choices": "all"}
    asked["reading"] = rng.choice(["executed", "joined"])
    best = ho.solve(network, search="joint", **asked).cost.total
    for strategy in STRATEGIES:
        for degree in all_degrees((2, 2)):
            fix = strategy_pins(network, (2, 2), strategy, degree)
            pinned = ho.solve(network, search="joint", constraints={"fix": fix}, **asked)
            assert best <= pinned.cost.total, (name, strategy, degree)


def test_a_part_of_a_sequence_takes_the_memory_of_a_part_of_the_batch() -> None:
    document = of_tokens("llama-7b", 8192).description()
    document["block"][0]["repeat"] = 1
    network = ho.Network.model_validate(document)
    context = strategy_pins(network, (2, 2, 2), "context", 8)
    whole, sharded = [], []
    for fix in (("*=data",), context):
        asked: Any = {"array": "h100-8", "batch": 8, "constraints": {"fix": fix}}
        plan = ho.solve(network, choices=WITH_TOKENS, overlap="none", **asked)
        whole.append(ho.memory(plan).categories)
        sharded.append(ho.memory(plan, shard="weights").categories)
    assert whole[0] == whole[1]
    assert sharded[0] == sharded[1] != whole[0]
