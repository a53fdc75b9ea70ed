"""Seconds, ratios and goals: what the benchmarks have in common.

A goal holds on a busy machine with two cores; a benchmark that misses one ends with status 1. With
``SMALL`` set in the environment they are small and have no goals: each call is made once or twice,
which shows that the benchmark still runs and that its answers agree.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, TypeVar

T = TypeVar("T")
SMALL = bool(os.environ.get("SMALL"))


def size(full: T, small: T) -> T:
    """Return how much is measured."""
    return small if SMALL else full


def needs(package: str) -> None:
    """End a benchmark that needs a package which is not installed, naming it."""
    if importlib.util.find_spec(package) is None:
        sys.exit(f"this benchmark needs {package}, which is not installed")


def seconds(work: Callable[[], Any], least: float = 0.2) -> float:
    """Return the median seconds of a call, over enough calls to last ``least`` seconds."""
    started = time.perf_counter()
    work()
    first = max(time.perf_counter() - started, 1e-7)
    times = []
    for _ in range(size(max(5, min(2000, int(least / first))), 1)):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return median(times)


def ratio(work: Callable[[], Any], other: Callable[[], Any], rounds: int = 300) -> float:
    """Return the median ratio of two calls' seconds, in turn: a machine that drifts slows both."""
    ratios = []
    for _ in range(size(rounds, 1)):
        started = time.perf_counter()
        work()
        between = time.perf_counter()
        other()
        ratios.append((between - started) / (time.perf_counter() - between))
    return median(ratios)


def judged(name: str, value: float, goal: float, *, at_least: bool = False) -> bool:
    """Print a ratio with its goal, and return whether it is missed."""
    if SMALL:
        print(f"{name}: ratio {value:.3g} (small: no goal)", flush=True)
        return False
    print(f"{name}: ratio {value:.3g} (at {'least' if at_least else 'most'} {goal:g})", flush=True)
    return value < goal if at_least else value > goal
