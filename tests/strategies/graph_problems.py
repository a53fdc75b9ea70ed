"""Random problems on random graphs, and every plan of them, priced without any table solver."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random
from typing import Any

import hypar_opt as ho
from hypar_opt.costs.state_charges import canonical_states
from hypar_opt.instance.constraints import ConstraintSet
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.arguments import problem_of
from hypar_opt.step.readings import READINGS
from hypar_opt.studies.random_networks import random_graph
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.operators.axes import Choice
from hypar_opt.workload.operators.base import Operator
from hypar_opt.workload.operators.words import choices_of_kind
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.strategies.plans import Asked, Rows, totals_of

GRAPH_READINGS = ("executed", "executed", "text", "tables", "figures")


def has_charges(network: ho.Network, reading: str) -> bool:
    """Whether a reading has a charge for all of a network's layers.

    Tensor parallelism has all parts read the few numbers that sines are of, and what a gate has one
    of for all channels, as the output choice does, for which some readings have none.
    """
    layouts = workload_of(network, 1, CHOICES[:2]).layouts
    reads_whole = (layouts.inputs < FIRST_SPLIT).any()
    return not reads_whole or READINGS[reading].input_error is not None


def random_graph_problem(
    rng: Random, *, most: int = 4, most_plans: int = 2**7, constrained: bool = True
) -> tuple[ho.Network, Asked]:
    """A graph and what is asked of a search, in bytes; a constraint may leave it without a plan."""
    while True:
        network = random_graph(rng, most=rng.randint(1, most))
        three, levels = rng.random() < 0.35, rng.choice([1, 1, 2, 3])
        choices = CHOICES[: 2 + three]
        readings = ("text", "tables", "executed", "executed") if three else GRAPH_READINGS
        reading = rng.choice(readings)
        of_reading = len(choices), reading
        if not has_charges(network, reading):
            continue
        while levels > 1 and plans_of(network, levels, *of_reading) > most_plans:
            levels -= 1
        if plans_of(network, levels, *of_reading) <= most_plans:
            break
    asked: Asked = {
        "batch": rng.choice([1, 2, 3, 4, 8, 64]),
        "levels": levels,
        "choices": choices,
        "reading": reading,
        "element_bytes": rng.choice([1, 2, 4, 8]),
        "inference": rng.random() < 0.15,
    }
    if rng.random() < 0.2:
        asked["level_weights"] = tuple(rng.randint(1, 4) for _ in range(levels))
    if constrained:
        found: dict[str, Any] = {rng.choice(["even", "runnable"]): rng.random() < 0.5}
        if rng.random() < 0.3:
            layer, level = rng.choice(network.layers), rng.randint(1, levels)
            word = rng.choice(choices_of(layer, *of_reading)).word
            found["fix"] = (f"{layer.name}@H{level}={word}",)
        if rng.random() < 0.15:
            found["memory"] = rng.choice([300, 3_000, 30_000])
        asked["constraints"] = found
    return network, asked


Choices = int | Sequence[str]
"""The choices of a problem, or how many it has of the paper's and AccPar's."""


def choices_of(
    layer: Operator, choices: Choices, reading: str, *, constrained: bool = True
) -> tuple[Choice, ...]:
    """The choices that a reading has: only what runs may be whole.

    Some layers are only as constraints leave no split.
    """
    named = CHOICES[:choices] if isinstance(choices, int) else choices
    own = filter(None, choices_of_kind(layer.splits, named))
    runs = reading == "executed"
    return tuple(c for c in own if c.axis or (runs and (constrained or not c.last_resort)))


def plans_of(network: ho.Network, levels: int, choices: Choices, reading: str = "executed") -> int:
    count = 1
    for layer in network.layers:
        count *= len(choices_of(layer, choices, reading)) ** levels
    return count


def every_plan_of(
    network: ho.Network,
    levels: int,
    choices: Choices,
    reading: str = "executed",
    constraints: ConstraintSet | None = None,
) -> Iterator[Rows]:
    """Every plan, in canonical order from the last layer back; of the states that are allowed."""
    counts = [len(choices_of(layer, choices, reading)) for layer in network.layers]
    every = canonical_states(levels, choices if isinstance(choices, int) else len(choices))
    states = [[state for state in every if max(state, default=0) < count] for count in counts]
    if constraints is not None:
        allowed = constraints.allowed(every)[-len(counts) :]
        own = [{s for s, fits in zip(every, row, strict=True) if fits} for row in allowed]
        states = [[s for s in each if s in some] for each, some in zip(states, own, strict=True)]
    for columns in itertools.product(*states[::-1]):
        yield tuple(zip(*columns[::-1], strict=True))


def priced_graph_plans(network: ho.Network, asked: Asked) -> list[tuple[Fraction, Rows]]:
    """Return every plan that keeps to what is asked, cheapest first, equals in canonical order."""
    instance = Instance.to_search(network, problem_of(network, **asked))
    try:
        constraints = instance.constraints
    except ho.HyparError:
        return []
    problem = instance.problem
    plans = every_plan_of(network, problem.levels, problem.choices, problem.reading, constraints)
    kept = [rows for rows in plans if constraints.allow(rows)]
    totals = totals_of(instance.workload, instance.cost, kept, instance.rule)
    return sorted(zip(totals, kept, strict=True), key=lambda each: each[0])


def solved(network: ho.Network, solver: str, search: str, asked: Asked) -> ho.Plan | str:
    """Return a solver's plan, or how it ended without one."""
    try:
        return ho.solve(network, solver=solver, search=search, **asked)
    except ho.HyparError as error:
        return type(error).__name__
