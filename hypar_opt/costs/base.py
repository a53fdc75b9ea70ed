"""The interface of a cost model, which charges operations; all else is derived from the charges.

A state is charged for its operations. Levels are equivalent if operations are charged alike at each
of them, nodes and boundaries are if they have the same operations, and thresholds are independent
if charges are in proportion to what moves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hypar_opt.costs.kinds import kinds_of_boundaries, kinds_of_nodes
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.errors import HyparError, RefusedError, argument
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.sharding.passes import INFERENCE, TRAINING
from hypar_opt.step.operations import by_level
from hypar_opt.step.readings import READINGS, reading_of
from hypar_opt.step.rules import rules_of
from hypar_opt.step.states import exact_sum, levels_of, runs_of
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.operators.attention import QUERIES
from hypar_opt.workload.operators.axes import ADDENDS
from hypar_opt.workload.parallelism import IMAGE_CHOICES, RUN_CHOICES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence
    from typing import Self

    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.operations import Amount, Collective
    from hypar_opt.step.rules import StepRules
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload

_WIDE = 2**40
"""From this on, amounts are Python's integers, so that a cost's factors cannot overflow."""


_WITH_OUTPUT = " or ".join(
    ", ".join(name for name, row in READINGS.items() if row.input_error is not None).rsplit(", ", 1)
)
"""The readings with a charge for an input that all parts read whole."""


_STATES = 8
"""Random states of each node, besides those that make one choice at all levels."""


class Symmetries(NamedTuple):
    """Which levels and nodes a cost model charges alike.

    Parameters
    ----------
    level_kinds
        A key of each level: levels of one kind have equal rates and as many parts.
    level_groups
        The group of each level. What a boundary is charged over all levels is the same if the
        levels of a group are permuted in the states of both of its ends.
    node_keys
        What each node's charges depend on besides its tensors and its kind of layer: nodes that
        are equal in all of these are charged once.
    """

    level_kinds: Sequence[Hashable]
    level_groups: Sequence[int]
    node_keys: Sequence[Hashable]


class CostModel(ABC):
    """Charges the operations of a training step.

    An author defines `unit` and `charge`, and what else of `from_problem`, `resolution` and
    `level_key` differs from its default.

    A state is the choices at the topmost levels, H1 first; a search that has not reached all levels
    has states of fewer levels. They come in blocks of levels (`hypar_opt.step.states`), which
    broadcast with the nodes or boundaries that have them, behind the axis of their levels. So do
    the charges of each level; a charge needs no axis along which it is the same. Charges are
    integers, not negative, and cover all groups of a level together, so that a plan's total is a
    plain sum.

    Parameters
    ----------
    problem
        With every option of ``solve``.
    workload
        The tensors of a batch.

    Source: docs/decisions/0004-whole-number-tables.md.
    """

    def __init__(self, problem: Problem, workload: Workload) -> None:
        self.problem, self.workload = problem, workload

    @classmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> Self:
        """Return the cost model of a problem.

        Raises
        ------
        HyparError
            If it cannot charge the problem.
        """
        if problem.level_weights:
            weights, byte_cost = argument("level_weights"), argument("cost", "bytes")
            raise HyparError(f"{weights} goes with {byte_cost}, not with {problem.cost}")
        check_reading(problem, workload)
        return cls(problem, workload)

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of a total, such as ``bytes``."""

    @property
    def resolution(self) -> int:
        """Charges per unit: 2 if a charge of 1 is half a byte."""
        return 1

    @abstractmethod
    def charge(self, operation: Collective) -> Amount:
        """Return the charge of an operation in each of its states: integers, 0 if nothing moves."""

    def level_key(self, level: int) -> Hashable:
        """Return a key of a level: operations are charged alike at levels with equal keys.

        By default levels have equal keys if the exchanges of this workload in some random states
        are charged alike at them.
        """
        return self._sample[0][level]

    @property
    def proportional(self) -> bool:
        """Whether charges are proportional to what moves, by one factor at all levels."""
        return self._sample[1]

    @cached_property
    def _sample(self) -> tuple[Sequence[Hashable], bool]:
        return derived_levels(self, self.workload, self.problem.levels)

    # What follows

    def rules(self, workload: Workload, levels: int) -> StepRules:  # noqa: ARG002
        """Return the rules of what a workload exchanges at so many levels."""
        problem = self.problem
        phases = INFERENCE if problem.inference else TRAINING
        return rules_of(workload, problem.hierarchy, problem.reading, phases)

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        """Return the charges of nodes at each level of their states."""
        levels = levels_of(states)
        return self.fold(self.rules(workload, levels).node(nodes, states), levels)

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        """Return the charges of boundaries at each level, given the states of both ends.

        Boundaries from shared weights (`Workload.is_weight_boundary`) are free: tables charge
        mismatches.
        """
        levels = levels_of(targets)
        operations = self.rules(workload, levels).boundary(boundaries, sources, targets)
        return self.fold(operations, levels)

    def fold(self, operations: Iterable[Collective], levels: int) -> list[Integers]:
        """Return what operations are charged, by level."""
        rows = by_level(operations, levels)
        return [exact_sum([*map(self.charged, row)]) for row in rows]

    def charged(self, operation: Collective) -> Integers:
        """Return the charge of an operation, whose amounts a cost may multiply without overflow."""
        quarters = np.asarray(operation.quarters)
        wide = object if quarters.max(initial=0) >= _WIDE else quarters.dtype
        charge = self.charge(operation._replace(quarters=quarters.astype(wide, copy=False)))
        moved: Integers = charge * (quarters > 0)
        return moved

    def level_separable(self, workload: Workload) -> Self | None:
        """Return a cost that charges boundaries as this one does, level by level.

        A boundary's charge at a level then depends on no choices below, in all states that
        constraints allow. None if there is no such cost. Replicas that repeat an exchange
        (`Workload.has_replicas`) are the caller's concern.
        """
        return None if self.rules(workload, 1).reading.joins_levels else self

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return which levels and nodes are charged alike: the more, the smaller a joint table.

        Levels of one kind may be permuted within a run of such levels; across a level of another
        kind only if charges are in proportion to what moves.
        """
        keys, rules = [*map(self.level_key, range(levels))], self.rules(workload, levels)
        kinds = list(zip(keys, rules.hierarchy.sizes, strict=False))
        groups = runs_of(kinds)
        if workload.reads_whole and not rules.reading.gathers_last:
            groups = [*range(levels)]  # a level is charged for the copies that those above leave
        elif self.proportional:
            groups = [*map(kinds.index, kinds)]
        return Symmetries(kinds, groups, (None,) * len(workload.nodes))

    def thresholds(self, workload: Workload, levels: int) -> ThresholdTable | None:
        """Return the charges of all levels together, for two choices and equal levels; else None.

        Source: docs/decisions/0005-joint-optimum.md.
        """
        # With a third choice a boundary's charge depends on what its target has split above, and
        # with unequal levels permuting these changes the cost: neither telescopes. Nor do charges
        # where ZeRO shards differ between levels.
        if len(workload.choices) > 2 or len(workload.repeats.shard_start_levels) > 1:
            return None
        rules = self.rules(workload, levels)
        if rules.reading.joins_levels or workload.reads_whole or workload.lacks_every_axis:
            # A tensor's charge depends on the level and not on the layer's own count alone.
            return None
        sizes = rules.hierarchy.sizes[:levels]
        if len({*sizes}) > 1 or not self.proportional:
            return None
        # The first level's charges are those of all.
        parts = sizes[0] if sizes else 2
        nodes, choices = np.arange(len(workload.nodes))[:, None], np.arange(2)
        of_nodes = self.node(workload, nodes, [choices[None, None]])[0]
        charges = np.broadcast_to(of_nodes, (len(nodes), 2)).astype(object).T
        numbers = np.arange(len(workload.ends))[:, None, None]
        of_ends = [choices[None, None, :, None]], [choices[None, None, None]]
        of_pairs = self.edge(workload, numbers, *of_ends)[0]
        shape = len(numbers), 2, 2
        pairs = np.broadcast_to(of_pairs, shape).astype(object).reshape(-1, 4).T
        # As `with_penalties`: no threshold charges the weights' node as much as this.
        weights = workload.is_weight_boundary
        stored = charges.max(axis=0)[workload.ends[weights, 0]]
        pairs[2, weights] = 1 + stored * parts**levels
        ends, units = workload.ends, (self.unit, self.resolution)
        table = ThresholdTable(charges[0], charges[1], ends, pairs, levels, parts, *units)
        return table.astype(exact_dtype(table.max_total))

    # What only the costs of this package define

    @property
    def end_keys(self) -> tuple[Hashable, ...] | None:
        """By node, what else its boundaries' charges depend on than what moves; None if nothing."""
        return None

    @property
    def attributed(self) -> CostModel:
        """The same cost, with charges attributed to the levels that are crossed, to show a plan.

        In a search a charge that joins several levels stands at one of them, which is quicker to
        compute; sums over all levels are equal.
        """
        return self

    @property
    def physical(self) -> Any:
        """The cost itself if it is an `ArrayCost`, such as of time or energy; else None."""
        return None

    @property
    def time(self) -> Any:
        """The cost itself if it is a `TimeCost`, in whichever unit; else None."""
        return None

    @property
    def is_additive(self) -> bool:
        """Whether a plan costs the sum of its charges; else `for_plan` returns what it costs."""
        return self.time is None or self.time.latencies is None

    def for_plan(self, workload: Workload, rows: Sequence[Sequence[int]]) -> CostModel:  # noqa: ARG002
        """Return the cost with the charges that one plan's nodes share, so that its charges add up.

        The sum of this cost's charges is a lower bound on that, for every plan.

        Parameters
        ----------
        rows : (levels, nodes)
        """
        return self


