"""Solution files of HiGHS, CBC, GLPK and Gurobi, recognised by their content.

Sources: HiGHS, "Solution files" in its documentation (styles 0, 1 and 4; 2 and 3 are GLPK's);
the GLPK reference manual, ``glp_write_mip`` (``glpsol --write``) and ``glp_print_mip``
(``--output``); Gurobi's reference manual, "SOL format"; CBC's user guide, ``solution``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from hypar_opt.errors import InputError


@dataclass(frozen=True)
class Solution:
    """The claims of a solution file.

    Parameters
    ----------
    program
        The solver whose format it is.
    values
        Values of columns, and perhaps of rows, by name.
    by_number
        Values of all columns in the model's order, if the format has no names.
    objective
        None if the file does not state it.
    zeros_left_out
        Whether columns that the file omits are 0.
    """

    program: str
    values: Mapping[str, float]
    by_number: Sequence[float] = ()
    objective: float | None = None
    zeros_left_out: bool = False


Lines = list[str]


def parse_solution(text: str, *, file: str) -> Solution:
    """Parse a solution file.

    Raises
    ------
    InputError
        If a line is wrong or missing; the message names the file and the line.
    """
    lines = [line.strip() for line in text.splitlines()]
    first = next(filter(None, lines), "")
    parse = next((parse for opening, parse in _FORMATS if re.match(opening, first)), None)
    if parse is None:
        raise InputError(
            "should be a solution file of HiGHS, CBC, GLPK or Gurobi, which begins in another way"
            f" than {first[:40]!r}",
            file=file,
        )
    try:
        return parse(lines)
    except InputError as error:
        raise InputError(error.problem, file=file) from None


def _highs(lines: Lines) -> Solution:
    """HiGHS, styles 0 (raw) and 4 (raw, without zeros)."""
    status = _after(lines, "Model status")
    start = _position(lines, "# Primal solution values")
    if start is None or lines[start + 1 : start + 2] in ([], ["None"], ["Infeasible"]):
        raise _no_solution(status)
    values: dict[str, float] = {}
    objective, sparse, count = None, False, 0
    for number, line in _numbered(lines, start + 2):
        words = line.split()
        if line.startswith("# Columns"):
            count = _whole(words[-1], number)
            sparse = count < 0
        elif line.startswith("#") or not words:
            if values or count:
                break
        elif words[0] == "Objective":
            objective = _number(words[-1], number)
        else:
            # Without zeros a line ends in the column's number.
            values[words[0]] = _number(words[1] if len(words) > 1 else "", number)
    if not sparse and len(values) < count:
        raise InputError(f"ends after {len(values)} of its {count} columns")
    return Solution("HiGHS", values, objective=objective, zeros_left_out=sparse)


def _highs_pretty(lines: Lines) -> Solution:
    """HiGHS, style 1: a table of columns, one of rows, then the status."""
    status = next((line for line in lines if line.startswith("Model status")), "")
    if status and "Optimal" not in status and "limit" not in status.lower():
        raise _no_solution(status.partition(":")[2].strip())
    values: dict[str, float] = {}
    for number, line in _numbered(lines, 2):
        if line == "Rows" or not line:
            break
        words = line.split()
        # A basis' status may stand before the bounds; after them come value, dual, type and name.
        words = words[1 if _is_number("".join(words[1:2])) else 2 :]
        if len(words) < 4:
            raise _wrong(number, line)
        values[words[-1]] = _number(words[2], number)
    text = next((line for line in lines if line.startswith("Objective value:")), "")
    objective = float(text.partition(":")[2]) if _is_number(text.partition(":")[2]) else None
    return Solution("HiGHS", values, objective=objective)


def _cbc(lines: Lines) -> Solution:
    """CBC's ``solution``: a headline, then number, name, value and reduced cost.

    Columns that are 0 may be left out, and rows come first if all is printed.
    """
    start, headline = next((n, line) for n, line in _numbered(lines, 0) if line)
    status, _, amount = headline.partition(" - objective value ")
    if re.match(r"(Infeasible|Integer infeasible|Unbounded)", status) or not amount:
        raise _no_solution(status)
    values: dict[str, float] = {}
    for number, line in _numbered(lines, start):
        # Two stars mark a value outside its bounds, which the plan's checks will find.
        words = line.removeprefix("**").split()
        if words and len(words) < 3:
            raise _wrong(number, line)
        if words:
            values[words[1]] = _number(words[2], number)
    return Solution("CBC", values, objective=_number(amount, start), zeros_left_out=True)


def _glpk_raw(lines: Lines) -> Solution:
    """GLPK's ``--write``, and HiGHS' style 2: values by number; ``e o f`` ends it."""
    values: list[float] = []
    objective, columns, ended = None, 0, False
    for number, line in _numbered(lines, 0):
        words = line.split()
        match words:
            case ["s", "mip", _, count, status, amount]:
                if status not in ("o", "f"):
                    raise _no_solution({"u": "undefined", "n": "none exists"}.get(status, status))
                columns, objective = _whole(count, number), _number(amount, number)
            case ["s", kind, *_]:
                raise InputError(f"should be of an integer program (s mip), got s {kind}")
            case ["j", column, value]:
                if _whole(column, number) != len(values) + 1:
                    raise _wrong(number, line)
                values.append(_number(value, number))
            case ["e", "o", "f"]:
                ended = True
    if not ended or len(values) != columns:
        raise InputError(f"ends after {len(values)} of its {columns} columns")
    return Solution("GLPK", {}, values, objective)


def _glpk_printed(lines: Lines) -> Solution:
    """GLPK's ``--output``, and HiGHS' style 3; a long name is on a separate line."""
    status = _value(lines, "Status:")
    if "OPTIMAL" not in status and "FEASIBLE" not in status:
        raise _no_solution(status)
    objective = re.search(r"= *(\S+)", _value(lines, "Objective:"))
    count = _whole((_value(lines, "Columns:").split() or [""])[0], 3)
    start = next((n for n, line in enumerate(lines) if line.startswith("No. Column name")), None)
    if start is None:
        raise InputError("should have a table of columns")
    values: dict[str, float] = {}
    name = ""
    for number, line in _numbered(lines, start + 2):
        if not line:
            break
        words = line.split()
        if not name:
            name, words = words[1] if len(words) > 1 else "", words[2:]
        # The star marks an integer; of an LP a basis' status stands there.
        words = [word for word in words if word not in ("*", "B", "NL", "NU", "NF", "NS")]
        if words:
            values[name], name = _number(words[0], number), ""
    if len(values) < count:
        raise InputError(f"ends after {len(values)} of its {count} columns")
    return Solution(
        "GLPK", values, objective=None if objective is None else _number(objective[1], 6)
    )


def _gurobi(lines: Lines) -> Solution:
    """Gurobi's SOL: one name and value per line; a comment states the objective."""
    values: dict[str, float] = {}
    objective = None
    for number, line in _numbered(lines, 0):
        if line.startswith("#"):
            stated = re.search(r"[Oo]bjective value *= *(\S+)", line)
            objective = _number(stated[1], number) if stated else objective
        elif line:
            words = line.split()
            if len(words) != 2:
                raise _wrong(number, line)
            values[words[0]] = _number(words[1], number)
    return Solution("Gurobi", values, objective=objective)


