"""Search over levels: Algorithm 2, and what is done with a solver's claims."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.table import CostTable
from hypar_opt.errors import WrongClaimError
from hypar_opt.search.check_result import check_claim
from hypar_opt.solvers.base import SolverOptions
from hypar_opt.solvers.dynamic_programming import DynamicProgramming
from tests.strategies.networks import networks
from tests.strategies.plans import READINGS
from tests.strategies.tables import tables


@given(networks(), st.integers(1, 9), st.integers(0, 5), st.sampled_from(list(READINGS)))
def test_the_first_levels_of_a_plan_are_the_plan_of_fewer_levels(
    network: ho.Network, batch: int, levels: int, reading: str
) -> None:
    whole = ho.solve(network, batch=batch, levels=levels + 1, reading=reading)
    part = ho.solve(network, batch=batch, levels=levels, reading=reading)
    assert whole.parallelism[:levels] == part.parallelism
    assert whole.cost.per_level[:levels] == part.cost.per_level
    assert sum(whole.cost.per_level) == whole.cost.total


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


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"objective": -1}, "claims -1, its assignment costs"),
        ({"bound": 10**9}, "claims the bound 1000000000, above"),
        ({"bound": -1}, "claims an optimum"),
        ({"bound": None}, "claims an optimum"),
        ({"bound": 0.5}, "whole numbers"),
        ({"assignment": (0.5,)}, "whole numbers"),
        ({"assignment": ()}, "assigned 0 of"),
        ({"assignment": (7,)}, "outside the table's"),
    ],
)
@given(table=tables(longest=1, limited=False))
def test_a_wrong_claim_is_never_taken_over(
    changes: dict[str, object], complaint: str, table: CostTable
) -> None:
    result = DynamicProgramming().solve(table, SolverOptions())
    check_claim(table, result)
    with pytest.raises(WrongClaimError, match=complaint):
        check_claim(table, replace(result, **changes))  # type: ignore[arg-type]


@given(table=tables(longest=3))
def test_what_is_not_allowed_is_never_taken_over(table: CostTable) -> None:
    free = replace(table, allowed=None, limits=())
    result = DynamicProgramming().solve(free, SolverOptions()) if free.is_chain else None
    if result is not None and result.assignment is not None:
        forbidden = np.ones(table.node.shape, bool)
        forbidden[0, result.assignment[0]] = False
        with pytest.raises(WrongClaimError, match="not allowed"):
            check_claim(replace(free, allowed=forbidden), result)
        heavy = replace(free, limits=((np.ones_like(table.node), table.layers - 1),))
        with pytest.raises(WrongClaimError, match="more than the capacity"):
            check_claim(heavy, result)


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
    ("name", "value", "complaint"),
    [
        ("batch", 0, "batch: should be greater than or equal to 1, got 0"),
        ("batch", True, "batch: should be a whole number, got true"),
        ("batch", 2**31, "batch: should be less than or equal to 2147483647"),
        ("batch", 1.5, "batch: should be a whole number, got 1.5"),
        ("levels", 65, "levels: should be less than or equal to 64, got 65"),
        ("levels", -1, "levels: should be greater than or equal to 0, got -1"),
        ("element_bytes", 3, "element_bytes: should be one of 1, 2, 4, 8, got 3"),
        ("inference", 1, "inference: should be True or False, got 1"),
        ("reading", 1, "reading: should be a string, got 1"),
        ("reading", "txt", "unknown reading 'txt': did you mean text?"),
        ("choices", ("data",), "choices: should be data, model, or these and some of output"),
        ("choices", ("data", "modle"), "choices: unknown choice 'modle': did you mean model?"),
        ("level_weights", (1, 2), "level_weights: should be one for each of 4 levels, got 2"),
        ("depth", 3, "unknown argument 'depth'"),
        ("search", "jont", "unknown search 'jont': did you mean joint?"),
        ("solver", "dq", "unknown solver 'dq': did you mean dp?"),
    ],
)
def test_a_wrong_option_is_refused_by_name_before_any_work(
    name: str, value: object, complaint: str
) -> None:
    with pytest.raises(ho.HyparError) as raised:
        ho.solve("sfc", **{name: value})  # type: ignore[arg-type]
    assert str(raised.value).startswith(complaint)


@pytest.mark.parametrize("network", [None, 3, "", b"sfc", "x" * 5000, "a\0b.toml"])
def test_what_is_no_network_is_refused(network: object) -> None:
    with pytest.raises(ho.HyparError):
        ho.solve(network)  # type: ignore[arg-type]
