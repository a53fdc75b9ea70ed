"""What an exploration found: the best plans, a plan's rank, tables and a histogram of all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import HyparError, RefusedError, argument, worded
from hypar_opt.studies.advice import moves_more, turns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypar_opt.plan.plan import Cost, Plan
    from hypar_opt.workload.parallelism import Parallelism

Values = NDArray[np.float64]
Cell = tuple[int, int]
"""A level, H1 being 0, and a layer."""

TIE = 1e-12
"""Values as close as this are one value: sums in another order differ by less."""

MOST_ROWS = 2**20
"""Plans that a CSV lists."""


@dataclass(frozen=True, eq=False)
class Grid:
    """Plans on two axes; each axis is labelled with the digits of its own free choices.

    Parameters
    ----------
    values : (rows, columns)
        In the exploration's unit; nan where the plan's constraints allow none.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Values


@dataclass(frozen=True)
class Priced:
    """One plan's cost by the exploration's reading, and by the reading ``executed``.

    The latter is None where no run of its choices is known.
    """

    cost: Cost
    executed: Cost | None

    @property
    def executed_ratio(self) -> float | None:
        """How many times the plan's amount Data Parallelism's is, when both are run."""
        return None if self.executed is None else self.executed.ratios.data


@dataclass(frozen=True, eq=False)
class Exploration:
    """What every plan of a subspace costs, one axis a layer that has something free.

    Parameters
    ----------
    plan
        What is not free is as in this plan, which is one of those explored.
    free
        What is free, as it was asked for; ``cells`` are the levels and layers it stands for.
    array
        The name of what it is counted on, if anything.
    objective, unit
        What is counted: ``bytes``, ``time`` in seconds, ``energy`` in joules.
    states
        Those of each layer: numbers whose digits, H1's first, are its choices.
    values : one axis for each of ``axes``
        In the order of the layer's ``states``.
    data
        What Data Parallelism costs, whether it is among the plans or not.
    at
        Where the plan is among the values.
    own, first
        What the plan comes to when it is run, and the first of the best plans.
    """

    plan: Plan
    free: str
    cells: tuple[Cell, ...]
    array: str | None
    objective: str
    unit: str
    states: tuple[NDArray[np.intp], ...]
    values: Values
    data: float
    at: tuple[int, ...]
    own: Priced
    first: Priced

    @property
    def axes(self) -> tuple[int, ...]:
        """The layers with something free, in order; the first where nothing is."""
        return axes_of(self.cells)

    @property
    def best(self) -> float:
        return float(self.values.min())

    @property
    def worst(self) -> float:
        return float(self.values.max())

    @property
    def value(self) -> float:
        """What the plan costs."""
        return float(self.values[self.at])

    @property
    def rank(self) -> int:
        """One more than the number of plans that cost less than the plan does."""
        return 1 + int(np.count_nonzero(self.values < self.value * (1 - TIE)))

    @property
    def ties(self) -> int:
        """How many plans cost as little as the best."""
        return int(np.count_nonzero(self._peak()))

    def ratio(self, value: float) -> float | None:
        """Return how many times a value Data Parallelism's is; None for nothing."""
        return self.data / value if value else None

    def peaks(self, most: int = 12) -> list[tuple[tuple[Parallelism, ...], ...]]:
        """Return the best plans, levels x layers, the first of those that are as good."""
        flat = np.flatnonzero(self._peak())[:most]
        choices = self.plan.choices
        return [
            tuple(tuple(choices[digit] for digit in row) for row in digits)
            for digits in self._digits(flat).tolist()
        ]

    def histogram(
        self, bins: int = 20, *, relative: bool = False
    ) -> tuple[NDArray[np.intp], Values]:
        """Return how many plans lie between each two edges.

        Parameters
        ----------
        relative
            Of the ratios over Data Parallelism, in place of the values.
        """
        values = self._ratios(self.values) if relative else self.values
        found = values[np.isfinite(values)] if relative else values.reshape(-1)
        low, high = (found.min(), found.max()) if found.size else (0.0, 0.0)
        if high - low <= TIE * high:  # one value has no width to divide
            return np.array([found.size]), np.array([low, high])
        counts, edges = np.histogram(found, bins, (low, high))
        return counts, edges

    def grid(self, rows: str, columns: str) -> Grid:
        """Return the values on two axes: what is free, in two parts.

        Figure 9 is ``grid("H1", "H4")``: each label has a digit a layer. Figure 10 is
        ``grid("conv5_2", "fc1")``: a digit a level.

        Raises
        ------
        HyparError
            If the two are not what is free, each cell once.
        """
        axes = [cells_of(part, self.plan) for part in (rows, columns)]
        wanted = axes[0] + axes[1]
        if sorted(wanted) != sorted(self.cells):
            raise HyparError(
                f"{rows!r} and {columns!r} should be what is free, {self.free!r}, in two parts"
            )
        base = len(self.plan.choices)
        inner = sorted(self.cells, key=lambda cell: cell[::-1])  # as the axes of `values` nest
        codes, sizes = [], []
        for layer in self.axes:
            states = self.states[layer]
            levels = [level for level, of in inner if of == layer]
            code = np.zeros(len(states), np.intp)
            for level in levels:
                code = code * base + self._digit(states, level)
            codes.append(code)
            sizes.append(base ** len(levels))
        every = np.full(sizes, np.nan)
        every[np.ix_(*codes)] = self.values
        order = [inner.index(cell) for cell in wanted]
        values = every.reshape((base,) * len(inner)).transpose(order)
        first, second = (_labels(base, len(axis)) for axis in axes)
        return Grid(first, second, values.reshape(len(first), len(second)))

    def csv(self) -> str:
        """Return a row a plan: a digit a layer for each level, the value, and its ratio.

        Raises
        ------
        RefusedError
            If there are too many plans.
        """
        if self.values.size > MOST_ROWS:
            raise RefusedError(
                f"{worded('csv()', '--csv')} lists at most {MOST_ROWS:,} plans, and there are"
                f" {self.values.size:,}; leave fewer choices free"
            )
        digits = self._digits(np.arange(self.values.size))
        # A level's digits side by side are one text.
        texts = np.ascontiguousarray(digits + ord("0"), np.uint8).view(f"S{len(self.states)}")
        values = self.values.reshape(-1)
        head = [*(f"H{level}" for level in range(1, self.plan.levels + 1)), self.unit, "ratio"]
        lines = [",".join(head)]
        lines += [
            ",".join([*map(bytes.decode, row), _text(value), _text(ratio)])
            for row, value, ratio in zip(
                texts[..., 0].tolist(), values.tolist(), self._ratios(values).tolist(), strict=True
            )
        ]
        return "\n".join(lines) + "\n"

    def document(self, *, relative: bool = False) -> dict[str, Any]:
        """Return all but the values as plain data."""
        plan = self.plan
        counts, edges = self.histogram(relative=relative)
        peaks = self.peaks()

        def of(value: float) -> dict[str, Any]:
            return {"value": _number(value), "ratio": self.ratio(value)}

        def run(priced: Priced) -> dict[str, Any]:
            moved = priced.cost.executed_bytes
            return {"executed_bytes": moved, "executed_ratio": priced.executed_ratio}

        return {
            "network": plan.network.name,
            "array": self.array,
            "batch": plan.batch,
            "levels": plan.levels,
            "reading": plan.cost.reading,
            "objective": self.objective,
            "unit": self.unit,
            "free": self.free,
            "layers": plan.layers,
            "plans": self.values.size,
            "best": {
                **of(self.best),
                **run(self.first),
                "plans": self.ties,
                "parallelism": peaks,
            },
            "plan": {
                "solver": plan.solver.name,
                "search": plan.solver.search,
                **of(self.value),
                **run(self.own),
                "rank": self.rank,
                "parallelism": plan.parallelism,
            },
            "worst": of(self.worst),
            "data_parallel": {
                **of(self.data),
                "executed_bytes": self.own.cost.data_parallel_bytes,
            },
            "histogram": {
                "of": "ratio" if relative else self.unit,
                "edges": edges.tolist(),
                "plans": counts.tolist(),
            },
        }

    def warnings(self) -> list[str]:
        """Say where Data Parallelism moves or takes less, when run, than the plan or the best."""
        found = []
        for name, priced in (("this plan", self.own), ("the first of the best", self.first)):
            cost, executed = priced.cost, priced.executed_ratio
            found.append(moves_more(cost, name))
            if cost.kind != "bytes":
                found.append(turns(cost.kind, cost.reading, cost.ratios.data, executed, name))
            if self.first == self.own:
                break
        return [each for each in found if each is not None]

    def _peak(self) -> NDArray[np.bool_]:
        peak: NDArray[np.bool_] = self.values <= self.best * (1 + TIE)
        return peak

    def _ratios(self, values: Values) -> Values:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(values == 0, np.nan, self.data / values)

    def _digit(self, states: NDArray[np.intp], level: int) -> NDArray[np.intp]:
        base = len(self.plan.choices)
        digits: NDArray[np.intp] = states // base ** (self.plan.levels - 1 - level) % base
        return digits

    def _digits(self, flat: NDArray[np.intp]) -> NDArray[np.uint8]:
        """Return the choices of plans, counted through ``values``: plans x levels x layers."""
        digits = np.empty((len(flat), self.plan.levels, len(self.states)), np.uint8)
        places = dict(zip(self.axes, np.unravel_index(flat, self.values.shape), strict=True))
        for layer, states in enumerate(self.states):
            taken = states[places.get(layer, 0)]
            for level in range(self.plan.levels):
                digits[:, level, layer] = self._digit(taken, level)
        return digits


