"""Certificates: a dual solution of every table that a plan's optimality rests on.

On a chain these are potentials (`hypar_opt.proofs.chains`), on any other graph a maximum flow or
messages (`hypar_opt.proofs.graphs`). Tables are derived from the plan alone
(`hypar_opt.proofs.check`), by code that the search does not use; the check needs only these, the
dual solution and sums of integers, and no solver.

Source: docs/decisions/0005-joint-optimum.md.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Discriminator, Field, Strict, Tag, model_validator

from hypar_opt.checked import checked
from hypar_opt.documents import files
from hypar_opt.documents.document import Document, Table, digest_of, rule, validate
from hypar_opt.documents.files import read_text, write_whole
from hypar_opt.documents.kinds import read_as
from hypar_opt.documents.parsing import parse_json
from hypar_opt.errors import CheckFailedError, HyparError, InputError, RefusedError
from hypar_opt.frozen import FrozenDict
from hypar_opt.plan.plan import Plan, WithOverlap
from hypar_opt.plan.schemas import WITHOUT_LAYOUTS
from hypar_opt.plan.training import SAME_SETTINGS
from hypar_opt.proofs.chains import TableProof, bound_of_chain, prove_chain
from hypar_opt.proofs.check.cuts import CutProblem, UnitSpan
from hypar_opt.proofs.check.folds import PREFIXES
from hypar_opt.proofs.check.overlap import PRICE, StatedPrices
from hypar_opt.proofs.check.priced_tables import PricedTables, priced_tables
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.proofs.check.stages import price_of_stages
from hypar_opt.proofs.check.tables import (
    ReferenceTable,
    table_over_modes,
    table_with_overlap,
    tables_by_order,
    tables_of,
)
from hypar_opt.proofs.device_memory import check_device_memory
from hypar_opt.proofs.graphs import EliminationProof, FlowProof, Whole, bound_of, prove
from hypar_opt.proofs.within_memory import best_price
from hypar_opt.results import Displayed
from hypar_opt.search.free_modes import training_left_open
from hypar_opt.units import format_percent, format_si

if TYPE_CHECKING:
    from collections.abc import Hashable

SCHEMA: Literal["hypar-opt/certificate/1"] = "hypar-opt/certificate/1"
OF_CELLS: Literal["hypar-opt/certificate/2"] = "hypar-opt/certificate/2"
"""The version of certificates with messages that several layers share, over cells."""
WITH_OVERLAP: Literal["hypar-opt/certificate/3"] = "hypar-opt/certificate/3"
"""The version of certificates of the time with overlap."""
IN_STAGES: Literal["hypar-opt/certificate/4"] = "hypar-opt/certificate/4"
"""The version of certificates of plans in pipeline stages."""

_MAX_SPANS = 64
"""The most tables that a certificate of plans in stages has."""

_ROUNDING = Fraction(1, 10**9)
"""The most by which charges, which are rounded, may differ from seconds."""

_COARSE = Fraction(1, 10**7)
"""The tolerance for a search's bound, which is in a coarser unit if sums would not fit."""


def _count(value: object) -> int:
    """Return the count of numbers in nested rows."""
    return sum(map(_count, value)) if isinstance(value, tuple) else value is not None


def _form(proof: object) -> str:
    """Return the name of a table's kind of proof in a certificate, by its keys."""
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


Price = Annotated[int, Strict(), Field(ge=0, le=PRICE)]


