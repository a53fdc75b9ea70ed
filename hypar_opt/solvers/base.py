"""The interface of a solver, its options, and its result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from hypar_opt.checked import check
from hypar_opt.costs.pruned_table import PrunedTable
from hypar_opt.costs.state_classes import ClassTable
from hypar_opt.costs.state_table import FactoredTable
from hypar_opt.costs.table import CostTable
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.frozen import Frozen, FrozenDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hypar_opt.costs.row_names import RowNames

Table = CostTable | ThresholdTable | FactoredTable | ClassTable | PrunedTable
"""The input of a solver: one level's costs, or all levels' together in one of five forms."""


MEMORY = "memory"
"""The ``stopped_by`` of a `SolveResult` where a proof needs more memory than is allowed."""

FIRST_STEP = 2**12
"""A threshold of costs first rises by this part of its bound, then by twice as much each time."""


class Status(StrEnum):
    """What a result proves."""

    OPTIMAL = "optimal"
    """No assignment of this table costs less; the bound equals the objective."""

    FEASIBLE = "feasible"
    """An assignment that is not proven optimal: no lower bound, or one below its cost."""

    INFEASIBLE = "infeasible"
    """No assignment satisfies the constraints."""

    NO_ANSWER = "no answer"
    """A limit ended the search before it had an assignment."""


@dataclass(frozen=True)
class SolverOptions(Frozen):
    """How to solve. A solver refuses, by name, an option that it does not support.

    Parameters
    ----------
    backend
        The program behind a modelling library: ``cbc``, ``highs``, ...
    parameters
        The backend's own parameters by name, passed on unchanged.
    time_limit
        Seconds from the call of `hypar_opt.solve`; a solver is given the remaining ones.
    gap
        Stop once (objective - bound) / objective is at most this: 0 demands an optimum.
    threads, seed
        The backend's threads and seed. One thread by default, so that runs are reproducible.
    warm_start
        An assignment to start from, in the table's columns.
    hint
        Start from the assignment of dynamic programming.
    log
        A file for the backend's own log.
    export
        A file for the model that the backend was given; its suffix tells the format.
    labels
        Names of the table's rows and columns for that model; set by the search.
    """

    backend: str | None = None
    parameters: Mapping[str, str] = FrozenDict()
    time_limit: float | None = None
    gap: float = 0.0
    threads: int | None = None
    seed: int | None = None
    warm_start: tuple[int, ...] | None = None
    hint: bool = False
    log: Path | None = None
    export: Path | None = None
    labels: RowNames | None = None

    def __post_init__(self) -> None:
        for name in ("log", "export"):  # a caller may name files by strings
            if isinstance(vars(self)[name], str):
                vars(self)[name] = Path(vars(self)[name])
        check(type(self), vars(self))
        super().__post_init__()

    def given(self) -> set[str]:
        """Return the names of the options that differ from their defaults."""
        default = by_default()
        # Compared with the defaults, not recorded: an option given at its default changes nothing.
        named = set(vars(self)) - {"labels"}  # the search's own: names for what is exported
        return {name for name in named if getattr(self, name) != getattr(default, name)}


@cache
def by_default() -> SolverOptions:
    """Return the options where none is given."""
    return SolverOptions()


def flags(names: Iterable[str]) -> list[str]:
    """Return the names of solver options as a command line spells them."""
    spelled = {"parameters": "solver-option", "log": "solver-log", "export": "export-model"}
    return sorted(f"--{spelled.get(name, name.replace('_', '-'))}" for name in names)


@dataclass(frozen=True)
class SolveResult:
    """A solver's answer to one table. The search prices it again before it is used.

    Parameters
    ----------
    assignment
        Each layer's choice, as its column in the table; None without an answer.
    objective
        The assignment's cost as the solver reports it, in the table's integers; None if the
        solver reports none.
    bound
        A lower bound on the cost of every assignment; None if the solver proves none.
    stopped_by
        What ended the search before a proof: ``time limit``, ``gap`` or ``memory``.
    statistics
        Figures of the model, as far as known: rows, columns, nonzeros, root bound.
    versions
        Versions of the libraries and programs used, by name.
    """

    assignment: tuple[int, ...] | None
    objective: int | None
    status: Status
    bound: int | None = None
    stopped_by: str | None = None
    statistics: Mapping[str, float] = FrozenDict()
    versions: Mapping[str, str] = FrozenDict()


def columns(layers: int, edges: int, choices: int) -> int:
    """Return an upper bound on the columns of a table's 0-1 program, that of the path form.

    A column for every layer and choice, and one for every edge and pair of choices.
    """
    return choices * (layers + choices * edges)


def too_large(
    upper_bound: int | None, layers: int, edges: int, choices: int, instead: str = "try dp"
) -> str | None:
    """Return why a table is refused if it needs too many columns; None if it does not."""
    count = columns(layers, edges, choices)
    if upper_bound is None or count <= upper_bound:
        return None
    return f"builds at most {upper_bound:,} columns, this may need {count:,}; {instead}"


class Solver(ABC):
    """An algorithm that assigns a choice to every layer of a cost table.

    Every exact solver returns the same assignment: among the cheapest, the one that is
    first in the table's order of choices, compared from the last layer back. Ties decide
    what the levels below have to split, so they change totals.
    """

    summary: ClassVar[str]
    """The method and its guarantee, in one line."""

    searches: ClassVar[bool] = True
    """Whether it compares assignments; a baseline has the same one at every level."""

    supported_options: ClassVar[frozenset[str]] = frozenset()
    """The names of the `SolverOptions` that it supports."""

    accepted_tables: ClassVar[frozenset[type[Table]]] = frozenset({CostTable})
    """The types of table that `solve` accepts. Every solver accepts a `CostTable`; a
    `ThresholdTable`, a `FactoredTable` of a chain and a `ClassTable` describe all levels together
    in far less memory, and a `PrunedTable` those plans alone that cost at most so much."""

    max_columns: ClassVar[int | None] = None
    """Columns that its program may have, as `columns` counts them; None for any number. Checked
    from the sizes alone, before a table is built that the solver would refuse."""

    def accepts(self, table: Any) -> str | None:  # noqa: ARG002
        """Return why a table of an accepted type is refused; None if it is not."""
        return None

    @abstractmethod
    def solve(self, table: Any, options: SolverOptions) -> SolveResult:
        """Solve a table of an accepted type that `accepts` did not refuse."""
