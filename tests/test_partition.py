"""Search over levels: Algorithm 2, and what is done with a solver's claims."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.readings import READINGS
from hypar_opt.costs.table import CostTable
from hypar_opt.errors import WrongClaimError
from hypar_opt.partition import solve_checked
from hypar_opt.solvers.base import SolveResult
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from tests.strategies import networks, tables


@given(networks(), st.integers(1, 9), st.integers(0, 5), st.sampled_from(list(READINGS)))
def test_dynamic_programming_is_brute_force_at_every_level(
    network: ho.Network, batch: int, levels: int, reading: str
) -> None:
    ours, oracle = (
        ho.solve(network, solver=solver, batch=batch, levels=levels, reading=reading)
        for solver in ("dp", "brute")
    )
    assert ours.parallelism == oracle.parallelism
    assert ours.cost == oracle.cost
    assert ours.solver.bound == ours.cost.total


@given(networks(), st.integers(1, 9), st.integers(0, 5), st.sampled_from(list(READINGS)))
def test_the_first_levels_of_a_plan_are_the_plan_of_fewer_levels(
    network: ho.Network, batch: int, levels: int, reading: str
) -> None:
    whole = ho.solve(network, batch=batch, levels=levels + 1, reading=reading)
    part = ho.solve(network, batch=batch, levels=levels, reading=reading)
    assert whole.parallelism[:levels] == part.parallelism
    assert whole.cost.per_level[:levels] == part.cost.per_level


@given(networks(), st.integers(1, 9), st.integers(0, 5), st.sampled_from(list(READINGS)))
def test_the_levels_sum_to_the_total(
    network: ho.Network, batch: int, levels: int, reading: str
) -> None:
    cost = ho.solve(network, batch=batch, levels=levels, reading=reading).cost
    assert sum(cost.per_level) == cost.total


def test_one_accelerator_communicates_nothing() -> None:
    plan = ho.solve("vgg-a", levels=0)
    assert plan.parallelism == ()
    assert plan.cost.total == 0
    assert plan.cost.per_level == ()
    assert plan.cost.ratios.data is None
    assert plan.cost.ratios.model is None


@pytest.mark.parametrize("levels", [30, 64])
@pytest.mark.parametrize("batch", [1, 3, 2**31 - 1])
def test_levels_far_past_the_last_image_are_priced_exactly(levels: int, batch: int) -> None:
    plan = ho.solve("lenet-c", batch=batch, levels=levels)
    assert len(plan.parallelism) == levels
    assert sum(plan.cost.per_level) == plan.cost.total == plan.solver.bound
    assert isinstance(plan.cost.total, int)
    assert plan.cost.total <= min(plan.cost.baselines.data, plan.cost.baselines.model)


def test_a_network_of_one_layer_takes_what_moves_less() -> None:
    layer = {"name": "fc", "kind": "fc", "units": 100}
    network = ho.Network.model_validate(
        {"name": "one", "input": {"features": 70}, "layer": [layer]}
    )
    # 56 KB against 25.6 KB, then 28 KB against 25.6 KB, then 14 KB against 25.6 KB.
    plan = ho.solve(network, batch=32, levels=3)
    assert [row[0].value for row in plan.parallelism] == ["model", "model", "data"]
    assert plan.cost.per_level == (25_600, 2 * 25_600, 4 * 14_000)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"objective": -1}, "claims -1, its assignment costs"),
        ({"bound": 10**9}, "claims the bound 1000000000, above"),
        ({"bound": -1}, "claims an optimum"),
        ({"bound": None}, "claims an optimum"),
        ({"assignment": ()}, "assigned 0 of"),
        ({"assignment": (7,)}, "outside the table's"),
    ],
)
@given(table=tables(longest=1))
def test_a_wrong_claim_is_never_taken_over(
    changes: dict[str, object], complaint: str, table: CostTable
) -> None:
    class Boaster(DynamicProgramming):
        def solve(self, table: CostTable) -> SolveResult:
            return replace(super().solve(table), **changes)  # type: ignore[arg-type]

    with pytest.raises(WrongClaimError, match=complaint):
        solve_checked(Boaster(), table)


def test_a_refusal_names_the_solver_and_the_network() -> None:
    network = ho.Network.model_validate(
        {
            "name": "long",
            "input": {"features": 1},
            "layer": [{"name": f"fc{n}", "kind": "fc", "units": 1} for n in range(25)],
        }
    )
    with pytest.raises(ho.HyparError, match=r"solver 'brute' on long: .*33,554,432"):
        ho.solve(network, solver="brute")


def test_progress_counts_levels() -> None:
    told: list[tuple[int, int]] = []
    ho.solve("sconv", levels=2, progress=lambda done, of: told.append((done, of)))
    assert told == [(0, 2), (1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch", 0),
        ("batch", True),
        ("batch", 2**31),
        ("batch", 1.5),
        ("levels", 65),
        ("levels", -1),
    ],
)
def test_a_batch_or_levels_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ho.HyparError, match=f"^{name} should be a whole number from"):
        ho.solve("sfc", **{name: value})  # type: ignore[arg-type]
