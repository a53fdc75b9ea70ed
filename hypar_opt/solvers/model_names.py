"""Names of a model's columns and rows, as ``x[conv1,H2,model]``, in the letters of each format.

A name is its kind and, in brackets, its fields. In a field, ``%``, commas and brackets are
percent-encoded (UTF-8 bytes in hexadecimal), so that every name can be parsed uniquely. CP-SAT
accepts any text. A free MPS file separates names by white space, so everything but printable ASCII
is encoded too. An LP file holds expressions, so brackets become parentheses, and everything but
ASCII letters, digits, ``_`` and ``.`` is encoded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from hypar_opt.costs.pruned_table import PrunedTable
    from hypar_opt.costs.row_names import RowNames
    from hypar_opt.costs.table import CostTable

MAX_NAME_LENGTH = 255
"""Characters of a name that CPLEX's LP format and GLPK allow."""

_SEPARATORS = re.compile(r"[%,\[\]]")
_NO_MPS = re.compile(r"[^!-~]")
_NO_LP = re.compile(r"[^A-Za-z0-9_.,%]")
_NAME = re.compile(r"(\w+)(?:\[(.*)\]|\((.*)\))", re.DOTALL)


def plain_name(kind: str, *fields: str) -> str:
    """Return a name in its plain form, as CP-SAT's models have it."""
    return f"{kind}[{','.join(_SEPARATORS.sub(_as_bytes, field) for field in fields)}]"


def mps_name(name: str) -> str:
    """Return a plain name as written in a free MPS file."""
    return _NO_MPS.sub(_as_bytes, name)


def lp_name(name: str) -> str:
    """Return a plain name as written in an LP file."""
    kind, bracket, fields = name.partition("[")
    return f"{kind}({_NO_LP.sub(_as_bytes, fields[:-1])})" if bracket else name


def fields_of(name: str) -> tuple[str, ...]:
    """Return a name's kind and fields, from any of the three forms.

    A name without fields is returned as its only entry.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return (name,)
    kind, plain, lp = match.groups()
    return (kind, *map(unquote, (lp if plain is None else plain).split(",")))


def _as_bytes(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def column_namer(table: CostTable | PrunedTable, labels: RowNames | None) -> Callable[[str], str]:
    """Return a function from a program's internal names, such as ``x_3_1``, to plain ones.

    Columns that stand for no layer, such as a knapsack's carry, keep their names, as do all
    columns without labels.
    """
    if labels is None:
        return str
    ends = [tuple(pair) for pair in table.ends.tolist()]
    parallel = Counter(ends)
    layer, level, choice = labels.layer, labels.level, labels.choice

    def edge(number: int) -> tuple[str, ...]:
        u, v = ends[number]
        # Two boundaries between the same layers are told apart by their number.
        number_if_many = (str(number),) if parallel[u, v] > 1 else ()
        return (layer(u), layer(v), level(u), *number_if_many)

    fields: Mapping[str, Callable[..., tuple[str, ...]]] = {
        "x": lambda row, c: (layer(row), level(row), choice(row, c)),
        "one": lambda row: (layer(row), level(row)),
        "z": edge,
        "both": edge,
        "over": lambda e, row: (*edge(e), layer(row)),
        "y": lambda e, c, d: (*edge(e), choice(ends[e][0], c), choice(ends[e][1], d)),
        "out": lambda e, c: (*edge(e), choice(ends[e][0], c)),
        "into": lambda e, c: (*edge(e), choice(ends[e][1], c)),
    }

    def named(name: str) -> str:
        kind, *numbers = name.split("_")
        if kind not in fields or not all(map(str.isdecimal, numbers)):
            return name
        return plain_name(kind, *fields[kind](*map(int, numbers)))

    return named
