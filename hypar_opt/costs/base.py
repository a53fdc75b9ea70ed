"""The interface of a cost model, and the state of a level: what the levels above have split."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import CostTable, exact_dtype
from hypar_opt.costs.weights import with_penalties
from hypar_opt.errors import HyparError

if TYPE_CHECKING:
    from hypar_opt.costs.table import Integers
    from hypar_opt.costs.thresholds import ThresholdTable
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload


# Arrays have no single truth value, so a generated __eq__ would raise.
@dataclass(frozen=True, eq=False)
class SplitCounts:
    """How often each layer has made each choice at the levels above.

    Parameters
    ----------
    level
        From 0 for H1, and so the number of choices that each layer has made above.
    counts : (choices, layers) int64
        ``counts[0]`` is d and ``counts[1]`` is m of docs/model.md.
    rows : level x layers
        The choices themselves, H1 first, where they are of one plan.
    """

    level: int
    counts: NDArray[np.int64]
    rows: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def none(cls, layers: int, choices: int = 2) -> SplitCounts:
        """Return the state at the topmost level, where no tensor is split."""
        return cls(0, np.zeros((choices, layers), np.int64))

    @classmethod
    def uniform(cls, layers: int, counts: Sequence[int]) -> SplitCounts:
        """Return the state in which every layer has made each choice ``counts[choice]`` times."""
        column = np.array(counts, np.int64)[:, None]
        # A read-only view: one column stands for every layer.
        return cls(int(column.sum()), np.broadcast_to(column, (len(counts), layers)))

    @classmethod
    def down(
        cls, layers: int, choices: int, assignments: Iterable[Sequence[int]]
    ) -> Iterator[SplitCounts]:
        """Yield the state above each level of a plan, H1 first, and then that below the last."""
        state = cls.none(layers, choices)
        yield state
        for assignment in assignments:
            state = state.after(assignment)
            yield state

    def after(self, assignment: Sequence[int] | NDArray[np.intp]) -> SplitCounts:
        """Return the state one level down, after each layer's choice."""
        counts = self.counts.copy()
        # One entry in each column, so that no index repeats and += counts each layer once.
        counts[np.asarray(assignment, np.intp), np.arange(counts.shape[1])] += 1
        return SplitCounts(self.level + 1, counts, (*self.rows, tuple(assignment)))


@dataclass(frozen=True, eq=False)
class PlanChoices:
    """The choices of whole plans, with what each node has split above each level.

    Parameters
    ----------
    plans : (plans, levels, nodes) intp
    above : (choices, plans, levels, nodes) int64
        How often each choice was made above the level.
    """

    plans: NDArray[np.intp]
    above: NDArray[np.int64]

    @classmethod
    def of(cls, plans: NDArray[np.intp], choices: int) -> PlanChoices:
        """Return the plans with their counts of a number of choices."""
        made = (plans == np.arange(choices)[:, None, None, None]).astype(np.int64)
        return cls(plans, made.cumsum(axis=2) - made)

    @property
    def below(self) -> NDArray[np.int64]:
        """How often each choice was made at all levels: ``(choices, plans, nodes)``."""
        made = self.plans[:, -1] == np.arange(len(self.above))[:, None, None]
        below: NDArray[np.int64] = self.above[:, :, -1] + made
        return below


class BoundaryStates(NamedTuple):
    """Boundaries with the states of both ends, their choices at all levels.

    Parameters
    ----------
    boundaries : (n,)
        Their numbers; one may stand several times, with other states.
    sources, targets : (levels, n)
        The choices of each boundary's source and target, H1 first.
    """

    boundaries: NDArray[np.intp]
    sources: NDArray[np.intp]
    targets: NDArray[np.intp]

    @classmethod
    def of_one(
        cls, boundary: int, sources: NDArray[np.intp], targets: NDArray[np.intp]
    ) -> BoundaryStates:
        """Return many states of the ends of one boundary."""
        return cls(np.full(sources.shape[1], boundary), sources, targets)

    @classmethod
    def of_rows(
        cls, workload: Workload, boundaries: NDArray[np.intp], rows: NDArray[np.intp]
    ) -> BoundaryStates:
        """Return the states of boundaries in a plan's rows, ``(levels, nodes)``."""
        sources, targets = rows[:, workload.ends[boundaries].T].transpose(1, 0, 2)
        return cls(boundaries, sources, targets)

    def above(self, level: int) -> BoundaryStates:
        """Return the same boundaries with the states of the levels above one."""
        return self._replace(sources=self.sources[:level], targets=self.targets[:level])


