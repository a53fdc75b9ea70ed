"""Bounds on a step's time without simulation: its tasks in sequence, and its critical path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypar_opt.simulator.tasks import Compute, Exchange, Task, is_overlapped

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect


def lockstep_bounds(tasks: Sequence[Task], interconnect: Interconnect) -> tuple[float, float]:
    """Return a lower and an upper bound of a step's seconds, all accelerators in lockstep.

    The upper bound is the closed form: the tasks in sequence, an exchange taking its messages'
    latencies and its bytes over the bandwidth that the topology gives its pattern. The lower
    bound is the critical path, the longest chain of dependent tasks: a task in the background
    waits only for the tasks before it, and for the background's earlier ones. Without overlap
    the two are equal.
    """
    foreground = background = total = 0.0
    for task in tasks:
        seconds = task.seconds if isinstance(task, Compute) else _seconds(task, interconnect)
        total += seconds
        if is_overlapped(task):
            # It starts once it is handed over and the background has finished the one before.
            background = max(foreground, background) + seconds
        else:
            foreground += seconds
    return max(foreground, background), total


def _seconds(task: Exchange, interconnect: Interconnect) -> float:
    """Return an exchange's seconds with all accelerators in lockstep: latency and bandwidth."""
    link = interconnect.ring(task.bits) if task.ring else interconnect.bisection(task.bits[0])
    # Messages are sent one after the other, so every one adds its latency; `task.bytes` are
    # those of all messages, so the bandwidth term is added once.
    return task.messages * float(link.latency) + task.bytes * float(link.seconds_per_byte)
