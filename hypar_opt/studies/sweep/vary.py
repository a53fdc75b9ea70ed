"""The keys of networks and arrays that a sweep varies: lists of values, and ranges."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field, Strict

from hypar_opt.documents.document import Document, validate
from hypar_opt.documents.parsing import shown
from hypar_opt.errors import HyparError, InputError
from hypar_opt.hardware.array import Array
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.settings import Changed, changed
from hypar_opt.studies.sweep.case import COLUMNS, network_of, on, place_of
from hypar_opt.workload.network import Network

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?)( ?)([^0-9\s.]\S*)?", re.ASCII)
MAX_STEPS = 1000
_MAX_CHARACTERS = 200
_SMALLEST, _LARGEST = Fraction(1, 10**60), Fraction(10**60)
"""Bounds of a nonzero end of a range, in its unit: wider than those of any key."""

MAX_VARIANTS = 100_000
"""The maximum number of variants of networks and arrays. Each takes half a millisecond, and 4 kB
until the sweep ends."""


class Range(Document):
    """A number of values between two ends, both included; with ``log`` in equal ratios.

    They are whole numbers if both ends are; others are rounded to six digits.
    """

    from_: Annotated[Any, Field(alias="from")]
    to: Any
    steps: Annotated[int, Strict(), Field(ge=2, le=MAX_STEPS)]
    log: Annotated[bool, Strict()] = False

    def values(self) -> list[Any]:
        """Return the values, as a list would have them.

        Raises
        ------
        HyparError
            If an end is not a number, or a quantity in the other one's unit.
        """
        (first, unit), (last, other) = map(_number, (self.from_, self.to))
        if unit != other:
            raise HyparError(
                f"from and to should be in one unit, got {self.from_!r} and {self.to!r}"
            )
        if self.log and not (first and last):
            raise HyparError("with log, from and to should be above zero")
        whole = isinstance(self.from_, int) and isinstance(self.to, int)
        between = []
        for step in range(1, self.steps - 1):
            share = Fraction(step, self.steps - 1)
            if self.log:
                value = float(first) * float(last / first) ** float(share)
            else:
                value = float(first + (last - first) * share)
            rounded = round(value) if whole else float(f"{value:.6g}")
            between.append(f"{rounded:.6g}{unit}" if unit else rounded)
        return [self.from_, *between, self.to]


def _number(value: object) -> tuple[Fraction, str]:
    """Return a number, and the unit of a quantity with the space before it."""
    match = None
    # Not even parsed if very long: the conversion of a long number is slow.
    if isinstance(value, str) and len(value) <= _MAX_CHARACTERS:
        match = _NUMBER.fullmatch(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        # The shortest decimal of a float, which is what the file says.
        number, unit = Fraction(value if isinstance(value, int) else str(value)), ""
    elif match is not None and match[3] is not None:
        number, unit = Fraction(match[1]), match[2] + match[3]
    else:
        raise HyparError(f"should be a number, or a quantity such as '25 GB/s', got {shown(value)}")
    if number and not _SMALLEST <= number <= _LARGEST:
        raise HyparError(f"should be zero, or from 1e-60 to 1e60, got {shown(value)}")
    return number, unit


def combinations(
    vary: Mapping[str, Any], file: str, *, cases_of_each: int = 1
) -> list[dict[str, Any]]:
    """Return each combination of values as settings, the last key varying fastest.

    Parameters
    ----------
    vary
        A list of values, or a table of a `Range`, by key; without any, one empty combination.
    cases_of_each
        The number of cases (networks, arrays, readings) of each combination.

    Raises
    ------
    InputError
        If a value is wrong, or there are more than `MAX_VARIANTS`, which are counted first.
    """
    axes = {}
    for key, entry in _entries(vary):
        where = f"vary, {key!r}"
        try:
            if isinstance(entry, dict):
                entry = validate(Range, entry, file="range").values()
        except HyparError as error:
            raise InputError(error.message, where=where, file=file) from None
        if not isinstance(entry, list) or not entry:
            problem = "should be a list of values, or a range { from, to, steps, log }"
            raise InputError(f"{problem}, got {shown(entry)}", where=where, file=file)
        axes[key] = entry
    count = cases_of_each * math.prod(map(len, axes.values()))
    if count > MAX_VARIANTS:
        factors = [f"{len(values):,}" for values in axes.values()]
        of = [f"{' x '.join(factors)} values"] * bool(factors)
        of += [f"{cases_of_each:,} networks, arrays and readings"] * (cases_of_each > 1)
        problem = f"should have at most {MAX_VARIANTS:,} combinations, got {count:,}"
        problem += f" ({', of each of '.join(of)})"
        raise InputError(problem, where="vary", file=file)
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _entries(vary: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys with their values; TOML reads a key with dots as tables, unless quoted."""
    for key, entry in vary.items():
        if isinstance(entry, dict) and entry and not entry.keys() & {"from", "to", "steps", "log"}:
            yield from _entries(entry, f"{within}{key}.")
        else:
            yield within + key, entry


@dataclass(frozen=True)
class Variant:
    """A network on an array with other values of some keys, and the defaults of `solve`.

    Parameters
    ----------
    network, array
        As JSON; without an array the parts of levels.
    names
        Of the network and the array as the sweep lists them.
    varied
        The varied values by column.
    problem
        The problem by default; the sweep may say more.
    """

    network: str
    array: str
    names: tuple[str, str]
    varied: tuple[tuple[str, Any], ...]
    problem: Problem


def variants(
    network: str,
    array: str,
    settings: Sequence[Mapping[str, Any]],
    readings: Sequence[str | None],
    file: str,
) -> Iterator[Variant]:
    """Yield a network on an array with each of some settings, in each reading.

    Raises
    ------
    InputError
        If a key or value is wrong or repeated, or a key is one of the sweep's own.
    """
    described, place = network_of(network), place_of(array)
    stated_array = place if isinstance(place, Array) else None
    shown_place = place.name if isinstance(place, Array) else f"{place.shown} accelerators"
    names = (described.name, shown_place)
    seen: set[tuple[Any, ...]] = set()
    for setting in settings:
        result = Changed(described, stated_array, {})
        if setting:
            result = changed(described, stated_array, setting, where=f"{file}: vary")
            taken = next(filter(COLUMNS.__contains__, result.columns), None)
            if taken is not None:
                raise InputError(f"the table has a column {taken!r}", where="vary", file=file)
            columns = tuple(result.columns.items())
            if columns in seen:
                values = ", ".join(f"{key} = {value}" for key, value in setting.items())
                raise InputError(f"{values} is there twice", where="vary", file=file)
            seen.add(columns)
        # None: levels without an array, which have no keys.
        text = array if result.array is None else as_json(result.array)
        at = result.array or place
        for reading in readings:
            arguments = on(at)
            arguments["reading"] = reading
            varied_network = result.network or described
            problem = problem_of(varied_network, **arguments)
            varied = tuple(result.columns.items())
            yield Variant(as_json(varied_network), text, names, varied, problem)


def as_json(described: Network | Array) -> str:
    """Return the canonical text of a network or an array, however it is written."""
    # Sorted, so that two files of one content are one case.
    return json.dumps(described.description(), sort_keys=True)
