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
# A name, the shape of the result, which is a tuple or has no spaces, and what is done.
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?[^\s=]+ = (\(.*?\)|\S+) ([a-z][a-z-]*)\((.*)")
_MOVES = re.compile(r"(?:(?:ragged-)?all-|reduce-scatter|collective-|send|recv)")
_ENDS = ("-done", "-update")
_COMMENT = re.compile(r"/\*.*?\*/")
_SHAPE = re.compile(r"([a-z]\w*)\[([^\]]*)\]")
_BITS = re.compile(r"(?:bf|[a-z])(\d+)(?:e\dm\d\w*)?|pred")
_LISTED = re.compile(r"replica_groups=\{([\d,{} ]*)\}(?:,|$)")
_IOTA = re.compile(r"replica_groups=\[([\d,]+)\](<=\[[\d,]+\]\S*)")
_MESH = re.compile(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\(([^ ]*)\))? \{([^}]*)\}")
_RANGE = re.compile(r"(?:<=)?\[([\d,]+)\](?:T\(([\d,]+)\))?,?")
_MESH_AXIS = re.compile(r"'?([^',=:]+)'?(?:=(\d+)|:\((\d+)\)(\d+)|)(?:,|$)")
_PAIRS = re.compile(r"source_target_pairs=\{([\d,{} ]*)\}(?:,|$)")
_NAME = re.compile(r'op_name="([^"]*)"')
_COMPUTATION = re.compile(r"(ENTRY )?%?([^\s(]+) \(.*\{$")
_CALLED = re.compile(r"(body|to_apply|calls|branch_computations)=\{?((?:%?[^\s,{}]+(?:, (?=%))?)+)")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


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


def collectives(text: str, levels: Sequence[int]) -> Iterator[Moved]:
    """Yield what the collectives of a compiled module move, scalars aside.

    A collective over several levels is counted as reduce-scatters from the deepest of them up, and
    all-gathers back down, divide it: the topmost level carries least. What an all-to-all sends
    crosses the topmost level at which two devices are in different parts: it carries most.

    Parameters
    ----------
    text
        The module's HLO, of which device n is the n-th of a mesh with an axis a level.
    levels
        The parts of each level, H1 first.

    Raises
    ------
    ValueError
        Quoting a line that moves data in a way, or between devices, that cannot be read.
    """
    times, computation = _times(text), ""
    for line in text.split("\n"):
        if header := _COMPUTATION.match(line):
            computation = header[2]
        # A long tuple has its positions as comments.
        found = _INSTRUCTION.match(_COMMENT.sub("", line))
        if found is None or not _MOVES.match(found[2]) or found[2].endswith(_ENDS):
            continue
        shape, operation, rest = found.groups()
        # Names that users choose stand in what follows.
        rest = rest.partition(", metadata=")[0]
        try:
            often = times.get(computation, 1)
            for one in _moved(shape, operation, rest, _phase(line), levels):
                if often is None:
                    raise ValueError("how often its loop runs is not known")
                yield one._replace(bytes=often * one.bytes)
        except (ArithmeticError, LookupError, ValueError) as error:
            short = line.strip().partition(", metadata=")[0]
            raise ValueError(f"HLO is not understood: {error}: {short}") from None


def _times(text: str) -> dict[str, int | None]:
    """Return how often each computation of a module runs: the body of a loop in each trip.

    None where a loop's trips are not known.
    """
    callers: dict[str, list[tuple[str, int | None]]] = {}
    computation = ""
    for line in text.split("\n"):
        if header := _COMPUTATION.match(line):
            computation = header[2]
            continue
        for how, called in _CALLED.findall(line.partition(", metadata=")[0]):
            trips = _TRIPS.search(line) if how == "body" else None
            often = int(trips[1]) if trips else None if how == "body" else 1
            for name in called.split(", "):
                callers.setdefault(name.removeprefix("%"), []).append((computation, often))

    def times(name: str) -> int | None:
        total = 0
        for by, often in callers.get(name, ()):
            above = times(by)
            if often is None or above is None:
                return None
            total += often * above
        return total if name in callers else 1

    return {name: times(name) for name in callers}


def _moved(
    shape: str, operation: str, rest: str, phase: str, levels: Sequence[int]
) -> Iterator[Moved]:
    """Yield what one collective moves; ``rest`` are its operands and attributes."""
    kind = operation.removesuffix("-start")
    if kind not in KINDS:
        raise ValueError(f"{operation!r} is not one of {', '.join(KINDS)}")
    size = _bytes(shape, halved=operation != kind and kind != "all-reduce")
    if kind == "collective-permute":
        pairs = _listed(_PAIRS, rest, "source_target_pairs")
        for level, count in Counter(_level(a, b, levels) for a, b in pairs).items():
            if level >= 0:
                yield Moved(phase, kind, level, size * count)
        return
    groups = _groups(rest, math.prod(levels))
    crossed = _crossed(groups, levels)
    # All-gather and all-reduce are written with what each device ends up with.
    whole = size * len(groups[0]) if kind == "reduce-scatter" else size
    for above, level in enumerate(crossed):
        parts = levels[level]
        if kind == "all-to-all":
            beyond = math.prod(levels[n] for n in crossed[: above + 1])
            moved = len(groups) * len(groups[0]) * whole * (parts - 1) // beyond
        else:
            received = whole * (parts - 1) * math.prod(levels[n] for n in crossed[:above])
            moved = len(groups) * received * (2 if kind == "all-reduce" else 1)
        if moved:
            yield Moved(phase, kind, level, moved)