def derived_levels(cost: CostModel, workload: Workload, levels: int) -> tuple[list[Hashable], bool]:
    """Return a key of each level, and whether a cost is in proportion to what moves.

    Levels have equal keys if the exchanges of sampled states are charged alike at them. The samples
    include the states of one choice at all levels, in which nodes move most.
    """
    operations = sampled(cost, workload, levels)
    charged = [
        [_charged(cost, operation, level) for operation in operations] for level in range(levels)
    ]
    keys: list[Hashable] = [charged.index(charges) for charges in charged]
    ratios: dict[Hashable, tuple[int, int]] = {}
    proportional = True
    for operation, charges in zip(operations, charged[0] if charged else (), strict=True):
        quarters = operation.quarters.reshape(-1).tolist()
        for moved, charge in zip(quarters, charges, strict=True):
            if moved:
                key = operation.phase, operation.kind, operation.tensor
                first, its_charge = ratios.setdefault(key, (moved, charge))
                proportional &= charge * first == its_charge * moved
    return keys, proportional and len({*keys}) == 1


def sampled(cost: CostModel, workload: Workload, levels: int) -> list[Collective]:
    """Return the exchanges of nodes and boundaries of each kind in sampled states."""
    if not levels:
        return []
    forbidden, rng = workload.forbidden, np.random.default_rng(0)
    drawn = rng.random((levels, *forbidden.shape, _STATES)) * ~forbidden[..., None]
    uniform = np.where(forbidden, forbidden.argmin(axis=1)[:, None], np.arange(forbidden.shape[1]))
    each_level = np.broadcast_to(uniform, (levels, *uniform.shape))
    states = np.concatenate([drawn.argmax(axis=2), each_level], axis=2)
    rules = cost.rules(workload, levels)
    nodes, boundaries = kinds_of_nodes(workload).first, kinds_of_boundaries(workload).first
    ends = ([states[:, end]] for end in workload.ends[boundaries].T)
    of_nodes = [*rules.node(nodes[:, None], [states[:, nodes]])]
    of_edges = [*rules.boundary(boundaries[:, None], *ends)] if len(boundaries) else []
    return [
        operation._replace(
            quarters=np.broadcast_to(operation.quarters, (len(things), states.shape[2]))
        )
        for things, operations in ((nodes, of_nodes), (boundaries, of_edges))
        for operation in operations
    ]


