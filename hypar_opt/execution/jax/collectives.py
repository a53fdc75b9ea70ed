"""The collectives of a module that XLA has compiled, and the bytes that each level carries.

The text of this module is copied into exported programs too, so that it needs nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
_INSTRUCTION = re.compile(rf"= (\(?[^=]*?\)?) ({'|'.join(KINDS)})(-start)?\(")
_COMMENT = re.compile(r"/\*.*?\*/")
_SHAPE = re.compile(r"[a-z]+(\d+)(?:e\dm\d\w*)?\[([\d,]+)\]")
_LISTED = re.compile(r"replica_groups=\{(\{[\d,{}]*\})\}")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_PAIRS = re.compile(r"source_target_pairs=\{(\{[\d,{}]*\})\}")
_NAME = re.compile(r'op_name="([^"]*)"')


class Moved(NamedTuple):
    """What one collective has all devices together receive over the links of one level.

    Parameters
    ----------
    phase
        ``forward``, ``backward`` or ``gradient``: where the operation comes from in the program.
    level
        From 0 for H1.
    """

    phase: str
    kind: str
    level: int
    bytes: int


def collectives(text: str, levels: int) -> Iterator[Moved]:
    """Yield what the collectives of a compiled module move, scalars aside.

    A collective over several levels is counted as halving from the deepest of them up, and
    doubling back down, divide it: the topmost level carries least.

    Parameters
    ----------
    text
        The module's HLO, of which device n is the n-th of a mesh with an axis of two a level.
    """
    for line in text.splitlines():
        # A long tuple has its positions as comments.
        found = _INSTRUCTION.search(_COMMENT.sub("", line))
        if found is None:
            continue
        shape, kind, started = found.groups()
        size = _bytes(shape, halved=bool(started) and kind != "all-reduce")
        phase = _phase(line)
        if kind == "collective-permute":
            pairs = _numbers(_PAIRS, line)
            for level, count in Counter(_level(a, b, levels) for a, b in pairs).items():
                if level >= 0:
                    yield Moved(phase, kind, level, size * count)
            continue
        groups = _groups(line, 1 << levels)
        crossed = [n for n in range(levels) if _crosses(groups[0], levels - 1 - n)]
        # All-gather and all-reduce are written with what each device ends up with.
        whole = size * len(groups[0]) if kind == "reduce-scatter" else size
        for above, level in enumerate(crossed):
            if kind == "all-to-all":
                moved = len(groups) * len(groups[0]) * whole // 2
            else:
                moved = len(groups) * whole * (2 if kind == "all-reduce" else 1) << above
            if moved:
                yield Moved(phase, kind, level, moved)


def _bytes(shape: str, *, halved: bool) -> int:
    """Return the bytes of an instruction's results, scalars aside.

    An instruction that starts a collective has its operands, too: the first half.
    """
    sizes = [
        int(bits) // 8 * math.prod(map(int, dims.split(",")))
        for bits, dims in _SHAPE.findall(shape)
    ]
    return sum(sizes[len(sizes) // 2 :] if halved else sizes)


def _phase(line: str) -> str:
    name = _NAME.search(line)
    path = name[1] if name else ""
    if "transpose(" in path:
        return "backward"
    return "forward" if "jvp(" in path else "gradient"


def _groups(line: str, devices: int) -> list[list[int]]:
    """Return the devices of each group, of groups as lists or as a transposed range."""
    iota = _IOTA.search(line)
    if iota is None:
        return _numbers(_LISTED, line) or [list(range(devices))]
    shape, dims = ([int(n) for n in part.split(",")] for part in iota.group(1, 2))
    order = [int(n) for n in iota[3].split(",")] if iota[3] else list(range(len(dims)))
    strides = [math.prod(dims[n + 1 :]) for n in range(len(dims))]
    flat = [0]
    for axis in order:
        flat = [start + n * strides[axis] for start in flat for n in range(dims[axis])]
    return [flat[n : n + shape[-1]] for n in range(0, len(flat), shape[-1])]


def _numbers(pattern: re.Pattern[str], line: str) -> list[list[int]]:
    found = pattern.search(line)
    listed = re.findall(r"\{([\d,]+)\}", found[1]) if found else []
    return [[int(n) for n in numbers.split(",")] for numbers in listed]


def _crosses(group: Sequence[int], bit: int) -> bool:
    return len({device >> bit & 1 for device in group}) > 1


def _level(source: int, target: int, levels: int) -> int:
    """Return the topmost level that a transfer crosses; -1 for none."""
    return levels - (source ^ target).bit_length() if source != target else -1
