"""Plans in pipeline stages that nobody searched for: any cuts, choices, layouts and training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import hypar_opt as ho
from hypar_opt.costs.shared_nodes import Rows
from hypar_opt.errors import HyparError
from hypar_opt.hardware.arrays import find_array
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.stage import stage_instance
from hypar_opt.instance.staged import StagedPlan, StagePlan, in_stages_of
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.problem import Problem
from hypar_opt.plan.stages import Stages
from hypar_opt.simulator.pipeline_order import in_flight, orders
from hypar_opt.studies.random_networks import random_chain, random_graph
from hypar_opt.workload.parallelism import RECOMPUTED, SCHEDULES
from hypar_opt.workload.stages import cuts, cuts_between_blocks
from tests.strategies.ways_of_training import words_in

Choose = Callable[[Instance], Rows]
"""Returns choices of all nodes of a stage, ``(levels, nodes)``."""


def nodes_of_a100s(count: int, per_node: int, **keys: Any) -> ho.Array:
    described = find_array("a100-8").description()
    described["topology"] |= {"nodes": count, "per_node": per_node}
    return ho.Array.model_validate(described | keys)


def staged_problem(
    array: ho.Array,
    stages: Stages,
    micro_batches: int,
    schedule: str = "1f1b",
    *,
    training: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Problem:
    """Return a problem of a network in stages, which train in some way."""
    given = {"batch": 16, "choices": ("data", "model", "output"), **fields}
    stated = problem_of(array=array, cost="time", **given)
    problem = in_stages_of(stated, stages.parts, micro_batches, schedule)
    words = problem.training.model_dump() | dict(training or {})
    trained = type(problem.training).model_validate(words)
    return problem.model_copy(update={"training": trained})


def stage_instances(stages: Stages, problem: Problem) -> list[Instance]:
    """Return the problems of all stages."""
    training, network = problem.training, stages.network
    passes = orders(training.schedule, stages.parts, training.micro_batches or 1, stages.chunks)
    instances = []
    for part, order in enumerate(passes):
        chunks = stages.chunks_of(part)
        held = in_flight(order, [len(chunk) for chunk in chunks])
        instances.append(stage_instance(network, problem, part, stages.parts, chunks, held))
    return instances


def staged_plan(stages: Stages, problem: Problem, choose: Choose) -> StagedPlan:
    """Return the plan whose stages make some choices."""
    plans = []
    for instance in stage_instances(stages, problem):
        rows, workload = choose(instance), instance.executed_workload
        tensors = [{node: row[node] for node in workload.tensor_writers} for row in rows]
        layers = tuple(tuple(row[workload.shared :]) for row in rows)
        plans.append(StagePlan(instance, layers, tuple(tensors)))
    return StagedPlan.of(stages.network, problem, stages, plans)


def offered(instance: Instance) -> list[list[int]]:
    """Return the choices that each node of a stage has."""
    every = instance.executed_workload.choices_of_nodes
    return [[number for number, choice in enumerate(own) if choice] for own in every]


def drawn_network(rng: Random) -> ho.Network:
    kind = rng.choice(["gpt", "gpt", "chain", "graph"])
    if kind == "chain":
        return random_chain(rng, "chain")
    if kind == "graph":
        return random_graph(rng, most=6)
    blocks, tied = rng.randint(1, 4), rng.random() < 0.5
    hidden = rng.choice([32, 96])
    return ho.gpt(layers=blocks, hidden=hidden, heads=4, tokens=8, vocabulary=64, tied=tied)


def drawn_training(rng: Random, network: ho.Network, levels: int) -> dict[str, Any]:
    """Return how a step trains, in words of all layers or of each."""
    blocks = [network.layers[b[0]].name for own in network.repeats for b in own.repetitions]
    shards = [word for word in words_in(levels) if "@H2" not in word]  # H2 is a stage's first
    training: dict[str, Any] = {}
    for key, words, named in (
        ("recompute", RECOMPUTED, blocks),
        ("shard", shards, [layer.name for layer in network.layers]),
        ("gather", ("once", "again"), [layer.name for layer in network.layers]),
    ):
        way = rng.random()
        if way < 0.3:
            training[key] = rng.choice(words)
        elif way < 0.6 and named:
            training[key] = {name: rng.choice(words) for name in named}
    return training


def drawn_staged_plan(rng: Random) -> StagedPlan:
    """Return a plan of a drawn network in 2 or 4 stages, some of them interleaved."""
    while True:
        try:
            if (plan := _tried(rng)) is not None:
                return plan
        except HyparError:  # no such problem, or choices that its constraints forbid
            continue


def drawn_plan_of(rng: Random, plan: ho.Plan) -> StagedPlan:
    """Return another plan of a plan's network in as many stages and micro-batches."""
    network, parts = plan.network.description, plan.hierarchy.sizes[0]
    places = cuts_between_blocks(network)
    assert plan.array is not None
    while True:
        stages = Stages(
            network, parts, (*sorted(rng.sample(places, parts - 1)), len(network.layers))
        )
        drawn = drawn_training(rng, network, plan.levels)
        words = plan.training.model_dump() | {key: drawn.get(key) for key in ("recompute", "shard")}
        trained = type(plan.training).model_validate(words)
        problem = plan.problem.model_copy(update={"training": trained})
        try:
            own = staged_plan(stages, problem, drawn_choices(rng))
            own.check()
        except (
            HyparError
        ):  # shared weights that are sharded in two ways, or choices that do not fit
            continue
        return own


def drawn_choices(rng: Random) -> Choose:
    def choose(instance: Instance) -> Rows:
        columns = offered(instance)
        return [[rng.choice(own) for own in columns] for _ in range(instance.problem.levels)]

    return choose


def _tried(rng: Random) -> StagedPlan | None:
    network = drawn_network(rng)
    if network.inputs:
        return None
    collective = rng.choice(["pairwise", "ring", "hierarchical"])
    array = nodes_of_a100s(*rng.choice([(2, 2), (2, 4), (4, 2)]), collective=collective)
    parts = rng.choice([2, 4]) if array.hierarchy().accelerators > 4 else 2
    chunks, places = rng.choice([1, 1, 2]), cuts(network)
    if len(places) < parts * chunks - 1:
        return None
    ends = *sorted(rng.sample(places, parts * chunks - 1)), len(network.layers)
    stages = Stages(network, parts, ends)
    size = rng.choice([2, 4])
    fields: dict[str, Any] = {
        "element_bytes": size,
        "reading": rng.choice(["executed", "joined"]),
        "choices": ("data", "model", "output")[: rng.choice([2, 3])],
        "constraints": {"optimizer": "adam", "runnable": False},
    }
    levels = array.levels if parts == 2 else array.levels - 1
    training = drawn_training(rng, network, levels)
    if rng.random() < 0.3:
        training["reduce_bytes"] = 4
    schedule = "1f1b" if chunks > 1 else rng.choice(SCHEDULES)
    count = rng.choice([4, 8] if chunks > 1 else [1, 2, 4])
    problem = staged_problem(array, stages, count, schedule, training=training, **fields)

    plan = staged_plan(stages, problem, drawn_choices(rng))
    plan.check()
    return plan
