"""Certificates: a dual solution of every table that a plan's optimality rests on.

A potential ``u[l, c]`` for each layer and choice proves, whoever found it, that no
assignment of a chain costs less than ``min(u[last])``, if every reduced cost

    ``u[l-1, b] + edge[l-1, b, c] + node[l, c] - u[l, c]``     (``node[0, c] - u[0, c]``)

is not negative: added up along any assignment they leave its cost less the last potential.
Only choices that are allowed count. The dynamic program's costs to come are such potentials,
and tight. The tables are derived from the plan alone (`hypar_opt.search.proofs`), by nothing
that the search uses; the check needs these, the potentials and sums of whole numbers, and no
solver.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, Strict

from hypar_opt.costs.table import CostTable, Integers, exact_dtype
from hypar_opt.documents import Document, parse_json, read_text, validate, write_whole
from hypar_opt.errors import CheckFailedError, HyparError
from hypar_opt.plan.plan import Plan
from hypar_opt.search.proofs.tables import price_of, tables_of

SCHEMA: Literal["hypar-opt/certificate/1"] = "hypar-opt/certificate/1"
Whole = Annotated[int, Strict()]


class TableProof(Document):
    """Potentials of one table, ``layers x choices``, and of its capacity.

    With a capacity the potentials are those of ``cost * scale + load * multiplier``, and
    prove the bound ``(min(u[last]) - multiplier * capacity) / scale``.
    """

    potentials: tuple[tuple[Whole, ...], ...]
    scale: Annotated[int, Strict(), Field(ge=1)] = 1
    multiplier: Annotated[int, Strict(), Field(ge=0)] = 0


class Certificate(Document):
    """What proves a plan optimal within its scope."""

    written_schema: ClassVar[str | None] = SCHEMA

    schema_: Literal["hypar-opt/certificate/1"] = Field(default=SCHEMA, alias="schema")
    plan: str
    """A digest of what was asked and of the choices."""
    scope: Literal["level", "joint"]
    tables: tuple[TableProof, ...]

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1) + "\n"


def certify(plan: Plan) -> Certificate:
    """Find the potentials of every table that a plan's optimality rests on.

    Raises
    ------
    HyparError
        If the plan is not optimal within its scope, or, under a memory limit, no potentials
        prove it: the message gives the best bound and the gap.
    """
    check_price(plan)
    tables = tables_of(plan)
    proofs = tuple(map(_prove, tables))
    certificate = Certificate(plan=_digest(plan), scope=plan.solver.scope, tables=proofs)
    bound = _bound(tables, certificate)
    total = Fraction(plan.cost.total)
    if bound != total:
        gap = float((total - bound) / total)
        raise HyparError(
            f"no certificate: potentials prove {float(bound):.15g} {plan.cost.unit},"
            f" the plan costs {plan.cost.total}, a gap of {gap:.3g}"
        )
    return certificate


def check_certificate(plan: Plan, certificate: Certificate) -> None:
    """Check that a certificate proves a plan optimal.

    Raises
    ------
    CheckFailedError
        Naming what does not hold, and where.
    """
    if certificate.plan != _digest(plan):
        raise CheckFailedError("plan: the certificate is of another plan")
    if certificate.scope != plan.solver.scope:
        raise CheckFailedError(f"scope: should be the plan's, {plan.solver.scope!r}")
    check_price(plan)
    bound = _bound(tables_of(plan), certificate)
    if bound != Fraction(plan.cost.total):
        raise CheckFailedError(
            f"tables: the potentials prove {float(bound):.15g} {plan.cost.unit}, and the plan"
            f" costs {plan.cost.total}"
        )


def check_price(plan: Plan) -> None:
    """Check that a plan costs what the tables that prove it charge its own choices.

    Raises
    ------
    CheckFailedError
        If it does not, or does not keep to its own constraints.
    """
    costs = price_of(plan)
    if costs != Fraction(plan.cost.total):
        raise CheckFailedError(
            f"cost, total: the plan's own choices cost {float(costs):.15g} {plan.cost.unit},"
            f" derived from its network, got {plan.cost.total}"
        )


def read_certificate(path: str | Path) -> Certificate:
    """Read a certificate's file; raise `InputError` naming what is wrong with it."""
    file = str(path)
    return validate(Certificate, parse_json(read_text(path), file=file), file=file)


def write_certificate(certificate: Certificate, path: str | Path) -> None:
    """Write a certificate's file, whole or not at all."""
    write_whole(path, certificate.to_json())


@dataclass(frozen=True)
class _Way:
    cost: int
    load: int