class Certificate(Displayed, Document):
    """A proof that a plan is optimal within its scope."""

    written_schema: ClassVar[str | None] = IN_STAGES
    read_schemas: ClassVar[tuple[str, ...]] = (SCHEMA, OF_CELLS, WITH_OVERLAP)

    schema_: Literal[
        "hypar-opt/certificate/1",
        "hypar-opt/certificate/2",
        "hypar-opt/certificate/3",
        "hypar-opt/certificate/4",
    ] = Field(default=SCHEMA, alias="schema")
    plan: str
    """A digest of the problem, the choices and the cost: the plan without its solver."""
    scope: Literal["level", "joint"]
    training: Literal["any"] | None = None
    """``any``: of all plans of as many micro-batches, whatever layers compute again and shard;
    else of those that train as the plan does."""
    price: Fraction | None = None
    """Of a byte of all accelerators, in the table's integers; with ``bound``: no plan that fits the
    memory of a device costs less than that."""
    bound: Annotated[Fraction, Field(ge=0)] | None = None
    """The least that such a plan may cost, in its cost's unit; None of a plan that is optimal."""
    overlap: Literal["gradient", "prefetch"] | None = None
    """What overlaps in the time that ``bound`` is of, in the cost's unit: no plan that trains alike
    takes less. None where it is the cost, without overlap."""
    prices: Table[str, Price] | None = None
    """Of the queue of a step with overlap, in 64ths, from the backward pass of a layer on: by the
    layers' names, in the order of these passes. The table is that of these prices."""
    forward: Price | None = None
    """That in the forward pass, until the last unit whose weights are prefetched; None of 0."""
    spans: tuple[tuple[Whole, Whole, Whole | None], ...] | None = None
    """Of plans in stages what each table is of: the first unit between two cuts, that before which
    it ends, and the number of the stage, from 0; null of these units by themselves."""
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

    @model_validator(mode="after")
    def _is_of_its_version(self) -> Self:
        with_overlap = self.schema_ == WITH_OVERLAP
        if with_overlap != (self.overlap is not None) or with_overlap != (self.prices is not None):
            raise rule(
                f"overlap and prices should be in files of {WITH_OVERLAP!r}, and there alone"
            )
        if self.forward is not None and not with_overlap:
            raise rule(f"forward should be in files of {WITH_OVERLAP!r} alone")
        if with_overlap and (self.bound is None or self.price is not None or self.training):
            raise rule("with overlap there should be a bound, no price and no training")
        if (self.schema_ == IN_STAGES) != (self.spans is not None):
            raise rule(f"spans should be in files of {IN_STAGES!r}, and there alone")
        if self.spans is not None and (self.price is not None or self.training != "any"):
            raise rule("with spans there should be no price, and training should be 'any'")
        return self

    def qualification(self, plan: Plan) -> str:
        """Return the qualification of the claim that a plan is proved optimal, as text."""
        count = plan.training.micro_batches or 1
        batch = "the batch at once" if count == 1 else f"{count:,} micro-batches"
        if self.spans is not None:
            batch = f"{plan.hierarchy.sizes[0]:,} stages, cut between blocks, and {batch}"
        qualifier = f", of all plans of {batch}" if self.training else plan.training.qualifier
        if self.price is not None:
            qualifier = f"{qualifier or SAME_SETTINGS} that fit"
        return plan.constraints.within + qualifier

    def claim(self, plan: Plan) -> str:
        """Return what is proved, and of which plans, as text."""
        if self.overlap is not None:
            return self._claim_with_overlap(plan)
        if self.bound is None:
            return f"proved ({plan.solver.scope}{self.qualification(plan)})"
        total = Fraction(plan.cost.total)
        gap = math.ceil(10**4 * (total - self.bound) / total) / 100
        return f"proved to {gap:.2f} % ({plan.solver.scope}{self.qualification(plan)})"

    def _claim_with_overlap(self, plan: Plan) -> str:
        record = plan.solver.with_overlap
        assert record is not None
        assert self.bound is not None
        alternative = f"plan with the same training settings{plan.constraints.within}"
        if _is_reached(self.bound, record.seconds, plan):
            return f"proved optimal with overlap ({self.overlap}): no {alternative} takes less"
        bound_seconds = float(self.bound) / _per_second(plan)
        excess = (
            format_percent(record.seconds / bound_seconds - 1) if bound_seconds else "all of it"
        )
        return (
            f"proved with overlap ({self.overlap}): no {alternative} takes less than"
            f" {format_si(bound_seconds, 's')}; this one takes"
            f" {format_si(record.seconds, 's')}, {excess} more"
        )

    def claimed_beyond(self, plan: Plan, bound: Fraction) -> str | None:
        """Return, as text, the claim of a plan about its cost or time that a bound does not prove.

        None if all is proved.
        """
        if self.overlap is None:
            return claimed_beyond(plan, bound)
        record = plan.solver.with_overlap
        if record is None or _is_reached(bound, record.bound, plan, _COARSE):
            return None
        if record.proved:
            return f"to take the least time with overlap ({self.overlap})"
        return f"that none takes less than {format_si(record.bound, 's')} with overlap"

    def to_json(self) -> str:
        return (
            json.dumps(self.model_dump(mode="json", by_alias=True, exclude_none=True), indent=1)
            + "\n"
        )


