"""Micro-batches, recomputation and shards run as modelled, and train as the whole batch at once."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import CHOICES, RECOMPUTED, SHARDED
from hypar_opt.workload.recomputation import recomputed, repeated
from hypar_opt.workload.repeats import Repeats
from hypar_opt.workload.tensors import workload_of
from tests.execution import small_networks
from tests.execution.drawn import drawn_network, drawn_programs, random_row, run_as_one_device

WAYS = [*product((1, 2, 3), RECOMPUTED, SHARDED)]
HIERARCHIES = ((2,), (2, 2), (3,), (2, 3))


def training(
    network: Network, program: Program, micro_batches: int, recompute: str, shard: str
) -> Program:
    """The same plan of a micro-batch, trained in some way."""
    again = recomputed(network, program.workload, recompute, fused=False)
    workload = repeated(program.workload, Repeats(micro_batches, shard, again))
    return Program(workload, program.rows, program.hierarchy)


@pytest.mark.parametrize("way", WAYS)
def test_random_plans_of_random_networks_train_as_on_one_device(way: tuple[int, str, str]) -> None:
    ran = 0
    for seed in range(WAYS.index(way), 400, 8 * len(WAYS)):
        network = drawn_network(seed)
        for program in drawn_programs(network, seed, 1, HIERARCHIES, uneven=seed % 2 == 1):
            try:
                run_as_one_device(network, training(network, program, *way), seed)
            except RefusedError:
                continue
            ran += 1
    assert ran


