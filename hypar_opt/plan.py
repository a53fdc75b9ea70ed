"""A plan: which parallelism each layer takes at each level, and what that costs.

A plan file is JSON and needs nothing beside it; its schema is ``hypar-opt/plan/1``.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Strict,
    field_serializer,
    model_validator,
)

from hypar_opt.documents import (
    LARGEST_SIZE,
    Document,
    Name,
    Printable,
    Size,
    parse_json,
    rule,
    shown,
    validate,
    write_whole,
)
from hypar_opt.errors import HyparError, InputError
from hypar_opt.hardware.array import Array
from hypar_opt.network import Network
from hypar_opt.parallelism import PAPERS_CHOICES, Parallelism

SCHEMA: Literal["hypar-opt/plan/1"] = "hypar-opt/plan/1"
MOST_LEVELS = 64
ELEMENT_BYTES = (1, 2, 4, 8)
SHOWN_PINS = 4
"""Pins that a sentence names before it only counts them."""

OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}
"""Elements of state that an optimizer keeps for each weight."""

_UNITS = {"": 1, "B": 1} | {
    prefix + ending: base ** (power + 1)
    for ending, base in (("", 1000), ("B", 1000), ("i", 1024), ("iB", 1024))
    for power, prefix in enumerate("kMGTP")
}


def _element_bytes(value: int) -> int:
    if value not in ELEMENT_BYTES:
        raise rule(f"should be one of {', '.join(map(str, ELEMENT_BYTES))}, got {value}")
    return value


def _choices(value: tuple[Parallelism, ...]) -> tuple[Parallelism, ...]:
    if value not in (PAPERS_CHOICES, tuple(Parallelism)):
        raise rule(f'should be ["data", "model"], or with "output", got {json.dumps(value)}')
    return value


def _bytes(value: object) -> object:
    """Read ``8GB`` (1e9) or ``8GiB`` (2^30); whole numbers are bytes."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([kKMGTP]?i?B?)\s*", value)
    unit = found[2].replace("K", "k") if found else ""
    if found is None or unit not in _UNITS:
        raise rule(f"should be bytes, as in 8GB or 512MiB, got {value!r}")
    return int(Fraction(found[1]) * _UNITS[unit])


def _optimizer(value: object) -> object:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    is_size = type(value) is int and 0 <= value <= LARGEST_SIZE
    if not is_size and (not isinstance(value, str) or value not in OPTIMIZERS):
        known = ", ".join(OPTIMIZERS)
        raise rule(f"should be {known} or the bytes it keeps for a weight, got {shown(value)}")
    return value


Levels = Annotated[int, Strict(), Field(ge=0, le=MOST_LEVELS)]
Flag = Annotated[bool, Strict()]
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


class Constraints(Document):
    """What a plan has to keep to."""

    fix: tuple[Printable, ...] = ()
    """Pinned choices, each ``LAYER[@LEVEL]=CHOICE``; the layer may be a pattern."""
    even: Flag = False
    """Only splits that divide the batch and the channels, so that the plan can run."""
    memory: Annotated[int, BeforeValidator(_bytes), Strict(), Field(ge=1, le=2**63 - 1)] | None = (
        None
    )
    """Bytes that an accelerator has for weights, gradients, the optimizer's state, and
    feature maps and errors at each layer's input and output; for inference, weights and maps."""
    optimizer: Annotated[str | int, BeforeValidator(_optimizer)] = "sgd"
    """``sgd``, ``momentum``, ``adam``, or the bytes it keeps for each weight."""

    @property
    def any(self) -> bool:
        return bool(self.fix) or self.even or self.memory is not None

    @property
    def within(self) -> str:
        """What limits the choice, as ``with --fix conv1=model, --even``; empty if nothing does.

        It belongs into every sentence that calls a plan optimal, proved or best.
        """
        kept = [f"--fix {pin}" for pin in self.fix]
        if len(kept) > SHOWN_PINS:
            kept[SHOWN_PINS - 1 :] = [f"{len(kept) - SHOWN_PINS + 1} more pins"]
        kept += ["--even"] if self.even else []
        if self.memory is not None:
            kept.append(f"--memory {self.memory}")
            kept += [f"--optimizer {self.optimizer}"] if self.optimizer != "sgd" else []
        return f" with {', '.join(kept)}" if kept else ""

    def optimizer_bytes(self, element_bytes: int) -> int:
        """Return the bytes of the optimizer's state for each weight."""
        if isinstance(self.optimizer, int):
            return self.optimizer
        return OPTIMIZERS[self.optimizer] * element_bytes


