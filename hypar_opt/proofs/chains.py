"""Proofs of a lower bound on a table whose graph is a chain: potentials of its layers' choices.

Potentials ``u[l, c]``, one for each layer and choice, prove that no assignment of a chain costs
less than ``min(u[last])``, wherever they come from, if every reduced cost

    ``u[l-1, b] + edge[l-1, b, c] + node[l, c] - u[l, c]``     (``node[0, c] - u[0, c]``)

is not negative: their sum along any assignment is its cost minus its last potential.
Only allowed choices count. The dynamic program's costs-to-come are such potentials, and tight.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple

import numpy as np
from pydantic import Field, Strict

from hypar_opt.costs.table import CostTable, Limit
from hypar_opt.documents.document import Document
from hypar_opt.errors import CheckFailedError
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.proofs.graphs import Whole, allowed_choices

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TableProof(Document):
    """Potentials of one table, ``layers x choices``, and the multiplier of its capacity.

    With a capacity the potentials are those of the Lagrangian ``cost * scale + load *
    multiplier``, and prove the bound ``(min(u[last]) - multiplier * capacity) / scale``.
    """

    form: ClassVar[str] = "potentials"

    potentials: tuple[tuple[Whole, ...], ...]
    scale: Annotated[int, Strict(), Field(ge=1)] = 1
    multiplier: Annotated[int, Strict(), Field(ge=0)] = 0


class _Path(NamedTuple):
    """The cost and load of an assignment: a shortest path through a chain's choices."""

    cost: int
    load: int


def prove_chain(table: CostTable) -> TableProof:
    """Return tight potentials; with a capacity, those of the multiplier with the best bound."""
    if not table.limits:
        return TableProof(potentials=_rows(_potentials(table.node, table)))
    # The Lagrangian bound is concave and piecewise linear in the multiplier, a line for each
    # assignment. Start from the cheapest assignment and the one of the least load; where their
    # lines cross, look for one below both, until there is none: that is the maximum.
    ((load, capacity),) = table.limits
    load, node = load.astype(object), table.node.astype(object)
    cheapest, lightest = _best(table, node, load, 1, 0), _best(table, node, load, 0, 1)
    scale, multiplier = 1, 0
    while cheapest.load > capacity:
        # Exact: a rounded multiplier would prove a bound that is a little too low.
        crossing = Fraction(lightest.cost - cheapest.cost, cheapest.load - lightest.load)
        scale, multiplier = crossing.denominator, crossing.numerator
        path = _best(table, node, load, scale, multiplier)
        if path in (cheapest, lightest):
            break
        value = scale * path.cost + multiplier * path.load
        if value == scale * cheapest.cost + multiplier * cheapest.load:
            break
        if path.load > capacity:
            cheapest = path
        else:
            lightest = path
    potentials = _potentials(scale * node + multiplier * load, table, scale)
    return TableProof(potentials=_rows(potentials), scale=scale, multiplier=multiplier)


def _best(table: CostTable, node: Integers, load: Integers, scale: int, multiplier: int) -> _Path:
    """Return the assignment that minimises ``scale * cost + multiplier * load``."""
    lagrangian = scale * node + multiplier * load
    potentials = _potentials(lagrangian, table, scale)
    edge, allowed = table.chain_edges().astype(object), allowed_choices(table)
    choice = _cheapest(potentials[-1], allowed[-1])
    cost, total_load = int(node[-1, choice]), int(load[-1, choice])
    for layer in range(len(node) - 1, 0, -1):
        to_come = potentials[layer - 1] + scale * edge[layer - 1, :, choice]
        source = _cheapest(to_come, allowed[layer - 1])
        cost += int(edge[layer - 1, source, choice]) + int(node[layer - 1, source])
        total_load += int(load[layer - 1, source])
        choice = source
    return _Path(cost, total_load)


def _cheapest(costs: Integers, allowed: NDArray[np.bool_]) -> int:
    """Return the allowed choice of the lowest cost; of equals, the first."""
    choices = np.flatnonzero(allowed)
    return int(choices[costs[choices].argmin()])


def _potentials(node: Integers, table: CostTable, scale: int = 1) -> Integers:
    """Return the cost-to-come of each layer's choices: ``(layers, choices)``.

    Forbidden choices have one, too, but no path continues from them.
    """
    # Scaled by a fraction's denominator, costs may exceed int64.
    node = node.astype(object) if scale != 1 else node
    edge, allowed = table.chain_edges(), allowed_choices(table)
    potentials = node.copy()
    for layer in range(1, len(node)):
        to_come = potentials[layer - 1][:, None] + scale * edge[layer - 1].astype(node.dtype)
        potentials[layer] += to_come[allowed[layer - 1]].min(axis=0)
    return potentials


def bound_of_chain(table: CostTable, proof: TableProof, where: str) -> Fraction:
    """Return the lower bound that a table's potentials prove for all allowed assignments."""
    if not table.is_chain:
        raise CheckFailedError(f"{where}: potentials prove chains only; this graph is not a chain")
    if [len(row) for row in proof.potentials] != [table.choices] * table.layers:
        raise CheckFailedError(f"{where}: should be one potential a layer and choice")
    if proof.multiplier and not table.limits:
        raise CheckFailedError(f"{where}: a multiplier, and there is no capacity")
    # A file may hold any integers, and an overflow would prove anything: int64 only where all
    # sums fit it.
    highest = max(abs(potential) for row in proof.potentials for potential in row)
    largest = 2 * highest + proof.scale * (1 + table.max_total)
    unlimited: Limit = np.zeros(table.node.shape, object), 0
    ((load, capacity),) = table.limits or (unlimited,)
    largest += proof.multiplier * int(load.max())
    dtype = exact_dtype(largest)
    potentials = np.array(proof.potentials, dtype)
    node = (proof.scale * table.node.astype(object) + proof.multiplier * load).astype(dtype)
    edge, allowed = table.chain_edges(), allowed_choices(table)
    potentials_before: Integers = np.zeros(
        1, dtype
    )  # of a single source in front of the first layer
    for layer, allowed_here in enumerate(allowed):
        step: Integers = np.zeros((1, table.choices), dtype)
        if layer:
            step = dtype(proof.scale) * edge[layer - 1][allowed[layer - 1]].astype(dtype)
        reduced = (
            potentials_before[:, None] + (step + node[layer] - potentials[layer])[:, allowed_here]
        )
        if reduced.min() < 0:
            raise CheckFailedError(f"{where}: a reduced cost of layer {layer} is negative")
        potentials_before = potentials[layer, allowed_here]
    return Fraction(int(potentials_before.min()) - proof.multiplier * capacity, proof.scale)


def _rows(potentials: Integers) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, row)) for row in potentials.tolist())
