"""Which elements of an initializer a constant holds, against ONNX's reference evaluator."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from hypar_opt.onnx.constant import Constant
from hypar_opt.onnx.constants import Constants
from hypar_opt.onnx.model import graph_of
from hypar_opt.onnx.regions import Region, distinct, overlap
from tests.onnx.graph_writer import GraphWriter
from tests.slow import examples

Array = np.ndarray[Any, Any]
SHAPES = [(12,), (4, 6), (6, 4), (2, 3, 4), (3, 8), (2, 2, 2, 3), (1, 5, 2)]


def indices_of(dims: Iterable[tuple[Any, ...]], first: int = 0) -> Array:
    """The flat index that each place of a region has."""
    out = np.array(first)
    shape = []
    for dim in dims:
        shape.append(math.prod(digit.size for digit in dim))
        for axis, size, stride in dim:
            out = out[..., None] + np.arange(size) * (stride if axis == "e" else 0)
    return out.reshape(shape)


def elements_of(region: Region) -> set[int]:
    return set(indices_of(region.dims, region.first).ravel().tolist())


@st.composite
def views(draw: st.DrawFn) -> tuple[GraphWriter, str]:
    """An initializer of numbered elements that some operators look at another way."""
    shape = draw(st.sampled_from(SHAPES))
    g = GraphWriter(("x", [1]))
    g.initialisers.append(numpy_helper.from_array(np.arange(math.prod(shape)).reshape(shape), "w"))
    x = "w"
    for _ in range(draw(st.integers(1, 5))):
        op = draw(st.sampled_from(["Slice", "Split", "Gather", "Transpose", "Reshape", "Expand"]))
        axis = draw(st.integers(0, len(shape) - 1)) if shape else 0
        size = shape[axis] if shape else 1
        low = draw(st.integers(0, size - 1))
        high = draw(st.integers(low + 1, size))
        if op == "Slice" and shape:
            step = draw(st.sampled_from([1, 1, 2, 3]))
            x = g("Slice", x, *(g.value([n]) for n in (low, high, axis, step)))
            shape = (*shape[:axis], len(range(low, high, step)), *shape[axis + 1 :])
        elif op == "Split" and high < size:
            x = g("Split", x, g.value([high, size - high]), axis=axis, outputs=2)[0]
            shape = (*shape[:axis], high, *shape[axis + 1 :])
        elif op == "Gather" and shape:
            by = np.int64(low) if draw(st.booleans()) else np.arange(low, high)
            x = g("Gather", x, g.value(by), axis=axis)
            shape = (*shape[:axis], *by.shape, *shape[axis + 1 :])
        elif op == "Transpose" and shape:
            order = draw(st.permutations(range(len(shape))))
            x = g("Transpose", x, perm=list(order))
            shape = tuple(shape[place] for place in order)
        elif op == "Reshape":
            new = draw(st.sampled_from(factored(math.prod(shape))))
            x = g("Reshape", x, g.value(np.asarray(new, np.int64)))
            shape = new
        elif op == "Expand" and math.prod(shape) < 40:
            x = g("Expand", x, g.value(np.asarray((2, *shape), np.int64)))
            x, shape = g("Reshape", x, g.value([2 * math.prod(shape)])), (2 * math.prod(shape),)
    return g, x


def factored(size: int) -> list[tuple[int, ...]]:
    pairs = [(n, size // n) for n in range(1, size + 1) if size % n == 0]
    return [(size,), *pairs, *((1, *pair) for pair in pairs)]


def constant_of(g: GraphWriter, name: str) -> tuple[Constant, Array]:
    """A constant as import sees it, and its elements by the reference evaluator."""
    model = g.model(name)
    graph = graph_of(model, {})
    constants = Constants(graph)
    for node in graph.nodes:
        constants.defer(node)
    del model.graph.input[:]
    model.graph.output[0].type.tensor_type.elem_type = 7
    (value,) = ReferenceEvaluator(model).run(None, {}) if g.nodes else (np.arange(1),)
    return constants.get(name), np.asarray(value)


@examples(150)
@given(views())
def test_a_region_has_the_elements_that_views_leave(drawn: tuple[GraphWriter, str]) -> None:
    g, name = drawn
    if not g.nodes:
        return
    constant, value = constant_of(g, name)
    (region,) = constant.regions
    if region.shape == value.shape and len(region.dims) == value.ndim:
        assert (indices_of(region.dims, region.first) == value).all()
    # What cannot be followed holds more than is read, and never less.
    assert elements_of(region) >= set(value.ravel().tolist())
    assert region.elements == len(elements_of(region))
    assert elements_of(region.flat()) == elements_of(region) <= set(region.span)


@examples(150)
@given(st.lists(views().filter(lambda one: bool(one[0].nodes)), min_size=2, max_size=3))
def test_regions_have_the_elements_in_common_that_sets_have(
    drawn: list[tuple[GraphWriter, str]],
) -> None:
    regions = [constant_of(g, name)[0].regions[0] for g, name in drawn]
    sets = [elements_of(region) for region in regions]
    assert distinct(regions) == len(set().union(*sets))
    assert overlap(regions[0], regions[1]) == bool(sets[0] & sets[1])


@pytest.mark.parametrize("step", [1, 2, 3])
def test_views_that_cut_no_digit_are_followed_exactly(step: int) -> None:
    g = GraphWriter(("x", [1]))
    g.initialisers.append(numpy_helper.from_array(np.arange(24).reshape(4, 6), "w"))
    cut = g("Slice", "w", *(g.value([n]) for n in (1, 6, 1, step)))
    turned = g("Transpose", cut, perm=[1, 0])
    constant, value = constant_of(g, turned)
    (region,) = constant.regions
    assert (indices_of(region.dims, region.first) == value).all()
