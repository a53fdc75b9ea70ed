"""Growth: rings of 1,024 accelerators, arrays of a million, chains of 10^5 layers, 1,000 blocks.

Ratios of the processor's seconds in one run, and the seconds beside them:

* VGG-A's step around rings on 1,024 accelerators against 64: nodes of eight, which have eight
  classes of accelerators however many nodes there are (at most 4), a square torus (at most 32:
  16 times the accelerators, whose rounds are four times as many), in data parallelism a square
  mesh, whose rings share their links with what goes back (at most 64: all of both), and an H tree,
  whose ring is a recurrence, in data parallelism and with HyPar's plan (at most 64 each);
* a step between pairs on an H tree of 65,536 against 4,096 (at most 24: 16 times the accelerators);
* VGG-E's step on 2^20 accelerators against 2^10, routes included: on an H tree and on nodes of
  eight (at most 4), and on a square torus, whose lines are 32 times as long (at most 16);
* the exponents in layers of solving and pricing a chain by ``dp``, of writing its plan and of
  simulating its step, at four levels: from 10^3 to 10^5 (at most 1.1 each);
* 1,000 equal blocks against 100, three choices at four levels (at most 10);
* a whole call of VGG-E and of LLaMA-70B, two choices at four levels, against the kernel, dynamic
  programming on the table alone (VGG-E at most 20).

Layers and blocks are of networks that no call has had before: the tensors of small ones are kept.
``benchmarks.answers`` has three choices against two on 1,000 blocks, and ``benchmarks.simulator``
the simulator's engine against bare events.
"""

from __future__ import annotations

import sys
from math import log10
from random import Random

import hypar_opt as ho
from benchmarks.answers import cpu_seconds
from benchmarks.graphs import DP, OPTIONS, gpt
from benchmarks.measure import judged, ratio, size
from benchmarks.simulator import HYPAR, step_on
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import load
from hypar_opt.instance.instance import Instance
from hypar_opt.models import find_network
from hypar_opt.plan.problem import Problem
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.run import run
from hypar_opt.simulator.step import program
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of


def around_rings(preset: str, solver: str = "dp", **topology: object) -> float:
    """Return the seconds of a step of VGG-A around rings on a preset of another size."""
    table = load(preset).description() | {"collective": "ring"}
    table["topology"] |= topology
    array = Array.model_validate(table)
    batch = 16 * array.interconnect.accelerators
    plan = ho.solve("vgg-a", array=array, batch=batch, solver=solver, **HYPAR)
    workload = workload_of(ho.load("vgg-a"), plan.batch)
    tasks = program(plan, workload, array, RunOptions(), plan.assignments())
    taken, measured = cpu_seconds(lambda: run(tasks, array.interconnect))
    print(f"{measured.events:,} computations and messages: {taken:.2f} s")
    return taken


def rings() -> bool:
    around_rings("h100-8x8", nodes=2)  # warm up
    both = size((8, 128), (2, 4))
    few, many = (around_rings("h100-8x8", nodes=nodes) for nodes in both)
    missed = judged("rings through {1} nodes of 8 against {0} of 8".format(*both), many / few, 4)
    sides = size((8, 32), (2, 4))
    of_which = "{1} x {1} against {0} x {0}".format(*sides)
    few, many = (around_rings("hmc-torus-16", shape=[side, side]) for side in sides)
    missed |= judged(f"rings on a torus of {of_which}", many / few, 32)
    link = {"bandwidth": "50 GB/s", "latency": "1 us"}
    few, many = (
        around_rings("hmc-torus-16", "data", kind="mesh", shape=[side, side], link=link)
        for side in sides
    )
    missed |= judged(f"rings on a mesh of {of_which}", many / few, 64)
    link = {"bandwidth": "1.6 Gb/s", "latency": "1 us"}
    leaves = size((64, 1024), (4, 16))
    for solver in ("data", "dp"):
        few, many = (
            around_rings("hmc-htree-16", solver, accelerators=number, link=link)
            for number in leaves
        )
        name = "a ring of {1} leaves of an H tree against {0}".format(*leaves)
        missed |= judged(f"{name}, {solver}", many / few, 64)
    return missed


def trees() -> bool:
    taken = []
    few, many = size((4096, 65536), (16, 64))
    for accelerators in (few, many):
        tasks, wires = step_on("htree", accelerators)
        interconnect = wires()
        taken.append(cpu_seconds(lambda: run(tasks, interconnect))[0])  # noqa: B023
    print(f"an H tree of {many:,}: {taken[1]:.2f} s")
    return judged(f"an H tree of {many:,} against {few:,}", taken[1] / taken[0], 24)


