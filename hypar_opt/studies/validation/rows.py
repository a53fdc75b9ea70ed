"""Measured training steps as a file states them: sets of rows, with the settings of each run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from hypar_opt.documents.document import LARGEST_SIZE, Document, Name, Printable, rule
from hypar_opt.documents.document import validate as validated
from hypar_opt.documents.files import file_name, read_text
from hypar_opt.documents.kinds import read_as
from hypar_opt.documents.parsing import parse_toml, shown
from hypar_opt.workload.parallelism import RECOMPUTED, SCHEDULES

SCHEMA: Literal["hypar-opt/measured/1"] = "hypar-opt/measured/1"

SHAPE = ("layers", "hidden", "heads", "seq", "vocab")
"""Columns of a GPT's sizes, in place of which ``network`` names one."""

RUN = ("gpus", "tp", "pp", "dp", "mbs", "gbs")
"""Columns of whole numbers that say how a step ran."""

FURTHER_SHAPE = ("kv_heads", "ffn")
NOT_MODELLED: Mapping[str, str] = {
    "experts": "mixtures of experts are not modelled but by network",
    "top_k": "mixtures of experts are not modelled but by network",
    "expert_ffn": "mixtures of experts are not modelled but by network",
    "etp": "tensor parallelism inside experts is not modelled",
}
"""Columns of whole numbers above 1 of which a row is not modelled, with the reason."""

NUMBERS = (*SHAPE, *RUN, *FURTHER_SHAPE, *NOT_MODELLED, "cp", "ep", "interleave", "reduce")
"""Columns of whole numbers."""

GATED_COLUMNS = ("gated", "tied")
TRUTHS = ("sp", "early_stop", *GATED_COLUMNS)
"""Columns that are true or false."""

WORDS: Mapping[str, tuple[str, ...]] = {
    "recompute": RECOMPUTED,
    "attention": ("megatron", "flash"),
    "positions": ("learned", "rotary"),
    "optimizer": ("sgd", "momentum", "adam"),
    "schedule": SCHEDULES,
    "balance": ("blocks", "cost"),
}
"""Columns of words, with those that are modelled; a question mark behind one says that the source
does not say."""

TEXTS = ("network", "shard", "cuts")
"""Columns of text."""

SETTINGS = (*RUN, "recompute", "attention", "sp", "precision")
"""Columns without which a row is not modelled, beside those of its network and of its shards."""

UNKNOWN = ("", "?")
"""The value of a column that the source does not state."""

COLUMNS = ("id", "machine", *SETTINGS, "seconds")
"""The columns that a set has to have, in any order; and ``zero`` or ``shard``, and ``network`` or
`SHAPE`."""

KNOWN = frozenset((*COLUMNS, *NUMBERS, *TRUTHS, *WORDS, *TEXTS, "zero", "dropout", "memory_gb"))
"""All columns that are read."""

LEAST_SECONDS, MAX_SECONDS = 1e-9, 1e9
"""The bounds of a step's seconds, so that ratios and logarithms are finite."""

Row = Mapping[str, Any]


def _cell(value: object) -> object:
    """Check that a value is of a kind that some column has."""
    if isinstance(value, str):
        if not value.isprintable():
            raise rule(f"should be in printable characters, got {value!r}")
    elif not isinstance(value, bool | int | float):
        raise rule(f"should be text, a number, true or false, got {shown(value)}")
    elif isinstance(value, float) and not isfinite(value):
        raise rule(f"should be a finite number, got {value}")
    return value


Cell = Annotated[Any, BeforeValidator(_cell)]
Columns = tuple[Name, ...]


class MeasuredSet(Document):
    """The runs of one source."""

    name: Name
    source: Printable
    trust: Printable = ""
    note: Printable = ""
    columns: Columns | None = None
    """The columns; those of the file by default."""
    rows: Annotated[tuple[tuple[Cell, ...], ...], Field(min_length=1)]


