"""Measured training steps as a file states them: sets of rows, with the settings of each run."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from hypar_opt.documents.document import Document, Name, Printable, file_name, read_text, rule
from hypar_opt.documents.document import validate as validated
from hypar_opt.documents.parsing import parse_toml, shown

SCHEMA: Literal["hypar-opt/measured/1"] = "hypar-opt/measured/1"

NUMBERS = (
    *("gpus", "layers", "hidden", "heads", "seq", "vocab"),
    *("tp", "pp", "dp", "mbs", "gbs"),
)
"""Columns of whole numbers, in the order of a file."""

WORDS: Mapping[str, tuple[str, ...]] = {
    "recompute": ("none", "selective", "full"),
    "attention": ("megatron", "flash"),
}
"""Columns of words, with those that are modelled; a question mark behind one says that the source
does not say."""

SETTINGS = (*NUMBERS, *WORDS, "sp", "zero", "precision")
"""Columns without which a row is not modelled."""

UNKNOWN = ("", "?")
"""What a column of settings has where the source does not say them."""

COLUMNS = ("id", "machine", *SETTINGS, "seconds")
"""The columns that a file has to have, in any order."""

Row = Mapping[str, Any]


class MeasuredSet(Document):
    """The runs of one source."""

    name: Name
    source: Printable
    trust: Printable = ""
    note: Printable = ""
    rows: Annotated[tuple[tuple[bool | int | float | str, ...], ...], Field(min_length=1)]


class MeasuredSteps(Document):
    """Runs with their settings and the seconds of a step."""

    written_schema: ClassVar[str | None] = SCHEMA

    schema_: Literal["hypar-opt/measured/1"] = Field(default=SCHEMA, alias="schema")
    columns: tuple[str, ...]
    sets: Annotated[tuple[MeasuredSet, ...], Field(min_length=1, alias="set")]

    @model_validator(mode="after")
    def _rows_have_the_columns(self) -> MeasuredSteps:
        missing = [name for name in COLUMNS if name not in self.columns]
        if missing:
            raise rule(f"columns: should have {', '.join(missing)}")
        for own in self.sets:
            for row in own.rows:
                where = f"set {own.name!r}, row {shown(row[0] if row else '')}"
                if len(row) != len(self.columns):
                    wanted = f"{len(self.columns)} values, one for each column"
                    raise rule(f"{where}: should have {wanted}, got {len(row)}")
                _check(dict(zip(self.columns, row, strict=True)), where)
        return self

    def rows_of(self, own: MeasuredSet) -> list[Row]:
        """Return a set's rows as dictionaries."""
        return [dict(zip(self.columns, row, strict=True)) for row in own.rows]


def _check(row: Row, where: str) -> None:
    for name in NUMBERS:
        value = row[name]
        if value != "" and (type(value) is not int or value < 1):
            raise rule(f"{where}, {name}: should be a whole number, or empty, got {shown(value)}")
    for name in (*WORDS, "precision"):
        if not isinstance(row[name], str):
            raise rule(f"{where}, {name}: should be a word, or empty, got {shown(row[name])}")
    if type(row["sp"]) is not bool and row["sp"] not in UNKNOWN:
        raise rule(f"{where}, sp: should be true or false, or empty, got {shown(row['sp'])}")
    zero = row["zero"]
    if zero not in UNKNOWN and (type(zero) is not int or not 0 <= zero <= 3):
        raise rule(f"{where}, zero: should be 0 to 3, or empty, got {shown(zero)}")
    early = row.get("early_stop", "")
    if type(early) is not bool and early not in UNKNOWN:
        raise rule(f"{where}, early_stop: should be true or false, or empty, got {shown(early)}")
    held = row.get("memory_gb", "")
    if not isinstance(held, str) and (type(held) not in (int, float) or not 0 < held < 1e9):
        raise rule(f"{where}, memory_gb: should be above zero, a word or empty, got {shown(held)}")
    seconds = row["seconds"]
    if seconds != "" and (type(seconds) not in (int, float) or not seconds > 0):
        raise rule(f"{where}, seconds: should be above zero, or empty, got {shown(seconds)}")


def measured_bytes(row: Row) -> int | str | None:
    """Return the bytes of a row's ``memory_gb``, or its word, such as OOM; None without either."""
    value = row.get("memory_gb", "")
    if isinstance(value, str):
        return value or None
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
    data = parse_toml(text, file=file)
    kept = {key: data[key] for key in ("schema", "columns", "set") if key in data}
    return validated(MeasuredSteps, kept, file=file)


def setting(row: Row, column: str) -> str:
    """Return the word of a column, without the mark of what the source does not say."""
    return str(row[column]).rstrip("?")
