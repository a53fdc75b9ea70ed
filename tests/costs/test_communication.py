"""The communication model against closed forms that hold for any plan of any network."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.level_tables import level_table
from hypar_opt.costs.readings import INFERENCE, READINGS
from hypar_opt.instance.pricing import price_levels, price_table
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.strategies.networks import networks


@st.composite
def plans(draw: st.DrawFn) -> tuple[ho.Workload, list[list[int]]]:
    """A random network with a random batch, and any plan of up to five levels for it."""
    workload = ho.Workload.of(ho.layer_graph(draw(networks())), draw(st.integers(1, 9)))
    row = st.lists(st.integers(0, 1), min_size=len(workload.layers), max_size=len(workload.layers))
    return workload, draw(st.lists(row, max_size=5))


def total(workload: ho.Workload, rows: list[list[int]], cost: CommunicationCost) -> Fraction:
    return sum(price_levels(workload, cost, rows), Fraction())


@given(plans())
def test_intra_layer_communication_telescopes_and_boundaries_count_levels(
    plan: tuple[ho.Workload, list[list[int]]],
) -> None:
    """docs/decisions/0005-joint-optimum.md: totals in closed form, whatever the order."""
    workload, rows = plan
    levels = len(rows)
    # S[k]: the levels at which layer k takes model parallelism.
    s = [{h for h in range(levels) if rows[h][k]} for k in range(len(workload.layers))]
    expected = dict.fromkeys(READINGS, Fraction())
    for k, (w, f, whole) in enumerate(
        zip(workload.weights, workload.pooled, workload.outputs, strict=True)
    ):
        gradients, sums = w * (2 ** (levels - len(s[k])) - 1), 2 ** len(s[k]) - 1
        expected["tables"] += gradients + f * sums
        expected["text"] += 2 * gradients + 2 * f * sums
        expected["figures"] += 2 * gradients + 2 * f * sums
        expected["executed"] += 2 * gradients + 2 * whole * sums
    for (before, behind), a in zip(pairwise(s), workload.boundary_sizes, strict=True):
        expected["tables"] += Fraction(a, 2) * len(before | behind)
        expected["text"] += Fraction(a, 2) * len(before | behind)
        expected["figures"] += a * len(behind - before)
        expected["executed"] += a * len(behind - before)
    for reading, elements in expected.items():
        assert total(workload, rows, CommunicationCost(reading)) == 4 * elements


@given(plans())
def test_half_precision_moves_half_the_bytes(plan: tuple[ho.Workload, list[list[int]]]) -> None:
    workload, rows = plan
    for reading in READINGS:
        whole = total(workload, rows, CommunicationCost(reading))
        for size in (1, 2, 8):
            assert total(workload, rows, CommunicationCost(reading, size)) == whole * size / 4


@given(plans())
def test_inference_moves_partial_sums_and_the_feature_map_half_of_dp_mp(
    plan: tuple[ho.Workload, list[list[int]]],
) -> None:
    workload, rows = plan
    levels = range(len(rows))
    s = [{h for h in levels if rows[h][k]} for k in range(len(workload.layers))]
    into_model = sum(
        a * len(behind - before)
        for (before, behind), a in zip(pairwise(s), workload.boundary_sizes, strict=True)
    )
    for reading, (sums, half) in {
        "tables": (1, Fraction(1, 4)),
        "text": (2, Fraction(1, 4)),
        "figures": (2, Fraction(1, 2)),
        "executed": (1, Fraction(1, 2)),  # the error is gathered backward
    }.items():
        sizes = workload.outputs if reading == "executed" else workload.pooled
        partial = sum(f * (2 ** len(m) - 1) for f, m in zip(sizes, s, strict=True))
        moved = total(workload, rows, CommunicationCost(reading, phases=INFERENCE))
        assert moved == 4 * (sums * partial + half * into_model)


@given(plans())
def test_output_parallelism_mirrors_model_parallelism(
    plan: tuple[ho.Workload, list[list[int]]],
) -> None:
    """A layer that splits its output exchanges its input's errors: E where model has F."""
    workload, rows = plan
    workload = replace(workload, choices=CHOICES)
    levels = len(rows)
    flipped = [[2 if choice else 0 for choice in row] for row in rows]
    s = [{h for h in range(levels) if rows[h][k]} for k in range(len(workload.layers))]
    expected = Fraction()
    for k, (w, e) in enumerate(zip(workload.weights, workload.inputs, strict=True)):
        charged = 2 * e * (2 ** len(s[k]) - 1) if k else 0
        expected += 2 * w * (2 ** (levels - len(s[k])) - 1) + charged
    for k, a in enumerate(workload.boundary_sizes):
        for h in range(levels):
            # The boundary is whole for each output choice that its reader has made above.
            size = a * 2 ** len([level for level in s[k + 1] if level < h])
            before, behind = rows[h][k], rows[h][k + 1]
            expected += Fraction(size, 2) if before or behind else 0
    assert total(workload, flipped, CommunicationCost("text")) == 4 * expected


