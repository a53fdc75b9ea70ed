"""A cost that prices whole plans charges what its tables charge."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs import COSTS
from hypar_opt.costs.level_tables import joins_levels, level_table
from hypar_opt.costs.shared_nodes import rows_with_shared
from hypar_opt.costs.time import TimeCost
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import charges_by_level, price_table
from hypar_opt.plan.arguments import problem_of
from hypar_opt.step.states import state_grid
from tests.slow import examples


def instances() -> st.SearchStrategy[Instance]:
    bytes_alone: list[dict[str, Any]] = [
        {"reading": "text", "element_bytes": 1},
        {"reading": "figures"},
        {"reading": "executed", "level_weights": (5, 2, 2**30)},
        {"reading": "tables", "choices": ("data", "model", "output")},
        {"batch": 2**31 - 1, "levels": 40},  # Python's integers
        {"inference": True},
    ]
    on_an_array: list[dict[str, Any]] = [
        {"cost": cost, "array": array, "reading": reading}
        for cost in ("time", "energy")
        for array in ("hmc-torus-8", "a100-4x8")
        for reading in ("text", "executed")
    ]
    return st.builds(
        lambda name, given: Instance(
            ho.load(name), problem_of(ho.load(name), **({"levels": None, **given}))
        ),
        st.sampled_from(["lenet-c", "alexnet", "vgg-a"]),
        st.sampled_from([{"levels": 3, **row} for row in bytes_alone] + on_an_array),
    )


@examples(40)
@given(instances(), st.data())
def test_a_whole_plan_costs_what_its_tables_say(instance: Instance, data: st.DataObject) -> None:
    cost, workload = instance.cost, instance.workload
    choice = st.integers(0, len(workload.choices) - 1)
    row = st.lists(choice, min_size=len(workload.nodes), max_size=len(workload.nodes))
    levels = instance.problem.levels
    plans = data.draw(
        st.lists(st.lists(row, min_size=levels, max_size=levels), min_size=2, max_size=2)
    )
    for plan, own in zip(plans, charges_by_level(workload, cost, plans), strict=True):
        tables = [level_table(cost, workload, plan[:level]) for level in range(levels)]
        by_level = [price_table(*pair) for pair in zip(tables, plan, strict=True)]
        # Reported with other levels than those that add it.
        if workload.has_replicas or cost.level_separable(workload) is not cost:
            assert sum(own) == sum(by_level)
        elif not joins_levels(cost, workload, levels):
            assert own == by_level


@pytest.mark.parametrize("name", COSTS.built_in_names())
@pytest.mark.parametrize("array", ["hmc-htree-8", "a100-4x8"])
def test_charges_of_all_states_are_those_of_each(name: str, array: str) -> None:
    """What is the same along an axis is charged once; each state by itself has the same charges."""
    asked: Any = {"choices": ("data", "model", "output"), "reading": "executed", "array": array}
    instance = Instance(ho.load("alexnet"), problem_of(cost=name, **asked))
    cost, workload, levels = instance.cost, instance.workload, 3
    states = np.array([*itertools.product(range(3), repeat=levels)], np.intp).T
    every = list(state_grid([3] * levels))
    nodes = np.arange(len(workload.nodes))
    at_once = cost.node(workload, nodes.reshape(-1, 1, 1, 1), every)
    for row, alone in zip(
        at_once, cost.node(workload, nodes[:, None], [states[:, None]]), strict=True
    ):
        shape = len(nodes), states.shape[1]
        spread = np.broadcast_to(row, (len(nodes), 3, 3, 3)).reshape(shape)
        assert np.array_equal(spread, np.broadcast_to(alone, shape))
    boundaries = np.arange(len(workload.ends))
    pairs = cost.edge(
        workload,
        boundaries.reshape(-1, *[1] * 6),
        state_grid([3] * levels, behind=levels),
        state_grid([3] * levels, before=levels),
    )
    ends = [states[:, None, :, None]], [states[:, None, None]]
    alone_pairs = cost.edge(workload, boundaries[:, None, None], *ends)
    each_pair = len(boundaries), 27, 27
    for row, alone in zip(pairs, alone_pairs, strict=True):
        spread = np.broadcast_to(row, (len(boundaries), *[3] * 6)).reshape(each_pair)
        assert np.array_equal(spread, np.broadcast_to(alone, each_pair))


def test_a_cost_that_cannot_be_hashed_has_the_same_layouts() -> None:
    """As one of another package may be."""

    class Unhashable(TimeCost):
        __hash__ = None  # type: ignore[assignment]

    network = ho.gpt(layers=2, hidden=256, heads=4, tokens=128, vocabulary=512)
    instance = Instance(network, problem_of(network, batch=64, array="h100-8", cost="time"))
    workload, cost = instance.workload, instance.cost
    own = object.__new__(Unhashable)
    vars(own).update(vars(cost))
    rows = [workload.baselines["model"][workload.shared :]] * instance.problem.levels
    asked = workload, own, rows
    with pytest.raises(TypeError):
        hash(own)
    found = rows_with_shared(*asked, rule=instance.rule)
    assert found == rows_with_shared(workload, cost, rows, rule=instance.rule)
    assert len(found[0]) > len(rows[0])
