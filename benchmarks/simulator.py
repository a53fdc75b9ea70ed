"""The simulator's engine: a step of VGG-E against a bare SimPy loop of as many timeouts.

Ratios of one run, on the paper's H tree with 16 and with 1,024 accelerators:

* a run on new wires, so with every route found, once, against the loop (at most 10);
* seconds an event at 1,024 against those at 16 (at most 1), of a second run on the same wires,
  which finds no route: routes belong to the wires, and there are more of them an event at 1,024.

The loop has a process an accelerator, and together they wait for ``Run.events`` timeouts: as
many as the step has computations and messages. Making the wires themselves is not counted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import simpy

import hypar_opt as ho
from benchmarks.measure import judged
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import load
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.run import Run, run
from hypar_opt.simulator.step import program
from hypar_opt.simulator.tasks import Task


def workload(accelerators: int) -> tuple[tuple[Task, ...], Interconnect]:
    """Return the step of HyPar's plan for VGG-E on a fat tree like the paper's, on new wires."""
    tree = load("hmc-htree-16").description()
    tree["topology"]["accelerators"] = accelerators
    array = Array.model_validate(tree)
    plan = ho.solve("vgg-e", array=array, batch=16 * accelerators)
    workload = ho.Workload.of(ho.layer_graph(ho.load("vgg-e")), plan.batch)
    return program(plan, workload, array), Interconnect(array.topology.graph())


def bare(accelerators: int, events: int) -> None:
    """Wait for as many timeouts, a process an accelerator."""
    env = simpy.Environment()

    def process() -> simpy.events.ProcessGenerator:
        for _ in range(events // accelerators):
            yield env.timeout(1e-4)

    for _ in range(accelerators):
        env.process(process())
    env.run()


def timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rounds(accelerators: int) -> tuple[float, float, float, int]:
    """Return the seconds of a first run, of a second one, and of the loop; and the events."""
    tasks, interconnect = workload(accelerators)
    runs: list[Run] = []
    first = timed(lambda: runs.append(run(tasks, interconnect)))
    again = timed(lambda: run(tasks, interconnect))
    events = runs[0].events
    return first, again, timed(lambda: bare(accelerators, events)), events


def against_bare(accelerators: int, repeats: int) -> tuple[bool, float]:
    """Return whether a first run misses its goal, and the second run's seconds an event."""
    times = [rounds(accelerators) for _ in range(repeats)]
    value = median(first / loop for first, _, loop, _ in times)
    missed = judged(f"{accelerators:,} accelerators against a bare loop", value, 10)
    return missed, median(again / events for _, again, _, events in times)


def main() -> None:
    (missed, few), (missed_too, many) = against_bare(16, 101), against_bare(1024, 5)
    grows = judged("an event at 1,024 against one at 16", many / few, 1)
    sys.exit(missed or missed_too or grows)


if __name__ == "__main__":
    main()
