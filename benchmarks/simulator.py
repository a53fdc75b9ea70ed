"""The simulator's engine: a step of VGG-E's form against a bare SimPy loop of as many timeouts.

Ratios of one run, on a binary fat tree of 16 and of 1,024 accelerators:

* a run on new wires, so with every route found, once, against the loop (at most 10);
* seconds an event at 1,024 against those at 16 (at most 1), of a second run on the same wires,
  which finds no route: routes belong to the wires, and there are more of them an event at
  1,024. The same with routes stands beside it.

The loop has a process an accelerator, and together they wait for ``Run.events`` timeouts: as
many as the step has computations and messages. Making the wires themselves is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from fractions import Fraction
from statistics import median
from typing import Any

import networkx as nx
import simpy

from hypar_opt.costs.readings import Phase
from hypar_opt.hardware.wires import Wires
from hypar_opt.simulator.machine import Run, run
from hypar_opt.simulator.tasks import Compute, Exchange, Kind, Task

CONVOLUTIONS, FULLY_CONNECTED = 16, 3


def workload(accelerators: int) -> tuple[list[Task], Wires]:
    """Return a step of VGG-E's form, and the array that runs it."""
    wires = fat_tree(accelerators)
    levels = range(wires.levels)
    convolutions = [f"conv{place + 1}" for place in range(CONVOLUTIONS)]
    fully_connected = [f"fc{place + 1}" for place in range(FULLY_CONNECTED)]
    tasks: list[Task] = []

    def exchange(layer: str, phase: Phase, kind: Kind, megabytes: int) -> None:
        tasks.extend(
            Exchange(
                layer,
                phase,
                kind,
                (level,),
                (wires.levels - 1 - level,),
                megabytes * 1e6 * 2**level,
            )
            for level in levels
        )

    for place, layer in enumerate([*convolutions, *fully_connected]):
        if layer == "fc1":
            exchange(layer, Phase.FORWARD, Kind.BOUNDARY, 3)
        tasks.append(Compute(layer, Phase.FORWARD, 1e-4 * (place + 1)))
        if layer in fully_connected:
            exchange(layer, Phase.FORWARD, Kind.PARTIAL_SUMS, 4)
    for place, layer in reversed(list(enumerate([*convolutions, *fully_connected]))):
        tasks.append(Compute(layer, Phase.BACKWARD, 1.1e-4 * (place + 1)))
        if layer == "fc1":
            exchange(layer, Phase.BACKWARD, Kind.BOUNDARY, 3)
        tasks.append(Compute(layer, Phase.GRADIENT, 1.2e-4 * (place + 1)))
        if layer in convolutions:
            exchange(layer, Phase.GRADIENT, Kind.GRADIENTS, 1 + place)
    return tasks, wires


def fat_tree(accelerators: int) -> Wires:
    """Return a binary tree whose links double in bandwidth towards the root."""
    graph: nx.Graph[Any] = nx.Graph()
    below: list[Any] = list(range(accelerators))
    bandwidth = Fraction(200_000_000)
    while len(below) > 1:
        above = [f"s{len(below)}.{place}" for place in range(len(below) // 2)]
        for place, node in enumerate(below):
            graph.add_edge(
                node,
                above[place // 2],
                bytes_per_second=bandwidth,
                latency=Fraction(1, 10**7),
                full_duplex=True,
            )
        below, bandwidth = above, bandwidth * 2
    return Wires(graph)


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
    tasks, wires = workload(accelerators)
    runs: list[Run] = []
    first = timed(lambda: runs.append(run(tasks, wires)))
    again = timed(lambda: run(tasks, wires))
    events = runs[0].events
    return first, again, timed(lambda: bare(accelerators, events)), events


def against_bare(accelerators: int, repeats: int) -> tuple[float, float]:
    """Print the ratios; return the first and the second run's seconds an event."""
    times = [rounds(accelerators) for _ in range(repeats)]
    first, again, loop = (median(each[place] for each in times) for place in range(3))
    events = times[0][3]
    print(
        f"{accelerators} accelerators, {events} events: {first * 1e3:.1f} ms, again "
        f"{again * 1e3:.1f} ms, bare loop {loop * 1e3:.1f} ms"
    )
    print(f"ratio {first / loop:.1f} (at most 10), again {again / loop:.1f}")
    return first / events, again / events


def main() -> None:
    few, many = against_bare(16, 101), against_bare(1024, 5)
    print(f"an event: {few[1] * 1e6:.2f} us at 16, {many[1] * 1e6:.2f} us at 1,024")
    print(f"ratio {many[1] / few[1]:.2f} (at most 1), with routes {many[0] / few[0]:.2f}")


if __name__ == "__main__":
    main()
