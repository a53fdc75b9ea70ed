"""What-if analysis: the regret of every alternative choice, and the k best plans."""

from __future__ import annotations

import glob
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from math import factorial, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hypar_opt.checked import checked
from hypar_opt.costs.base import check_additive
from hypar_opt.deadline import Deadline
from hypar_opt.errors import HyparError, RefusedError, argument, worded
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pins import Pin
from hypar_opt.plan.arguments import ProblemArguments
from hypar_opt.plan.costs import json_number
from hypar_opt.plan.plan import Plan, words_of
from hypar_opt.results import Columns, Results
from hypar_opt.search.check_result import check_bound
from hypar_opt.search.cost_to_go import (
    Completion,
    completion_along_chain,
    completion_by_elimination,
)
from hypar_opt.search.k_best import in_order_of_cost
from hypar_opt.search.level_order import equal_neighbours, levels_permute
from hypar_opt.search.memory.modes import bytes_held
from hypar_opt.search.result import Progress, silent
from hypar_opt.search.solver_settings import SolveArguments, options_of
from hypar_opt.studies.alternatives.marginals import least_with_choices
from hypar_opt.studies.alternatives.solved_again import extra_of_pin, extra_within_memory
from hypar_opt.studies.sources import planned
from hypar_opt.units import format_cost

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.workload.network import Network

MAX_STEPS = 2**26
"""Upper bound on the work of listing the best plans, in steps of about 50 ns."""
CHAIN_STEPS, PAIR_STEPS, PLAN_STEPS = 4, 64, 64
"""Steps per state and level of a chain, per pair of states on a graph, per plan and layer."""

MAX_COUNTED = 1024
"""The maximum number of plans whose memory is counted."""


@dataclass(frozen=True)
class Regret:
    """The extra cost of an alternative choice, all others re-optimised."""

    layer: str
    level: int
    choice: str
    extra: int | float | None
    """In the cost's unit. Negative if a levelwise search, which is greedy, does better when it is
    pinned to this choice; None where the choice is infeasible."""


@dataclass(frozen=True, repr=False)
class Regrets(Results[Regret]):
    """The regret of every alternative choice of a plan's layers, H1 first."""

    row_columns = Columns.of(Regret)

    plan: Plan
    """The plan that the choices are compared with."""
    qualifier: str = ""
    """The training settings that the compared plans have in common, as text."""

    def __repr__(self) -> str:
        extras = [regret.extra for regret in self if regret.extra is not None]
        cheapest = f", from {format_cost(min(extras), self.plan.cost.unit)}" if extras else ""
        return f"<Regrets of {self.plan.network.name}: {len(self):,} other choices{cheapest}>"


@checked
def regrets(
    plan: Plan | str | Path | Network,
    progress: Progress = silent,
    *,
    parameters: bool = False,
    deadline: Deadline | None = None,
    **arguments: Unpack[ProblemArguments],
) -> Regrets:
    """Return the regret of each other choice of each layer at each level, H1 first.

    For a joint optimum, one elimination gives all regrets, whichever exact solver found it.
    Otherwise each takes one solve with that choice pinned, by the plan's solver and search; where
    memory excludes the fastest plan, also of how layers train, as far as it was left open.

    Parameters
    ----------
    plan
        A plan, the path of a plan file, or a network, which is solved first.
    parameters
        Also pass the solver parameters recorded in the plan file.
    deadline
        When to end; unless given the plan's own time limit from this call, for all together.
    **arguments
        The problem of a network, as for `hypar_opt.solve`.

    Raises
    ------
    NoAnswerError
        If a limit stops one of the solves before its optimum.
    """
    plan, _ = planned(plan, arguments, overlap="none")
    options = options_of(plan, parameters=parameters)
    deadline = deadline or Deadline.after(options.time_limit)
    instance = Instance.of_plan(plan)
    check_additive(instance.cost)
    words = _words_of_reading(plan, instance)
    alternatives = [
        (level, layer, choice)
        for level, row in enumerate(plan.parallelism, 1)
        for layer, planned, choices in zip(plan.layers, row, words, strict=True)
        for choice in choices
        if choice != planned
    ]
    regrets = _joint_regrets(plan, instance, deadline) if plan.solver.scope == "joint" else None
    fitting = regrets is None and _is_within_device(plan, instance)
    results = []
    for done, (level, layer, choice) in enumerate(alternatives):
        if regrets is None:
            progress(done, len(alternatives))
            pin = Pin(glob.escape(layer), level, choice)
            if fitting:
                extra = extra_within_memory(plan, pin, deadline)
            else:
                extra = extra_of_pin(plan, instance, pin, options, deadline)
        else:
            extra = regrets[level, layer, choice]
        results.append(Regret(layer, level, choice, extra))
    progress(len(alternatives), len(alternatives))
    training = ", however layers train within the memory" if fitting else plan.training.qualifier
    return Regrets(tuple(results), plan, training)