def test_accpar_charges_the_first_layers_input_error_too() -> None:
    workload = ho.Workload.of(ho.layer_graph(ho.load("sfc")), 2, CHOICES)
    tables, text = (
        level_table(CommunicationCost(reading), workload).node[:, 2]
        for reading in ("tables", "text")
    )
    assert tables.tolist() == [4 * 2 * 784] + [4 * 2 * 8192] * 3
    assert text.tolist() == [0] + [2 * 4 * 2 * 8192] * 3


def test_without_output_choices_a_third_choice_changes_nothing() -> None:
    two, three = (workload_of(ho.load("cifar-c"), 5, CHOICES[:n]) for n in (2, 3))
    rows = [[0, 1, 0, 1, 1], [1, 1, 0, 0, 1]]
    for reading in ("text", "tables"):
        cost = CommunicationCost(reading)
        assert total(two, rows, cost) == total(three, rows, cost)


@given(plans(), st.lists(st.integers(1, 9), min_size=5, max_size=5))
def test_a_level_weighs_what_it_is_told(
    plan: tuple[ho.Workload, list[list[int]]], weights: list[int]
) -> None:
    workload, rows = plan
    plain = price_levels(workload, CommunicationCost("figures"), rows)
    weighted = CommunicationCost("figures", level_weights=tuple(weights[: len(rows)]))
    assert price_levels(workload, weighted, rows) == tuple(
        weight * cost for weight, cost in zip(weights, plain, strict=False)
    )


@given(networks(), st.integers(1, 9), st.sampled_from(list(READINGS)))
def test_a_table_is_the_same_in_int64_and_beyond_it(
    network: ho.Network, batch: int, reading: str
) -> None:
    """Below 130 levels, 65 of each choice, a charge needs more than 64 bits; it scales exactly."""
    workload = ho.Workload.of(ho.layer_graph(network), batch)
    layers = len(workload.layers)
    above = [[(level + layer) % 2 for layer in range(layers)] for level in range(130)]
    small = level_table(CommunicationCost(reading), workload)
    large = level_table(CommunicationCost(reading), workload, above)
    assert small.node.dtype == np.int64
    assert large.node.dtype == np.object_
    assert {type(entry) for entry in large.node.flat} == {int}
    assert (large.node == small.node.astype(object) * 2**65).all()
    assert {type(entry) for entry in large.edge.flat} <= {int}
    assert (large.edge == small.edge).all()


def test_the_rows_are_those_of_tables_1_and_2() -> None:
    """One layer boundary with W = 12, F = 8, A = 24, in elements: what each reading charges."""
    description = {
        "name": "two",
        "input": {"features": 1},
        "layer": [
            {"name": "a", "kind": "fc", "units": 6},
            {"name": "b", "kind": "fc", "units": 2},
        ],
    }
    workload = ho.Workload.of(ho.layer_graph(ho.Network.model_validate(description)), 4)
    assert (workload.weights[1], workload.pooled[1], workload.boundary_sizes[0]) == (12, 8, 24)
    charged = {}
    for reading in READINGS:
        table = level_table(CommunicationCost(reading), workload)
        dp, mp = table.node[1] // 4
        (dp_dp, dp_mp), (mp_dp, mp_mp) = table.edge[0] // 4
        charged[reading] = (dp, mp, dp_dp, dp_mp, mp_mp, mp_dp)
    assert charged == {
        "tables": (12, 8, 0, 12, 12, 12),
        "text": (24, 16, 0, 12, 12, 12),
        "figures": (24, 16, 0, 24, 0, 0),
        "executed": (24, 16, 0, 24, 0, 0),
    }


