"""A plan: the parallelism of each layer at each level, and its cost.

A plan file is JSON and self-contained; `hypar_opt.plan.schemas` has its versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import Field, PrivateAttr, Strict, model_validator

from hypar_opt.checked import checked
from hypar_opt.documents.document import Document, Name, Printable, Size, Table, rule, validate
from hypar_opt.documents.files import write_whole
from hypar_opt.documents.kinds import read_as
from hypar_opt.documents.parsing import parse_json, shown
from hypar_opt.errors import HyparError, InputError, UnknownNameError
from hypar_opt.frozen import FrozenDict
from hypar_opt.plan.constraints import Flag
from hypar_opt.plan.costs import Amount, Cost, Ratio
from hypar_opt.plan.problem import NetworkRecord, Problem, ProblemFields
from hypar_opt.plan.schemas import NEWEST, SCHEMA, STATED_SINCE, WITHOUT_LAYOUTS, schema_of
from hypar_opt.plan.stages import Stages, check_schedule, stages_of
from hypar_opt.results import Displayed
from hypar_opt.units import format_cost, format_si
from hypar_opt.workload.parallelism import PART_WORDS

_InOnePart = Annotated[str, Field(pattern=r"^part-(9|[1-9]\d{1,3})$")]

StoredLayout = (
    Literal[
        "batch",
        "channel",
        "token",
        "row",
        "column",
        "expert",
        "whole",
        "addends",
        "first",
        "second",
        "third",
        "fourth",
        "fifth",
        "sixth",
        "seventh",
        "eighth",
    ]
    | _InOnePart
)
"""How a tensor is stored: split by an axis, a replica or an addend in each part, or in one part."""


class SolverSettings(Document):
    """The solver's options that can change its answer."""

    backend: Printable | None = None
    parameters: Table[Printable, Printable] = FrozenDict()
    time_limit: Annotated[float, Field(gt=0)] | None = None
    gap: Annotated[float, Field(ge=0, le=1)] = 0.0
    threads: Size | None = None
    seed: Annotated[int, Strict(), Field(ge=0, le=2**31 - 1)] | None = None
    hint: Flag = False
    warm_start: Flag = False
    """Whether the search started from a plan; which one is not recorded."""
    simulate: Size | None = None
    """How many of the best plans were simulated; this one is the fastest of them."""


class WithOverlap(NamedTuple):
    """A plan's time with overlap, if the search minimised it.

    Parameters
    ----------
    overlap
        What may overlap, as for the simulator's option.
    seconds
        The duration of its simulated step.
    bound
        A lower bound on the seconds of all plans with the same training settings.
    without
        The seconds, with overlap, of the plan that is fastest without overlap.
    prices
        The queue's prices in the forward pass, and in pieces of the backward pass; they prove a
        bound.
    """

    overlap: str
    seconds: float
    bound: float
    without: float
    prices: tuple[float, ...]

    @property
    def proved(self) -> bool:
        """Whether no plan with the same training settings takes less."""
        return self.bound == self.seconds

    @property
    def gap(self) -> float:
        """The excess of the plan's seconds over the bound, relative to the bound."""
        return self.seconds / self.bound - 1 if self.bound else float("inf")

    @property
    def statistics(self) -> dict[str, float]:
        """Its entry among the statistics of a solver."""
        named = {"seconds": self.seconds, "bound": self.bound, "without": self.without}
        named |= {f"price {number}": price for number, price in enumerate(self.prices, 1)}
        return {f"{self.overlap} overlapped, {name}": value for name, value in named.items()}

    @classmethod
    def from_statistics(cls, statistics: Sequence[Mapping[str, float]]) -> Self | None:
        """Return the entry among statistics; None if there is none."""
        for row in statistics:
            overlap, _, name = next(iter(row), "").partition(" overlapped, ")
            if name == "seconds":
                seconds, bound, without, *prices = row.values()
                return cls(overlap, seconds, bound, without, tuple(prices))
        return None


