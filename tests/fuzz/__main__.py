"""Run the calls of many seeds; print each that breaks what must hold, and its seed.

A single seed is run again by ``make fuzz N=1 SEED=...``.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.fuzz.calls import call
from tests.fuzz.run import broken

MAX_BYTES = 8 * 2**30
"""Bytes that a process may write to: what a call is held to is far below. Addresses that are only
reserved, as by what draws pictures, are not counted."""


def _work(seeds: Sequence[int], seconds: float, results: Connection) -> None:
    """Run seeds; send each before it is run, and what was wrong with it after."""
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            results.send((seed, None))
            # A call that never comes back to Python ends the process.
            end = int(time.process_time() + 2 * seconds + 1)
            resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
            results.send((seed, broken(seed, Path(folder) / "here", seconds=seconds)))


def _ran(seeds: Sequence[int], seconds: float, jobs: int) -> Iterator[tuple[int, str]]:
    """Yield seeds and what was wrong with them, as they are done by several processes."""
    # Forked before anything is solved here: solvers have threads, which no copy has.
    context = get_context("fork")
    waiting = [seeds[first::jobs] for first in range(jobs)]
    running: dict[Any, tuple[Any, Sequence[int], list[int]]] = {}
    while waiting or running:
        for some in filter(None, waiting):
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(some, seconds, send))
            process.start()
            send.close()
            running[receive] = process, some, [some[0]]
        waiting = []
        ready: list[Any] = wait(list(running))
        for receive in ready:
            process, some, now = running[receive]
            try:
                seed, problem = receive.recv()
            except EOFError:
                process.join()
                del running[receive]
                if process.exitcode:
                    yield now[0], f"ended the process: {process.exitcode}"
                    waiting.append(some[some.index(now[0]) + 1 :])
                continue
            now[0] = seed
            if problem is not None:
                yield seed, problem


def _show(seed: int, problem: str) -> None:
    made = call(seed)
    print(f"\nseed {seed}: {problem}\n$ hypar-opt {shlex.join(made.args)[:2000]!a}")
    for name, data in made.files.items():
        if name in made.args:
            print(f"--- {name}\n{data[:2000]!r}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument(
        "--seconds", type=float, default=60, help="of the processor, that a case may take"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    wrong = 0
    seeds = range(asked.seed, asked.seed + asked.cases)
    ran = _ran(seeds, asked.seconds, min(asked.jobs, asked.cases))
    for done, (seed, problem) in enumerate(ran, start=1):
        if problem:
            wrong += 1
            _show(seed, problem)
        if done % 1000 == 0:
            print(f"{done} of {asked.cases}, {wrong} wrong", file=sys.stderr)
    print(f"{asked.cases} calls, {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    sys.exit(main())
