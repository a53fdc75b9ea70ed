"""The text of TOML and JSON files, parsed strictly, with one-line errors."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

from hypar_opt.checked import MAX_BITS
from hypar_opt.errors import InputError

_LONG = re.compile(r"[0-9_]{1001}")

MAX_DEPTH = 64
"""The deepest nesting of tables and arrays in a file."""


def parse_toml(text: str, *, file: str) -> dict[str, Any]:
    """Parse TOML.

    Raises
    ------
    InputError
        Naming the file, and the line of a syntax error.
    """
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise InputError(f"should be TOML: {_reason(error, text)}", file=file) from None
    check_values(data, file)
    return data


def parse_json(text: str, *, file: str) -> Any:
    """Parse JSON without NaN, infinities or duplicate keys.

    Raises
    ------
    InputError
        Naming the file and what is wrong.
    """

    # json keeps the last of two equal keys, silently.
    def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, value in pairs:
            if key in table:
                raise ValueError(f"key {key!r} is given twice")
            table[key] = value
        return table

    def refuse_constant(constant: str) -> None:
        raise ValueError(f"{constant} is not a JSON number")

    try:
        data = json.loads(
            text, object_pairs_hook=without_duplicates, parse_constant=refuse_constant
        )
    except (ValueError, RecursionError) as error:
        raise InputError(f"should be JSON: {_reason(error, text)}", file=file) from None
    check_values(data, file)
    return data


def _reason(error: Exception, text: str) -> str:
    """Return why a text was not parsed."""
    long = _LONG.search(text)
    # An error of the number conversion, which has no location and names a remedy of Python's.
    if long is None or "integer string conversion" not in str(error):
        return str(error)
    line = text.count("\n", 0, long.start()) + 1
    return f"a number should have at most 1,000 digits (at line {line})"


def check_values(value: Any, file: str, where: tuple[str, ...] = (), depth: int = 0) -> None:
    """Refuse values that can be read but neither printed nor written again.

    Raises
    ------
    InputError
        Naming the key, and what would be right.
    """
    problem = ""
    if isinstance(value, str):
        if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            problem = f"should be Unicode text, got half a surrogate pair in {ascii(value)[:40]}"
    elif isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            problem = "should have at most 1,000 digits"
    elif isinstance(value, dict | list):
        if depth >= MAX_DEPTH:
            problem = f"should be at most {MAX_DEPTH} tables or arrays deep"
        elif isinstance(value, dict):
            for name, entry in value.items():
                check_values(name, file, where, depth)
                check_values(entry, file, (*where, name), depth + 1)
        else:
            for entry in value:
                check_values(entry, file, where, depth + 1)
    if problem:
        keys = (shown(key)[1:-1] for key in where)
        raise InputError(problem, where=", ".join(keys), file=file)


def shown(value: object) -> str:
    """Return a value as a file writes it, for a message; at most 40 characters."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except (ValueError, RecursionError):  # more digits, or depth, than Python prints
        return "a value too large to show"
    return text if len(text) <= 40 else text[:37] + "..."
