"""Price a plan again, from its choices alone, and refuse what does not agree.

Nothing here is shared with a solver: a cost is the sum of the table's entries that the
choices pick.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import CostModel, Splits
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.errors import HyparError, InputError
from hypar_opt.graph import layer_graph
from hypar_opt.plan import Against, Cost, Plan, Problem, Ratios, amount
from hypar_opt.shapes import Shapes

if TYPE_CHECKING:
    from hypar_opt.costs.table import CostTable


def price_level(table: CostTable, assignment: Sequence[int]) -> int:
    """Return what one level's assignment costs, in the table's whole numbers."""
    choice = np.asarray(assignment, np.intp)
    source, target = table.ends[:, 0], table.ends[:, 1]
    nodes = table.node[np.arange(table.layers), choice].sum()
    edges = table.edge[np.arange(len(table.ends)), choice[source], choice[target]].sum()
    return int(nodes) + int(edges)


def price_levels(
    shapes: Shapes, cost: CostModel, assignments: Sequence[Sequence[int]]
) -> tuple[Fraction, ...]:
    """Return what each level costs, H1 first, in the cost's unit."""
    splits = Splits.none(len(shapes.layers))
    prices = []
    for assignment in assignments:
        table = cost.table(shapes, splits)
        prices.append(table.in_units(price_level(table, assignment)))
        splits = splits.after(assignment)
    return tuple(prices)


def price(shapes: Shapes, problem: Problem, assignments: Sequence[Sequence[int]]) -> Cost:
    """Price a plan, and its baselines, in its own reading and as executed."""

    def per_level(reading: str, rows: Sequence[Sequence[int]]) -> tuple[Fraction, ...]:
        cost = CommunicationCost(reading, problem.element_bytes, problem.inference)
        return price_levels(shapes, cost, rows)

    layers = len(shapes.layers)
    all_data, all_model = ([[choice] * layers] * problem.levels for choice in (0, 1))
    own = per_level(problem.reading, assignments)
    total = sum(own, Fraction())
    data = sum(per_level(problem.reading, all_data), Fraction())
    model = sum(per_level(problem.reading, all_model), Fraction())
    return Cost(
        reading=problem.reading,
        total=amount(total),
        per_level=tuple(map(amount, own)),
        executed_bytes=amount(sum(per_level("executed", assignments), Fraction())),
        data_parallel_bytes=amount(sum(per_level("executed", all_data), Fraction())),
        baselines=Against(data=amount(data), model=amount(model)),
        ratios=Ratios(
            data=float(data / total) if total else None,
            model=float(model / total) if total else None,
        ),
    )


def check_plan(plan: Plan, *, file: str) -> None:
    """Refuse a plan whose cost is not what its choices cost.

    Raises
    ------
    InputError
        Naming the first key that disagrees, what it says and what it should say.
    """
    shapes = Shapes.of(layer_graph(plan.network.description), plan.batch)
    try:
        cost = price(shapes, plan.problem, plan.assignments())
    except HyparError as error:
        raise InputError(str(error), file=file) from None
    for key, ours in cost.model_dump().items():
        theirs = getattr(plan.cost, key)
        theirs = theirs.model_dump() if hasattr(theirs, "model_dump") else theirs
        if theirs != ours:
            problem = f"should be {ours}, as the parallelism is priced, got {theirs}"
            raise InputError(problem, where=f"cost, {key}", file=file)
    bound, optimal = plan.solver.bound, plan.solver.status == "optimal"
    if optimal and bound != plan.cost.total:
        problem = f"should be the cost's total {plan.cost.total} of an optimal plan, got {bound}"
        raise InputError(problem, where="solver, bound", file=file)
    if bound is not None and bound > plan.cost.total:
        problem = f"should be at most the cost's total {plan.cost.total}, got {bound}"
        raise InputError(problem, where="solver, bound", file=file)


def too_fine(plan: Plan) -> list[str]:
    """Say, a sentence each, where a plan splits below one image or one input channel.

    The model halves exactly, also past the last image or channel; an array cannot.
    """
    shapes = Shapes.of(layer_graph(plan.network.description), plan.batch)
    splits = Splits.none(len(shapes.layers))
    for assignment in plan.assignments():
        splits = splits.after(assignment)
    data, model = splits.counts.tolist()
    sentences = []
    for word, counts, sizes in (
        ("image", data, [plan.batch] * len(data)),
        ("input channel", model, [layer.input_channels for layer in shapes.layers]),
    ):
        over = [
            (layer.name, size, count)
            for layer, size, count in zip(shapes.layers, sizes, counts, strict=True)
            if 2**count > size
        ]
        if over:
            name, size, count = max(over, key=lambda row: Fraction(2 ** row[2], row[1]))
            layers = f"{len(over)} layers" if len(over) > 1 else "1 layer"
            have = f"{size} {word}s" if size > 1 else f"1 {word}"
            sentences.append(
                f"splits {layers} below one {word}: {name} has {have} for 2^{count} parts"
            )
    return sentences
