"""The result of running a plan: bytes and numbers, compared with its program and one device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.hierarchy import Hierarchy
from hypar_opt.results import Column, Columns, Documented
from hypar_opt.units import format_bytes

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.shards import Array

TOLERANCE = 1e-9
"""The largest relative difference from one device in double precision."""


@dataclass(frozen=True)
class ExchangeRow:
    """The bytes that all devices together received in one exchange, as modelled and as counted.

    Parameters
    ----------
    phase
        ``forward``, ``backward`` or ``gradient``; None if the backend cannot tell.
    kind
        ``reduce-scatter``, ``all-to-all``, ``all-gather`` or ``all-reduce``.
    level
        From 1 for H1.
    layer
        The layer, or shared tensor, that the exchange is for; None if the backend cannot tell.
    tensor
        The tensor exchanged: ``input from NAME``, ``output``, ``statistics`` or ``gradient``.
    """

    phase: str | None
    kind: str
    level: int
    layer: str | None
    tensor: str | None
    modelled: int | float
    counted: int | float

    @property
    def named(self) -> str:
        """The exchange's level, layer, pass, kind and tensor, for messages."""
        parts = (f"H{self.level}", self.layer, self.phase, self.kind, self.tensor)
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True, repr=False)
class RunResult(Documented):
    """One step of a plan on many devices, compared with its program and with one device.

    Parameters
    ----------
    reduced
        The sizes that ``--scale-down`` reduced.
    notes
        Notes on what the run left out.
    not_kept
        Parts of the model that the network, or a step of it, lacks.
    priced
        Bytes by level as the cost model of the reading ``executed`` charges them, H1 first; empty
        if the backend drops some of them.
    loss, reference_loss
        The devices' loss and one device's.
    values, gradients
        The largest difference from one device's: of any layer's output, of any gradient,
        relative to the tensor's largest element, or to a ten-thousandth, in JAX a tenth, of the
        largest element of all tensors or of one, if that is more. None if the backend does not
        compare them.
    tolerance
        The largest difference that still agrees.
    bias_bytes
        Bytes by level of the gradients of biases, H1 first, which no plan counts, and which are
        not among ``exchanges``; empty if nothing of them moves.
    model
        The largest difference of the network's output from that of the model whose weights it
        has, relative to its largest element, both in double precision; None without one.
    model_tolerance
        The largest such difference that still agrees.
    """

    contents = Columns(
        *("network", "batch", "levels"),
        Column("parts", of="hierarchy.unless_binary", absent=None),
        *("backend", "seed", "reduced", "notes", "not_kept", "agrees"),
        Column("bytes_modelled", of="modelled"),
        Column("bytes_counted", of="counted"),
        Column("bytes_priced", of="priced"),
        Column("bytes_of_biases", of="bias_bytes", absent=()),
        "loss",
        Column("one_device_loss", of="reference_loss"),
        Column("values_difference", of="values"),
        Column("gradients_difference", of="gradients"),
        Column("model_difference", of="model", absent=None),
        "exchanges",
    )

    network: str
    batch: int
    hierarchy: Hierarchy
    backend: str
    seed: int
    reduced: tuple[str, ...]
    notes: tuple[str, ...]
    exchanges: tuple[ExchangeRow, ...]
    priced: tuple[int | float, ...]
    loss: float
    reference_loss: float
    values: float | None
    gradients: float | None
    tolerance: float = TOLERANCE
    not_kept: tuple[str, ...] = ()
    bias_bytes: tuple[int | float, ...] = ()
    model: float | None = None
    model_tolerance: float = 1e-6

    @property
    def levels(self) -> int:
        """The number of levels."""
        return self.hierarchy.levels

    @property
    def modelled(self) -> tuple[int | float, ...]:
        """Bytes by level according to the plan's program, H1 first."""
        return self._by_level("modelled")

    @property
    def counted(self) -> tuple[int | float, ...]:
        """Bytes by level as the devices received them, H1 first."""
        return self._by_level("counted")

    def _by_level(self, amount: str) -> tuple[int | float, ...]:
        sums: list[int | float] = [0] * self.levels
        for row in self.exchanges:
            sums[row.level - 1] += getattr(row, amount)
        return tuple(sums)

    def disagreements(self) -> Iterator[str]:
        """Yield descriptions of all disagreements, bytes first."""
        for row in self.exchanges:
            if row.modelled != row.counted:
                yield f"{row.named}: {row.modelled:,} bytes modelled, {row.counted:,} counted"
        levels = zip(self.priced, self.counted, strict=False)  # a backend may have no price
        for level, (priced, counted) in enumerate(levels, start=1):
            if priced != counted:
                yield f"H{level}: {priced:,} bytes priced, {counted:,} counted"
        scale = max(abs(self.reference_loss), 1e-4)  # a loss may be zero
        loss = abs(self.loss - self.reference_loss) / scale
        for what, difference in (
            ("the loss", loss),
            ("values", self.values),
            ("gradients", self.gradients),
        ):
            # NaN is a disagreement too.
            if difference is not None and not difference <= self.tolerance:
                yield f"{what} differ from one device's by {difference:.1e} relatively"
        if self.model is not None and not self.model <= self.model_tolerance:
            yield f"the output differs from the model's by {self.model:.1e} relatively"

    @property
    def agrees(self) -> bool:
        """Whether all bytes match the model, and all numbers those of one device."""
        return next(self.disagreements(), None) is None

    def __repr__(self) -> str:
        verdict = "agrees" if self.agrees else "DIFFERS"
        return (
            f"<RunResult of {self.network}: batch {self.batch},"
            f" {self.hierarchy.accelerators} devices, {self.backend},"
            f" {format_bytes(sum(self.counted))} received, {verdict}>"
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each exchange, in bytes: the rows of a data frame."""
        return [dict(vars(row)) for row in self.exchanges]


def largest_difference(
    compared: Iterable[tuple[Array, Iterable[tuple[Array, Array]]]], *, floor: float = 1e-4
) -> float:
    """Return the largest difference of parts, relative to the largest element of their tensor.

    Parameters
    ----------
    compared
        Each tensor of one device, with the expected and the actual part of each device.
    floor
        The least that differences are relative to, as a fraction of the largest element of all
        tensors or of one: a tensor may be zero up to rounding, as the gradient of a bias that a
        norm takes away, or as all gradients below a norm of single values.
    """
    tensors = [(float(np.abs(whole).max(initial=0.0)), pairs) for whole, pairs in compared]
    floor *= max([1.0, *(largest for largest, _ in tensors)])
    difference = 0.0
    for largest, pairs in tensors:
        for part, block in pairs:
            error = float(np.abs(part - block).max(initial=0.0))
            if error:
                relative = error / max(largest, floor) if error == error else np.inf
                difference = max(difference, relative)
    return difference