def million() -> bool:
    few, many = size((10, 20), (4, 6))
    sizes = {
        "hmc-htree-16": ({"accelerators": 2**few}, {"accelerators": 2**many}, 4),
        "hmc-torus-16": ({"shape": [2 ** (few // 2)] * 2}, {"shape": [2 ** (many // 2)] * 2}, 16),
        "h100-8x8": ({"nodes": 2 ** (few - 3)}, {"nodes": 2 ** (many - 3)}, 4),
    }
    missed = False
    for preset, (*both, goal) in sizes.items():
        taken = []
        for extent in both:
            table = load(preset).description()
            table["topology"] |= extent
            plan = ho.solve("vgg-e", array=Array.model_validate(table), batch=2**many, **HYPAR)
            fresh = Array.model_validate(table)
            taken.append(cpu_seconds(lambda: ho.simulate(plan, fresh))[0])  # noqa: B023
        print(f"{preset}'s topology, 2^{many} accelerators: {taken[1]:.2f} s")
        name = f"{preset}'s topology, 2^{many} against 2^{few}"
        missed |= judged(name, taken[1] / taken[0], goal)
    return missed


def chain(layers: int, seed: int) -> ho.Network:
    """Return a chain of fully-connected layers of a few sizes, in random order."""
    random = Random(seed)
    units = random.choices([16, 32, 64, 128, 256, 512], k=layers)
    rows = [{"name": f"fc{n}", "kind": "fc", "units": size} for n, size in enumerate(units)]
    table = {"schema": "hypar-opt/network/2", "name": "chain", "input": {"features": 64}}
    return ho.Network.model_validate(table | {"layer": rows})


def in_layers() -> bool:
    seconds = []
    sizes = size((10**3, 10**4, 10**5), (10, 20, 40))
    for layers in sizes:
        networks = [chain(layers, seed) for seed in range(sizes[-1] // layers)]
        solved, plans = cpu_seconds(
            lambda: [ho.solve(network, solver="dp") for network in networks]  # noqa: B023
        )
        written, _ = cpu_seconds(lambda: [plan.to_json() for plan in plans])  # noqa: B023
        simulated, _ = cpu_seconds(lambda: ho.simulate(plans[0], "hmc-htree-16"))  # noqa: B023
        each = solved / len(plans), written / len(plans), simulated
        seconds.append(each)
        print(f"{layers:,} layers:", *(f"{one / layers * 1e6:.0f} us" for one in each), flush=True)
    missed = False
    for name, few, many in zip(("solved", "written", "simulated"), *seconds[::2], strict=True):
        missed |= judged(f"exponent in layers, {name}", log10(many / few) / 2, 1.1)
    return missed


def blocks() -> bool:
    asked = {"choices": CHOICES, "reading": "executed", "search": "joint"}
    few, many = size((100, 1000), (4, 8))
    ho.solve(gpt(few - 1), **asked)  # type: ignore[arg-type]  # warm up
    taken = []
    for count in (few, many):
        networks = [gpt(count + more) for more in range(3)]  # what is known of one is not of others
        each = [cpu_seconds(lambda: ho.solve(own, **asked))[0] for own in networks]  # type: ignore[arg-type] # noqa: B023
        taken.append(min(each))
    print(f"{many:,} blocks, three choices: {taken[1]:.2f} s")
    return judged(f"{many:,} blocks against {few:,}", taken[1] / taken[0], 10)


def calls() -> bool:
    missed = False
    for name, goal in (("vgg-e", 20.0), ("llama-70b", None)):
        network = find_network(name)
        instance = Instance(network, Problem(batch=256, levels=4))
        table = instance.cost.thresholds(instance.workload, 4)
        assert table is not None
        value = ratio(
            lambda: ho.solve(network, search="joint"),  # noqa: B023
            lambda: DP.solve(table, OPTIONS),  # noqa: B023
            100,
        )
        if goal is None:
            print(f"{name}, a call against the kernel: ratio {value:.3g}")
        else:
            missed |= judged(f"{name}, a call against the kernel", value, goal)
    return missed


def main() -> None:
    # Small calls first: beside large networks the collection of garbage takes longer.
    missed = [calls(), rings(), trees(), million(), blocks(), in_layers()]
    sys.exit(any(missed))


if __name__ == "__main__":
    main()
