"""Columns that are declared once: rows, JSON, its types and tables follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import ValidationError

from hypar_opt.display.terminal.console import table_of
from hypar_opt.results import Column, Columns, Documented, Nullable
from hypar_opt.units import format_bytes


@dataclass(frozen=True)
class Cost:
    bytes: int
    seconds: float | None


@dataclass(frozen=True)
class Entry:
    name: str
    cost: Cost
    share: float | None = None

    @property
    def double(self) -> int:
        return 2 * self.cost.bytes


ENTRIES = (Entry("a", Cost(1_500, 0.5)), Entry("b", Cost(7, None), 0.25))

COLUMNS = Columns(
    Column("id", "entry", of="name"),
    Column("bytes", "moved", format_bytes, "cost.bytes", "cost.bytes"),
    Column("double", path="cost.double"),
    Column("seconds", of="cost.seconds", path="time?.seconds"),
    Column("share", absent=None),
    Column("", "first", of=lambda own: own.name[0]),
    entry=Entry,
)


def test_rows_are_flat_and_json_nests() -> None:
    assert [*map(COLUMNS.row, ENTRIES)] == [
        {"id": "a", "bytes": 1_500, "double": 3_000, "seconds": 0.5},
        {"id": "b", "bytes": 7, "double": 14, "seconds": None, "share": 0.25},
    ]
    assert [*map(COLUMNS.document, ENTRIES)] == [
        {"id": "a", "cost": {"bytes": 1_500, "double": 3_000}, "time": {"seconds": 0.5}},
        {"id": "b", "cost": {"bytes": 7, "double": 14}, "time": None, "share": 0.25},
    ]


def test_types_are_those_of_fields_and_properties() -> None:
    model = COLUMNS.model("Entry")
    for entry in ENTRIES:
        model.model_validate(COLUMNS.document(entry))
    document = COLUMNS.document(ENTRIES[1])
    for wrong in (
        {"id": 1},
        {"cost": {"bytes": 7, "double": "x"}},
        {"cost": {"bytes": 7}},
        {"time": {"seconds": "x"}},
        {"first": "b"},
    ):
        with pytest.raises(ValidationError):
            model.model_validate(document | wrong)
    assert {name: own.is_required() for name, own in model.model_fields.items()} == {
        "id": True,
        "cost": True,
        "time": True,
        "share": False,
    }


def test_a_table_has_the_columns_with_a_heading() -> None:
    table = table_of(COLUMNS, ENTRIES, ("#", "{}".format), [1, None])
    shown = [[str(column.header), *map(str, column.cells)] for column in table.columns]
    assert shown == [
        ["#", "1", "-"],
        ["entry", "a", "b"],
        ["moved", "1.5 kB", "7 B"],
        ["first", "a", "b"],
    ]
    assert [column.justify for column in table.columns] == ["right", "left", "right", "left"]


def test_a_column_is_shown_where_entries_have_it() -> None:
    columns = Columns(Column("share", "share", shown=lambda some: any(own.share for own in some)))
    assert [len(columns.headed(ENTRIES[:n])) for n in (1, 2)] == [0, 1]


def test_some_columns_are_in_the_order_of_their_names() -> None:
    some = COLUMNS.select("seconds", "id")
    assert list(some.row(ENTRIES[0])) == ["seconds", "id"]
    assert list(some.model("Some").model_fields) == ["time", "id"]


def test_rows_are_entries_too() -> None:
    columns = Columns(Column("id", type=str), Column("share", type=float, absent=...))
    rows: list[Mapping[str, Any]] = [{"id": "a"}, {"id": "b", "share": 0.25}]
    assert [*map(columns.document, rows)] == rows
    with pytest.raises(KeyError, match="id"):
        columns.row({"share": 0.25})


@dataclass(frozen=True)
class Report(Documented):
    contents = Columns(
        "title", Column("entries", type=COLUMNS), Column("best", type=Nullable(COLUMNS))
    )

    title: str
    entries: tuple[Entry, ...]
    best: Entry | None


def test_a_document_has_documents() -> None:
    first, second = map(COLUMNS.document, ENTRIES)
    model = Report.contents.model("Report")
    for best, document in ((ENTRIES[1], second), (None, None)):
        report = Report("of two", ENTRIES, best)
        assert report.document() == {
            "title": "of two",
            "entries": [first, second],
            "best": document,
        }
        model.model_validate(report.document())