@checked
def certify(plan: Plan) -> Certificate:
    """Compute a proof of every table that a plan's optimality rests on.

    If the plan trains within the memory of a device, the certificate covers all plans with as many
    micro-batches, in any memory; or, if memory excludes the fastest of these, it states a ``bound``
    on those that fit. If its training was stated, the certificate covers plans with the same
    training settings. If its time with overlap was searched, it states a ``bound`` on that of plans
    with the same training settings. In stages it covers all plans of as many stages and
    micro-batches, however they are cut between blocks and train.

    Raises
    ------
    HyparError
        If the plan is not optimal within its scope, or if under a memory limit no potentials
        prove it, as there is a duality gap; the message gives the best bound and the gap.
        If a proof is larger than memory allows; the message gives what the solver claims.
    """
    check_price(plan)
    if plan.solver.with_overlap is not None:
        return _with_overlap(plan, plan.solver.with_overlap)
    if plan.is_staged:
        return _certify_cuts(plan)
    try:
        total = Fraction(plan.cost.total)
        certificate, bound = _proved(plan, tables_of(plan))
        if bound != total and (by_order := tables_by_order(plan)):
            certificate, bound = _proved(plan, by_order)
        uniform = not _leaves_modes_open(plan)
        if bound == total and not uniform and (over_modes := table_over_modes(plan)) is not None:
            modes_certificate, modes_bound = _proved(plan, [over_modes], "any")
            certificate = modes_certificate if modes_bound == total else certificate
        lacks_modes = not uniform and certificate.training is None and training_left_open(plan)
        if bound != total or lacks_modes:
            tables = priced_tables(plan, uniform=uniform)
            within = None if tables is None else _within_memory(plan, tables, uniform=uniform)
            if within is not None:
                return within
    except RefusedError as error:
        raise RefusedError(f"no certificate: {error.message}{_claimed(plan)}") from None
    if bound != total:
        gap = float((total - bound) / total)
        proven = f"{_proven_by(certificate)} prove {_amount(bound)} {plan.cost.unit}"
        costs = f"the plan costs {plan.cost.total}, a gap of {gap:.3g}"
        raise HyparError(f"no certificate: {proven}, {costs}")
    return certificate


def _with_overlap(plan: Plan, record: WithOverlap) -> Certificate:
    """Return a proof of a bound on the time with overlap, even if the plan states a higher one."""
    # Imported late: other plans need no simulator.
    from hypar_opt.search.overlap import PlansWithOverlap

    _check_seconds(plan)
    search = PlansWithOverlap(plan, record.overlap)
    forward, layers = search.prices_of_layers(record.prices)
    prices = StatedPrices(record.overlap, layers, forward)
    try:
        table = table_with_overlap(plan, prices)
        charged = Fraction(record.seconds) * _per_second(plan) / table.in_units(1)
        certificate, bound = _proved(plan, [table], None, math.ceil(charged))
    except RefusedError as error:
        raise RefusedError(f"no certificate: {error.message}") from None
    of_table = {"schema_": WITH_OVERLAP, "scope": "joint", "overlap": record.overlap}
    stated = {"prices": FrozenDict(layers), "forward": forward or None}
    return certificate.model_copy(update=of_table | stated | {"bound": max(bound, Fraction())})


def _certify_cuts(plan: Plan) -> Certificate:
    """Return a proof of a bound on all plans of as many stages and micro-batches as a plan has.

    There is a table for each unit; and for the stages of the best cuts under current bounds, until
    these stages all have tables.

    Raises
    ------
    RefusedError
        As `CutProblem`, or if a table is larger than memory allows.
    """
    proofs: dict[UnitSpan, Proof] = {}
    bounds: dict[Hashable, int] = {}
    refused: set[Hashable] = set()
    try:
        problem = CutProblem(plan)
        charge = problem.charge
        missing = [UnitSpan(unit, unit + 1) for unit in range(len(problem.units))]
        while missing and len(proofs) < _MAX_SPANS:
            for span in missing:
                kind = problem.kind(span)
                if kind in bounds:
                    continue
                try:
                    table = problem.table(span)
                    proof = _proof_of(table, table.max_total)
                except RefusedError:
                    if span.stage is None:
                        raise
                    refused.add(kind)
                    continue
                proofs[span] = proof
                bounds[kind] = math.ceil(_bound_of(table, proof, ""))
            bound = problem.bound(bounds)
            settled = refused | bounds.keys()
            missing = [span for span in bound.stages if problem.kind(span) not in settled]
            if bound.charge >= charge:
                break
    except RefusedError as error:
        raise RefusedError(f"no certificate: {error.message}") from None
    return Certificate(
        schema=IN_STAGES,
        plan=_digest(plan),
        scope=plan.solver.scope,
        training="any",
        bound=None if bound.charge == charge else bound.charge,
        spans=tuple(map(tuple, proofs)),
        tables=tuple(proofs.values()),
    )


