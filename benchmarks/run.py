"""A run on virtual devices against one step of the same work in numpy.

Ratios of one run, of Lenet-c at batch 256 on sixteen devices, the optimum of three choices:

* `ho.run`, with its step on one device, the devices' step, and the comparison of all values and
  gradients, against one device's step alone (at most 20);
* the devices' step against one device's (no target).
"""

from __future__ import annotations

import sys

import hypar_opt as ho
from benchmarks.measure import judged, ratio, size
from hypar_opt.execution.virtual.data import random_data
from hypar_opt.execution.virtual.division import Division
from hypar_opt.execution.virtual.step import TrainingStep
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.sharding.program import Program

ROUNDS = 5
LEVELS, BATCH = size((4, 256), (2, 16))


def main() -> None:
    plan = ho.solve(
        "lenet-c",
        levels=LEVELS,
        batch=BATCH,
        reading="executed",
        choices=("data", "model", "output"),
        search="joint",
    )
    instance = Instance.of_plan(plan)
    network, workload = instance.network, instance.executed_workload
    data = random_data(network, workload, seed=0)
    alone = Division(network, Program(workload, (), Hierarchy(())))
    devices = Division(network, Program(workload, rows_of_plan(plan, workload), plan.hierarchy))

    def one() -> object:
        return TrainingStep(alone, data).run()

    of_all = ratio(TrainingStep(devices, data).run, one, ROUNDS)
    print(f"the devices' step alone: {of_all:.1f} steps of one device")
    whole, count = ratio(lambda: ho.run(plan), one, ROUNDS), plan.hierarchy.accelerators
    sys.exit(judged(f"a run of Lenet-c on {count} devices against a step of one", whole, 20))


if __name__ == "__main__":
    main()
