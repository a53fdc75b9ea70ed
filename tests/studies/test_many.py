"""Many problems at once have the plans that each of them has by itself."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.models import PAPER_NETWORKS
from hypar_opt.studies.many import ManyPlans, is_batched, solve_many
from hypar_opt.studies.random_networks import random_graph
from tests.slow import examples, fewer, slow_after
from tests.strategies.networks import networks
from tests.strategies.plans import READINGS
from tests.strategies.problems import random_network

SEARCHES = st.sampled_from(["levelwise", "joint"])


def assert_is_solved(many: ManyPlans, place: tuple[int, ...]) -> None:
    plan = many.plan(*place)
    baselines = plan.cost.baselines
    assert many.totals[place] == plan.cost.total
    assert many.data_parallel[place] == baselines.data
    assert many.model_parallel[place] == baselines.model
    assert many.executed_bytes[place] == plan.cost.executed_bytes
    assert many.data_parallel_bytes[place] == plan.cost.data_parallel_bytes
    rows = plan.assignments()
    for level in range(1, max(many.levels) + 1):
        expected = rows[level - 1] if level <= len(rows) else (0,) * len(plan.layers)
        assert tuple(many.choices(level)[place]) == expected
    assert many.counts[place].tolist() == [sum(state) for state in zip(*rows, strict=True)] or (
        not rows
    )


def axes(
    batches: st.SearchStrategy[int], levels: int
) -> st.SearchStrategy[dict[str, list[object]]]:
    return st.fixed_dictionaries(
        {
            "batch": st.lists(batches, min_size=1, max_size=3),
            "element_bytes": st.lists(
                st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=2, unique=True
            ),
            "reading": st.lists(
                st.sampled_from(list(READINGS)), min_size=1, max_size=2, unique=True
            ),
            "levels": st.lists(st.integers(0, levels), min_size=1, max_size=2, unique=True),
        }
    )


@examples(40)
@given(st.sampled_from(PAPER_NETWORKS), axes(st.integers(1, 5000), 12), SEARCHES, st.data())
def test_a_plan_of_many_is_the_plan_of_one(
    name: str, given_axes: dict[str, list[object]], search: str, data: st.DataObject
) -> None:
    many = solve_many(name, search=search, **given_axes)  # type: ignore[arg-type]
    for _ in range(4):
        place = tuple(data.draw(st.integers(0, size - 1)) for size in many.totals.shape)
        assert_is_solved(many, place)


@pytest.mark.parametrize("seed", slow_after(1, range(10)))
def test_all_of_ten_thousand_points_have_the_plan_of_one(seed: int) -> None:
    """1,000 of them a seed: of ten networks every combination of what is drawn. Or of a quarter."""
    rng, points, networks = Random(seed), 0, fewer(10)
    for _ in range(networks):
        network = random_network(rng, 4)
        many = solve_many(
            network,
            search=rng.choice(["levelwise", "joint"]),
            batch=rng.sample(range(1, 5000), 5),
            element_bytes=rng.sample([1, 2, 4, 8], 2),
            reading=rng.sample(list(READINGS), 2),
            levels=rng.sample(range(7), 5),
        )
        for place in np.ndindex(many.totals.shape):
            assert_is_solved(many, place)
            points += 1
    assert points == 100 * networks


@examples(20)
@given(networks(), axes(st.integers(1, 2**31 - 1), 40), SEARCHES)
def test_what_does_not_fit_64_bits_is_as_exact(
    network: ho.Network, given_axes: dict[str, list[object]], search: str
) -> None:
    # No fractional bytes, which a float holds up to 2^53 quarters only.
    given_axes["element_bytes"] = [8]
    many = solve_many(network, search=search, **given_axes)  # type: ignore[arg-type]
    assert_is_solved(many, (0, 0, 0, 0))
    assert_is_solved(many, (-1, -1, -1, -1))


@pytest.mark.parametrize("seed", slow_after(6, dict.fromkeys((179, *range(300)))))
def test_graphs_and_levels_of_any_parts_have_the_plan_of_one(seed: int) -> None:
    """Shared tensors are nodes of their own; where parts divide no channels, batches differ."""
    rng = Random(seed)
    network = random_graph(rng, most=8) if seed % 3 else random_network(rng, 4)
    hierarchies: list[tuple[int, ...]]
    hierarchies = rng.choice([[(2, 2, 2), (2, 2)], [(3, 3), (3,)], [(2, 3)], [(4,), (5,)]])
    halves = all(size in (2, 4) for sizes in hierarchies for size in sizes)
    try:
        many = solve_many(
            network,
            search=rng.choice(["levelwise", "joint"]),
            batch=rng.sample(range(1, 60), 3),
            reading=rng.sample(list(READINGS), 2) if halves else "executed",
            hierarchy=hierarchies,
        )
    except ho.HyparError as error:
        if "needs the reading" not in str(error):  # not all kinds of layers are charged in each
            raise
        return
    for place in np.ndindex(many.totals.shape):
        assert_is_solved(many, place)


def test_networks_of_the_zoo_are_solved_together() -> None:
    """As graphs, not one by one: the plans of both sides of a chunk are those of one."""
    for name in ("resnet-18", "gpt2"):
        assert is_batched(ho.load(name), "executed", Hierarchy((2,) * 4))
        many = solve_many(name, batch=range(1, 400))
        for batch in (1, 2, 255, 399):
            assert_is_solved(many, (batch - 1, 0, 0, 0))


def test_levels_may_stay_whole() -> None:
    whole = solve_many("sfc", hierarchy=(6, 8), whole_levels=True)
    assert whole.hierarchy == ((6, 8),)
    assert solve_many("sfc", hierarchy=[[6, 8], [2]]).levels == (5, 1)
    assert_is_solved(whole, (0, 0, 0, 0))


def test_many_are_shown_in_a_line_and_as_rows() -> None:
    many = solve_many("sfc", batch=[1, 64], levels=[1, 2, 3])
    assert repr(many) == (
        "<ManyPlans: 6 of SFC, levelwise: 2 batch x 1 element_bytes x 1 reading x 3 levels>"
    )
    rows = many.rows()
    assert [(row["batch"], row["levels"]) for row in rows[:4]] == [(1, 1), (1, 2), (1, 3), (64, 1)]
    assert rows[3]["totals"] == many.totals[1, 0, 0, 0]
    assert rows[3]["executed_bytes"] == many.executed_bytes[1, 0, 0, 0]


def test_levels_below_a_plans_are_not_model_parallel() -> None:
    many = solve_many("sfc", levels=[1, 9])
    assert many.bits.dtype == np.uint16
    assert not many.choices(9)[0, 0, 0, 0].any()


@pytest.mark.parametrize(
    ("axis", "values", "message"),
    [
        ("batch", [], "batch should have at least one value, got none"),
        ("batch", [1, 0, 2], "batch"),
        ("batch", [1, 2.5], "batch"),
        ("levels", [2, 65], "levels"),
        ("element_bytes", [4, 3], "one of 1, 2, 4, 8"),
        ("reading", ["text", "txt"], "txt"),
        ("hierarchy", (3, 1), "H2 should have 2 to"),
        ("hierarchy", [], "hierarchy should have at least one value"),
        ("search", "depth", "depth"),
    ],
)
def test_a_wrong_value_is_named(axis: str, values: object, message: str) -> None:
    with pytest.raises(ho.HyparError, match=message):
        solve_many("lenet-c", **{axis: values})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "choices",
            ("data", "model", "output"),
            "solve_many takes no choices, only batch, element",
        ),
        ("array", "hmc-htree-16", "solve_many takes no array, .*solve takes array, one problem"),
        ("cost", "time", "plans in bytes with two choices; hypar_opt.solve takes cost"),
        ("constraints", {"even": True}, "takes no constraints"),
        ("solver", "ilp", "takes no solver"),
        ("bacth", [1, 2], "unknown argument 'bacth': did you mean batch?"),
    ],
)
def test_what_only_solve_takes_is_named(name: str, value: object, message: str) -> None:
    with pytest.raises(ho.HyparError, match=message) as raised:
        solve_many("lenet-c", **{name: value})  # type: ignore[arg-type]
    assert "\n" not in str(raised.value)


def test_a_plan_is_at_four_places() -> None:
    many = solve_many("lenet-c")
    with pytest.raises(ho.HyparError, match="four positions"):
        many.plan(0, 0)
    with pytest.raises(ho.HyparError, match="from 1 to 4"):
        many.choices(5)