class SolverRecord(Document):
    """The solver and search that chose a plan, and the solver's claims about it.

    A record read from a file is the file's claim; a search of ours, or a checked certificate, makes
    it our claim (`vouched`). Records are compared regardless of whose claim they are.
    """

    name: Name
    search: Literal["levelwise", "joint"]
    status: Literal["optimal", "feasible"]
    scope: Literal["level", "joint"]
    """``level``: each level's table is solved, given the levels above it; ``joint``: all
    plans are compared."""
    bound: Amount | None
    """The sum of the tables' bounds: with scope ``level`` never a bound over all plans."""
    gap: Ratio | None
    """(total - bound) / total."""
    stopped_by: Printable | None
    """The limit that ended the search before a proof."""
    found_by: str | None = None
    """The baseline whose plan this is, if a limit came before a cheaper one was known."""
    seconds: Ratio
    options: SolverSettings
    statistics: tuple[Table[str, int | float], ...]
    """For each model that was built: rows, columns, nonzeros, root bound."""
    versions: Table[Printable, Printable]

    # Private, so that no file can state it and none is written with it.
    _vouched: bool = PrivateAttr(default=False)

    @property
    def with_overlap(self) -> WithOverlap | None:
        """The result of a search of time with overlap; None without one."""
        return WithOverlap.from_statistics(self.statistics)

    @property
    def attribution(self) -> str:
        """The words before a claim of optimality that only the file makes; empty for our claims."""
        return "" if self._vouched else "its file says "

    def vouched(self, **update: Any) -> Self:
        """Return the record as our claim: our search made it, or a certificate proves it."""
        record = self.model_copy(update=update)
        # Bypasses `Document.__setattr__`: the copy is not shared yet.
        super(Document, record).__setattr__("_vouched", True)
        return record

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SolverRecord) and vars(self) == vars(other)

    def __repr__(self) -> str:
        stopped = f", stopped by {self.stopped_by}" if self.stopped_by else ""
        scope = "each level" if self.scope == "level" else "over all levels"
        seconds = format_si(self.seconds, "s")
        return (
            f"<SolverRecord {self.name} {self.search}: {self.attribution}{self.status} ({scope}),"
            f" {seconds}{stopped}>"
        )


