"""The interface of a cost model: the charges of nodes and boundaries in their states."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import RefusedError, argument
from hypar_opt.step.states import runs_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from hypar_opt.costs.thresholds import ThresholdTable
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload


class Symmetries(NamedTuple):
    """Which levels and nodes a cost model charges alike.

    Parameters
    ----------
    kinds
        A key of each level: levels of one kind have equal rates and as many parts.
    groups
        The group of each level. What a boundary is charged over all levels is the same if the
        levels of a group are permuted in the states of both of its ends.
    marks
        What each node's charges depend on besides its tensors and its kind of layer: nodes that
        are equal in all of these are charged once.
    """

    kinds: Sequence[Hashable]
    groups: Sequence[int]
    marks: Sequence[Hashable]

    def told_apart(self, keys: Sequence[Hashable]) -> Symmetries:
        """Return them with levels of other keys told apart; a group is then a run of one kind."""
        kinds = list(zip(self.kinds, keys, strict=True))
        groups = runs_of(list(zip(self.groups, kinds, strict=True)))
        return self._replace(kinds=kinds, groups=groups)


class CostModel(ABC):
    """Charges nodes for their states, and boundaries for those of both ends.

    A state is the choices at the topmost levels, H1 first; a search that has not reached all levels
    has states of fewer levels. Charges are integers, not negative, and cover all groups of a level
    together, so that a plan's total is a plain sum. They are returned by the level that they are
    reported with. Charges of a level usually depend on the choices at that level and above; where a
    ring joins several levels, or replicas below repeat an exchange, on other levels too.

    States come in blocks of levels (`hypar_opt.step.states`), which broadcast with the nodes or
    boundaries that have them, behind the axis of their levels. So do the charges of each level; a
    charge needs no axis along which it is the same.

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

    @abstractmethod
    def node(self, workload: Workload, nodes: Indices, states: States) -> Sequence[Integers]:
        """Return the charges of nodes at each level of their states."""

    @abstractmethod
    def edge(
        self, workload: Workload, boundaries: Indices, sources: States, targets: States
    ) -> Sequence[Integers]:
        """Return the charges of boundaries at each level, given the states of both ends.

        Boundaries from shared weights (`Workload.is_weight_boundary`) are free: tables charge
        mismatches.
        """

    @property
    def by_crossing(self) -> CostModel:
        """The same cost, each level charged what crosses it: for what is shown of a plan.

        For a search a charge that joins levels stands at one of them; the sums are equal.
        """
        return self

    @property
    def is_sum(self) -> bool:
        """Whether a plan costs the sum of its charges; else `of_plan` says more."""
        return True

    def of_plan(self, workload: Workload, rows: Sequence[Sequence[int]]) -> CostModel:  # noqa: ARG002
        """Return the cost as it charges one plan, whose nodes share charges among them.

        The sum of other charges is no more than that, for this plan and all others.

        Parameters
        ----------
        rows : (levels, nodes)
        """
        return self

    def by_levels(self, workload: Workload) -> CostModel | None:  # noqa: ARG002
        """Return a cost that charges boundaries as this one does, level by level.

        A boundary's charge at a level then depends on no choices below, in all states that
        constraints allow. None if there is no such cost. Replicas that repeat an exchange
        (`Workload.has_replicas`) are the caller's concern.
        """
        return self

    def in_all(self, levels: int) -> CostModel:  # noqa: ARG002
        """Return a cost whose charges of states of so many levels add up to the same.

        It need not say at which level.
        """
        return self

    @property
    def over_equal_links(self) -> tuple[CostModel, CostModel] | None:
        """Costs by which all levels are alike, and boundaries cost no more, and no less.

        None if not known.
        """
        return None

    @property
    def of_boundaries(self) -> CostModel | None:
        """What all costs share that charge boundaries as this one does; None if not known.

        A key: what is computed for boundaries by one of them is that of the others.
        """
        return None

    def symmetries(self, workload: Workload, levels: int) -> Symmetries:
        """Return which levels and nodes are charged alike.

        The more are, the more levels are solved jointly. By default each level is of a kind of its
        own, and nodes are told apart by their tensors and kinds of layer alone.
        """
        return Symmetries(range(levels), range(levels), (None,) * len(workload.nodes))

    def thresholds(self, workload: Workload, levels: int) -> ThresholdTable | None:  # noqa: ARG002
        """Return the charges of all levels together by thresholds; None if they depend on more."""
        return None


def check_is_sum(cost: CostModel) -> None:
    """Refuse to compare plans by the sums of their charges where these are less than their costs.

    Raises
    ------
    RefusedError
        If the cost is none.
    """
    if not cost.is_sum:
        raise RefusedError(
            "gradients in buckets share their latencies, so that a plan takes more than the sum of"
            f" what its layers are charged; use {argument('bucket', 0)}"
        )
