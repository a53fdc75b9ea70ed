"""Code in a process of its own, with a limit of memory; one without end is ended."""

from __future__ import annotations

import sys
import textwrap
from typing import NamedTuple

from tests.commands import ended

GIB = 2**30

_AROUND = """
import resource
resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
resource.setrlimit(resource.RLIMIT_CPU, (600, 600))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
{code}
"""


class Done(NamedTuple):
    """What a process printed, a line each, and its exit status."""

    printed: list[str]
    told: list[str]
    """On standard error."""
    status: int


def limited(code: str, *, memory: int = 4 * GIB, status: int = 0) -> Done:
    """Run code in a process that is ended where it needs more memory, or has no end.

    Parameters
    ----------
    memory
        The most bytes of addresses, of which a process uses a part.
    status
        The exit status that it should have.
    """
    script = _AROUND.format(memory=memory, code=textwrap.dedent(code))
    done = ended(sys.executable, "-c", script, status=status)
    return Done(done.stdout.splitlines(), done.stderr.splitlines(), done.returncode)
