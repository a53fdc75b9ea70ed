"""The tensors of a plan's micro-batch, and how often a step repeats its passes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.recomputation import repeats_of, with_repeats
from hypar_opt.workload.tensors import Workload, workload_of

if TYPE_CHECKING:
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.workload.network import Network


def micro_batch_of(
    problem: ProblemFields,
    network: Network,
    *,
    shared_tensors: bool,
    crossing: tuple[int, ...] = (),
) -> Workload:
    """Return the tensors of a problem's micro-batch on a network.

    Parameters
    ----------
    shared_tensors, crossing
        As for `Workload.of_network`.
    """
    training = problem.training
    count = training.micro_batches or 1
    batch = problem.batch // count
    workload = workload_of(
        network, batch, problem.choices, shared_tensors=shared_tensors, crossing=crossing
    )
    fused = Fused.on(problem.array.description.accelerator if problem.array else None)
    words = training.recompute, training.shard, training.gather
    reduced = training.reduced(problem.element_bytes)
    return with_repeats(
        workload, repeats_of(network, workload, count, *words, reduced, fused=fused)
    )