_FORMATS: tuple[tuple[str, Callable[[Lines], Solution]], ...] = (
    (r"Model status$", _highs),
    (r"Columns$", _highs_pretty),
    (r"Problem:", _glpk_printed),
    (r"c |c$|s (mip|bas|ipt) ", _glpk_raw),
    (r".* - objective value |Infeasible|Integer infeasible|Unbounded", _cbc),
    (r"#|[A-Za-z_]\S*\s+[-+.\d]\S*$", _gurobi),
)
"""The formats by the beginning of their first line."""


def _numbered(lines: Lines, start: int) -> Iterator[tuple[int, str]]:
    """Yield the lines from a position on, each with its number in the file."""
    for position in range(start, len(lines)):
        yield position + 1, lines[position]


def _position(lines: Lines, heading: str) -> int | None:
    return lines.index(heading) if heading in lines else None


def _after(lines: Lines, heading: str) -> str:
    position = _position(lines, heading)
    return "" if position is None else "".join(lines[position + 1 : position + 2])


def _value(lines: Lines, key: str) -> str:
    return next((line.removeprefix(key).strip() for line in lines if line.startswith(key)), "")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(text: str, number: int) -> float:
    if not _is_number(text):
        raise InputError(f"line {number}: should be a number, got {text[:40]!r}")
    return float(text)


def _whole(text: str, number: int) -> int:
    # A bound on the digits, since int() is slow for long ones.
    if not re.fullmatch(r"-?\d{1,9}", text):
        raise InputError(f"line {number}: should be a whole number, got {text[:40]!r}")
    return int(text)


def _wrong(number: int, line: str) -> InputError:
    return InputError(f"line {number}: should be a column and its value, got {line[:40]!r}")


def _no_solution(status: str) -> InputError:
    return InputError(f"should have a solution; its status is {status.strip()[:60] or 'none'!r}")
