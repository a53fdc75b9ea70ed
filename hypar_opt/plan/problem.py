"""The problem that a search solves: batch, levels, choices, array and constraints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

from pydantic import (
    AfterValidator,
    Field,
    PlainValidator,
    SkipValidation,
    Strict,
    field_serializer,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from hypar_opt.documents.document import Document, ElementBytes, Name, Size, digest_of, rule
from hypar_opt.errors import unknown
from hypar_opt.hardware import arrays
from hypar_opt.hardware.links import BisectionLink
from hypar_opt.hardware.step_model import HYPAR_2019, StepModel
from hypar_opt.hierarchy import MAX_PARTS, Hierarchy, SplitRule
from hypar_opt.plan.constraints import Constraints, Flag
from hypar_opt.plan.share_of_group import SHARES, Share, shares_of_parts
from hypar_opt.plan.training import Training
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import (
    CHOICES_WITH_QUERIES,
    IMAGE_CHOICES,
    PAPERS_CHOICES,
    PART_WORDS,
    SETS_OF_CHOICES,
    TENSOR,
    WHOLE_LAYER,
    choices_below_h1,
    part_word,
)

if TYPE_CHECKING:
    from hypar_opt.hardware.accelerator import AcceleratorGroup
    from hypar_opt.hardware.array import Array

MAX_LEVELS = 64

RUN_READINGS = ("executed", "joined")
"""The readings that count what a run of a plan moves."""


def _choices(value: tuple[str, ...]) -> tuple[str, ...]:
    choices = choices_below_h1(value)
    choices = choices[:-1] if choices[-1:] == (WHOLE_LAYER,) else choices
    whole = (WHOLE_LAYER,) if WHOLE_LAYER in value else ()
    sides = tuple(
        sorted({word for word in value if word in PART_WORDS}, key=PART_WORDS.__getitem__)
    )
    if choices not in SETS_OF_CHOICES or value != choices + whole + sides:
        words = [*CHOICES_WITH_QUERIES, WHOLE_LAYER, TENSOR]
        strange = [word for word in value if word not in words and word not in PART_WORDS]
        if strange:
            raise rule(unknown("choice", strange[0], words))
        more = ", ".join((*CHOICES_WITH_QUERIES[len(PAPERS_CHOICES) :], WHOLE_LAYER))
        # With groups of accelerators parts of H1 were added to the choices that were stated.
        got = ", ".join(value if choices in SETS_OF_CHOICES else choices_below_h1(value)) or "none"
        raise rule(f"should be data, model, or these and some of {more}, in this order, got {got}")
    return value


Levels = Annotated[int, Strict(), Field(ge=0, le=MAX_LEVELS)]


class Record(Document):
    """A network or an array with its complete description: a plan file is self-contained."""

    name: Name
    digest: str
    description: Any

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, {self.digest}>"

    @classmethod
    def of(cls, described: Any) -> Self:
        return cast(Self, _record(cls, described))

    @field_serializer("description")
    def _as_described(self, described: Network | Array) -> dict[str, Any]:
        return described.description()

    @model_validator(mode="after")
    def _is_untouched(self) -> Self:
        # A description that was edited by hand must not pass for the solved one.
        if self.name != self.description.name:
            raise rule(f"name should be the description's, {self.description.name!r}")
        if self.digest != self.description.digest():
            raise rule(
                f"digest should be the description's, {self.description.digest()},"
                f" got {self.digest!r}"
            )
        return self


@lru_cache(maxsize=64)
def _record(kind: type[Record], described: Any) -> Record:
    """Return the record of a network or an array, which is validated once."""
    return kind(name=described.name, digest=described.digest(), description=described)


class NetworkRecord(Record):
    """The network of a plan."""

    description: Network


def _array(value: object) -> Array:
    # Imported late: where only bytes are charged, there is no array.
    from hypar_opt.hardware.array import Array

    return Array.model_validate(value)


if not TYPE_CHECKING:
    Array = Annotated[Any, PlainValidator(_array)]


class ArrayRecord(Record):
    """The accelerator array of a plan."""

    description: Array

    @model_validator(mode="before")
    @classmethod
    def _older_description(cls, data: Any) -> Any:
        """Read a file whose digest includes the accelerator's ``buffer``, or lacks the ``model``.

        The former is gone, and the paper's arrays were known by their digests.
        """
        from hypar_opt.hardware.accelerator import without_buffer

        described: Any = data.get("description") if isinstance(data, dict) else None
        if not isinstance(described, dict) or "model" in described:
            return data
        accelerator = without_buffer(described.get("accelerator"))
        newer = arrays.with_model({**described, "accelerator": accelerator})
        if newer == described or digest_of(described) != data.get("digest"):
            return data
        return {**data, "description": newer, "digest": digest_of(newer)}


@dataclass(frozen=True)
class StageContext:
    """What a problem on the network of a pipeline stage depends on in other stages.

    Parameters
    ----------
    in_flight : (layers,)
        For how many micro-batches at once each layer holds what it saves.
    links
        The links of its messages, by the names of their layers.
    """

    in_flight: tuple[int, ...]
    links: Mapping[str, BisectionLink]


class ProblemFields(Document):
    """Every option that changes the answer, except the cost and the reading."""

    batch: Size = 256
    """Images in a training step, over all accelerators."""
    levels: Levels = 4
    """Levels of the hierarchy."""
    parts: tuple[Annotated[int, Strict(), Field(ge=2, le=MAX_PARTS)], ...] | None = None
    """The parts of each level, H1 first; None for two each."""
    element_bytes: ElementBytes = 4
    """Bytes of a tensor element: 4 as in the paper."""
    inference: Flag = False
    """Charge the forward pass only: no gradients and no errors."""
    choices: Annotated[tuple[str, ...], AfterValidator(_choices)] = PAPERS_CHOICES
    """The choices that a layer has at each level."""
    level_weights: tuple[Size, ...] = ()
    """The cost of a byte at each level, H1 first; empty for 1 at every level."""
    constraints: Constraints = Constraints()
    array: ArrayRecord | None = None
    """The array that a plan runs on; None where only bytes are charged."""
    placement: tuple[Annotated[int, Strict(), Field(ge=0)], ...] | None = None
    """With an array: the digit of an accelerator's number that each level splits, H1 first."""
    share: Share | None = None
    """With an array of groups: the first of two groups' share of what H1 splits, or those of all;
    None for equal parts."""
    training: Training = Training()
    """Micro-batches, recomputation, and what data parallelism shards."""
    stage: SkipJsonSchema[SkipValidation[Annotated[StageContext | None, Field(exclude=True)]]] = (
        None
    )
    """Where the network is a stage of another; in no file, since a plan's words say it."""

    @property
    def hierarchy(self) -> Hierarchy:
        """The parts of each level."""
        return Hierarchy(self.parts or (2,) * self.levels)

    @property
    def accelerators(self) -> int:
        """The number of accelerators."""
        return self.hierarchy.accelerators

    @property
    def split_rule(self) -> SplitRule | None:
        """How levels may split an axis under the constraints; None without a rule."""
        limits = self.constraints
        any_way = not (limits.even or limits.runnable or {*IMAGE_CHOICES} & {*self.choices})
        if any_way or limits.even or not limits.runnable or self.share is None:
            return (
                None if any_way else SplitRule(self._split_parts, limits.even, not limits.runnable)
            )
        return SplitRule.with_shares(self.hierarchy, self.part_shares)

    @property
    def rule_at_any_share(self) -> SplitRule | None:
        """A rule that allows what `split_rule` allows at any shares; None without a rule."""
        limits = self.constraints
        if limits.even:
            return SplitRule(Hierarchy((1, *self.hierarchy.sizes[1:])), even=True)
        # The smallest of unequal parts is no larger than an equal part.
        return SplitRule(self.hierarchy, even=False) if limits.runnable else None

    @property
    def _split_parts(self) -> Hierarchy:
        """The parts of each level as `split_rule` counts them on axes that it splits.

        Even parts with a share of p/q, in lowest terms, are integers if q equal parts are.
        """
        if not self.constraints.even or self.share is None:
            return self.hierarchy
        shares = [share // gcd(*self.part_shares) for share in self.part_shares]
        return Hierarchy((sum(shares), *self.hierarchy.sizes[1:]))

    @property
    def step_model(self) -> StepModel:
        """How a step is counted: by the array's ``model``, or without an array as in the paper."""
        return self.array.description.step_model if self.array else HYPAR_2019

    @property
    def in_flight(self) -> tuple[int, ...]:
        """The number of micro-batches for which each layer holds saved activations; empty for 1."""
        return self.stage.in_flight if self.stage else ()

    @property
    def place(self) -> str:
        """The array, ``on h100-8x8``, or the levels, ``4 levels`` or ``levels of 2 x 3 parts``."""
        if self.array:
            return f"on {self.array.name}"
        sizes = " x ".join(map(str, self.hierarchy.sizes))
        return f"levels of {sizes} parts" if self.parts else f"{self.levels} levels"

    @property
    def groups(self) -> tuple[AcceleratorGroup, ...]:
        """The groups of accelerators of the array; none where all are identical."""
        return self.array.description.groups if self.array else ()

    @property
    def part_memory(self) -> tuple[int, ...]:
        """The bytes, if limited, of each part of H1 between groups: at most its group's memory."""
        stated = self.constraints.memory
        if self.array is None or stated is None:
            return ()
        groups = self.array.description.groups_of_parts
        return tuple(min(stated, int(group.dram_capacity)) for group in groups)

    @property
    def has_unequal_parts(self) -> bool:
        """Whether H1's parts may differ: shares are set, or layers may be in one part of groups."""
        has_sides = choices_below_h1(self.choices) != self.choices
        return self.share is not None or (has_sides and bool(self.groups))

    @property
    def is_staged(self) -> bool:
        """Whether layers may be in one of equal parts of H1: the stages of a pipeline."""
        return choices_below_h1(self.choices) != self.choices and not self.groups

    @property
    def digits(self) -> tuple[tuple[int, ...], ...]:
        """The digits of an accelerator's number that each level splits; none without an array.

        In stages H1 splits several together: `placement` has those of the array.
        """
        placement = self.placement or ()
        together = len(placement) - self.levels + 1
        below = tuple((digit,) for digit in placement[together:])
        return (placement[:together], *below) if placement else ()

    @property
    def group_shares(self) -> tuple[int, ...] | None:
        """The share of each group, of `SHARES`; None for equal parts."""
        if self.share is None:
            return None
        shares = self.share if isinstance(self.share, tuple) else (self.share, 1 - self.share)
        return tuple(round(SHARES * share) for share in shares)

    @property
    def shown_shares(self) -> str:
        """The shares of the groups for a message: ``0.3 and 0.7``."""
        return " and ".join(str(share / SHARES) for share in self.group_shares or ())

    @property
    def part_shares(self) -> tuple[int, ...]:
        """The share of each part of H1, relative to their sum."""
        if self.array is None or self.group_shares is None:
            return (1,) * self.hierarchy.sizes[0] if self.levels else ()
        return shares_of_parts(self.group_shares, self.array.description.parts_of_groups)

    def placed(self, placement: tuple[int, ...]) -> Self:
        """Return the problem with another placement of its levels on its array."""
        assert self.array is not None
        sizes = self.array.description.hierarchy(placement)
        return self.model_copy(update={"placement": placement, "parts": sizes.unless_binary})

    @model_validator(mode="after")
    def _the_array_fits(self) -> Self:
        if (self.array is None) != (self.placement is None):
            raise rule("placement: should be there with an array, and null without")
        if self.array is None or self.placement is None:
            return self
        array = self.array.description
        if self.is_staged:
            return self._in_stages_on(array)
        if array.levels != self.levels:
            raise rule(
                f"levels: should be {array.levels}, since the array {array.name} has"
                f" {array.interconnect.accelerators} accelerators, got {self.levels}"
            )
        if not array.allows(self.placement):
            raise rule(
                f"placement: should be one that the array's {array.topology.kind} allows, as"
                f" {list(array.placement)}, got {list(self.placement)}"
            )
        if array.hierarchy(self.placement) != self.hierarchy:
            raise rule(
                f"parts: should be {list(array.hierarchy(self.placement).sizes)}, as the levels of"
                f" the array {array.name} have, got {list(self.hierarchy.sizes)}"
            )
        return self

    def _in_stages_on(self, array: Array) -> Self:
        """Check levels of which H1 has an array's first ones merged."""
        if self.placement != array.placement:
            raise rule(
                f"placement: should be the array's, {list(array.placement)}, in stages, got"
                f" {list(self.placement or ())}"
            )
        of_array, sizes = array.hierarchy(), self.hierarchy.sizes
        merged = of_array.merged(sizes[0]) if sizes else None
        if merged is None:
            raise rule(
                f"parts: H1 should have the parts of the first levels of the array {array.name}"
                f" together, of {list(of_array.sizes)}, got {list(sizes)}"
            )
        if merged != self.hierarchy:
            raise rule(
                f"parts: should be {list(merged.sizes)}, as the levels of the array {array.name}"
                f" in {sizes[0]} stages, got {list(sizes)}"
            )
        return self

    @model_validator(mode="after")
    def _stages_are_all_parts(self) -> Self:
        if not self.is_staged:
            if self.training.schedule != Training().schedule:
                raise rule("schedule: should be with stages, layers in parts of H1")
            return self
        parts = self.hierarchy.sizes[0] if self.levels else 0
        sides_of_parts = tuple(map(part_word, range(parts)))
        stated = tuple(word for word in self.choices if word in PART_WORDS)
        if stated != sides_of_parts:
            named = (
                f"all parts of H1, {sides_of_parts[0]} to {sides_of_parts[-1]},"
                if sides_of_parts
                else "no part of H1"
            )
            raise rule(
                f"choices: should have {named} as stages without groups of accelerators, got"
                f" {', '.join(stated)}"
            )
        if self.inference:
            raise rule("inference: is not supported with stages")
        return self

    @model_validator(mode="after")
    def _trains(self) -> Self:
        purpose = "inference" if self.inference else None
        self.training.check(self.batch, self.levels, self.element_bytes, purpose)
        return self

    @model_validator(mode="after")
    def _groups_share(self) -> Self:
        if not self.has_unequal_parts:
            return self
        if not self.groups:
            raise rule("share: should be with an array of groups of accelerators")
        count = len(self.groups)
        if (stated := self.group_shares) is not None and len(stated) != count:
            one = "one share, the first group's" if count == 2 else f"{count} shares, one a group"
            raise rule(f"share: should be {one}, got {self.share}")
        parts = self.hierarchy.sizes[0]
        beyond = next((word for word in self.choices if PART_WORDS.get(word, 0) >= parts), None)
        if beyond is not None:
            raise rule(f"choices: {beyond} should be one of H1's {parts} parts")
        return self

    @model_validator(mode="after")
    def _parts_of_each_level(self) -> Self:
        if self.parts is None:
            return self
        if len(self.parts) != self.levels:
            raise rule(f"parts: should be one for each of {self.levels} levels, got {self.parts}")
        if self.hierarchy.is_binary:
            raise rule("parts: should be null where each level has two")
        return self

    @model_validator(mode="after")
    def _a_weight_a_level(self) -> Self:
        if self.level_weights and len(self.level_weights) != self.levels:
            raise rule(
                f"level_weights: should be one for each of {self.levels} levels,"
                f" got {len(self.level_weights)}"
            )
        return self


class Problem(ProblemFields):
    """A validated problem: the fields of `ProblemFields`, the objective and its reading.

    ``cost`` is the objective: ``bytes``, or ``time`` or ``energy`` on an array. ``reading`` is
    the communication model that counts the bytes: ``text``, ``tables``, ``figures``,
    ``executed`` or ``joined``, as ``hypar_opt.step.readings`` says.
    """

    cost: str = "bytes"
    reading: str = "text"

    @property
    def run_reading(self) -> str:
        """The reading that counts what a run of its plans moves: its own reading, if that does."""
        return self.reading if self.reading in RUN_READINGS else "executed"

    @property
    def joins_levels(self) -> bool:
        """Whether a run of its plans has one all-to-all over several levels, where it can."""
        return self.reading == "joined"

    @property
    def bounds_shares(self) -> bool:
        """Whether constraints depend on shares: even parts divide axes, and memory is limited."""
        return self.constraints.even or bool(self.part_memory and self.device_memory is None)

    @property
    def depends_on_shares(self) -> bool:
        """Whether shares decide what constraints allow: `bounds_shares`, or no part may be empty.

        The latter they mostly leave as it is of equal parts.
        """
        return self.bounds_shares or self.constraints.runnable

    @property
    def device_memory(self) -> int | None:
        """The bytes of a device within which plans train; None if memory is counted by layer.

        For time, on an array that counts memory by tensor: the array's, or those that are stated,
        limited to each group's own. For bytes or energy: those that are stated, with equal
        accelerators.
        """
        stated = self.constraints.memory is not None and not self.groups
        by_time_or_memory = self.cost == "time" or (self.cost in ("bytes", "energy") and stated)
        trains = (
            by_time_or_memory and self.reading in RUN_READINGS and self.step_model.memory_by_tensor
        )
        if self.array is None or not trains or self.inference:
            return None
        array = self.array.description
        capacity = max(
            int(accelerator.dram_capacity) for accelerator in array.groups or (array.accelerator,)
        )
        return self.constraints.memory or capacity

    def __repr__(self) -> str:
        return (
            f"<Problem: batch {self.batch:,}, {self.place}, {', '.join(self.choices)}, the least"
            f" {self.cost} by the reading {self.reading}{self.constraints.within}>"
        )
