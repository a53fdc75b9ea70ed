"""The order of a training step's tasks: passes, collectives and boundaries, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from hypar_opt.costs.readings import Phase
from hypar_opt.simulator.collectives import Collective, all_gather, all_reduce, reduce_scatter
from hypar_opt.simulator.tasks import Compute, Exchange, ExchangeKind, Task

if TYPE_CHECKING:
    from hypar_opt.workload.tensors import Workload

BytesByLevel = tuple[tuple[Fraction, ...], ...]
"""Bytes by hierarchy level, H1 first, and by layer or boundary."""


@dataclass(frozen=True)
class ExchangedBytes:
    """What one pass of a plan exchanges, in bytes of all accelerators together.

    Parameters
    ----------
    layers : levels x layers
        Each layer's own exchanges: partial sums or gradients.
    boundaries : levels x boundaries
        Conversions of feature maps or errors between two layers.
    """

    layers: BytesByLevel
    boundaries: BytesByLevel


@dataclass(frozen=True)
class Schedule:
    """What determines a step's tasks: bytes, seconds, and the algorithms of the exchanges.

    Parameters
    ----------
    exchanged
        By pass, the bytes of its exchanges.
    seconds
        By pass, the computing time of every layer on one accelerator.
    placement
        For every level, the bit of an accelerator's number that it splits.
    scatter
        Reduce-scatter partial sums forward and all-gather errors backward, as the reading
        ``executed`` does; otherwise all-reduce partial sums.
    ring
        Run collectives around rings, not between pairs.
    overlap
        Run the all-reduces of gradients in the background.
    """

    workload: Workload
    exchanged: Mapping[Phase, ExchangedBytes]
    seconds: Mapping[Phase, Sequence[float]]
    placement: tuple[int, ...]
    scatter: bool = False
    ring: bool = False
    overlap: bool = False

    def tasks(self) -> tuple[Task, ...]:
        """Return the tasks, forward and then backward through the layers.

        Forward, a layer's input is exchanged, the layer computed, its partial sums reduced.
        Backward, the error is gathered where that was a reduce-scatter; the gradient is
        computed and all-reduced, which may overlap with computing the error of the layer's
        input and handing it to the layer before.

        Source: docs/simulator.md.
        """
        layers = range(len(self.workload.layers))
        forward = [task for layer in layers for task in self._forward(layer)]
        if Phase.BACKWARD not in self.exchanged:
            return tuple(forward)
        return (*forward, *(task for layer in reversed(layers) for task in self._backward(layer)))

    def _forward(self, layer: int) -> Iterator[Task]:
        yield from self._boundaries(layer, Phase.FORWARD)
        yield self._compute(layer, Phase.FORWARD)
        # Where errors are all-gathered backward, every accelerator needs a shard of the sum only.
        reduction = reduce_scatter if self.scatter else all_reduce
        yield from self._collective(reduction, layer, Phase.FORWARD, ExchangeKind.PARTIAL_SUMS)

    def _backward(self, layer: int) -> Iterator[Task]:
        if self.scatter:
            yield from self._collective(all_gather, layer, Phase.BACKWARD, ExchangeKind.ERRORS)
        # The gradient comes first, so that its all-reduce can overlap the error's computation.
        yield self._compute(layer, Phase.GRADIENT)
        yield from self._collective(all_reduce, layer, Phase.GRADIENT, ExchangeKind.GRADIENTS)
        yield self._compute(layer, Phase.BACKWARD)
        if not self.scatter:
            kind = ExchangeKind.PARTIAL_SUMS
            yield from self._collective(all_reduce, layer, Phase.BACKWARD, kind)
        # Last backward, as they are first forward: in another order more bytes would move.
        yield from self._boundaries(layer, Phase.BACKWARD)

    def _compute(self, layer: int, phase: Phase) -> Compute:
        return Compute(self.workload.layers[layer].name, phase, self.seconds[phase][layer])

    def _boundaries(self, layer: int, phase: Phase) -> Iterator[Exchange]:
        """Yield the exchanges at the boundaries before a layer, topmost level first."""
        name = self.workload.layers[layer].name
        for boundary in self._boundaries_before[layer]:
            for level, amounts in enumerate(self.exchanged[phase].boundaries):
                moved, bits = float(amounts[boundary]), (self.placement[level],)
                # Nothing moves where both layers have the tensor in the same layout.
                if moved:
                    yield Exchange(name, phase, ExchangeKind.BOUNDARY, (level,), bits, moved)

    @cached_property
    def _boundaries_before(self) -> list[list[int]]:
        """For every layer, the boundaries whose feature maps it reads."""
        read: list[list[int]] = [[] for _ in self.workload.layers]
        for number, boundary in enumerate(self.workload.boundaries):
            read[boundary.target].append(number)
        return read

    def _collective(
        self, collective: Collective, layer: int, phase: Phase, kind: ExchangeKind
    ) -> Iterator[Exchange]:
        """Yield the exchanges over the levels at which a layer's shards are reduced or gathered."""
        amounts = [level_bytes[layer] for level_bytes in self.exchanged[phase].layers]
        # A layer communicates only at the levels whose choice leaves partial sums or replicas.
        levels = [level for level, moved in enumerate(amounts) if moved]
        if self.ring and levels:  # one ring through all these levels
            exchanges = [(tuple(levels), sum(amounts[level] for level in levels))]
            # An all-reduce is a reduce-scatter and an all-gather, of n - 1 messages each.
            messages = (2 if collective is all_reduce else 1) * (2 ** len(levels) - 1)
        else:
            exchanges = [((level,), share * amounts[level]) for level, share in collective(levels)]
            messages = 1
        for crossed, moved in exchanges:
            yield Exchange(
                layer=self.workload.layers[layer].name,
                phase=phase,
                kind=kind,
                levels=crossed,
                bits=tuple(self.placement[level] for level in crossed),
                bytes=float(moved),
                messages=messages,
                ring=self.ring,
                background=self.overlap and kind is ExchangeKind.GRADIENTS,
            )