class Plan(Displayed, ProblemFields):
    """One plan, priced.

    ``parallelism[level][layer]`` is a choice in the word of the layer's kind; H1, the topmost
    level, comes first.
    ``plan["fc1"]`` has the choices of a layer, by level; `Plan.at` those of a level, by layer.
    """

    written_schema: ClassVar[str | None] = NEWEST
    read_schemas: ClassVar[tuple[str, ...]] = (WITHOUT_LAYOUTS, SCHEMA, *STATED_SINCE)
    # Aliased, because `schema` is a method of pydantic's models.
    schema_: Literal[
        "hypar-opt/plan/1",
        "hypar-opt/plan/2",
        "hypar-opt/plan/3",
        "hypar-opt/plan/4",
        "hypar-opt/plan/5",
        "hypar-opt/plan/6",
        "hypar-opt/plan/7",
        "hypar-opt/plan/10",
        "hypar-opt/plan/11",
        "hypar-opt/plan/12",
        "hypar-opt/plan/13",
        "hypar-opt/plan/14",
        "hypar-opt/plan/15",
        "hypar-opt/plan/8",
        "hypar-opt/plan/9",
    ] = Field(default=SCHEMA, alias="schema")
    network: NetworkRecord
    layers: tuple[str, ...]
    parallelism: tuple[tuple[str, ...], ...]
    layouts: Table[str, tuple[StoredLayout, ...]] | None = None
    """How a run stores each layer's output, by the layer's name: its layout at each level, H1
    first. None in files of version 1, until `hypar_opt.read_plan` has derived it."""
    cost: Cost
    solver: SolverRecord

    @model_validator(mode="after")
    def _has_its_shape(self) -> Self:
        oldest = schema_of(self)
        for schema, (key, _) in STATED_SINCE.items():
            if (self.schema_ == schema) != (oldest == schema):
                raise rule(f"{key} should be in files of {schema!r}, and there alone")
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
            for n, (choice, words_of_node) in enumerate(zip(row, self.words, strict=True)):
                # In each layer's words: a kind may lack a choice that others have.
                if choice not in words_of_node:
                    words = " or ".join(repr(word) for word in words_of_node if word)
                    raise rule(f"parallelism[{level}][{n}]: should be {words}, got {shown(choice)}")
        return self

    @model_validator(mode="after")
    def _stores_each_output(self) -> Self:
        if self.schema_ == WITHOUT_LAYOUTS:
            if self.layouts is not None:
                raise rule(f"layouts: should be in files of {SCHEMA!r} or later")
            return self
        stored = self.layouts or {}
        wrong = min(stored.keys() - set(self.layers), default=None)
        if wrong is not None:
            raise rule(f"layouts: should be of the network's layers, got {wrong!r}")
        for name in self.layers:
            if name not in stored:
                raise rule(f"layouts: should have the layouts of every layer, not of {name!r}")
            if len(stored[name]) != self.levels:
                raise rule(
                    f"layouts, {name}: should have a layout for each of {self.levels} levels,"
                    f" got {len(stored[name])}"
                )
        return self

    @model_validator(mode="after")
    def _has_stages(self) -> Self:
        try:
            stages = self.stages
            if stages is not None:
                count = self.training.micro_batches or 1
                check_schedule(self.training.schedule, stages.parts, count, stages.chunks)
        except HyparError as error:
            raise rule(f"parallelism: {error.message}") from None
        for level, row in enumerate(self.parallelism[1:], 1):
            for n, word in enumerate(row if self.is_staged else ()):
                if word in PART_WORDS:
                    where = f"parallelism[{level}][{n}]"
                    raise rule(f"{where}: should be in no part, which H1 alone has, got {word}")
        return self

    @cached_property
    def stages(self) -> Stages | None:
        """The stages of a pipeline that its layers are in; None without, and between groups."""
        if not self.is_staged:
            return None
        parts = self.hierarchy.sizes[0]
        return stages_of(self.network.description, self.parallelism[0], parts)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The distinct words of all layers' choices, in the order of a table's columns."""
        # Kinds of layers may have different numbers of choices.
        columns = zip(*self.words, strict=True)
        return tuple(dict.fromkeys(word for column in columns for word in column if word))

    @property
    def problem(self) -> Problem:
        """The problem that the plan answers."""
        fields = {name: getattr(self, name) for name in ProblemFields.model_fields}
        return Problem(cost=self.cost.kind, reading=self.cost.reading, **fields)

    @property
    def unequal_shares(self) -> tuple[int, ...] | None:
        """The shares of groups, if H1's parts are unequal or one has all of a layer; else None."""
        of_h1 = {word for row in self.parallelism[:1] for word in row}
        shares = self.part_shares
        sided = any(word in PART_WORDS for word in of_h1)
        return shares if len({*shares}) > 1 or sided else None

    @property
    def joins_levels(self) -> bool:
        """Whether a run has one all-to-all over several levels, where it can."""
        return self.cost.reading == "joined"

    def assignments(self) -> tuple[tuple[int, ...], ...]:
        """Return the parallelism as columns of a cost table, ``levels x layers``."""
        return columns_of(self.parallelism, self.words)

    @cached_property
    def words(self) -> tuple[tuple[str | None, ...], ...]:
        """The problem's choices in the words of each layer's kind; None where it has none."""
        return self.network.description.words(self.choices)

    @property
    def level_names(self) -> tuple[str, ...]:
        """The names of the levels, the topmost first: ``H1``, ``H2``, ..."""
        return self.hierarchy.names

    def __getitem__(self, layer: str) -> dict[str, str]:
        """Return a layer's choice at each level, by the level's name.

        Raises
        ------
        UnknownNameError
            If there is no such layer; it suggests the nearest name.
        """
        if layer not in self:
            raise UnknownNameError("layer", layer, list(self.layers))
        column = self.layers.index(layer)
        choices = (row[column] for row in self.parallelism)
        return dict(zip(self.level_names, choices, strict=True))

    def __contains__(self, layer: object) -> bool:
        return isinstance(layer, str) and layer in self.layers

    def at(self, level: str) -> dict[str, str]:
        """Return each layer's choice at a level, ``H1`` or a lower one, by the layer's name.

        Raises
        ------
        UnknownNameError
            If there is no such level.
        """
        if not isinstance(level, str) or level not in self.level_names:
            raise UnknownNameError("level", level, list(self.level_names))
        row = self.parallelism[self.level_names.index(level)]
        return dict(zip(self.layers, row, strict=True))

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each layer and level: the rows of a data frame.

        Levels are numbers, 1 for H1; ``stored`` is the layout of the layer's output.
        """
        kinds = (layer.kind for layer in self.network.description.layers)
        layouts = self.layouts or {}
        return [
            {
                "layer": name,
                "kind": kind,
                "level": level,
                "choice": str(row[column]),
                "stored": str(layouts[name][level - 1]) if name in layouts else None,
            }
            for column, (name, kind) in enumerate(zip(self.layers, kinds, strict=True))
            for level, row in enumerate(self.parallelism, 1)
        ]

    def __repr__(self) -> str:
        solver, cost = self.solver, self.cost
        return (
            f"<Plan of {self.network.name}: batch {self.batch}, {self.place},"
            f" reading {cost.reading}, {solver.name} {solver.search},"
            f" {format_cost(cost.total, cost.unit)}>"
        )

    def document(self) -> dict[str, Any]:
        """Return the plan as the plain data of its file, with the header's keys first."""
        dumped = self.model_dump(mode="json", by_alias=True)
        # Keys of newer versions are written only where they differ from defaults.
        for key in ("parts", "share"):
            if dumped[key] is None:
                del dumped[key]
        if not self.constraints.runnable:
            del dumped["constraints"]["runnable"]
        if self.cost.stages is None:
            del dumped["cost"]["stages"]
        dumped["training"] = self.training.stated
        if self.is_staged:
            dumped["training"]["schedule"] = self.training.schedule
        if not dumped["training"]:
            del dumped["training"]
        head = ("schema", "network", "array")
        return {key: dumped[key] for key in (*head, *(k for k in dumped if k not in head))}

    def save(self, path: str | Path) -> None:
        """Write the plan's file, as `write_plan` does."""
        write_plan(self, path)

    def to_json(self) -> str:
        """Return the text of the plan's file."""
        return json.dumps(self.document(), indent=2, allow_nan=False) + "\n"


