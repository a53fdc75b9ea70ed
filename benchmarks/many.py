"""Single calls, and many problems at once, as ratios within one run.

* A point of `ho.solve_many`, of a million batches of VGG-E at four levels, against one
  `ho.solve("vgg-e")`: by either search at least 200 times faster.
* 10,000 random points of the paper's networks: the plan and the totals of `ho.solve`, each one.

Exit status 1 on a miss.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import hypar_opt as ho
from hypar_opt.costs.readings import READINGS
from hypar_opt.models import PAPER_NETWORKS
from hypar_opt.studies.many import ManyPlans

POINTS = 1_000_000
CHECKED = 10_000
TARGET = 200
"""Times that a point of many is faster than a call."""


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def equal(many: ManyPlans, place: tuple[int, ...]) -> bool:
    plan = many.plan(*place)
    rows = [many.choices(level + 1)[place].tolist() for level in range(plan.levels)]
    return bool(many.totals[place] == plan.cost.total) and rows == [
        list(map(bool, row)) for row in plan.assignments()
    ]


def differences(rng: random.Random) -> int:
    """Return how many of the random points differ from a call's plan."""
    different = 0
    for _ in range(CHECKED // 100):
        many = ho.solve_many(
            rng.choice(PAPER_NETWORKS),
            batch=[rng.randint(1, 100_000) for _ in range(20)],
            element_bytes=rng.sample([1, 2, 4, 8], 2),
            reading=rng.sample(list(READINGS), 2),
            levels=[rng.randint(0, 12), rng.randint(0, 12)],
            search=rng.choice(["levelwise", "joint"]),
        )
        places = (tuple(map(rng.randrange, many.totals.shape)) for _ in range(100))
        different += sum(not equal(many, place) for place in places)
    return different


def main() -> None:
    missed = False
    ho.solve("vgg-e")  # warm up
    batches = range(1, POINTS + 1)
    for search in ("levelwise", "joint"):
        one = median(seconds(partial(ho.solve, "vgg-e", search=search)) for _ in range(50))
        many = seconds(partial(ho.solve_many, "vgg-e", batch=batches, search=search)) / POINTS
        print(f"{search}: a call {one * 1e3:.2f} ms, a point of many {many * 1e6:.2f} us")
        print(f"ratio {one / many:.0f} (at least {TARGET})")
        missed |= one / many < TARGET
    different = differences(random.Random(1))
    print(f"{CHECKED} random points: {different} differ from a call's plan (none may)")
    sys.exit(missed or different > 0)


if __name__ == "__main__":
    main()
