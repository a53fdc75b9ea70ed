"""Weights that several layers share: every search and solver against every plan there is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, prod
from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.costs.shared_nodes import Tensors
from hypar_opt.errors import InfeasibleError, RefusedError
from hypar_opt.hardware.arrays import find_array
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_plans
from hypar_opt.plan.arguments import problem_of
from hypar_opt.proofs.certificate import certify, check_certificate
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import slow_after
from tests.strategies.arrays import random_array
from tests.strategies.graph_problems import every_plan_of, plans_of
from tests.strategies.plans import Asked, Rows

BLOCKS = 40
"""Of the random problems, each a test, so that they run in parallel."""


def tied_network(rng: Random) -> ho.Network:
    """A chain of layers, two or three of which share their weights."""
    size, other = rng.choice([2, 3, 4, 8, 64]), rng.choice([1, 2, 3, 4, 8, 48])
    layers: list[dict[str, Any]]
    if rng.random() < 0.5:
        reads = {"tokens": rng.choice([1, 2, 4]), "vocabulary": size}
        layers = [{"name": "embed", "kind": "embedding", "features": other}]
        if rng.random() < 0.4:
            layers.append({"name": "middle", "kind": "fc", "units": other})
        layers.append({"name": "head", "kind": "fc", "units": size, "tied": "embed"})
        if rng.random() < 0.3:
            layers.append({"name": "loss", "kind": "output"})
    else:
        reads = {"features": size}
        layers = [{"name": "one", "kind": "fc", "units": other}]
        other = size if rng.random() < 0.4 else other
        layers[0]["units"] = other
        if other != size:
            layers.append({"name": "middle", "kind": "fc", "units": size})
        layers.append({"name": "two", "kind": "fc", "units": other, "tied": "one"})
        if other == size and rng.random() < 0.5:
            layers.append({"name": "three", "kind": "fc", "units": size, "tied": "one"})
    described = {"schema": "hypar-opt/network/2", "name": "tied", "input": reads, "layer": layers}
    return ho.Network.model_validate(described)


@dataclass(frozen=True)
class Case:
    """A problem of which every plan can be priced."""

    network: ho.Network
    asked: Asked

    @classmethod
    def of(cls, seed: int, *costs: str) -> Case:
        rng = Random(seed)
        cost = rng.choice(costs)
        while True:
            network, levels = tied_network(rng), rng.randint(1, 3)
            count = rng.choice([2, 2, 3])
            reading = rng.choice(["executed", "text", "tables", *["figures"] * (count == 2)])
            # What is whole couples levels, and is priced plan by plan.
            most = 2**5 if (count, reading) == (3, "executed") else 2**9
            if plans_of(network, levels, count, reading) <= most:
                break
        asked: Asked = {
            "cost": cost,
            "reading": reading,
            "choices": CHOICES[:count],
            "batch": rng.choice([1, 2, 4, 16]),
            "element_bytes": rng.choice([1, 2, 4]),
            "inference": rng.random() < 0.1,
        }
        if cost == "bytes":
            asked["levels"] = levels
            if rng.random() < 0.2:
                asked["level_weights"] = tuple(rng.randint(1, 4) for _ in range(levels))
        else:
            asked["array"] = random_array(rng, levels)
            asked["training"] = {"shard": "none"}  # else the search shards what is updated
        constraints: dict[str, Any] = {"even": rng.random() < 0.15, "runnable": False}
        if rng.random() < 0.3:
            word = rng.choice(["data", "model"])
            level = rng.choice(["", f"@H{rng.randint(1, levels)}"])
            constraints["fix"] = (f"{rng.choice(network.layers).name}{level}={word}",)
        return cls(network, asked | {"constraints": constraints})

    @property
    def is_a_cut(self) -> bool:
        """Whether levels are alike, so that two choices a layer are all there is."""
        fixed = self.asked["constraints"].get("fix", ())
        alike = self.asked["cost"] == "bytes" and "level_weights" not in self.asked
        return alike and len(self.asked["choices"]) == 2 and "@" not in "".join(fixed)

    def within(self, memory: int) -> Case:
        constraints = self.asked["constraints"] | {"memory": memory}
        return Case(self.network, self.asked | {"constraints": constraints})

    @cached_property
    def instance(self) -> Instance:
        constraints = {"even": False, "runnable": False}
        return Instance(
            self.network, problem_of(self.network, **self.asked | {"constraints": constraints})
        )

    @cached_property
    def plans(self) -> list[Rows]:
        """Every plan that keeps to pins and even splits, in canonical order."""
        problem = self.instance.problem
        every = every_plan_of(self.network, problem.levels, len(problem.choices), problem.reading)
        return [rows for rows in every if self._keeps(rows)]

    @cached_property
    def priced(self) -> list[Fraction]:
        """What each costs, by its own rows: nothing but weights is shared, and these follow."""
        if not self.plans:
            return []
        none: Tensors = ({},) * len(self.plans[0])
        instance = self.instance
        prices = price_plans(instance.workload, instance.cost, self.plans, [none] * len(self.plans))
        return [sum(levels, Fraction()) for levels in prices]

    @cached_property
    def memories(self) -> list[int]:
        return [self.memory(rows) for rows in self.plans]

    def best(self, memory: int | None = None) -> tuple[Fraction, Rows] | None:
        """The cheapest plan; of equals the first."""
        fits = [
            (cost, n)
            for n, cost in enumerate(self.priced)
            if memory is None or self.memories[n] <= memory
        ]
        if not fits:
            return None
        cost, n = min(fits)
        return cost, self.plans[n]

    def level_by_level(self, memory: int) -> Rows:
        """Each level's cheapest row that some rows below complete within the memory."""
        left = [
            rows for rows, needed in zip(self.plans, self.memories, strict=True) if needed <= memory
        ]
        instance, levels = self.instance, len(left[0])
        for level in range(levels):
            begun = list(dict.fromkeys(rows[: level + 1] for rows in left))
            prices = price_plans(
                instance.workload, instance.cost, begun, [({},) * (level + 1)] * len(begun)
            )
            found = min(
                zip(prices, begun, strict=True), key=lambda each: (sum(each[0]), each[1][-1][::-1])
            )[1]
            left = [rows for rows in left if rows[: level + 1] == found]
        return left[0]

    def _keeps(self, rows: Rows) -> bool:
        constraints = self.asked["constraints"]
        for layer, state in zip(self.network.layers, zip(*rows, strict=True), strict=True):
            own = [layer.splits[word] for word in self.asked["choices"] if word in layer.splits]
            for column, choice in enumerate(own):
                size = self._sizes[layer.name].get(choice.axis, 1) if choice.axis else 1
                if constraints["even"] and choice.axis and size % 2 ** state.count(column):
                    return False
            for pin in constraints.get("fix", ()):
                where, word = pin.split("=")
                name, _, level = where.partition("@H")
                pinned = [state[int(level) - 1]] if level else state
                words = [choice.word for choice in own]
                # "model" is the second choice of a layer that has no word for it.
                column = words.index(word) if word in words else 1
                if name in ("*", layer.name) and set(pinned) != {column}:
                    return False
        return True

    @cached_property
    def _sizes(self) -> dict[str, dict[str, int]]:
        return {layer.name: dict(layer.sizes) for layer in self.instance.workload.layers}

    def memory(self, rows: Rows) -> int:
        """Bytes of an accelerator: each tensor's shard, shared weights once; doubled in training.

        A choice halves the tensors that have its axis. Shared weights are halved where all their
        users halve them alike.
        """
        states = list(zip(*rows, strict=True))
        weights, maps = Fraction(), Fraction()
        owner_of = {x.name: x.shares_weights_with or x.name for x in self.network.layers}
        users: dict[str, list[int]] = {}
        for n, layer in enumerate(self.network.layers):
            users.setdefault(owner_of[layer.name], []).append(n)
        tensors = self.instance.workload.layers
        for n, (layer, own) in enumerate(zip(self.network.layers, tensors, strict=True)):
            splits = [layer.splits.get(word) for word in self.asked["choices"]]
            # A kind is whole under a word that it lacks.
            axes = [choice.axis if choice else "" for choice in map(splits.__getitem__, states[n])]
            contraction = layer.axes
            read, weight, written = contraction.input, contraction.weight, contraction.output
            for shape, of in ((own.input, read), (own.output, written)):
                elements = Fraction(prod(shape) if of else 0)
                maps += elements / 2 ** sum(bool(axis) and axis in of for axis in axes)
            together = users[owner_of[layer.name]]
            if weight and n == together[0]:
                alike = [len({states[user][h] for user in together}) == 1 for h in range(len(rows))]
                halved = sum(a and axis in weight for a, axis in zip(alike, axes, strict=True))
                weights += Fraction(prod(own.weight)) / 2**halved
        copies = 1 if self.asked["inference"] else 2
        needed: int = ceil(self.asked["element_bytes"] * copies * (weights + maps))
        return needed


