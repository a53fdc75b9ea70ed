"""Plans as steps in JAX: what XLA compiles moves what they say, and computes what numpy does."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial
from itertools import cycle, islice
from math import prod
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.execution.export import sharded_plan
from hypar_opt.execution.jax.module import module_text
from hypar_opt.execution.jax.tensors import ShardedNetwork
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.studies.virtual_run import JAX_TOLERANCE
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_EXPERTS, WITH_QUERIES, WITH_TOKENS
from tests.execution.drawn_images import image_program, images
from tests.execution.drawn_plans import (
    UNIT,
    alike_program,
    chain,
    equal_layers,
    graph,
    program_of_addends,
    random_program,
    sequences,
    sums,
)
from tests.execution.jax.steps import results
from tests.execution.small_networks import (
    SCHEMA,
    by_tokens,
    cnn,
    conditioned,
    decoder,
    enlarged,
    gpt,
    one_image,
    rearranged,
    translator,
)
from tests.execution.small_networks import chain as small_chain
from tests.slow import slow_after
from tests.strategies.mixtures import eight_groups, mixture

NETWORKS = {
    "tied GPT": gpt(tied=True, norm="rms"),
    "GPT": gpt(tied=False),
    "CNN": cnn(),
    "chain": small_chain(),
}


def assert_as_planned(found: dict[str, Any], shown: object) -> None:
    assert found["differences"] == [], shown
    assert found.get("loss", 0) < JAX_TOLERANCE, shown
    tolerance = max(JAX_TOLERANCE, 10 * found.get("rounding", 0))
    assert found.get("gradients", 0) < tolerance, shown
    assert found.get("alone", 0) < JAX_TOLERANCE, shown


def assert_moves_its_price(plan: ho.Plan) -> None:
    sharded = sharded_plan(plan)
    (found,) = results([(sharded.network, sharded.program)])
    assert_as_planned(found, plan)
    assert found["moved"] + Fraction(found["unused"]) == plan.cost.total


@pytest.mark.parametrize(
    ("name", "sizes", "batch"),
    slow_after(
        2,
        [
            (name, *levels)
            for name in NETWORKS
            for levels in (((4, 2), 8), ((2, 2), 64), ((2, 2, 2), 8), ((2,), 8))
        ],
    ),
)
def test_optima_move_what_is_planned(name: str, sizes: tuple[int, ...], batch: int) -> None:
    """In bytes by level and kind, which add up to the plan's price."""
    asked: dict[str, Any] = {"choices": CHOICES, "reading": "executed", "search": "joint"}
    asked["constraints"] = {"even": True}
    plan = ho.solve(NETWORKS[name], hierarchy=sizes, whole_levels=True, batch=batch, **asked)
    assert plan.cost.total == plan.cost.executed_bytes
    assert_moves_its_price(plan)


def test_further_inputs_and_rearranged_images_move_what_is_planned() -> None:
    plans = [
        ho.solve(network, levels=2, batch=8, choices=CHOICES, constraints={"even": True})
        for network in (translator(), conditioned(), enlarged())
    ]
    fix = [
        f"{name}=model"
        for name in ("image@H1", "larger@H1", "deeper@H2", "half", "again", "last@H2")
    ]
    asked: Any = {"constraints": {"even": True, "fix": fix}, "choices": CHOICES}
    plans.append(ho.solve(rearranged(), levels=2, batch=8, **asked))
    sharded = [sharded_plan(plan) for plan in plans]
    for plan, one in zip(plans, results([(s.network, s.program) for s in sharded]), strict=True):
        assert_as_planned(one, plan)


def test_slots_of_experts_are_exchanged_over_three_levels_at_once() -> None:
    """7/8 of a tensor moves where level by level 3/2 would."""
    asked: dict[str, Any] = {"levels": 3, "batch": 8, "choices": CHOICES, "search": "joint"}
    joined, one_by_one = (
        ho.solve(mixture(3), reading=reading, constraints={"even": True}, **asked)
        for reading in ("joined", "executed")
    )
    assert joined.cost.total < one_by_one.cost.total
    assert_moves_its_price(joined)


@pytest.mark.parametrize(
    ("network", "batch", "sizes"),
    slow_after(
        2,
        [
            (gpt(tied=True), 1, (2, 2)),
            (decoder(unit=6), 6, (3,)),
            (gpt(tied=True), 4, (2, 2)),
        ],
    ),
)
def test_attention_by_tokens_moves_what_is_planned(
    network: Network, batch: int, sizes: tuple[int, ...]
) -> None:
    """Of a fused query, key and value all is read, and a part's own queries are cut out.

    One sequence has no batch to split, not even between a reduce-scatter and an all-gather.
    """
    assert_moves_its_price(by_tokens(network, batch, *sizes))


