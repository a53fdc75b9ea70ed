"""A plan: which parallelism each layer takes at each level, and what that costs.

A plan file is JSON and needs nothing beside it; its schema is ``hypar-opt/plan/1``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    BeforeValidator,
    Field,
    Strict,
    field_serializer,
    model_validator,
)

from hypar_opt.documents import (
    Document,
    Size,
    parse_json,
    rule,
    schema_name,
    validate,
    write_whole,
)
from hypar_opt.errors import HyparError
from hypar_opt.network import Name, Network
from hypar_opt.parallelism import CHOICES, Parallelism

SCHEMA: Literal["hypar-opt/plan/1"] = "hypar-opt/plan/1"
MOST_LEVELS = 64

Levels = Annotated[int, Strict(), Field(ge=0, le=MOST_LEVELS)]
Flag = Annotated[bool, Strict()]
Amount = Annotated[int, Strict(), Field(ge=0)] | Annotated[float, Strict(), Field(ge=0)]
"""Exact: a whole number, or a float where a smaller element makes halves of a byte."""


def amount(exact: Fraction) -> int | float:
    """Return a cost as a JSON number that is exactly it.

    Raises
    ------
    HyparError
        Where a broken number of bytes has more digits than a float.
    """
    if exact.denominator == 1:
        return exact.numerator
    if Fraction(float(exact)) != exact:
        raise HyparError(f"element bytes: {exact} bytes is more than a plan file can hold exactly")
    return float(exact)


class NetworkRecord(Document):
    """The network a plan is for, whole."""

    name: Name
    digest: str
    description: Network

    @classmethod
    def of(cls, network: Network) -> NetworkRecord:
        return cls(name=network.name, digest=network.digest(), description=network)

    @field_serializer("description")
    def _as_described(self, network: Network) -> dict[str, Any]:
        return network.description()

    @model_validator(mode="after")
    def _is_untouched(self) -> Self:
        if self.name != self.description.name:
            raise rule(f"name should be the description's, {self.description.name!r}")
        if self.digest != self.description.digest():
            raise rule(
                f"digest should be the description's, {self.description.digest()},"
                f" got {self.digest!r}"
            )
        return self


class Against(Document):
    """The plan beside its two baselines, all in the plan's own reading."""

    data: Amount
    model: Amount


class Ratios(Document):
    """How many times the plan's total a baseline's is; null where the plan's is 0."""

    data: Annotated[float, Field(ge=0)] | None
    model: Annotated[float, Field(ge=0)] | None


class Cost(Document):
    """What a plan costs. `hypar_opt.verify.price` makes it from the parallelism alone."""

    kind: Literal["bytes"] = "bytes"
    reading: Literal["text", "tables", "figures", "executed"]
    unit: Literal["bytes"] = "bytes"
    total: Amount
    per_level: tuple[Amount, ...]
    """H1 first, all groups of a level together; sums to ``total``."""
    executed_bytes: Amount
    """What running the plan moves, whatever reading found it."""
    data_parallel_bytes: Amount
    """What running Data Parallelism moves."""
    baselines: Against
    ratios: Ratios


class SolverRecord(Document):
    """How a plan was found, and what that is worth."""

    name: str
    search: Literal["levelwise"]
    status: Literal["optimal", "feasible"]
    scope: Literal["level"]
    """``level``: each level's table is solved, given the levels above it."""
    bound: Amount | None
    """The levels' bounds added up: with scope ``level`` never a bound over all plans."""
    seconds: Annotated[float, Field(ge=0)]
    options: dict[str, str]
    versions: dict[str, str]


class Problem(NamedTuple):
    """Every option that changes the answer, by its name on the command line."""

    batch: int
    levels: int
    reading: str
    element_bytes: int
    inference: bool


class Plan(Document):
    """One plan, priced.

    ``parallelism[level][layer]`` is a `Parallelism`; H1, the topmost level, comes first.
    """

    schema_: Annotated[Literal["hypar-opt/plan/1"], BeforeValidator(schema_name("plan", 1))] = (
        Field(default=SCHEMA, alias="schema")
    )
    network: NetworkRecord
    array: None = None
    batch: Size
    levels: Levels
    element_bytes: Size
    inference: Flag
    choices: tuple[Parallelism, ...] = CHOICES
    constraints: tuple[()] = ()
    placement: None = None
    layers: tuple[str, ...]
    parallelism: tuple[tuple[Parallelism, ...], ...]
    cost: Cost
    solver: SolverRecord

    @model_validator(mode="after")
    def _has_its_shape(self) -> Self:
        names = tuple(layer.name for layer in self.network.description.layers)
        if self.layers != names:
            raise rule("layers: should be the network's layers, in order")
        if self.choices != CHOICES:
            raise rule(f"choices: should be {json.dumps(CHOICES)}")
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
        return self

    @property
    def problem(self) -> Problem:
        return Problem(
            self.batch, self.levels, self.cost.reading, self.element_bytes, self.inference
        )

    def assignments(self) -> tuple[tuple[int, ...], ...]:
        """Return the parallelism as columns of a cost table, ``levels x layers``."""
        return tuple(tuple(map(CHOICES.index, row)) for row in self.parallelism)

    def document(self) -> dict[str, Any]:
        """Return the plan as the plain data of its file."""
        return self.model_dump(mode="json", by_alias=True)

    def to_json(self) -> str:
        """Return the text of the plan's file."""
        return json.dumps(self.document(), indent=2, allow_nan=False) + "\n"


def parallelism_of(assignments: Iterable[Iterable[int]]) -> tuple[tuple[Parallelism, ...], ...]:
    """Return columns of a cost table as the choices they stand for."""
    return tuple(tuple(CHOICES[choice] for choice in row) for row in assignments)


def parse_plan(text: str, *, file: str) -> Plan:
    """Read a plan's text: its form, its shape and its network's digest.

    That its cost is right is for `hypar_opt.verify.check_plan`.

    Raises
    ------
    InputError
        Naming the file, the key, what is wrong and what would be right.
    """
    return validate(Plan, parse_json(text, file=file), file=file)


def write_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan's file, whole or not at all."""
    write_whole(path, plan.to_json())
