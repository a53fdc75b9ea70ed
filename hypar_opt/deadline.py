"""Deadlines: one clock for all parts of a search."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import NoReturn

from hypar_opt.errors import NoAnswerError

TIME_LIMIT = "time limit"
"""The value of `SolveResult.stopped_by` if a deadline passed before a proof."""


LONGEST = 10**9
"""30 years in seconds, the longest limit: no clock, and no solver, counts to 1e308."""


@dataclass(frozen=True)
class Deadline:
    """A point of time on the monotonic clock, by default never.

    Parameters
    ----------
    end
        Seconds of the monotonic clock.
    """

    end: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        """Return the deadline ``seconds`` from now; never for None."""
        return cls() if seconds is None else cls(time.monotonic() + min(seconds, LONGEST))

    def left(self) -> float | None:
        """Return the remaining seconds, 0 after the deadline; None without a limit."""
        return None if self.end == math.inf else max(0.0, self.end - time.monotonic())

    def part(self, share: float) -> Deadline:
        """Return the deadline at which a share of the remaining time will have passed."""
        left = self.left()
        return self if left is None else Deadline.after(share * left)

    def passed(self, needed: float = 0.0) -> bool:
        """Return whether fewer than ``needed`` seconds remain."""
        # Monotonic: the wall clock may be set back while a search runs.
        return time.monotonic() + needed > self.end

    def check(self, needed: float = 0.0) -> None:
        """Raise if the deadline has `passed`.

        Raises
        ------
        NoAnswerError
            A caller that knows a feasible plan catches it.
        """
        if self.passed(needed):
            self.expire()

    def expire(self) -> NoReturn:
        """Raise what `check` raises once the deadline has passed."""
        raise NoAnswerError(f"no answer within the {TIME_LIMIT}", stopped_by=TIME_LIMIT)


NEVER = Deadline()

# A solver needs some time after its limit to report its incumbent.
GRACE = 0.3
"""Seconds after its own limit at which a solver's process is ended from outside."""


def with_grace(seconds: float | None) -> float | None:
    """Return the seconds after which to end a solver that has its own limit; None without one."""
    return None if seconds is None else seconds + GRACE
