"""A hierarchy of levels: accelerators by digits of mixed radix, and how it is stated."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.hardware.arrays import find_array
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.plan.arguments import problem_of
from tests.cli.shell import command

SIZES = st.lists(st.integers(2, 5), max_size=4).map(tuple)


@given(SIZES)
def test_digits_number_the_accelerators(sizes: tuple[int, ...]) -> None:
    """As `itertools.product` counts: H1's digit is the most significant."""
    hierarchy = Hierarchy(sizes)
    places = [
        tuple(hierarchy.digit(accelerator, level) for level in range(hierarchy.levels))
        for accelerator in range(hierarchy.accelerators)
    ]
    assert places == list(product(*map(range, sizes)))
    assert hierarchy.parts(range(hierarchy.levels)) == hierarchy.accelerators
    assert hierarchy.parts(()) == 1


def test_halves_are_the_levels_of_the_paper(tmp_path: Path) -> None:
    for options, name in ((["--levels", "3"], "a.json"), (["--hierarchy", "2,2,2"], "b.json")):
        assert command(["solve", "lenet-c", *options, "--output", name], tmp_path).status == 0
    of_levels, of_hierarchy = (ho.read_plan(tmp_path / name) for name in ("a.json", "b.json"))
    assert of_levels.problem == of_hierarchy.problem
    assert of_levels.parallelism == of_hierarchy.parallelism
    assert of_hierarchy.hierarchy == Hierarchy((2, 2, 2))
    assert of_hierarchy.accelerators == 8
    assert ho.solve("lenet-c", hierarchy=[2, 2, 2]).problem == of_levels.problem


@pytest.mark.parametrize("name", ["hmc-htree-16", "tpu-v4-4x4x4"])
def test_an_array_has_the_hierarchy_of_its_accelerators(name: str) -> None:
    problem = problem_of(array=name)
    array = find_array(name)
    assert problem.hierarchy == Hierarchy((2,) * array.levels)
    assert problem.accelerators == array.interconnect.accelerators


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hierarchy": (2, 1)}, "hierarchy: H2 should have 2 to 1,024 parts, got 1"),
        ({"hierarchy": (2, 2.0)}, "hierarchy: H2 should have 2 to 1,024 parts, got 2.0"),
        ({"hierarchy": (2, True)}, "hierarchy: H2 should have 2 to 1,024 parts, got true"),
        ({"hierarchy": 2}, "hierarchy should be the parts of each level, got 2"),
        ({"hierarchy": "22"}, 'hierarchy should be the parts of each level, got "22"'),
        ({"hierarchy": (2, 2), "levels": 3}, "hierarchy has 2 levels, levels says 3"),
        ({"hierarchy": (2, 2), "array": "hmc-htree-16"}, "hierarchy should be 2,2,2,2, as"),
    ],
)
def test_other_hierarchies_are_refused_by_name(arguments: Any, message: str) -> None:
    with pytest.raises(ho.HyparError, match="^" + message.replace("(", r"\(")):
        ho.solve("lenet-c", **arguments)


def test_a_hierarchy_is_typed_as_numbers(tmp_path: Path) -> None:
    done = command(["solve", "lenet-c", "--hierarchy", "2x2"], tmp_path)
    assert (done.status, done.errors) == (
        2,
        "hypar-opt: --hierarchy should be whole numbers, as 2,2,2, got '2x2'\n",
    )