class CostModel(ABC):
    """Prices one hierarchy level, given what the levels above have split.

    Charges are integers and cover all groups of a level together, so that a plan's total is
    the plain sum over its levels. A subclass implements the abstract members, and overrides a
    default where its charges differ.

    Source: docs/decisions/0004-whole-number-tables.md.
    """

    @classmethod
    @abstractmethod
    def from_problem(cls, problem: Problem, workload: Workload) -> CostModel:
        """Return the cost model of a problem.

        Raises
        ------
        HyparError
            If it cannot charge the problem.
        """

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of a total, such as ``bytes``."""

    @property
    def resolution(self) -> int:
        """Charges per unit: 2 if a charge of 1 is half a byte."""
        return 1

    @property
    @abstractmethod
    def choices(self) -> int:
        """The number of choices of a layer: that of the problem."""

    @abstractmethod
    def node(self, workload: Workload, splits: SplitCounts) -> Integers:
        """Return the charge of each layer for each choice: ``(layers, choices)``."""

    @abstractmethod
    def edge(self, workload: Workload, source: SplitCounts, target: SplitCounts) -> Integers:
        """Return the charges of pairs of choices: ``(boundaries, choices, choices)``.

        A boundary's charge depends on the splits of its source in ``source`` and on those
        of its target in ``target``; in a level's table the two are the same state. Those
        that lead from shared weights (`Workload.is_weight_boundary`) are free: tables keep these
        alike.
        """

    def reads_splits(self, workload: Workload) -> tuple[bool, bool]:  # noqa: ARG002
        """Return whether `edge` may depend on its source's splits above, and on its target's.

        A table of all levels asks for fewer combinations where they do not matter.
        """
        return True, True

    def pairs(self, workload: Workload, ends: BoundaryStates) -> Integers:  # noqa: ARG002
        """Return the charges of boundaries at every level, given the states of both ends.

        What is stored whole at one level and read whole there repeats the exchanges at all other
        levels, so that no charge of a level alone has them (`Workload.replica_boundaries`).

        Returns
        -------
        (levels, n)
        """
        raise HyparError(f"{type(self).__name__} does not charge replicas, as the choice whole has")

    def of_plans(self, workload: Workload, plans: NDArray[np.intp]) -> Integers | None:  # noqa: ARG002
        """Return what whole plans are charged at each level: the sums of their tables' entries.

        Without `of_state`'s charges. A cost that says so prices plans without making tables;
        None, the default, where it needs them.

        Parameters
        ----------
        plans : (plans, levels, nodes)
            The choices of all nodes, H1 first.

        Returns
        -------
        (plans, levels)
        """
        return None

    def thresholds(self, workload: Workload, levels: int) -> ThresholdTable | None:  # noqa: ARG002
        """Return the charges of all levels together by thresholds; None if they depend on more."""
        return None

    def beyond_levels(self, workload: Workload, splits: SplitCounts) -> str | None:  # noqa: ARG002
        """Return, as text, the part of a plan's cost that no single level is charged; else None.

        A levelwise search has made its choices without it, and so has to be refused.

        Parameters
        ----------
        splits
            The state below the plan's last level.
        """
        return None

    def of_state(self, workload: Workload, state: Sequence[int]) -> Mapping[int, Integers]:  # noqa: ARG002
        """Return each layer's charge for its choices at several levels together, as for a ring.

        `node` cannot charge it, since it is not a sum over levels. A levelwise search does not
        see it; `beyond_levels` has to refuse that.

        Parameters
        ----------
        state
            The choices of a layer at all levels, H1 first; the same for every layer.

        Returns
        -------
        dict
            Of the level, from 0 for H1, that a charge is reported with: ``(layers,)`` charges.
        """
        return {}

    def communication_only(self) -> CostModel | None:
        """Return the model of the exchanges alone; None if nothing else is charged."""
        return None


def level_table(cost: CostModel, workload: Workload, splits: SplitCounts) -> CostTable:
    """Return the cost table of one level, given the splits above it.

    It charges what appending the level to those above adds to the cost.
    """
    # Within a level both ends of a boundary have the same levels above them.
    node, edge = cost.node(workload, splits), cost.edge(workload, splits, splits)
    if workload.has_replicas(cost.choices):
        replica_boundaries = np.flatnonzero(workload.replica_boundaries(cost.choices))
        edge = edge.astype(object)
        edge[replica_boundaries] = _appended(cost, workload, replica_boundaries, splits)
        largest = int(node.max(axis=1).sum()) + int(edge.max(axis=(1, 2)).sum())
        node, edge = (part.astype(exact_dtype(largest)) for part in (node, edge))
    each_choice = [(choice,) for choice in range(cost.choices)]
    node, (edge,) = with_penalties(workload, node, [edge], each_choice)
    return CostTable(
        node=node,
        edge=edge,
        ends=workload.ends,
        trick=workload.trick,
        unit=cost.unit,
        resolution=cost.resolution,
    )


def _appended(
    cost: CostModel, workload: Workload, boundaries: NDArray[np.intp], splits: SplitCounts
) -> Integers:
    """Return what a level adds to the exchanges of boundaries: ``(n, choices, choices)``."""
    rows = np.array(splits.rows, np.intp).reshape(splits.level, len(workload.nodes))
    above = BoundaryStates.of_rows(workload, boundaries, rows)
    shape = (len(boundaries), cost.choices, cost.choices)
    numbers, *here = (index.reshape(-1) for index in np.indices(shape))
    sources, targets = (
        np.vstack([states[:, numbers], choice])
        for states, choice in zip(above[1:], here, strict=True)
    )
    total: Integers = cost.pairs(workload, BoundaryStates(boundaries[numbers], sources, targets))
    before: Integers = cost.pairs(workload, above).sum(axis=0)
    added: Integers = total.sum(axis=0).reshape(shape) - before[:, None, None]
    return added
