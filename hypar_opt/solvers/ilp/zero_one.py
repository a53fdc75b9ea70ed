"""A 0-1 program in integers whose literals are the layers' choices."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

LayerChoice = tuple[int, int]
"""A layer and one of its choices."""


@dataclass(frozen=True)
class LinearConstraint:
    """``sum(terms[column] * column)`` and ``bound``, compared by ``<=``, ``=`` or ``>=``."""

    name: str
    terms: Mapping[str, int]
    sense: str
    bound: int


@dataclass(frozen=True)
class ZeroOneProgram:
    """Minimise ``constant + sum(costs[column] * column)``, all of them integers.

    Parameters
    ----------
    literals : layers x choices
        A binary column, and its value for which the layer has the choice.
    costs
        The cost of every column. Columns that are not in `literals` have a lower bound of 0; those
        named ``carry`` are integers, the others continuous.
    constraints
        All of them must hold.
    fixed
        Values of columns, each the only one allowed.
    tie_weight
        The factor on a backend's costs that leaves room to add 1 to those of the binary columns; 1
        to add nothing. See `with_fewest_ones`.
    """

    literals: Sequence[Sequence[tuple[str, int]]]
    costs: Mapping[str, int]
    constant: int
    constraints: tuple[LinearConstraint, ...]
    fixed: Mapping[str, int] = field(default_factory=dict)
    tie_weight: int = 1

    @property
    def binary(self) -> frozenset[str]:
        return frozenset(column for layer in self.literals for column, _ in layer)

    @property
    def factor(self) -> int:
        """The costs' greatest common divisor."""
        return math.gcd(*self.costs.values()) or 1

    @property
    def largest_cost(self) -> int:
        return max(map(abs, self.costs.values()))

    def statistics(self) -> dict[str, float]:
        return {
            "rows": len(self.constraints),
            "columns": len(self.costs),
            "nonzeros": sum(len(row.terms) for row in self.constraints),
        }

    def with_fewest_ones(self) -> ZeroOneProgram | None:
        """Return the program whose optimum has the fewest ones among this program's optima.

        None if that may not be the canonical optimum. It is if every layer's column is 1 for its
        second choice and all constraints are of differences: then the optima are a lattice in the
        choices, and its least element has the fewest ones.
        """
        two_choices = all(row[1:] == [(row[0][0], 1)] for row in self.literals)
        if not two_choices or any(row.bound for row in self.constraints):
            return None
        return replace(self, tie_weight=len(self.literals) + 1)

    def backend_costs(self) -> dict[str, int]:
        """Return the costs for a backend, in units of their common factor."""
        unit, binary = self.factor, self.binary
        if self.tie_weight == 1:
            return {column: cost // unit for column, cost in self.costs.items()}
        return {
            column: cost // unit * self.tie_weight + (column in binary)
            for column, cost in self.costs.items()
        }

    def backend_objective(self, assignment: Sequence[int], objective: int) -> int:
        """Return an assignment's cost under `backend_costs`, given its cost in the table."""
        relative = (objective - self.constant) // self.factor
        return relative if self.tie_weight == 1 else relative * self.tie_weight + sum(assignment)

    def bound(self, backend_bound: int) -> int:
        """Return the bound on the table's objective that follows from one by `backend_costs`."""
        # In integers, the ones add less than the weight.
        return self.constant + self.factor * (backend_bound // self.tie_weight)

    def domain(self, column: str, binary: frozenset[str]) -> tuple[int, int | None, bool]:
        """Return a column's lower and upper bound, and whether it is an integer.

        Parameters
        ----------
        binary
            `binary`, which is computed once for all columns.
        """
        if column in self.fixed:
            return self.fixed[column], self.fixed[column], True
        if column in binary:
            return 0, 1, True
        if column.startswith("carry"):
            # Every layer's digit is below the base, so the sum carries less than one per layer.
            return 0, len(self.literals), True
        # Thresholds and flows: integral by themselves once the binaries are.
        return 0, None, False

    def with_constraint(
        self,
        name: str,
        weights: Mapping[LayerChoice, int],
        sense: str,
        bound: int,
        other_terms: Mapping[str, int] = MappingProxyType({}),
    ) -> ZeroOneProgram:
        """Return the program with another constraint, on choices and on other columns.

        Parameters
        ----------
        weights
            Coefficients of the choices' literals.
        sense
            ``<=``, ``=`` or ``>=``.
        other_terms
            Coefficients of columns that are not literals.
        """
        terms: defaultdict[str, int] = defaultdict(int, other_terms)
        for (layer, choice), weight in weights.items():
            column, value = self.literals[layer][choice]
            # Where the column's 0 stands for the choice, the literal is 1 - column.
            terms[column] += weight if value else -weight
            bound -= 0 if value else weight
        nonzero = {column: term for column, term in terms.items() if term}
        constraint = LinearConstraint(name, nonzero, sense, bound)
        return replace(self, constraints=(*self.constraints, constraint))

    def assignment(self, values: Mapping[str, float]) -> tuple[int, ...]:
        """Return the choices whose literals are nearest to the columns' values."""
        # A backend's integers are integers to within its tolerance, about 1e-6.
        nearness = [[1 - abs(values[x] - value) for x, value in layer] for layer in self.literals]
        return tuple(layer.index(max(layer)) for layer in nearness)
