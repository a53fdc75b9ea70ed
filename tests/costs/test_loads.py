"""Mixtures without a capacity: even loads are exact shares, and counts have a fullest device."""

from __future__ import annotations

import itertools
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.proofs.check.operations import SplitAxis, padded_axes
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.step.uneven import SplitLoads, padded_sizes
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.parallelism import CHOICES
from tests.hardware.cubes import cubes
from tests.slow import slow_after
from tests.strategies.mixtures import eight_groups, mixture, smallest, with_load

ASKED: dict[str, Any] = {"batch": 8, "choices": CHOICES, "search": "joint"}


def counts_of(rng: Random, experts: int, top_k: int, tokens: int = 40) -> list[int]:
    """Count the experts of random tokens, which prefer some."""
    liked = [rng.random() ** 3 + 0.01 for _ in range(experts)]
    counts = [0] * experts
    for _ in range(tokens):
        drawn = sorted(range(experts), key=lambda n: rng.random() ** (1 / liked[n]))[-top_k:]
        for expert in drawn:
            counts[expert] += 1
    return counts


def ring(accelerators: int) -> ho.Array:
    """Accelerators between two of which a byte takes a nanosecond each way."""
    link = {"bandwidth": "1 GB/s", "latency": "0 s"}
    data = cubes(kind="ring", accelerators=accelerators, link=link)
    return validate(ho.Array, data | {"collective": "pairwise"})


def skewed(network: ho.Network, seed: int) -> ho.Network:
    router = next(layer for layer in network.layers if layer.kind == "router")
    sizes: dict[str, Any] = router.model_dump(include={"experts", "top_k"})
    return with_load(network, counts_of(Random(seed), **sizes))


