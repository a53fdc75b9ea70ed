"""Plans of any choices, whole ones too, and whether all agree on what they move."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod
from random import Random
from typing import Any

import hypar_opt as ho
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.operators.axes import FALLBACK_REPLICATED
from hypar_opt.workload.tensors import Workload, workload_of
from tests.execution.drawn import charged, run_as_one_device, with_shared_weights
from tests.strategies.written_plans import storing, written


def moved(network: ho.Network, program: Program) -> list[int]:
    """Return the bytes of each level, for which devices, charges and proofs agree."""
    workload, sizes = program.workload, program.hierarchy.sizes
    by_level = [0] * len(sizes)
    for exchange in exchanges_of_step(program):
        by_level[exchange.level] += 4 * exchange.elements
    reading = "joined" if program.joined else "executed"
    assert by_level == charged(program, reading)
    pins = [
        f"{workload.nodes[node].name}@H{level}={workload.words[node][row[node]]}"
        for level, row in enumerate(program.rows, 1)
        for node in range(workload.shared, len(row))
    ]
    asked: dict[str, Any] = {"choices": workload.choices, "reading": reading, "hierarchy": sizes}
    asked |= {"batch": workload.batch, "whole_levels": True, "constraints": {"fix": pins}}
    plan = written(network, "joint", **asked)(
        tuple(tuple(row[workload.shared :]) for row in program.rows)
    )
    tensors = [{node: row[node] for node in workload.tensor_writers} for row in program.rows]
    assert price_of(storing(plan, tensors)) == sum(by_level)
    run_as_one_device(network, program)
    return by_level


def drawn_row(rng: Random, workload: Workload) -> list[int]:
    """Return any choices of a level; attention by queries in most."""
    row = []
    for node, choices in enumerate(workload.choices_of_nodes):
        words = workload.words[node]
        # A product may be whole at any level; of other layers sums may have to be there once.
        own = [
            n
            for n, choice in enumerate(choices)
            if choice and (choice != FALLBACK_REPLICATED or n == len(choices) - 1)
        ]
        by_queries = "queries" in words and rng.random() < 0.7
        row.append(words.index("queries") if by_queries else rng.choice(own))
    return with_shared_weights(workload, row)


def drawn_plan(
    rng: Random,
    network: ho.Network,
    choices: Sequence[str],
    hierarchies: Sequence[tuple[int, ...]] = ((2,), (2, 2), (4,)),
    *,
    never: Collection[tuple[str, str]] = (),
) -> Program:
    """Return a plan of any choices, with one image for each device.

    Parameters
    ----------
    never
        The choices that layers do not have, by name: they have their first one instead.
    """
    sizes = rng.choice(hierarchies)
    workload = workload_of(network, prod(sizes), choices, shared_tensors=True)
    rows = [drawn_row(rng, workload) for _ in sizes]
    for row in rows:
        for node, operator in enumerate(workload.nodes):
            if (operator.name, workload.words[node][row[node]]) in never:
                row[node] = 0
    return Program(workload, rows, Hierarchy(sizes), joined=rng.random() < 0.5)
