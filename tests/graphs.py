"""Random problems on random graphs, and every plan of them, priced without any table solver."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from random import Random
from typing import Any

import hypar_opt as ho
from hypar_opt.costs.product import canonical_states
from hypar_opt.plan.arguments import problem_of
from hypar_opt.search.instance import Instance
from hypar_opt.search.pricing import price_levels
from hypar_opt.studies.random_networks import random_graph
from tests.costs.plans import Asked, Rows

GRAPH_READINGS = ("executed", "executed", "text", "tables", "figures")


def random_graph_problem(
    rng: Random, *, most: int = 4, most_plans: int = 2**7, constrained: bool = True
) -> tuple[ho.Network, Asked]:
    """A graph and what is asked of a search, in bytes; a constraint may leave it without a plan."""
    while True:
        network = random_graph(rng, most=rng.randint(1, most))
        three, levels = rng.random() < 0.2, rng.choice([1, 1, 2, 3])
        choices = tuple(ho.Parallelism)[: 2 + three]
        while levels > 1 and plans_of(network, levels, len(choices)) > most_plans:
            levels -= 1
        if plans_of(network, levels, len(choices)) <= most_plans:
            break
    asked: Asked = {
        "batch": rng.choice([1, 2, 3, 4, 8, 64]),
        "levels": levels,
        "choices": choices,
        "reading": rng.choice(("text", "tables") if three else GRAPH_READINGS),
        "element_bytes": rng.choice([1, 2, 4, 8]),
        "inference": rng.random() < 0.15,
    }
    if rng.random() < 0.2:
        asked["level_weights"] = tuple(rng.randint(1, 4) for _ in range(levels))
    if constrained:
        found: dict[str, Any] = {"even": rng.random() < 0.3}
        if rng.random() < 0.3:
            layer, level = rng.choice(network.layers), rng.randint(1, levels)
            word = rng.choice(layer.splits[: len(choices)]).word
            found["fix"] = (f"{layer.name}@H{level}={word}",)
        if rng.random() < 0.15:
            found["memory"] = rng.choice([300, 3_000, 30_000])
        asked["constraints"] = found
    return network, asked


def plans_of(network: ho.Network, levels: int, choices: int) -> int:
    count = 1
    for layer in network.layers:
        count *= min(choices, len(layer.splits)) ** levels
    return count


def every_plan_of(network: ho.Network, levels: int, choices: int) -> Iterator[Rows]:
    """Every plan, in canonical order from the last layer back."""
    states = [
        [state for state in canonical_states(levels, choices) if max(state) < len(layer.splits)]
        for layer in network.layers
    ]
    for columns in itertools.product(*states[::-1]):
        yield tuple(zip(*columns[::-1], strict=True))


def priced_graph_plans(network: ho.Network, asked: Asked) -> list[tuple[Fraction, Rows]]:
    """Return every plan that keeps to what is asked, cheapest first, equals in canonical order."""
    instance = Instance(network, problem_of(network, **asked))
    try:
        constraints = instance.constraints
    except ho.HyparError:
        return []
    even = instance.problem.constraints.even
    plans = every_plan_of(network, instance.problem.levels, len(instance.problem.choices))
    kept = (rows for rows in plans if constraints.allow(rows))
    priced = [
        (sum(price_levels(instance.workload, instance.cost, rows, even=even), Fraction()), rows)
        for rows in kept
    ]
    return sorted(priced, key=lambda each: each[0])


def solved(network: ho.Network, solver: str, search: str, asked: Asked) -> ho.Plan | str:
    """Return a solver's plan, or how it ended without one."""
    try:
        return ho.solve(network, solver=solver, search=search, **asked)
    except ho.HyparError as error:
        return type(error).__name__