@pytest.mark.parametrize("sizes", [(2,), (2, 2), (4, 2), (3, 2)])
def test_the_fullest_part_is_that_of_the_device_with_most_tokens(sizes: tuple[int, ...]) -> None:
    """Each token's device is that of its expert, of which devices have consecutive ones."""
    rng, hierarchy = Random(str(sizes)), Hierarchy(sizes)
    for state in itertools.product(range(2), repeat=len(sizes)):
        parts = hierarchy.parts(level for level, choice in enumerate(state) if choice)
        experts = parts * rng.randint(1, 4)
        counts = counts_of(rng, experts, min(2, experts))
        of_device = [0] * parts
        for expert, tokens in enumerate(counts):
            of_device[expert * parts // experts] += tokens
        axes, loads = np.array([[5 * parts], [experts]]), np.array([[0], [1]])
        states = [np.array(state)[:, None]]
        *_, (size, longest) = padded_sizes(
            axes, states, hierarchy, loads=SplitLoads((tuple(counts),), loads)
        )
        expected = Fraction(max(of_device) * parts, sum(counts))
        assert Fraction(int(longest[0]), int(size[0])) == expected
        derived = padded_axes([SplitAxis(1, experts, tuple(counts))], state, sizes)
        assert {Fraction(most, of) for of, most in derived} in ({expected}, set())
        assert derived or expected == 1


@pytest.mark.parametrize("cost", ["bytes", "time"])
def test_an_even_load_is_a_capacity_of_an_equal_share_where_that_is_whole(cost: str) -> None:
    described, asked = eight_groups().description(), {**ASKED, "array": ring(4), "cost": cost}
    router = next(layer for layer in described["layer"] if layer["kind"] == "router")
    router |= {"top_k": 2, "group": 4, "capacity_factor": 1.0}
    network = ho.Network.model_validate(described)
    plans = [ho.solve(own, **asked) for own in (network, with_load(network, "even"))]
    steps = [ho.simulate(plan) for plan in plans]
    memories = [ho.memory(plan) for plan in plans]
    assert plans[0].cost == plans[1].cost
    assert plans[0].parallelism == plans[1].parallelism
    assert steps[0].seconds == steps[1].seconds
    assert memories[0].total == memories[1].total


def test_all_choices_of_all_tokens_are_dispatched_whatever_their_number() -> None:
    """Of 160 experts six: a group of 64 has 2.4 tokens of each, and a capacity of 3."""
    described = smallest().description()
    described["input"]["tokens"] = 4096
    router = described["layer"][0]
    router |= {"experts": 160, "top_k": 6, "group": 64}
    padded = ho.Network.model_validate(described)
    whole = with_load(padded, "even")
    slots = [[*own.maps()][1].output.elements for own in (padded, whole)]
    assert slots == [160 * 64 * 3 * 16, 6 * 4096 * 16]
    plans = [
        ho.solve(own, hierarchy=(2,), whole_levels=True, **ASKED | {"batch": 2})
        for own in (padded, whole)
    ]
    macs = [ho.Workload.of_network(own, 2).layers[2].macs for own in (padded, whole)]
    assert macs == [2 * 160 * 64 * 3 * 16 * 24, 2 * 6 * 4096 * 16 * 24]
    assert plans[1].cost.total <= plans[0].cost.total


PINS = (
    *(f"{name}=experts" for name in ("up", "by", "gated", "down")),
    *(f"{name}=data" for name in ("router", "dispatch", "combine", "sum", "head", "loss")),
)


@pytest.mark.parametrize(
    ("counts", "share"),
    [
        ([5, 1, 1, 5, 1, 1, 1, 1], Fraction(12, 16)),
        ([0, 3, 3, 0, 1, 4, 4, 1], Fraction(10, 16)),
        ([2] * 8, Fraction(1, 2)),
    ],
)
def test_a_step_waits_for_the_fullest_device(counts: list[int], share: Fraction) -> None:
    """It takes longer by what the fullest of two receives, sends back, reads and writes."""
    network = eight_groups(1)
    names = [layer.name for layer in network.layers]
    array, pins = ring(2), [pin for pin in PINS if pin.partition("=")[0] in names]
    asked = ASKED | {"array": array, "cost": "time", "constraints": {"fix": pins}}
    even, loaded = (ho.solve(with_load(network, load), **asked) for load in ("even", counts))
    assert even.parallelism == loaded.parallelism
    router = next(layer for layer in network.layers if layer.kind == "router")
    choices = ASKED["batch"] * 16 * int(router.model_dump()["top_k"])
    sizes = {"up": (8, 12), "by": (8, 12), "gated": (12, 12, 12), "down": (12, 8)}
    # Each device has half of what is dispatched, and sends half of that, forward and backward.
    exchanged = 2 * 2 * 4 * choices * 8 * share / 2 / 10**9
    words = choices * share * sum(sum(own) for name, own in sizes.items() if name in names)
    computed = 3 * 4 * words / (320 * 10**9)
    assert array.accelerator.macs_per_second(1, 1) > 10**10  # so that kernels wait for memory
    steps = [ho.simulate(plan) for plan in (even, loaded)]
    waited = (exchanged + computed) * (share - Fraction(1, 2)) / share
    assert steps[1].seconds - steps[0].seconds == pytest.approx(float(waited), rel=1e-9, abs=1e-18)
    assert steps[1].seconds * per_second(loaded) == pytest.approx(float(loaded.cost.total))
    most = steps[1].experts
    if share > Fraction(1, 2):
        assert most is not None
        assert (most.parts, most.tokens) == (2, float(2 * share))
        assert most.mean_bytes == sum(level.bytes for level in steps[1].levels) / 2
        more = 2 * 2 * 4 * choices * 8 * (share - Fraction(1, 2)) / 2
        assert most.bytes - most.mean_bytes == more
    assert (most is None) == (share == Fraction(1, 2))
    assert steps[0].experts is None
    # In all devices together the same moves, and the same is computed.
    assert loaded.cost.executed_bytes == even.cost.executed_bytes


def test_memory_is_that_of_the_device_with_most_tokens() -> None:
    """What experts save, of tokens and of their slots, is by load; their weights are not."""
    network, counts = eight_groups(1), [5, 1, 1, 1, 1, 1, 4, 2]
    names = [layer.name for layer in network.layers]
    pins = [pin for pin in PINS if pin.partition("=")[0] in names]
    asked = ASKED | {"hierarchy": (2, 2), "constraints": {"fix": pins}}
    even, loaded = (ho.solve(with_load(network, load), **asked) for load in ("even", counts))
    memories = [ho.memory(plan).layers for plan in (even, loaded)]
    logits = 4 * ASKED["batch"] * 16 * 8 // 4  # which combining saves beside slots, by image
    for before, after in zip(*memories, strict=True):
        assert (before.weights, before.gradients) == (after.weights, after.gradients)
        kept = {"combine": logits}.get(before.layer, 0)
        by_load = before.layer in ("up", "by", "gated", "down", "combine")
        more = Fraction(6 * 4, 16) if by_load else 1
        assert after.saved - kept == (before.saved - kept) * more


@pytest.mark.parametrize("seeds", slow_after(1, [range(1), range(1, 12)]))
def test_search_simulator_and_proof_agree_where_loads_differ(seeds: range) -> None:
    for seed in seeds:
        network = skewed(mixture(seed), seed)
        asked = ASKED | {"array": ring(4), "cost": "time"}
        best = ho.solve(network, **asked)
        ho.check_certificate(best, ho.certify(best))
        names = [layer.name for layer in network.layers if layer.kind == "experts"]
        pins = [f"{name}=experts" for name in names]
        plan = ho.solve(network, **asked, constraints={"fix": pins})
        assert price_of(plan) == plan.cost.total >= best.cost.total
        step = ho.simulate(plan)
        assert step.seconds * per_second(plan) == pytest.approx(float(plan.cost.total))
        assert step.closed_form == pytest.approx(step.seconds, rel=1e-12)


def test_the_optimum_of_a_load_is_that_of_exhaustion() -> None:
    network = skewed(smallest(), 3)
    asked = ASKED | {"array": ring(2), "cost": "time"}
    totals = {ho.solve(network, **asked, solver=own).cost.total for own in ("brute", None)}
    assert len(totals) == 1


def test_what_has_no_fullest_part_is_refused() -> None:
    network = skewed(eight_groups(1), 1)
    plan, router = ho.solve(network, batch=8, levels=2), "layer 'router', load: what experts"
    for run in (
        lambda: ho.run(plan),
        lambda: ho.run(plan, scale_down=True),
        lambda: ho.export(plan, to="jax"),
    ):
        with pytest.raises(ho.HyparError, match=f"{router} .* capacity_factor = 8 / 2 in place"):
            run()
    dispatch = "layer 'dispatch': its router's load: "
    mean = f"{dispatch}on the array hmc-htree-4 each part takes as long as the mean; should be"
    with pytest.raises(ho.HyparError, match=mean):
        ho.simulate(plan, "hmc-htree-4")
    with pytest.raises(ho.HyparError, match=mean):
        ho.solve(network, batch=8, array="hmc-htree-4", cost="time")
    for load in (network, with_load(network, "even")):
        with pytest.raises(ho.HyparError, match=f"{dispatch}.* need parts of H1 that are equal"):
            ho.solve(load, batch=8, array="a100-h100-2x8")
    even = ho.solve(with_load(network, "even"), batch=8, array="hmc-htree-4", cost="time")
    assert ho.simulate(even).seconds > 0
