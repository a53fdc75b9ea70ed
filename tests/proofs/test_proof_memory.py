"""The memory that a proof counts for a plan is the plan's, to the byte."""

from __future__ import annotations

from math import ceil
from random import Random

import pytest

from hypar_opt.costs.readings import READINGS
from hypar_opt.errors import CheckFailedError
from hypar_opt.plan.arguments import problem_of
from hypar_opt.proofs.reference.rows import price_of
from hypar_opt.workload.tensors import workload_of
from tests.strategies.plans import Asked
from tests.strategies.problems import memory, random_network
from tests.strategies.written_plans import written


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "3"])
@pytest.mark.parametrize("seed", range(10))
def test_a_plan_keeps_to_the_memory_that_it_takes_and_to_no_byte_less(
    seed: int, optimizer: str
) -> None:
    rng = Random(seed)
    network = random_network(rng, 4)
    levels, choices = rng.randint(0, 3), rng.choice([2, 3])
    rows = tuple(
        tuple(rng.randrange(choices) for _ in network.layers) for _ in range(levels)
    )  # fmt: skip
    asked: Asked = {
        "batch": rng.choice([1, 3, 8]),
        "levels": levels,
        "choices": ("data", "model", "output")[:choices],
        "reading": rng.choice(sorted(READINGS)) if choices == 2 else "executed",
        "element_bytes": rng.choice([1, 2, 4, 8]),
        "inference": rng.random() < 0.2,
    }
    limits = {"optimizer": optimizer}
    needed = ceil(
        memory(workload_of(network, asked["batch"]), problem_of(**asked, constraints=limits), rows)
    )
    enough, short = (
        written(network, "joint", **asked, constraints={**limits, "memory": bytes_})(rows)
        for bytes_ in (needed, needed - 1)
    )
    assert price_of(enough) == enough.cost.total
    with pytest.raises(
        CheckFailedError, match=f"the plan takes {needed:,} bytes of {needed - 1:,}"
    ):
        price_of(short)