def solved(case: Case, solver: str, search: str = "joint") -> ho.Plan:
    return ho.solve(case.network, solver=solver, search=search, **case.asked)


def cases(block: int, count: int, *costs: str) -> Iterator[tuple[int, Case]]:
    for seed in range(block, count, BLOCKS):
        case = Case.of(seed, *costs)
        if case.plans:
            yield seed, case


@pytest.mark.parametrize("block", slow_after(1, range(BLOCKS)))
def test_the_least_of_all_plans_is_found_and_proved(block: int) -> None:
    """In time, energy and bytes; of equals every exact solver returns the first."""
    for seed, case in cases(block, 300, "time", "time", "energy", "bytes"):
        cost, rows = case.best() or pytest.fail("no plan")
        solvers = ["dp", *["cut"] * case.is_a_cut]
        if seed % 60 < 2:
            solvers += ["brute", "cpsat", "ilp"]
        for solver in solvers:
            try:
                plan = solved(case, solver)
            except RefusedError as error:
                if "counts in 64 bits" not in error.message:
                    raise
                continue
            assert plan.cost.total == plan.solver.bound == cost, (seed, solver)
            assert (plan.assignments(), plan.solver.status) == (rows, "optimal"), (seed, solver)
        assert price_of(plan) == cost
        if seed % 10 == 0:
            check_certificate(plan, certify(plan))