def axes_of(cells: Iterable[Cell]) -> tuple[int, ...]:
    """Return the layers of cells, in order, each an axis; a plan without a choice has one."""
    return tuple(sorted({layer for _, layer in cells})) or (0,)


def cells_of(free: str, plan: Plan) -> list[Cell]:
    """Return what is free, in the order in which it is named."""
    layers, levels = range(len(plan.layers)), range(plan.levels)
    found: dict[Cell, None] = {}
    for term in (part.strip() for part in free.split(",")):
        if term == "all":
            found |= dict.fromkeys((level, layer) for level in levels for layer in layers)
            continue
        of_level = re.fullmatch(r"(?:(.+)@)?[Hh](\d{1,9})|(.+)@(\d{1,9})", term)
        pattern, at = (term, None) if of_level is None else _named(of_level)
        if at is not None and not 1 <= at <= plan.levels:
            raise HyparError(
                f"{argument('free', term)}: should be a level from H1 to H{plan.levels}"
            )
        named = [layer for layer in layers if fnmatchcase(plan.layers[layer], pattern)]
        if not named:
            known = ", ".join(plan.layers[:20]) + (", ..." if len(plan.layers) > 20 else "")
            raise HyparError(
                f"{argument('free')} should name levels, as H1,H4, layers, as fc1 or conv*,"
                f" conv1@H2, or all; {term!r} is none of them (layers {known})"
            )
        at_levels = levels if at is None else [at - 1]
        found |= dict.fromkeys((level, layer) for layer in named for level in at_levels)
    return list(found)


def _named(of_level: re.Match[str]) -> tuple[str, int]:
    layer, level, other, number = of_level.groups()
    return layer or other or "*", int(level or number)


def _labels(base: int, digits: int) -> tuple[str, ...]:
    return tuple(
        "".join(str(code // base**place % base) for place in reversed(range(digits)))
        for code in range(prod([base] * digits))
    )


def _number(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def _text(value: float) -> str:
    return "" if value != value else str(_number(value))
