"""Single calls, and many problems at once.

* A million batches of VGG-E at four levels by `ho.solve_many`: by either search at most 5 us a
  point, and 200 times faster than one `ho.solve("vgg-e")`. 20,000 of ResNet-50, a graph: at most
  30 us, and 200 times faster.
* 10,000 random points of the paper's networks: the plan of `ho.solve`, its total, its baselines and
  what it moves when run, each one.

Exit status 1 on a miss.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Literal

import hypar_opt as ho
from benchmarks.measure import judged, size
from hypar_opt.models import PAPER_NETWORKS
from hypar_opt.step.readings import READINGS
from hypar_opt.studies.many import ManyPlans

LOADS = (("vgg-e", size(1_000_000, 1000), 5e-6), ("resnet-50", size(20_000, 20), 30e-6))
"""Networks, points, and the most seconds of a point."""
CHECKED = size(10_000, 100)
TARGET = 200
"""Times that a point of many is faster than a call."""


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def equal(many: ManyPlans, place: tuple[int, ...]) -> bool:
    plan = many.plan(*place)
    cost = plan.cost
    expected = {
        "totals": cost.total,
        "data_parallel": cost.baselines.data,
        "model_parallel": cost.baselines.model,
        "executed_bytes": cost.executed_bytes,
        "data_parallel_bytes": cost.data_parallel_bytes,
    }
    rows = [many.choices(level + 1)[place].tolist() for level in range(plan.levels)]
    return all(getattr(many, name)[place] == value for name, value in expected.items()) and (
        rows == [list(map(bool, row)) for row in plan.assignments()]
    )


def differences(rng: random.Random) -> int:
    """Return how many of the random points differ from a call's plan."""
    different = 0
    for _ in range(CHECKED // 100):
        search: Literal["levelwise", "joint"] = rng.choice(["levelwise", "joint"])
        # An exchange over several levels has no price at one of them.
        readings = [
            name
            for name, reading in READINGS.items()
            if search == "joint" or not reading.joins_levels
        ]
        many = ho.solve_many(
            rng.choice(PAPER_NETWORKS),
            batch=[rng.randint(1, 100_000) for _ in range(20)],
            element_bytes=rng.sample([1, 2, 4, 8], 2),
            reading=rng.sample(readings, 2),
            levels=[rng.randint(0, 12), rng.randint(0, 12)],
            search=search,
        )
        places = (tuple(map(rng.randrange, many.totals.shape)) for _ in range(100))
        different += sum(not equal(many, place) for place in places)
    return different


def main() -> None:
    missed = False
    for name, points, most in LOADS:
        ho.solve(name)  # warm up
        batches = range(1, points + 1)
        for search in ("levelwise", "joint"):
            one = median(
                seconds(partial(ho.solve, name, search=search)) for _ in range(size(50, 1))
            )
            many = seconds(partial(ho.solve_many, name, batch=batches, search=search)) / points
            print(f"{name}, {search}: a call {one * 1e3:.2f} ms")
            missed |= judged("microseconds of a point of many", many * 1e6, most * 1e6)
            missed |= judged("a call against a point of many", one / many, TARGET, at_least=True)
    different = differences(random.Random(1))
    print(f"{CHECKED} random points: {different} differ from a call's plan (none may)")
    sys.exit(missed or different > 0)


if __name__ == "__main__":
    main()
