"""Plans priced from their choices, whatever found them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hypar_opt.errors import WrongClaimError
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import layouts_of, price, tensors_of
from hypar_opt.plan.configuration import check, rows_of, training_of
from hypar_opt.plan.plan import Plan, SolverRecord, SolverSettings, columns_of, words_of
from hypar_opt.plan.problem import NetworkRecord, ProblemFields
from hypar_opt.plan.schemas import schema_of
from hypar_opt.plan.stated_degrees import pinned
from hypar_opt.search.result import SearchResult
from hypar_opt.version import __version__

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Tensors
    from hypar_opt.instance.staged import StagedPlan
    from hypar_opt.plan.configuration import Configuration
    from hypar_opt.plan.costs import Cost
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network


def unproved(bound: float | None = None, options: SolverSettings | None = None) -> SolverRecord:
    """Return the record of a plan that is known in addition to a search's."""
    return SolverRecord(
        name="dp",
        search="joint",
        status="feasible",
        scope="joint",
        bound=bound,
        gap=None,
        stopped_by=None,
        seconds=0.0,
        options=options or SolverSettings(),
        statistics=(),
        versions={"hypar-opt": __version__},
    )


def priced_plan(
    instance: Instance,
    rows: Sequence[Sequence[int]],
    solver: SolverRecord,
    result: SearchResult | None = None,
    tensors: Tensors | None = None,
) -> Plan:
    """Return the plan priced from its choices, with the gap to the bound that the solver claims.

    The record is that of our own search: only here a plan's claims become ours. Shared tensors are
    stored as stated, or as the search found, or in the cheapest layouts.
    """
    if tensors is None and result is not None:
        tensors = result.priced
    if tensors is None:
        tensors = tensors_of(instance, rows)
    cost = price(instance, rows, tensors, result.charged if result else None)
    words = words_of(rows, instance.network.words(instance.problem.choices))
    layouts = layouts_of(instance, rows, tensors)
    return _plan(instance.network, instance.problem, words, layouts, cost, solver)


def _plan(
    network: Network,
    problem: Problem,
    parallelism: Sequence[Sequence[str]],
    layouts: Mapping[str, Sequence[str]],
    cost: Cost,
    solver: SolverRecord,
) -> Plan:
    """Return a priced plan with the gap to the bound that the solver claims."""
    total, bound = cost.total, solver.bound
    # A lower bound above a feasible plan's cost disproves itself.
    if bound is not None and bound > total:
        raise WrongClaimError(f"claims the bound {bound}, above its plan's {total}")
    # Nothing to move, as for a single accelerator: the bound is tight, and 0 / 0 is a gap of 0.
    gap = None if bound is None else (total - bound) / total if total else 0.0
    fields = {name: getattr(problem, name) for name in ProblemFields.model_fields}
    return Plan(
        schema=schema_of(problem),
        network=NetworkRecord.of(network),
        layers=tuple(layer.name for layer in network.layers),
        parallelism=parallelism,
        layouts=layouts,
        cost=cost,
        solver=solver.vouched(gap=gap),
        **fields,
    )


def plan_of(
    plan: Plan,
    parallelism: Sequence[Sequence[str]],
    *,
    bound: float,
    considered: int,
) -> Plan:
    """Return another plan of the same problem, one of the ``considered`` best.

    Parameters
    ----------
    parallelism : (levels, layers)
        The plan's choices.
    bound
        The cost of the best plan: a lower bound on all plans.
    considered
        The number of best plans that were compared.

    Raises
    ------
    WrongClaimError
        If this plan costs less than the bound.
    """
    rows = columns_of(parallelism, plan.words)
    record = unproved(bound, SolverSettings(simulate=considered))
    priced = priced_plan(Instance.of_plan(plan), rows, record)
    # At the bound it is an optimum, too, only not the canonical one.
    if priced.cost.total > bound:
        return priced
    solver = priced.solver.model_copy(update={"status": "optimal"})
    return priced.model_copy(update={"solver": solver})


def plan_of_configuration(network: Network, problem: Problem, configuration: Configuration) -> Plan:
    """Return the plan of a configuration: its choices, stored layouts and training settings.

    Parameters
    ----------
    problem
        Its batch, accelerators and objective are used; its choices are replaced.

    Raises
    ------
    HyparError
        If the network has no such configuration on these accelerators, naming the degree; or if it
        does not keep to the problem's constraints.
    """
    if configuration.pp > 1:
        from hypar_opt.instance.staged import StagedPlan

        return plan_of_stages(StagedPlan.of_configuration(network, problem, configuration))
    check(configuration, network, problem)
    training = training_of(configuration, network, problem.hierarchy, problem.training)
    problem = problem.model_copy(update={"training": training})
    instance = Instance(network, pinned(network, problem, configuration))
    workload = instance.executed_workload
    nodes = rows_of(configuration, network, workload, problem.hierarchy)
    rows = [row[workload.shared :] for row in nodes]
    instance.constraints.check(rows, nodes)
    tensors = [{node: row[node] for node in workload.tensor_writers} for row in nodes]
    return priced_plan(instance, rows, unproved(), tensors=tensors)


def plan_of_stages(staged: StagedPlan, solver: SolverRecord | None = None) -> Plan:
    """Return the plan of stages, priced by its stages.

    Parameters
    ----------
    solver
        The record of the search; None if nothing is proved.
    """
    described = staged.network, staged.problem, staged.parallelism, staged.layouts
    return _plan(*described, staged.cost, solver or unproved())


def plans_of_stages(plan: Plan) -> tuple[Plan, ...]:
    """Return each stage of a plan, as a plan on its part of the array."""
    from hypar_opt.instance.staged import StagedPlan

    return tuple(
        priced_plan(stage.instance, stage.rows, unproved(), tensors=stage.tensors)
        for stage in StagedPlan.of_plan(plan).plans
    )