Words = Sequence[Sequence[str | None]]


def words_of(rows: Sequence[Sequence[int]], words: Words) -> tuple[tuple[str, ...], ...]:
    """Return assignments, ``(levels, layers)``, in the words of each layer's kind."""
    return tuple(
        tuple(
            [words_of_node[choice] or "" for words_of_node, choice in zip(words, row, strict=True)]
        )
        for row in rows
    )


def columns_of(parallelism: Words, words: Words) -> tuple[tuple[int, ...], ...]:
    """Return choices, ``(levels, layers)``, as columns of a cost table; inverts `words_of`."""
    return tuple(
        tuple(words_of_node.index(choice) for words_of_node, choice in zip(words, row, strict=True))
        for row in parallelism
    )


def parse_plan(text: str, *, file: str) -> Plan:
    """Parse a plan file's text, and check its form, its shape and its network's digest.

    `hypar_opt.search.plan_file.check_plan` checks the cost, and the layouts against the choices.

    Raises
    ------
    InputError
        Naming the file, the key, what is wrong and what would be right.
    """
    with read_as("plan", text, file):
        document = parse_json(text, file=file)
        plan = validate(Plan, document, file=file)
    # Defaults are for code that makes a plan. In a file a missing key must not silently get the
    # default of this version, which another version may change.
    keys = dict.fromkeys(plan.document())
    if plan.layouts is None:
        del keys["layouts"]
    missing = next((key for key in keys if key not in document), None)
    if missing:
        raise InputError(f"missing key {missing!r}", file=file)
    return plan


@checked
def write_plan(plan: Plan, path: str | Path) -> None:
    """Write a plan file atomically: completely or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    write_whole(path, plan.to_json())
