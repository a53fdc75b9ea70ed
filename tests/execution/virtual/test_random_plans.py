"""2,000 random plans of random graphs move what the model says, and compute what one device does.

Every kind of layer, up to 2^3 devices, three choices; sizes are as they come, odd ones too.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random

import pytest

import hypar_opt as ho
from hypar_opt.errors import RefusedError
from hypar_opt.execution.virtual.checks import check_division
from hypar_opt.execution.virtual.division import Division
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.sharding.conversions import StepKind, even_axes
from hypar_opt.sharding.layouts import SHUFFLED, is_split
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.execution.drawn import (
    charged,
    drawn_network,
    drawn_programs,
    random_row,
    run_as_one_device,
)
from tests.slow import slow_after
from tests.strategies.written_plans import storing, written

HIERARCHIES = ((3,), (4,), (6,), (2, 3), (3, 2), (4, 2), (2, 2, 3))

PARTS = 40
PLANS_A_PART = 50
PLANS_A_NETWORK = 5


def programs(part: int) -> Iterator[tuple[int, ho.Network, Program]]:
    """Yield plans of networks that no other part draws."""
    for seed in itertools.count(part, PARTS):
        network = drawn_network(seed)
        for program in drawn_programs(network, seed, PLANS_A_NETWORK):
            yield seed, network, program


@pytest.mark.parametrize("seed", slow_after(10, range(200)))
def test_levels_of_other_sizes_move_what_is_charged(seed: int) -> None:
    """Levels of three, four and six parts: by steps, cost model, proofs, and on devices.

    Every other batch is not divided evenly.
    """
    network = drawn_network(seed)
    (program,) = drawn_programs(network, seed, 1, HIERARCHIES, uneven=seed % 2 > 0)
    workload = program.workload
    moved = 4 * sum(exchange.elements for exchange in exchanges_of_step(program))
    assert sum(charged(program, "executed")) == moved
    asked = {"batch": workload.batch, "hierarchy": program.hierarchy.sizes, "whole_levels": True}
    write = written(network, "joint", choices=CHOICES, reading="executed", **asked)
    plan = write(tuple(tuple(row[workload.shared :]) for row in program.rows))
    tensors = [{node: row[node] for node in workload.tensor_writers} for row in program.rows]
    assert price_of(storing(plan, tensors)) == moved
    # A split shuffle, or channels that are tied to others, may be in other parts than modelled.
    with suppress(RefusedError):
        result = run_as_one_device(network, program, seed)
        assert sum(row.counted for row in result.exchanges) == moved


@pytest.mark.parametrize("seed", slow_after(20, range(40)))
def test_a_level_of_four_reduces_and_gathers_what_two_of_two_do(seed: int) -> None:
    """All-to-alls, too, where they cross both at once: by themselves each moves a half.

    They do where the axes that they convert are divided evenly.
    """
    network = drawn_network(seed)
    (four,) = drawn_programs(network, seed, 1, ((4,),))

    def is_uneven(boundary: int | None) -> bool:
        if boundary is None:
            return False
        ends = four.stored[four.workload.boundaries[boundary].source], four.read_over(boundary)
        converted = {own for layouts in ends for own in layouts if is_split(own)}
        return not converted <= even_axes(four.workload.extents[boundary], 4)

    def moved(program: Program) -> dict[StepKind | None, int]:
        moved = Counter[StepKind | None]()
        for exchange in exchanges_of_step(program):
            if exchange.kind is not StepKind.ALL_TO_ALL or not is_uneven(exchange.boundary):
                moved[exchange.kind] += exchange.elements
        return dict(moved)

    two = {
        joined: Program(four.workload, [*four.rows, *four.rows], Hierarchy((2, 2)), joined=joined)
        for joined in (False, True)
    }
    once = moved(four)
    assert moved(two[True]) == once
    by_level = moved(two[False])
    exchanged = once.pop(StepKind.ALL_TO_ALL, 0)
    assert by_level.pop(StepKind.ALL_TO_ALL, 0) * 3 == exchanged * 4
    assert by_level == once


def test_few_plans_of_uneven_batches_are_refused() -> None:
    refused = []
    for seed in range(40):
        network = drawn_network(seed)
        (program,) = drawn_programs(network, seed, 1, HIERARCHIES, uneven=True)
        try:
            check_division(Division(network, program))
        except RefusedError as error:
            refused.append(error.message)
    assert all("channels" in message for message in refused)
    assert len(refused) < 12


@pytest.mark.parametrize("parts", [3, 4, 6])
def test_a_shuffle_of_as_many_groups_as_parts_moves_all_channels_but_one_in_each(
    parts: int,
) -> None:
    """Whatever its neighbours choose: no plan is refused, and none moves other bytes."""
    conv = {"kind": "conv", "filters": parts**2, "kernel": 1, "groups": parts}
    shuffle = {"name": "shuffle", "kind": "shuffle", "groups": parts}
    layers = [conv | {"name": "above"}, shuffle, conv | {"name": "below"}]
    given = {"channels": parts**2, "height": 1, "width": 1}
    schema = "hypar-opt/network/2"
    network = ho.Network.model_validate(
        {"schema": schema, "name": "shuffled", "input": given, "layer": layers}
    )
    workload, rng = workload_of(network, parts, CHOICES, shared_tensors=True), Random(parts)
    programs = [
        Program(workload, [random_row(rng, workload)], Hierarchy((parts,))) for _ in range(12)
    ]
    assert any(SHUFFLED in program.read[1] for program in programs)
    for program in programs:
        run_as_one_device(network, program)


@pytest.mark.parametrize("part", slow_after(1, range(PARTS)))
def test_bytes_are_those_counted_and_numbers_those_of_one_device(part: int) -> None:
    ran = refused = 0
    for seed, network, program in programs(part):
        try:
            run_as_one_device(network, program, seed)
        except RefusedError as error:
            # A split shuffle may happen to move another number of channels than the model has.
            if "change sides" not in error.message:
                raise
            refused += 1
            continue
        ran += 1
        if ran == PLANS_A_PART:
            break
    assert refused < PLANS_A_PART / 5
