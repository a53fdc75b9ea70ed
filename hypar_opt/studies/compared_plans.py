"""The plans of a comparison: how each is found, and for which problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from hypar_opt.plan.arguments import part_words
from hypar_opt.plan.strategies import (
    SPATIAL,
    STRATEGIES,
    all_degrees,
    degrees,
    expert_parallelism,
    strategy_pins,
)
from hypar_opt.search.shares import compute_share, equal_shares
from hypar_opt.solvers.baselines import BASELINES
from hypar_opt.studies.accpar import with_accpar_types
from hypar_opt.studies.configurations import has_configurations
from hypar_opt.workload.operators.axes import ROWS
from hypar_opt.workload.parallelism import CHOICES, choices_below_h1

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network

PLANS: dict[str, tuple[str, str, str | None]] = {
    # The baselines search nothing: their choices depend on no objective.
    "model": ("model", "levelwise", "bytes"),
    "data": ("data", "levelwise", "bytes"),
    "trick": ("trick", "levelwise", "bytes"),
    "hypar": ("dp", "levelwise", None),
    "joint": ("dp", "joint", None),
    "time": ("dp", "joint", "time"),
    "three": ("dp", "joint", None),
}
"""Each plan's solver, search and cost; None for the problem's own cost.

Networks with attention also have Megatron-LM's tensor parallelism of each degree, ``megatron-1``,
``megatron-2``, ..., otherwise as in ``three``; those with experts ``expert-2``, ...; with tokens
among the choices also ``context-2``, ``ulysses-2``, ...; and those with configurations the best.
"""

CONFIGURED = "configured"
"""The best configuration, on an array that has them: as it trains within memory in the least time.
No solver finds it, but `hypar_opt.studies.configurations.best_configuration`."""

STAGED = "stages"
"""The plan of least time in pipeline stages, where they are asked for."""

CONFIGURED_STAGES = "configured-stages"
"""The best configuration of those stages, as `CONFIGURED` is that without."""

TOKEN_STRATEGIES = ("context", "ulysses")
"""The strategies that need the choice ``tokens``."""

ACCPAR = "accpar"

GROUP_PLANS = dict.fromkeys(("equal", "ratio", ACCPAR), ("dp", "joint", "time"))
"""On an array of groups of accelerators, beside `PLANS`: the plans of least time in which H1 splits
every layer, in equal parts, and in proportion to what the groups compute; and of two groups of as
many accelerators the types that AccPar's order chooses (`hypar_opt.studies.accpar`), at the one
ratio that is best for them."""


class ComparedPlan(NamedTuple):
    """How a plan is found, and for which problem."""

    solver: str
    search: str
    problem: Problem
    in_order: bool = False
    """Whether the plan has the types that AccPar's order chooses for the problem."""

    def stated(self, network: Network) -> Problem:
        """Return the problem to solve: where types are AccPar's, with these pinned.

        Raises
        ------
        HyparError
            As `with_accpar_types`.
        """
        return with_accpar_types(network, self.problem) if self.in_order else self.problem


def compared_plans(
    network: Network, problem: Problem, *, in_stages: bool = False
) -> dict[str, ComparedPlan]:
    """Return a network's plans by name, in order; that of least time is one on an array.

    Plans that are found exactly as an earlier one are left out.

    Parameters
    ----------
    in_stages
        Whether plans in stages are among them.
    """
    names = [name for name in PLANS if name != "time" or problem.array is not None]
    if problem.groups:
        of_two = problem.hierarchy.sizes[0] == 2
        names.extend(name for name in GROUP_PLANS if of_two or name != ACCPAR)
    counts = degrees(network, problem.hierarchy.sizes)
    names += [f"megatron-{degree}" for degree in counts]
    strategies = [*TOKEN_STRATEGIES] if "tokens" in problem.choices else []
    strategies += ["expert"] if expert_parallelism(network) else []
    names += [f"{strategy}-{degree}" for strategy in strategies for degree in counts[1:]]
    if ROWS.word in problem.choices:
        names += [f"{SPATIAL}-{n}" for n in all_degrees(problem.hierarchy.sizes)[1:]]
    if has_configurations(network, _problem_of(CONFIGURED, network, problem)):
        names += [CONFIGURED, *[CONFIGURED_STAGES] * in_stages]
    names += [STAGED] * in_stages
    plans: dict[str, ComparedPlan] = {}
    for name in names:
        solver, search, _ = _solve_options(name, problem)
        plan = ComparedPlan(
            solver, search, _problem_of(name, network, problem), in_order=name == ACCPAR
        )
        if plan not in plans.values():
            plans[name] = plan
    return plans


def strategy_of(name: str) -> tuple[str, int] | None:
    """Return the strategy and the degree of a plan, ``megatron-8``; None for another plan."""
    strategy, _, degree = name.partition("-")
    return (strategy, int(degree)) if strategy in STRATEGIES else None


def _solve_options(name: str, problem: Problem) -> tuple[str, str, str | None]:
    """Return a plan's solver, search and cost."""
    if strategy_of(name) is None:
        of_time = (CONFIGURED, CONFIGURED_STAGES, STAGED)
        return (PLANS | GROUP_PLANS | {n: (n, "joint", "time") for n in of_time})[name]
    # Layers without pins have the same optimum level by level, with far fewer states.
    separable = problem.cost == "bytes" and not problem.joins_levels
    levelwise = separable and problem.constraints.memory is None
    return "dp", "levelwise" if levelwise else "joint", None


def _problem_of(name: str, network: Network, problem: Problem) -> Problem:
    """Return the problem that a plan is found for."""
    cost = _solve_options(name, problem)[2]
    if problem.device_memory is not None and name in BASELINES.values():
        cost = None  # how a step trains within the memory depends on the objective
    update: dict[str, Any] = {} if cost is None else {"cost": cost}
    if name in BASELINES.values():
        # A baseline is a reference, also where it cannot run.
        update["constraints"] = problem.constraints.model_copy(update={"runnable": False})
    if name == "hypar" and problem.joins_levels:
        update["reading"] = "executed"  # which charges each level by itself, as Algorithm 2 needs
    strategy = strategy_of(name)
    if name in (CONFIGURED, CONFIGURED_STAGES, STAGED):
        update["reading"] = problem.run_reading
    if strategy is not None or name == "three":
        splits_maps = strategy is not None and strategy[0] in (*TOKEN_STRATEGIES, SPATIAL)
        words = problem.choices if splits_maps else CHOICES
        update |= {"choices": words, "reading": problem.run_reading}
    if problem.groups:
        update |= _shared_out(name, problem, update)
    if strategy is not None:
        constraints = problem.constraints
        pins = (*constraints.fix, *strategy_pins(network, problem.hierarchy.sizes, *strategy))
        update["constraints"] = constraints.model_copy(update={"fix": pins})
    return problem.model_copy(update=update)


def _shared_out(name: str, problem: Problem, update: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan's choices at H1 between groups of accelerators, and the groups' shares."""
    choices = choices_below_h1(update.get("choices", problem.choices))
    if name in GROUP_PLANS:
        shares = {
            "equal": equal_shares(problem),
            "ratio": compute_share(problem),
            ACCPAR: problem.share,
        }
        return {"choices": choices, "share": shares[name]}
    # Bytes are least with all on one side: they keep to equal parts. Level by level, too, H1 has no
    # charge of what one group computes.
    timed = (
        update.get("cost", problem.cost) == "time" and _solve_options(name, problem)[1] == "joint"
    )
    if not timed or problem.array is None:
        return {"choices": choices}
    return {"choices": (*choices, *part_words(problem.array.description))}