def test_executed_adds_partial_sums_before_the_pool() -> None:
    description = {
        "name": "pooled",
        "input": {"channels": 1, "height": 4, "width": 4},
        "layer": [
            {
                "name": "conv",
                "kind": "conv",
                "filters": 1,
                "kernel": 1,
                "pool": {"kind": "max", "size": 2},
            }
        ],
    }
    workload = ho.Workload.of(ho.layer_graph(ho.Network.model_validate(description)), 1)
    for reading, elements in (("text", 4), ("figures", 4), ("executed", 16)):
        table = level_table(CommunicationCost(reading), workload)
        assert price_table(table, [1]) == 4 * 2 * elements


@given(plans())
def test_running_a_plan_moves_what_the_figures_say_but_for_maps_in_front_of_pools(
    plan: tuple[ho.Workload, list[list[int]]],
) -> None:
    """Level by level; of a layer that pools, model parallelism reduces the map before the pool."""
    workload, rows = plan
    executed, figures = (
        price_levels(workload, CommunicationCost(reading), rows)
        for reading in ("executed", "figures")
    )
    counts = np.zeros(len(workload.layers), int)
    for row, run, printed in zip(rows, executed, figures, strict=True):
        dropped = [
            2 * (whole - pooled) * 2**count * choice
            for whole, pooled, count, choice in zip(
                workload.outputs, workload.pooled, counts.tolist(), row, strict=True
            )
        ]
        assert run == printed + 4 * sum(dropped)
        counts += row


@pytest.mark.parametrize("name", ["sfc", "sconv", "lenet-c", "alexnet", "vgg-c"])
@pytest.mark.parametrize("search", ["levelwise", "joint"])
def test_the_figures_optimum_is_what_running_moves(name: str, search: str) -> None:
    """No pooling layer is in model parallelism there: at B = 256 and H = 4."""
    executed, figures = (
        ho.solve(name, reading=reading, search=search) for reading in ("executed", "figures")
    )
    assert executed.parallelism == figures.parallelism
    assert executed.cost.per_level == figures.cost.per_level
    assert figures.cost.executed_bytes == figures.cost.total == executed.cost.executed_bytes


@pytest.mark.parametrize("name", ["cifar-c", "vgg-a", "vgg-b", "vgg-d", "vgg-e"])
def test_the_others_move_more_by_the_maps_before_their_pools(name: str) -> None:
    executed, figures = (ho.solve(name, reading=reading) for reading in ("executed", "figures"))
    assert figures.cost.executed_bytes is not None
    assert figures.cost.total < executed.cost.total < figures.cost.executed_bytes


def test_a_level_charges_all_its_groups_as_algorithm_2_does() -> None:
    """com = com_h + 2 com_n, with com_h one group's: W / 2^m and F / 2^d of what it holds."""
    workload = ho.Workload.of(ho.layer_graph(ho.load("lenet-c")), 3)
    rows = [[0, 0, 1, 1], [0, 1, 1, 0], [1, 1, 0, 0]]

    def com(rows: list[list[int]], d: list[int], m: list[int]) -> Fraction:
        if not rows:
            return Fraction()
        here = Fraction()
        row = rows[0]
        for k, choice in enumerate(row):
            w = Fraction(workload.weights[k], 2 ** m[k])
            f = Fraction(workload.pooled[k], 2 ** d[k])
            here += 2 * (f if choice else w)
            if k and (choice or row[k - 1]):
                here += Fraction(workload.boundary_sizes[k - 1], 2 ** (d[k] + m[k])) / 2
        below_d = [n + (not choice) for n, choice in zip(d, row, strict=True)]
        below_m = [n + choice for n, choice in zip(m, row, strict=True)]
        return here + 2 * com(rows[1:], below_d, below_m)

    assert total(workload, rows, CommunicationCost("text")) == 4 * com(rows, [0] * 4, [0] * 4)


def test_an_unknown_reading_is_refused() -> None:
    with pytest.raises(ho.HyparError, match=r"unknown reading 'texts': did you mean text\?"):
        CommunicationCost("texts")
    needed = "output needs the reading text, tables or executed, got figures"
    with pytest.raises(ho.HyparError, match=needed):
        ho.solve("lenet-c", reading="figures", choices=CHOICES)
