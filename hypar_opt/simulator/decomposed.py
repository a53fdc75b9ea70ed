"""Exchanges of the program that are divided to overlap with adjacent computations.

The program waits for its exchanges. Two kinds may overlap if the adjacent computation is divided,
too: the gather of keys and values in context parallelism, as attention starts with what has
arrived; and gathers and scatters of tensor parallelism, with the products that read or write them.

Source: S. Wang et al., "Overlap communication with dependent computation via decomposition in
large deep learning models", ASPLOS 2023; H. Liu, M. Zaharia, P. Abbeel, "Ring attention with
blockwise transformers for near-infinite context", ICLR 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate, pairwise, takewhile
from operator import mul
from typing import NamedTuple

from hypar_opt.sharding.conversions import StepKind
from hypar_opt.simulator.tasks import (
    FIRST_BRANCH,
    FOREGROUND,
    ComputeTask,
    Dependencies,
    ExchangeKind,
    ExchangeTask,
    Task,
    changed,
)


class Divided(NamedTuple):
    """The exchanges that overlap with adjacent computations.

    Parameters
    ----------
    hidden
        The fraction of an exchange that overlaps with the product that reads or writes it.
    products
        The layers with products of weights.
    rings
        The layers of attention, each with a level that splits its tokens.
    parts
        Of each level.
    """

    hidden: float
    products: Collection[str]
    rings: Collection[tuple[str, int]]
    parts: Sequence[int]


def divided(tasks: Sequence[Task], into: Divided) -> tuple[Task, ...]:
    """Return a step's tasks with some exchanges of the program overlapped with computations.

    These have a stream of their own, in which they run in their order.

    - Of an all-gather right in front of a product, and of a reduce-scatter right behind it, the
      hidden fraction begins as the product does; what follows waits for it. The rest is exchanged
      before, or after, as without. At 1 there is no rest.
    - Keys and values are gathered level by level. Attention begins with its own part, and waits for
      those of a level before it goes on with what this brings. Backward it ends with its own part;
      the errors of the others' are scattered, level by level, as they have been computed.

    Parameters
    ----------
    tasks
        Of any overlap but ``branches``: those of the foreground wait for the one before, and some
        for others of the queue.
    """
    return _Division(tasks, into).tasks()


class _Division:
    """The tasks so far, and the numbers that those of a queue have among them."""

    def __init__(self, tasks: Sequence[Task], into: Divided) -> None:
        self._old, self._into = tasks, into
        self._tasks: list[Task] = []
        self._number: dict[int, int] = {}
        self._last: Dependencies = ()  # of the foreground
        self._gates: Dependencies = ()  # that its next task waits for, too
        # The exchanges of each computation that is divided, in front of it and behind it.
        self._gathered: dict[int, Sequence[int]] = {}
        self._scattered: dict[int, Sequence[int]] = {}
        front = [n for n, task in enumerate(tasks) if task.stream == FOREGROUND]
        for place, n in enumerate(front):
            task = tasks[n]
            if isinstance(task, ComputeTask):
                gathers = self._is_beside(task, StepKind.ALL_GATHER)
                scatters = self._is_beside(task, StepKind.REDUCE_SCATTER)
                self._gathered[n] = [*takewhile(gathers, reversed(front[:place]))][::-1]
                self._scattered[n] = [*takewhile(scatters, front[place + 1 :])]

    def tasks(self) -> tuple[Task, ...]:
        """Return all tasks."""
        beside = {
            n
            for by_task in (self._gathered, self._scattered)
            for ns in by_task.values()
            for n in ns
        }
        for n, task in enumerate(self._old):
            if n in beside:
                continue
            gathered, scattered = (
                [
                    exchange
                    for m in numbers.get(n, ())
                    if isinstance(exchange := self._old[m], ExchangeTask)
                ]
                for numbers in (self._gathered, self._scattered)
            )
            if not isinstance(task, ComputeTask) or not (gathered or scattered):
                self._number[n] = self._add(task)
                continue
            # What waits for weights in front of a computation lets this wait as well.
            self._gates += self._queued(gathered)
            if task.layer in self._into.products:
                self._product(task, gathered, scattered)
            else:
                self._attention(task, gathered, scattered)
            self._gates += self._queued(scattered)
        return tuple(self._tasks)

    def _queued(self, tasks: Iterable[Task]) -> Dependencies:
        """Return what tasks of the foreground wait for beside those of the foreground."""
        numbers = (self._number[n] for task in tasks for n in task.after or () if n in self._number)
        return tuple(n for n in numbers if self._tasks[n].stream != FOREGROUND)

    def _is_beside(self, task: ComputeTask, step: StepKind) -> Callable[[int], bool]:
        """Return a predicate for exchanges that overlap with a computation."""
        hides = self._into.hidden > 0 and task.layer in self._into.products

        def is_beside(number: int) -> bool:
            beside = self._old[number]
            if not isinstance(beside, ExchangeTask) or beside.step is not step:
                return False
            moved = beside.kind is ExchangeKind.BOUNDARY and beside.layer == task.layer
            rings = all((task.layer, level) in self._into.rings for level in beside.levels)
            return hides or (moved and rings)

        return is_beside

    def _add(self, task: Task) -> int:
        """Add a task; one of the foreground after all that this has to wait for."""
        number = len(self._tasks)
        if task.stream == FOREGROUND:
            gates = (*self._gates, *self._queued([task]))
            task = changed(task, after=(*self._last, *gates) if gates else None)
            self._last, self._gates = (number,), ()
        self._tasks.append(task)
        return number

    def _add_beside(self, exchanges: Sequence[ExchangeTask], after: Dependencies) -> Dependencies:
        """Add exchanges beside the foreground; return what waits for all of them."""
        for exchange in exchanges:
            self._tasks.append(changed(exchange, stream=FIRST_BRANCH, after=after))
        return (len(self._tasks) - 1,) if exchanges else ()

    def _product(
        self,
        task: ComputeTask,
        gathered: Sequence[ExchangeTask],
        scattered: Sequence[ExchangeTask],
    ) -> None:
        hidden = self._into.hidden
        for exchange in gathered if hidden < 1 else ():
            self._add(_share(exchange, 1 - hidden))
        before = (*self._last, *self._gates)
        self._add(task)
        exchanges = [_share(exchange, hidden) for exchange in (*gathered, *scattered)]
        self._gates = self._add_beside(exchanges, before)
        for exchange in scattered if hidden < 1 else ():
            self._add(_share(exchange, 1 - hidden))

    def _attention(
        self,
        task: ComputeTask,
        gathered: Sequence[ExchangeTask],
        scattered: Sequence[ExchangeTask],
    ) -> None:
        exchanges = gathered or scattered
        levels = dict.fromkeys(exchange.levels for exchange in exchanges)
        stages = [
            [exchange for exchange in exchanges if exchange.levels == stage] for stage in levels
        ]
        counts = [self._into.parts[level] for (level,) in levels]
        if gathered:
            before = (*self._last, *self._gates)
            first, *rest = _pieces(task, counts)
            self._add(first)
            arrived = [self._add_beside(stage, before) for stage in stages]
            for piece, ended in zip(rest, arrived, strict=True):
                self._gates = ended
                self._add(piece)
        else:
            innermost, *rest = _pieces(task, counts[::-1])
            ended = ()
            for piece, stage in zip(reversed(rest), stages, strict=True):
                self._add(piece)
                ended = self._add_beside(stage, self._last)
            self._add(innermost)
            self._gates = ended


def _pieces(task: ComputeTask, counts: Sequence[int]) -> list[ComputeTask]:
    """Return a computation divided: its own part, and the additions of each level."""
    *present, total = accumulate(counts, mul, initial=1)
    shares = [1, *(after - before for before, after in pairwise((*present, total)))]
    return [
        changed(
            task,
            seconds=task.seconds * share / total,
            of_parts=task.of_parts and tuple(seconds * share / total for seconds in task.of_parts),
        )
        for share in shares
    ]


def _share(exchange: ExchangeTask, share: float) -> ExchangeTask:
    """Return a fraction of an exchange."""
    sent = tuple(share * amount for amount in exchange.sent)
    between = tuple(Fraction(share) * amount for amount in exchange.between)
    return changed(exchange, bytes=share * exchange.bytes, sent=sent, between=between)
