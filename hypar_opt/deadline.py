"""When a search has to end: one clock for all of its parts."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from hypar_opt.errors import NoAnswerError

TIME_LIMIT = "time limit"
"""What `SolveResult.stopped_by` says where a deadline came before a proof."""


@dataclass(frozen=True)
class Deadline:
    """A moment on the monotonic clock; without one, never.

    Parameters
    ----------
    end
        Seconds, as `time.monotonic` counts.
    """

    end: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """Return the moment so many seconds from now; never for None."""
        return cls() if seconds is None else cls(time.monotonic() + seconds)

    def left(self) -> float | None:
        """Return the seconds that are left, 0 once it has passed; None without a limit."""
        return None if self.end == math.inf else max(0.0, self.end - time.monotonic())

    def passed(self, needed: float = 0.0) -> bool:
        """Return whether less is left than the seconds that are needed."""
        return time.monotonic() + needed > self.end

    def check(self, needed: float = 0.0) -> None:
        """End the work, if it has `passed`.

        Raises
        ------
        NoAnswerError
            Which whoever knows an answer catches.
        """
        if self.passed(needed):
            raise NoAnswerError(f"no answer within the {TIME_LIMIT}", stopped_by=TIME_LIMIT)


NEVER = Deadline()

GRACE = 0.3
"""Seconds past its limit after which a solver is stopped from outside."""


def with_grace(seconds: float | None) -> float | None:
    """Return when to stop a solver that has a limit of its own; None without one."""
    return None if seconds is None else seconds + GRACE
