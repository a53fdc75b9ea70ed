"""Sweep files in TOML: lists of values, every combination of which is a case."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BeforeValidator, Field, Strict

from hypar_opt.costs import COSTS
from hypar_opt.documents.document import ELEMENT_BYTES, Document, Size, validate
from hypar_opt.documents.files import exists, read_text
from hypar_opt.documents.kinds import read_as
from hypar_opt.documents.parsing import parse_toml
from hypar_opt.errors import HyparError, InputError, UnknownNameError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.arrays import find_array
from hypar_opt.models import find_network, named, zoo_name
from hypar_opt.models import names as network_names
from hypar_opt.plan.arguments import hierarchy_of, problem_of
from hypar_opt.plan.problem import Problem
from hypar_opt.search.searches import SEARCHES
from hypar_opt.simulator.streams import OVERLAPS
from hypar_opt.solvers import SOLVERS
from hypar_opt.step.readings import READINGS
from hypar_opt.studies.sweep.case import CHOICES, Case, network_of, on, place_of
from hypar_opt.studies.sweep.vary import Variant, as_json, combinations, variants
from hypar_opt.workload.parallelism import CHOICES_WITH_QUERIES, PAPERS_CHOICES, stated_choices

SCHEMA: Literal["hypar-opt/sweep/1"] = "hypar-opt/sweep/1"

Names = Annotated[tuple[str, ...], Field(min_length=1)]
Networks = Annotated[
    Names, BeforeValidator(lambda value: (value,) if value in ("all", "paper") else value)
]
MAX_CASES = 1_000_000
"""The maximum cases of a sweep: 10 seconds, and half a gigabyte, before the first one runs."""

Level = Annotated[int, Strict(), Field(ge=1, le=arrays.MAX_LEVELS)]
Value = TypeVar("Value")


class SweepSpec(Document):
    """The axes: every combination of the lists is a case."""

    written_schema: ClassVar[str | None] = SCHEMA

    schema_: Literal["hypar-opt/sweep/1"] = Field(default=SCHEMA, alias="schema")
    networks: Networks
    """Names of the zoo, ``all``, or paths relative to the sweep file."""
    batches: Annotated[tuple[Size, ...], Field(min_length=1)] = (256,)
    element_bytes: Annotated[tuple[Annotated[int, Strict()], ...], Field(min_length=1)] | None = (
        None
    )
    """Default, as of choices and costs: what `hypar_opt.plan.arguments.problem_of` decides."""
    levels: Annotated[tuple[Level, ...], Field(min_length=1)] | None = None
    """Hierarchy levels of the paper's arrays; other arrays have fixed levels."""
    arrays: Names | None = None
    """Names of presets, or paths relative to the sweep file. Default: the paper's H tree."""
    hierarchies: Annotated[tuple[tuple[int, ...], ...], Field(min_length=1)] | None = None
    """In place of arrays: the parts of levels, as ``[6, 8]``, on which plans are only priced."""
    whole_levels: Annotated[bool, Strict()] = False
    """Whether levels of ``hierarchies`` stay whole, in place of their prime factors."""
    choices: Names | None = None
    """The parallelisms that a layer may use, as on the command line; ``all`` as there, too."""
    costs: Names | None = None
    """The objectives."""
    solvers: Names = ("dp",)
    """A name, or a name and a search: ``dp joint``."""
    simulate: Annotated[bool, Strict()] = True
    """Whether the plans' steps are simulated; otherwise plans are only priced."""
    overlap: Names | None = None
    """Default: ``none``."""
    readings: Names | None = None
    """Default: that of each array; see `hypar_opt.plan.arguments.default_reading`."""
    vary: Mapping[str, Any] = Field(default_factory=dict)
    """Values, or a `hypar_opt.studies.sweep.vary.Range`, of keys of the networks and arrays."""


