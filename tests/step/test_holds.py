"""What is held in states and by plans, against every accelerator's own elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from random import Random

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.device_load import DeviceLoad
from hypar_opt.execution.virtual.division import Division
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.layouts import is_split
from hypar_opt.sharding.program import Program
from hypar_opt.step.holds import Hold, HoldArrays, WeightBytes, step_holds
from hypar_opt.step.states import states_from_rows
from hypar_opt.workload.layer_tensors import Extent
from hypar_opt.workload.operators.axes import BATCH, REPLICATING
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.recomputation import repeats_of, with_repeats
from hypar_opt.workload.tensors import workload_of
from tests.execution.drawn import drawn_network, drawn_programs
from tests.slow import slow_after

HIERARCHIES = ((2,), (3, 2), (2, 3), (2, 2, 2))
SHARDS = ("none", "state", "gradients", "weights", "weights@H2-H{}", "state+weights@H2-H{}")


def drawn_steps(seed: int) -> Iterator[tuple[ho.Network, Program, HoldArrays]]:
    """Random plans of a random network, and what their steps hold."""
    rng, network = Random(seed), drawn_network(seed)
    for program in drawn_programs(network, seed, 3, HIERARCHIES, uneven=True):
        levels, once = len(program.rows), program.workload
        shard = rng.choice(SHARDS[: 4 if levels == 1 else None]).format(levels)
        again = rng.choice(["none", "selective", "full"])
        fused = Fused(attention=rng.random() < 0.5)
        workload = with_repeats(once, repeats_of(network, once, 1, again, shard, fused=fused))
        trained = replace(program, workload=workload)
        weight_bytes = WeightBytes.of(2, "adam")
        yield (
            network,
            trained,
            step_holds(network, workload, program.hierarchy, 2, weight_bytes, fused),
        )


def axes_of(program: Program, hold: Hold) -> list[int]:
    """Which axis of a tensor each level splits: -1 for none, and -2 for replicas of weights."""
    node = program.workload.nodes[hold.node]
    if hold.tensor in ("errors", "logits"):
        stored = program.stored[hold.node]
        return [Extent.axis(layout) if is_split(layout) else -1 for layout in stored]
    weight = [axis for axis in node.operator.axes.weight if axis in node.sizes]
    choices = program.workload.choices_of_nodes[hold.node]
    split = [choice.axis if (choice := choices[row[hold.node]]) else BATCH for row in program.rows]
    return [
        weight.index(axis) if axis in weight else -2 if axis in REPLICATING else -1
        for axis in split
    ]


def part(size: int, parts: Sequence[int], digits: Sequence[int]) -> int:
    """The elements of one of the parts into which levels divide so many, one after the other."""
    number, count = 0, prod(parts)
    for n_parts, digit in zip(parts, digits, strict=True):
        number = number * n_parts + digit
    return size // count + (number < size % count)


def of_accelerators(program: Program, hold: Hold) -> list[int]:
    """The elements of a tensor on every accelerator, each with its part of every axis."""
    hierarchy, axes = program.hierarchy, axes_of(program, hold)
    levels, amounts = range(hierarchy.levels), []
    for accelerator in range(hierarchy.accelerators):

        def of(size: int, those: list[int], accelerator: int = accelerator) -> int:
            digits = [hierarchy.digit(accelerator, level) for level in those]
            return part(size, [hierarchy.sizes[level] for level in those], digits)

        elements = prod(
            of(size, [n for n in levels if axes[n] == axis]) for axis, size in enumerate(hold.sizes)
        )
        for first in hold.shards:
            shared = [n for n in levels if axes[n] == -2 and n >= first]
            if not hold.gathered:
                elements = of(elements, shared)
        several = [any(axes[n] == -2 and n >= first for n in levels) for first in hold.shards]
        amounts.append(elements * sum(several) if hold.gathered else elements)
    return amounts


@pytest.mark.parametrize("seed", slow_after(10, range(200)))
def test_all_accelerators_hold_what_states_do_and_the_fullest_what_a_plan_does(seed: int) -> None:
    for _, program, step in drawn_steps(seed):
        nodes = np.arange(len(step.holds))
        rows = np.array(program.rows)[:, step.nodes]
        by_state = step.in_states(nodes, states_from_rows(rows.tolist(), len(nodes)))
        (largest,) = step.largest([program]).tolist()
        for hold, together, fullest in zip(step.holds, by_state.tolist(), largest, strict=True):
            if hold.tensor in ("weights", "gradients", "state", "gathered", "errors", "logits"):
                amounts = of_accelerators(program, hold)
                assert (sum(amounts), hold.bytes * max(amounts)) == (together, fullest)
            elif not hold.halo:
                assert hold.bytes * together <= fullest * program.hierarchy.accelerators


@pytest.mark.parametrize("seed", slow_after(20, range(200)))
def test_states_hold_the_weights_that_the_devices_of_a_run_keep(seed: int) -> None:
    network = drawn_network(seed)
    for program in drawn_programs(network, seed, 2):
        weight_bytes, hierarchy = WeightBytes.of(4, "sgd"), program.hierarchy
        step = step_holds(network, program.workload, hierarchy, 4, weight_bytes, Fused())
        weights = HoldArrays(step.of("weights"), len(program.workload.choices), hierarchy)
        rows = np.array(program.rows)[:, weights.nodes].tolist()
        amounts = weights.in_states(
            np.arange(len(weights.nodes)), states_from_rows(rows, len(weights.nodes))
        )
        division, devices = Division(network, program), range(hierarchy.accelerators)
        kept = {
            node: sum(prod(map(len, division.stored(n, device))) for device in devices)
            for n in range(len(network.layers))
            if (node := division.weight_node(n)) is not None
        }
        assert kept == dict(zip(weights.nodes.tolist(), amounts.tolist(), strict=True))


def test_a_step_may_hold_nothing() -> None:
    """As one that trains only pools whose inputs nobody keeps: each node then holds no byte."""
    network = ho.load("lenet-c")
    workload = workload_of(network, 4)
    hierarchy, nodes = Hierarchy((2,)), len(workload.nodes)
    load = DeviceLoad((), workload, hierarchy)
    assert load.at(np.array([2, 1], object)[:, None]).tolist() == [0] * nodes
    assert len(load.node_keys) == nodes
    program = Program(workload, [[0] * nodes], hierarchy)
    assert HoldArrays((), len(workload.choices), hierarchy).largest([program]).tolist() == [[]]