def _prove(table: CostTable) -> TableProof:
    """Return tight potentials; with a capacity, those of the best multiplier there is."""
    if table.load is None or table.capacity is None:
        return TableProof(potentials=_rows(_potentials(table.node, table)))
    # The bound is concave and piecewise linear in the multiplier. Start from the cheapest way
    # and the lightest; where their lines cross, look for a way below both, until there is none.
    load = table.load.astype(object)
    node, capacity = table.node.astype(object), table.capacity
    cheap, light = _best(table, node, load, 1, 0), _best(table, node, load, 0, 1)
    scale, multiplier = 1, 0
    while cheap.load > capacity:
        crossing = Fraction(light.cost - cheap.cost, cheap.load - light.load)
        scale, multiplier = crossing.denominator, crossing.numerator
        way = _best(table, node, load, scale, multiplier)
        if (way.cost, way.load) in {(cheap.cost, cheap.load), (light.cost, light.load)}:
            break
        value = scale * way.cost + multiplier * way.load
        if value == scale * cheap.cost + multiplier * cheap.load:
            break
        if way.load > capacity:
            cheap = way
        else:
            light = way
    potentials = _potentials(scale * node + multiplier * load, table, scale)
    return TableProof(potentials=_rows(potentials), scale=scale, multiplier=multiplier)


def _best(table: CostTable, node: Integers, load: Integers, scale: int, multiplier: int) -> _Way:
    """Return a way that is best in ``scale * cost + multiplier * load``."""
    both = scale * node + multiplier * load
    potentials = _potentials(both, table, scale)
    edge, allowed = table.chain_edges().astype(object), _allowed(table)
    choice = _cheapest(potentials[-1], allowed[-1])
    cost, weight = int(node[-1, choice]), int(load[-1, choice])
    for layer in range(len(node) - 1, 0, -1):
        to_come = potentials[layer - 1] + scale * edge[layer - 1, :, choice]
        before = _cheapest(to_come, allowed[layer - 1])
        cost += int(edge[layer - 1, before, choice]) + int(node[layer - 1, before])
        weight += int(load[layer - 1, before])
        choice = before
    return _Way(cost, weight)


def _cheapest(costs: Integers, allowed: NDArray[np.bool_]) -> int:
    places = np.flatnonzero(allowed)
    return int(places[costs[places].argmin()])


def _potentials(node: Integers, table: CostTable, scale: int = 1) -> Integers:
    """Return the cost to come of each layer's choices: ``(layers, choices)``.

    Those of choices that are not allowed lead nowhere.
    """
    node = node.astype(object) if scale != 1 else node
    edge, allowed = table.chain_edges(), _allowed(table)
    potentials = node.copy()
    for layer in range(1, len(node)):
        ways = potentials[layer - 1][:, None] + scale * edge[layer - 1].astype(node.dtype)
        potentials[layer] += ways[allowed[layer - 1]].min(axis=0)
    return potentials


def _allowed(table: CostTable) -> NDArray[np.bool_]:
    return np.ones(table.node.shape, bool) if table.allowed is None else table.allowed


def _bound(tables: list[CostTable], certificate: Certificate) -> Fraction:
    """Return what the potentials prove, in the cost's unit, if they prove anything.

    Raises
    ------
    CheckFailedError
        At the first reduced cost that is negative.
    """
    if len(tables) != len(certificate.tables):
        raise CheckFailedError(f"tables: should be {len(tables)}, got {len(certificate.tables)}")
    bound = Fraction()
    for number, (table, proof) in enumerate(zip(tables, certificate.tables, strict=True)):
        if [len(row) for row in proof.potentials] != [table.choices] * table.layers:
            raise CheckFailedError(f"tables[{number}]: should be one potential a layer and choice")
        if proof.multiplier and table.load is None:
            raise CheckFailedError(f"tables[{number}]: a multiplier, and there is no capacity")
        bound += table.in_units(1) * _table_bound(table, proof, f"tables[{number}]")
    return bound


def _table_bound(table: CostTable, proof: TableProof, where: str) -> Fraction:
    """Return what a table's potentials prove of all assignments of allowed choices."""
    # Whatever a file holds, nothing overflows or rounds: int64 only where all sums fit it.
    most = max(abs(number) for row in proof.potentials for number in row)
    sums = 2 * most + proof.scale * (1 + table.largest)
    load: Integers = np.zeros(table.node.shape, object) if table.load is None else table.load
    sums += proof.multiplier * int(load.max())
    number = exact_dtype(sums)
    potentials = np.array(proof.potentials, number)
    node = (proof.scale * table.node.astype(object) + proof.multiplier * load).astype(number)
    edge, allowed = table.chain_edges(), _allowed(table)
    before: Integers = np.zeros(1, number)  # what comes before the first layer costs nothing
    for layer, may in enumerate(allowed):
        step: Integers = np.zeros((1, table.choices), number)
        if layer:
            step = number(proof.scale) * edge[layer - 1][allowed[layer - 1]].astype(number)
        reduced = before[:, None] + (step + node[layer] - potentials[layer])[:, may]
        if reduced.min() < 0:
            raise CheckFailedError(f"{where}: a reduced cost of layer {layer} is negative")
        before = potentials[layer, may]
    capacity = table.capacity or 0
    return Fraction(int(before.min()) - proof.multiplier * capacity, proof.scale)


def _rows(potentials: Integers) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, row)) for row in potentials.tolist())


def _digest(plan: Plan) -> str:
    document: dict[str, Any] = plan.document()
    asked = {key: value for key, value in document.items() if key != "solver"}
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
