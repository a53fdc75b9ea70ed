"""A table's 0-1 program in numbered variables and literals, as CP-SAT has them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from hypar_opt.costs.pruned_table import PrunedTable
from hypar_opt.costs.table import CostTable
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.integers import exact_dtype
from hypar_opt.solvers.ilp.formulate import formulate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hypar_opt.integers import Integers
    from hypar_opt.solvers.ilp.zero_one import LinearConstraint, ZeroOneProgram

Literal = int
"""A variable's index, or ``~index`` for its negation, as in CP-SAT's own files."""

AnyTable = TypeVar("AnyTable", CostTable, PrunedTable)

MAX_SUM = 2**56
"""Upper bound on the sum of an objective's, or a capacity's, terms.

CP-SAT accepts up to 2^62, but its presolve moves costs from literal to literal, and so may turn
such a model into one that it rejects as invalid."""


@dataclass(frozen=True, eq=False)
class ClauseModel:
    """A 0-1 program whose columns are variables by number.

    The weights are in the program's largest unit: the smaller they are, the more fits into 64 bits,
    costs and ties below them.
    """

    program: ZeroOneProgram

    @cached_property
    def numbers(self) -> Mapping[str, int]:
        """The number of every column's variable."""
        return {column: number for number, column in enumerate(self.program.costs)}

    @cached_property
    def weights(self) -> Sequence[int]:
        return list(self.program.backend_costs().values())

    @cached_property
    def choice_literals(self) -> Sequence[Sequence[Literal]]:
        """The literal that is true if the layer has the choice."""
        return [[self._literal(*literal) for literal in layer] for layer in self.program.literals]

    def _literal(self, column: str, value: int) -> Literal:
        number = self.numbers[column]
        return number if value else ~number

    def literals(self, row: LinearConstraint) -> Sequence[Literal] | None:
        """Return the literals of a row that requires at least (``>=``) or exactly (``=``) one.

        None for other rows.
        """
        terms = sorted(row.terms.items(), key=lambda column_term: column_term[1])
        # Of a negated literal, 1 is added on both sides.
        bound = row.bound + sum(term == -1 for _, term in terms)
        if row.sense == "<=" or bound != 1 or any(abs(term) != 1 for _, term in terms):
            return None
        return [self._literal(column, term == 1) for column, term in terms]


def clause_model(table: CostTable | PrunedTable, deadline: Deadline = NEVER) -> ClauseModel:
    """Return the model of a table that is not `trivially_infeasible`.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    if isinstance(table, PrunedTable):
        return ClauseModel(formulate(_common_charges_moved(table), deadline))
    if table.choices > 2:
        table = _common_charges_moved(table)
    # The loads of all layers together are within the limit.
    largest_load = MAX_SUM // (table.layers + 1)
    return ClauseModel(formulate(table, deadline, largest_load))


def _common_charges_moved(table: AnyTable) -> AnyTable:
    """Move the common charge of a choice's transitions on an edge to the choice itself.

    No assignment costs more or less for it: exactly one transition of the choice is charged. Many
    edges then charge nothing, and are left out.
    """
    # Moved, a charge counts at the node and still at most twice at the edge.
    dtype = exact_dtype(3 * table.max_total)
    node = [row.astype(dtype) for row in table.node]
    edge: list[Integers] = [charges.astype(dtype) for charges in table.edge]
    for ends, charges in zip(table.ends.tolist(), edge, strict=True):
        for end, axis in zip(ends, (1, 0), strict=True):
            common = charges.min(axis=axis, keepdims=True)
            node[end] += common.reshape(-1)
            charges -= common
    interacts = [number for number, charges in enumerate(edge) if charges.any()]
    return table.charging(node, [edge[number] for number in interacts], table.ends[interacts])