def _charged(cost: CostModel, operation: Collective, level: int) -> list[int]:
    """Return the charge of an operation at a level, in each of its states."""
    charges = cost.charged(operation._replace(level=level))
    entries: list[int] = np.broadcast_to(charges, operation.quarters.shape).ravel().tolist()
    return entries


def check_additive(cost: CostModel) -> None:
    """Refuse to compare plans by the sums of their charges if these are only lower bounds.

    Raises
    ------
    RefusedError
        If they are.
    """
    if not cost.is_additive:
        raise RefusedError(
            "gradients in buckets share their latencies, so that a plan takes more than the sum of"
            f" what its layers are charged; use {argument('bucket', 0)}"
        )


def lacked_choices(workload: Workload) -> tuple[str, ...]:
    """Return the choices that only readings of a run charge, and that no layer has."""
    lacked = np.flatnonzero(workload.forbidden.all(axis=0)).tolist()
    return tuple(word for n in lacked if (word := workload.choices[n]) in RUN_CHOICES)


def check_reading(problem: Problem, workload: Workload) -> None:
    """Refuse levels and choices that the problem's reading does not charge, or that no layer has.

    Raises
    ------
    UnknownNameError
        If there is no such reading.
    HyparError
        Naming the levels, the choice or the layer.
    """
    reading = reading_of(problem.reading)
    if reading.halves and not problem.hierarchy.is_binary:
        sizes = ",".join(map(str, problem.hierarchy.sizes))
        executed = argument("reading", "executed")
        raise HyparError(f"levels of {sizes} parts need {executed}; the paper's are of two")
    lacked = lacked_choices(workload)
    for word in RUN_CHOICES:
        if word not in problem.choices:
            continue
        stated = f"{argument('choices')}: {word}"
        if reading.halves:
            executed = argument("reading", "executed")
            raise HyparError(f"{stated} needs {executed}, got {problem.reading}")
        if word in lacked:
            needs = f"{word}; no layer of this has any"
            if word in IMAGE_CHOICES:
                needs = f"images whose {word} can be split evenly; no layer's of this can"
            elif word == ADDENDS.word:
                needs = "sums that no activation follows; no layer of this is one"
            elif word == QUERIES.word:
                needs = "attention with several queries of a key-value head; no layer of this is"
            raise HyparError(f"{stated} needs a network of {needs}")
    if reading.input_error is not None:
        return
    needed = f"needs the reading {_WITH_OUTPUT}, got {problem.reading}"
    if "output" in problem.choices:
        raise HyparError(f"{argument('choices')}: output {needed}")
    reads_whole = (workload.layouts.inputs < FIRST_SPLIT).any(axis=(0, 1))
    if reads_whole.any():
        layer = workload.nodes[int(reads_whole.argmax())]
        raise HyparError(
            f"layer {layer.name!r} ({layer.kind}) has a choice that reads its input whole,"
            f" which {needed}"
        )
