"""A sweep as described in one TOML file: what is to be combined with what."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, Field, Strict

from hypar_opt import models
from hypar_opt.costs import COSTS
from hypar_opt.costs.readings import READINGS
from hypar_opt.documents import (
    Document,
    Size,
    exists,
    parse_json,
    parse_toml,
    read_text,
    validate,
)
from hypar_opt.errors import HyparError, InputError, UnknownNameError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import find_array
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.problem import ELEMENT_BYTES
from hypar_opt.search.searches import SEARCHES
from hypar_opt.simulator.step import OVERLAPS
from hypar_opt.solvers import SOLVERS
from hypar_opt.studies.sweep.case import Case

SCHEMA: Literal["hypar-opt/sweep/1"] = "hypar-opt/sweep/1"

Some = Annotated[tuple[str, ...], Field(min_length=1)]
Networks = Annotated[Some, BeforeValidator(lambda value: (value,) if value == "all" else value)]
Level = Annotated[int, Strict(), Field(ge=1, le=arrays.MOST_LEVELS)]
Found = TypeVar("Found")


class Spec(Document):
    """What is combined; each list is one axis of the table."""

    written_schema: ClassVar[str | None] = SCHEMA

    schema_: Literal["hypar-opt/sweep/1"] = Field(default=SCHEMA, alias="schema")
    networks: Networks
    """Names of the zoo, ``all`` of them, or paths from the sweep file."""
    batches: Annotated[tuple[Size, ...], Field(min_length=1)] = (256,)
    element_bytes: Annotated[tuple[Annotated[int, Strict()], ...], Field(min_length=1)] = (4,)
    levels: Annotated[tuple[Level, ...], Field(min_length=1)] | None = None
    """Of the paper's arrays; an array that is named has its own."""
    arrays: Some | None = None
    """Names of presets, or paths from the sweep file; the paper's H tree unless given."""
    costs: Some = ("bytes",)
    """What a plan is found for."""
    solvers: Some = ("dp",)
    """Each a name, or a name and a search: ``dp joint``."""
    overlap: Some = ("none",)
    readings: Some | None = None
    """Each array's default unless given: see `hypar_opt.pipeline.default_reading`."""


def read_spec(path: str | Path) -> list[Case]:
    """Read a sweep file and return its cases in order, the last axis fastest.

    Raises
    ------
    InputError
        Naming the file, the key and what would be right.
    """
    file, folder = str(path), Path(path).parent
    spec = validate(Spec, parse_toml(read_text(path), file=file), file=file)

    def each(key: str, texts: Sequence[str], find: Callable[[str], Found]) -> list[Found]:
        found: list[Found] = []
        for place, listed in enumerate(texts):
            where = f"{key}[{place}]"
            for text in models.names() if (key, listed) == ("networks", "all") else [listed]:
                try:
                    one = find(text)
                except HyparError as error:
                    raise InputError(error.message, where=where, file=file) from None
                if one in found:
                    raise InputError(f"{text!r} is there twice", where=where, file=file)
                found.append(one)
        return found

    networks = each("networks", spec.networks, lambda text: _network(text, folder))
    each("batches", list(map(str, spec.batches)), str)
    sizes = list(map(str, ELEMENT_BYTES))
    each(
        "element_bytes",
        list(map(str, spec.element_bytes)),
        lambda text: _one_of("element size", text, sizes),
    )
    each("levels", list(map(str, spec.levels or ())), str)
    found = each("arrays", *_arrays(spec, folder))
    costs = each("costs", spec.costs, lambda text: _one_of("cost", text, COSTS))
    solvers = each("solvers", spec.solvers, _solver)
    overlaps = each("overlap", spec.overlap, lambda text: _one_of("overlap", text, OVERLAPS))
    listed = spec.readings or ()
    readings = each("readings", listed, lambda text: _one_of("reading", text, READINGS))
    by_array = {array: readings or [_default_reading(array)] for array in found}
    return [
        Case(network, array, batch, size, cost, solver, search, overlap, reading)
        for network, batch, size, array, cost, (solver, search), overlap in (
            itertools.product(
                *(networks, spec.batches, spec.element_bytes, found),
                *(costs, solvers, overlaps),
            )
        )
        for reading in by_array[array]
    ]


def _default_reading(array: str) -> str:
    return problem_of(array=validate(Array, parse_json(array, file="an array"))).reading


def _arrays(spec: Spec, folder: Path) -> tuple[Sequence[str], Callable[[str], str]]:
    """Return what names the arrays, and how one is found."""
    if spec.arrays is None:
        papers = [arrays.papers(levels) for levels in spec.levels or (4,)]
        return papers, lambda name: _text(arrays.load(name))

    def find(text: str) -> str:
        place = folder / text
        known = text.lower() in arrays.names()
        array = find_array(place if not known and _is_path(text, place) else text)
        wrong = next((each for each in spec.levels or () if each != array.levels), None)
        if wrong is not None:
            raise InputError(
                f"{array.name} has {2**array.levels} accelerators, {array.levels} levels, which"
                f" does not fit {wrong} among levels; leave levels out, for each array has its own"
            )
        return _text(array)

    return spec.arrays, find


def _network(text: str, folder: Path) -> str:
    place = folder / text
    known = text.lower() in models.names()
    network = find_network(place if not known and _is_path(text, place) else text)
    return json.dumps(network.description(), sort_keys=True)


def _is_path(text: str, place: Path) -> bool:
    return bool(Path(text).suffix) or len(Path(text).parts) != 1 or exists(place)


def _text(array: Array) -> str:
    return json.dumps(array.description(), sort_keys=True)


def _solver(text: str) -> tuple[str, str | None]:
    name, *search = text.split() or [""]
    if len(search) > 1 or not name:
        raise HyparError(
            f"should be a solver, or a solver and a search, as 'dp joint', got {text!r}"
        )
    SOLVERS[name]
    return name, _one_of("search", search[0], SEARCHES) if search else None


def _one_of(kind: str, text: str, known: Collection[str]) -> str:
    if text not in known:
        raise UnknownNameError(kind, text, list(known))
    return text
