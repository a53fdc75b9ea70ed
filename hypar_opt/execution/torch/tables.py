"""Python tables by layer name, with loops over equal repetitions of a block."""

from __future__ import annotations

import json
import re
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hypar_opt.workload.expansion import Repeat


class Entry(NamedTuple):
    """A row of a table.

    Parameters
    ----------
    position
        Of the layer that it belongs to.
    key
        The layer's name, or that of a parameter of it.
    value
        An expression.
    """

    position: int
    key: str
    value: str


def table_text(name: str, entries: Sequence[Entry], repeats: Sequence[Repeat]) -> str:
    """Return the statements that make a table; its rows are in the order of their first layers."""
    in_blocks = [_repetitions(entries, block) for block in repeats]
    repeated = {entry for rows in in_blocks for row in rows for entry in row}
    lines = [f"{name} = {{"]
    lines += [
        f"    {quoted(entry.key)}: {entry.value}," for entry in entries if entry not in repeated
    ]
    lines.append("}")
    for block, repetitions in zip(repeats, in_blocks, strict=True):
        lines += _loops(name, block, repetitions)
    return "\n".join(lines)


def _repetitions(entries: Sequence[Entry], block: Repeat) -> list[tuple[Entry, ...]]:
    """Return the rows of each repetition of a block, if there are several and names are plain."""
    repetitions = [
        tuple(
            entry
            for entry in entries
            if 0 <= entry.position - block.first - n * block.length < block.length
        )
        for n in range(block.count)
    ]
    # In a loop's text, a name is part of an f-string.
    plain = all(re.fullmatch(r"[\w.-]+", entry.key) for rows in repetitions for entry in rows)
    return repetitions if block.count > 1 and plain else []


def _loops(name: str, block: Repeat, repetitions: Sequence[Sequence[Entry]]) -> Iterator[str]:
    """Yield a loop for each run of equal repetitions."""
    if not repetitions:
        return
    numbered = enumerate(
        (
            tuple((entry.key.removeprefix(f"{label}."), entry.value) for entry in rows)
            for label, rows in zip(block.labels, repetitions, strict=True)
        ),
        block.number or 0,
    )
    for rows, group in groupby(numbered, key=lambda own: own[1]):
        numbers = [number for number, _ in group]
        if rows:
            yield f"for n in range({numbers[0]}, {numbers[-1] + 1}):"
            yield f"    {name} |= {{"
            yield from (f'        f"{block.name}.{{n}}.{key}": {value},' for key, value in rows)
            yield "    }"


def quoted(name: str) -> str:
    """Return a name as a literal, in double quotes."""
    # JSON's escapes are Python's too.
    return json.dumps(name, ensure_ascii=False)
