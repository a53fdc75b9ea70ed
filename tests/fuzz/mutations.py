"""Documents made wrong: values, keys, structure, and the text itself."""

from __future__ import annotations

import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

Container = dict[str, Any] | list[Any]

DEEP: Any = []
for _ in range(70):
    DEEP = [DEEP]

ODD: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], {"": ""}, [0] * 1000, DEEP, {"a": {"b": {}}}),
    *(0, 1, -1, 2, 3, 7, 64, 65, 1000, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64),
    *(-(2**63), 10**30, 10**400, 16**5000, -(10**400)),
    *(0.5, -0.0, 1.0, 5e-324, 1e-300, 1e-9, 1e300, 1.7976931348623157e308, math.inf, math.nan),
    *("", " ", "a", "=1+1", "-x", "\t", "\n", "a\rb", "\x00", "\x1b[31mred\x1b[0m", "\u202e"),
    *(
        "\ud800",
        "a\udfff",
        "漢字テスト",
        "émile",
        "🧠",
        "<b>&amp;</b>",
        "[bold]x[/bold]",
        "$\\frac$",
    ),
    *("%s{0}{x}", "../../etc/passwd", "/dev/zero", "no such file", "x" * 5000, "٣"),
    *("0 B", "0.5 B", "1e30 B", "1e-30 s", "1e999 B/s", "1e-29 B/s", "8 GB", "9" * 60 + " GB"),
    *("dp", "data", "model", "output", "joint", "time", "energy", "ring", "nan", "inf", "-1"),
)
"""What a key may hold instead."""


def mutated(document: Any, rng: Random) -> Any:
    """Return a document with one to three things wrong with it."""
    changed = {"": copy.deepcopy(document)}
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        table, key = rng.choice(list(_places(changed)))
        rng.choice(_CHANGES)(table, key, rng)
    return changed[""]


def _places(table: Any) -> Iterator[tuple[Any, Any]]:
    """Yield all places of a document, as a container and a key or index."""
    items = table.items() if isinstance(table, dict) else enumerate(table)
    for key, value in items:
        yield table, key
        if isinstance(value, dict | list):
            yield from _places(value)


def _replace(table: Any, key: Any, rng: Random) -> None:
    table[key] = copy.deepcopy(rng.choice(ODD))


def _alike(table: Any, key: Any, rng: Random) -> None:
    """Put something of the same type there, which mostly passes for right."""
    value = table[key]
    if isinstance(value, str) and value[:1].isdigit() and " " in value:
        number = rng.choice(("0", "0.5", "1", "1e-30", "1e-12", "3.7", "1e9", "1e20", "1e30"))
        table[key] = number + " " + rng.choice((value.split()[1], "B", "GB/s", "s", "pJ", "GOPS"))
    elif isinstance(value, bool):
        table[key] = not value
    elif isinstance(value, int | float):
        fitting = [each for each in ODD if type(each) is type(value) and 0 <= each < 10**10]
        table[key] = rng.choice(fitting)
    elif isinstance(value, str):
        table[key] = rng.choice(
            [each for each in ODD if isinstance(each, str) and each.isprintable()]
        )
    elif isinstance(value, list) and value:
        value.append(copy.deepcopy(rng.choice(value)))


def _scale(table: Any, key: Any, rng: Random) -> None:
    value = table[key]
    if isinstance(value, int | float) and not abs(value) > 10**300:
        table[key] = rng.choice(
            (value + 1, -value, value * 2, value * 10**9, value / 2, str(value))
        )
    elif isinstance(value, str):
        table[key] = rng.choice((value.upper(), value + " ", value[1:], value * 50, value[::-1]))
    else:
        _replace(table, key, rng)


def _remove(table: Any, key: Any, rng: Random) -> None:
    if key != "":
        del table[key]


def _rename(table: Any, key: Any, rng: Random) -> None:
    if isinstance(table, dict) and key != "":
        table[rng.choice([each for each in ODD if isinstance(each, str)])] = table.pop(key)


def _repeat(table: Any, key: Any, rng: Random) -> None:
    value = table[key]
    if isinstance(value, list) and value:
        value += [copy.deepcopy(rng.choice(value)) for _ in range(rng.choice((1, 2, 30)))]
    elif isinstance(table, list):
        table.insert(key, copy.deepcopy(value))
    else:
        table[key] = [value, value]


def _shuffle(table: Any, key: Any, rng: Random) -> None:
    if isinstance(table[key], list):
        rng.shuffle(table[key])
    else:
        _wrap(table, key, rng)


def _wrap(table: Any, key: Any, rng: Random) -> None:
    table[key] = rng.choice(([table[key]], {"x": table[key]}))


def _swap(table: Any, key: Any, rng: Random) -> None:
    other, there = rng.choice(list(_places(table)))
    table[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(table[key])


_CHANGES: tuple[Callable[[Any, Any, Random], None], ...] = (
    *(_replace, _replace, _alike, _alike, _alike, _alike, _alike, _scale, _scale, _remove, _rename),
    *(_repeat, _shuffle, _wrap, _swap),
)


def mutated_text(text: str, rng: Random) -> bytes:
    """Return a file's bytes, mostly as they are, else cut, spoilt or with lines twice."""
    data = text.encode(errors="surrogatepass")
    how = rng.randrange(40)
    place = rng.randrange(len(data) + 1)
    lines = data.splitlines(keepends=True)
    if how == 0:
        return data[:place]
    if how == 1:
        return data[:place] + rng.randbytes(rng.choice((1, 1, 4))) + data[place + 1 :]
    if how == 2 and lines:
        return b"".join([*lines, rng.choice(lines)])
    if how == 3:
        return (
            data[:place]
            + rng.choice((b"{", b"[", b'"', b"\x00", b"\xff", b"\r", b"#"))
            + data[place:]
        )
    if how == 4:
        return data.replace(b"\n", rng.choice((b"\r", b"\r\n", b"", b"\n\n")))
    return data


def to_json(document: Any) -> str:
    """Write JSON, with numbers of more digits than Python writes."""
    return json.dumps(_without_giants(document)).replace(f'"{_GIANT}"', "1" + "0" * 6000)


_GIANT = "a giant number"


def _without_giants(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_giants(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_without_giants, value))
    return _GIANT if isinstance(value, int) and abs(value) > 10**4000 else value


def to_toml(document: Any) -> str:
    """Write TOML: a line for each key, all below it inline; a null as an empty text."""
    if not isinstance(document, dict):
        return f"x = {_inline(document)}\n"
    return "".join(f"{_key(key)} = {_inline(value)}\n" for key, value in document.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_key(key)} = {_inline(each)}" for key, each in value.items()) + "}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_inline, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value) if abs(value) < 10**1000 else f"{value:#x}"
    return str(value) if isinstance(value, float) else _key(value or "", bare=False)


def _key(text: str, *, bare: bool = True) -> str:
    if bare and re.fullmatch("[A-Za-z0-9_-]+", text):
        return text
    return json.dumps(text)
