"""A 0-1 program as a file for other solvers: LP, as CPLEX defined it, or free MPS.

Every column is in the objective, in the program's order, so that a solution by number has an
order too. Source: the file formats in the CPLEX and GLPK reference manuals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hypar_opt.costs.pruned_table import PrunedTable
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.documents.files import check_writable, write_whole
from hypar_opt.errors import RefusedError
from hypar_opt.solvers.ilp.formulate import formulate
from hypar_opt.solvers.ilp.zero_one import ZeroOneProgram
from hypar_opt.solvers.model_names import MAX_NAME_LENGTH, column_namer, lp_name, mps_name

if TYPE_CHECKING:
    from pathlib import Path

    from hypar_opt.costs.row_names import RowNames
    from hypar_opt.costs.table import CostTable

MAX_COEFFICIENT = 2**53
"""Solvers read coefficients as doubles, which hold integers exactly up to this."""

CONSTANT = "constant"
"""A column fixed to 1, whose cost is the program's constant."""

_LINE = 200
"""Characters after which a line of an LP file is folded; some readers take 255 at most."""


_CHECK_INTERVAL = 1000
"""Lines that are written between two checks of the deadline."""


@dataclass(frozen=True)
class _Column:
    """A column of a model file: its cost and bounds, and whether it is an integer."""

    name: str
    cost: int
    low: int
    high: int | None
    is_integer: bool

    @property
    def is_binary(self) -> bool:
        return self.is_integer and (self.low, self.high) == (0, 1)


def program_columns(program: ZeroOneProgram) -> list[str]:
    """Return the program's internal names of a file's columns, in the file's order."""
    return [*program.costs, CONSTANT]


def export_program(
    table: CostTable | PrunedTable,
    path: Path,
    labels: RowNames | None,
    deadline: Deadline = NEVER,
) -> ZeroOneProgram:
    """Write a table's program with its constant, so that its optimum is the table's.

    Parameters
    ----------
    path
        Ends in ``.lp`` or ``.mps``, which decides the format.
    labels
        Names for rows and columns, which are numbered without them.

    Returns
    -------
    ZeroOneProgram
        The program that was written, except for the names.

    Raises
    ------
    RefusedError
        If the format is another, or cannot hold the costs or the names.
    """
    check_format(path)
    program = formulate(table, deadline)
    scope = table.scope if isinstance(table, PrunedTable) else ""
    write_program(program, column_namer(table, labels), path, deadline, scope)
    return program


def check_format(path: Path) -> None:
    """Refuse a file that cannot be written, or whose suffix is that of another format."""
    if path.suffix not in _WRITERS:
        raise RefusedError(f"exports a model as .lp or .mps, not as {path.suffix or path.name!r}")
    check_writable(path)


def write_program(
    program: ZeroOneProgram,
    named: Callable[[str], str],
    path: Path,
    deadline: Deadline = NEVER,
    scope: str = "",
) -> None:
    """Write a program to a file whose format `check_format` knows.

    Parameters
    ----------
    named
        From the program's internal names to plain ones.
    scope
        Which plans the program has, in words; empty for all.

    Raises
    ------
    RefusedError
        If the format cannot hold the costs or the names.
    """
    if program.largest_cost >= MAX_COEFFICIENT:
        raise RefusedError(
            f"exports costs below 2^53, which doubles hold exactly, not {program.largest_cost:,}"
        )
    spelled, comment, lines = _WRITERS[path.suffix]

    def name(internal: str) -> str:
        text = spelled(named(internal))
        if len(text) > MAX_NAME_LENGTH:
            raise RefusedError(
                f"exports names of at most {MAX_NAME_LENGTH} characters, and one has {len(text)}:"
                f" {text[:60]}..."
            )
        return text

    rows = tuple(
        replace(row, name=name(row.name), terms={name(x): term for x, term in row.terms.items()})
        for row in program.constraints
    )
    columns = list(_columns(program, name))
    deadline.check()
    written = lines(columns, replace(program, constraints=rows))
    heading = f"{comment} Has {scope}\n" if scope else ""
    write_whole(path, heading + "".join(f"{line}\n" for line in written))


