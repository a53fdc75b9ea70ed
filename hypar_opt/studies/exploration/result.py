"""The result of an exploration: the best plans, a plan's rank, grids and a histogram."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.checked import checked
from hypar_opt.errors import HyparError, RefusedError, Sentence
from hypar_opt.frozen import Frozen
from hypar_opt.plan.plan import Plan, words_of
from hypar_opt.plan.problem import Problem
from hypar_opt.results import Displayed
from hypar_opt.studies.advice import more_bytes_warning, turns
from hypar_opt.studies.exploration.front import ExploredFront, front_of
from hypar_opt.studies.exploration.subspace import Cell, axes_of, cells_of, choices_at, digits_of
from hypar_opt.studies.exploration.values import (
    MAX_ROWS,
    TIE,
    UNITS,
    PricedPlan,
    Values,
    exact_number,
)
from hypar_opt.units import format_cost


@dataclass(frozen=True, eq=False)
class Grid(Frozen):
    """Plans on two axes, each labelled with the digits of its free choices."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Values
    """(rows, columns) float64, in the exploration's unit; nan if constraints allow no such plan."""
    plan: tuple[str, str]
    """The row and column labels of the solver's plan."""


@dataclass(frozen=True, eq=False, repr=False)
class Exploration(Frozen, Displayed):
    """The costs of every plan of a subspace, with one axis per layer that has a free choice."""

    plan: Plan
    """The plan that gives all other choices; it is one of those explored."""
    free: str
    """The free choices, as typed; ``cells`` are their levels and layers."""
    cells: tuple[Cell, ...]
    problem: Problem
    """The plan's problem, with the explored objective and array."""
    unit: str
    """``bytes``, ``seconds``, ``joules``, or the unit of another cost."""
    states: tuple[NDArray[np.intp], ...]
    """Each layer's states: numbers whose digits, H1's first, are its choices."""
    values: Values
    """(states of a layer, ...) float64, one axis for each of ``axes``, in the order of states."""
    data_parallel_cost: float
    """The cost of Data Parallelism, whether it is among the plans or not."""
    plan_index: tuple[int, ...]
    """The plan's index into the values."""
    own: PricedPlan
    """The plan priced; ``first`` is the first of the best plans."""
    first: PricedPlan

    @property
    def array(self) -> str | None:
        """The name of the array on which plans are priced, if any."""
        return self.problem.array.name if self.problem.array else None

    @property
    def objective(self) -> str:
        """The objective: ``bytes``, ``time``, ``energy``, or another cost."""
        return self.problem.cost

    @property
    def front(self) -> ExploredFront | None:
        """The Pareto front in time, energy and memory; None if it is not known."""
        return None if isinstance(self._front, HyparError) else self._front

    @property
    def no_front(self) -> str:
        """The reason why the front is not known: too many plans, or shared tensors."""
        return Sentence(self._front.message) if isinstance(self._front, HyparError) else ""

    @cached_property
    def _front(self) -> ExploredFront | HyparError:
        network = self.plan.network.description
        try:
            return front_of(network, self.problem, self.states, self.axes, self.values)
        except HyparError as error:  # the rest can be shown without a front
            return error

    @property
    def two_parts(self) -> tuple[str, str] | None:
        """The free choices split in two disjoint parts, such as two levels; None if impossible."""
        parts = self.free.split(",")
        cells = [cell for part in parts for cell in cells_of(part, self.plan)]
        if len(parts) != 2 or not cells or len(set(cells)) < len(cells):
            return None
        return parts[0], parts[1]

    @property
    def axes(self) -> tuple[int, ...]:
        """The layers with a free choice, in order; the first layer if there is none."""
        return axes_of(self.cells)

    @property
    def plan_number(self) -> int:
        """The index of the solver's plan in the flat ``values``."""
        return int(np.ravel_multi_index(self.plan_index, self.values.shape))

    @property
    def best_cost(self) -> float:
        """The lowest cost."""
        return float(self.values.min())

    @property
    def highest_cost(self) -> float:
        """The highest cost."""
        return float(self.values.max())

    @property
    def plan_cost(self) -> float:
        """The cost of the plan."""
        return float(self.values[self.plan_index])

    @property
    def rank(self) -> int:
        """One more than the number of plans that cost less than the plan does."""
        # Ties share a rank, as in a competition.
        return 1 + int(np.count_nonzero(self.values < self.plan_cost * (1 - TIE)))

    @property
    def ties(self) -> int:
        """The number of plans that cost as little as the best."""
        return int(np.count_nonzero(self.is_best()))

    @checked
    def ratio(self, value: float) -> float | None:
        """Return Data Parallelism's cost over a value; None if the value is 0."""
        return self.data_parallel_cost / value if value else None

    def ratios(self) -> Values:
        """Return the ratio of each value, in the shape of `values`; nan for a value of 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.values == 0, np.nan, self.data_parallel_cost / self.values)

    @checked
    def best_plans(self, max_plans: int = 12) -> list[tuple[tuple[str, ...], ...]]:
        """Return the best plans, levels x layers, the first of those that tie."""
        plans = np.flatnonzero(self.is_best())[:max_plans]
        return [words_of(digits, self.plan.words) for digits in self.digits(plans).tolist()]

    @checked
    def histogram(
        self, bins: int = 20, *, relative: bool = False
    ) -> tuple[NDArray[np.intp], Values]:
        """Return ``(bins,)`` numbers of plans, and ``(bins + 1,)`` edges; one bin where all tie.

        Counted are costs or, if relative, ratios to Data Parallelism.
        """
        values = self.values.reshape(-1)
        if relative:
            ratios = self.ratios()
            # A plan that costs 0 has no ratio, and no bin.
            values = ratios[np.isfinite(ratios)]
        low, high = (values.min(), values.max()) if values.size else (0.0, 0.0)
        if high - low <= TIE * high:  # one value has no width to divide
            return np.array([values.size]), np.array([low, high])
        counts, edges = np.histogram(values, bins, (low, high))
        return counts, edges

    @checked
    def grid(self, rows: str, columns: str, *, of: Values | None = None) -> Grid:
        """Return the values, or other amounts of their shape, on two axes of free choices.

        Figure 9 is ``grid("H1", "H4")``, with one digit per layer in each label. Figure 10 is
        ``grid("conv5_2", "fc1")``, with one digit per level.

        Raises
        ------
        HyparError
            If the two together are not the free cells, each once.
        """
        row_cells, column_cells = (cells_of(part, self.plan) for part in (rows, columns))
        cells = row_cells + column_cells
        if sorted(cells) != sorted(self.cells):
            raise HyparError(
                f"{rows!r} and {columns!r} should be the free choices, {self.free!r}, in two parts"
            )
        base = len(self.plan.choices)
        # An axis of `values` holds a layer's free levels, the first in the highest digit. With
        # one axis per cell, the cells can be put in the grid's order.
        nested = sorted(self.cells, key=lambda cell: cell[::-1])
        values = self._unconstrained(self.values if of is None else of)
        values = values.reshape((base,) * len(nested))
        values = values.transpose([nested.index(cell) for cell in cells])
        row_labels, column_labels = (_labels(base, len(part)) for part in (row_cells, column_cells))
        shape = len(row_labels), len(column_labels)
        choices = self.plan.assignments()
        plan_row, plan_column = (
            "".join(str(choices[level][layer]) for level, layer in part)
            for part in (row_cells, column_cells)
        )
        return Grid(row_labels, column_labels, values.reshape(shape), (plan_row, plan_column))

    def _unconstrained(self, of: Values) -> Values:
        """Return values for all states of the free choices, nan for those not allowed."""
        base = len(self.plan.choices)
        codes, sizes = [], []
        for layer in self.axes:
            # States are numbered by their free digits alone; those not allowed leave gaps.
            levels = sorted(level for level, cell_layer in self.cells if cell_layer == layer)
            free = digits_of(self.states[layer], base, self.plan.levels)[levels]
            codes.append(base ** np.arange(len(levels))[::-1] @ free)
            sizes.append(base ** len(levels))
        values = np.full(sizes, np.nan)
        values[np.ix_(*codes)] = of
        return values

    @checked
    def digits(self, plans: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Return the choices, (plans, levels, layers), of plans by their flat indices."""
        index = np.unravel_index(plans, self.values.shape)
        return choices_at(index, self.states, self.axes, self.plan)

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each plan: the rows of a data frame, as in `table`.

        Raises
        ------
        RefusedError
            If there are too many plans.
        """
        header, rows = self.table()
        return [dict(zip(header, row, strict=True)) for row in rows]

    def table(
        self, wanted: str = "a table"
    ) -> tuple[list[str], Iterator[list[str | int | float | None]]]:
        """Return the names of the columns, and one row per plan.

        Each level's choices are digits, one per layer. The value is named by its unit; ``ratio``
        is over Data Parallelism; ``plan`` is 1 for the solver's. Where the Pareto front is known,
        its amounts follow, and ``front`` is 1 for a plan on it. A refusal says who ``wanted`` it.

        Raises
        ------
        RefusedError
            If there are too many plans.
        """
        if self.values.size > MAX_ROWS:
            raise RefusedError(
                f"{wanted} lists at most {MAX_ROWS:,} plans, and there are {self.values.size:,};"
                " leave fewer choices free"
            )
        digits = self.digits(np.arange(self.values.size))
        # A level's digits viewed as one string: one string operation per plan, not per layer.
        levels = np.ascontiguousarray(digits + ord("0"), np.uint8).view(f"S{digits.shape[2]}")
        columns = self._columns()
        numbers = zip(*(column.reshape(-1).tolist() for column in columns.values()), strict=True)
        return [*self.plan.level_names, *columns], (
            [
                *map(bytes.decode, row),
                *(None if np.isnan(value) else exact_number(value) for value in amounts),
            ]
            for row, amounts in zip(levels[..., 0].tolist(), numbers, strict=True)
        )

    def _columns(self) -> dict[str, NDArray[Any]]:
        """Return the amounts of every plan, by the names of a table's columns."""
        columns = {self.unit: self.values, "ratio": self.ratios()}
        if self.front is not None:
            for name, amounts in self.front.amounts.items():
                if name != self.objective:
                    columns[UNITS.get(name, name)] = amounts
            columns["front"] = self.front.on_front.astype(float)
        columns["plan"] = np.zeros(self.values.shape)
        columns["plan"][self.plan_index] = 1
        return columns

    def __repr__(self) -> str:
        best = format_cost(self.best_cost, self.unit)
        return (
            f"<Exploration of {self.plan.network.name}: {self.values.size:,} plans, free:"
            f" {self.free}, the best {best}, the plan's rank {self.rank:,}>"
        )

    def warnings(self) -> list[str]:
        """Return warnings where Data Parallelism, when run, beats the plan or the best plan."""
        sentences = []
        for name, priced in (("this plan", self.own), ("the first of the best", self.first)):
            cost, executed = priced.cost, priced.executed_ratio
            sentences.append(more_bytes_warning(cost, name))
            if cost.kind != "bytes":
                sentences.append(turns(cost.kind, cost.reading, cost.ratios.data, executed, name))
            # One plan under two names needs one warning.
            if self.first == self.own:
                break
        return [sentence for sentence in sentences if sentence is not None]

    def is_best(self) -> NDArray[np.bool_]:
        """Return whether each plan costs as little as the best, in the shape of `values`."""
        is_best: NDArray[np.bool_] = self.values <= self.best_cost * (1 + TIE)
        return is_best


def _labels(base: int, digits: int) -> tuple[str, ...]:
    """Return all numbers of so many digits, as strings."""
    return tuple("".join(map(str, number)) for number in product(range(base), repeat=digits))
