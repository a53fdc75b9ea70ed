"""Certificates: a dual solution of every table that a plan's optimality rests on.

Potentials ``u[l, c]``, one for each layer and choice and from whatever source, prove that no
assignment of a chain costs less than ``min(u[last])``, if every reduced cost

    ``u[l-1, b] + edge[l-1, b, c] + node[l, c] - u[l, c]``     (``node[0, c] - u[0, c]``)

is not negative: their sum along any assignment is its cost minus its last potential.
Only allowed choices count. The dynamic program's costs-to-come are such potentials, and tight. On
any other graph a maximum flow or messages prove it: `hypar_opt.proofs.graphs`. The tables are
derived from the plan alone (`hypar_opt.proofs.reference`), by code that the search does not use;
the check needs these, the potentials and sums of integers, and no solver.

Source: docs/decisions/0005-joint-optimum.md.
"""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Strict, Tag

from hypar_opt.checked import checked
from hypar_opt.costs.table import CostTable, Integers, exact_dtype
from hypar_opt.documents import files
from hypar_opt.documents.document import Document, read_text, validate, write_whole
from hypar_opt.documents.parsing import parse_json
from hypar_opt.errors import CheckFailedError, HyparError, RefusedError
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.schemas import WITHOUT_LAYOUTS
from hypar_opt.proofs.device_memory import check_device_memory
from hypar_opt.proofs.graphs import (
    EliminationProof,
    FlowProof,
    Whole,
    allowed_choices,
    bound_of,
    prove,
    too_large,
)
from hypar_opt.proofs.reference.rows import price_of
from hypar_opt.proofs.reference.tables import allowed_states, tables_by_order, tables_of
from hypar_opt.results import Displayed

SCHEMA: Literal["hypar-opt/certificate/1"] = "hypar-opt/certificate/1"


class TableProof(Document):
    """Potentials of one table, ``layers x choices``, and of its capacity.

    With a capacity the potentials are those of the Lagrangian ``cost * scale + load *
    multiplier``, and prove the bound ``(min(u[last]) - multiplier * capacity) / scale``.
    """

    form: ClassVar[str] = "potentials"

    potentials: tuple[tuple[Whole, ...], ...]
    scale: Annotated[int, Strict(), Field(ge=1)] = 1
    multiplier: Annotated[int, Strict(), Field(ge=0)] = 0


def _count(value: object) -> int:
    """Return how many numbers are in rows of any depth."""
    return sum(map(_count, value)) if isinstance(value, tuple) else 1


def _form(proof: object) -> str:
    """Return the name of the proof that a table of a certificate has, by its keys."""
    if isinstance(proof, Document):
        return type(proof).__name__
    forms = {"pair_flows": "FlowProof", "messages": "EliminationProof"}
    keys = proof if isinstance(proof, dict) else {}
    return next((form for key, form in forms.items() if key in keys), "TableProof")


Proof = Annotated[
    Annotated[TableProof, Tag("TableProof")]
    | Annotated[FlowProof, Tag("FlowProof")]
    | Annotated[EliminationProof, Tag("EliminationProof")],
    Discriminator(_form),
]
"""Potentials of a chain; a flow, or the messages of an elimination, of another graph."""


class Certificate(Displayed, Document):
    """A proof that a plan is optimal within its scope."""

    written_schema: ClassVar[str | None] = SCHEMA

    schema_: Literal["hypar-opt/certificate/1"] = Field(default=SCHEMA, alias="schema")
    plan: str
    """A digest of the problem, the choices and the cost: the plan without its solver."""
    scope: Literal["level", "joint"]
    tables: tuple[Proof, ...]
    """One; of scope ``level`` one for each; several of ``joint`` by order of those of images."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each table that is proved: the rows of a data frame."""
        return [
            {"table": number, "proof": proof.form, "numbers": _count(tuple(dict(proof).values()))}
            for number, proof in enumerate(self.tables, 1)
        ]

    def __repr__(self) -> str:
        scope = "each level" if self.scope == "level" else "all levels together"
        numbers = sum(row["numbers"] for row in self.rows())
        return f"<Certificate of {scope}: {numbers:,} numbers, plan {self.plan[:15]}...>"

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json", by_alias=True), indent=1) + "\n"