def _bound_on_cuts(plan: Plan, certificate: Certificate) -> Fraction:
    """Return the bound on all cuts that the tables of a certificate prove.

    Raises
    ------
    CheckFailedError
        If they prove another one than it states; or naming what does not hold.
    """
    spans = [UnitSpan(*ends) for ends in certificate.spans or ()]
    if len(spans) != len(certificate.tables):
        raise CheckFailedError(f"spans: should be {len(certificate.tables)}, got {len(spans)}")
    try:
        problem = CutProblem(plan)
        bounds: dict[Hashable, int] = {}
        for index, (span, proof) in enumerate(zip(spans, certificate.tables, strict=True)):
            bound = _bound_of(problem.table(span), proof, f"tables[{index}]")
            bounds[problem.kind(span)] = math.ceil(bound)
        charge = problem.bound(bounds).charge
    except RefusedError as error:
        raise CheckFailedError(f"spans: {error.message}") from None
    stated = problem.charge if certificate.bound is None else certificate.bound
    if not charge == stated <= problem.charge:
        raise CheckFailedError(
            f"bound: should be the {_amount(charge)} {plan.cost.unit} that the tables prove,"
            f" got {_amount(stated)}"
        )
    # What the plan is charged is stated to the nearest unit.
    return Fraction(plan.cost.total) if certificate.bound is None else stated


def _amount(value: Fraction | int) -> str:
    """Return a charge to 15 digits: what a file claims may be more than a float holds."""
    with localcontext(prec=15):
        return f"{Decimal(value.numerator) / value.denominator:g}"


def _per_second(plan: Plan) -> int:
    return PREFIXES[plan.cost.unit.removesuffix("seconds")]


def _is_reached(
    bound: Fraction, seconds: float, plan: Plan, rounding: Fraction = _ROUNDING
) -> bool:
    """Return whether a bound in a plan's unit equals some seconds, up to rounding of charges."""
    return bound >= Fraction(seconds) * _per_second(plan) * (1 - rounding)


def _check_seconds(plan: Plan) -> None:
    """Check the time with overlap that a plan states, by simulation, and its bound and prices.

    Raises
    ------
    CheckFailedError
        Naming what is stated, and what it should be.
    """
    from hypar_opt.search.overlap import check_with_overlap

    try:
        check_with_overlap(plan, file="")
    except InputError as error:
        raise CheckFailedError(error.message) from None


def _leaves_modes_open(plan: Plan) -> bool:
    """Return whether recomputation or sharding was left to the search."""
    training, chosen = plan.training, training_left_open(plan)
    return any(getattr(training, key) is None or key in chosen for key in ("recompute", "shard"))


def _proved(
    plan: Plan,
    tables: list[ReferenceTable],
    training: Literal["any"] | None = None,
    enough: int | None = None,
) -> tuple[Certificate, Fraction]:
    """Return a certificate of the tables of a plan, and the bound that it proves.

    Parameters
    ----------
    enough
        A sufficient bound of a table, in its integers; by default the plan's total.
    """
    if enough is None:
        enough = math.ceil(Fraction(plan.cost.total) / tables[0].in_units(1)) if tables else 0
    proofs = tuple(_proof_of(table, enough) for table in tables)
    of_cells = any(isinstance(proof, EliminationProof) for proof in proofs)
    certificate = Certificate(
        schema=OF_CELLS if of_cells else SCHEMA,
        plan=_digest(plan),
        scope=plan.solver.scope,
        training=training,
        tables=proofs,
    )
    return certificate, _bound(tables, certificate)


def _proof_of(table: ReferenceTable, enough: int) -> TableProof | FlowProof | EliminationProof:
    return prove_chain(table.by_edge) if table.is_chain else prove(table, enough)