def mps_lines(program: ZeroOneProgram, deadline: Deadline) -> Iterator[str]:
    """Yield the lines of a program's free MPS file, under its internal names.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    for number, line in enumerate(_mps_lines(list(_columns(program, str)), program)):
        if number % _CHECK_INTERVAL == 0:
            deadline.check()
        yield line


def _columns(program: ZeroOneProgram, name: Callable[[str], str]) -> Iterator[_Column]:
    binary = program.binary
    for column, cost in program.costs.items():
        low, high, is_integer = program.domain(column, binary)
        yield _Column(name(column), cost, low, high, is_integer)
    yield _Column(CONSTANT, program.constant, 1, 1, is_integer=False)


def _lp_lines(columns: list[_Column], program: ZeroOneProgram) -> Iterator[str]:
    yield "\\ Written by hypar-opt"
    yield "Minimize"
    yield from _folded("cost", ((column.cost, column.name) for column in columns))
    yield "Subject To"
    for row in program.constraints:
        terms = ((term, column) for column, term in row.terms.items())
        *lines, last = _folded(row.name, terms)
        yield from lines
        yield f"{last} {row.sense} {row.bound}"
    yield "Bounds"
    for column in columns:
        if column.low == column.high:
            yield f" {column.name} = {column.low}"
        elif column.high is not None and not column.is_binary:
            yield f" {column.low} <= {column.name} <= {column.high}"
    for section, are_binary in (("Binaries", True), ("Generals", False)):
        chosen = [c.name for c in columns if c.is_integer and c.is_binary is are_binary]
        if chosen:
            yield section
            yield from (f" {name}" for name in chosen)
    yield "End"


def _folded(name: str, terms: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Yield the lines of a named expression; a term is never folded."""
    line = f" {name}:"
    for coefficient, column in terms:
        sign = "-" if coefficient < 0 else "+"
        size = abs(coefficient)
        term = f"{sign} {column}" if size == 1 else f"{sign} {size} {column}"
        if len(line) + len(term) > _LINE:
            yield line
            line = " "
        line += f" {term}"
    yield line


def _mps_lines(columns: list[_Column], program: ZeroOneProgram) -> Iterator[str]:
    yield "* Written by hypar-opt; free MPS, to be minimised"
    yield "NAME hypar_opt"
    yield "ROWS"
    yield " N cost"
    entries: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for row in program.constraints:
        yield f" {_MPS_SENSES[row.sense]} {row.name}"
        for column_name, term in row.terms.items():
            entries[column_name].append((row.name, term))
    yield "COLUMNS"
    in_integers = False
    for column in columns:
        if column.is_integer is not in_integers:
            in_integers = column.is_integer
            yield f" MARKER 'MARKER' '{'INTORG' if in_integers else 'INTEND'}'"
        for row_name, term in (("cost", column.cost), *entries[column.name]):
            yield f" {column.name} {row_name} {term}"
    yield "RHS"
    yield from (f" RHS {row.name} {row.bound}" for row in program.constraints if row.bound)
    yield "BOUNDS"
    for column in columns:
        if column.low == column.high:
            yield f" FX BND {column.name} {column.low}"
        elif column.high is not None:
            yield f" UP BND {column.name} {column.high}"
    yield "ENDATA"


_MPS_SENSES = {"<=": "L", "=": "E", ">=": "G"}
_Lines = Callable[[list[_Column], ZeroOneProgram], Iterator[str]]
_WRITERS: dict[str, tuple[Callable[[str], str], str, _Lines]] = {
    ".lp": (lp_name, "\\", _lp_lines),
    ".mps": (mps_name, "*", _mps_lines),
}
"""By suffix: a name's spelling, what begins a comment, and the lines."""