def below_heads(sizes: tuple[int, ...], *, fused: bool, pins: tuple[str, ...]) -> ho.Plan:
    """Return a plan whose attention has fewer key-value heads than parts, two of 8 queries."""
    layers: list[dict[str, Any]] = [
        {"name": name, "kind": "fc", "units": units, "inputs": ["input"]}
        for name, units in (("q", 32), ("k", 8), ("v", 8))
    ]
    if fused:
        layers = [{"name": "qkv", "kind": "fc", "units": 48}]
    own = {"name": "attention", "kind": "attention", "heads": 8, "kv_heads": 2, "causal": True}
    own |= {} if fused else {"inputs": ["q", "k", "v"], "rotary": {}}
    network = Network.model_validate(
        {
            "schema": SCHEMA,
            "name": "few keys",
            "input": {"tokens": 8, "features": 16},
            "layer": [*layers, own, {"name": "proj", "kind": "fc", "units": 16}],
        }
    )
    return ho.solve(
        network,
        batch=2,
        hierarchy=sizes,
        choices=WITH_QUERIES,
        constraints={"fix": pins, "even": True},
        search="joint",
    )


@pytest.mark.parametrize(
    ("fused", "pins"),
    slow_after(1, [(False, ("k@H1=output", "k@H2=whole", "v=output")), (True, ("qkv=output",))]),
)
def test_queries_below_key_value_heads_move_what_is_planned(
    fused: bool, pins: tuple[str, ...]
) -> None:
    """One projection is replicated, the other one gathered; of fused ones keys and values are."""
    attention = ("attention@H1=heads", "attention@H2=queries", "proj=model")
    plan = below_heads((2, 2), fused=fused, pins=(*pins, *attention))
    assert_moves_its_price(plan)


def test_queries_that_jax_cannot_split_below_heads_are_refused_by_name() -> None:
    plan = below_heads(
        (2, 2), fused=False, pins=("attention@H1=queries", "attention@H2=heads", "k=output")
    )
    with pytest.raises(HyparError, match="'attention': its queries can be split in JAX below lev"):
        sharded_plan(plan)


def test_each_part_of_a_causal_sequence_sees_as_many_tokens() -> None:
    """Of both of its ends, as time is counted; without a causal mask parts are in order."""
    sharded = sharded_plan(by_tokens(gpt(tied=True), 4, 2, 2))
    tokens = sharded.tokens(0)
    parts = [tokens.order[place].reshape(-1) for place in np.ndindex(tokens.shape[:-1])]
    assert [part.sum() for part in parts] == [7 * len(part) / 2 for part in parts]
    assert sorted(np.concatenate(parts)) == [*range(8)]
    assert not sharded_plan(by_tokens(decoder(unit=6), 6, 3)).tokens(0).mirrored


@pytest.mark.parametrize(
    ("sizes", "reading"),
    slow_after(
        1, [((2, 2, 2), "joined"), ((2, 2), "executed"), ((4, 2), "joined"), ((3,), "executed")]
    ),
)
def test_one_image_in_parts_moves_what_is_planned(sizes: tuple[int, ...], reading: str) -> None:
    """Its average is an addend, of which there is no batch to scatter to."""
    assert_moves_its_price(one_image(*sizes, reading=reading))


def test_tokens_that_a_level_cannot_split_are_refused_by_name() -> None:
    workload = workload_of(gpt(tied=False), 3, WITH_TOKENS, shared_tensors=True)
    row = [WITH_TOKENS.index("tokens")] * len(workload.nodes)
    refusal = "layer 'token', tokens: its size 8 should be divisible by 3, since H1 splits it"
    with pytest.raises(ho.HyparError, match=refusal):
        ShardedNetwork.of(gpt(tied=False), Program(workload, [row], Hierarchy((3,))))


def mixtures(rng: random.Random, unit: int) -> Network:
    """Return experts whose tokens, experts and features a level can split."""
    del unit
    return eight_groups(rng.randrange(1000))


def in_parts(rng: random.Random, network: Network, sizes: tuple[int, ...]) -> Program:
    """Return a program that splits rows and columns, by joined all-to-alls or one by one."""
    return image_program(rng, network, unit_of(prod(sizes)), sizes, joined=rng.random() < 0.5)


def unit_of(parts: int) -> int:
    """Return a size that levels of so many parts can split, together or one by one."""
    return 8 if parts % 3 else 12


Draw = tuple[Callable[[random.Random, int], Network], Callable[..., Program]]
DRAWN: dict[str, Draw] = {
    "chains": (chain, random_program),
    "graphs": (graph, random_program),
    "equal layers": (equal_layers, alike_program),
    "sequences": (sequences, partial(random_program, choices=WITH_TOKENS)),
    "equal sequences": (sequences, partial(alike_program, choices=WITH_TOKENS)),
    "mixtures": (lambda rng, _: mixture(rng.randrange(1000)), random_program),
    "experts": (mixtures, partial(random_program, choices=WITH_EXPERTS)),
    "joined experts": (mixtures, partial(random_program, choices=WITH_EXPERTS, joined=True)),
    "joined": (sequences, partial(random_program, choices=WITH_TOKENS, joined=True)),
    "images": (lambda rng, parts: images(rng, unit_of(parts), most=4), in_parts),
    "addends": (sums, partial(program_of_addends, joined=True)),
    "equal joined": (sequences, partial(alike_program, choices=WITH_TOKENS, joined=True)),
}


