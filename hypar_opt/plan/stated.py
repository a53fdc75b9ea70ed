"""A network and the problem on it that a caller states: its sequences, other values, degrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt.models import find_network
from hypar_opt.plan.arguments import ProblemArguments, problem_of
from hypar_opt.plan.megatron import gathered_again
from hypar_opt.plan.settings import with_settings
from hypar_opt.plan.strategies import pins_of_degrees
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.recomputation import with_tied

if TYPE_CHECKING:
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network


OF_NETWORK = ("tokens", "settings", "degrees")
"""Arguments that concern the network, or need it."""


def stated_problem(
    network: str | Path | Network, arguments: ProblemArguments, search: str | None = None
) -> tuple[Network, Problem]:
    """Return a network as the arguments have it, and the problem on it.

    Parameters
    ----------
    search
        The search that is asked for; ``levelwise`` takes a reading that charges each level alone.

    Raises
    ------
    HyparError
        Naming the wrong argument, and what would be right.
    """
    own: Any = dict(arguments)
    tokens, settings, degrees = (own.pop(name, None) for name in OF_NETWORK)
    if degrees is not None and own.get("choices") is None:
        own["choices"] = CHOICES  # the paper's, elsewhere the default, have no output parallelism
    described, own = with_settings(find_network(network, tokens), own, settings)
    problem = problem_of(described, **own)
    if search == "levelwise" and problem.joins_levels and own.get("reading") is None:
        problem = problem.model_copy(update={"reading": "executed"})
    training = problem.training
    shard = with_tied(described, training.shard)
    if shard != training.shard:
        training = training.model_copy(update={"shard": shard})
        problem = problem.model_copy(update={"training": training})
    if degrees is None:
        return described, problem
    constraints = problem.constraints
    pins = pins_of_degrees(described, problem.hierarchy.sizes, degrees, problem.choices)
    pinned = constraints.model_copy(update={"fix": (*constraints.fix, *pins)})
    problem = problem.model_copy(update={"constraints": pinned})
    # Megatron-LM keeps a shard of what tensor parallelism gathers, where memory matters.
    splits = any("=output" in pin for pin in pins)
    if splits and problem.training.gather is None and problem.device_memory is not None:
        again = {"gather": gathered_again(described)}
        training = problem.training.model_copy(update=again)
        problem = problem.model_copy(update={"training": training})
    return described, problem
