"""The simulator: a step of VGG-E in lockstep on 1,024 and 4,096 accelerators, and its engine.

Ratios of one run, on the paper's H tree and on a torus of the paper's links, each on new wires,
so that every route is computed:

* a step on 4,096 accelerators against one on 1,024 (at most 5);
* a step on 1,024 in lockstep against the same step event by event (no target);
* on 16, event by event, against a bare SimPy loop of as many timeouts (at most 10). The loop has
  a process an accelerator, and together they wait for ``Run.events`` timeouts: as many as the
  step has computations and messages.

Making the wires themselves is not counted. Exits with 1 if a target is missed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import simpy

import hypar_opt as ho
from benchmarks.measure import judged, size
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import load
from hypar_opt.hardware.interconnect import Interconnect
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.run import run, run_by_events
from hypar_opt.simulator.step import program
from hypar_opt.simulator.tasks import Task
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of

GROWTH, AGAINST_BARE = 5, 10
"""The targets."""
FEW, MANY = size((1024, 4096), (16, 64))
"""Accelerators."""

HYPAR: Any = {"cost": "bytes", "choices": CHOICES[:2], "element_bytes": 4}
"""The paper's plans, on any array."""

Step = tuple[tuple[Task, ...], Callable[[], Interconnect]]


def step_on(kind: str, accelerators: int) -> Step:
    """Return the step of HyPar's plan for VGG-E on an H tree or torus, and its wires anew."""
    table = load(f"hmc-{kind}-16").description()
    if kind == "torus":
        side = 2 ** ((accelerators.bit_length() - 1) // 2)
        table["topology"]["shape"] = [side, accelerators // side]
    else:
        table["topology"]["accelerators"] = accelerators
    array = Array.model_validate(table)
    plan = ho.solve("vgg-e", array=array, batch=16 * accelerators, **HYPAR)
    workload = workload_of(ho.load("vgg-e"), plan.batch)
    topology = array.topology
    return (
        program(plan, workload, array, RunOptions(), plan.assignments()),
        lambda: Interconnect(topology.graph(), topology.grid()),
    )


def bare(accelerators: int, events: int) -> None:
    """Wait for as many timeouts, a process an accelerator."""
    env = simpy.Environment()

    def process() -> simpy.events.ProcessGenerator:
        for _ in range(events // accelerators):
            yield env.timeout(1e-4)

    for _ in range(accelerators):
        env.process(process())
    env.run()


def seconds(work: Callable[..., Any], step: Step, times: int) -> float:
    """Return the median seconds of a run of a step, on new wires each time."""
    tasks, wires = step
    taken = []
    for _ in range(size(times, 1)):
        interconnect = wires()
        started = time.perf_counter()
        work(tasks, interconnect)
        taken.append(time.perf_counter() - started)
    return median(taken)


def growth(kind: str) -> bool:
    """Print the ratios of a topology; return whether its target is missed."""
    few, many = step_on(kind, FEW), step_on(kind, MANY)
    in_lockstep = seconds(run, few, 5)
    ratio = seconds(run, many, 5) / in_lockstep
    by_events = seconds(run_by_events, few, 1) / in_lockstep
    print(f"{kind}: {FEW} accelerators {in_lockstep * 1e3:.0f} ms, by events {by_events:.0f} times")
    return judged(f"{kind}: {MANY} accelerators against {FEW}", ratio, GROWTH)


def against_bare() -> bool:
    """Print the ratio of the event engine to a bare loop; return whether its target is missed."""
    step = step_on("htree", 16)
    tasks, wires = step
    events = run(tasks, wires()).events
    loop = seconds(lambda *_: bare(16, events), step, 51)
    ratio = seconds(run_by_events, step, 51) / loop
    return judged("16 accelerators by events against a bare loop", ratio, AGAINST_BARE)


def main() -> None:
    sys.exit(any([growth("htree"), growth("torus"), against_bare()]))


if __name__ == "__main__":
    main()