def _bytes(shape: str, *, halved: bool) -> int:
    """Return the bytes of an instruction's results, scalars aside.

    An instruction that starts a collective has its operands, too: the first half.
    """
    sizes = []
    for element, dims in _SHAPE.findall(shape):
        known = _BITS.fullmatch(element)
        if dims and not (known and re.fullmatch(r"[\d,]+", dims)):
            raise ValueError(f"the size of {element}[{dims}] is not known")
        if dims:
            sizes.append(int((known and known[1]) or 8) * math.prod(_integers(dims)) // 8)
    return sum(sizes[len(sizes) // 2 :] if halved else sizes)


def _phase(line: str) -> str:
    name = _NAME.search(line)
    path = name[1] if name else ""
    if "transpose(" in path:
        return "backward"
    return "forward" if "jvp(" in path else "gradient"


def _groups(rest: str, devices: int) -> list[list[int]]:
    """Return the devices of each group: of lists, a transposed range, or some axes of a mesh."""
    if iota := _IOTA.search(rest):
        (_, size), order = _integers(iota[1]), _range(iota[2])
        return [order[n : n + size] for n in range(0, len(order), size)]
    if mesh := _MESH.search(rest):
        return _mesh_groups(*mesh.group(1, 2, 3))
    # Without any group, all devices are one.
    return _listed(_LISTED, rest, "replica_groups") or [list(range(devices))]


def _mesh_groups(mesh: str, device_ids: str | None, grouped: str) -> list[list[int]]:
    """Return groups along some axes of a mesh, or along parts of axes: ``'name':(before)size``."""
    sizes = {name: int(size) for name, size, _, _ in _MESH_AXIS.findall(mesh)}
    count = math.prod(sizes.values())
    order = list(range(count))
    if device_ids:
        order = _range(device_ids) if "[" in device_ids else _integers(device_ids)
    strides, inner = {}, count
    for name, size in sizes.items():
        inner //= size
        strides[name] = inner
    groups: dict[int, list[int]] = {}
    for position, device in enumerate(order):
        first = position
        for name, _, before, part in _MESH_AXIS.findall(grouped):
            size = int(part or sizes[name])
            stride = strides[name] * sizes[name] // (int(before or 1) * size)
            first -= position // stride % size * stride
        groups.setdefault(first, []).append(device)
    return list(groups.values())


def _range(text: str) -> list[int]:
    """Return the numbers of ``[2,4]T(1,0)``: 0 to 7 as two by four, transposed."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a range of devices")
    dims = _integers(found[1])
    flat = [0]
    for axis in _integers(found[2]) if found[2] else range(len(dims)):
        stride = math.prod(dims[axis + 1 :])
        flat = [start + n * stride for start in flat for n in range(dims[axis])]
    return flat


def _listed(pattern: re.Pattern[str], rest: str, name: str) -> list[list[int]]:
    found = pattern.search(rest)
    if found is None:
        raise ValueError(f"its {name} cannot be read")
    return [_integers(numbers) for numbers in re.findall(r"\{([\d,]+)\}", found[1])]


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _crossed(groups: Sequence[Sequence[int]], levels: Sequence[int]) -> list[int]:
    """Return the levels between whose parts each group exchanges."""
    crossed = sorted({n for device in groups[0] for n in _differ(device, groups[0][0], levels)})
    along = math.prod(levels[n] for n in crossed)
    boxes = all(
        len(g) == along and all({*_differ(d, g[0], levels)} <= {*crossed} for d in g)
        for g in groups
    )
    if not boxes or sorted(d for g in groups for d in g) != list(range(math.prod(levels))):
        raise ValueError(f"groups {groups} are not the devices along some levels of {levels}")
    return crossed


def _level(source: int, target: int, levels: Sequence[int]) -> int:
    """Return the topmost level that a transfer crosses; -1 for none."""
    return next(_differ(source, target, levels), -1)


def _differ(source: int, target: int, levels: Sequence[int]) -> Iterator[int]:
    """Yield the levels, H1 first, in different parts of which two devices are."""
    below = math.prod(levels)
    for level, parts in enumerate(levels):
        below //= parts
        if source // below % parts != target // below % parts:
            yield level
