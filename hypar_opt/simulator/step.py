"""A plan's training step as the tasks of an accelerator, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import SplitCounts
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.compute import NO_SIZES, Sizes, Work
from hypar_opt.costs.readings import INFERENCE, READINGS, TRAINING, Phase
from hypar_opt.errors import UnknownNameError
from hypar_opt.simulator.tasks import Compute, Exchange, Kind, Task

if TYPE_CHECKING:
    from hypar_opt.costs.table import Integers
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.profile import Profile
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.tensors import Workload

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
    workload: Workload, communication: CommunicationCost, rows: Sequence[Sequence[int]]
) -> Mapping[Phase, Moves]:
    """Return what each pass exchanges: the entries of the cost's tables that a plan picks."""
    return {
        phase: _moves(workload, communication.of(phase), rows) for phase in communication.phases
    }


def _moves(workload: Workload, cost: CommunicationCost, rows: Sequence[Sequence[int]]) -> Moves:
    splits = SplitCounts.none(len(workload.layers), cost.choices)
    sources, targets = workload.ends.T
    layers, boundaries = [], []
    for row in rows:
        choice = np.asarray(row, np.intp)
        node = cost.node(workload, splits)[np.arange(len(choice)), choice]
        edge = cost.edge(workload, splits, splits)
        pairs = edge[np.arange(len(edge)), choice[sources], choice[targets]]
        layers.append(tuple(Fraction(int(each), cost.resolution) for each in node))
        boundaries.append(tuple(Fraction(int(each), cost.resolution) for each in pairs))
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
    scatter
        Reduce-scatter partial sums forward and all-gather errors backward; else all-reduce.
    ring
        Run collectives around rings, not between pairs.
    overlap
        Run the exchanges of gradients beside the work that follows.
    """

    workload: Workload
    moves: Mapping[Phase, Moves]
    seconds: Mapping[Phase, Sequence[float]]
    placement: tuple[int, ...]
    scatter: bool = False
    ring: bool = False
    overlap: bool = False

    def tasks(self) -> tuple[Task, ...]:
        """Return the step, forward and then backward through the layers.

        Forward, a layer's input is exchanged, the layer computed, its partial sums reduced.
        Backward, the error is gathered where that was a reduce-scatter; the gradient is
        computed and all-reduced, which may go on while the error of the layer's input is
        computed and handed to the layer before.

        Source: docs/simulator.md.
        """
        layers = range(len(self.workload.layers))
        forward = [task for layer in layers for task in self._forward(layer)]
        if Phase.BACKWARD not in self.moves:
            return tuple(forward)
        return (*forward, *(task for layer in reversed(layers) for task in self._backward(layer)))

    def _forward(self, layer: int) -> Iterator[Task]:
        yield from self._boundaries(layer, Phase.FORWARD)
        yield self._compute(layer, Phase.FORWARD)
        partial_sums = _reduce_scatter if self.scatter else _all_reduce
        yield from self._collective(partial_sums, layer, Phase.FORWARD, Kind.PARTIAL_SUMS)

    def _backward(self, layer: int) -> Iterator[Task]:
        if self.scatter:
            yield from self._collective(_all_gather, layer, Phase.BACKWARD, Kind.ERRORS)
        yield self._compute(layer, Phase.GRADIENT)
        yield from self._collective(_all_reduce, layer, Phase.GRADIENT, Kind.GRADIENTS)
        yield self._compute(layer, Phase.BACKWARD)
        if not self.scatter:
            yield from self._collective(_all_reduce, layer, Phase.BACKWARD, Kind.PARTIAL_SUMS)
        yield from self._boundaries(layer, Phase.BACKWARD)

    def _compute(self, layer: int, phase: Phase) -> Compute:
        return Compute(self.workload.layers[layer].name, phase, self.seconds[phase][layer])

    def _boundaries(self, layer: int, phase: Phase) -> Iterator[Exchange]:
        """Yield the exchanges of what a layer reads, topmost level first."""
        name = self.workload.layers[layer].name
        for place in self._read_by[layer]:
            for level, amounts in enumerate(self.moves[phase].boundaries):
                moved, bits = float(amounts[place]), (self.placement[level],)
                if moved:
                    yield Exchange(name, phase, Kind.BOUNDARY, (level,), bits, moved)

    @cached_property
    def _read_by(self) -> list[list[int]]:
        """The boundaries that each layer reads."""
        places: list[list[int]] = [[] for _ in self.workload.layers]
        for place, boundary in enumerate(self.workload.boundaries):
            places[boundary.target].append(place)
        return places

    def _collective(self, steps: Steps, layer: int, phase: Phase, kind: Kind) -> Iterator[Exchange]:
        """Yield the exchanges over the levels at which a layer's shards are reduced or gathered."""
        name, background = self.workload.layers[layer].name, self.overlap and kind is Kind.GRADIENTS
        amounts = [moved[layer] for moved in self.moves[phase].layers]
        levels = [level for level, moved in enumerate(amounts) if moved]
        if self.ring and levels:  # a ring joins all these levels
            crossed = [(tuple(levels), sum(amounts[level] for level in levels))]
            messages = (2 if steps is _all_reduce else 1) * (2 ** len(levels) - 1)
        else:
            crossed = [((level,), share * amounts[level]) for level, share in steps(levels)]
            messages = 1
        for group, moved in crossed:
            bits = tuple(self.placement[level] for level in group)
            yield Exchange(
                name, phase, kind, group, bits, float(moved), messages, self.ring, background
            )


