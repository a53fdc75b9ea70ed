"""Plans that split sequences, run: they move the bytes of the model, and compute the same."""

from __future__ import annotations

import random

import pytest

from hypar_opt.errors import RefusedError
from tests.choices import WITH_TOKENS
from tests.execution.drawn import drawn_network, drawn_programs, run_as_one_device
from tests.execution.drawn_plans import graph
from tests.slow import slow_after

SIZES = ((2,), (3,), (2, 2), (2, 3), (2, 2, 2))


@pytest.mark.parametrize("seed", slow_after(12, range(60)))
def test_sequences_in_parts_are_computed_as_one(seed: int) -> None:
    rng = random.Random(seed)
    ran = 0
    while ran < 4:
        network = drawn_network(rng.randrange(10**6))
        if rng.random() < 0.5:
            network = graph(rng, rng.choice([6, 8]), most=5)
        if not any(maps.output.tokens > 1 for maps in network.maps()):
            continue
        uneven, drawn = rng.random() < 0.3, rng.randrange(10**6)
        for program in drawn_programs(network, drawn, 2, SIZES, uneven=uneven, choices=WITH_TOKENS):
            try:
                run_as_one_device(network, program, seed)
                ran += 1
            except RefusedError as refused:  # a part without a token, or channels tied to others
                said = str(refused)
                if "should be at least" not in said and "tied to other" not in said:
                    raise