def _words_of_reading(plan: Plan, instance: Instance) -> list[list[str]]:
    """Return the words of each layer's choices, without `whole`, which only runs have."""
    workload = instance.workload
    forbidden = workload.forbidden[workload.shared :]
    return [
        [word for word, lacks in zip(words, row, strict=True) if word and not lacks]
        for words, row in zip(plan.words, forbidden.tolist(), strict=True)
    ]


def _joint_regrets(
    plan: Plan, instance: Instance, deadline: Deadline
) -> dict[tuple[int, str, str], int | float | None] | None:
    """Return the regret of every choice of a joint optimum, by level, layer and choice.

    None if memory couples the layers or excludes a better plan, or a table is too large.
    """
    limited = instance.problem.device_memory is not None
    if plan.solver.status != "optimal" or instance.constraints.couple_layers or not plan.levels:
        return None
    if limited and plan.constraints.memory is not None:
        return None
    try:
        by_layer = least_with_choices(instance, deadline)[instance.workload.shared :]
    except RefusedError:
        return None
    costs_of_plans = (cost for layer in by_layer for level in layer for cost in level)
    optimum = min(cost for cost in costs_of_plans if cost is not None)
    least_cost, bound = Fraction(optimum, instance.cost.resolution), plan.solver.bound
    if limited and bound is not None and least_cost < Fraction(bound):
        return None
    check_bound(plan, least_cost)
    total = Fraction(plan.cost.total)
    extras: dict[tuple[int, str, str], int | float | None] = {}
    for layer, words, levels in zip(plan.layers, plan.words, by_layer, strict=True):
        for level, costs in enumerate(levels, 1):
            for choice, cost in zip(words, costs, strict=True):
                if choice is None:
                    continue
                extras[level, layer, choice] = None
                if cost is not None:
                    extra = Fraction(cost, instance.cost.resolution) - total
                    extras[level, layer, choice] = json_number(extra)
    return extras


@dataclass(frozen=True)
class Alternative:
    """One of the best plans; it stands for ``count`` plans that differ in the order of levels."""

    parallelism: tuple[tuple[str, ...], ...]
    total: int | float
    count: int

    def __repr__(self) -> str:
        return f"<Alternative: total {self.total:,}, plans {self.count:,}>"