LEVELS: dict[str, tuple[tuple[int, ...] | None, ...]] = {
    "of halves": (None,),
    "of parts": ((3,), (4,), (6,), (2, 3), (3, 2), (4, 2), (2, 2, 3)),
    "small": ((2,), (3,), (2, 2), (2, 3)),
    "few": ((2,), (2, 2), (2,)),
    "of images": ((2,), (2, 4), (2, 2), (2, 3), (4,), (2, 2, 2), (3,)),
    "of several": ((2, 2), (2, 3), (2, 2, 2)),
}
"""Levels of random plans; None is one to three of halves."""


PLANS: list[tuple[str, str, Iterable[int], int, int]] = [
    ("chains", "of halves", range(8), 4, 25),
    ("graphs", "of halves", (5, 6), 2, 6),
    ("equal layers", "of halves", range(20), 3, 10),
    ("chains", "of parts", range(8), 3, 7),
    # Seed 2 draws a scale before a batch norm, whose gradient is a sum of what cancels.
    ("graphs", "of parts", (0, 1, 4, 5), 0, 7),
    ("equal layers", "of parts", range(8), 0, 7),
    ("sequences", "small", range(6), 2, 10),
    ("equal sequences", "small", range(6), 2, 10),
    ("mixtures", "few", range(8), 2, 6),
    ("experts", "few", range(8), 2, 8),
    ("joined experts", "few", range(8), 2, 8),
    ("joined", "of several", range(8), 2, 4),
    # Seed 2 draws a scale before a norm, too.
    ("images", "of images", (0, 1, *range(3, 9)), 4, 7),
    ("addends", "small", (0,), 2, 0),
    ("addends", "of several", range(10), 0, 6),
    ("equal joined", "of several", range(6), 0, 6),
    ("sequences", "of halves", range(4), 0, 10),
    ("sequences", "of parts", range(4), 0, 7),
]
"""What is drawn, levels, seeds, and plans: of the first seed in quick tests, of each in all."""


@pytest.mark.parametrize(
    ("drawn", "levels", "seed", "count"),
    [
        *((drawn, levels, min(seeds), few) for drawn, levels, seeds, few, _ in PLANS if few),
        *slow_after(
            0, [(*kind, seed, many) for *kind, seeds, _, many in PLANS if many for seed in seeds]
        ),
    ],
)
def test_random_plans_move_what_is_planned(drawn: str, levels: str, seed: int, count: int) -> None:
    """Bytes at every level and of every kind; of every fourth plan gradients, too.

    XLA merges exchanges that are alike in all, such as those of one error that a sum hands on to
    all that it reads: the module gives them different shapes. It drops the errors that no weights
    need, which a plan counts: those of layers before the first weights.
    """
    rng = random.Random(seed)
    draw, plan = DRAWN[drawn]
    stated = list(islice(cycle(LEVELS[levels]), count))
    networks = [draw(rng, prod(sizes) if sizes else UNIT) for sizes in stated]
    programs = [
        (network, plan(rng, network, sizes or (2,) * rng.randint(1, 3)))
        for network, sizes in zip(networks, stated, strict=True)
    ]
    ran = 0
    for (network, program), found in zip(programs, results(programs, compared=4), strict=True):
        if "refused" in found:
            continue
        ran += 1
        assert_as_planned(found, (network.description(), program.rows))
        assert drawn != "chains" or found["unused"] == "0"
    assert ran >= count * 2 / 3


@pytest.mark.parametrize("seed", slow_after(3, range(6)))
def test_only_what_may_be_equal_has_a_number_of_its_own(seed: int) -> None:
    """A chain needs none, nor does a step on one device; no number appears twice."""
    transformer = gpt(tied=True, blocks=2)
    assert numbers(small_chain(), seed) == []
    assert numbers(transformer, seed)
    for network in (transformer, equal_layers(random.Random(seed))):
        found = numbers(network, seed)
        assert len(set(found)) == len(found)
        assert numbers(network, seed, alone=True) == []


def test_no_index_of_the_topmost_level_is_above_a_number() -> None:
    """Or it would multiply by more than 1."""
    for sizes in ((2, 2), (4, 2)):
        assert min(map(int, numbers(gpt(tied=True), 0, sizes))) == sizes[0] - 1


def numbers(
    network: Network, seed: int, sizes: tuple[int, ...] = (2, 2, 2), *, alone: bool = False
) -> list[str]:
    program = alike_program(random.Random(seed), network, sizes)
    text = module_text(ShardedNetwork.of(network, program), title="", alone=alone)
    return re.findall(r"apart\(.*?, (\d+)\)", text[text.index("def loss") :])
