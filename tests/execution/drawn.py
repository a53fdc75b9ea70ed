"""Random networks of every kind of layer and random plans of them, from a seed alone."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.execution.result import TOLERANCE, largest_difference
from hypar_opt.execution.run import Compared, run_program, step_data, whole_batch
from hypar_opt.execution.virtual.division import Division
from hypar_opt.execution.virtual.norm_groups import norm_groups
from hypar_opt.execution.virtual.step import TrainingStep
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.passes import TRAINING
from hypar_opt.sharding.program import Program
from hypar_opt.sharding.weights import shared_weights
from hypar_opt.step.states import states_from_rows
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import Workload, workload_of
from tests.strategies.drawn_networks import _Drawing

HALVES = ((2,), (2, 2), (2, 2, 2))


class SeededDrawing(_Drawing):
    """The networks of `tests.strategies.drawn_networks`, drawn without Hypothesis, fast."""

    def __init__(self, seed: int) -> None:
        super().__init__(lambda strategy: None)  # type: ignore[arg-type]
        self.random = random.Random(seed)

    def number(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def yes(self) -> bool:
        return self.random.random() < 0.5

    def of(self, options: Sequence[Any]) -> Any:
        return self.random.choice(options)

    def tables(self) -> dict[str, Any]:
        return {"layer": self.layers} | ({"block": self.blocks} if self.blocks else {})


def drawn_network(seed: int, most_steps: int = 5) -> ho.Network:
    with np.errstate(all="ignore"):
        drawn = SeededDrawing(seed).network(most_steps)
    return ho.Network.model_validate(drawn.description)


def drawn_programs(
    network: ho.Network,
    seed: int,
    count: int,
    hierarchies: Sequence[tuple[int, ...]] = HALVES,
    *,
    uneven: bool = False,
    choices: Sequence[str] = CHOICES,
) -> Iterator[Program]:
    """Yield random plans on the devices of hierarchies.

    Parameters
    ----------
    uneven
        Whether devices may have unequal numbers of images.
    """
    rng = random.Random(seed)
    for _ in range(count):
        sizes = rng.choice(hierarchies)
        batch = prod(sizes) * rng.randint(1, 2) + (rng.randrange(prod(sizes)) if uneven else 0)
        workload = workload_of(network, batch, choices, shared_tensors=True)
        yield Program(workload, [random_row(rng, workload) for _ in sizes], Hierarchy(sizes))


def random_row(rng: random.Random, workload: Workload) -> list[int]:
    """Return any choices of all nodes at a level, but whole ones that need a reason."""
    row = []
    for choices in workload.choices_of_nodes:
        own = [n for n, choice in enumerate(choices) if choice and not choice.last_resort]
        row.append(rng.choice(own))
    return with_shared_weights(workload, row)


def with_shared_weights(workload: Workload, row: list[int]) -> list[int]:
    """Return choices in which shared weights are stored as their users leave them."""
    stored = shared_weights(workload, row)
    return [stored.get(node, choice) for node, choice in enumerate(row)]


def run_as_one_device(network: ho.Network, program: Program, seed: int = 0) -> Compared:
    """Run a program, and assert that its bytes and numbers are those modelled and of one device."""
    compared = run_program(network, program, seed=seed)
    case = seed, program.rows
    assert [row for row in compared.exchanges if row.modelled != row.counted] == [], case
    assert compared.values <= TOLERANCE, case
    assert compared.gradients is not None
    if compared.gradients > TOLERANCE:
        assert compared.gradients <= 10 * rounding(network, program, seed), case
    assert compared.loss == pytest.approx(compared.reference_loss, rel=1e-9, abs=1e-9), case
    return compared


def rounding(network: ho.Network, program: Program, seed: int) -> float:
    """What the last bits of the weights change in one device's gradients, relatively.

    A norm of values that are nearly equal multiplies it by orders of magnitude.
    """
    whole = Program(whole_batch(network, program), (), Hierarchy(()))
    alone = Division(network, whole, norm_groups(Division(network, program)))
    data, signs = step_data(network, program, seed), np.random.default_rng(seed)
    bit = np.finfo(float).eps
    near = {n: w * (1 + bit * signs.choice((-1, 1), w.shape)) for n, w in data.weights.items()}
    one, other = (
        {**record.gradients, **{(n,): own for n, own in record.bias_gradients.items()}}
        for given in (data, replace(data, weights=near))
        for record in [TrainingStep(alone, given, TRAINING, lambda done, total: None).run()]
    )
    return largest_difference((own[0], [(own[0], other[n][0])]) for n, own in one.items())


def charged(program: Program, reading: str) -> list[Fraction]:
    """Return the bytes that the cost model charges at each level."""
    workload = program.workload
    cost = CommunicationCost(reading, sizes=program.hierarchy.sizes)
    states = states_from_rows(program.rows, len(workload.nodes))
    nodes, boundaries = np.arange(len(workload.nodes)), np.arange(len(workload.ends))
    ends = ([block[:, own] for block in states] for own in workload.ends.T)
    levels = zip(
        cost.node(workload, nodes, states), cost.edge(workload, boundaries, *ends), strict=True
    )
    return [
        Fraction(
            sum(
                int(np.broadcast_to(own, over.shape).sum())
                for own, over in zip(both, (nodes, boundaries), strict=True)
            ),
            cost.resolution,
        )
        for both in levels
    ]
