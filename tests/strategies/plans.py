"""Plans drawn, enumerated and written down, for what an array charges them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.base import CostModel
from hypar_opt.costs.state_charges import canonical_states
from hypar_opt.hierarchy import SplitRule
from hypar_opt.instance.pricing import price_plans
from hypar_opt.plan.plan import words_of
from hypar_opt.planning.priced import plan_of
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.strategies.arrays import arrays
from tests.strategies.networks import networks

Rows = tuple[tuple[int, ...], ...]
Asked = dict[str, Any]

READINGS = ("text", "tables", "figures", "executed")
"""Those that charge each level by itself."""


@st.composite
def asked_of_arrays(draw: st.DrawFn, most_levels: int = 3) -> Asked:
    """What may be asked of a search on an array, but for the cost."""
    third = draw(st.booleans())
    readings = READINGS[: 2 if third else 4]
    array = draw(arrays(most_levels))
    return {
        "array": array,
        "placement": draw(st.sampled_from(list(array.orders()))),
        "batch": draw(st.integers(1, 9)),
        "reading": draw(st.sampled_from(readings)),
        "element_bytes": draw(st.sampled_from([1, 2, 4])),
        "inference": draw(st.booleans()),
        "choices": CHOICES[: 2 + third],
        "constraints": {"runnable": False},
    }


@st.composite
def plans(draw: st.DrawFn, cost: str) -> ho.Plan:
    """Any plan, good or bad, of a random network on a random array."""
    network, asked = draw(networks(longest=4)), draw(asked_of_arrays())
    choice = st.integers(0, len(asked["choices"]) - 1)
    layers = len(network.layers)
    rows = [draw(st.tuples(*[choice] * layers)) for _ in range(asked["array"].levels)]
    return plan_with(rows, network, cost=cost, **asked)


def plan_with(rows: list[tuple[int, ...]], network: Any, **asked: Any) -> ho.Plan:
    """Write down a plan that nobody searched for."""
    problem = ho.solve(network, solver="data", **asked)
    return plan_of(problem, words_of(rows, problem.words), bound=0, considered=1)


def every_plan(layers: int, levels: int, choices: int) -> Iterator[Rows]:
    """Every plan, in canonical order from the last layer back within equal costs."""
    for columns in itertools.product(canonical_states(levels, choices), repeat=layers):
        yield tuple(zip(*columns[::-1], strict=True))


def totals_of(
    workload: ho.Workload, cost: CostModel, plans: Sequence[Rows], rule: SplitRule | None = None
) -> list[Fraction]:
    """What plans of as many levels cost, whatever the constraints: priced together."""
    if not plans:
        return []
    none = [None] * len(plans)
    return [sum(each, Fraction()) for each in price_plans(workload, cost, plans, none, rule=rule)]


def workload(plan: ho.Plan) -> ho.Workload:
    return workload_of(plan.network.description, plan.batch, plan.choices)


def counts(plan: ho.Plan) -> list[tuple[int, int, int]]:
    """How often each layer takes data, model and output, over all levels."""
    return [
        (column.count("data"), column.count("model"), column.count("output"))
        for column in zip(*plan.parallelism, strict=True)
    ]


def macs(plan: ho.Plan) -> list[int]:
    """One pass's multiply-accumulates of each layer, as the array counts them."""
    assert plan.array is not None
    found = []
    for layer in workload(plan).layers:
        over = layer.output
        if plan.array.description.accelerator.mac_count == "input":
            over = layer.input
        count = plan.batch
        for size in (*layer.weight, *over[2:]):
            count *= size
        found.append(count)
    return found


def total(plan: ho.Plan) -> int:
    """A plan's cost, which is a whole number of its unit."""
    assert isinstance(plan.cost.total, int)
    return plan.cost.total
