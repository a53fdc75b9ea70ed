"""Where a sweep's cases run: on this machine's cores, or on a Dask cluster."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError, argument, worded
from hypar_opt.studies.sweep.case import Case, Row, run

if TYPE_CHECKING:
    from concurrent.futures import Future

PATIENCE = 30
"""Seconds to wait for a scheduler, and for a first worker."""


def here(
    cases: dict[str, Case], workers: int | None = None
) -> Generator[tuple[str, Row], None, None]:
    """Run cases in processes of this machine; yield each as it ends.

    With one worker they run in this process, in order.
    """
    number = min(workers or _cores(), len(cases))
    if number <= 1:
        yield from ((key, run(case)) for key, case in cases.items())
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool

    # Forked, a process would have the locks of our threads, and nobody to open them.
    context = multiprocessing.get_context("spawn")
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(number, context, initializer=_end_with_parent)
    try:
        keys: dict[Future[Row], str] = {pool.submit(run, case): key for key, case in cases.items()}
        for future in as_completed(keys):
            yield keys[future], future.result()
        pool.shutdown()
    except BrokenProcessPool:
        raise HyparError(
            "a worker process was killed, perhaps for want of memory; run it again for the rest,"
            f" with fewer {argument('workers')}"
        ) from None
    finally:
        # After Ctrl-C nobody waits for what is under way; the journal has what is done.
        for process in multiprocessing.active_children():
            if process not in others:
                process.terminate()
        pool.shutdown(cancel_futures=True)


def _cores() -> int:
    """Return how many cores this process may use: a container or taskset may leave it a few."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _end_with_parent() -> None:
    """Leave Ctrl-C to the parent, and go when it goes, however it does."""
    import multiprocessing
    import signal
    import threading

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def on_cluster(cases: dict[str, Case], scheduler: str) -> Generator[tuple[str, Row], None, None]:
    """Run cases on the workers of a Dask scheduler; yield each as it ends.

    What a worker that dies had under way, another runs.

    Raises
    ------
    HyparError
        If distributed is not installed, or the cluster cannot be reached or is lost.
    """
    found = re.fullmatch(r"tcp://(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):(\d{1,5})", scheduler)
    if found is None or not 0 < int(found[1]) < 2**16:
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
    with _silenced("distributed.client"):  # what it would say of a lost cluster, we say in a line
        try:
            client = Client(scheduler, timeout=PATIENCE, set_as_default=False)
        except OSError as error:
            raise HyparError(f"{cluster}: cannot be reached: {error}") from None
        try:
            with closing(client):
                try:
                    client.wait_for_workers(1, timeout=PATIENCE)
                except TimeoutError:
                    problem = f"no worker has joined within {PATIENCE} s"
                    raise HyparError(f"{cluster}: {problem}") from None
                # Nothing here holds on to a future that has ended: what a worker that dies later
                # had of finished rows is not run again.
                futures = client.map(_keyed, list(cases.items()), pure=False)
                ended = as_completed(futures, loop=client.loop)
                del futures
                for future in ended:
                    yield future.result()
        except (OSError, CancelledError, KilledWorker) as error:
            problem = f"was lost ({type(error).__name__}); run it again for the rest"
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


def _keyed(item: tuple[str, Case]) -> tuple[str, Row]:
    key, case = item
    return key, run(case)
