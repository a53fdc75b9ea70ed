"""Unequal parts of H1 receive shares of what equal parts do: what must hold for any operations."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.groups import GroupBytes
from hypar_opt.costs.state_charges import choices_by_level
from hypar_opt.instance.instance import Instance
from hypar_opt.integers import Integers
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import part_words, problem_of
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.operations import Collective
from hypar_opt.step.shares import Share, received
from hypar_opt.step.states import Indices
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import Workload
from tests.slow import slow_after
from tests.strategies.groups import GROUPS, of_counts
from tests.strategies.problems import random_network

SEEDS = slow_after(6, range(120))


class Case:
    """A random plan of a network on unequal parts of H1, two in every second.

    Parameters
    ----------
    parts_of_axes
        Whether every layer is in all parts, which divide its axes evenly.
    """

    def __init__(self, seed: int, *, parts_of_axes: bool = False) -> None:
        rng = Random(seed)
        counts = [*GROUPS]
        array = of_counts(rng.choice(counts[:2] if seed % 2 == 0 else counts[2:]))
        layers = seed % 3 and not parts_of_axes
        network = random_network(rng, 4) if layers else find_network("resnet-18")
        problem = problem_of(
            network,
            array=array,
            batch=24,
            choices=(*CHOICES, *part_words(array)),
            constraints={"runnable": False},
        )
        self.problem, self.instance = problem, Instance(network, problem)
        self.workload = self.instance.workload
        if rng.random() < 0.5:
            self.workload = self.sharded(rng.choice(["state", "gradients", "weights"]), 2)
        self.count = problem.hierarchy.sizes[0]
        cuts = sorted(rng.sample(range(1, 1000), self.count - 1))
        parts = tuple(b - a for a, b in zip([0, *cuts], [*cuts, 1000], strict=True))
        self.shares = Share.of_parts(parts)
        offered = choices_by_level(self.workload, problem.levels)
        if parts_of_axes:
            offered = [len(CHOICES)] * problem.levels
        self.rows: Indices = np.array(
            [
                [
                    rng.choice(np.flatnonzero(~forbidden[:of]).tolist())
                    for forbidden in self.workload.forbidden
                ]
                for of in offered
            ]
        )

    def sharded(self, shard: str, micro_batches: int = 1) -> Workload:
        update = {"micro_batches": micro_batches, "shard": shard}
        training = self.problem.training.model_copy(update=update)
        return self.instance.trained(training).workload

    def operations(self, *, unequal: bool = True) -> list[Collective]:
        cost = CommunicationCost.of_problem(self.problem, unequal=unequal)
        rules = cost.rules(self.workload, len(self.rows))
        ends = ([self.rows[:, end]] for end in self.workload.ends.T)
        of_nodes = rules.node(np.arange(len(self.workload.nodes)), [self.rows])
        return [*of_nodes, *rules.boundary(np.arange(len(self.workload.ends)), *ends)]

    def received(
        self, shares: tuple[Share, ...], *, by_longest_message: bool = False
    ) -> list[Integers]:
        """What each part receives of each operation: ``(parts, nodes or boundaries)``."""
        by_operation = received(
            self.operations(), shares, lambda _: 1, by_longest_message=by_longest_message
        )
        return [np.array([part.quarters for part in parts]) for parts in by_operation]


@pytest.mark.parametrize("seed", SEEDS)
def test_below_h1_all_parts_together_receive_what_equal_parts_do(seed: int) -> None:
    case = Case(seed)
    for operation, parts in zip(case.operations(), case.received(case.shares), strict=True):
        if operation.level:
            assert (abs(parts.sum(axis=0) - case.count * operation.quarters) <= case.count).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_all_parts_receive_forward_they_send_back(seed: int) -> None:
    """But of tensors without an error; and what is reduce-scattered is gathered again."""
    case = Case(seed)
    of_passes: dict[tuple[str, int], dict[Phase, Integers]] = {}
    has_error = case.workload.has_error
    for operation, parts in zip(case.operations(), case.received(case.shares), strict=True):
        if operation.tensor in ("output", "input") and not operation.level:
            moved = parts.sum(axis=0) * (has_error if operation.tensor == "input" else 1)
            passes = of_passes.setdefault((operation.tensor, operation.level), {})
            passes[operation.phase] = passes.get(operation.phase, 0) + moved
    for passes in of_passes.values():
        forward, backward = (passes[phase] for phase in (Phase.FORWARD, Phase.BACKWARD))
        assert (abs(forward - backward) <= 2 * case.count).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_between_two_parts_one_receives_back_what_the_other_did(seed: int) -> None:
    case = Case(2 * seed)
    of_passes: dict[str, dict[Phase, Integers]] = {}
    for operation, parts in zip(case.operations(), case.received(case.shares), strict=True):
        if operation.tensor in ("output", "input") and not operation.level:
            passes = of_passes.setdefault(operation.tensor, {})
            passes[operation.phase] = passes.get(operation.phase, 0) + parts
    assert case.count == 2
    for tensor, passes in of_passes.items():
        moves = case.workload.has_error if tensor == "input" else np.ones(1, bool)
        forward, backward = (passes[phase] * moves for phase in (Phase.FORWARD, Phase.BACKWARD))
        assert (abs(forward - backward[::-1]) <= 2).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_no_part_receives_more_than_the_longest_messages_of_all_rounds(seed: int) -> None:
    case = Case(seed)
    waits = case.received(case.shares, by_longest_message=True)
    for parts, longest in zip(case.received(case.shares), waits, strict=True):
        assert (parts.max(axis=0) <= longest.max(axis=0) + 1).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_shares_receive_as_much_as_equal_parts(seed: int) -> None:
    """Of axes that the parts divide evenly."""
    case = Case(2 * seed, parts_of_axes=True)
    equal = case.received(Share.of_parts((1,) * case.count))
    moved: dict[tuple[Phase, str, int], Integers] = {}
    for operation, parts in zip(case.operations(), equal, strict=True):
        assert (parts == parts[0]).all()
        key = operation.phase, operation.tensor, operation.level
        moved[key] = moved.get(key, 0) + parts[0]
    for operation in case.operations(unequal=False):
        moved[operation.phase, operation.tensor, operation.level] -= operation.quarters
    assert moved
    assert not any(left.any() for left in moved.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_until_h1_gathers_a_tensor_it_is_split_as_it_was_written(seed: int) -> None:
    """So is what levels below exchange of it."""
    case = Case(seed)
    layouts, (sources, targets) = case.workload.layouts, case.workload.ends.T
    read = layouts.inputs[case.workload.operand, case.rows[0, targets], targets]
    written = layouts.output[case.rows[0, sources], sources]
    is_split = (read == 0) & (written > 0)
    names = [layouts.names[number] for number in written[is_split]]
    for operation, parts in zip(case.operations(), case.received(case.shares), strict=True):
        if (operation.tensor, operation.kind) == ("input", StepKind.ALL_TO_ALL) and operation.level:
            for share, moved in zip(case.shares, parts[:, is_split], strict=True):
                has = [share.in_layout(name, share.parts)[share.part] for name in names]
                exact = case.count * operation.quarters[is_split] * np.array(has, int)
                assert (abs(moved * share.total - exact) <= share.total).all()


@pytest.mark.parametrize("seed", slow_after(3, [31, 45, *range(120)]))
def test_halves_of_a_reduction_are_charged_as_much_as_all_of_it(seed: int) -> None:
    """Shares of either are rounded, of both together once."""
    case = Case(seed)
    cost = replace(GroupBytes.of_groups(case.problem), parts=case.shares[0].parts)
    nodes = np.arange(len(case.workload.nodes))
    whole, halves = (
        cost.node(case.sharded(shard), nodes, [case.rows]) for shard in ("none", "state")
    )
    assert all((charges == of_whole).all() for charges, of_whole in zip(halves, whole, strict=True))
