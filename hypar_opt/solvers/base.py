"""What every solver offers, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from hypar_opt.costs.product import FactoredTable
from hypar_opt.costs.separable import SeparableTable
from hypar_opt.costs.table import CostTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Table = CostTable | SeparableTable | FactoredTable
"""What a solver may be given: a level, or all levels together in one of three forms."""


class Status(StrEnum):
    """What an answer is worth."""

    OPTIMAL = "optimal"
    """No assignment of this table costs less; the bound equals the objective."""

    FEASIBLE = "feasible"
    """An assignment, with no word on whether a better one exists, or a bound below it."""

    INFEASIBLE = "infeasible"
    """No assignment keeps to what is allowed."""

    NO_ANSWER = "no answer"
    """A limit came before the first assignment."""


@dataclass(frozen=True)
class SolverOptions:
    """How to solve. A solver refuses, by name, what it cannot heed.

    Parameters
    ----------
    backend
        The program behind a modelling library: ``cbc``, ``highs``, ...
    parameters
        Handed to the backend as they are.
    time_limit
        Seconds: of `hypar_opt.solve` from the call, of a solver what is left of them.
    gap
        Stop once (objective - bound) / objective is no more: 0 asks for an optimum.
    threads, seed
        Of the backend. One thread unless asked for, so that a run repeats.
    warm_start
        An assignment to start from, for each table of the search.
    hint
        Start from dynamic programming's assignment.
    log
        A file for the backend's own log.
    export
        A file for the model that the backend was given; its suffix tells the format.
    """

    backend: str | None = None
    parameters: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    time_limit: float | None = None
    gap: float = 0.0
    threads: int | None = None
    seed: int | None = None
    warm_start: tuple[int, ...] | None = None
    hint: bool = False
    log: Path | None = None
    export: Path | None = None

    def given(self) -> set[str]:
        """Return the names of the options that differ from their defaults."""
        default = SolverOptions()
        return {name for name in vars(self) if getattr(self, name) != getattr(default, name)}


NO_CHAIN = "takes chains of layers, and this graph is none"


def flags(names: Iterable[str]) -> list[str]:
    """Return the names of solver options as a command line spells them."""
    spelled = {"parameters": "solver-option", "log": "solver-log", "export": "export-model"}
    return sorted(f"--{spelled.get(name, name.replace('_', '-'))}" for name in names)


@dataclass(frozen=True)
class SolveResult:
    """A solver's answer to one table. What it claims is checked before it is used.

    Parameters
    ----------
    assignment
        Each layer's choice, as its column in the table; None without an answer.
    objective
        What the assignment costs, in the table's whole numbers, as the solver has it; None
        where the solver does not say.
    bound
        No assignment costs less; None where the solver has no word on that.
    stopped_by
        What ended the search before a proof: ``time limit`` or ``gap``.
    statistics
        Of the model that was built: rows, columns, nonzeros, root bound, as far as known.
    versions
        Of what was used.
    """

    assignment: tuple[int, ...] | None
    objective: int | None
    status: Status
    bound: int | None = None
    stopped_by: str | None = None
    statistics: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


def columns(layers: int, edges: int, choices: int) -> int:
    """Return how many columns a 0-1 program of a table has at the most.

    One for each layer and choice, and one for each edge and pair of choices.
    """
    return choices * (layers + choices * edges)


def too_large(most: int | None, layers: int, edges: int, choices: int) -> str | None:
    """Return why a table of this size is refused, if at the most so many columns are taken."""
    needed = columns(layers, edges, choices)
    if most is None or needed <= most:
        return None
    return f"takes at most {most:,} columns, this may need {needed:,}; try dp"


class Solver(ABC):
    """One way to assign a choice to each layer of a cost table.

    Every exact solver returns the same assignment: among the cheapest, the one that is
    first in the table's order of choices, compared from the last layer back. Ties decide
    what the levels below have to split, so they change totals.
    """

    summary: ClassVar[str]
    """What it does and what it guarantees, in a line."""

    searches: ClassVar[bool] = True
    """Whether it compares assignments; a baseline takes the same one at every level."""

    supported_options: ClassVar[frozenset[str]] = frozenset()
    """The names of the `SolverOptions` that it takes."""

    accepted_tables: ClassVar[frozenset[type[Table]]] = frozenset({CostTable})
    """The types of table that `solve` takes. All take a `CostTable`; a `SeparableTable` or a
    `FactoredTable` says the same of all levels together in far less memory."""

    most_columns: ClassVar[int | None] = None
    """Columns that its program may have, as `columns` counts them; None for any number. It is
    asked before a table is made that it would not take."""

    def accepts(self, table: Any) -> str | None:  # noqa: ARG002
        """Return why this table, of a type that it takes, is refused; None where it is not."""
        return None

    @abstractmethod
    def solve(self, table: Any, options: SolverOptions) -> SolveResult:
        """Answer a table of an accepted type that `accepts` did not refuse."""
