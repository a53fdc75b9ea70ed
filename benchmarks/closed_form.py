"""The closed form over many plans at once, against copying the seconds that it returns.

Ratios of one run, on the paper's array; the tables are made once, before:

* all 65,536 plans of Lenet-c (at most 10);
* a million random plans of VGG-E (at most 50).
"""

from __future__ import annotations

import numpy as np

import hypar_opt as ho
from benchmarks.joint import seconds
from hypar_opt.costs.time import TimeCost
from hypar_opt.plan.arguments import problem_of
from hypar_opt.simulator.closed_form import ClosedForm
from hypar_opt.workload.tensors import workload_of


def closed_form(name: str) -> ClosedForm:
    problem = problem_of(array="hmc-htree-16", cost="time")
    workload = workload_of(ho.load(name), problem.batch)
    return ClosedForm.of(TimeCost.from_problem(problem, workload), workload, problem.levels)


def main() -> None:
    lenet = closed_form("lenet-c")
    result = lenet.of_all()
    ours, copy = seconds(lenet.of_all), seconds(result.copy)
    print(f"{result.size} plans of Lenet-c: {ours * 1e6:.0f} us, copy {copy * 1e6:.1f} us")
    print(f"ratio {ours / copy:.1f} (at most 10)")

    vgg = closed_form("vgg-e")
    states = np.random.default_rng(0).integers(0, 16, (19, 10**6)).astype(np.uint8)
    result = vgg.of_plans(states)
    ours, copy = seconds(lambda: vgg.of_plans(states), 1.0), seconds(result.copy)
    print(f"{result.size} plans of VGG-E: {ours * 1e3:.1f} ms, copy {copy * 1e3:.2f} ms")
    print(f"ratio {ours / copy:.0f} (at most 50)")


if __name__ == "__main__":
    main()
