"""The tables of a problem by thresholds, as functions of the batch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from hypar_opt.instance.instance import Instance
from hypar_opt.step.readings import READINGS
from hypar_opt.studies.many.affine import AffineTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.thresholds import ThresholdTable
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload


def affine_tables(network: Network, problem: Problem) -> list[AffineTable]:
    """Return a problem's tables as functions of the batch; none if it has no such thresholds.

    The n-th of them is of the batches 1 + n, 1 + n + period, ..., and there are as many as the
    period.
    """
    period = problem_period(network, problem)
    tables: list[AffineTable] = []
    for start in range(1, 1 + period):
        table = affine_table(network, problem, start, period)
        if table is None:
            return []
        tables.append(table)
    return tables


def problem_period(network: Network, problem: Problem) -> int:
    """Return the period of a problem's batches: those a period apart have charges on one line."""
    workload = Instance(network, problem.model_copy(update={"batch": 1})).workload
    return _period(workload, problem.reading, problem.hierarchy.sizes)


def affine_table(network: Network, problem: Problem, start: int, period: int) -> AffineTable | None:
    """Return a problem's table for batches a period apart; None if it has no such thresholds."""

    def table(batch: int) -> ThresholdTable | None:
        instance = Instance(network, problem.model_copy(update={"batch": batch}))
        # Constraints that are left are those of kinds of layers.
        if instance.constraints.any:
            return None
        return instance.cost.thresholds(instance.workload, problem.levels)

    # Thresholds need levels of equal parts.
    if not problem.hierarchy.uniform:
        return None
    shared = Instance(network, problem.model_copy(update={"batch": start})).workload.shared
    return AffineTable.of(table, start, period, shared)


def _period(workload: Workload, reading: str, sizes: Sequence[int]) -> int:
    if READINGS[reading].halves:  # the paper's conversions are in proportion to the tensor
        return 1
    tensors = zip(workload.extents, workload.is_weight_boundary.tolist(), strict=True)
    channels = {tensor.channels for tensor, weights in tensors if not weights}
    if READINGS[reading].joins_levels:  # where all levels together divide the batch
        return math.prod(sizes)
    return math.lcm(*(parts for parts in set(sizes) if any(count % parts for count in channels)))
