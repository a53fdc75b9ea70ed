"""The bytes of a step on groups of accelerators with unequal shares."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.sides import Parts, Share, SideBytes, check_of_groups
from hypar_opt.step.states import added_up

if TYPE_CHECKING:
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True)
class GroupBytes(CommunicationCost):
    """The bytes of all parts together.

    Parameters
    ----------
    parts
        Each part's share of a tensor that H1 splits.
    """

    parts: Parts = (1, 1)

    proportional: ClassVar[bool] = False

    @classmethod
    def of_groups(cls, problem: Problem) -> Self:
        """Return the bytes of a problem with unequal parts.

        Raises
        ------
        HyparError
            If it is not of the reading that a run has.
        """
        return cls.of_problem(check_of_groups(problem), parts=problem.part_shares)

    @cached_property
    def resolution(self) -> int:
        """Charges per byte: halves, to which the mean of all parts is rounded."""
        return 2 * super().resolution

    @cached_property
    def _sides(self) -> list[SideBytes]:
        """The bytes of each part in each pass."""
        return [
            SideBytes.among(self.of(phase), share)
            for phase in self.phases
            for share in Share.each(self.parts)
        ]

    def level_key(self, level: int) -> Hashable:
        """Return a level's weight, and whether it is H1, between the groups."""
        return super().level_key(level), not level

    def node(self, workload: Workload, nodes: Indices, states: States) -> list[Integers]:
        return self._mean(side.node(workload, nodes, states) for side in self._sides)

    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> list[Integers]:
        return self._mean(side.edge(workload, boundaries, sources, targets) for side in self._sides)

    def _mean(self, every: Iterable[Sequence[Integers]]) -> list[Integers]:
        """Return twice the mean of all parts, which are charged as if all had as much."""
        count = len(self.parts)
        return [(2 * added_up(rows) + count // 2) // count for rows in zip(*every, strict=True)]
