"""A plan: which parallelism each layer takes at each level, and what that costs.

A plan file is JSON and needs nothing beside it; its schema is ``hypar-opt/plan/1``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, Strict, model_validator

from hypar_opt.documents import (
    Document,
    Name,
    Printable,
    Size,
    parse_json,
    rule,
    validate,
    write_whole,
)
from hypar_opt.errors import HyparError, InputError
from hypar_opt.plan.problem import Flag, NetworkRecord, Problem, ProblemFields
from hypar_opt.workload.parallelism import Parallelism

SCHEMA: Literal["hypar-opt/plan/1"] = "hypar-opt/plan/1"

Ratio = Annotated[float, Strict(), Field(ge=0)]
Amount = Annotated[int, Strict(), Field(ge=0)] | Annotated[float, Strict(), Field(ge=0)]
"""Exact: a whole number, or a float where a smaller element makes halves of a byte."""


def json_number(exact: Fraction) -> int | float:
    """Return a cost as a JSON number that is exactly it.

    Raises
    ------
    HyparError
        Where a broken number of bytes has more digits than a float.
    """
    if exact.denominator == 1:
        return exact.numerator
    if Fraction(float(exact)) != exact:
        raise HyparError(
            "element bytes: the total is a broken number of bytes with more digits than a plan"
            " file holds exactly; take 4, or fewer levels"
        )
    return float(exact)


class Baselines(Document):
    """The totals of Data and of Model Parallelism, in the plan's own reading."""

    data: Amount
    model: Amount


class Ratios(Document):
    """How many times the plan's total a baseline's is; null where the plan's is 0."""

    data: Ratio | None
    model: Ratio | None


class Cost(Document):
    """What a plan costs. `hypar_opt.search.pricing.price` makes it from the parallelism alone."""

    kind: str = "bytes"
    reading: str
    unit: str
    """``bytes``, ``weighted bytes``; ``femtoseconds``, ``femtojoules`` or a coarser unit where
    the largest sum would not fit 64 bits; or another cost's own."""
    total: Amount
    per_level: tuple[Amount, ...]
    """H1 first, all groups of a level together; sums to ``total``."""
    communication: tuple[Amount, ...] | None = None
    """Of ``per_level``, what exchanges have; the rest is compute and local memory. Null where
    that is all."""
    executed_bytes: Amount | None
    """What running the plan moves, whatever reading found it; null with output parallelism,
    for which no run has been measured."""
    data_parallel_bytes: Amount
    """What running Data Parallelism moves."""
    baselines: Baselines
    ratios: Ratios


class SolverSettings(Document):
    """The options that were given to the solver, of those that can change its answer."""

    backend: Printable | None = None
    parameters: dict[Printable, Printable] = Field(default_factory=dict)
    time_limit: Annotated[float, Field(gt=0)] | None = None
    gap: Annotated[float, Field(ge=0, le=1)] = 0.0
    threads: Size | None = None
    seed: Annotated[int, Strict(), Field(ge=0, le=2**31 - 1)] | None = None
    hint: Flag = False
    warm_start: Flag = False
    """Whether the search started from a plan; which one is not recorded."""
    simulate: Size | None = None
    """Of how many of the best plans this is the fastest when simulated."""


class SolverRecord(Document):
    """How a plan was found, and what the solver says that is worth."""

    name: Name
    search: Literal["levelwise", "joint"]
    status: Literal["optimal", "feasible"]
    scope: Literal["level", "joint"]
    """``level``: each level's table is solved, given the levels above it; ``joint``: all
    plans are compared."""
    bound: Amount | None
    """The tables' bounds added up: with scope ``level`` never a bound over all plans."""
    gap: Ratio | None
    """(total - bound) / total."""
    stopped_by: Printable | None
    """What ended the search before a proof."""
    found_by: str | None = None
    """Whose plan this is, where a limit came and the search's own was no better: a baseline's."""
    seconds: Ratio
    options: SolverSettings
    statistics: tuple[dict[str, int | float], ...]
    """Of each model that was built: rows, columns, nonzeros, root bound."""
    versions: dict[Printable, Printable]