class Record(Document):
    """A network or an array, whole."""

    name: Name
    digest: str
    description: Any

    @classmethod
    def of(cls, described: Any) -> Self:
        return cls(name=described.name, digest=described.digest(), description=described)

    @field_serializer("description")
    def _as_described(self, described: Network | Array) -> dict[str, Any]:
        return described.description()

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


class NetworkRecord(Record):
    """The network a plan is for."""

    description: Network


class ArrayRecord(Record):
    """The accelerator array a plan is for."""

    description: Array


class Asked(Document):
    """Every option that changes the answer, but for what is charged."""

    batch: Size = 256
    """Images a training step, over all accelerators."""
    levels: Levels = 4
    """Levels of the hierarchy, for 2^levels accelerators."""
    element_bytes: Annotated[int, Strict(), AfterValidator(_element_bytes)] = 4
    """Bytes of a tensor's element."""
    inference: Flag = False
    """Charge the forward pass only: no gradients and no errors."""
    choices: Annotated[tuple[Parallelism, ...], AfterValidator(_choices)] = PAPERS_CHOICES
    """What a layer may choose from."""
    level_weights: tuple[Size, ...] = ()
    """What a byte costs at each level, H1 first; empty for 1 everywhere."""
    constraints: Constraints = Constraints()
    array: ArrayRecord | None = None
    """What a plan runs on; None where only bytes count."""
    placement: tuple[Annotated[int, Strict(), Field(ge=0)], ...] | None = None
    """The bit of an accelerator's number that each level splits, H1 first; of an array."""

    @model_validator(mode="after")
    def _the_array_fits(self) -> Self:
        if (self.array is None) != (self.placement is None):
            raise rule("placement: should be there with an array, and null without")
        if self.array is None or self.placement is None:
            return self
        array = self.array.description
        if array.levels != self.levels:
            raise rule(
                f"levels: should be {array.levels}, since the array {array.name} has"
                f" {2**array.levels} accelerators, got {self.levels}"
            )
        if not array.allows(self.placement):
            raise rule(
                f"placement: should be one that the array's {array.topology.kind} allows, as"
                f" {list(array.placement)}, got {list(self.placement)}"
            )
        return self

    @model_validator(mode="after")
    def _a_weight_a_level(self) -> Self:
        if self.level_weights and len(self.level_weights) != self.levels:
            raise rule(
                f"level_weights: should be one for each of {self.levels} levels,"
                f" got {len(self.level_weights)}"
            )
        return self


class Problem(Asked):
    """What is asked of a search, validated.

    ``cost`` is what is charged: ``bytes``, or ``time`` or ``energy`` of an array; ``reading``
    is which bytes: ``text``, ``tables``, ``figures`` or ``executed``.
    """

    cost: str = "bytes"
    reading: str = "text"


class Baselines(Document):
    """The totals of Data and of Model Parallelism, in the plan's own reading."""

    data: Amount
    model: Amount


class Ratios(Document):
    """How many times the plan's total a baseline's is; null where the plan's is 0."""

    data: Ratio | None
    model: Ratio | None


class Cost(Document):
    """What a plan costs. `hypar_opt.verify.price` makes it from the parallelism alone."""

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


class Plan(Asked):
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
            if not set(row) <= set(self.choices):
                raise rule(f"parallelism[{level}]: should be among {json.dumps(self.choices)}")
        return self

    @property
    def problem(self) -> Problem:
        asked = {name: getattr(self, name) for name in Asked.model_fields}
        return Problem(cost=self.cost.kind, reading=self.cost.reading, **asked)

    def assignments(self) -> tuple[tuple[int, ...], ...]:
        """Return the parallelism as columns of a cost table, ``levels x layers``."""
        return tuple(tuple(map(self.choices.index, row)) for row in self.parallelism)

    def document(self) -> dict[str, Any]:
        """Return the plan as the plain data of its file, in the order that people read it."""
        dumped = self.model_dump(mode="json", by_alias=True)
        head = ("schema", "network", "array")
        return {key: dumped[key] for key in (*head, *(k for k in dumped if k not in head))}

    def to_json(self) -> str:
        """Return the text of the plan's file."""
        return json.dumps(self.document(), indent=2, allow_nan=False) + "\n"


def parse_plan(text: str, *, file: str) -> Plan:
    """Read a plan's text: its form, its shape and its network's digest.

    That its cost is right is for `hypar_opt.verify.check_plan`.

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
