"""What every cost model offers, and the state it is asked in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import CostTable

if TYPE_CHECKING:
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

    def after(self, assignment: Sequence[int] | NDArray[np.intp]) -> SplitCounts:
        """Return the state one level down, each layer having taken its choice."""
        counts = self.counts.copy()
        counts[np.asarray(assignment, np.intp), np.arange(counts.shape[1])] += 1
        return SplitCounts(self.level + 1, counts)


@dataclass(frozen=True)
class Thresholds:
    """All levels together, as a question a number of levels: "model at t levels or more?".

    Of H levels a layer that takes model parallelism at m is charged ``model * 2^(t-1)`` for
    each t up to m and ``data * 2^(H-t)`` for each t above, whatever the order of its levels;
    a boundary is charged for each t by how its two layers answer. So the questions are
    independent, and the optimum over all levels is that of H chains of two choices.
    Source: docs/decisions/0005-joint-optimum.md.

    Parameters
    ----------
    data, model
        A charge a layer.
    ends
        Each boundary's source and target.
    pairs
        What each boundary is charged for dp-dp, for dp-mp, for mp-dp and for mp-mp.
    """

    data: Sequence[int]
    model: Sequence[int]
    ends: Sequence[tuple[int, int]]
    pairs: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]


class CostModel(Protocol):
    """Prices one hierarchy level, given what the levels above have split.

    Charges are whole numbers, of the whole level, over all its groups, so that a plan's
    total is the plain sum of its levels. What is defined here is what most costs want; a
    model that inherits from this class overrides what it does otherwise.
    """

    @classmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> CostModel:
        """Return the cost of a problem; refuse one that it cannot charge."""

    @property
    def unit(self) -> str:
        """What a total counts, ``bytes``."""

    @property
    def resolution(self) -> int:
        """The charges count this fraction of the unit."""
        return 1

    @property
    def choices(self) -> int:
        """What a layer may choose from, as many as the problem's."""

    def node(self, workload: Workload, splits: SplitCounts) -> Integers:
        """Charge each layer for each choice: ``(layers, choices)``."""

    def edge(self, workload: Workload, source: SplitCounts, target: SplitCounts) -> Integers:
        """Charge each boundary for each pair of choices: ``(boundaries, choices, choices)``.

        A boundary's charge depends on the splits of its source in ``source`` and on those
        of its target in ``target``; a level's table has both the same.
        """

    def thresholds(self, workload: Workload) -> Thresholds | None:  # noqa: ARG002
        """Return what all levels together charge, if they come apart; else None."""
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
        kinds=tuple(layer.kind for layer in workload.layers),
        unit=cost.unit,
        resolution=cost.resolution,
    )