class MeasuredSteps(Document):
    """Runs with their settings and the seconds of a step."""

    written_schema: ClassVar[str | None] = SCHEMA

    schema_: Literal["hypar-opt/measured/1"] = Field(default=SCHEMA, alias="schema")
    columns: Columns = ()
    sets: Annotated[tuple[MeasuredSet, ...], Field(min_length=1, alias="set")]

    @model_validator(mode="after")
    def _rows_have_the_columns(self) -> MeasuredSteps:
        for step_set in self.sets:
            columns, of_set = self._columns_of(step_set), f"set {shown(step_set.name)}, "
            where = "columns" if step_set.columns is None else f"{of_set}columns"
            if len(set(columns)) < len(columns):
                twice = next(name for name in columns if columns.count(name) > 1)
                raise rule(f"{where}: should differ, got {shown(twice)} twice")
            if missing := list(_missing(columns)):
                raise rule(f"{where}: should have {', '.join(missing)}")
            for row in step_set.rows:
                place = f"{of_set}row {shown(row[0] if row else '')}"
                if len(row) != len(columns):
                    wanted = f"{len(columns)} values, one for each column"
                    raise rule(f"{place}: should have {wanted}, got {len(row)}")
                _check(dict(zip(columns, row, strict=True)), place)
        return self

    def _columns_of(self, step_set: MeasuredSet) -> Columns:
        return self.columns if step_set.columns is None else step_set.columns

    @property
    def left_aside(self) -> tuple[str, ...]:
        """The columns that are not read."""
        columns = dict.fromkeys(
            name for step_set in self.sets for name in self._columns_of(step_set)
        )
        return tuple(name for name in columns if name not in KNOWN)

    def rows_of(self, step_set: MeasuredSet) -> list[Row]:
        """Return a set's rows as dictionaries."""
        columns = self._columns_of(step_set)
        return [dict(zip(columns, row, strict=True)) for row in step_set.rows]


def _missing(columns: Columns) -> Iterator[str]:
    yield from (name for name in COLUMNS if name not in columns)
    if "zero" not in columns and "shard" not in columns:
        yield "zero"
    if "network" not in columns:
        yield from (name for name in SHAPE if name not in columns)


def _check(row: Row, where: str) -> None:
    """Check the types of a row's values; text is allowed if the source has no value."""

    def refuse(name: str, wanted: str) -> None:
        raise rule(f"{where}, {name}: should be {wanted}, got {shown(row[name])}")

    figures = {name: value for name, value in row.items() if not isinstance(value, str)}
    for name, value in figures.items():
        whole = type(value) is int and 1 <= value <= LARGEST_SIZE
        if name in NUMBERS and not whole:
            refuse(name, f"a whole number of at most {LARGEST_SIZE:,}, or empty")
        if name == "reduce" and value not in (2, 4):
            refuse(name, "2 or 4 bytes, or empty")
        if name in TRUTHS and type(value) is not bool:
            refuse(name, "true or false, or empty")
        if name in (*WORDS, *TEXTS, "precision", "machine"):
            refuse(name, "a word, or empty")
        if name == "zero" and (type(value) is not int or not 0 <= value <= 3):
            refuse(name, "0 to 3, or empty")
        if name == "id" and isinstance(value, bool):
            refuse(name, "a name or a number")
        if name == "dropout" and (isinstance(value, bool) or not 0 <= value < 1):
            refuse(name, "from 0 to below 1, or empty")
        if name == "memory_gb" and (isinstance(value, bool) or not 1e-9 <= value < MAX_SECONDS):
            refuse(name, "a byte or more, a word or empty")
        in_bounds = not isinstance(value, bool) and LEAST_SECONDS <= value <= MAX_SECONDS
        if name == "seconds" and not in_bounds:
            refuse(name, f"above zero, from {LEAST_SECONDS:g} to {MAX_SECONDS:g}, or empty")


def measured_seconds(row: Row) -> float | None:
    """Return a row's seconds; None if the source has none, or only a word."""
    value = row["seconds"]
    return None if isinstance(value, str) else float(value)


def measured_bytes(row: Row) -> int | str | None:
    """Return the bytes of a row's ``memory_gb``, or its word, such as OOM; None without either."""
    value = row.get("memory_gb", "")
    if isinstance(value, str):
        return None if value in UNKNOWN else value
    return round(float(value) * 10**9)


def read_steps(path: str | Path | None = None) -> MeasuredSteps:
    """Read a file of measured steps; None for the published ones of the package.

    Other tables than ``columns`` and ``set`` are left aside.

    Raises
    ------
    InputError
        Naming the file, the set, the row and the column, and what would be right.
    """
    if path is None:
        file, text = "published.toml", (files(__package__) / "published.toml").read_text("utf-8")
    else:
        file, text = file_name(path), read_text(path)
    with read_as("measured", text, file):
        data = parse_toml(text, file=file)
        tables = {key: data[key] for key in ("schema", "columns", "set") if key in data}
        return validated(MeasuredSteps, tables, file=file)


def setting(row: Row, column: str) -> str:
    """Return the word of a column, without the question mark of an unstated one."""
    return str(row.get(column, "")).rstrip("?")