Steps = Callable[[Sequence[int]], list[tuple[int, Fraction]]]
"""A collective between pairs: the levels it crosses, one after the other, each with the share
of the level's bytes that moves then."""


def _reduce_scatter(levels: Sequence[int]) -> list[tuple[int, Fraction]]:
    """Halve: each side keeps the sum of its half, from the deepest level up."""
    return [(level, Fraction(1)) for level in reversed(levels)]


def _all_gather(levels: Sequence[int]) -> list[tuple[int, Fraction]]:
    """Double: each side gets the other's part, from the topmost level down."""
    return [(level, Fraction(1)) for level in levels]


def _all_reduce(levels: Sequence[int]) -> list[tuple[int, Fraction]]:
    """Halve from the deepest level up, and double back down: 2k - 1 messages for k levels.

    The topmost level is crossed once: what would be halved and gathered there at once, both
    sides send whole.

    Source: R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication
    operations in MPICH", IJHPCA 19(1), 2005, section 4: recursive halving and doubling.
    """
    below = [(level, Fraction(1, 2)) for level in levels[1:]]
    return [*reversed(below), *((level, Fraction(1)) for level in levels[:1]), *below]


def program(
    plan: Plan,
    workload: Workload,
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
    communication = CommunicationCost.from_problem(unweighted, workload)
    counts = final_counts(plan, workload)
    step = Step(
        workload,
        moves(workload, communication, plan.assignments()),
        _seconds(plan, workload, array, counts, phases_of(plan), profile, input_sizes),
        _placement(plan, array),
        scatter=READINGS[plan.cost.reading].gathered_error > 0,
        ring=collective == "ring",
        overlap=overlap == "gradient",
    )
    return step.tasks()


def phases_of(plan: Plan) -> tuple[Phase, ...]:
    return INFERENCE if plan.inference else TRAINING


def final_counts(plan: Plan, workload: Workload) -> Integers:
    """Return how often each layer takes each choice, over all levels: ``(choices, layers)``."""
    splits = SplitCounts.none(len(workload.layers), len(plan.choices))
    for row in plan.assignments():
        splits = splits.after(row)
    return splits.counts


def _placement(plan: Plan, array: Array) -> tuple[int, ...]:
    known = plan.array is not None and plan.array.digest == array.digest()
    return plan.placement if known and plan.placement is not None else array.placement


def _seconds(
    plan: Plan,
    workload: Workload,
    array: Array,
    counts: Integers,
    phases: Sequence[Phase],
    profile: Profile | None,
    input_sizes: Sizes,
) -> Mapping[Phase, Sequence[float]]:
    """Return, for each pass, what each layer takes on an accelerator."""
    if profile is None:
        work = Work(array.accelerator, plan.levels, plan.element_bytes, input_sizes)
        seconds = [float(each) for each in work.seconds(workload, counts)]
        return dict.fromkeys(phases, seconds)
    names = [layer.name for layer in workload.layers]
    whole = profile.seconds(names, workload.batch, [phase.value for phase in phases])
    return {phase: [float(each / 2**plan.levels) for each in whole[phase]] for phase in phases}
