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
from hypar_opt.costs.compute import NO_SIZES, Sizes, Work
from hypar_opt.costs.readings import INFERENCE, TRAINING, Phase
from hypar_opt.errors import UnknownNameError
from hypar_opt.simulator.tasks import Compute, Exchange, Kind, Task

if TYPE_CHECKING:
    from hypar_opt.costs.table import Integers
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.profile import Profile
    from hypar_opt.plan import Plan
    from hypar_opt.shapes import Shapes

COLLECTIVES = ("pairwise", "ring")
OVERLAPS = ("none", "gradient")

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

        Source: docs/simulator.md.
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


def program(
    plan: Plan,
    shapes: Shapes,
    array: Array,
    *,
    collective: str | None = None,
    overlap: str = "none",
    profile: Profile | None = None,
    input_sizes: Sizes = NO_SIZES,
) -> tuple[Task, ...]:
    """Return the tasks of a plan's step on an array; the arguments are `simulate`'s.

    Raises
    ------
    HyparError
        If a name is unknown, or the profile does not fit.
    """
    collective = collective or array.collective
    if collective not in COLLECTIVES:
        raise UnknownNameError("collective", collective, list(COLLECTIVES))
    if overlap not in OVERLAPS:
        raise UnknownNameError("overlap", overlap, list(OVERLAPS))
    unweighted = plan.problem.model_copy(update={"level_weights": ()})
    communication = CommunicationCost.asked(unweighted, shapes)
    counts = final_counts(plan, shapes)
    step = Step(
        shapes,
        moves(shapes, communication, plan.assignments()),
        _seconds(plan, shapes, array, counts, phases_of(plan), profile, input_sizes),
        _placement(plan, array),
        ring=collective == "ring",
        overlap=overlap == "gradient",
    )
    return step.tasks()


def phases_of(plan: Plan) -> tuple[Phase, ...]:
    return INFERENCE if plan.inference else TRAINING


def final_counts(plan: Plan, shapes: Shapes) -> Integers:
    """Return how often each layer takes each choice, over all levels: ``(choices, layers)``."""
    splits = Splits.none(len(shapes.layers), len(plan.choices))
    for row in plan.assignments():
        splits = splits.after(row)
    return splits.counts


def _placement(plan: Plan, array: Array) -> tuple[int, ...]:
    known = plan.array is not None and plan.array.digest == array.digest()
    return plan.placement if known and plan.placement is not None else array.placement


def _seconds(
    plan: Plan,
    shapes: Shapes,
    array: Array,
    counts: Integers,
    phases: Sequence[Phase],
    profile: Profile | None,
    input_sizes: Sizes,
) -> Mapping[Phase, Sequence[float]]:
    """Return, for each pass, what each layer takes on an accelerator."""
    if profile is None:
        work = Work(array.accelerator, plan.levels, plan.element_bytes, input_sizes)
        seconds = [float(each) for each in work.seconds(shapes, counts)]
        return dict.fromkeys(phases, seconds)
    names = [layer.name for layer in shapes.layers]
    whole = profile.seconds(names, shapes.batch, [phase.value for phase in phases])
    return {phase: [float(each / 2**plan.levels) for each in whole[phase]] for phase in phases}
