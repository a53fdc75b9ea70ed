"""300 random plans whose sums take addends move what is charged, and compute as one device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from math import prod
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.sharding.layouts import PARTIAL
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from tests.choices import WITH_ADDENDS
from tests.execution.drawn import charged, drawn_network, run_as_one_device
from tests.execution.drawn_plans import program_of_addends, sums
from tests.slow import slow_after
from tests.strategies.written_plans import storing, written

SIZES = ((2,), (3,), (4,), (2, 2), (2, 3), (3, 2), (2, 2, 2))
PARTS = 100


def programs(part: int) -> Iterator[tuple[int, ho.Network, Program]]:
    """Yield plans in which a sum takes what a layer leaves, every third of an uneven batch."""
    for seed in count(part, PARTS):
        rng = Random(seed)
        network = sums(rng, 2) if seed % 5 else drawn_network(seed)
        sizes = rng.choice(SIZES)
        batch = prod(sizes) * rng.randint(1, 2) + (rng.randrange(prod(sizes)) if seed % 3 else 0)
        choices = [own for own in WITH_ADDENDS if own != "tokens" or has_tokens(network)]
        of: dict[str, Any] = {"batch": batch, "joined": seed % 2 > 0}
        program = program_of_addends(rng, network, sizes, choices, **of)
        if any(PARTIAL in stored for stored in program.stored):
            yield seed, network, program


def has_tokens(network: ho.Network) -> bool:
    return any(maps.output.tokens for maps in network.maps())


@pytest.mark.parametrize("part", slow_after(1, range(PARTS)))
def test_addends_are_reduced_once_and_as_charged(part: int) -> None:
    """By steps, cost model, proofs, and on devices."""
    for seed, network, program in islice(programs(part), 3):
        workload, reading = program.workload, "joined" if program.joined else "executed"
        moved = [0] * program.hierarchy.levels
        for exchange in exchanges_of_step(program):
            moved[exchange.level] += 4 * exchange.elements
        assert charged(program, reading) == moved, seed
        asked: dict[str, Any] = {"batch": workload.batch, "hierarchy": program.hierarchy.sizes}
        asked |= {"choices": workload.choices, "reading": reading, "whole_levels": True}
        plan = written(network, "joint", **asked)(
            tuple(tuple(row[workload.shared :]) for row in program.rows)
        )
        tensors = [{node: row[node] for node in workload.tensor_writers} for row in program.rows]
        assert price_of(storing(plan, tensors)) == sum(moved), seed
        with suppress(RefusedError):  # channels of a shuffle that change sides
            run_as_one_device(network, program, seed)
