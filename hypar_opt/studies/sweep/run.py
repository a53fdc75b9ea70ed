"""Running a sweep's cases on this machine's cores, or on a Dask cluster."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError, argument, worded
from hypar_opt.plan.arguments import problem_of
from hypar_opt.studies.many import AXES, SearchName, is_batched, solve_many
from hypar_opt.studies.sweep.case import (
    PAPERS,
    Case,
    SweepRow,
    levels_at,
    network_of,
    on,
    place_of,
    row_of,
    run_case,
)

if TYPE_CHECKING:
    from concurrent.futures import Future


Item = tuple[str, Case]
"""A case and its key."""

TIMEOUT = 30
"""Seconds to wait for a scheduler, and for a first worker."""

CHUNK = 16
"""Cases per task on a cluster, as scheduling a task takes as long as many short cases."""

CHUNK_SECONDS = 0.5
"""Seconds after which a task hands the cases that it has not begun to other tasks, so that an
interrupted sweep loses no more than this, and slow cases spread over all workers."""

_ADDRESS = re.compile(r"tcp://(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>\d{1,5})")


def run_local(
    cases: dict[str, Case], workers: int | None = None
) -> Generator[tuple[str, SweepRow], None, None]:
    """Run cases in processes of this machine; yield each as it ends.

    With one worker they run in this process, in order; unless given there is one per core that is
    available to this process. Cases are by key.

    Raises
    ------
    HyparError
        If a worker process is killed.
    """
    processes = min(workers or _cores(), len(cases))
    if processes <= 1:
        yield from ((key, run_case(case)) for key, case in cases.items())
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    # A forked process would inherit locks that our other threads hold and never release there.
    context = multiprocessing.get_context("spawn")
    # Other processes of the caller must not be ended.
    of_caller = multiprocessing.active_children()
    with _only_installed_modules():
        # The first of its locks starts multiprocessing's resource tracker.
        pool = ProcessPoolExecutor(processes, context, initializer=_end_with_parent)
    try:
        with _only_installed_modules(), _without_interrupts():
            keys: dict[Future[SweepRow], str] = {
                pool.submit(run_case, case): key for key, case in cases.items()
            }
        for future in as_completed(keys):
            yield keys[future], future.result()
        pool.shutdown()
    except BrokenProcessPool:
        raise HyparError(
            f"a worker process was killed, perhaps for lack of memory; rerun to resume, with fewer"
            f" {argument('workers')}"
        ) from None
    finally:
        # After Ctrl-C running cases are abandoned; the journal has the finished ones.
        for process in multiprocessing.active_children():
            if process not in of_caller:
                process.terminate()
        pool.shutdown(cancel_futures=True)


_STARTING = Lock()
"""Held while processes start, since the state that they inherit is process-wide."""


@contextmanager
def _only_installed_modules() -> Iterator[None]:
    """Start processes that import neither from the current folder nor the caller's script.

    A program of ``python -c``, which a process begins with, searches the current folder first: a
    ``signal.py`` there would be taken for Python's. The caller's script, which would be run again,
    may be no file, as in ``python -``, and few call `sweep` below ``if __name__ == "__main__"``.
    """
    with _STARTING:
        main, safe = sys.modules["__main__"], os.environ.get("PYTHONSAFEPATH")
        sys.modules["__main__"] = ModuleType("__main__")
        os.environ["PYTHONSAFEPATH"] = "1"
        try:
            yield
        finally:
            sys.modules["__main__"] = main
            if safe is None:
                del os.environ["PYTHONSAFEPATH"]
            else:
                os.environ["PYTHONSAFEPATH"] = safe


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start processes that ignore Ctrl-C, and defer it meanwhile."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _cores() -> int:
    """Return the number of cores available to this process, within a container or taskset."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _end_with_parent() -> None:
    """Ignore Ctrl-C, which the parent handles, and end when the parent ends."""
    import multiprocessing
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    # A thread, since a killed parent sends no signal.
    threading.Thread(target=watch, daemon=True).start()


