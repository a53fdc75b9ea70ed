"""Batches in unequal parts in JAX: padded, with the numbers of the images that there are.

They move what devices in numpy move of as many images: by image as many times as much.
"""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from math import prod

import pytest

from hypar_opt.errors import HyparError
from hypar_opt.execution.jax.tensors import ShardedNetwork
from hypar_opt.execution.run import run_program
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.execution.jax.steps import results
from tests.execution.jax.test_steps import DRAWN, LEVELS, assert_as_planned
from tests.execution.small_networks import chain
from tests.execution.virtual.test_training import trained


def normed() -> Network:
    """Return a network with all that padding must be kept out of: statistics, biases, a loss."""
    conv = {"kind": "conv", "filters": 8, "kernel": 3, "padding": 1}
    layers = [
        {"name": "one", **conv},
        {"name": "norm", "kind": "norm", "norm": "batch", "activation": "tanh"},
        {"name": "two", **conv, "bias": True, "activation": "sigmoid"},
        {"name": "head", "kind": "fc", "units": 8},
        {"name": "loss", "kind": "output"},
    ]
    given = {"channels": 4, "height": 4, "width": 4}
    described = {"schema": "hypar-opt/network/2", "name": "n", "input": given, "layer": layers}
    return Network.model_validate(described)


def program_of(network: Network, batch: int, rows: list[str], *sizes: int) -> Program:
    """Return a program whose layers have choices by their first letters, level by level."""
    workload = workload_of(network, batch, CHOICES, shared_tensors=True)
    columns = [[[one[0] for one in CHOICES].index(letter) for letter in row] for row in rows]
    return Program(workload, columns, Hierarchy(sizes))


def assert_padded(programs: list[tuple[Network, Program]]) -> None:
    for (network, program), found in zip(programs, results(programs), strict=True):
        shown = network.description(), program.workload.batch, program.rows
        padding = ShardedNetwork.of(network, program).padding
        assert padding is not None
        assert_as_planned(found, shown)
        moved = found["moved"] + Fraction(found["unused"])
        of_as_many = run_program(network, padding.program).exchanges
        assert moved == sum(row.counted for row in of_as_many)
        rows = run_program(network, program).exchanges
        counted = sum(row.counted for row in rows)
        if found["unused"] == "0":
            assert Fraction(found["padding"]) == moved - counted
        if not program.joined:  # over levels that divide a batch of as many, and not that of fewer
            times = Fraction(padding.images.size, program.workload.batch)
            held = ("gradient", "weights")
            of_images = sum(row.counted for row in rows if row.tensor not in held)
            assert moved == counted + (times - 1) * of_images, shown


def test_a_batch_in_unequal_parts_has_the_numbers_of_its_images() -> None:
    """Two images that levels split in different layers, a remainder, micro-batches."""
    micro_batches = program_of(chain(), 3, ["dmod"], 2)
    assert_padded(
        [
            (normed(), program_of(normed(), 2, ["ddooo", "oodmd"], 2, 2)),
            (normed(), program_of(normed(), 5, ["dddmd", "ddodd"], 2, 2)),
            (chain(), trained(chain(), micro_batches, (2, "none", "weights"))),
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("drawn", sorted(DRAWN))
def test_random_batches_have_the_numbers_of_their_images(drawn: str, seed: int) -> None:
    rng = random.Random(seed)
    draw, plan = DRAWN[drawn]
    programs: list[tuple[Network, Program]] = []
    while len(programs) < 4:
        sizes = rng.choice(LEVELS["small"])
        assert sizes is not None
        network = draw(rng, prod(sizes))
        even = plan(rng, network, sizes)
        batch = rng.randint(1, 2 * prod(sizes))
        workload = workload_of(network, batch, even.workload.choices, shared_tensors=True)
        program = replace(even, workload=workload)
        try:
            padded = ShardedNetwork.of(network, program).padding is not None
        except HyparError:  # too few images, or channels that do not divide
            continue
        programs += [(network, program)] * padded
    assert_padded(programs)
