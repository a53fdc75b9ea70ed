"""A cost that prices whole plans charges what its tables charge."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs import COSTS
from hypar_opt.costs.base import SplitCounts, level_table
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import price_table
from hypar_opt.plan.arguments import problem_of


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


@settings(max_examples=40)
@given(instances(), st.data())
def test_a_whole_plan_costs_what_its_tables_say(instance: Instance, data: st.DataObject) -> None:
    cost, workload = instance.cost, instance.workload
    choice = st.integers(0, cost.choices - 1)
    row = st.lists(choice, min_size=len(workload.nodes), max_size=len(workload.nodes))
    levels = instance.problem.levels
    plans = data.draw(
        st.lists(st.lists(row, min_size=levels, max_size=levels), min_size=2, max_size=2)
    )
    charged = cost.of_plans(workload, np.array(plans, np.intp))
    if charged is None:
        assert workload.has_replicas(cost.choices)
        return
    for plan, own in zip(plans, charged.tolist(), strict=True):
        above = SplitCounts.down(len(workload.nodes), cost.choices, plan)
        tables = [
            level_table(cost, workload, splits) for splits, _ in zip(above, plan, strict=False)
        ]
        assert own == [price_table(*pair) for pair in zip(tables, plan, strict=True)]


@pytest.mark.parametrize("name", COSTS.built_in_names())
def test_boundaries_read_no_splits_that_a_cost_says_they_do_not(name: str) -> None:
    """A table of all levels asks only once where they do not matter."""
    instance = Instance(
        ho.load("alexnet"),
        problem_of(
            cost=name, array="hmc-htree-8", choices=("data", "model", "output"), reading="executed"
        ),
    )
    cost, workload = instance.cost, instance.workload
    reads = cost.reads_splits(workload)
    states = [
        SplitCounts.uniform(len(workload.nodes), n) for n in [(2, 0, 0), (0, 2, 0), (0, 0, 2)]
    ]
    for source, target in ((s, t) for s in states for t in states):
        ends = [
            own if read else states[0] for own, read in zip((source, target), reads, strict=True)
        ]
        assert np.array_equal(cost.edge(workload, source, target), cost.edge(workload, *ends))


def test_a_solve_without_an_array_imports_no_networkx() -> None:
    code = "import sys, hypar_opt as ho; ho.solve('vgg-e'); sys.exit('networkx' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