@dataclass(frozen=True, repr=False)
class BestPlans(Results[Alternative]):
    """The cheapest plans of the problem of ``plan``, in order of cost."""

    plan: Plan

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each plan, layer and level: the rows of a data frame."""
        return [
            {
                "rank": rank,
                "total": plans.total,
                "plans": plans.count,
                "layer": layer,
                "level": level,
                "choice": str(choice),
            }
            for rank, plans in enumerate(self, 1)
            for level, row in enumerate(plans.parallelism, 1)
            for layer, choice in zip(self.plan.layers, row, strict=True)
        ]

    def __repr__(self) -> str:
        best = format_cost(self[0].total, self.plan.cost.unit)
        return f"<BestPlans of {self.plan.network.name}: {len(self):,}, from {best}>"


@checked
def best_plans(
    plan: Plan | str | Path | Network,
    number: int,
    deadline: Deadline | None = None,
    **arguments: Unpack[SolveArguments],
) -> BestPlans:
    """Return the cheapest plans of a plan's problem over all levels jointly, in order.

    Among equals, the first is the one that every exact solver returns. If permuting levels
    changes nothing, plans that differ only by that are one row, the first of them.

    Parameters
    ----------
    plan
        A plan, the path of a plan file, or a network, which is solved first.
    deadline
        When to end; unless given the plan's own time limit from this call.
    **arguments
        The arguments of `hypar_opt.solve`, for a network.

    Raises
    ------
    NoAnswerError
        If the time limit comes first.
    HyparError
        If the number is not 1 or more.
    RefusedError
        If there are too many states or plans, or a memory limit.
    """
    if number < 1:
        raise HyparError(f"{worded('number', '--best')} should be 1 or more, got {number}")
    plan, _ = planned(plan, arguments, overlap="none")
    deadline = deadline or Deadline.after(plan.solver.options.time_limit)
    instance = Instance.of_plan(plan)
    problem, workload, cost = instance.problem, instance.workload, instance.cost
    check_additive(cost)
    if instance.constraints.couple_layers:
        # A memory limit is a sum over layers, so the state alone does not give a completion's cost.
        memory = argument("constraints.memory")
        raise RefusedError(
            f"the best plans do not support {memory}, which limits all layers together"
        )
    interchangeable = levels_permute(problem) and all(equal_neighbours(problem))
    completion = _completion(number, instance, deadline)
    limited = _is_within_device(plan, instance)
    in_order = in_order_of_cost(
        completion,
        workload.shared,
        MAX_STEPS if limited else number,
        interchangeable=interchangeable,
    )
    alternatives: list[Alternative] = []
    for counted, (total, columns) in enumerate(islice(in_order, MAX_STEPS)):  # more are refused
        if len(alternatives) == number:
            break
        deadline.check()
        rows = list(zip(*(completion.states[column] for column in columns), strict=True))
        if limited and not _fits(instance, rows):
            if counted == MAX_COUNTED:
                fit = len(alternatives)
                remedy = f"ask for {fit:,}" if fit else f"state more {argument('micro_batches')}"
                raise RefusedError(
                    f"of the {MAX_COUNTED:,} best plans with the same training settings, {fit:,}"
                    f" fit the memory of an accelerator; {remedy}"
                )
            continue
        # Multinomial: all orders of the levels, divided by swaps of levels of equal choices.
        repeats = prod(map(factorial, Counter(rows).values()))
        alternatives.append(
            Alternative(
                parallelism=words_of(rows, plan.words),
                total=json_number(Fraction(total, cost.resolution)),
                count=factorial(len(rows)) // repeats if interchangeable else 1,
            )
        )
    check_bound(plan, alternatives[0].total)
    return BestPlans(tuple(alternatives), plan)


def _is_within_device(plan: Plan, instance: Instance) -> bool:
    """Return whether to list only plans that fit an accelerator's memory, as the plan does."""
    if instance.problem.device_memory is None:
        return False
    return _fits(instance, plan.assignments())


def _fits(instance: Instance, rows: Rows) -> bool:
    return all(load <= capacity for load, capacity, _ in bytes_held(instance, rows))


def _completion(number: int, instance: Instance, deadline: Deadline) -> Completion:
    """Return the bounds that complete partial plans; refuse if listing takes too many steps."""
    levels = instance.problem.levels
    over = f"{levels} level{'s' if levels > 1 else ''}"
    completion = None
    if instance.workload.is_chain:
        _check_size(number, instance, over, CHAIN_STEPS * levels)
        completion = completion_along_chain(instance, deadline)
    if completion is None:
        _check_size(number, instance, over, PAIR_STEPS * len(instance.workload.choices) ** levels)
        try:
            completion = completion_by_elimination(instance, deadline)
        except RefusedError as error:  # by the graph's width
            reason = error.message.split(";")[0]
            raise RefusedError(
                f"listing the best plans over {over} {reason}; use fewer choices or levels"
            ) from None
    return completion


def _check_size(number: int, instance: Instance, over: str, steps: int) -> None:
    """Refuse a request that would take more than a few seconds before starting it.

    The least costs take a number of steps for each state of a node; the message says which levels
    plans are ``over``.
    """
    workload, levels = instance.workload, instance.problem.levels
    nodes, states = len(workload.nodes), len(instance.workload.choices) ** levels
    plans = min(number, states ** len(workload.layers))
    # Each plan ranks the states of every layer.
    if nodes * (states * steps + plans * (states + PLAN_STEPS)) <= MAX_STEPS:
        return
    upper_bound = (MAX_STEPS // nodes - states * steps) // (states + PLAN_STEPS)
    remedy = (
        f"ask for {upper_bound:,} or fewer" if upper_bound > 0 else "use fewer choices or levels"
    )
    raise RefusedError(f"the {number:,} best plans over {over} take too many steps; {remedy}")