def read_spec(path: str | Path) -> list[Case]:
    """Read a sweep file and return its cases in order, the last axis fastest.

    Raises
    ------
    InputError
        With the file, the key and what is expected.
    """
    file, folder = str(path), Path(path).parent
    text = read_text(path)
    with read_as("sweep", text, file):
        spec = validate(SweepSpec, parse_toml(text, file=file), file=file)

    def axis(key: str, entries: Sequence[object], resolve: Callable[[str], Value]) -> list[Value]:
        return _axis(key, list(map(str, entries)), resolve, file)

    def names(key: str, entries: Sequence[str], kind: str, known: Collection[str]) -> list[str]:
        return axis(key, entries, lambda name: _known_name(kind, name, known))

    networks = axis("networks", spec.networks, lambda name: _network(name, folder))
    # Already validated; resolved only to find duplicates.
    axis("batches", spec.batches, str)
    sizes = list(map(str, ELEMENT_BYTES))
    axis(
        "element_bytes",
        spec.element_bytes or (),
        lambda size: _known_name("element size", size, sizes),
    )
    axis("levels", spec.levels or (), str)
    places = _hierarchies(spec, file) or axis("arrays", *_arrays(spec, folder))
    # None where each network and array decides.
    costs: list[str | None] = [*names("costs", spec.costs or (), "cost", COSTS)] or [None]
    solvers = axis("solvers", spec.solvers, _solver)
    choices: list[str | None] = [*axis("choices", spec.choices or (), _choices)] or [None]
    overlaps: list[str | None] = [None]
    if spec.simulate:
        overlaps = [*names("overlap", spec.overlap or ("none",), "overlap", OVERLAPS)]
    elif spec.overlap is not None:
        problem = "is of simulated steps; leave it out, or simulate = false"
        raise InputError(problem, where="overlap", file=file)
    stated_readings: list[str | None] = [
        *names("readings", spec.readings or (), "reading", READINGS)
    ]
    readings = stated_readings or [None]
    combined = len(networks) * len(places) * len(readings)
    varied = combinations(spec.vary, file, cases_of_each=combined)
    axes = (networks, spec.batches, spec.element_bytes or [None], places)
    more = (choices, costs, solvers, overlaps)
    # Counted before anything is listed.
    if (count := math.prod(map(len, (*axes, *more, readings, varied)))) > MAX_CASES:
        problem = f"should have at most {MAX_CASES:,} cases, got {count:,}: list fewer values"
        raise InputError(problem, file=file)
    stated = {
        (network, array): list(variants(network, array, varied, readings, file))
        for network in networks
        for array in places
    }
    return [
        _case(variant, batch, size, split, cost, solver, overlap, reads=bool(stated_readings))
        for network, batch, size, array, split, cost, solver, overlap in itertools.product(
            *axes, *more
        )
        for variant in stated[network, array]
    ]


def _case(
    variant: Variant,
    batch: int,
    size: int | None,
    choices: str | None,
    cost: str | None,
    solver: tuple[str, str | None],
    overlap: str | None,
    *,
    reads: bool,
) -> Case:
    """Return a case; its network and array decide what the sweep leaves open.

    Parameters
    ----------
    reads
        Whether the sweep says in which reading.
    """
    cost, reading = cost or variant.problem.cost, variant.problem.reading
    if choices == "all":
        whole = _with_all(variant.network, variant.array, cost, reading if reads else None)
        choices, reading = ",".join(whole.choices), whole.reading
    return Case(
        variant.network,
        variant.array,
        batch,
        size or variant.problem.element_bytes,
        choices or ",".join(variant.problem.choices),
        cost,
        *solver,
        overlap,
        reading,
        variant.names,
        variant.varied,
    )


@lru_cache(maxsize=1024)
def _with_all(network: str, array: str, cost: str, reading: str | None) -> Problem:
    """Return the problem of a network on an array, with all choices."""
    arguments: Any = {**on(place_of(array)), "cost": cost, "reading": reading, "choices": "all"}
    return problem_of(network_of(network), **arguments)