@pytest.mark.parametrize("block", slow_after(1, range(BLOCKS)))
def test_the_least_of_all_plans_within_a_memory_is_found_and_the_smallest_memory_fits(
    block: int,
) -> None:
    for seed, case in cases(block, 200, "bytes", "bytes", "bytes", "time", "energy"):
        least = min(case.memories)
        if problem_of(case.network, **case.within(least).asked).device_memory is not None:
            continue  # it is counted as a device holds it: test_within_memory.py
        with pytest.raises(InfeasibleError, match=rf"that suffices is {least:,} bytes"):
            solved(case.within(least - 1), "brute")
        for memory in (least, Random(seed).choice(case.memories)):
            limited, best = case.within(memory), case.best(memory)
            solvers = ["brute", "dp", *["cpsat", "ilp"] * (seed % 40 < 2)]
            for solver in solvers:
                plan = solved(limited, solver)
                found = Fraction(plan.cost.total), plan.assignments()
                assert found == best, (seed, memory, solver)
                assert plan.solver.status == "optimal", (seed, memory, solver)
                if case.asked["cost"] == "bytes":
                    plan = solved(limited, solver, "levelwise")
                    assert plan.assignments() == case.level_by_level(memory), (seed, memory, solver)
            assert price_of(plan) == plan.cost.total


@pytest.mark.parametrize("seed", slow_after(4, range(0, 300, 10)))
def test_regrets_and_best_plans_are_those_of_every_plan(seed: int) -> None:
    case = Case.of(seed, "time", "energy", "bytes")
    if not case.plans:
        return
    plan = solved(case, "dp")
    ranked = sorted(case.priced)
    assert [row.total for row in ho.best_plans(plan, 4) for _ in range(row.count)][:4] == ranked[:4]
    position = {name: n for n, name in enumerate(plan.layers)}
    for regret in ho.regrets(plan):
        layer, level = position[regret.layer], regret.level - 1
        column = plan.words[layer].index(regret.choice)
        costs = [
            cost
            for cost, own in zip(case.priced, case.plans, strict=True)
            if own[level][layer] == column
        ]
        extra = min(costs) - ranked[0] if costs else None
        assert regret.extra == extra, regret


def test_a_front_has_every_least_cost_within_a_memory() -> None:
    """All points that no plan beats in both are those of dp, which shares labels between them."""
    for seed in range(20):
        case = Case.of(seed, "bytes")
        if not case.plans:
            continue
        (front,) = ho.pareto(case.network, solver="dp", **case.asked)
        least: list[tuple[Fraction, int]] = []
        for cost, memory in sorted(zip(case.priced, case.memories, strict=True)):
            if not least or memory < least[-1][1]:
                least.append((cost, memory))
        found = [(Fraction(point.total), point.memory) for point in front]
        assert (front.complete, found) == (True, least), seed


def test_a_penalty_may_exceed_int64() -> None:
    """A message over these links takes 10^24 s: charges are Python's integers."""
    array = find_array("hmc-htree-4").description()
    array["topology"]["link"]["latency"] = "1e30 us"
    network = tied_network(Random(0))
    asked: Asked = {"array": ho.Array.model_validate(array), "cost": "time", "search": "joint"}
    free = ho.solve(network, solver="brute", **asked)
    memory = Instance.of_plan(free).constraints.memory_of(free.assignments())
    for solver in ("dp", "brute", "ilp"):
        within = ho.solve(network, solver=solver, constraints={"memory": memory}, **asked)
        assert within.cost.total == free.cost.total > 10**24
