"""The streams of a step: what each task waits for, and what it may overlap."""

from __future__ import annotations

from hypar_opt.simulator.tasks import (
    FIRST_BRANCH,
    FOREGROUND,
    GRADIENT_STREAM,
    Dependencies,
    ExchangeKind,
    ExchangeTask,
    Task,
    changed,
)

OVERLAPS = ("none", "gradient", "branches", "prefetch")

OF_WEIGHTS = (ExchangeKind.GRADIENTS, ExchangeKind.WEIGHTS)
"""They are part of an all-reduce, whether that is one exchange or in halves."""


class Streams:
    """A step's tasks in the order of the program, as they are added.

    With ``gradient`` and ``prefetch`` exchanges of weights and gradients are a queue: one runs at a
    time, in the order in which they are added, each no sooner than all that the foreground has had
    so far. What waits for them says so (`wait`).

    With ``branches`` a task waits for its operands alone, and an accelerator's computations for
    one another. An exchange then goes to a stream whose last task it waits for anyway, so that
    no stream delays it; there are as many as exchanges can run at once.

    Parameters
    ----------
    overlap
        One of `OVERLAPS`.
    """

    def __init__(self, overlap: str) -> None:
        self.tasks: list[Task] = []
        self._overlap = overlap
        # For every task, the tasks that end before it starts, as the bits of a number.
        self._before: list[int] = []
        self._last_of_branch: list[int] = []
        self._last_of: dict[int, int] = {}
        self._gates: Dependencies = ()

    def add(self, task: Task, operands: Dependencies) -> Dependencies:
        """Add a task, and return what the tasks that read its result wait for: the task itself.

        Parameters
        ----------
        operands
            The tasks that complete what it reads.
        """
        number = len(self.tasks)
        if self._overlap == "branches":
            before = 0
            for other in operands:
                before |= self._before[other] | 1 << other
            self._before.append(before)
            task = changed(task, after=operands)
        if isinstance(task, ExchangeTask):
            stream = self._stream_of(task, number)
            task = task if stream == task.stream else changed(task, stream=stream)
        if self._gates and task.stream == FOREGROUND:
            last = (self._last_of[FOREGROUND],) if FOREGROUND in self._last_of else ()
            task, self._gates = changed(task, after=(*last, *self._gates)), ()
        self._last_of[task.stream] = number
        self.tasks.append(task)
        return (number,)

    def wait(self, ended: Dependencies) -> None:
        """Let the next task of the foreground wait for some of the queue, too."""
        self._gates += ended

    def wait_for_queue(self) -> None:
        """Let the next task of the foreground wait for all of the queue."""
        self.wait(
            tuple(self._last_of[stream] for stream in (GRADIENT_STREAM,) if stream in self._last_of)
        )

    def _stream_of(self, task: ExchangeTask, number: int) -> int:
        if self._overlap != "none" and task.kind in OF_WEIGHTS:
            return GRADIENT_STREAM
        if self._overlap != "branches":
            return FOREGROUND
        for branch, last in enumerate(self._last_of_branch):
            if self._before[number] >> last & 1:
                self._last_of_branch[branch] = number
                return FIRST_BRANCH + branch
        self._last_of_branch.append(number)
        return FIRST_BRANCH + len(self._last_of_branch) - 1
