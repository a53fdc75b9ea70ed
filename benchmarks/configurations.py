"""Configurations evaluated from few repetitions of a block, against simulating their plans.

Ratios of one run, on eight nodes of eight H100; no plan's rows or tensors are made anew:

* ten random configurations of LLaMA-70B, of which none has been evaluated (at most 0.15);
* the search among all of them, against simulating ten (at most 0.5);
* `hypar_opt.configure` with its bound over all plans, which may take 5 s, against the search alone
  (at most 6).
"""

from __future__ import annotations

import random
import sys
from typing import Any

import hypar_opt as ho
from benchmarks.measure import judged, ratio, size
from hypar_opt.plan.configuration import family
from hypar_opt.plan.stated import stated_problem
from hypar_opt.planning.priced import plan_of_configuration
from hypar_opt.search.degrees import Evaluator, search_degrees

ARRAY = size("h100-8x8", "h100-8")


def main() -> None:
    arguments: Any = {"batch": 64, "array": ARRAY, "optimizer": "adam"}
    arguments |= {"choices": "all", "cost": "time"}
    network, problem = stated_problem(size("llama-70b", "gpt2"), arguments)
    drawn = random.Random(0).sample([*family(network, problem)], size(10, 2))
    plans = [plan_of_configuration(network, problem, own) for own in drawn]

    def simulated() -> list[float]:
        return [ho.simulate(plan).seconds for plan in plans]

    def evaluated() -> list[float]:
        evaluator = Evaluator(network, problem)
        return [evaluator.evaluate(own).seconds for own in drawn]

    for own, step in zip(evaluated(), simulated(), strict=True):
        assert abs(own / step - 1) < 1e-12
    missed = judged(
        f"{len(drawn)} configurations against their plans", ratio(evaluated, simulated, 3), 0.15
    )

    def searched() -> None:
        search_degrees(network, problem, allowed=lambda own: size(True, own.tp == 2))

    missed |= judged("the search against ten of its plans", ratio(searched, simulated, 1), 0.5)

    def configured() -> None:
        asked: Any = {"batch": problem.batch, "fix": size(None, "tp=2")}
        assert ho.configure(network, ARRAY, **asked).bound

    missed |= judged("configure against the search", ratio(configured, searched, 1), 6)
    sys.exit(missed)


if __name__ == "__main__":
    main()
