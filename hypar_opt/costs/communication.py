"""Communication in bytes: the paper's Tables 1 and 2, in one of five readings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hypar_opt.costs.base import CostModel, check_reading
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.integers import exact_dtype
from hypar_opt.sharding.passes import INFERENCE, TRAINING, Phase
from hypar_opt.step.operations import by_level
from hypar_opt.step.rules import rules_of
from hypar_opt.step.states import exact_sum

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.operations import Collective
    from hypar_opt.step.rules import StepRules
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True)
class CommunicationCost(CostModel):
    """Bytes exchanged between the parts of every group of one level, added up.

    The exchanges of a choice follow from the tensors that lack the axis it splits (see
    `hypar_opt.workload.operators.axes`). For convolutions and fully-connected layers, with d data,
    m model and o output choices of a layer above a level of 2^h groups, h = d + m + o, a group has
    W / 2^(m+o), F / 2^(d+o) and, of the layer's own input, A / 2^(d+m). Times 2^h these are W *
    2^d, F * 2^m and A * 2^o: integers, even where a size is odd, so the charges are exact without
    any rounding.

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
        The name of a row of factors in `hypar_opt.step.readings`.
    element_bytes
        Bytes of a tensor's element: 4 as in the paper, 2 for half precision.
    phases
        The passes that are charged: all three of training, or fewer.
    level_weights
        The cost of a byte at each level, H1 first; empty for 1 at every level.
    sizes
        The parts of each level: replicas of a tensor repeat its exchanges in each part.
    by_largest_shard
        Whether amounts are scaled as if all parts sent and received as much as the largest shard,
        where axes are divided unevenly: for states over all levels. Otherwise they are what moves.
    unequal
        Whether parts of H1 are unequal, which `hypar_opt.costs.groups` charges.

    Source: Tables 1 and 2; Algorithm 2; docs/model.md.
    """

    reading: str = "text"
    element_bytes: int = 4
    phases: tuple[Phase, ...] = TRAINING
    level_weights: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    by_largest_shard: bool = False
    unequal: bool = False

    @classmethod
    def of_problem(cls, problem: Problem, **more: Any) -> Self:
        """Return the cost of a problem whose reading charges all of its choices."""
        return cls(
            problem.reading,
            problem.element_bytes,
            INFERENCE if problem.inference else TRAINING,
            problem.level_weights,
            problem.hierarchy.sizes,
            **more,
        )

    @classmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> Self:
        """Return the cost of a problem; else an error says which choice has no charge."""
        check_reading(problem, workload)
        return cls.of_problem(problem)

    def of(self, phase: Phase) -> CommunicationCost:
        """Return the cost model of one pass alone."""
        return self._of_pass[phase]

    @property
    def unit(self) -> str:
        return "weighted bytes" if self.level_weights else "bytes"

    @cached_property
    def resolution(self) -> int:
        """Charges per byte: 1, or 2 or 4 where smaller elements make fractions of a byte."""
        # A quarter of an element of 4 bytes is a whole byte.
        return Fraction(self.element_bytes, 4).denominator

    def rules(self, workload: Workload, levels: int) -> StepRules:
        """Return the rules of what a workload exchanges at so many levels."""
        parts = self._parts(max(levels, len(self.sizes)))
        of = workload, Hierarchy(parts), self.reading, self.phases
        return rules_of(*of, by_largest_shard=self.by_largest_shard, unequal=self.unequal)

    def charge(self, operation: Collective) -> Integers:
        """Return the bytes that an operation moves, times its level's weight."""
        return self.mean(self.moved([operation]))

    def fold(self, operations: Iterable[Collective], levels: int) -> list[Integers]:
        return [self.mean(self.moved(row)) for row in by_level(operations, levels)]

    def level_key(self, level: int) -> Hashable:
        # An H1 of unequal parts is as no other level.
        return self.scale(level), self.unequal and not level

    @property
    def proportional(self) -> bool:
        return len({*self.level_weights}) < 2 and not self.unequal

    def moved(self, operations: Sequence[Collective]) -> Integers:
        """Return the sum of the charges of operations at one level."""
        quarters = exact_sum([np.asarray(operation.quarters) for operation in operations])
        scale = self.scale(operations[0].level) if operations else 1
        dtype = exact_dtype(int(quarters.max(initial=0)) * scale)
        moved: Integers = quarters.astype(dtype, copy=False) * scale
        return moved

    def mean(self, moved: Integers) -> Integers:
        """Return charges of `moved` as those of the bytes of all accelerators."""
        return moved

    @cached_property
    def _of_pass(self) -> dict[Phase, CommunicationCost]:
        return {
            phase: replace(self, phases=(phase,) if phase in self.phases else ()) for phase in Phase
        }

    def upper_bound(self, workload: Workload, level: int) -> int:
        """Return an upper bound on the cost of a level's assignment, in units of charges."""
        return self.scale(level) * self.rules(workload, level + 1).upper_bound(level)

    @cached_property
    def hierarchy(self) -> Hierarchy:
        """The parts of all levels."""
        return Hierarchy(self.sizes)

    def _parts(self, levels: int) -> tuple[int, ...]:
        """Return the parts of each of the topmost levels: two for levels beyond `sizes`."""
        return (*self.sizes, *(2,) * (levels - len(self.sizes)))[:levels]

    def scale(self, level: int) -> int:
        """Return the charge of a quarter of an element at a level."""
        weight = self.level_weights[level] if self.level_weights else 1
        return self.element_bytes * weight * self.resolution // 4
