"""The communication model against closed forms that hold for any plan of any network."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.base import Splits
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.readings import READINGS
from hypar_opt.verify import price_level, price_levels
from tests.strategies import networks


@st.composite
def plans(draw: st.DrawFn) -> tuple[ho.Shapes, list[list[int]]]:
    """A random network with a random batch, and any plan of up to five levels for it."""
    shapes = ho.Shapes.of(ho.layer_graph(draw(networks())), draw(st.integers(1, 9)))
    row = st.lists(st.integers(0, 1), min_size=len(shapes.layers), max_size=len(shapes.layers))
    return shapes, draw(st.lists(row, max_size=5))


def total(shapes: ho.Shapes, rows: list[list[int]], cost: CommunicationCost) -> Fraction:
    return sum(price_levels(shapes, cost, rows), Fraction())


@given(plans())
def test_intra_layer_communication_telescopes_and_boundaries_count_levels(
    plan: tuple[ho.Shapes, list[list[int]]],
) -> None:
    """MODEL, "Facts about the optimum", 1 and 2: totals in closed form, whatever the order."""
    shapes, rows = plan
    levels = len(rows)
    # S[k]: the levels at which layer k takes model parallelism.
    s = [{h for h in range(levels) if rows[h][k]} for k in range(len(shapes.layers))]
    after = [*shapes.boundary_sizes, 0]
    expected = dict.fromkeys(READINGS, Fraction())
    for k, (w, f, whole) in enumerate(
        zip(shapes.weights, shapes.pooled, shapes.outputs, strict=True)
    ):
        gradients, sums = w * (2 ** (levels - len(s[k])) - 1), 2 ** len(s[k]) - 1
        expected["tables"] += gradients + f * sums
        expected["text"] += 2 * gradients + 2 * f * sums
        expected["figures"] += 2 * gradients + 2 * f * sums
        expected["executed"] += 2 * gradients + (2 * whole + after[k]) * sums
    for (before, behind), a in zip(pairwise(s), shapes.boundary_sizes, strict=True):
        expected["tables"] += Fraction(a, 2) * len(before | behind)
        expected["text"] += Fraction(a, 2) * len(before | behind)
        expected["figures"] += a * len(behind - before)
        expected["executed"] += a * len(behind - before)
    for reading, elements in expected.items():
        assert total(shapes, rows, CommunicationCost(reading)) == 4 * elements


@given(plans())
def test_half_precision_moves_half_the_bytes(plan: tuple[ho.Shapes, list[list[int]]]) -> None:
    shapes, rows = plan
    for reading in READINGS:
        whole = total(shapes, rows, CommunicationCost(reading))
        for size in (1, 2, 8):
            assert total(shapes, rows, CommunicationCost(reading, size)) == whole * size / 4


@given(plans())
def test_inference_is_the_forward_part_of_training(
    plan: tuple[ho.Shapes, list[list[int]]],
) -> None:
    shapes, rows = plan
    layers = len(shapes.layers)
    for reading in READINGS:
        cost = CommunicationCost(reading, inference=True)
        assert total(shapes, rows, cost) <= total(shapes, rows, CommunicationCost(reading))
        assert total(shapes, [[0] * layers] * len(rows), cost) == 0


@given(networks(), st.integers(1, 9), st.sampled_from(list(READINGS)))
def test_a_table_is_the_same_in_int64_and_beyond_it(
    network: ho.Network, batch: int, reading: str
) -> None:
    """The deepest of 64 levels needs more than 64 bits; its charges scale exactly."""
    shapes = ho.Shapes.of(ho.layer_graph(network), batch)
    layers = len(shapes.layers)
    shallow, deep = Splits.none(layers), Splits.none(layers)
    for level in range(63):
        choice = [(level + layer) % 2 for layer in range(layers)]
        deep = deep.after(choice)
    small = CommunicationCost(reading).table(shapes, shallow)
    large = CommunicationCost(reading).table(shapes, deep)
    assert small.node.dtype == np.int64
    assert large.node.dtype == np.object_
    assert {type(entry) for entry in large.node.flat} == {int}
    halvings = (2 ** (63 - deep.counts[::-1].T)).astype(object)
    assert (large.node == small.node.astype(object) * halvings).all()


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
    shapes = ho.Shapes.of(ho.layer_graph(ho.Network.model_validate(description)), 4)
    assert (shapes.weights[1], shapes.pooled[1], shapes.boundary_sizes[0]) == (12, 8, 24)
    charged = {}
    for reading in READINGS:
        table = CommunicationCost(reading).table(shapes, Splits.none(2))
        dp, mp = table.node[1] // 4
        (dp_dp, dp_mp), (mp_dp, mp_mp) = table.edge[0] // 4
        charged[reading] = (dp, mp, dp_dp, dp_mp, mp_mp, mp_dp)
    assert charged == {
        "tables": (12, 8, 0, 12, 12, 12),
        "text": (24, 16, 0, 12, 12, 12),
        "figures": (24, 16, 0, 24, 0, 0),
        "executed": (24, 16, 0, 24, 24, 24),
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
    shapes = ho.Shapes.of(ho.layer_graph(ho.Network.model_validate(description)), 1)
    for reading, elements in (("text", 4), ("figures", 4), ("executed", 16)):
        table = CommunicationCost(reading).table(shapes, Splits.none(1))
        assert price_level(table, [1]) == 4 * 2 * elements


def test_a_level_charges_all_its_groups_as_algorithm_2_does() -> None:
    """com = com_h + 2 com_n, with com_h one group's: W / 2^m and F / 2^d of what it holds."""
    shapes = ho.Shapes.of(ho.layer_graph(ho.load("lenet-c")), 3)
    rows = [[0, 0, 1, 1], [0, 1, 1, 0], [1, 1, 0, 0]]

    def com(rows: list[list[int]], d: list[int], m: list[int]) -> Fraction:
        if not rows:
            return Fraction()
        here = Fraction()
        row = rows[0]
        for k, choice in enumerate(row):
            w = Fraction(shapes.weights[k], 2 ** m[k])
            f = Fraction(shapes.pooled[k], 2 ** d[k])
            here += 2 * (f if choice else w)
            if k and (choice or row[k - 1]):
                here += Fraction(shapes.boundary_sizes[k - 1], 2 ** (d[k] + m[k])) / 2
        below_d = [n + (not choice) for n, choice in zip(d, row, strict=True)]
        below_m = [n + choice for n, choice in zip(m, row, strict=True)]
        return here + 2 * com(rows[1:], below_d, below_m)

    assert total(shapes, rows, CommunicationCost("text")) == 4 * com(rows, [0] * 4, [0] * 4)


def test_an_unknown_reading_or_element_size_is_refused() -> None:
    with pytest.raises(ho.HyparError, match=r"unknown reading 'texts': did you mean text\?"):
        CommunicationCost("texts")
    with pytest.raises(ho.HyparError, match="one of 1, 2, 4, 8, got 3"):
        CommunicationCost("text", 3)
