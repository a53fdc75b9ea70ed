"""Certificates: a dual solution of every table that a plan's optimality rests on.

A potential ``u[l, c]`` for each layer and choice proves, whoever found it, that no
assignment of a chain costs less than ``min(u[last])``, if every reduced cost

    ``u[l-1, b] + edge[l-1, b, c] + node[l, c] - u[l, c]``     (``node[0, c] - u[0, c]``)

is not negative: added up along any assignment they leave its cost less the last potential.
The dynamic program's costs to come are such potentials, and tight. The check needs the
plan, the potentials and sums of whole numbers, and no solver.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, Strict

from hypar_opt.costs import COSTS
from hypar_opt.costs.base import Splits, level_table
from hypar_opt.costs.product import canonical_states, expanded
from hypar_opt.costs.table import CostTable, Integers, side_by_side
from hypar_opt.documents import Document, parse_json, read_text, validate, write_whole
from hypar_opt.errors import CheckFailedError, HyparError
from hypar_opt.graph import layer_graph
from hypar_opt.limits import Limits
from hypar_opt.partition import threshold_tables
from hypar_opt.plan import Plan
from hypar_opt.shapes import Shapes

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
    proofs = [_prove(table) for table in tables_of(plan)]
    certificate = Certificate(plan=_digest(plan), scope=plan.solver.scope, tables=tuple(proofs))
    bound = _bound(plan, certificate)
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
    bound = _bound(plan, certificate)
    if bound != plan.cost.total:
        raise CheckFailedError(
            f"tables: the potentials prove {float(bound):.15g} {plan.cost.unit}, and the plan"
            f" costs {plan.cost.total}"
        )


def tables_of(plan: Plan) -> list[CostTable]:
    """Return the tables of a plan's search: one a level, or one for all levels.

    Each is a chain, or chains side by side, whose forbidden choices are priced out.
    """
    shapes = Shapes.of(layer_graph(plan.network.description), plan.batch)
    cost = COSTS[plan.cost.kind].asked(plan.problem, shapes)
    limits = Limits(plan, shapes)
    if plan.levels == 0:
        return []
    if plan.solver.scope == "level":
        tables = []
        splits = Splits.none(len(shapes.layers), cost.choices)
        for row in plan.assignments():
            tables.append(limits.level(level_table(cost, shapes, splits), splits))
            splits = splits.after(row)
    elif (thresholds := cost.thresholds(shapes)) is not None and not limits.any:
        tables = [side_by_side(threshold_tables(thresholds, plan.levels))]
    else:
        states = canonical_states(plan.levels, cost.choices)
        tables = [limits.states(expanded(cost, shapes, plan.levels), states)]
    return [table.priced_out()[0] for table in tables]


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
    edge = table.chain_edges().astype(object)
    choice = int(potentials[-1].argmin())
    cost, weight = int(node[-1, choice]), int(load[-1, choice])
    for layer in range(len(node) - 1, 0, -1):
        before = int((potentials[layer - 1] + scale * edge[layer - 1, :, choice]).argmin())
        cost += int(edge[layer - 1, before, choice]) + int(node[layer - 1, before])
        weight += int(load[layer - 1, before])
        choice = before
    return _Way(cost, weight)


def _potentials(node: Integers, table: CostTable, scale: int = 1) -> Integers:
    """Return the cost to come of each layer's choices: ``(layers, choices)``."""
    node = node.astype(object) if scale != 1 else node
    edge = table.chain_edges()
    potentials = node.copy()
    for layer in range(1, len(node)):
        ways = potentials[layer - 1][:, None] + scale * edge[layer - 1].astype(node.dtype)
        potentials[layer] += ways.min(axis=0)
    return potentials


def _bound(plan: Plan, certificate: Certificate) -> Fraction:
    """Return what the potentials prove, in the cost's unit, if they prove anything.

    Raises
    ------
    CheckFailedError
        At the first reduced cost that is negative.
    """
    tables = tables_of(plan)
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
    # Python's integers throughout: whatever a file holds, nothing overflows or rounds.
    potentials = np.array(proof.potentials, object)
    node = proof.scale * table.node.astype(object)
    if table.load is not None:
        node = node + proof.multiplier * table.load.astype(object)
    edge = proof.scale * table.chain_edges().astype(object)
    for layer, reduced in _reduced_costs(potentials, node, edge):
        if reduced.min() < 0:
            raise CheckFailedError(f"{where}: a reduced cost of layer {layer} is negative")
    capacity = table.capacity or 0
    return Fraction(int(potentials[-1].min()) - proof.multiplier * capacity, proof.scale)


def _reduced_costs(
    potentials: Integers, node: Integers, edge: Integers
) -> Iterator[tuple[int, Integers]]:
    yield 0, node[0] - potentials[0]
    for layer in range(1, len(node)):
        yield (
            layer,
            potentials[layer - 1][:, None]
            + edge[layer - 1]
            + (node[layer] - potentials[layer])[None, :],
        )


def _rows(potentials: Integers) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, row)) for row in potentials.tolist())


def _digest(plan: Plan) -> str:
    document: dict[str, Any] = plan.document()
    asked = {key: value for key, value in document.items() if key != "solver"}
    text = json.dumps(asked, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