def _axis(
    key: str, entries: Sequence[str], resolve: Callable[[str], Value], file: str
) -> list[Value]:
    """Return the values of a list's entries; each may be listed only once."""
    values: dict[Value, None] = {}
    for n, entry in enumerate(entries):
        where = f"{key}[{n}]"
        for name in named(entry) if key == "networks" else [entry]:
            try:
                value = resolve(name)
            except HyparError as error:
                raise InputError(error.message, where=where, file=file) from None
            # Two names may stand for the same value, such as a preset and a copy of its file.
            if value in values:
                raise InputError(f"{name!r} is listed twice", where=where, file=file)
            values[value] = None
    return list(values)


def _hierarchies(spec: SweepSpec, file: str) -> list[str]:
    """Return the parts of levels without an array, none if arrays or the paper's are wanted."""
    if spec.hierarchies is None:
        return []

    def wrong(key: str, problem: str) -> InputError:
        return InputError(problem, where=key, file=file)

    if spec.arrays or spec.levels:
        raise wrong(
            "hierarchies", "state the levels, without an array; leave arrays and levels out"
        )
    if spec.simulate:
        raise wrong("simulate", "should be false with hierarchies: steps are simulated on arrays")
    stated: dict[str, None] = {}
    for n, sizes in enumerate(spec.hierarchies):
        try:
            whole = hierarchy_of(sizes)
        except HyparError as error:
            raise wrong(f"hierarchies[{n}]", error.message) from None
        text = json.dumps((whole if spec.whole_levels else whole.in_primes).sizes)
        if text in stated:
            raise wrong(f"hierarchies[{n}]", f"{list(sizes)} is there twice")
        stated[text] = None
    return [*stated]


def _arrays(spec: SweepSpec, folder: Path) -> tuple[Sequence[str], Callable[[str], str]]:
    """Return the arrays' names or paths, and the function that resolves one."""
    if spec.arrays is None:
        papers = [arrays.papers(levels) for levels in spec.levels or (None,)]
        return papers, lambda name: as_json(arrays.load(name))

    def resolve(name: str) -> str:
        array = find_array(_name_or_path(name, folder, arrays.names()))
        # The size of a named array is fixed.
        wrong = next((levels for levels in spec.levels or () if levels != array.levels), None)
        if wrong is not None:
            raise InputError(
                f"{array.name} has {array.interconnect.accelerators} accelerators,"
                f" {array.levels} levels, which does not fit {wrong} among levels; leave levels"
                " out, since each array fixes its levels"
            )
        return as_json(array)

    return spec.arrays, resolve


def _network(name: str, folder: Path) -> str:
    return as_json(find_network(_name_or_path(zoo_name(name), folder, network_names())))


def _name_or_path(name: str, folder: Path, presets: Collection[str]) -> str | Path:
    """Return a preset's name, or a path relative to the sweep file if it looks like one."""
    path = folder / name
    # As on the command line: case is ignored, and names precede files.
    if name.lower() in presets:
        return name
    return path if Path(name).suffix or len(Path(name).parts) != 1 or exists(path) else name


def _solver(text: str) -> tuple[str, str | None]:
    name, *search = text.split() or [""]
    # Refused when the file is read, not when its first case runs.
    if len(search) > 1 or not name:
        raise HyparError(
            f"should be a solver, or a solver and a search, as 'dp joint', got {text!r}"
        )
    SOLVERS[name]
    return name, _known_name("search", search[0], SEARCHES) if search else None


def _choices(text: str) -> str:
    choices = text if text == "all" else ",".join(stated_choices(text.split(",")))
    if choices not in ("all", *CHOICES):
        more = ",".join(CHOICES_WITH_QUERIES[len(PAPERS_CHOICES) :])
        raise HyparError(
            f"should be 'all', or 'data,model' and some of {more}, in this order, got {text!r}"
        )
    return choices


def _known_name(kind: str, name: str, names: Collection[str]) -> str:
    if name not in names:
        raise UnknownNameError(kind, name, list(names))
    return name
