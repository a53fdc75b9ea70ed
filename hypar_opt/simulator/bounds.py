"""Bounds on a step's time without simulation: its tasks in sequence, and its critical path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hypar_opt.simulator.tasks import Compute, Exchange, Task, predecessors

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect


def lockstep_bounds(tasks: Sequence[Task], interconnect: Interconnect) -> tuple[float, float]:
    """Return a lower and an upper bound of a step's seconds, all accelerators in lockstep.

    The upper bound is the closed form: the tasks in sequence, an exchange taking its messages'
    latencies and its bytes over the bandwidth that the topology gives its pattern. The lower
    bound is the critical path, the longest chain of tasks that wait for one another, or the sum
    of an accelerator's computations if that is longer. Without overlap the two are equal.
    """
    ends: list[float] = []
    computed = total = 0.0
    for task, before in zip(tasks, predecessors(tasks), strict=True):
        seconds = task.seconds if isinstance(task, Compute) else _seconds(task, interconnect)
        total += seconds
        # One at a time, whatever they wait for.
        computed += seconds if isinstance(task, Compute) else 0.0
        ends.append(max((ends[other] for other in before), default=0.0) + seconds)
    return max([*ends, computed]), total


def _seconds(task: Exchange, interconnect: Interconnect) -> float:
    """Return an exchange's seconds with all accelerators in lockstep: latency and bandwidth."""
    link = interconnect.ring(task.bits) if task.ring else interconnect.bisection(task.bits[0])
    # Messages are sent one after the other, so every one adds its latency; `task.bytes` are
    # those of all messages, so the bandwidth term is added once.
    return task.messages * float(link.latency) + task.bytes * float(link.seconds_per_byte)
