"""Searches for configurations: over all numbers of stages, and by tp and pp separately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from hypar_opt.integers import divisors
from hypar_opt.plan.configuration import Configuration
from hypar_opt.search.degrees import Allowed, Candidate, Searched, search_degrees
from hypar_opt.search.result import Progress, parts_of

if TYPE_CHECKING:
    from hypar_opt.deadline import Deadline
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.network import Network


class SearchedCells(NamedTuple):
    """The answers of the searches by tp and pp.

    Parameters
    ----------
    searched
        The fastest of each, and how many were searched in all.
    unfit
        If none fits, the one that needs the least memory.
    unknown
        The degrees ``(tp, pp)`` for which the time limit left no answer.
    """

    searched: Searched
    unfit: tuple[Candidate, ...]
    unknown: tuple[tuple[int, int], ...]


def fastest_configurations(
    network: Network,
    problem: Problem,
    counts: list[int] | None,
    *,
    count: int,
    fixed: Mapping[str, Any],
    allowed: Allowed,
    by_events: bool = True,
    deadline: Deadline,
    progress: Progress,
) -> Searched:
    """Return the configurations that fit and take the least time, with stages and without.

    Parameters
    ----------
    counts
        The number of stages, 1 for those without; None for any.
    count
        How many configurations.
    fixed, allowed
        As for `hypar_opt.search.degrees.search_degrees`; with stages also ``interleave``: with
        several chunks there are none without.
    by_events
        Whether steps without stages of accelerators out of lockstep are simulated, one by one.

    Raises
    ------
    NotInLockstepError
        If they are not, and one of these may be the fastest.
    """
    searched = Searched((), 0, 0, 0, ())
    limits: dict[str, Any] = {
        "count": count,
        "allowed": allowed,
        "deadline": deadline,
        "progress": progress,
    }
    if counts in (None, [1]) and fixed.get("interleave", 1) == 1:
        without = {name: value for name, value in fixed.items() if name != "interleave"}
        searched = search_degrees(network, problem, fixed=without, by_events=by_events, **limits)
    if counts == [1]:
        return searched
    from hypar_opt.search.staged_degrees import search_stages

    cutoff = searched.best[-1].seconds if len(searched.best) == count else inf
    limits |= {"fixed": fixed, "cutoff": cutoff}
    return _merged_answers(
        [searched, search_stages(network, problem, counts=counts, **limits)], count
    )


def fastest_of_degrees(
    network: Network,
    problem: Problem,
    counts: list[int] | None,
    *,
    fixed: Mapping[str, Any],
    allowed: Allowed,
    deadline: Deadline,
    progress: Progress,
) -> SearchedCells:
    """Return the fastest configuration that fits, of each `tp` and `pp` that there are.

    Parameters
    ----------
    deadline
        Of all searches: each has an equal part of the time that is left. The others are those of
        `fastest_configurations`.

    Raises
    ------
    HyparError
        If the array has no parts for a number of stages.
    """
    from hypar_opt.search.staged_degrees import offered_counts

    assert problem.array is not None
    if counts is None:
        counts = [1, *offered_counts(network, problem.array.description)]
    cells = [(tp, pp) for pp in counts for tp in divisors(problem.accelerators // pp)]
    answers: dict[tuple[int, int], Searched] = {}
    for number, ((tp, pp), part) in enumerate(parts_of(progress, cells)):

        def with_tp(one: Configuration, tp: int = tp) -> bool:
            return one.tp == tp and allowed(one)

        answers[tp, pp] = fastest_configurations(
            network,
            problem,
            [pp],
            count=1,
            fixed=fixed,
            allowed=with_tp,
            deadline=deadline.part(1 / (len(cells) - number)),
            progress=part,
        )
    return SearchedCells(
        _merged_answers([*answers.values()], len(cells)),
        tuple(one.smallest[0] for one in answers.values() if one.smallest and one.complete),
        tuple(cell for cell, one in answers.items() if not (one.best or one.complete)),
    )


def _merged_answers(answers: Sequence[Searched], count: int) -> Searched:
    """Merge the answers of several searches: the fastest, or the one that needs least memory."""
    best = [evaluated for answer in answers for evaluated in answer.best]
    candidates = [candidate for answer in answers for candidate in answer.smallest]
    fitting = [answer.fitting for answer in answers if answer.fitting is not None]
    return Searched(
        tuple(sorted(best, key=attrgetter("seconds", "memory"))[:count]),
        sum(answer.considered for answer in answers),
        sum(fitting) if len(fitting) == len(answers) else None,
        sum(answer.simulated for answer in answers),
        () if best else tuple(sorted(candidates, key=attrgetter("memory"))[:3]),
        all(answer.complete for answer in answers),
    )