@checked
def certify(plan: Plan) -> Certificate:
    """Compute a proof of every table that a plan's optimality rests on.

    Of a plan that trains within the memory of a device it is of all plans that train alike, in any
    memory: that no other way to train has a faster one that fits is not proved.

    Raises
    ------
    HyparError
        If the plan is not optimal within its scope, or if under a memory limit no potentials
        prove it, as there is a duality gap; the message gives the best bound and the gap.
        If a proof is larger than memory allows; the message gives what the solver claims.
    """
    check_price(plan)
    try:
        # Before the table of a graph over states is made.
        states = allowed_states(plan)
        if states is not None and (refusal := too_large(*states)):
            raise RefusedError(f"a proof over all levels {refusal}")
        total = Fraction(plan.cost.total)
        certificate, bound = _proved(plan, tables_of(plan))
        if bound != total and (by_order := tables_by_order(plan)):
            certificate, bound = _proved(plan, by_order)
    except RefusedError as error:
        raise RefusedError(f"no certificate: {error.message}{_claimed(plan)}") from None
    if bound != total:
        gap = float((total - bound) / total)
        of = " of plans that train alike, in any memory" if plan.problem.device_memory else ""
        proven = f"{_proven_by(certificate)} prove {float(bound):.15g} {plan.cost.unit}{of}"
        costs = f"the plan costs {plan.cost.total}, a gap of {gap:.3g}"
        raise HyparError(f"no certificate: {proven}, {costs}")
    return certificate


def _proved(plan: Plan, tables: list[CostTable]) -> tuple[Certificate, Fraction]:
    """Return a certificate of the tables of a plan, and the bound that it proves."""
    proofs = tuple(_prove(table) if table.is_chain else prove(table) for table in tables)
    certificate = Certificate(plan=_digest(plan), scope=plan.solver.scope, tables=proofs)
    return certificate, _bound(tables, certificate)


def _claimed(plan: Plan) -> str:
    """Return, as text, the bound that a plan's solver claims, without proof, and its gap."""
    bound, total = plan.solver.bound, plan.cost.total
    if bound is None or bound >= total:
        return ""
    gap = float((Fraction(total) - Fraction(bound)) / Fraction(total))
    return f"; without a proof the solver's bound is {bound} {plan.cost.unit}, a gap of {gap:.3g}"


@checked
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
    # First the price: tables that charge another cost would prove another bound.
    check_price(plan)
    several = tables_by_order(plan) if len(certificate.tables) > 1 else []
    bound = _bound(several or tables_of(plan), certificate)
    if bound != Fraction(plan.cost.total):
        raise CheckFailedError(
            f"tables: the {_proven_by(certificate)} prove {float(bound):.15g} {plan.cost.unit},"
            f" and the plan costs {plan.cost.total}"
        )


def _proven_by(certificate: Certificate) -> str:
    forms = dict.fromkeys(proof.form for proof in certificate.tables)
    return " and ".join("flows" if form == "flow" else form for form in forms)


def check_price(plan: Plan) -> None:
    """Check that the tables of the proof charge a plan's own choices its stated cost.

    Raises
    ------
    CheckFailedError
        If they do not, or the plan violates its own constraints.
    RefusedError
        If it has unequal parts in groups of accelerators, and is for energy, or within a memory
        that is no device's: neither is derived a second time.
    """
    limited = plan.constraints.memory is not None and plan.problem.device_memory is None
    if plan.is_shared_out and (plan.cost.kind == "energy" or limited):
        what = "a memory" if limited else "energy"
        raise RefusedError(
            f"a proof of a plan with unequal parts in groups of accelerators is of bytes or time"
            f" without a limit of memory, got {what}"
        )
    check_device_memory(plan)
    costs = price_of(plan)
    if costs != Fraction(plan.cost.total):
        raise CheckFailedError(
            f"cost, total: the plan's own choices cost {float(costs):.15g} {plan.cost.unit},"
            f" derived from its network, got {plan.cost.total}"
        )


def read_certificate(path: str | Path) -> Certificate:
    """Read a certificate file.

    Raises
    ------
    InputError
        Naming what is wrong with the file.
    """
    file = str(path)
    return validate(Certificate, parse_json(read_text(path), file=file), file=file)


def write_certificate(certificate: Certificate, path: str | Path) -> None:
    """Write a certificate file atomically: completely or not at all.

    Raises
    ------
    RefusedError
        If it is larger than the files that are read.
    """
    text = certificate.to_json()
    size = len(text.encode())
    if size > files.MAX_BYTES:
        raise RefusedError(
            f"no certificate: its file would have {size / 2**20:,.0f} MiB, and files of at most"
            f" {files.MAX_BYTES // 2**20} MiB are read; prove the plan of fewer levels or choices"
        )
    write_whole(path, text)


