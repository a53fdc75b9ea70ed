"""The best configurations of a network on an array: seconds and memory of many, and exact search."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.search.result import Progress, silent

if TYPE_CHECKING:
    from hypar_opt.plan.configuration import Configuration
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network

Allowed = Callable[["Configuration"], bool]


class Evaluated(NamedTuple):
    """A configuration, and what a training step of it takes.

    Parameters
    ----------
    seconds
        Of a step of the whole batch, as `hypar_opt.simulate` says them.
    memory
        The bytes of the fullest accelerator, with what is reserved.
    exposed
        The share of the step in which accelerators wait for exchanges.
    """

    configuration: Configuration
    seconds: float
    memory: int
    exposed: float


class Searched(NamedTuple):
    """The answer of a search over configurations.

    Parameters
    ----------
    best
        Those that fit and take the least time, the fastest first.
    considered, fitting, simulated
        How many configurations there are, fit the memory, and were simulated: the others are
        proved to be slower than the last of ``best``.
    least
        The three that need the least memory.
    complete
        Whether all were searched: a deadline may come first.
    """

    best: tuple[Evaluated, ...]
    considered: int
    fitting: int
    simulated: int
    least: tuple[Evaluated, ...]
    complete: bool = True


def search_degrees(
    network: Network,
    problem: Problem,
    *,
    count: int = 10,
    allowed: Allowed | None = None,
    early_stop: bool = True,
    deadline: Deadline = NEVER,
    progress: Progress = silent,
) -> Searched:
    """Return the configurations that fit an array's memory and take the least time, exactly.

    Parameters
    ----------
    problem
        With an array; its batch, optimizer, and memory, if stated, are used.
    count
        How many.
    allowed
        Which configurations are considered; None for all.
    early_stop
        Whether blocks that run again stop at the last tensor that a backward pass reads.
    """
    raise NotImplementedError


def all_that_fit(
    network: Network,
    problem: Problem,
    *,
    allowed: Allowed | None = None,
    early_stop: bool = True,
    deadline: Deadline = NEVER,
    progress: Progress = silent,
) -> list[Evaluated]:
    """Return all configurations that fit an array's memory, parameters as for `search_degrees`."""
    raise NotImplementedError
