"""A sweep's rows as one file: CSV, or Parquet where pyarrow is installed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from hypar_opt.documents.files import csv_text, write_whole
from hypar_opt.errors import HyparError, InputError
from hypar_opt.studies.sweep.case import SweepRow, cells_of


def check_table(path: str | Path) -> None:
    """Check before the work that a table can be written.

    Raises
    ------
    HyparError
        With the file, or what to install.
    """
    suffix = Path(path).suffix
    if suffix not in {".csv", ".parquet"}:
        raise InputError("should end in .csv or .parquet", file=str(path))
    if suffix == ".parquet" and find_spec("pyarrow") is None:
        raise HyparError(f"{path}: Parquet needs pyarrow: pip install 'hypar-opt[parquet]'")


def write_table(rows: Sequence[SweepRow], path: str | Path) -> None:
    """Write all rows, or nothing.

    Raises
    ------
    InputError
        If a number does not fit the format, or the file cannot be written.
    """
    if Path(path).suffix == ".parquet":
        write_whole(path, _parquet(rows, path))
    else:
        cells = cells_of(rows)
        write_whole(path, csv_text(cells[0], (row.values() for row in cells)))


def _parquet(rows: Sequence[SweepRow], path: str | Path) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    # An inferred type of a column would depend on its values, for example if all are null.
    varied = {name: _type([row.varied[name] for row in rows]) for name in rows[0].varied}
    cells = cells_of(rows)
    stated = SweepRow.model_fields.keys() & cells[0].keys()
    numbers = {int: pa.int64(), float: pa.float64()}
    types = dict.fromkeys(cells[0], pa.string()) | varied
    for name in stated:
        kind = SweepRow.model_fields[name].annotation
        members = (kind, *get_args(kind))
        types[name] = next(
            (column for number, column in numbers.items() if number in members), pa.string()
        )
    try:
        table = pa.Table.from_pylist(cells, schema=pa.schema(types.items()))
    except (pa.ArrowInvalid, OverflowError):
        problem = "a number is beyond Parquet's 64-bit integers; use .csv"
        raise InputError(problem, file=str(path)) from None
    # In memory first, so that the file is written as a whole or stays unchanged.
    stream = io.BytesIO()
    parquet.write_table(table, stream)
    return stream.getvalue()


def _type(values: Sequence[object]) -> Any:
    """Return the type of a varied column: that of its values."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.bool_()
    return pa.int64() if kinds == {int} else pa.float64() if kinds <= {int, float} else pa.string()
