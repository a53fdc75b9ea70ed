"""A plan's training step as the tasks of an accelerator, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import Splits
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.readings import Phase
from hypar_opt.simulator.tasks import Compute, Exchange, Kind, Task

if TYPE_CHECKING:
    from hypar_opt.shapes import Shapes

Amounts = tuple[tuple[Fraction, ...], ...]
"""Bytes by level and by layer or boundary."""


@dataclass(frozen=True)
class Moves:
    """What one pass exchanges under a plan, in bytes of all accelerators together.

    Parameters
    ----------
    layers : levels x layers
        Each layer's own exchanges: partial sums or gradients.
    boundaries : levels x boundaries
    """

    layers: Amounts
    boundaries: Amounts


def moves(
    shapes: Shapes, communication: CommunicationCost, rows: Sequence[Sequence[int]]
) -> Mapping[Phase, Moves]:
    """Return what each pass exchanges: the entries of the cost's tables that a plan picks."""
    return {phase: _moves(shapes, communication.of(phase), rows) for phase in communication.phases}


def _moves(shapes: Shapes, cost: CommunicationCost, rows: Sequence[Sequence[int]]) -> Moves:
    splits = Splits.none(len(shapes.layers), cost.choices)
    sources, targets = shapes.ends.T
    layers, boundaries = [], []
    for row in rows:
        choice = np.asarray(row, np.intp)
        node = cost.node(shapes, splits)[np.arange(len(choice)), choice]
        edge = cost.edge(shapes, splits, splits)
        pairs = edge[np.arange(len(edge)), choice[sources], choice[targets]]
        layers.append(tuple(Fraction(int(each), cost.per_unit) for each in node))
        boundaries.append(tuple(Fraction(int(each), cost.per_unit) for each in pairs))
        splits = splits.after(row)
    return Moves(tuple(layers), tuple(boundaries))


@dataclass(frozen=True)
class Step:
    """How a plan's step is run.

    Parameters
    ----------
    moves
        What each pass exchanges.
    seconds
        Of each pass, what each layer's work takes on an accelerator.
    placement
        The bit of an accelerator's number that each level splits.
    ring
        Sum around rings, not between pairs.
    overlap
        Run the exchanges of gradients beside the work that follows.
    """

    shapes: Shapes
    moves: Mapping[Phase, Moves]
    seconds: Mapping[Phase, Sequence[float]]
    placement: tuple[int, ...]
    ring: bool = False
    overlap: bool = False

    def tasks(self) -> tuple[Task, ...]:
        """Return the step, forward and then backward through the layers.

        Forward, a layer's input is exchanged, the layer computed, its partial sums added.
        Backward, its gradient is computed and added up, which may go on while the error is
        computed and handed to the layer before. Sums run from the deepest level up.

        Source: MODEL "When each exchange happens".
        """
        layers = range(len(self.shapes.layers))
        forward = [task for layer in layers for task in self._forward(layer)]
        if Phase.BACKWARD not in self.moves:
            return tuple(forward)
        return (*forward, *(task for layer in reversed(layers) for task in self._backward(layer)))

    def _forward(self, layer: int) -> Iterator[Task]:
        yield from self._boundaries(layer, Phase.FORWARD)
        yield self._compute(layer, Phase.FORWARD)
        yield from self._sums(layer, Phase.FORWARD, Kind.PARTIAL_SUMS)

    def _backward(self, layer: int) -> Iterator[Task]:
        yield self._compute(layer, Phase.GRADIENT)
        yield from self._sums(layer, Phase.GRADIENT, Kind.GRADIENTS)
        yield self._compute(layer, Phase.BACKWARD)
        yield from self._sums(layer, Phase.BACKWARD, Kind.PARTIAL_SUMS)
        yield from self._boundaries(layer, Phase.BACKWARD)

    def _compute(self, layer: int, phase: Phase) -> Compute:
        return Compute(self.shapes.layers[layer].name, phase, self.seconds[phase][layer])

    def _boundaries(self, layer: int, phase: Phase) -> Iterator[Exchange]:
        """Yield the exchanges of what a layer reads, topmost level first."""
        name = self.shapes.layers[layer].name
        for place in self._read_by[layer]:
            for level, amounts in enumerate(self.moves[phase].boundaries):
                moved, bits = float(amounts[place]), (self.placement[level],)
                if moved:
                    yield Exchange(name, phase, Kind.BOUNDARY, (level,), bits, moved)

    @cached_property
    def _read_by(self) -> list[list[int]]:
        """The boundaries that each layer reads."""
        places: list[list[int]] = [[] for _ in self.shapes.layers]
        for place, boundary in enumerate(self.shapes.boundaries):
            places[boundary.target].append(place)
        return places

    def _sums(self, layer: int, phase: Phase, kind: Kind) -> Iterator[Exchange]:
        name, background = self.shapes.layers[layer].name, self.overlap and kind is Kind.GRADIENTS
        amounts = [moved[layer] for moved in self.moves[phase].layers]
        levels = [level for level, moved in enumerate(amounts) if moved]
        if not levels:
            return
        # A ring joins all the levels at which a layer's shards are added up.
        groups = [tuple(levels)] if self.ring else [(level,) for level in reversed(levels)]
        for group in groups:
            bits = tuple(self.placement[level] for level in group)
            moved = float(sum(amounts[level] for level in group))
            yield Exchange(name, phase, kind, group, bits, moved, self.ring, background)