def _within_memory(plan: Plan, tables: PricedTables, *, uniform: bool) -> Certificate | None:
    """Return a bound on plans of as many micro-batches that fit the memory of a device.

    Of those with the same training settings, or of all. None where nothing is proved, or memory
    excludes no plan and no search calls this one optimal.

    Raises
    ------
    HyparError
        If the plan costs less than a plan that fits does.
    """
    price, enough = best_price(tables)
    if not price and plan.solver.status != "optimal":
        return None
    certificate, priced = _proved(plan, [tables.at(price)], None if uniform else "any", enough)
    bound, total = _minus_priced_memory(priced, price, tables), Fraction(plan.cost.total)
    if bound > total:
        raise HyparError("no certificate: plans that fit the memory cost more than this one")
    if bound <= 0:
        return None
    stated = None if bound == total else bound
    return certificate.model_copy(update={"price": price, "bound": stated})


def _minus_priced_memory(priced: Fraction, price: Fraction, tables: PricedTables) -> Fraction:
    """Return a bound on plans that fit, given a bound on their cost plus bytes at a price."""
    return priced - tables.in_units(price * tables.capacity)


def _claimed(plan: Plan) -> str:
    """Return, as text, the bound that a plan's solver claims, without proof, and its gap."""
    bound, total = plan.solver.bound, plan.cost.total
    if bound is None or bound >= total:
        return ""
    gap = float((Fraction(total) - Fraction(bound)) / Fraction(total))
    return f"; without a proof the solver's bound is {bound} {plan.cost.unit}, a gap of {gap:.3g}"


@checked
def check_certificate(plan: Plan, certificate: Certificate) -> Fraction:
    """Check that a certificate proves what a plan claims: that it is optimal, or its bound.

    Returns
    -------
    Fraction
        The bound that is proved, in the unit of the plan's cost: no plan costs less, of those that
        `Certificate.claim` names. Of a plan that is proved optimal it is the plan's total.

    Raises
    ------
    CheckFailedError
        Naming what does not hold, and where; or what the plan claims more.
    """
    bound = proved_bound(plan, certificate)
    if (more := certificate.claimed_beyond(plan, bound)) is not None:
        raise CheckFailedError(
            f"bound: the certificate proves {_amount(bound)} {plan.cost.unit}, and the plan"
            f" claims {more}"
        )
    return bound


def claimed_beyond(plan: Plan, bound: Fraction) -> str | None:
    """Return what a plan claims that a proved bound does not prove, as text; None if all is."""
    total, claimed = Fraction(plan.cost.total), plan.solver.bound
    if plan.solver.status == "optimal" and bound < total:
        return "to be optimal"
    # A bound that is no integer is stated as the nearest double.
    exact = float(bound) if isinstance(claimed, float) else bound
    if claimed is not None and exact < claimed:
        return f"a bound of {claimed}"
    return None


def proved_bound(plan: Plan, certificate: Certificate) -> Fraction:
    """Return the bound on plans that a certificate proves, whatever the plan claims.

    Raises
    ------
    CheckFailedError
        Naming what does not hold, and where.
    """
    if certificate.plan != _digest(plan):
        raise CheckFailedError("plan: the certificate belongs to another plan")
    if certificate.overlap is not None:
        return _bound_with_overlap(plan, certificate)
    if certificate.scope != plan.solver.scope:
        raise CheckFailedError(f"scope: should be the plan's, {plan.solver.scope!r}")
    if plan.is_staged != (certificate.spans is not None):
        raise CheckFailedError("spans: should be there of a plan in stages, and of no other")
    # First the price: tables that charge another cost would prove another bound.
    check_price(plan)
    if certificate.spans is not None:
        return _bound_on_cuts(plan, certificate)
    if certificate.price is not None or certificate.bound is not None:
        return _bound_within_memory(plan, certificate)
    several = tables_by_order(plan) if len(certificate.tables) > 1 else []
    over_modes = table_over_modes(plan) if certificate.training else None
    if certificate.training and over_modes is None:
        raise CheckFailedError("training: should be left out: no one table has all ways to train")
    bound = _bound(
        [over_modes] if over_modes is not None else several or tables_of(plan), certificate
    )
    if bound != Fraction(plan.cost.total):
        raise CheckFailedError(
            f"tables: the {_proven_by(certificate)} prove {_amount(bound)} {plan.cost.unit},"
            f" and the plan costs {plan.cost.total}"
        )
    return bound


def _bound_within_memory(plan: Plan, certificate: Certificate) -> Fraction:
    tables = priced_tables(plan, uniform=certificate.training is None)
    price = certificate.price
    if tables is None or price is None or price < 0:
        raise CheckFailedError(
            "price: should be 0 or more, of plans that train within a device's memory"
        )
    proven = _minus_priced_memory(_bound([tables.at(price)], certificate), price, tables)
    stated = Fraction(plan.cost.total) if certificate.bound is None else certificate.bound
    if not proven == stated <= Fraction(plan.cost.total):
        raise CheckFailedError(
            f"bound: should be at most the {_amount(proven)} {plan.cost.unit} that the"
            f" {_proven_by(certificate)} prove, and than the plan costs, got {_amount(stated)}"
        )
    return stated


