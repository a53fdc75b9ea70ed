"""Price a plan again from its choices alone, and refuse a plan that states another cost.

No code here is shared with a solver: a cost is the sum of the table entries of the choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import CostModel, SplitCounts
from hypar_opt.costs.sharing import Rows, level_tables
from hypar_opt.errors import HyparError, InputError
from hypar_opt.plan.plan import Baselines, Cost, Plan, Ratios, json_number
from hypar_opt.search.instance import Instance
from hypar_opt.workload.parallelism import DATA, MODEL, OUTPUT
from hypar_opt.workload.tensors import Workload, workload_of

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable


def price_table(table: CostTable, assignment: Sequence[int]) -> int:
    """Return the cost of an assignment, as the table's entries count."""
    choice = np.asarray(assignment, np.intp)
    source, target = table.ends.T
    nodes = table.node[np.arange(table.layers), choice].sum()
    edges = table.edge[np.arange(len(table.ends)), choice[source], choice[target]].sum()
    return int(nodes) + int(edges)


def price_levels(
    workload: Workload, cost: CostModel, rows: Rows, *, even: bool = False
) -> tuple[Fraction, ...]:
    """Return the cost of each level, H1 first, in the cost's unit.

    Parameters
    ----------
    rows : (levels, layers)
        The layers' choices; what layers share takes the layouts that then cost least.
    even
        Whether shared tensors, too, are split into equal parts only.
    """
    levels, full = [], []
    for table, row in level_tables(workload, cost, rows, even=even):
        levels.append(price_table(table, row))
        full.append(row)
    states = list(zip(*full, strict=True))
    # Charges that are no sum over levels, as of rings: once for each distinct state.
    for state in set(states):
        with_state = [node for node, other in enumerate(states) if other == state]
        for level, charge in cost.of_state(workload, state).items():
            levels[level] += int(charge[with_state].sum())
    return tuple(Fraction(level, cost.resolution) for level in levels)


def price(instance: Instance, rows: Rows) -> Cost:
    """Price a plan and its baselines, by the problem's reading and by ``executed``."""
    problem, workload, own = instance.problem, instance.workload, instance.cost
    layers = len(workload.layers)
    all_data, all_model = ([[choice] * layers] * problem.levels for choice in (DATA, MODEL))

    even = problem.constraints.even

    def total(cost: CostModel, rows: Rows) -> Fraction:
        return sum(price_levels(workload, cost, rows, even=even), Fraction())

    def executed(rows: Rows) -> Fraction:
        moved = instance.executed_workload
        return sum(price_levels(moved, instance.executed, rows, even=even), Fraction())

    per_level = price_levels(workload, own, rows, even=even)
    costs = sum(per_level, Fraction())
    data, model = total(own, all_data), total(own, all_model)
    # No run has been measured of a third choice, nor of one that reads its input whole.
    reads_whole = workload.lacking(len(problem.choices)).input.T[workload.shared :]
    has_run = not any(max(row) >= OUTPUT or reads_whole[range(layers), row].any() for row in rows)
    exchanges = own.communication_only()
    communication = None
    if exchanges is not None:
        exchanged = price_levels(workload, exchanges, rows, even=even)
        communication = tuple(map(json_number, exchanged))
    return Cost(
        kind=problem.cost,
        reading=problem.reading,
        unit=own.unit,
        total=json_number(costs),
        per_level=tuple(map(json_number, per_level)),
        communication=communication,
        executed_bytes=json_number(executed(rows)) if has_run else None,
        data_parallel_bytes=json_number(executed(all_data)),
        baselines=Baselines(data=json_number(data), model=json_number(model)),
        ratios=Ratios(
            data=float(data / costs) if costs else None,
            model=float(model / costs) if costs else None,
        ),
    )


def check_plan(plan: Plan, *, file: str) -> None:
    """Refuse a plan whose stated cost is not that of its choices.

    The solver's status is a claim that only has to be consistent here; a certificate proves it.

    Raises
    ------
    InputError
        Naming the first key that disagrees, what it says and what it should say.
    """
    try:
        cost = price(Instance.of_plan(plan), plan.assignments())
    except HyparError as error:
        raise InputError(error.message, file=file) from None
    stated = plan.cost.model_dump(mode="json")
    for key, derived in cost.model_dump(mode="json").items():
        if stated[key] != derived:
            problem = f"should be {derived}, as the parallelism is priced, got {stated[key]}"
            raise InputError(problem, where=f"cost, {key}", file=file)
    solver, total = plan.solver, plan.cost.total
    if solver.status == "optimal" and solver.bound != total:
        problem = f"should be the cost's total {total} of an optimal plan, got {solver.bound}"
        raise InputError(problem, where="solver, bound", file=file)
    if solver.bound is not None and solver.bound > total:
        problem = f"should be at most the cost's total {total}, got {solver.bound}"
        raise InputError(problem, where="solver, bound", file=file)


def too_fine(plan: Plan) -> list[str]:
    """Return a warning for each axis that a plan splits below one image or one channel.

    The model halves exactly, also below one image or channel; a program cannot.
    """
    workload = workload_of(plan.network.description, plan.batch)
    *_, splits = SplitCounts.down(len(workload.layers), len(plan.choices), plan.assignments())
    split: dict[str, list[tuple[str, int, int]]] = {"image": []}
    for position, layer in enumerate(workload.layers):
        choices = layer.operator.splits[: len(plan.choices)]
        for column, choice in enumerate(choices):
            size, count = layer.sizes[choice.axis], int(splits.counts[column, position])
            parts = split.setdefault(choice.part, [])
            if 2**count > size:
                parts.append((layer.name, size, count))
    sentences = []
    for part, too_many_parts in split.items():
        if too_many_parts:
            # The layer with the smallest fraction of an index to a part is the example.
            name, size, count = max(too_many_parts, key=lambda row: Fraction(2 ** row[2], row[1]))
            layers = f"{len(too_many_parts)} layers" if len(too_many_parts) > 1 else "1 layer"
            available = f"{size} {part}s" if size > 1 else f"1 {part}"
            sentences.append(
                f"splits {layers} below one {part}: {name} has {available} for 2^{count} parts"
            )
    return sentences
