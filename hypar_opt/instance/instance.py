"""One problem on one network, with its tensors, cost model and constraints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from hypar_opt.costs.alignments import bracketing_costs
from hypar_opt.costs.contract import cost_of
from hypar_opt.costs.row_names import RowNames
from hypar_opt.costs.state_charges import check_states, choices_by_level, states_of
from hypar_opt.costs.state_classes import ChargeCache
from hypar_opt.costs.state_table import StateTable
from hypar_opt.deadline import NEVER
from hypar_opt.errors import HyparError, RefusedError, argument
from hypar_opt.instance.conflicts import feasible_constraints
from hypar_opt.instance.constraints import ConstraintSet
from hypar_opt.instance.last_resort import with_last_resort
from hypar_opt.plan.micro_batch import micro_batch_of
from hypar_opt.step.readings import READINGS
from hypar_opt.step.uneven import divides_evenly

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hypar_opt.costs.base import CostModel
    from hypar_opt.costs.node_modes import NodeModes
    from hypar_opt.costs.state_classes import ClassTable
    from hypar_opt.costs.thresholds import ThresholdTable
    from hypar_opt.costs.time import TimeCost
    from hypar_opt.deadline import Deadline
    from hypar_opt.hierarchy import SplitRule
    from hypar_opt.plan.constraints import Constraints
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem
    from hypar_opt.plan.training import Training
    from hypar_opt.workload.contiguous import Orders
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True)
class Instance:
    """A problem on a network, built once and passed on.

    Tensors, cost model and constraints are computed on first use, and then cached.
    """

    network: Network
    problem: Problem
    bounded: Callable[[CostModel, Workload], CostModel] | None = None
    """Returns the bound that is minimised in place of the problem's cost; None for the cost
    itself."""

    @classmethod
    def to_search(cls, network: Network, problem: Problem) -> Instance:
        """Return a problem to search: layers may be whole where no split fits.

        Raises
        ------
        HyparError
            If it is in stages, each of which is a problem of its own.
        """
        if problem.is_staged:
            stages = argument("stages")
            raise HyparError(f"choices: parts of H1 are pipeline stages, which {stages} asks for")
        return cls(network, with_last_resort(network, problem))

    @classmethod
    def of_plan(cls, plan: Plan) -> Instance:
        """Return the problem that a plan answers.

        Raises
        ------
        RefusedError
            If it is in stages, each of which is a problem of its own.
        """
        if plan.is_staged:
            raise RefusedError("a plan in pipeline stages is looked at stage by stage, not as one")
        return cls(plan.network.description, plan.problem)

    def with_constraints(self, constraints: Constraints) -> Instance:
        """Return the problem with other constraints, on the same tensors."""
        return self._changed({"constraints": constraints})

    def with_cost(self, cost: CostModel) -> Instance:
        """Return the same problem with another cost model, such as a bound on its own."""
        variant = replace(self)
        vars(variant).update(vars(self) | {"cost": cost})
        for name in ("thresholds", "baselines", "node_modes", "_classes"):
            vars(variant).pop(name, None)
        return variant

    def within_memory(self, memory: int) -> Instance:
        """Return the problem within another memory, on the same table of states if it has one.

        Raises
        ------
        InfeasibleError
            If no plan fits.
        """
        constraints = self.problem.constraints.model_copy(update={"memory": memory})
        attributes = ["cost", "executed", "charge_cache", "baselines", "node_modes"]
        if self.problem.constraints.memory is not None:
            attributes.append("_classes")
        return self._changed({"constraints": constraints}, *attributes)

    def with_share(self, share: float | tuple[float, ...]) -> Instance:
        """Return the problem with other shares of the groups of accelerators."""
        attributes = () if self.problem.depends_on_shares else ("constraints",)
        return self._changed({"share": share}, *attributes)

    def trained(self, training: Training) -> Instance:
        """Return the problem with another way of training."""
        problem = self.problem.model_copy(update={"training": training})
        count, choices = training.micro_batches, self._choices
        if count not in choices:
            choices[count] = with_last_resort(self.network, problem).choices
        return replace(self, problem=problem.model_copy(update={"choices": choices[count]}))

    @cached_property
    def _choices(self) -> dict[int | None, tuple[str, ...]]:
        """By micro-batches, whose size alone determines which layers have to be whole."""
        return {self.problem.training.micro_batches: self.problem.choices}

    def _changed(self, update: Mapping[str, object], *attributes: str) -> Instance:
        """Return the problem with other fields, except for some attributes with the same caches."""
        variant = replace(self, problem=self.problem.model_copy(update=update))
        # Cached properties are among the attributes.
        names = {"_plain", "_with_shared", *attributes}
        vars(variant).update({name: value for name, value in vars(self).items() if name in names})
        return variant

    def splits_evenly(self, micro_batches: int) -> bool:
        """Return whether plans split the images of each micro-batch evenly."""
        images = self.problem.batch // micro_batches
        return divides_evenly(images, self.problem.hierarchy, self.rule)

    @cached_property
    def workload(self) -> Workload:
        """The tensors of a batch; a shared tensor is a node if the reading charges it as one."""
        return self._workload_of(self.problem.reading)

    def running(self, workload: Workload) -> Instance:
        """Return the problem with other tensors of a run, such as those of all stages together."""
        variant = replace(self)
        vars(variant)["executed_workload"] = workload
        return variant

    @cached_property
    def executed_workload(self) -> Workload:
        """The tensors of a batch as a run shares them."""
        return self._workload_of(self.problem.run_reading)

    def _workload_of(self, reading: str) -> Workload:
        shares = reading in READINGS and READINGS[reading].shared_tensors
        return self._with_shared if shares else self._plain

    @cached_property
    def _plain(self) -> Workload:
        return micro_batch_of(self.problem, self.network, shared_tensors=False)

    @cached_property
    def _with_shared(self) -> Workload:
        return (
            micro_batch_of(self.problem, self.network, shared_tensors=True)
            if self.network.shares_tensors(self.problem.choices)
            else self._plain
        )

    def within(self, orders: Orders) -> Instance:
        """Return the problem of plans that split images at the first levels of an order."""
        variant = self.with_cost(self.cost)
        vars(variant)["constraints"] = self.constraints.within(orders)
        return variant

    def with_shares_between(self, corners: Sequence[Sequence[int]]) -> Instance:
        """Return the problem with constraints that hold at any shares between some.

        Parts may be uneven at H1, and each holds the least that it may.
        """
        variant = self.with_cost(self.cost)
        vars(variant)["rule"] = self.problem.rule_at_any_share
        limited = ConstraintSet(self.problem, self.workload, corners=corners)
        vars(variant)["constraints"] = limited
        return variant

    def restricted_to(self, states: NDArray[np.bool_]) -> Instance:
        """Return the problem of plans whose nodes are in some states: ``(nodes, states)``."""
        variant = self.with_cost(self.cost)
        vars(variant)["_among"] = states
        return variant

    def labels(self, *levels: str, states: Sequence[Sequence[int]] | None = None) -> RowNames:
        """Return the names of a table's rows and columns: of levels, or of states."""
        return RowNames(*self._names, levels, states)

    @cached_property
    def _names(self) -> tuple[list[str], Sequence[Sequence[str | None]]]:
        workload = self.workload
        names = [node.name for node in workload.nodes]
        nodes = Counter(names)
        for shared in range(workload.shared):
            # A layer may be called "output of conv1" too.
            while nodes[names[shared]] > 1:
                nodes[names[shared]] -= 1
                names[shared] += "'"
                nodes[names[shared]] += 1
        return names, workload.words

    @cached_property
    def rule(self) -> SplitRule | None:
        """How levels may split layers and shared tensors; None without a rule."""
        return self.problem.split_rule

    @cached_property
    def cost(self) -> CostModel:
        """The cost model of the objective.

        Raises
        ------
        HyparError
            If there is no such cost or reading, or it cannot charge the problem.
        """
        cost = cost_of(self.problem, self.workload)
        return cost if self.bounded is None else self.bounded(cost, self.workload)

    @property
    def per_second(self) -> int:
        """The charges of a second, where time is the objective."""
        time: TimeCost = self.cost.time
        return time.per_unit

    @cached_property
    def charge_cache(self) -> ChargeCache:
        """Charges of boundaries, for the next search with a cost that differs only in nodes."""
        return ChargeCache()

    @cached_property
    def node_modes(self) -> dict[Hashable, Sequence[NodeModes]]:
        """The charges and loads of `LayerModes`, by a key of each."""
        return {}

    @cached_property
    def executed(self) -> CostModel:
        """The model of the bytes that running a plan moves, for any objective."""
        # The bytes of a run are not weighted.
        reading = self.problem.run_reading
        update = {"level_weights": (), "reading": reading, "cost": "bytes"}
        executed = self.problem.model_copy(update=update)
        return cost_of(executed, self.executed_workload)

    def states(self, deadline: Deadline = NEVER) -> StateTable:
        """Return the table of the states of all levels, with the constraints.

        Raises
        ------
        RefusedError
            If there are more of them than memory allows.
        NoAnswerError
            If the deadline passes.
        """
        workload, levels = self.workload, self.problem.levels
        check_states(len(workload.nodes), choices_by_level(workload, levels))
        states = states_of(workload, levels, deadline)
        allowed, limits = self.constraints.of_states(states, deadline)
        if (among := vars(self).get("_among")) is not None:
            allowed = among if allowed is None else allowed & among
        return StateTable(self.cost, workload, states, allowed, limits)

    def classes(self, deadline: Deadline) -> ClassTable:
        """Return the states of all levels in classes, within the memory if it is limited.

        Raises
        ------
        RefusedError, NoAnswerError
            As `states`.
        """
        table = self.cached_classes
        if table is None:
            bounds = bracketing_costs(self.cost, self.workload, self.problem.levels)
            table = self.states(deadline).by_classes(deadline, self.charge_cache, bounds)
        table = table.within(self.constraints.capacities)
        vars(self)["_classes"] = table
        return table

    @property
    def cached_classes(self) -> ClassTable | None:
        """The states in classes, if these have been built."""
        return vars(self).get("_classes")

    @cached_property
    def thresholds(self) -> ThresholdTable | None:
        """All levels by thresholds, without the constraints; None if there is no such table.

        There is none where levels differ, or constraints distinguish them: these problems take
        states.
        """
        if self.constraints.any and not self.constraints.by_counts:
            return None
        return self.cost.thresholds(self.workload, self.problem.levels)

    @cached_property
    def constraints(self) -> ConstraintSet:
        """The problem's constraints.

        Raises
        ------
        HyparError
            If pins name a layer, level or choice that does not exist.
        InfeasibleError
            If no plan satisfies them; it names those that are in conflict.
        """
        return feasible_constraints(self.problem, self.workload)