def run_on_cluster(
    cases: dict[str, Case], scheduler: str
) -> Generator[tuple[str, SweepRow], None, None]:
    """Run cases on the workers of a Dask scheduler; yield each as it ends.

    If a worker dies, another one runs the case that it had not finished.

    Raises
    ------
    HyparError
        If distributed is not installed, or the cluster cannot be reached or is lost.
    """
    address = _ADDRESS.fullmatch(scheduler)
    if address is None or not 0 < int(address["port"]) < 2**16:
        raise HyparError(
            f"{argument('scheduler')} should be an address, as tcp://HOST:8786, got {scheduler!r}"
        )
    try:
        from distributed import Client, KilledWorker, as_completed
    except ModuleNotFoundError:
        raise HyparError(
            f"{argument('scheduler')} needs Dask's distributed: pip install 'hypar-opt[dask]'"
        ) from None
    from concurrent.futures import CancelledError

    if not cases:
        return
    cluster = worded(f"scheduler {scheduler}", f"--scheduler {scheduler}")
    # The message below says that the cluster is lost, in one line.
    with _silenced("distributed.client"):
        try:
            client = Client(scheduler, timeout=TIMEOUT, set_as_default=False)
        except OSError as error:
            raise HyparError(f"{cluster}: cannot be reached: {error}") from None
        try:
            with closing(client):
                try:
                    client.wait_for_workers(1, timeout=TIMEOUT)
                except TimeoutError:
                    problem = f"no worker has joined within {TIMEOUT} s"
                    raise HyparError(f"{cluster}: {problem}") from None
                items, workers = list(cases.items()), len(client.nthreads())
                # Several tasks for each worker, so that all end at about the same time.
                size = max(1, min(CHUNK, len(items) // (4 * workers)))
                chunks = [items[n : n + size] for n in range(0, len(items), size)]
                # Nothing here keeps a finished future: Dask would run it again if the worker that
                # holds its result died.
                futures = client.map(_run_chunk, chunks, pure=False)
                ended = as_completed(futures, loop=client.loop)
                del futures
                for future in ended:
                    rows, remaining = future.result()
                    # If cases are slow, each is a task.
                    ended.update(client.map(_run_chunk, [[item] for item in remaining], pure=False))
                    yield from rows
        except (OSError, CancelledError, KilledWorker) as error:
            problem = f"was lost ({type(error).__name__}); rerun to resume"
            raise HyparError(f"{cluster}: {problem}") from None


@contextmanager
def _silenced(name: str) -> Iterator[None]:
    log = logging.getLogger(name)
    level = log.level
    try:
        log.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        log.setLevel(level)


def _run_chunk(items: Sequence[Item]) -> tuple[list[tuple[str, SweepRow]], Sequence[Item]]:
    """Run cases on a worker for a while; return their rows, and the cases that are left."""
    started = time.monotonic()
    rows = []
    for key, case in items:
        rows.append((key, run_case(case)))
        if time.monotonic() - started > CHUNK_SECONDS:
            break
    return rows, items[len(rows) :]


def is_solved_together(case: Case) -> bool:
    """Return whether `run_together` accepts a case."""
    plain = (case.overlap, case.cost, case.solver, case.choices) == (None, "bytes", "dp", PAPERS)
    return plain and _is_batched(case.network, case.reading, case.array)


def run_together(cases: dict[str, Case]) -> Iterator[tuple[str, SweepRow]]:
    """Yield the same rows as if each case were run separately; `is_solved_together` accepts all."""
    groups: dict[tuple[str, bool, SearchName], dict[str, Case]] = {}
    for key, case in cases.items():
        search: SearchName = "joint" if case.search == "joint" else "levelwise"
        # Separately, since the paper's readings need levels of two parts.
        halves = levels_at(place_of(case.array)).is_binary
        groups.setdefault((case.network, halves, search), {})[key] = case
    for (network, _, search), group in groups.items():
        yield from _solved(network, search, group)


def _solved(
    network: str, search: SearchName, cases: dict[str, Case]
) -> Iterator[tuple[str, SweepRow]]:
    places = {
        key: (
            *(case.batch, case.element_bytes, case.reading),
            levels_at(place_of(case.array)).sizes,
        )
        for key, case in cases.items()
    }
    # The indices of a case's values on the axes give its plan.
    axes = [dict.fromkeys(values) for values in zip(*places.values(), strict=True)]
    index = [{value: n for n, value in enumerate(axis)} for axis in axes]
    names = (*AXES[:3], "hierarchy")
    arguments: dict[str, Any] = dict(zip(names, map(list, axes), strict=True))
    many = solve_many(network_of(network), whole_levels=True, search=search, **arguments)
    for key, place in places.items():
        at = tuple(numbers[value] for numbers, value in zip(index, place, strict=True))
        results = {
            "search": search,
            "status": "optimal",
            "bytes": many.totals.item(at),
            "executed_bytes": many.executed_bytes.item(at),
            "data_parallel_bytes": many.data_parallel_bytes.item(at),
        }
        yield key, row_of(cases[key], results)


@lru_cache(64)
def _is_batched(network: str, reading: str, array: str) -> bool:
    place = place_of(array)
    try:
        # On one's own array plans are those that can run.
        constrained = problem_of(**on(place)).constraints.any
        return not constrained and is_batched(network_of(network), reading, levels_at(place))
    except HyparError:  # solved separately, the case is a row with this reason
        return False
