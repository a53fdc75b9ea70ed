"""Regrets, the best plans and constraints by counts, as ratios within one run.

VGG-E at ten levels, all together:

* every regret against a solve for each other choice, pinned: at least 50 times faster, where the
  levels are alike (a question a threshold) and where they differ (costs to come and to go);
* the ten best plans by costs to come against the tables of pairs of states: at least 10 times;
* 1,000 layers and twelve levels with even splits against without: at most 2.

The values and plans are compared as well. Exit status 1 on a miss.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from statistics import median
from typing import Any

import hypar_opt as ho
from benchmarks.measure import judged, size
from hypar_opt.deadline import NEVER
from hypar_opt.instance.instance import Instance
from hypar_opt.search.cost_to_go import Completion, completion_by_elimination
from hypar_opt.search.k_best import in_order_of_cost

LEVELS, EVERY = size(10, 3), 9
"""Levels, and of how many other choices one is solved again."""
REGRETS, BEST, EVEN = 50, 10, 2


def seconds(work: Callable[[], Any], times: int = 5) -> float:
    found = []
    for _ in range(size(times, 1)):
        started = time.process_time()
        work()
        found.append(time.process_time() - started)
    return median(found)


def pinned(plan: ho.Plan, regret: Any) -> ho.Plan:
    fix = (f"{regret.layer}@H{regret.level}={regret.choice}",)
    return ho.solve(
        "vgg-e",
        levels=LEVELS,
        level_weights=plan.level_weights,
        search="joint",
        constraints={"fix": fix},
    )


def regrets(name: str, weights: tuple[int, ...]) -> bool:
    """Print how much faster all regrets are; return whether the goal is missed."""
    plan = ho.solve("vgg-e", levels=LEVELS, level_weights=weights, search="joint")
    found = ho.regrets(plan)
    different = 0
    started = time.process_time()
    for regret in found[::EVERY]:
        different += regret.extra != pinned(plan, regret).cost.total - plan.cost.total
    again = (time.process_time() - started) * len(found) / len(found[::EVERY])
    ratio = again / seconds(partial(ho.regrets, plan))
    print(f"{different} of {len(found[::EVERY])} differ (none may)")
    judgement = judged(f"regrets, {name}: a solve for each", ratio, REGRETS, at_least=True)
    return judgement or different > 0


def best() -> bool:
    """Print how much faster the best plans are listed; return whether the goal is missed."""
    plan = ho.solve("vgg-e", levels=LEVELS, search="joint")

    def listed(completion: Completion) -> list[int]:
        in_order = in_order_of_cost(completion, 0, 10, interchangeable=True)
        return [total for total, _ in islice(in_order, 10)]

    started = time.process_time()
    totals = listed(completion_by_elimination(Instance.of_plan(plan), NEVER))
    pairs = time.process_time() - started
    ratio = pairs / seconds(partial(ho.best_plans, plan, 10))
    same = totals == [plans.total for plans in ho.best_plans(plan, 10)]
    print(f"totals {'agree' if same else 'differ'}")
    return judged("best plans, by pairs of states", ratio, BEST, at_least=True) or not same


def even() -> bool:
    """Print what even splits take beside none; return whether the goal is missed."""
    count, levels = size((1000, 12), (20, 3))
    layers = [{"name": f"fc{n}", "kind": "fc", "units": 4096} for n in range(count)]
    deep = {"name": "deep", "input": {"features": 4096}, "layer": layers}
    network = ho.Network.model_validate(deep)
    solve = partial(ho.solve, network, batch=4096, levels=levels, search="joint")
    free = seconds(solve)
    ratio = seconds(partial(solve, constraints={"even": True})) / free
    return judged(f"{count:,} layers, {levels} levels, even splits against any", ratio, EVEN)


def main() -> None:
    weights = (2, *[1] * (LEVELS - 1))
    missed = [regrets("levels alike", ()), regrets("levels that differ", weights), best(), even()]
    sys.exit(any(missed))


if __name__ == "__main__":
    main()