class _Path(NamedTuple):
    """The cost and load of an assignment: a shortest path through a chain's choices."""

    cost: int
    load: int


def _prove(table: CostTable) -> TableProof:
    """Return tight potentials; with a capacity, those of the multiplier with the best bound."""
    if table.load is None or table.capacity is None:
        return TableProof(potentials=_rows(_potentials(table.node, table)))
    # The Lagrangian bound is concave and piecewise linear in the multiplier, a line for each
    # assignment. Start from the cheapest assignment and the one of the least load; where their
    # lines cross, look for one below both, until there is none: that is the maximum.
    load = table.load.astype(object)
    node, capacity = table.node.astype(object), table.capacity
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

    Forbidden choices have one too, but no path continues from them.
    """
    # Scaled by a fraction's denominator, costs may exceed int64.
    node = node.astype(object) if scale != 1 else node
    edge, allowed = table.chain_edges(), allowed_choices(table)
    potentials = node.copy()
    for layer in range(1, len(node)):
        to_come = potentials[layer - 1][:, None] + scale * edge[layer - 1].astype(node.dtype)
        potentials[layer] += to_come[allowed[layer - 1]].min(axis=0)
    return potentials


def _bound(tables: list[CostTable], certificate: Certificate) -> Fraction:
    """Return the lower bound that the proofs give, in the cost's unit.

    Levels add up; of tables by order each plan is in one.

    Raises
    ------
    CheckFailedError
        At the first negative reduced cost, or where numbers of tables or choices differ.
    """
    if len(tables) != len(certificate.tables):
        raise CheckFailedError(f"tables: should be {len(tables)}, got {len(certificate.tables)}")
    bounds = []
    for index, (table, proof) in enumerate(zip(tables, certificate.tables, strict=True)):
        if not isinstance(proof, TableProof):
            bounds.append(table.in_units(bound_of(table, proof, f"tables[{index}]")))
            continue
        if not table.is_chain:
            raise CheckFailedError(
                f"tables[{index}]: potentials prove chains only; this graph is not a chain"
            )
        if [len(row) for row in proof.potentials] != [table.choices] * table.layers:
            raise CheckFailedError(f"tables[{index}]: should be one potential a layer and choice")
        if proof.multiplier and table.load is None:
            raise CheckFailedError(f"tables[{index}]: a multiplier, and there is no capacity")
        bounds.append(table.in_units(1) * _table_bound(table, proof, f"tables[{index}]"))
    return min(bounds) if certificate.scope == "joint" and bounds else sum(bounds, Fraction())


def _table_bound(table: CostTable, proof: TableProof, where: str) -> Fraction:
    """Return the lower bound that a table's potentials prove for all allowed assignments."""
    # A file may hold any integers, and an overflow would prove anything: int64 only where all
    # sums fit it.
    highest = max(abs(potential) for row in proof.potentials for potential in row)
    largest = 2 * highest + proof.scale * (1 + table.largest)
    load: Integers = np.zeros(table.node.shape, object) if table.load is None else table.load
    largest += proof.multiplier * int(load.max())
    dtype = exact_dtype(largest)
    potentials = np.array(proof.potentials, dtype)
    node = (proof.scale * table.node.astype(object) + proof.multiplier * load).astype(dtype)
    edge, allowed = table.chain_edges(), allowed_choices(table)
    potentials_before: Integers = np.zeros(1, dtype)  # of a single source before the first layer
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
    capacity = table.capacity or 0
    return Fraction(int(potentials_before.min()) - proof.multiplier * capacity, proof.scale)


def _rows(potentials: Integers) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, row)) for row in potentials.tolist())


def _digest(plan: Plan) -> str:
    """Return a hash of a plan without its solver, whose seconds differ from run to run.

    Layouts are left out, as in version 1 of the plan file, whose certificates stay valid: the
    cost, which is checked beside the digest, is that of the plan's own.
    """
    document: dict[str, Any] = plan.document()
    proven = {key: value for key, value in document.items() if key not in ("solver", "layouts")}
    proven["schema"] = WITHOUT_LAYOUTS
    text = json.dumps(proven, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
