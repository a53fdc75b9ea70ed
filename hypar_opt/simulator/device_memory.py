"""The bytes of one accelerator in a training step, by layer and by category."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hypar_opt.frozen import FrozenDict
from hypar_opt.plan.training import training_columns
from hypar_opt.results import Column, Columns, Documented
from hypar_opt.units import format_bytes, format_nonzero_bytes
from hypar_opt.workload.shards import renumbered_words

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.patterns import Words


@dataclass(frozen=True)
class LayerMemory:
    """Bytes of one layer on one accelerator.

    Parameters
    ----------
    weights, gradients, state
        Held throughout; those of shared weights belong to the first layer that uses them.
    saved
        Held from the layer's forward pass to its backward pass; a tensor that several layers save
        belongs to the first.
    moment
        Transient: held only while the layer runs.
    """

    layer: str
    weights: int
    gradients: int
    state: int
    saved: int
    moment: int


@dataclass(frozen=True)
class Moment:
    """Transient bytes, held only while a layer runs.

    Parameters
    ----------
    recomputed
        Tensors that its backward pass, or its block's, recomputes.
    gathered
        Its gathered weights and gradient, if they are sharded.
    logits
        A loss's values in single precision.
    live
        Errors between layers, in inference feature maps; and halos of images.
    """

    layer: str
    recomputed: int
    gathered: int
    logits: int
    live: int

    @property
    def total(self) -> int:
        return self.recomputed + self.gathered + self.logits + self.live


CATEGORIES = {
    "weights": "weights",
    "gradients": "gradients",
    "state": "optimizer",
    "saved": "activations",
    "moment": "transient",
}
"""The heading of each category."""


def _category(name: str) -> Column:
    heading = CATEGORIES.get(name)
    return Column(name, heading, format_nonzero_bytes, lambda held: held.categories[name], type=int)


STAGES_HELD = Columns(
    Column("stage", "", of="group", type=str),
    *map(_category, (*CATEGORIES, "reserve")),
    Column("bytes", "total", format_bytes, "total", type=int),
    Column("capacity", type=int | None),
    Column("margin", "to spare", format_bytes, type=int | None),
)
"""Of a stage, its `DeviceMemory`."""


@dataclass(frozen=True, repr=False)
class DeviceMemory(Documented):
    """The memory of a plan's training step on the fullest accelerator, in bytes.

    Parameters
    ----------
    plan
        Ignored when results are compared.
    layers
        In the network's order.
    moment
        The transient bytes of the layer with most of them.
    reserve, capacity
        The accelerator's bytes that no tensor may take, including the plan's communicators; and its
        total, None without an array.
    options
        Micro-batches, recomputation and sharding, if they are not the defaults.
    group
        The name of the accelerator's group, or its stage, if there are several.
    stages
        For a plan in pipeline stages, the memory of an accelerator of each.
    levels_above
        The levels between stages, if ``plan`` is a stage; ``options`` number levels as ``plan``
        does.
    """

    contents = Columns(
        Column("bytes", of="total"),
        Column("group", absent=""),
        *("capacity", "fits", "margin", "categories", "moment", "layers"),
        Column("stages", type=STAGES_HELD, absent=()),
        *training_columns(attrgetter("stated")),
    )

    plan: Plan = field(compare=False)
    layers: tuple[LayerMemory, ...]
    moment: Moment
    reserve: int = 0
    capacity: int | None = None
    options: Mapping[str, int | Words] = FrozenDict()
    group: str = ""
    stages: tuple[DeviceMemory, ...] = ()
    levels_above: int = 0

    @property
    def categories(self) -> Mapping[str, int]:
        """Bytes by category, which add up to ``total``."""
        names = ("weights", "gradients", "state", "saved")
        bytes_by_category = {
            name: sum(getattr(layer, name) for layer in self.layers) for name in names
        }
        return FrozenDict(
            bytes_by_category | {"moment": self.moment.total, "reserve": self.reserve}
        )

    @property
    def total(self) -> int:
        """All bytes together."""
        return sum(self.categories.values())

    @property
    def tensors(self) -> int:
        """All bytes without the reserve."""
        return self.total - self.reserve

    @property
    def per_accelerator(self) -> str:
        """Whose bytes they are, as part of a sentence."""
        return f"per accelerator of {self.group}" if self.group else "per accelerator"

    @property
    def fits(self) -> bool | None:
        """Whether the accelerator has as many bytes; None without an array."""
        return None if self.capacity is None else self.total <= self.capacity

    @property
    def margin(self) -> int | None:
        """The bytes to spare, negative if it does not fit; None without an array."""
        return None if self.capacity is None else self.capacity - self.total

    @property
    def fit(self) -> str:
        """Whether it fits and by how much, as part of a sentence."""
        total, whose = format_bytes(self.total), self.per_accelerator
        reserve = f"; reserve {format_bytes(self.reserve)}" if self.reserve else ""
        if self.capacity is None:
            return f"{total} {whose}{reserve}"
        capacity, margin = (
            format_bytes(self.capacity),
            format_bytes(abs(self.capacity - self.total)),
        )
        if self.fits:
            return f"fits: {total} of {capacity} {whose}, {margin} to spare{reserve}"
        return f"does not fit: {total} of {capacity} {whose}, {margin} too much{reserve}"

    def __repr__(self) -> str:
        of = f" of {format_bytes(self.capacity)}" if self.capacity is not None else ""
        return f"<DeviceMemory of {self.plan.network.name}: {format_bytes(self.total)}{of}>"

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each layer, in bytes: the rows of a data frame."""
        return [*map(Columns.of(LayerMemory).row, self.layers)]

    @property
    def stated(self) -> Mapping[str, int | Words]:
        """The options, with levels as the whole plan numbers them."""
        shard = self.options.get("shard", 0)
        if isinstance(shard, int):
            return self.options
        return {**self.options, "shard": renumbered_words(shard, self.levels_above)}
