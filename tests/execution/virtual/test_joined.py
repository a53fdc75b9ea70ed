"""Random plans whose all-to-alls cross several levels at once, on devices: values and bytes."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from math import prod

import pytest

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.tensors import workload_of
from tests.choices import WITH_TOKENS
from tests.execution.drawn import charged, drawn_network, random_row, run_as_one_device
from tests.execution.drawn_plans import graph
from tests.slow import slow_after
from tests.strategies.mixtures import mixture

HIERARCHIES = ((2, 2), (2, 3), (3, 2), (2, 2, 2), (4, 2), (2, 2, 3))
PLANS_A_PART = 25


def joined_steps(program: Program) -> int:
    steps = map(program.input_steps, range(len(program.workload.boundaries)))
    return sum(len(step.levels) > 1 for own in steps for step in own)


def drawn(rng: random.Random, seed: int) -> tuple[ho.Network, Program]:
    """Return a plan with a joined all-to-all; every third batch is not divided evenly."""
    while True:
        sizes = rng.choice(HIERARCHIES)
        network = drawn_network(rng.randrange(10_000))
        if rng.random() < 0.6:
            network = graph(rng, rng.choice([1, 2, 3, 4]))
        if rng.random() < 0.2:
            network = mixture(rng.randrange(10_000))
        batch = prod(sizes) * rng.randint(1, 2) + (seed % 3 == 0) * rng.randrange(prod(sizes))
        workload = workload_of(network, batch, WITH_TOKENS, shared_tensors=True)
        rows = [random_row(rng, workload) for _ in sizes]
        program = Program(workload, rows, Hierarchy(sizes), joined=True)
        if joined_steps(program):
            return network, program


@pytest.mark.parametrize("part", slow_after(1, range(40)))
def test_joined_all_to_alls_move_what_is_charged(part: int) -> None:
    """By level: by steps, cost model, and on devices. Never more than level by level."""
    rng, ran = random.Random(part), 0
    for seed in range(PLANS_A_PART):
        network, program = drawn(rng, seed)
        moved, one_by_one = (by_level(own) for own in (program, replace(program, joined=False)))
        assert moved == charged(program, "joined")
        assert sum(moved) <= sum(one_by_one)
        # Channels that are tied to others may be in other parts than modelled; a mixture may have
        # fewer groups of tokens than parts that split them.
        with suppress(RefusedError):
            run_as_one_device(network, program, seed)
            ran += 1
    assert ran >= PLANS_A_PART // 3


def by_level(program: Program) -> list[int]:
    moved = [0] * len(program.rows)
    for exchange in exchanges_of_step(program):
        moved[exchange.level] += 4 * exchange.elements
    return moved
