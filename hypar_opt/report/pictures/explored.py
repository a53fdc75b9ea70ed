"""An exploration of two levels or two layers as a map, with the solver's plan and the front."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.errors import HyparError
from hypar_opt.report.pictures.heat import surface
from hypar_opt.report.terminal.exploration import axis_label, compared, digits_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hypar_opt.studies.exploration import Exploration


def exploration_map(exploration: Exploration) -> Figure:
    """Draw the free choices on two axes, as in the paper's Figures 9 and 10.

    The best plans are starred, the solver's is ringed, and those on the Pareto front have dots.

    Raises
    ------
    HyparError
        If the free choices are not two levels, two layers or two other terms.
    """
    if exploration.two_parts is None:
        raise HyparError(
            f"--picture draws two levels or two layers, as H1,H4; got {exploration.free!r}"
        )
    rows, columns = exploration.two_parts
    grid = exploration.grid(rows, columns)
    front, on_front, of = exploration.front, None, ""
    if front is not None:
        on_front = exploration.grid(rows, columns, of=front.on_front.astype(float)).values == 1
        of = f"; the front is of {', '.join(front.amounts)}"
    plan = exploration.plan
    where = f" on {exploration.array}" if exploration.array else ""
    own_row, own_column = grid.plan
    with np.errstate(divide="ignore"):
        # Over Data Parallelism, so that larger is better, as in the paper.
        ratios = exploration.data_parallel_cost / grid.values
    return surface(
        ratios,
        grid.columns,
        grid.rows,
        {f"{plan.solver.name} {plan.solver.search}": (own_column, own_row)},
        front=on_front,
        xlabel=axis_label(exploration, columns),
        ylabel=axis_label(exploration, rows),
        name=compared(exploration),
        title=f"{plan.network.name}{where}, batch {plan.batch}: every plan by"
        f" {exploration.objective}, reading {plan.cost.reading}\n{digits_legend(plan)}{of}",
    )
