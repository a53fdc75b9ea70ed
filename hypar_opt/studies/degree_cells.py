"""The fastest configuration of each tensor parallelism in each number of stages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from hypar_opt.integers import divisors
from hypar_opt.search.degrees import Candidate, Searched, together
from hypar_opt.search.result import Progress, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypar_opt.deadline import Deadline
    from hypar_opt.plan.configuration import Configuration
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network

    Allowed = Callable[[Configuration], bool]


class Search(Protocol):
    """Searches the fastest configurations of some numbers of stages."""

    def __call__(
        self,
        counts: list[int],
        count: int,
        allowed: Allowed,
        deadline: Deadline,
        progress: Progress,
    ) -> Searched:
        """Return the answer: so many of those that are allowed."""


class DegreeCells(NamedTuple):
    """The answer of all searches, and degrees without a configuration that fits.

    Parameters
    ----------
    searched
        The fastest of each, and how many were searched in all.
    unfit
        Where none fits, what needs the least memory.
    unknown
        The degrees, as ``(tp, pp)``, of which none is known within a time limit.
    """

    searched: Searched
    unfit: tuple[Candidate, ...]
    unknown: tuple[tuple[int, int], ...]


def cells_of_degrees(
    network: Network,
    problem: Problem,
    counts: list[int] | None,
    search: Search,
    allowed: Allowed,
    deadline: Deadline,
    progress: Progress,
) -> DegreeCells:
    """Return the fastest configuration that fits, of each `tp` and `pp` that there are.

    Parameters
    ----------
    counts
        The numbers of stages that there may be; None for any number, 1 among them.
    deadline
        Of all searches: each has an equal part of the time that is left.

    Raises
    ------
    HyparError
        If the array has no parts for a number of stages.
    """
    from hypar_opt.search.staged_degrees import offered_counts

    stages = [
        *([1] if counts is None or 1 in counts else []),
        *offered_counts(network, problem, counts),
    ]
    cells = [(tp, pp) for pp in stages for tp in divisors(problem.accelerators // pp)]
    answers: dict[tuple[int, int], Searched] = {}
    for number, ((tp, pp), own) in enumerate(parts_of(progress, cells)):

        def with_tp(one: Configuration, tp: int = tp) -> bool:
            return one.tp == tp and allowed(one)

        until = deadline.part(1 / (len(cells) - number))
        answers[tp, pp] = search([pp], 1, with_tp, until, own)
    return DegreeCells(
        together([*answers.values()], len(cells)),
        tuple(own.least[0] for own in answers.values() if own.least and own.complete),
        tuple(cell for cell, own in answers.items() if not own.best and not own.complete),
    )
