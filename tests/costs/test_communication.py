"""The communication model against closed forms that hold for any plan of any network."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.level_tables import level_table
from hypar_opt.instance.pricing import price_levels
from hypar_opt.models import load
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.strategies.networks import networks
from tests.strategies.plans import READINGS


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
    for (before, behind), boundary in zip(pairwise(s), workload.boundaries, strict=True):
        a = prod(boundary.shape)
        expected["tables"] += Fraction(a, 2) * len(before | behind)
        expected["text"] += Fraction(a, 2) * len(before | behind)
        expected["figures"] += a * len(behind - before)
        # An image and a channel of the same half stay.
        images, channels = boundary.shape[:2]
        near, far = -(-images // 2), images // 2
        moved = near * (channels // 2) + far * -(-channels // 2)
        expected["executed"] += 2 * moved * prod(boundary.shape[2:]) * len(behind - before)
    for reading, elements in expected.items():
        assert total(workload, rows, CommunicationCost(reading)) == 4 * elements


@given(plans())
def test_half_precision_moves_half_the_bytes(plan: tuple[ho.Workload, list[list[int]]]) -> None:
    workload, rows = plan
    for reading in READINGS:
        whole = total(workload, rows, CommunicationCost(reading))
        for size in (1, 2, 8):
            assert total(workload, rows, CommunicationCost(reading, size)) == whole * size / 4


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


def test_an_unknown_reading_is_refused() -> None:
    with pytest.raises(ho.HyparError, match=r"unknown reading 'texts': did you mean text\?"):
        level_table(CommunicationCost("texts"), workload_of(load("sfc"), 1))
    needed = "output needs the reading text, tables, executed or joined, got figures"
    with pytest.raises(ho.HyparError, match=needed):
        ho.solve("lenet-c", reading="figures", choices=CHOICES)
