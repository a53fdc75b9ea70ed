"""Communication in bytes: the paper's Tables 1 and 2, in one of four readings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.base import CostModel, SplitCounts
from hypar_opt.costs.readings import INFERENCE, READINGS, TRAINING, Phase, Reading
from hypar_opt.costs.separable import SeparableTable
from hypar_opt.costs.table import Integers, exact_dtype
from hypar_opt.errors import HyparError, UnknownNameError
from hypar_opt.workload.parallelism import DATA, MODEL, OUTPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True)
class CommunicationCost(CostModel):
    """Bytes exchanged between the two halves of every group of one level, added up.

    With d data, m model and o output choices of a layer above a level (of 2^h groups, h
    their sum), a group has W / 2^(m+o), F / 2^(d+o) and, of the layer's own input,
    A / 2^(d+m). Times 2^h these are W * 2^d, F * 2^m and A * 2^o: whole numbers, also where
    a size is odd, so the charges are exact without rounding anything.

    ======  ======  =======================  ===============
    layer   choice  charged for              times
    ======  ======  =======================  ===============
    l       data    dW_l                     gradient
    l       model   F_{l+1}                  partial_sum, gathered_error
    l       output  E_l                      input_error
    l-1, l  dp-mp   A, forward and backward  data_model each
    l-1, l  mp-mp   A, backward              model_model
    l-1, l  mp-dp   A, backward              model_data
    ======  ======  =======================  ===============

    Factors are quarters of an element. In the reading ``executed`` F_{l+1} is the output
    before pooling.

    Conversions from and to output parallelism, on A: d-o a half and o-o a half, forward;
    o-d a quarter forward and a quarter backward; m-o and o-m nothing.

    Parameters
    ----------
    reading
        Whose factors: `hypar_opt.costs.readings` has the four rows.
    element_bytes
        Bytes of a tensor's element: 4 as in the paper, 2 for half precision.
    phases
        The passes that are charged: all three of training, or fewer.
    choices
        2, or 3 with output parallelism, for the readings ``tables`` and ``text``.
    level_weights
        What a byte costs at each level, H1 first; empty for 1 everywhere.

    Source: Tables 1 and 2; Algorithm 2; docs/model.md.
    """

    reading: str = "text"
    element_bytes: int = 4
    phases: tuple[Phase, ...] = TRAINING
    choices: int = 2
    level_weights: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.reading not in READINGS:
            raise UnknownNameError("reading", self.reading, list(READINGS))
        if self.choices == 3 and self._row.input_error is None:
            known = " or ".join(name for name, row in READINGS.items() if row.input_error)
            raise HyparError(f"choices: output needs the reading {known}, got {self.reading}")

    @classmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> CommunicationCost:  # noqa: ARG003
        """Return the cost of a problem."""
        return cls(
            problem.reading,
            problem.element_bytes,
            INFERENCE if problem.inference else TRAINING,
            len(problem.choices),
            problem.level_weights,
        )

    def of(self, phase: Phase) -> CommunicationCost:
        """Return what one pass is charged."""
        return replace(self, phases=(phase,) if phase in self.phases else ())

    def of_choice(self, workload: Workload, state: Sequence[int], choice: int) -> Integers:
        """Charge each layer's reductions at all the levels of a state that take one choice.

        Parameters
        ----------
        state
            The choices of a layer at all levels, H1 first; the same for every layer.
        """
        layers = len(workload.layers)
        moved: Integers = np.zeros(layers, object)
        for level, taken in enumerate(state):
            if taken == choice:
                above = [state[:level].count(other) for other in range(self.choices)]
                moved = moved + self.node(workload, SplitCounts.uniform(layers, above))[:, choice]
        return moved

    def messages(self, choice: int) -> int:
        """Return how often one pass's reduction crosses a level below the topmost.

        An all-reduce between pairs is recursive halving and doubling, which crosses each level
        twice, and the topmost once. A reduce-scatter or an all-gather crosses each once.
        """
        return 1 if choice == MODEL and self._row.gathered_error else 2

    @property
    def unit(self) -> str:
        return "weighted bytes" if self.level_weights else "bytes"

    @cached_property
    def resolution(self) -> int:
        """Charges count bytes, or the half or quarter that a smaller element makes."""
        return Fraction(self.element_bytes, 4).denominator

    def node(self, workload: Workload, splits: SplitCounts) -> Integers:
        """Charge each layer: Table 1."""
        row = self._row
        forward, backward, gradient = self._charged
        outputs = workload.outputs if row.before_pool else workload.pooled
        number, scale = self._number(workload, splits.level)
        counts = splits.counts.astype(number)
        node: Integers = np.zeros((len(workload.layers), self.choices), number)
        node[:, DATA] = (
            scale * row.gradient * gradient * np.array(workload.weights, number) << counts[DATA]
        )
        of_outputs = row.partial_sum * forward + row.gathered_error * backward
        node[:, MODEL] = scale * of_outputs * np.array(outputs, number) << counts[MODEL]
        if self.choices > OUTPUT:
            errors = np.array(workload.inputs, number) << counts[OUTPUT]
            node[:, OUTPUT] = scale * (row.input_error or 0) * backward * errors
            if not row.first_input_error:
                first = np.setdiff1d(np.arange(len(workload.layers)), workload.ends[:, 1])
                node[first, OUTPUT] = 0
        return node

    def edge(self, workload: Workload, source: SplitCounts, target: SplitCounts) -> Integers:  # noqa: ARG002
        """Charge each boundary: Table 2."""
        row = self._row
        forward, backward, _ = self._charged
        number, scale = self._number(workload, target.level)
        targets = workload.ends[:, 1]
        boundary = scale * np.array(workload.boundary_sizes, number)
        if self.choices > OUTPUT:  # the later layer reads it whole
            boundary = boundary << target.counts[OUTPUT, targets].astype(number)
        edge: Integers = np.zeros((len(boundary), self.choices, self.choices), number)
        edge[:, DATA, MODEL] = row.data_model * (forward + backward) * boundary
        edge[:, MODEL, MODEL] = row.model_model * backward * boundary
        edge[:, MODEL, DATA] = row.model_data * backward * boundary
        if self.choices > OUTPUT:
            edge[:, DATA, OUTPUT] = edge[:, OUTPUT, OUTPUT] = 2 * forward * boundary
            edge[:, OUTPUT, DATA] = (forward + backward) * boundary
        return edge

    def separable(self, workload: Workload, levels: int) -> SeparableTable | None:
        """Charge all levels together: for two choices and the same weight at each level."""
        if self.choices > 2 or len(set(self.level_weights)) > 1:
            return None
        row = self._row
        forward, backward, gradient = self._charged
        weight = self.level_weights[0] if self.level_weights else 1
        scale = self.element_bytes * weight * self.resolution // 4
        outputs = workload.outputs if row.before_pool else workload.pooled
        of_weights = scale * row.gradient * gradient
        of_outputs = scale * (row.partial_sum * forward + row.gathered_error * backward)
        factors = (
            0,
            scale * row.data_model * (forward + backward),
            scale * row.model_data * backward,
            scale * row.model_model * backward,
        )
        dd, dm, md, mm = ([factor * size for size in workload.boundary_sizes] for factor in factors)
        return SeparableTable(
            data=[of_weights * weights for weights in workload.weights],
            model=[of_outputs * output for output in outputs],
            ends=[(boundary.source, boundary.target) for boundary in workload.boundaries],
            pairs=(dd, dm, md, mm),
            levels=levels,
            unit=self.unit,
            resolution=self.resolution,
        )

    @cached_property
    def _row(self) -> Reading:
        return READINGS[self.reading]

    @cached_property
    def _charged(self) -> tuple[bool, ...]:
        return tuple(phase in self.phases for phase in Phase)

    def most(self, workload: Workload, level: int) -> int:
        """Return what no assignment of a level costs, in the charges' unit."""
        return 8 * self._scale(level) * workload.elements << level

    def _number(self, workload: Workload, level: int) -> tuple[type[np.int64 | np.object_], int]:
        """Return the type that holds a level's largest sum, and an element's quarter in units."""
        return exact_dtype(self.most(workload, level)), self._scale(level)

    def _scale(self, level: int) -> int:
        weight = self.level_weights[level] if self.level_weights else 1
        return self.element_bytes * weight * self.resolution // 4
