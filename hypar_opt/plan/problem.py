"""What is asked of a search: a network's batch, the levels, the choices, the constraints."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    Strict,
    field_serializer,
    model_validator,
)

from hypar_opt.documents import (
    LARGEST_SIZE,
    Document,
    Name,
    Printable,
    Size,
    rule,
    shown,
)
from hypar_opt.hardware.array import Array
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import PAPERS_CHOICES, Parallelism

MOST_LEVELS = 64
ELEMENT_BYTES = (1, 2, 4, 8)
SHOWN_PINS = 4
"""Pins that a sentence names before it only counts them."""

OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}
"""Elements of state that an optimizer keeps for each weight."""

_UNITS = {"": 1, "B": 1} | {
    prefix + ending: base ** (power + 1)
    for ending, base in (("", 1000), ("B", 1000), ("i", 1024), ("iB", 1024))
    for power, prefix in enumerate("kMGTP")
}


def _element_bytes(value: int) -> int:
    if value not in ELEMENT_BYTES:
        raise rule(f"should be one of {', '.join(map(str, ELEMENT_BYTES))}, got {value}")
    return value


def _choices(value: tuple[Parallelism, ...]) -> tuple[Parallelism, ...]:
    if value not in (PAPERS_CHOICES, tuple(Parallelism)):
        raise rule(f'should be ["data", "model"], or with "output", got {json.dumps(value)}')
    return value


def _bytes(value: object) -> object:
    """Read ``8GB`` (1e9) or ``8GiB`` (2^30); whole numbers are bytes."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([kKMGTP]?i?B?)\s*", value)
    unit = found[2].replace("K", "k") if found else ""
    if found is None or unit not in _UNITS:
        raise rule(f"should be bytes, as in 8GB or 512MiB, got {value!r}")
    return int(Fraction(found[1]) * _UNITS[unit])


def _optimizer(value: object) -> object:
    if isinstance(value, str) and value.isdecimal() and len(value) < 10:
        value = int(value)
    is_size = type(value) is int and 0 <= value <= LARGEST_SIZE
    if not is_size and (not isinstance(value, str) or value not in OPTIMIZERS):
        known = ", ".join(OPTIMIZERS)
        raise rule(f"should be {known} or the bytes it keeps for a weight, got {shown(value)}")
    return value


Levels = Annotated[int, Strict(), Field(ge=0, le=MOST_LEVELS)]
Flag = Annotated[bool, Strict()]


class Constraints(Document):
    """What a plan has to keep to."""

    fix: tuple[Printable, ...] = ()
    """Pinned choices, each ``LAYER[@LEVEL]=CHOICE``; the layer may be a pattern."""
    even: Flag = False
    """Only splits that divide the batch and the channels, so that the plan can run."""
    memory: Annotated[int, BeforeValidator(_bytes), Strict(), Field(ge=1, le=2**63 - 1)] | None = (
        None
    )
    """Bytes that an accelerator has for weights, gradients, the optimizer's state, and
    feature maps and errors at each layer's input and output; for inference, weights and maps."""
    optimizer: Annotated[str | int, BeforeValidator(_optimizer)] = "sgd"
    """``sgd``, ``momentum``, ``adam``, or the bytes it keeps for each weight."""

    @property
    def any(self) -> bool:
        return bool(self.fix) or self.even or self.memory is not None

    @property
    def within(self) -> str:
        """What limits the choice, as ``with --fix conv1=model, --even``; empty if nothing does.

        It belongs into every sentence that calls a plan optimal, proved or best.
        """
        kept = [f"--fix {pin}" for pin in self.fix]
        if len(kept) > SHOWN_PINS:
            kept[SHOWN_PINS - 1 :] = [f"{len(kept) - SHOWN_PINS + 1} more pins"]
        kept += ["--even"] if self.even else []
        if self.memory is not None:
            kept.append(f"--memory {self.memory}")
            kept += [f"--optimizer {self.optimizer}"] if self.optimizer != "sgd" else []
        return f" with {', '.join(kept)}" if kept else ""

    def optimizer_bytes(self, element_bytes: int) -> int:
        """Return the bytes of the optimizer's state for each weight."""
        if isinstance(self.optimizer, int):
            return self.optimizer
        return OPTIMIZERS[self.optimizer] * element_bytes


class Record(Document):
    """A network or an array, whole."""

    name: Name
    digest: str
    description: Any

    @classmethod
    def of(cls, described: Any) -> Self:
        return cls(name=described.name, digest=described.digest(), description=described)

    @field_serializer("description")
    def _as_described(self, described: Network | Array) -> dict[str, Any]:
        return described.description()

    @model_validator(mode="after")
    def _is_untouched(self) -> Self:
        if self.name != self.description.name:
            raise rule(f"name should be the description's, {self.description.name!r}")
        if self.digest != self.description.digest():
            raise rule(
                f"digest should be the description's, {self.description.digest()},"
                f" got {self.digest!r}"
            )
        return self


class NetworkRecord(Record):
    """The network a plan is for."""

    description: Network


class ArrayRecord(Record):
    """The accelerator array a plan is for."""

    description: Array


class ProblemFields(Document):
    """Every option that changes the answer, but for what is charged."""

    batch: Size = 256
    """Images a training step, over all accelerators."""
    levels: Levels = 4
    """Levels of the hierarchy, for 2^levels accelerators."""
    element_bytes: Annotated[int, Strict(), AfterValidator(_element_bytes)] = 4
    """Bytes of a tensor's element."""
    inference: Flag = False
    """Charge the forward pass only: no gradients and no errors."""
    choices: Annotated[tuple[Parallelism, ...], AfterValidator(_choices)] = PAPERS_CHOICES
    """What a layer may choose from."""
    level_weights: tuple[Size, ...] = ()
    """What a byte costs at each level, H1 first; empty for 1 everywhere."""
    constraints: Constraints = Constraints()
    array: ArrayRecord | None = None
    """What a plan runs on; None where only bytes count."""
    placement: tuple[Annotated[int, Strict(), Field(ge=0)], ...] | None = None
    """The bit of an accelerator's number that each level splits, H1 first; of an array."""

    @model_validator(mode="after")
    def _the_array_fits(self) -> Self:
        if (self.array is None) != (self.placement is None):
            raise rule("placement: should be there with an array, and null without")
        if self.array is None or self.placement is None:
            return self
        array = self.array.description
        if array.levels != self.levels:
            raise rule(
                f"levels: should be {array.levels}, since the array {array.name} has"
                f" {2**array.levels} accelerators, got {self.levels}"
            )
        if not array.allows(self.placement):
            raise rule(
                f"placement: should be one that the array's {array.topology.kind} allows, as"
                f" {list(array.placement)}, got {list(self.placement)}"
            )
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
    """What is asked of a search, validated.

    ``cost`` is what is charged: ``bytes``, or ``time`` or ``energy`` of an array; ``reading``
    is which bytes: ``text``, ``tables``, ``figures`` or ``executed``.
    """

    cost: str = "bytes"
    reading: str = "text"
