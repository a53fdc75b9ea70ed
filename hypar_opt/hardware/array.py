"""An array of accelerators as described in one TOML file.

`docs/array-format.md` is the format's page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import islice
from math import gcd, prod
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PlainValidator,
    SerializeAsAny,
    Strict,
    Tag,
    model_validator,
)

from hypar_opt.checked import checked
from hypar_opt.documents.document import (
    Document,
    ElementBytes,
    Name,
    Printable,
    digest_of,
    rule,
    validate,
)
from hypar_opt.documents.files import file_name, read_text
from hypar_opt.documents.kinds import read_as
from hypar_opt.documents.parsing import parse_toml
from hypar_opt.errors import HyparError, InputError, argument, excerpt
from hypar_opt.hardware.accelerator import Accelerator, AcceleratorGroup, Part, check_equal_kernels
from hypar_opt.hardware.energy import EnergyConstants
from hypar_opt.hardware.folded import MAX_LISTED
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.hardware.links import LINK_KINDS, BisectionLink, LinkKind
from hypar_opt.hardware.patterns import Lane, MessagePattern, MessageRound
from hypar_opt.hardware.quantities import OptionalBytes
from hypar_opt.hardware.step_model import STEP_MODELS, StepModel
from hypar_opt.hardware.topologies import TOPOLOGIES
from hypar_opt.hardware.topologies.base import Topology
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.integers import divisors
from hypar_opt.results import Column, Columns, Documented, Number

SCHEMA: Literal["hypar-opt/array/1"] = "hypar-opt/array/1"

Collective = Literal["pairwise", "ring", "one-ring", "hierarchical"]

COLLECTIVES: tuple[str, ...] = get_args(Collective)
"""The algorithms of all-reduces."""

MAX_PARTS_OF_H1 = 8
"""The most parts of H1 between groups of accelerators."""


def _topology(value: object) -> Topology:
    """Return the topology of the kind that a table names, which may be a third party's."""
    if isinstance(value, Topology):
        return value
    if not isinstance(value, dict):
        raise rule(f"should be a table, got {value!r}")
    if "kind" not in value:
        raise rule("missing key 'kind'")
    try:
        model: type[Topology] = TOPOLOGIES[str(value["kind"])]
    except HyparError as error:
        raise rule(f"kind: {error}") from None
    return model.model_validate(value)


def _one_or_groups(value: object) -> str:
    return "groups" if isinstance(value, list | tuple) else "one"


def _true_or_none(value: bool | None) -> bool | None:
    return value or None


