"""Plans that split rows and columns, run: the bytes of the model, and the same numbers."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import hypar_opt as ho
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.workload.network import Network
from hypar_opt.workload.tensors import workload_of
from tests.execution.drawn import charged, run_as_one_device
from tests.execution.drawn_images import IMAGE_CHOICES, image_program, images
from tests.slow import slow_after

SIZES = ((2,), (4,), (2, 2), (2, 4), (2, 2, 2))
OF_THREE = ((3,), (2, 3), (3, 2))


@pytest.mark.parametrize("seed", slow_after(3, range(150)))
def test_images_in_parts_are_computed_as_one(seed: int) -> None:
    rng = random.Random(seed)
    thirds = rng.random() < 0.2
    network = images(rng, unit=12 if thirds else 8, most=4 if thirds else 7)
    for _ in range(2):
        sizes = rng.choice(OF_THREE if thirds else SIZES)
        program = image_program(rng, network, 12 if thirds else 8, sizes, joined=seed % 2 == 0)
        compared = run_as_one_device(network, program, seed)
        moved: Counter[int] = Counter()
        for row in compared.exchanges:
            moved[row.level - 1] += int(row.counted)
        reading = "joined" if program.joined else "executed"
        assert charged(program, reading) == [moved[level] for level in range(len(sizes))]


@pytest.mark.parametrize(("parts", "levels"), [(2, (2,)), (3, (3,)), (4, (2, 2)), (6, (2, 3))])
def test_the_halo_of_three_rows_is_two_of_each_border(parts: int, levels: tuple[int, ...]) -> None:
    """Of a kernel of 3, stride 1, over n parts, 4 (n - 1) W i b elements, forward and back."""
    network = Network.model_validate(
        {
            "name": "two convolutions",
            "input": {"channels": 2, "height": 12, "width": 5},
            "layer": [
                {"name": "first", "kind": "conv", "filters": 7, "kernel": 3, "padding": 1},
                {"name": "second", "kind": "conv", "filters": 2, "kernel": 3, "padding": 1},
            ],
        }
    )
    workload = workload_of(network, 3, IMAGE_CHOICES, shared_tensors=True)
    by_rows = [[IMAGE_CHOICES.index("rows")] * 2] * len(levels)
    compared = run_as_one_device(network, Program(workload, by_rows, Hierarchy(levels)))
    moved = sum(row.counted for row in compared.exchanges if row.kind == "halo")
    assert moved == 4 * 4 * (parts - 1) * 5 * 7 * 3


@pytest.mark.parametrize("batch", [1, 4])
def test_a_plan_that_may_split_images_runs_on_small_ones(batch: int) -> None:
    """Where it splits none, small images need no parts."""
    plan = ho.solve(
        "resnet-18",
        batch=batch,
        levels=2,
        choices=("data", "model", "output", "rows", "columns"),
        reading="executed",
        constraints={"even": True},
    )
    splits_images = any("rows" in own for own in plan.parallelism)
    assert splits_images == (batch == 1)
    assert ho.run(plan, scale_down=True).agrees


def test_small_images_can_be_split_where_other_choices_stand_behind_those_that_split_them() -> None:
    layers = [
        {"name": f"conv{n}", "kind": "conv", "inputs": ["input"], "filters": 4, "kernel": 3}
        | {"padding": 1}
        for n in (1, 2)
    ]
    sum_of_both = {"name": "sum", "kind": "add", "inputs": ["conv1", "conv2"]}
    given = {"channels": 4, "height": 4, "width": 4}
    plan = ho.solve(
        Network.model_validate(
            {
                "schema": "hypar-opt/network/2",
                "name": "a sum",
                "input": given,
                "layer": [*layers, sum_of_both],
            }
        ),
        batch=4,
        levels=1,
        choices="all",
        reading="executed",
        constraints={"even": True, "fix": ["conv*=model", "sum=addends"]},
    )
    assert ho.run(plan, scale_down=True).agrees
