"""Communication in bytes: the paper's Tables 1 and 2, in one of four readings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import BoundaryStates, CostModel, PlanChoices, SplitCounts
from hypar_opt.costs.reading_factors import conversions_of, quarters_of, reductions_of
from hypar_opt.costs.readings import INFERENCE, READINGS, TRAINING, Phase, Reading
from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.errors import HyparError, UnknownNameError
from hypar_opt.sharding.layouts import Layout, layouts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload

_WITH_OUTPUT = " or ".join(
    ", ".join(name for name, row in READINGS.items() if row.input_error is not None).rsplit(", ", 1)
)
"""The readings with a charge for an input that both sides read whole."""


@dataclass(frozen=True)
class CommunicationCost(CostModel):
    """Bytes exchanged between the two halves of every group of one level, added up.

    What a choice exchanges follows from the tensors that lack the axis it halves (see
    `hypar_opt.workload.operators.axes`). For convolutions and fully-connected layers, with d
    data, m model and o output choices of a layer above a level of 2^h groups, h = d + m + o, a
    group has W / 2^(m+o), F / 2^(d+o) and, of the layer's own input, A / 2^(d+m). Times 2^h
    these are W * 2^d, F * 2^m and A * 2^o: integers, even where a size is odd, so the charges
    are exact without any rounding.

    ======  ======  =======================  ===========================
    layer   choice  charged for              times
    ======  ======  =======================  ===========================
    l       data    dW_l                     gradient
    l       model   F_{l+1}                  partial_sum, gathered_error
    l       output  E_l                      input_error, or conversions
    l       not     sums over channels       all_reduce
            data    (of norms, of a loss)
    l-1, l  pairs   A                        conversions
    ======  ======  =======================  ===========================

    Factors are quarters of an element. In the reading ``executed`` F_{l+1} is the output
    before pooling.

    Parameters
    ----------
    reading
        The name of a row of factors in `hypar_opt.costs.readings`.
    element_bytes
        Bytes of a tensor's element: 4 as in the paper, 2 for half precision.
    phases
        The passes that are charged: all three of training, or fewer.
    choices
        2, or 3 with output parallelism, for all readings but ``figures``.
    level_weights
        The cost of a byte at each level, H1 first; empty for 1 at every level.
    levels
        H: what is stored and read whole repeats its exchanges up to 2^H times.

    Raises
    ------
    UnknownNameError
        If there is no such reading.
    HyparError
        If the reading has no charge for output parallelism, and that is a choice.

    Source: Tables 1 and 2; Algorithm 2; docs/model.md.
    """

    reading: str = "text"
    element_bytes: int = 4
    phases: tuple[Phase, ...] = TRAINING
    choices: int = 2
    level_weights: tuple[int, ...] = ()
    levels: int = 0

    def __post_init__(self) -> None:
        if self.reading not in READINGS:
            raise UnknownNameError("reading", self.reading, list(READINGS))
        if self.choices == 3 and self._row.input_error is None:
            raise HyparError(
                f"choices: output needs the reading {_WITH_OUTPUT}, got {self.reading}"
            )

    @classmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> CommunicationCost:
        """Return the cost of a problem.

        Raises
        ------
        HyparError
            If the reading has no charge for one of its choices.
        """
        cost = cls(
            problem.reading,
            problem.element_bytes,
            INFERENCE if problem.inference else TRAINING,
            len(problem.choices),
            problem.level_weights,
            problem.levels,
        )
        reads_whole = workload.lacking(cost.choices).input.any(axis=0)
        if reads_whole.any() and cost._row.input_error is None:
            layer = workload.nodes[int(reads_whole.argmax())]
            raise HyparError(
                f"layer {layer.name!r} ({layer.kind}) has a choice that reads its input whole,"
                f" which needs the reading {_WITH_OUTPUT}, got {cost.reading}"
            )
        return cost

    def of(self, phase: Phase) -> CommunicationCost:
        """Return the cost model of one pass alone."""
        return self._of_pass[phase]

    @property
    def unit(self) -> str:
        return "weighted bytes" if self.level_weights else "bytes"

    @cached_property
    def resolution(self) -> int:
        """Charges per byte: 1, or 2 or 4 where smaller elements make fractions of a byte."""
        # Readings charge quarters of an element, and a quarter of 4 bytes is a whole byte.
        return Fraction(self.element_bytes, 4).denominator

    def node(self, workload: Workload, splits: SplitCounts) -> Integers:
        """Return each layer's charges: Table 1."""
        every = np.arange(self.choices)[:, None]
        return self._reduced(workload, splits.counts[:, None], every, [splits.level]).T

    def edge(
        self,
        workload: Workload,
        source: SplitCounts,  # noqa: ARG002
        target: SplitCounts,
    ) -> Integers:
        """Return each boundary's charges: Table 2.

        The exchanged tensor is what the target reads, so only the target's splits count.
        """
        written, read = np.indices((self.choices, self.choices))[..., None]
        counts = target.counts[:, None, None]
        charges = self._converted(workload, counts, written, read, [target.level])
        return charges.transpose(2, 0, 1)

    def reads_splits(self, workload: Workload) -> tuple[bool, bool]:
        # What is read whole has a copy for each level above at which it was.
        return False, bool(workload.lacking(self.choices).input.any())

    def pairs(self, workload: Workload, ends: BoundaryStates) -> Integers:
        boundaries, sources, targets = ends
        levels = len(sources)
        dtype = exact_dtype(sum(self.upper_bound(workload, level) for level in range(levels)))
        reads, writes = layouts(workload, self.choices)
        source, target = workload.ends[boundaries].T
        written, read = writes[source, sources], reads[target, targets]
        whole = read == Layout.WHOLE
        kept = whole & (written == Layout.WHOLE)
        # All-gathers come last, the topmost first: by then what is whole above has been gathered,
        # below only what was stored whole. All else moves before them.
        above = np.cumsum(whole, axis=0) - whole
        below = kept.sum(axis=0) - np.cumsum(kept, axis=0)
        copies = np.where(whole, above + below, kept.sum(axis=0))
        quarters = quarters_of(self.reading, self.phases)[written, read].astype(dtype)
        # Of thousands of boundaries mostly one is asked for, with all states of both ends.
        distinct, place = np.unique(boundaries, return_inverse=True)
        sizes: Integers = np.array([workload.boundary_sizes[b] for b in distinct], dtype)[place]
        scales = np.array([self._scale(level) for level in range(levels)], dtype)
        charges: Integers = scales.reshape(-1, 1) * sizes * (quarters << copies)
        return charges

    def of_plans(self, workload: Workload, plans: NDArray[np.intp]) -> Integers | None:
        if workload.has_replicas(self.choices):
            return None
        nodes, boundaries = self.exchanged(workload, PlanChoices.of(plans, self.choices))
        levels: Integers = nodes.sum(axis=2) + boundaries.sum(axis=2)
        return levels

    def exchanged(self, workload: Workload, choices: PlanChoices) -> tuple[Integers, Integers]:
        """Return what `node` and `edge` charge for whole plans, no level coupled with another.

        Returns
        -------
        nodes : (plans, levels, nodes)
        boundaries : (plans, levels, boundaries)
        """
        plans, levels = choices.plans, range(choices.plans.shape[1])
        written, read = (plans[..., end] for end in workload.ends.T)
        return (
            self._reduced(workload, choices.above, plans, levels),
            self._converted(workload, choices.above, written, read, levels),
        )

    def _reduced(
        self,
        workload: Workload,
        counts: NDArray[np.int64],
        chosen: NDArray[np.intp],
        levels: Sequence[int],
    ) -> Integers:
        """Return what nodes charge for choices, given those above: ``(..., levels, nodes)``.

        Parameters
        ----------
        counts : (choices, ..., levels or 1, nodes)
            How often each choice was made above.
        chosen : (..., levels, nodes), or of a shape that is broadcast to it
        """
        dtype, scales = self._dtype_and_scales(workload, levels)
        counts = counts.astype(dtype, copy=False)
        nodes = np.arange(len(workload.nodes))
        shape = np.broadcast_shapes(counts.shape[1:], chosen.shape)
        charges: Integers = np.zeros(shape, dtype)
        for lacks, quarters in reductions_of(
            workload, self.reading, self.phases, self.choices, large=dtype is np.object_
        ):
            # A tensor doubles at each level above whose halved axis it lacks (`W * 2^d` for data
            # parallelism), which a shift computes exactly.
            copies = quarters << _total(counts, lacks)
            charges += scales * copies * lacks[chosen, nodes]
        return charges

    def _converted(
        self,
        workload: Workload,
        counts: NDArray[np.int64],
        written: NDArray[np.intp],
        read: NDArray[np.intp],
        levels: Sequence[int],
    ) -> Integers:
        """Return what boundaries charge for pairs of choices: ``(..., levels, boundaries)``.

        Parameters
        ----------
        counts : (choices, ..., levels or 1, nodes)
            How often each choice was made above.
        written, read : (..., levels, boundaries), or of a shape that is broadcast to it
            The choices of sources and of targets.
        """
        dtype, scales = self._dtype_and_scales(workload, levels)
        boundaries, targets = np.arange(len(workload.ends)), workload.ends[:, 1]
        sizes: Integers = np.array(workload.boundary_sizes, dtype)
        quarters = self._conversions(workload)[boundaries, written, read]
        charges: Integers = scales * sizes * quarters.astype(dtype)
        reads_whole = workload.lacking(self.choices).input[:, targets]
        if reads_whole.any():  # a choice that reads its input whole leaves two copies of it
            copies = _total(counts[..., targets].astype(dtype, copy=False), reads_whole)
            # Gathered last, it is not yet whole while it is exchanged otherwise.
            if self._row.gathers_last:
                copies = copies * self._gathers(workload)[boundaries, read]
            charges = charges << copies
        return charges

    def _gathers(self, workload: Workload) -> NDArray[np.bool_]:
        """Return which choices of its target read a boundary whole: ``(boundaries, choices)``."""
        reads, _ = layouts(workload, self.choices)
        gathers: NDArray[np.bool_] = reads[workload.ends[:, 1]] == Layout.WHOLE
        return gathers

    def _above(self, level: int) -> int:
        """Return an exponent of 2 that no replica of shared weights reaches at this level."""
        return max(self.levels, level + 1)

    def _conversions(self, workload: Workload) -> NDArray[np.int64]:
        """Return the quarters of an element that a boundary moves for each pair of choices."""
        return conversions_of(workload, self.reading, self.phases, self.choices)

    def thresholds(self, workload: Workload, levels: int) -> ThresholdTable | None:
        """Return the charges of all levels together, for two choices and equal level weights.

        Source: docs/decisions/0005-joint-optimum.md.
        """
        lacking = workload.lacking(self.choices)
        # With a third choice a boundary's charge depends on what its target has split above, and
        # with unequal weights permuting the levels changes the cost: neither telescopes.
        if self.choices > 2 or len(set(self.level_weights)) > 1:
            return None
        if lacking.input.any() or any(tensor.all(axis=0).any() for tensor in lacking):
            # A tensor that lacks both axes doubles at every level, whatever is chosen, so that
            # its charge depends on the level and not on the layer's own count alone.
            return None
        # All levels have the same weight: the first level's scale is that of all.
        scale = self._scale(0)
        charges: Integers = np.zeros((2, len(workload.nodes)), object)
        for lacks, quarters in reductions_of(
            workload, self.reading, self.phases, self.choices, large=True
        ):
            charges += scale * quarters * lacks
        conversions: Integers = self._conversions(workload).astype(object)
        pairs = scale * conversions.reshape(-1, 4).T * np.array(workload.boundary_sizes, object)
        weights = workload.is_weight_boundary
        stored = charges.max(axis=0)[workload.ends[weights, 0]]
        # As `with_penalties`: no threshold charges the weights' node as much as this.
        pairs[2, weights] = 1 + (stored << levels)
        table = ThresholdTable(
            data=charges[0],
            model=charges[1],
            ends=workload.ends,
            pairs=pairs,
            levels=levels,
            unit=self.unit,
            resolution=self.resolution,
        )
        if exact_dtype(table.largest) is np.object_:
            return table
        charges, pairs = charges.astype(np.int64), pairs.astype(np.int64)
        return replace(table, data=charges[0], model=charges[1], pairs=pairs)

    @cached_property
    def _of_pass(self) -> dict[Phase, CommunicationCost]:
        return {
            phase: replace(self, phases=(phase,) if phase in self.phases else ()) for phase in Phase
        }

    @cached_property
    def _row(self) -> Reading:
        return READINGS[self.reading]

    def upper_bound(self, workload: Workload, level: int) -> int:
        """Return an upper bound on the cost of an assignment of a level, as charges count."""
        # No reading charges a tensor more than 8 quarters of an element in all passes, and below
        # 2^level groups no tensor has more than 2^level copies.
        beyond = bool(workload.weight_users) or workload.has_replicas(self.choices)
        copies = self._above(level) if beyond else level
        return 8 * self._scale(level) * workload.elements << copies

    def _dtype_and_scales(
        self, workload: Workload, levels: Sequence[int]
    ) -> tuple[type[np.int64 | np.object_], Integers]:
        """Return the dtype for sums of a level, and of each what a quarter of an element charges.

        The charges are ``(levels, 1)``.
        """
        largest = max((self.upper_bound(workload, level) for level in levels), default=0)
        dtype = exact_dtype(largest)
        return dtype, np.array([self._scale(level) for level in levels], dtype).reshape(-1, 1)

    def _scale(self, level: int) -> int:
        """Return the charge of a quarter of an element at a level."""
        weight = self.level_weights[level] if self.level_weights else 1
        return self.element_bytes * weight * self.resolution // 4


def _total(counts: Integers, lacks: Integers | NDArray[np.bool_]) -> Integers:
    """Return how often choices were made that a tensor lacks the axis of: ``(..., nodes)``.

    Parameters
    ----------
    counts : (choices, ..., nodes)
    lacks : (choices, nodes)
    """
    leading = (len(lacks), *[1] * (counts.ndim - 2), lacks.shape[1])
    total: Integers = (counts * lacks.reshape(leading)).sum(axis=0)
    return total
