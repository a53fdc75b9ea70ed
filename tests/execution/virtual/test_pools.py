"""Pools on virtual devices: each window by itself, whatever its size, stride and padding."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypar_opt.errors import RefusedError
from hypar_opt.execution.run import run_program
from hypar_opt.execution.step_size import step_bytes, step_work
from hypar_opt.execution.virtual.arithmetic.windows import Pooling
from hypar_opt.execution.virtual.checks import MAX_WORK
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.workload.operators.maps import FeatureMap
from hypar_opt.workload.operators.windows import PoolWindow
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.execution.test_memory import PYTHON, peak, pooled, whole
from tests.slow import examples


@st.composite
def pools(draw: st.DrawFn) -> tuple[PoolWindow, tuple[int, int], tuple[int, int]]:
    """A pool, the extent of its map, and the windows down and across."""
    size = draw(st.tuples(*[st.integers(1, 7)] * 2))
    borders = [st.integers(0, own - 1) for own in size]
    padding = draw(st.tuples(*borders)) * draw(st.sampled_from((1, 2)))
    described = {
        "kind": draw(st.sampled_from(("max", "average"))),
        "size": size,
        "stride": draw(st.tuples(*[st.integers(1, 8)] * 2)),
        "padding": padding,
        "rounding": draw(st.sampled_from(("down", "up"))),
    }
    pool = PoolWindow.model_validate(described)
    down, across = (
        draw(st.integers(max(1, own - 2 * border), 9))
        for own, border in zip(size, padding[:2], strict=True)
    )
    map_ = pool.pooled("layer", FeatureMap(1, down, across))
    return pool, (down, across), (map_.height, map_.width)


@examples(400)
@given(drawn=pools(), seed=st.integers(0, 2**20))
def test_a_pool_is_what_each_of_its_windows_has(drawn: Any, seed: int) -> None:
    pool, (height, width), counts = drawn
    rng, images = np.random.default_rng(seed), seed % 3  # a part may have none
    # Of few values, so that maxima are there several times.
    image = rng.integers(-2, 3, (images, 3, height, width)).astype(float)
    error = rng.integers(-8, 9, (images, 3, *counts)).astype(float)
    pooled_, spread = np.zeros(error.shape), np.zeros(image.shape)
    for place in np.ndindex(error.shape):
        *at, p, q = place
        cells = [
            (y, x)
            for k, m in product(range(pool.size[0]), range(pool.size[1]))
            if 0 <= (y := p * pool.stride[0] + k - pool.padding[0]) < height
            if 0 <= (x := q * pool.stride[1] + m - pool.padding[1]) < width
        ]
        values = [image[(*at, *cell)] for cell in cells]
        if pool.kind == "max":
            pooled_[place] = max(values)
            spread[(*at, *cells[values.index(max(values))])] += error[place]
        else:
            pooled_[place] = sum(values) / len(values)
            for cell in cells:
                spread[(*at, *cell)] += error[place] / len(values)
    pooling = Pooling(pool, (height, width), counts)
    np.testing.assert_allclose(pooling.forward(image), pooled_, rtol=1e-12)
    np.testing.assert_allclose(pooling.backward(error), spread, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["max", "average"])
def test_a_pools_padding_takes_neither_memory_nor_time(kind: str) -> None:
    """With its padding a map of 8 x 8 would have 40,008 x 40,008 cells."""
    table = pooled(kind, 20001, 8)
    table["layer"][0]["pool"] |= {"padding": 20000, "stride": 20001}
    network, program = whole(table)
    assert step_bytes(network, program) < 2 * PYTHON
    assert peak(network, program) <= step_bytes(network, program) + PYTHON


def test_a_convolutions_padding_is_counted() -> None:
    layer = {"name": "conv", "kind": "conv", "filters": 1, "kernel": 1}
    gaps = {**layer, "padding": 500, "stride": 500}
    network, program = whole({"input": {"channels": 1, "height": 8, "width": 8}, "layer": [gaps]})
    assert step_bytes(network, program) > 4 * 8 * 1000**2
    assert peak(network, program) <= step_bytes(network, program) + PYTHON


def test_a_run_that_would_take_hours_is_refused_and_says_how_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many multiply-accumulates, wide windows, and layers on devices, in little memory."""
    square = {
        "input": {"features": 5000},
        "layer": [{"name": f"fc{n}", "kind": "fc", "units": 5000} for n in range(2)],
    }
    monkeypatch.setattr("hypar_opt.execution.run.random_data", None)  # nothing is allocated
    for table, batch, times in ((square, 1000, 40), (pooled("max", 5000, 10_000), 2, 1)):
        network, program = whole(table, batch)
        assert step_work(network, program) > MAX_WORK / times
        monkeypatch.setattr("hypar_opt.execution.virtual.checks.MAX_WORK", MAX_WORK // times)
        with pytest.raises(
            RefusedError, match=r"^n would take about .* multiply-accumulates, more"
        ):
            run_program(network, program, max_memory=10**12)
    workload = workload_of(network, 256, CHOICES, shared_tensors=True)
    devices = Program(workload, [[0] * len(workload.nodes)] * 8, Hierarchy((2,) * 8))
    assert step_work(network, devices) > step_work(network, Program(workload, (), Hierarchy(())))
