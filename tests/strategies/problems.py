"""Random problems that some plan keeps to, and every plan of them, priced."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import ceil, prod
from random import Random
from typing import Any

import hypar_opt as ho
from hypar_opt.costs import COSTS
from hypar_opt.costs.state_charges import canonical_states
from hypar_opt.hardware.accelerator import OPTIMIZERS
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.problem import Problem
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.strategies.plans import READINGS, Asked, Rows, every_plan, totals_of

SIZES = (1, 2, 3, 4, 6, 8)


def random_network(rng: Random, longest: int) -> ho.Network:
    """Convolutions, some of them pooled, then fully-connected layers; sizes odd and even."""
    count = rng.randint(1, longest)
    convolutions = rng.randint(0, count)
    side = rng.randint(2, 6)
    reads = {"features": rng.choice(SIZES)}
    if convolutions:
        reads = {"channels": rng.choice(SIZES), "height": side, "width": side}
    layers: list[dict[str, Any]] = []
    for place in range(convolutions):
        kernel = rng.randint(1, min(side, 3))
        side -= kernel - 1
        layer = {"name": f"conv{place}", "kind": "conv", "kernel": kernel}
        if side >= 2 and rng.random() < 0.5:
            layer["pool"] = {"kind": "max", "size": 2}
            side //= 2
        layers.append(layer | {"filters": rng.choice(SIZES)})
    layers += [
        {"name": f"fc{place}", "kind": "fc", "units": rng.choice(SIZES)}
        for place in range(convolutions, count)
    ]
    return ho.Network.model_validate({"name": "random", "input": reads, "layer": layers})


def random_problem(
    rng: Random, longest: int = 4, most_levels: int = 4, most_plans: int = 2**16
) -> tuple[ho.Network, Asked]:
    """A network and what is asked of a search, in bytes; some plan keeps to all of it.

    Constraints are read off a plan that is drawn first, so that one does.
    """
    network = random_network(rng, longest)
    choices = CHOICES[: rng.choice([2, 2, 3])]
    layers, levels = len(network.layers), rng.randint(1, most_levels)
    while len(choices) ** (layers * levels) > most_plans:
        levels -= 1
    asked: Asked = {
        "batch": rng.choice([1, 2, 3, 5, 8, 16]),
        "levels": levels,
        "choices": choices,
        "reading": rng.choice(READINGS[: 2 if len(choices) > 2 else 4]),
        "element_bytes": rng.choice([1, 2, 4, 8]),
        "inference": rng.random() < 0.15,
    }
    if rng.random() < 0.3:
        same = rng.random() < 0.2
        weights = [rng.randint(1, 4) for _ in range(levels)]
        asked["level_weights"] = tuple(weights[:1] * levels if same else weights)
    asked["constraints"] = _random_constraints(rng, network, asked)
    return network, asked


def _random_constraints(rng: Random, network: ho.Network, asked: Asked) -> dict[str, Any]:
    levels, choices, batch = asked["levels"], asked["choices"], asked["batch"]
    workload = workload_of(network, batch)
    states = canonical_states(levels, len(choices))
    asked_for = rng.choice([{}, {}, {}, {"even": True}, {"runnable": True}])
    allowed = [
        [state for state in states if divides(layer, batch, state, **asked_for)]
        for layer in workload.layers
    ]
    found: dict[str, Any] = dict(asked_for) if all(allowed) else {}
    columns = [rng.choice(some or states) for some in allowed]
    names = [layer.name for layer in network.layers]
    pins = []
    for name, column in zip(names, columns, strict=True):
        level = rng.randrange(levels)
        if rng.random() < 0.15:
            pins.append(f"{name}@H{level + 1}={choices[column[level]]}")
        elif len(set(column)) == 1 and rng.random() < 0.3:
            pins.append(f"{name}={choices[column[0]]}")
    found["fix"] = tuple(pins)
    if rng.random() < 0.25:
        found["optimizer"] = rng.choice([*OPTIMIZERS, "3"])
        unlimited = problem_of(**asked, constraints=found)
        needed = memory(workload, unlimited, tuple(zip(*columns, strict=True)))
        found["memory"] = ceil(needed * Fraction(rng.choice([4, 4, 5, 8]), 4))
    return found


def memory(workload: ho.Workload, problem: Problem, rows: Rows) -> Fraction:
    """Return the bytes of an accelerator's shard: by docs/solvers.md, in own arithmetic."""
    size, total = problem.element_bytes, Fraction()
    state, sizes = problem.constraints.optimizer_bytes(size), problem.hierarchy.sizes
    for layer, column in zip(workload.layers, columns_of(rows, len(workload.layers)), strict=True):
        data, model, output = (
            prod(size for size, own in zip(sizes, column, strict=True) if own == choice)
            for choice in range(3)
        )
        weights = Fraction(elements(layer.weight), model * output)
        maps = Fraction(elements(layer.input), data * model)
        maps += Fraction(elements(layer.output), data * output)
        if problem.inference:
            total += size * (weights + maps)
        else:
            total += (2 * size + state) * weights + 2 * size * maps
    return total


def columns_of(rows: Rows, layers: int) -> list[tuple[int, ...]]:
    """Return each layer's choices, H1 first; of no levels too."""
    return [tuple(row[place] for row in rows) for place in range(layers)]


def elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def divides(
    layer: Any, batch: int, state: tuple[int, ...], *, even: bool = False, runnable: bool = False
) -> bool:
    """Whether a layer's choices divide its batch and channels, into equal parts or at all."""
    # Convolutions and fully-connected layers without tokens: all three choices split an axis.
    splits = (layer.operator.splits[word] for word in CHOICES[1:])
    sizes = [batch, *(layer.sizes[choice.axis] for choice in splits)]
    parts = [(size, 2 ** state.count(choice)) for choice, size in enumerate(sizes)]
    if even and any(size % count for size, count in parts):
        return False
    return not runnable or all(size >= count for size, count in parts)


def keeps(workload: ho.Workload, problem: Problem, rows: Rows) -> bool:
    """Whether a plan keeps to a problem's constraints; pins without patterns."""
    asked = problem.constraints
    names = [layer.name for layer in workload.layers]
    for pin in asked.fix:
        where, _, choice = pin.partition("=")
        name, _, level = where.partition("@H")
        pinned = rows[int(level) - 1 : int(level)] if level else rows
        if any(problem.choices[row[names.index(name)]] != choice for row in pinned):
            return False
    columns = zip(workload.layers, columns_of(rows, len(names)), strict=True)
    rules = {"even": asked.even, "runnable": asked.runnable}
    if not all(divides(layer, problem.batch, column, **rules) for layer, column in columns):
        return False
    return asked.memory is None or memory(workload, problem, rows) <= asked.memory


def priced_plans(network: ho.Network, asked: Asked) -> list[tuple[Fraction, Rows]]:
    """Return every plan that keeps to what is asked, cheapest first, equals in canonical order."""
    problem = problem_of(**asked)
    workload = workload_of(network, problem.batch, problem.choices)
    cost = COSTS[problem.cost].from_problem(problem, workload)
    plans = every_plan(len(workload.layers), problem.levels, len(problem.choices))
    kept = [rows for rows in plans if keeps(workload, problem, rows)]
    return sorted(zip(totals_of(workload, cost, kept), kept, strict=True), key=lambda each: each[0])


def orders(rows: Rows) -> set[Rows]:
    """Return all the orders of a plan's levels."""
    return set(itertools.permutations(rows))