def _bound_with_overlap(plan: Plan, certificate: Certificate) -> Fraction:
    record = plan.solver.with_overlap
    if record is None or record.overlap != certificate.overlap:
        overlap = (
            f"{record.overlap!r}, the plan's" if record else "left out, as the plan states none"
        )
        raise CheckFailedError(f"overlap: should be {overlap}, got {certificate.overlap!r}")
    if certificate.scope != "joint":
        raise CheckFailedError("scope: should be 'joint' with overlap")
    check_price(plan)
    _check_seconds(plan)
    assert certificate.prices is not None
    assert certificate.bound is not None
    prices = StatedPrices(record.overlap, certificate.prices, certificate.forward or 0)
    proven = _bound([table_with_overlap(plan, prices)], certificate)
    if not certificate.bound <= max(proven, Fraction()):
        raise CheckFailedError(
            f"bound: should be at most the {_amount(proven)} {plan.cost.unit} that the"
            f" {_proven_by(certificate)} prove, got {_amount(certificate.bound)}"
        )
    return certificate.bound


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
        that is no device's: none of these is derived a second time.
    """
    limited = plan.constraints.memory is not None and plan.problem.device_memory is None
    if plan.has_unequal_parts and (plan.cost.kind == "energy" or limited):
        what = "a memory" if limited else "energy"
        raise RefusedError(
            "plans with unequal parts in groups of accelerators are proved for bytes or time"
            f" without a memory limit, got {what}"
        )
    check_device_memory(plan)
    if plan.is_staged:  # to the nearest unit
        costs = Fraction(math.floor(price_of_stages(plan) * _per_second(plan) + Fraction(1, 2)))
    else:
        costs = price_of(plan)
    if costs != Fraction(plan.cost.total):
        raise CheckFailedError(
            f"cost, total: the plan's own choices cost {_amount(costs)} {plan.cost.unit},"
            f" derived from its network, got {plan.cost.total}"
        )


def read_certificate(path: str | Path) -> Certificate:
    """Read a certificate file.

    Raises
    ------
    InputError
        Naming what is wrong with the file.
    """
    file, text = str(path), read_text(path)
    with read_as("certificate", text, file):
        return validate(Certificate, parse_json(text, file=file), file=file)


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


def _bound(tables: list[ReferenceTable], certificate: Certificate) -> Fraction:
    """Return the lower bound that the proofs give, in the cost's unit.

    Levels add up; with tables by order, each plan is in one of them.

    Raises
    ------
    CheckFailedError
        At the first negative reduced cost, or where numbers of tables or choices differ.
    """
    if len(tables) != len(certificate.tables):
        raise CheckFailedError(f"tables: should be {len(tables)}, got {len(certificate.tables)}")
    bounds = []
    for index, (table, proof) in enumerate(zip(tables, certificate.tables, strict=True)):
        bounds.append(_bound_of(table, proof, f"tables[{index}]"))
    return min(bounds) if certificate.scope == "joint" and bounds else sum(bounds, Fraction())


def _bound_of(
    table: ReferenceTable, proof: TableProof | FlowProof | EliminationProof, where: str
) -> Fraction:
    """Return the lower bound on a table that its proof gives, in the cost's unit."""
    if isinstance(proof, TableProof):
        return table.in_units(1) * bound_of_chain(table.by_edge, proof, where)
    return table.in_units(bound_of(table, proof, where))


def _digest(plan: Plan) -> str:
    """Return a hash of a plan without its solver, whose seconds differ from run to run.

    Layouts and the array's ``model`` are left out, as in older plan files, so that their
    certificates stay valid: the cost, which is checked besides the digest, depends on the plan's
    own.
    """
    document: dict[str, Any] = plan.document()
    proven = {key: value for key, value in document.items() if key not in ("solver", "layouts")}
    proven["schema"] = WITHOUT_LAYOUTS
    if plan.array is not None:
        description = {
            k: v for k, v in plan.array.description.description().items() if k != "model"
        }
        proven["array"] |= {"description": description, "digest": digest_of(description)}
    return digest_of(proven)
