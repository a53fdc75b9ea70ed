"""Rows and columns of images as choices: bytes by hand, against all plans, and other programs'."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.errors import HyparError, InfeasibleError, RefusedError
from hypar_opt.execution.export import torch_file
from hypar_opt.hardware.array import COLLECTIVES
from hypar_opt.hardware.arrays import load
from hypar_opt.hierarchy import Hierarchy, SplitRule
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.plan.strategies import strategy_pins
from hypar_opt.sharding.program import Program
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.contiguous import first_gap
from hypar_opt.workload.splitting import may_split, spatial_columns
from hypar_opt.workload.tensors import Workload, workload_of
from tests.execution.drawn_images import IMAGE_CHOICES, images
from tests.slow import slow_after


def of_size(name: str, height: int, width: int | None = None) -> ho.Network:
    """Return a network of the zoo that reads larger or smaller images."""
    document = find_network(name).description()
    document["input"] |= {"height": height, "width": width or height}
    return ho.Network.model_validate(document)


@pytest.mark.parametrize(
    ("batch", "side", "total"),
    slow_after(
        3,
        [
            (32, 224, 427_046_016),
            (1, 1024, 358_367_796),
            (1, 4096, 694_153_780),
            (8, 1024, 633_237_088),
            (2, 2048, 650_027_272),
        ],
    ),
)
def test_optima_are_those_that_another_program_found(batch: int, side: int, total: int) -> None:
    """Of ResNet-50 on eight accelerators in half precision, all-to-alls joined, parts even.

    Images of another size are keys of the network that are set.
    """
    asked: Any = {"batch": batch, "levels": 3, "element_bytes": 2, "reading": "joined"}
    plan = ho.solve(
        "resnet-50",
        settings={"input.height": side, "input.width": side},
        choices="all",
        search="joint",
        constraints={"even": True},
        **asked,
    )
    assert (plan.cost.total, plan.solver.status) == (total, "optimal")
    assert plan.choices == IMAGE_CHOICES
    assert batch != 32 or plan.cost.data_parallel_bytes == 715_568_896


def least_of_all(
    workload: Workload, sizes: tuple[int, ...], reading: str, even: bool
) -> int | None:
    """Return the fewest bytes of all plans whose parts of images are equal and contiguous.

    None if there is none, as the parts of some layer would be unequal in all choices.
    """
    hierarchy, choices = Hierarchy(sizes), range(len(workload.choices))
    rule = SplitRule(hierarchy, even=True) if even else None
    fits = []
    for node in range(len(workload.nodes)):
        own = []
        for state in itertools.product(choices, repeat=len(sizes)):
            parts = [hierarchy.parts(i for i, c in enumerate(state) if c == n) for n in choices]
            lacks = any(workload.forbidden[node, choice] for choice in state)
            split = (may_split(workload, rule, m, n, node) for n, m in enumerate(parts) if m > 1)
            if not lacks and all(split):
                own.append(state)
        fits.append(own)
    if not all(fits):
        return None
    every = np.array([*itertools.product(*fits)], np.intp)  # (plans, nodes, levels)
    states = np.moveaxis(every, 2, 0)
    for column in spatial_columns(workload):
        split = states == column
        used = split.any(axis=2, keepdims=True)
        for upper, lower in itertools.combinations(range(len(sizes)), 2):
            gaps = (used[upper] & split[lower] & ~split[upper]).any(axis=1)
            states = states[:, ~gaps]
            split, used = split[:, ~gaps], used[:, ~gaps]
    cost = CommunicationCost(reading, sizes=sizes)
    nodes, ends = np.arange(len(workload.nodes)), workload.ends
    total = sum(
        np.broadcast_to(own, states.shape[1:]).sum(axis=1)
        for own in cost.node(workload, nodes, [states])
    )
    if len(ends):
        sources, targets = (states[:, :, own] for own in ends.T)
        moved = cost.edge(workload, np.arange(len(ends)), [sources], [targets])
        total = total + sum(np.broadcast_to(own, sources.shape[1:]).sum(axis=1) for own in moved)
    return int(np.min(total))


GAPS = (38, 142)
"""Cases whose cheapest plan has parts with gaps, so that plans of each order are compared."""


def fits(workload: Workload, levels: int) -> bool:
    """Return whether all of its plans may be compared, and some layer has each choice."""
    of_images = {*workload.choices} & {"rows", "columns"}
    # Some layers are whole only where nothing else fits.
    plain = not any(own and own.last_resort for node in workload.choices_of_nodes for own in node)
    plans = len(workload.choices) ** (levels * len(workload.nodes))
    return plain and plans <= 3 * 10**5 and len(spatial_columns(workload)) == len(of_images)


@pytest.mark.parametrize("seed", slow_after(16, [*GAPS, *sorted({*range(150)} - {*GAPS})]))
def test_searches_find_the_best_of_all_plans(seed: int) -> None:
    rng = random.Random(seed)
    sizes = rng.choice([(2,), (4,), (2, 2), (2, 2), (2, 4), (4, 2)])
    choices = rng.choice(
        [IMAGE_CHOICES, IMAGE_CHOICES[:2] + IMAGE_CHOICES[3:], ("data", "model", "rows")]
    )
    even, reading = rng.random() < 0.5, rng.choice(["executed", "joined"])
    batch = rng.choice([1, 2, 4, 8])
    workload = None
    while workload is None or not fits(workload, len(sizes)):
        network = images(rng, unit=rng.choice([2, 4, 8]), most=3)
        workload = workload_of(network, batch, choices, shared_tensors=True)
    asked: Any = {"batch": batch, "hierarchy": sizes, "whole_levels": True, "choices": choices}
    asked |= {"reading": reading, "constraints": {"even": even}, "search": "joint"}
    try:
        plan = ho.solve(network, **asked)
    except InfeasibleError:
        assert even
        return
    assert plan.solver.status == "optimal"
    least = least_of_all(workload, sizes, reading, even)
    assert (least is None) == ("whole" in plan.choices)  # the last resort
    if least is None:
        return
    assert plan.cost.total == least
    rows = rows_of_plan(plan, workload)
    assert first_gap(workload, rows) is None
    program = Program(workload, rows, plan.hierarchy, joined=reading == "joined")
    assert 4 * sum(exchange.elements for exchange in exchanges_of_step(program)) == plan.cost.total
    for solver in rng.sample(["brute", "ilp", "cpsat"], 1):
        assert ho.solve(network, solver=solver, **asked).cost.total == plan.cost.total
    del asked["search"]
    if reading == "executed":
        assert ho.solve(network, **asked).cost.total >= plan.cost.total


@pytest.mark.parametrize("collective", COLLECTIVES[1:])
def test_around_rings_too_searches_find_the_best_of_all_plans(collective: str) -> None:
    update, in_parts = {"collective": collective, "model": None}, 0
    array = load("hmc-torus-4").model_copy(update=update)
    for seed in (5, 11, 12, 14):
        network = images(random.Random(seed), unit=16, most=2)
        cost: Any = "energy" if seed % 4 == 3 else "time"
        asked: Any = {"batch": 1, "array": array, "cost": cost, "choices": IMAGE_CHOICES}
        asked |= {"reading": "joined" if seed % 2 else "executed", "search": "joint"}
        plan = ho.solve(network, **asked)
        assert plan.cost.total == ho.solve(network, solver="brute", **asked).cost.total
        ho.check_certificate(plan, ho.certify(plan))
        in_parts += not {"rows", "columns"}.isdisjoint(itertools.chain(*plan.parallelism))
    assert in_parts


def two(**layer: Any) -> ho.Network:
    """Return a convolution of images of 12 by 8, and a layer that reads it."""
    first = {"name": "first", "kind": "conv", "filters": 4, "kernel": 1}
    given = {"channels": 4, "height": 12, "width": 8}
    layers = [first, {"name": "second", "kind": "conv", "filters": 4, **layer}]
    return ho.Network.model_validate(
        {"schema": "hypar-opt/network/2", "name": "two", "input": given, "layer": layers}
    )


@pytest.mark.parametrize(
    ("layer", "parts", "complaint"),
    [
        ({"kernel": 3, "padding": 1}, 4, ""),
        (
            {"kernel": 3, "padding": 1},
            5,
            "no choice fits layer 'second' at H1; .* and 12 rows",
        ),  # 12 rows have no five equal parts
        (
            {"kernel": 3, "padding": 0},
            2,
            "rows is not among the choices of second",
        ),  # of 12 rows it writes 10
        ({"kernel": 5, "padding": 2}, 6, ""),
        ({"kernel": 7, "padding": 3}, 4, ""),
        (
            {"kernel": 7, "padding": 3},
            6,
            "no choice fits",
        ),  # of two rows, it reads three of another's
        ({"kernel": 3, "padding": 2, "dilation": 2}, 6, ""),
        ({"kernel": 2, "stride": 2}, 6, ""),
        ({"kernel": 3, "stride": 3, "padding": 1}, 4, ""),
        ({"kernel": 3, "padding": 1, "pool": {"kind": "max", "size": 2}}, 6, ""),
        ({"kernel": 3, "padding": 1, "pool": {"kind": "max", "size": 2}}, 4, "no choice fits"),
        (
            {"kernel": 3, "padding": 1, "pool": {"kind": "max", "size": 3, "stride": 2}},
            2,
            "rows is not among",
        ),
    ],
)
def test_parts_of_images_are_equal_and_no_shorter_than_what_others_read(
    layer: dict[str, Any], parts: int, complaint: str
) -> None:
    asked: Any = {"batch": 1, "hierarchy": (parts,), "whole_levels": True}
    asked |= {
        "choices": ("data", "model", "output", "rows"),
        "constraints": {"fix": ["second=rows"]},
    }
    if not complaint:
        assert ho.solve(two(**layer), **asked)["second"] == {"H1": "rows"}
        return
    with pytest.raises(HyparError, match=complaint):
        ho.solve(two(**layer), **asked)


@pytest.mark.parametrize(("name", "side"), [("resnet-18", 64), ("vgg-a", 64), ("unet", 64)])
def test_no_spatial_strategy_moves_fewer_bytes_than_the_optimum(name: str, side: int) -> None:
    network = of_size(name, side)
    asked: Any = {"batch": 2, "levels": 2, "choices": IMAGE_CHOICES, "reading": "executed"}
    best = ho.solve(network, search="joint", **asked).cost.total
    for degree in (1, 2, 4):
        fix = strategy_pins(network, (2, 2), "spatial", degree)
        assert any(pin.endswith("=rows") for pin in fix) == (degree > 1)
        plan = ho.solve(network, constraints={"fix": fix}, search="joint", **asked)
        assert best <= plan.cost.total


@pytest.mark.parametrize(
    ("array", "cost", "are_there"),
    slow_after(
        2,
        [
            ("tpu-v4-8", "time", True),
            ("tpu-v2-v3-16", "time", False),
            ("h100-8", "time", True),
        ],
    ),
)
def test_all_choices_are_those_that_an_array_can_have(
    array: str, cost: Any, are_there: bool
) -> None:
    """Parts of images and addends are equal, and those of groups need not be."""
    plan = ho.solve("vgg-a", batch=64, array=array, cost=cost, choices="all")
    assert ({*IMAGE_CHOICES} <= {*plan.choices}) == are_there
    assert {*IMAGE_CHOICES[:3]} <= {*plan.choices}
    side_by_side = problem_of(find_network("gpt-j-6b"), array=array, cost=cost, choices="all")
    assert ("addends" in side_by_side.choices) == are_there


def test_rows_are_refused_where_nothing_has_them() -> None:
    asked: Any = {"batch": 8, "choices": IMAGE_CHOICES}
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("sfc", {"levels": 1}, "choices: rows needs a network of images whose rows can be split"),
        ("vgg-a", {"levels": 1, "reading": "text"}, "choices: rows needs reading='executed', got"),
        ("vgg-a", {"array": "tpu-v2-v3-16", "cost": "time"}, "rows has equal parts, unlike group"),
        ("vgg-a", {"array": "tpu-v2-v3-16", "share": 0.3}, "rows has equal parts, unlike groups"),
    ]
    for network, more, complaint in cases:
        with pytest.raises(HyparError, match=complaint):
            ho.solve(network, **asked, **more)


@pytest.mark.parametrize("axis", ["row", "column"])
def test_a_file_for_pytorch_says_what_of_images_it_cannot_split(axis: str) -> None:
    fix = [f"second={axis}s"]
    asked: Any = {"batch": 4, "levels": 1, "choices": IMAGE_CHOICES, "constraints": {"fix": fix}}
    plan = ho.solve(two(kernel=3, padding=1), **asked)
    with pytest.raises(RefusedError, match=f"split by {axis}, and DTensor's convolutions"):
        torch_file(plan)


def test_pins_that_leave_pieces_of_images_are_refused_together() -> None:
    fix = ["first@H1=rows", "second@H1=data", "second@H2=rows"]
    asked: Any = {"batch": 4, "levels": 2, "choices": IMAGE_CHOICES, "constraints": {"fix": fix}}
    with pytest.raises(InfeasibleError, match="conflict at second: of the levels that split rows"):
        ho.solve(two(kernel=3, padding=1), **asked)
