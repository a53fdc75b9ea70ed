"""What every cost model offers, and the state it is asked in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import CostTable

if TYPE_CHECKING:
    from hypar_opt.costs.separable import SeparableTable
    from hypar_opt.costs.table import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True, eq=False)
class SplitCounts:
    """How often each choice has been taken, layer by layer, at the levels above.

    Parameters
    ----------
    level
        H1 being 0: how many choices each layer has made.
    counts : (choices, layers) int64
        ``counts[0]`` is d and ``counts[1]`` is m of docs/model.md.
    """

    level: int
    counts: NDArray[np.int64]

    @classmethod
    def none(cls, layers: int, choices: int = 2) -> SplitCounts:
        """Return the state at the topmost level, where every tensor is whole."""
        return cls(0, np.zeros((choices, layers), np.int64))

    @classmethod
    def uniform(cls, layers: int, counts: Sequence[int]) -> SplitCounts:
        """Return the state in which every layer has taken each choice as often."""
        column = np.array(counts, np.int64)[:, None]
        return cls(int(column.sum()), np.broadcast_to(column, (len(counts), layers)))

    @classmethod
    def down(
        cls, layers: int, choices: int, assignments: Iterable[Sequence[int]]
    ) -> Iterator[SplitCounts]:
        """Yield the state above each level of a plan, H1 first, and last that below them all."""
        state = cls.none(layers, choices)
        yield state
        for assignment in assignments:
            state = state.after(assignment)
            yield state

    def after(self, assignment: Sequence[int] | NDArray[np.intp]) -> SplitCounts:
        """Return the state one level down, each layer having taken its choice."""
        counts = self.counts.copy()
        counts[np.asarray(assignment, np.intp), np.arange(counts.shape[1])] += 1
        return SplitCounts(self.level + 1, counts)


class CostModel(ABC):
    """Prices one hierarchy level, given what the levels above have split.

    Charges are whole numbers, of the whole level, over all its groups, so that a plan's
    total is the plain sum of its levels. What is defined here is what most costs want; a
    model that inherits from this class overrides what it does otherwise.
    """

    @classmethod
    @abstractmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> CostModel:
        """Return the cost of a problem; refuse one that it cannot charge."""

    @property
    @abstractmethod
    def unit(self) -> str:
        """What a total counts, ``bytes``."""

    @property
    def resolution(self) -> int:
        """The charges count this fraction of the unit."""
        return 1

    @property
    @abstractmethod
    def choices(self) -> int:
        """What a layer may choose from, as many as the problem's."""

    @abstractmethod
    def node(self, workload: Workload, splits: SplitCounts) -> Integers:
        """Charge each layer for each choice: ``(layers, choices)``."""

    @abstractmethod
    def edge(self, workload: Workload, source: SplitCounts, target: SplitCounts) -> Integers:
        """Charge each boundary for each pair of choices: ``(boundaries, choices, choices)``.

        A boundary's charge depends on the splits of its source in ``source`` and on those
        of its target in ``target``; a level's table has both the same.
        """

    def separable(self, workload: Workload, levels: int) -> SeparableTable | None:  # noqa: ARG002
        """Return what all levels together charge, if the levels are separable; else None."""
        return None

    def beyond_levels(self, workload: Workload, splits: SplitCounts) -> str | None:  # noqa: ARG002
        """Return what of a plan no level is charged by itself; None where that is nothing.

        A search level by level has chosen without knowing of it.

        Parameters
        ----------
        splits
            The state below the plan's last level.
        """
        return None

    def of_state(self, workload: Workload, state: Sequence[int]) -> Mapping[int, Integers]:  # noqa: ARG002
        """Charge each layer for what its choices at several levels make together.

        What `node` cannot charge, since it is no sum over levels. A search level by level does
        not see it, and has to be refused by `beyond_levels`.

        Parameters
        ----------
        state
            The choices of a layer at all levels, H1 first; the same for every layer.

        Returns
        -------
        dict
            ``(layers,)`` charges by the level, H1 being 0, that each is counted with.
        """
        return {}

    def communication_only(self) -> CostModel | None:
        """Return the part of the cost that exchanges have; None where that is all."""
        return None


def level_table(cost: CostModel, workload: Workload, splits: SplitCounts) -> CostTable:
    """Price one level."""
    return CostTable(
        node=cost.node(workload, splits),
        edge=cost.edge(workload, splits, splits),
        ends=workload.ends,
        trick=workload.trick,
        unit=cost.unit,
        resolution=cost.resolution,
    )