class Array(Documented, Document):
    """Accelerators on a topology: identical ones, or groups of them.

    Raises
    ------
    InputError
        Also if the topology's graph is not a valid array; ``model_validate`` raises pydantic's
        error instead.
    """

    contents: ClassVar[Columns] = Columns(
        *("name", "digest"),
        Column("accelerators", of="interconnect.accelerators", type=int),
        Column("levels", of="rows", type=list[Mapping[str, Number]]),
        Column("links", of="link_kinds", type=LINK_KINDS),
        "description",
    )

    written_schema: ClassVar[str | None] = SCHEMA

    schema_: Literal["hypar-opt/array/1"] = Field(default=SCHEMA, alias="schema")
    name: Name
    source: Printable = ""
    model: Literal["hypar-2019"] | None = None
    """How a step on the array is counted, in `STEP_MODELS`; None for as it runs."""
    collective: Collective = "pairwise"
    """The all-reduce algorithm: between pairs, level by level; around a ring, on a torus or mesh
    around those of all dimensions at once, in both directions; around one ring in any case; or
    around a ring of each of the hardware's levels, those inside a node first.
    """
    # None where it is not: a digest does not depend on what an array leaves out.
    whole_levels: Annotated[bool | None, Strict(), AfterValidator(_true_or_none)] = None
    """Whether a level of the hardware is one of the hierarchy; else its prime factors are."""
    bucket: OptionalBytes = None
    """The most bytes of gradients that are all-reduced together; None for each by itself."""
    overlap: Literal["none", "gradient", "branches", "prefetch"] | None = None
    """Which exchanges overlap, as the simulator's option; None for none."""
    overlap_efficiency: Part | None = None
    """The efficiency e of overlap: overlapping computations and exchanges run at 1 / (2 - e) of
    their rates. At 1, or None, at full rates; near 0 nothing is gained."""
    ring: Annotated[bool | None, Strict(), AfterValidator(_true_or_none)] = None
    """Whether keys and values of context parallelism move beside the parts of attention."""
    hidden: Part | None = None
    """The fraction of tensor parallelism's exchanges that run beside the products next to them."""
    element_bytes: ElementBytes | None = None
    """Bytes of an element in problems that state none, such as 2 where the peak is of bfloat16."""
    # Aliased: what depends on no group reads the property.
    accelerators: Annotated[
        Annotated[Accelerator, Tag("one")] | Annotated[tuple[AcceleratorGroup, ...], Tag("groups")],
        Discriminator(_one_or_groups),
    ] = Field(alias="accelerator")
    # As any: pydantic would otherwise write the fields of the base class alone.
    topology: Annotated[SerializeAsAny[Topology], PlainValidator(_topology)]
    energy: EnergyConstants | None = None
    """None if no energies are known; then nothing can report joules."""

    @model_validator(mode="after")
    def _topology_is_an_array(self) -> Self:
        # Making the interconnect checks the graph: count, numbers and connections. A third party's
        # topology may return wrong levels, which no route would reveal.
        try:
            self.interconnect  # noqa: B018
        except HyparError as error:
            raise rule(f"topology: {error}") from None
        return self

    @model_validator(mode="after")
    def _groups_are_halves(self) -> Self:
        if not self.groups:
            if self.accelerators == ():
                raise rule("accelerator: should have at least one entry, got none")
            return self
        counts = [group.count for group in self.groups]
        together = ", ".join(self.kinds)
        if self.model is not None:
            raise rule(f"model: should be left out with groups of accelerators, got {together}")
        total = self.interconnect.accelerators
        if len(counts) == 1:
            raise rule("accelerator: should be one table or several groups, got one group")
        if len({group.name for group in self.groups}) < len(counts):
            raise rule(f"accelerator: groups should differ in name, got {together}")
        if sum(counts) != total:
            raise rule(
                f"accelerator: groups should have the topology's {total:,} accelerators together,"
                f" got {together}"
            )
        parts, per_part = self.hierarchy().sizes[0], self._part_size
        if any(count % per_part for count in counts):
            raise rule(
                f"whole_levels: should be false where groups are no parts of H1, of"
                f" {per_part:,} accelerators each, got {together}"
            )
        if parts > MAX_PARTS_OF_H1:
            raise rule(
                f"accelerator: groups should be at most {MAX_PARTS_OF_H1} equal parts together, got"
                f" {parts} of {per_part:,} in {together}"
            )
        check_equal_kernels(self.groups, together)
        return self

    @property
    def step_model(self) -> StepModel:
        """How a step on the array is counted: defaults of problems, uneven shards, and memory."""
        return STEP_MODELS[self.model]

    @property
    def efficiency_of_overlap(self) -> float:
        """The efficiency of overlap."""
        return 1.0 if self.overlap_efficiency is None else self.overlap_efficiency

    def in_lockstep(self, overlap: str) -> bool:
        """Return whether accelerators are known to run in lockstep in a step of any plan.

        They do if all messages of an exchange cross equally many links and share them with equally
        many others, even if two exchanges are under way. On a torus or mesh that is known only for
        single exchanges, at levels of two parts and around whole dimensions; on a graph, or a
        topology of a package that is no grid, never.

        Parameters
        ----------
        overlap
            What overlaps, as the simulator's option.

        Source: docs/assumptions.md.
        """
        kind, pairwise = self.topology.kind, self.collective == "pairwise"
        if self.interconnect.accelerators > MAX_LISTED:  # otherwise they are not simulated
            return True
        if kind == "htree":
            return pairwise
        if kind == "nodes":
            return pairwise or self.collective == "hierarchical" or len(self._levels) == 1
        if self.topology.grid() is None or overlap != "none":
            return False
        if self.collective == "one-ring" and len(self._levels) > 1:
            return False
        closed = kind in ("torus", "ring")
        return all(
            (closed and len(parts) == 1)
            or ({*parts} == {2} and (pairwise or len(parts) <= 1 + closed))
            for parts in self._levels
        )

    @property
    def groups(self) -> tuple[AcceleratorGroup, ...]:
        """The groups of accelerators, each in parts of H1; none where all are identical."""
        return self.accelerators if isinstance(self.accelerators, tuple) else ()

    @property
    def _part_size(self) -> int:
        """The number of accelerators in each part of H1."""
        return self.interconnect.accelerators // self.hierarchy().sizes[0]

    @property
    def parts_of_groups(self) -> tuple[int, ...]:
        """The number of parts of H1 in each group; empty if all accelerators are identical."""
        return tuple(group.count // self._part_size for group in self.groups)

    @property
    def groups_of_parts(self) -> tuple[AcceleratorGroup, ...]:
        """The group of each part of H1; none where all accelerators are identical."""
        pairs = zip(self.groups, self.parts_of_groups, strict=True)
        return tuple(group for group, parts in pairs for _ in range(parts))

    @property
    def accelerators_of_parts(self) -> tuple[Accelerator, ...]:
        """An accelerator of each part of H1 between groups; otherwise a single one."""
        return self.groups_of_parts or (self.accelerator,)

    @property
    def members(self) -> tuple[range, ...]:
        """The numbers of the accelerators in each part of H1."""
        firsts = range(0, self.interconnect.accelerators, self._part_size)
        return tuple(range(first, first + self._part_size) for first in firsts)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The groups as text, ``8 v2``; none where all accelerators are identical."""
        return tuple(f"{group.count:,} {group.name}" for group in self.groups)

    @property
    def accelerator(self) -> Accelerator:
        """An accelerator: of the first group, if there are groups."""
        return self.groups[0] if isinstance(self.accelerators, tuple) else self.accelerators

    @cached_property
    def interconnect(self) -> Interconnect:
        """The links, and the routes over them."""
        sizes = tuple(size for sizes in self._levels for size in sizes)
        count = prod(sizes)
        if count > MAX_LISTED:
            folded = None if self.groups else self.topology.folded(self._levels)
            if folded is None:
                condition = "identical" if self.groups else "on links that are alike"
                raise HyparError(
                    f"should have at most {MAX_LISTED:,} accelerators unless all are {condition},"
                    f" got {count:,}"
                )
            return folded
        topology = self.topology
        return Interconnect(topology.graph(), topology.grid(), sizes, topology.paths)

    @cached_property
    def _levels(self) -> tuple[tuple[int, ...], ...]:
        """The parts of the levels, by dimension, topmost first."""
        levels, first, merged = self.topology.levels(), self._between_groups, 1
        if self.whole_levels:
            return levels
        if prod(map(prod, levels)) % first:
            first = 1  # this is refused elsewhere
        # With groups, H1 divides the accelerators by groups, whatever the topology's first levels.
        while merged % first:
            merged, levels = merged * prod(levels[0]), levels[1:]
        between = [(first, *Hierarchy((merged // first,)).in_primes.sizes)] if first > 1 else []
        return (*between, *(Hierarchy(n).in_primes.sizes for n in levels))

    @property
    def _between_groups(self) -> int:
        """The fewest equal parts of which each group has a whole number; 1 without groups."""
        counts = [group.count for group in self.groups]
        return sum(counts) // gcd(*counts) if counts else 1

    @property
    def _dimensions(self) -> tuple[tuple[int, ...], ...]:
        """The digits of accelerators' numbers, by dimension, the most significant first."""
        digits = reversed(range(self.levels))
        return tuple(tuple(islice(digits, len(sizes))) for sizes in self._levels)

    def with_whole_levels(self) -> Array:
        """Return the array with its hardware's levels as the hierarchy's, not their factors."""
        if self.topology.levels() == self._levels:
            return self
        return Array.model_validate({**self.description(), "whole_levels": True})

    @property
    def part_counts(self) -> tuple[int, ...]:
        """The numbers of equal parts of two accelerators or more, in order; 1 for the whole."""
        if self.groups or self.model:
            return (1,)
        counts = divisors(self.interconnect.accelerators)[1:-1]
        return (1, *(count for count in counts if self.topology.part(count)))

    def part(self, parts: int) -> Array:
        """Return one of so many equal parts, of its topmost levels, without the links to others.

        Raises
        ------
        HyparError
            If there are no such parts that are alike, of two accelerators or more.
        """
        topology = self.topology.part(parts) if parts in self.part_counts else None
        if topology is None:
            *counts, last = map(str, self.part_counts)
            possible = f"{', '.join(counts)} or {last}" if counts else last
            raise HyparError(
                f"{argument('stages')} should be {possible} on the array {self.name},"
                f" {self._parts_in_words}, got {excerpt(parts)}"
            )
        described = topology.model_dump(mode="json", exclude_none=True)
        return Array(**self.description() | {"topology": described})

    @property
    def _parts_in_words(self) -> str:
        """What its equal parts are, or why there are none."""
        if self.groups:
            return "which has groups of accelerators"
        if self.model:
            return f"which has the model {self.model}"
        if len(self.part_counts) > 1:
            return "in equal parts of two accelerators or more"
        count = self.interconnect.accelerators
        if count < 4:
            return f"which has {count} accelerator{'s' if count > 1 else ''}"
        kind = self.topology.kind
        return f"whose {count:,} accelerators, of kind {kind}, are in no equal parts of two or more"

    def stage_link(self, part: int, parts: int, ahead: int = 1) -> BisectionLink:
        """Return the link of messages from the accelerators of a part to another one's.

        Each sends to the one at its place. Seconds are those of a byte, counting the bytes of all
        the part's accelerators together.

        Parameters
        ----------
        part
            Its number, from 0; the first one follows the last.
        parts
            Of how many equal ones.
        ahead
            How many parts further on the other one is.
        """
        if parts == 1:  # an accelerator has what it sends
            return BisectionLink(Fraction(), Fraction(), Fraction())
        per_part = self.interconnect.accelerators // parts
        is_listed = self.interconnect.accelerators <= MAX_LISTED
        among = range(part * per_part, (part + 1) * per_part) if is_listed else None
        everyone = MessagePattern(tuple(range(self.levels)), ahead * per_part)
        rounds = [MessageRound((Lane(everyone, Fraction(1)),))]
        link = self.interconnect.link(rounds, among)
        return replace(link, seconds_per_byte=link.seconds_per_byte * parts)

    def with_bucket(self, size: int) -> Array:
        """Return the array with gradients reduced in buckets of so many bytes; 0 for each alone."""
        fields = {key: value for key, value in self.description().items() if key != "bucket"}
        return Array.model_validate({**fields, "bucket": f"{size} B"} if size else fields)

    @property
    def energies(self) -> EnergyConstants:
        """The energies, required to report joules.

        Raises
        ------
        HyparError
            If the array has none.
        """
        if self.energy is None:
            raise HyparError(
                f"array {self.name!r} has no energies, which joules need: a table [energy] with"
                " mac, dram and remote"
            )
        return self.energy

    def bucket_elements(self, element_bytes: int) -> int:
        """Return the most elements of gradients that are all-reduced together; 1 for each alone."""
        return 1 if self.bucket is None else int(self.bucket // element_bytes)

    @property
    def levels(self) -> int:
        """The hierarchy levels: divisions of the array down to one accelerator."""
        return self.interconnect.levels

    def hierarchy(self, placement: tuple[int, ...] | None = None) -> Hierarchy:
        """Return the parts of each level under a placement; None for the default one."""
        order = self.placement if placement is None else placement
        return Hierarchy(tuple(self.interconnect.place(number).parts for number in order))

    @property
    def placement(self) -> tuple[int, ...]:
        """The default placement: for every level, H1 first, the digit of an accelerator's number.

        Digit 0 is the least significant; where all levels have two parts, a digit is a bit.
        """
        return tuple(reversed(range(self.levels)))

    def dimensions_of(self, placement: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of the hardware's dimension that each level splits."""
        numbers = {
            digit: number for number, digits in enumerate(self._dimensions) for digit in digits
        }
        return tuple(numbers[digit] for digit in placement)

    def inside_nodes(self, placement: tuple[int, ...] | None = None) -> list[int]:
        """Return the levels inside the nodes, from 1 for H1; none if others are below, or no nodes.

        Parameters
        ----------
        placement
            None for the default one.
        """
        order = self.placement if placement is None else placement
        if self.topology.kind != "nodes" or getattr(self.topology, "per_node", 1) == 1:
            return []
        # The nodes, if there are several, are the first dimension, and a node's accelerators the
        # second.
        several = len(self._dimensions) > 1
        within = [number > 0 or not several for number in self.dimensions_of(order)]
        inside = [level for level, is_inside in enumerate(within, 1) if is_inside]
        return inside if inside and inside[-1] - inside[0] + 1 == len(inside) and within[-1] else []

    def orders(self) -> Iterator[tuple[int, ...]]:
        """Yield every placement that the topology allows, the default first."""
        return filter(self._splits_groups, _interleaved(self._dimensions))

    def allows(self, placement: tuple[int, ...]) -> bool:
        """Return whether a placement is one of `orders`."""
        in_order = {*placement} == {*range(self.levels)} and all(
            [digit for digit in placement if digit in digits] == list(digits)
            for digits in self._dimensions
        )
        return in_order and self._splits_groups(placement)

    def _splits_groups(self, placement: tuple[int, ...]) -> bool:
        """Return whether H1 splits the most significant digit, as it has to between groups."""
        return not self.groups or placement[0] == self.levels - 1

    @property
    def link_kinds(self) -> list[LinkKind]:
        """The links of each kind, in the topology's order."""
        kinds: Counter[tuple[str, Fraction, Fraction, str]] = Counter()
        for link in self.interconnect.links:
            duplex = "full" if link.full_duplex else "half"
            kinds[link.between, link.bytes_per_second, link.latency, duplex] += link.count
        return [
            LinkKind(count, between, float(rate), float(latency), duplex)
            for (between, rate, latency, duplex), count in kinds.items()
        ]

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each level: the rows of a data frame.

        ``bytes_per_second`` are those of all accelerators together, in the default placement;
        ``hops`` are the links that a byte crosses, on average.
        """
        return [
            {
                "level": level,
                "digit": digit,
                "parts": self.interconnect.place(digit).parts,
                "bytes_per_second": float(1 / split.seconds_per_byte),
                "latency": float(split.latency),
                "hops": float(split.hops),
            }
            for level, digit in enumerate(self.placement, 1)
            for split in (self.interconnect.bisection(digit),)
        ]

    def __repr__(self) -> str:
        count = self.interconnect.accelerators
        kinds = " and ".join(self.kinds)
        return (
            f"<Array {self.name}: {kinds or f'{count:,}'} accelerator{'s' if count > 1 else ''},"
            f" {self.topology.kind}, {self.collective} all-reduce>"
        )

    def description(self) -> dict[str, Any]:
        """Return the array as plain data, defaults included, in base units."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def digest(self) -> str:
        """Return a SHA-256 of the description, which the file's layout and units do not affect."""
        return self._digest

    def __hash__(self) -> int:
        return hash(self._digest)

    @cached_property
    def _digest(self) -> str:
        return digest_of(self.description())


def _interleaved(dimensions: tuple[tuple[int, ...], ...]) -> Iterator[tuple[int, ...]]:
    """Yield every interleaving of the dimensions' digits; those of a dimension keep their order."""
    # Lazily, since there may be too many to list; the first has one dimension after the other.
    remaining = tuple(digits for digits in dimensions if digits)
    if not remaining:
        yield ()
    for index, digits in enumerate(remaining):
        for suffix in _interleaved((*remaining[:index], digits[1:], *remaining[index + 1 :])):
            yield digits[0], *suffix


@checked
def read_array(path: str | Path) -> Array:
    """Read an array file, and the files that it refers to.

    Raises
    ------
    InputError
        Naming the file and the key, and what would be right.
    """
    file, text = file_name(path), read_text(path)
    with read_as("array", text, file):
        return _parsed(text, Path(path).parent, file)


def _parsed(text: str, folder: Path, file: str) -> Array:
    data = parse_toml(text, file=file)
    # Anything else that is wrong with the table is for `validate` to report.
    table = data.get("topology")
    if isinstance(table, dict) and str(table.get("kind")) in TOPOLOGIES:
        topology: type[Topology] = TOPOLOGIES[table["kind"]]
        try:
            # Relative to the array's file, whose folder the pydantic model does not know.
            data["topology"] = topology.located(table, folder)
        except InputError as error:
            source = error.file or file
            raise InputError(error.problem, where=error.where, file=source) from None
    return validate(Array, data, file=file)
