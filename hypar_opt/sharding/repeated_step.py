"""The exchanges of a whole step: a micro-batch's as often as training repeats them, and shards'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import TRAINING, Phase
from hypar_opt.sharding.repetitions import exchanges_of
from hypar_opt.workload.repeats import IN_HALVES

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
    shard = repeats.shard(node, all_reduce.level)
    if shard == "none":
        yield all_reduce._replace(elements=repeats.reduced * all_reduce.elements)
        return
    half, each = all_reduce.elements // 2, repeats.micro_batches
    scattered = repeats.reduced * (each * half if shard in IN_HALVES else half)
    yield all_reduce._replace(kind=StepKind.REDUCE_SCATTER, elements=scattered)
    gathered = all_reduce._replace(kind=StepKind.ALL_GATHER, weights=True)
    if shard != "weights":
        yield gathered._replace(elements=half)
        return
    for user in program.workload.weight_users.get(node, (node,)):
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            yield gathered._replace(phase=phase, node=user, elements=each * half)
