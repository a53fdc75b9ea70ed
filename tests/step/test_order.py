"""The exchanges of a plan are the steps that convert and reduce its tensors, in their order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.frozen import FrozenDict
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.conversions import Step, StepKind, backward
from hypar_opt.sharding.passes import TRAINING, Phase
from hypar_opt.sharding.program import Program
from hypar_opt.step.operations import Collective
from hypar_opt.step.order import PlanExchanges, exchanges_of_step, in_pass
from hypar_opt.step.readings import READINGS
from hypar_opt.step.rules import rules_of
from hypar_opt.workload.layer_tensors import Extent
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.repeats import Repeats
from hypar_opt.workload.shards import shards_of
from tests.execution.drawn import drawn_network, drawn_programs
from tests.slow import slow_after

SIZES = ((2,), (2, 2), (3, 2), (2, 2, 2), (2, 3, 2))
UNMOVED = (StepKind.SLICE, StepKind.PAD)


def programs(seed: int) -> Iterable[Program]:
    network = drawn_network(seed)
    for program in drawn_programs(network, seed, 2, SIZES, uneven=seed % 2 > 0):
        yield from (program, replace(program, joined=True))


def moving(steps: Sequence[Step]) -> list[tuple[StepKind, int]]:
    """Return the kind of each step, and each level that it crosses, topmost first."""
    return [(step.kind, n) for step in steps if step.kind not in UNMOVED for n in step.levels]


def places(exchanges: Iterable[Collective], *tensors: str) -> list[tuple[StepKind | None, int]]:
    return [(exchange.kind, exchange.level) for exchange in exchanges if exchange.tensor in tensors]


@pytest.mark.parametrize("seed", slow_after(15, range(30)))
def test_a_conversion_and_its_error_move_step_by_step(seed: int) -> None:
    """As `hypar_opt.sharding.conversions` orders them: duals in reverse on the way back."""
    for program in programs(seed):
        exchanges = exchanges_of_step(program)
        for number, extent in enumerate(program.workload.extents):
            steps = program.input_steps(number)
            ways = {Phase.FORWARD: steps, Phase.BACKWARD: backward(steps)}
            for phase, expected in ways.items():
                moved = in_pass(exchanges.boundaries[number], phase)
                has_error = program.workload.has_error[number]
                if phase is Phase.BACKWARD and not has_error:
                    expected = ()
                # Of an axis of one index nothing moves.
                kept = [step for step in expected if len(step.levels) > 1 or step.moved(extent)]
                assert places(moved, "input") == moving(kept)
                if not program.joined:
                    assert [move.elements for move in moved] == [
                        step.moved(extent) for step in kept
                    ]


@pytest.mark.parametrize("seed", slow_after(15, range(30)))
def test_partial_sums_are_scattered_before_the_pool_and_their_errors_gathered(seed: int) -> None:
    """As many elements as the steps from a node's output to how it is stored, in their order."""
    for program in programs(seed):
        workload, exchanges = program.workload, exchanges_of_step(program)
        for node, (of_node, output) in enumerate(
            zip(exchanges.nodes, workload.outputs, strict=True)
        ):
            steps = program.output_steps(node)
            for phase, expected in ((Phase.FORWARD, steps), (Phase.BACKWARD, backward(steps))):
                moved = [
                    exchange for exchange in in_pass(of_node, phase) if exchange.tensor == "output"
                ]
                assert places(moved, "output") == moving(expected)
                elements = [step.moved(Extent(output)) for step in expected]
                assert [exchange.elements for exchange in moved] == [
                    count for count in elements if count
                ]
            gradients = [exchange for exchange in of_node if exchange.tensor == "gradient"]
            reduced = program.gradient_steps(node) if workload.stored[node] else ()
            assert places(gradients, "gradient") == moving(reduced)
            stored = Extent(workload.stored[node])
            assert [exchange.elements for exchange in gradients] == [
                step.moved(stored) for step in reduced
            ]


@pytest.mark.parametrize(
    "word", ["state", "gradients", "weights", "weights@H2", "gradients@H2", "state+weights@H2"]
)
def test_halves_of_gradients_are_exchanged_as_often_as_shards_need_them(word: str) -> None:
    """ZeRO: scattered in each micro-batch, and weights gathered by each use of them, or once."""
    micro_batches, reduced, shards = 3, 2, shards_of(word)
    network = ho.gpt(layers=1, hidden=8, heads=2, tokens=4, vocabulary=12)  # of tied weights
    (program,) = drawn_programs(network, 1, 1, ((2, 2),))
    program = replace(program, rows=[[0] * len(program.workload.nodes)] * 2)
    workload, expected = program.workload, Counter[tuple[Phase, str, int, int]]()
    for exchange in exchanges_of_step(program):
        assert (exchange.phase, exchange.kind) == (Phase.GRADIENT, StepKind.ALL_REDUCE)
        split, half = shards.at(exchange.level), exchange.elements // 2
        scattered = micro_batches if split in ("gradients", "weights") else 1
        expected[exchange.phase, "gradient", exchange.node, exchange.level] += (
            reduced * scattered * half
        )
        if split == "none":
            expected[exchange.phase, "gradient", exchange.node, exchange.level] *= 2
        elif split != "weights":
            expected[exchange.phase, "weights", exchange.node, exchange.level] += half
        else:
            for user in workload.weight_users.get(exchange.node, (exchange.node,)):
                for phase in (Phase.FORWARD, Phase.BACKWARD):
                    expected[phase, "weights", user, exchange.level] += micro_batches * half
    sharded = FrozenDict({n: shards for n, stored in enumerate(workload.stored) if stored})
    repeats = Repeats(micro_batches, sharded, reduced=reduced)
    moved = Counter[tuple[Phase, str, int, int]]()
    for exchange in exchanges_of_step(replace(program, workload=with_repeats(workload, repeats))):
        moved[exchange.phase, exchange.tensor, exchange.node, exchange.level] += exchange.elements
    assert moved == expected
    assert len(workload.weight_users) == 1


def test_a_plan_exchanges_what_its_rules_yield() -> None:
    """In the readings of the paper, too, whose errors of inputs a run does not reduce."""
    network = ho.load("lenet-c")
    workload = ho.Workload.of_network(network, 8)
    rows = [[0, 1, 1, 0], [1, 1, 0, 1]]
    for reading in READINGS:
        rules = rules_of(workload, Hierarchy((2, 2)), reading, TRAINING)
        exchanges = PlanExchanges.of(rules, rows)
        states, (sources, targets) = np.array(rows), workload.ends.T
        operations = chain(
            rules.node(np.arange(4), [states]),
            rules.boundary(np.arange(3), [states[:, sources]], [states[:, targets]]),
        )
        yielded = sum(int(np.sum(operation.quarters)) for operation in operations)
        assert sum(exchange.quarters for exchange in exchanges) == yielded > 0
