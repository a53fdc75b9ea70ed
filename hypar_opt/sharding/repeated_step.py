"""The exchanges of a whole step: a micro-batch's as often as training repeats them, and shards'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING

from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import TRAINING, Phase
from hypar_opt.sharding.repetitions import exchanges_of
from hypar_opt.workload.repeats import ZERO_STAGES

if TYPE_CHECKING:
    from hypar_opt.sharding.program import Exchange, Program


def exchanges_of_step(program: Program, phases: Sequence[Phase] = TRAINING) -> Iterator[Exchange]:
    """Yield every exchange of a step, with the elements of all its repetitions.

    Feature maps and errors move in every micro-batch; feature maps twice where the backward pass
    runs their layer again. Gradients are all-reduced once; where data parallelism shards anything,
    the halves of that all-reduce are exchanges of their own, as often as the shards need them.

    Source: docs/decisions/0031-training-within-memory.md.
    """
    for exchange in program.exchanges(phases):
        if exchange.phase is Phase.GRADIENT:
            yield from _of_gradient(program, exchange)
        else:
            times = int(exchanges_of(program.workload, exchange.phase)[exchange.node])
            yield exchange._replace(elements=times * exchange.elements)


def _of_gradient(program: Program, all_reduce: Exchange) -> Iterator[Exchange]:
    """Yield what an all-reduce of a gradient is, given what data parallelism shards."""
    repeats, node = program.workload.repeats, all_reduce.node
    for one in ZERO_STAGES[repeats.shard(node, all_reduce.level)]:
        moved = one.share(all_reduce.elements) * repeats.elements(one)
        moved *= repeats.micro_batches if one.each_micro_batch else 1
        exchange = all_reduce._replace(kind=StepKind(one.kind), weights=one.weights, elements=moved)
        if not one.passes:
            yield exchange
        users = program.workload.weight_users.get(node, (node,))
        for user, phase in product(users, map(Phase, one.passes)):
            yield exchange._replace(phase=phase, node=user)