class Plan(ProblemFields):
    """One plan, priced.

    ``parallelism[level][layer]`` is a `Parallelism`; H1, the topmost level, comes first.
    """

    written_schema: ClassVar[str | None] = SCHEMA

    schema_: Literal["hypar-opt/plan/1"] = Field(default=SCHEMA, alias="schema")
    network: NetworkRecord
    layers: tuple[str, ...]
    parallelism: tuple[tuple[Parallelism, ...], ...]
    cost: Cost
    solver: SolverRecord

    @model_validator(mode="after")
    def _has_its_shape(self) -> Self:
        names = tuple(layer.name for layer in self.network.description.layers)
        if self.layers != names:
            raise rule("layers: should be the network's layers, in order")
        if len(self.parallelism) != self.levels:
            raise rule(
                f"parallelism: should have a row for each of {self.levels} levels,"
                f" got {len(self.parallelism)}"
            )
        for level, row in enumerate(self.parallelism):
            if len(row) != len(names):
                raise rule(
                    f"parallelism[{level}]: should have a choice for each of {len(names)} layers,"
                    f" got {len(row)}"
                )
            for choice, known in zip(row, self.words, strict=True):
                if choice not in known:
                    raise rule(f"parallelism[{level}]: should be among {json.dumps(known)}")
        return self

    @property
    def vocabulary(self) -> tuple[Parallelism, ...]:
        """The words of all layers' choices, once each, those of the first column first."""
        columns = zip_longest(*self.words)
        return tuple(dict.fromkeys(word for column in columns for word in column if word))

    @property
    def problem(self) -> Problem:
        asked = {name: getattr(self, name) for name in ProblemFields.model_fields}
        return Problem(cost=self.cost.kind, reading=self.cost.reading, **asked)

    def assignments(self) -> tuple[tuple[int, ...], ...]:
        """Return the parallelism as columns of a cost table, ``levels x layers``."""
        return columns_of(self.parallelism, self.words)

    @cached_property
    def words(self) -> tuple[tuple[Parallelism, ...], ...]:
        """What each layer may choose from, in its kind's words: a column of a table each."""
        return self.network.description.choices(len(self.choices))

    def document(self) -> dict[str, Any]:
        """Return the plan as the plain data of its file, in the order that people read it."""
        dumped = self.model_dump(mode="json", by_alias=True)
        head = ("schema", "network", "array")
        return {key: dumped[key] for key in (*head, *(k for k in dumped if k not in head))}

    def to_json(self) -> str:
        """Return the text of the plan's file."""
        return json.dumps(self.document(), indent=2, allow_nan=False) + "\n"


Words = Sequence[Sequence[Parallelism]]


def words_of(rows: Sequence[Sequence[int]], words: Words) -> tuple[tuple[Parallelism, ...], ...]:
    """Return assignments, levels x layers, in the words of each layer's kind."""
    return tuple(
        tuple(known[choice] for known, choice in zip(words, row, strict=True)) for row in rows
    )


def columns_of(parallelism: Words, words: Words) -> tuple[tuple[int, ...], ...]:
    """Return choices, levels x layers, as columns of a cost table: what `words_of` undoes."""
    return tuple(
        tuple(known.index(choice) for known, choice in zip(words, row, strict=True))
        for row in parallelism
    )


def parse_plan(text: str, *, file: str) -> Plan:
    """Read a plan's text: its form, its shape and its network's digest.

    That its cost is right is for `hypar_opt.search.pricing.check_plan`.

    Raises
    ------
    InputError
        Naming the file, the key, what is wrong and what would be right.
    """
    document = parse_json(text, file=file)
    plan = validate(Plan, document, file=file)
    # Defaults serve those who make a plan; one that is read has to say all of it.
    missing = next((key for key in plan.document() if key not in document), None)
    if missing:
        raise InputError(f"missing key {missing!r}", file=file)
    return plan


def write_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan's file, whole or not at all."""
    write_whole(path, plan.to_json())
