"""The closed form over many plans at once, against copying the seconds that it returns.

Ratios of one run, on the paper's array; the tables are made once, before:

* all 65,536 plans of Lenet-c (at most 10);
* a million random plans of VGG-E (at most 300).
"""

from __future__ import annotations

import sys

import numpy as np

import hypar_opt as ho
from benchmarks.measure import judged, ratio, size
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
    value = ratio(lenet.of_all, result.copy)
    missed = judged(f"{result.size:,} plans of Lenet-c against a copy", value, 10)

    vgg = closed_form("vgg-e")
    states = np.random.default_rng(0).integers(0, 16, (19, size(10**6, 10**3))).astype(np.uint8)
    result = vgg.of_plans(states)
    value = ratio(lambda: vgg.of_plans(states), result.copy, 15)
    missed |= judged(f"{result.size:,} plans of VGG-E against a copy", value, 300)
    sys.exit(missed)


if __name__ == "__main__":
    main()
