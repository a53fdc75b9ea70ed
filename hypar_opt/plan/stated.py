"""A network and its problem as a caller states them: with tokens, settings and degrees."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError, argument
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import ProblemArguments, problem_of
from hypar_opt.plan.megatron import gathered_again
from hypar_opt.plan.settings import with_settings
from hypar_opt.plan.stated_degrees import pinned, stated_degrees
from hypar_opt.workload.recomputation import with_tied

if TYPE_CHECKING:
    from hypar_opt.plan.configuration import Configuration
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network


OF_NETWORK = ("tokens", "settings", "degrees")
"""Arguments that change the network, or depend on it."""


def stated_problem(
    network: str | Path | Network, arguments: ProblemArguments, search: str | None = None
) -> tuple[Network, Problem]:
    """Return a network with the arguments applied to it, and the problem on it.

    Parameters
    ----------
    search
        The stated search; ``levelwise`` needs a reading that charges each level separately.

    Raises
    ------
    HyparError
        Naming the wrong argument, and what would be right.
    """
    fields: Any = dict(arguments)
    tokens, settings, degrees = (fields.pop(name, None) for name in OF_NETWORK)
    described, fields = with_settings(find_network(network, tokens), fields, settings)
    problem = problem_of(described, **fields)
    if degrees is not None:
        choices = None if fields.get("choices") is None else problem.choices
        problem = _pinned_to_degrees(described, problem, degrees, choices)
        if fields.get("reading") is not None:
            problem = problem.model_copy(update={"reading": fields["reading"]})
    if search == "levelwise" and problem.joins_levels and fields.get("reading") is None:
        problem = problem.model_copy(update={"reading": "executed"})
    training = problem.training
    shard = with_tied(described, training.shard)
    if shard != training.shard:
        training = training.model_copy(update={"shard": shard})
        problem = problem.model_copy(update={"training": training})
    return described, problem


def _pinned_to_degrees(
    network: Network, problem: Problem, stated: str, choices: Sequence[str] | None
) -> Problem:
    """Return a problem whose layers are pinned to the choices of degrees.

    Parameters
    ----------
    choices
        The choices that a caller states; None for those that the degrees need.
    """
    configuration = stated_degrees(network, problem, stated, choices)
    if configuration.pp > 1:
        raise HyparError(f"{argument('degrees')}: only solve supports pp, got {stated!r}")
    return gathered_as(configuration, network, pinned(network, problem, configuration))


def gathered_as(configuration: Configuration, network: Network, problem: Problem) -> Problem:
    """Return a problem whose ``gather`` is that of a configuration, unless it is stated.

    Where memory matters, Megatron-LM keeps a shard of tensors that tensor parallelism gathers.
    """
    training = problem.training
    splits = configuration.tp > 1
    if splits and training.gather is None and problem.device_memory is not None:
        training = training.model_copy(update={"gather": gathered_again(network)})
        problem = problem.model_copy(update={"training": training})
    return problem
