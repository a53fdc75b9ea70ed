"""Plans with unequal parts in two groups, run: what moves, and what one device computes."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import InfeasibleError, RefusedError
from hypar_opt.hardware.array import Array
from hypar_opt.hierarchy import parts_by_share
from hypar_opt.instance.instance import Instance
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.workload.parallelism import CHOICES, PAPERS_CHOICES, PART_WORDS
from tests.slow import slow_after
from tests.strategies.groups import GROUPS, nodes, of_counts, some_share
from tests.strategies.problems import random_network


def random_plan(rng: Random, network: ho.Network, *shares: float) -> ho.Plan:
    """Any choices at one of some shares, on one, two or four accelerators of each group."""
    array = nodes(rng.choice([1, 2, 2, 4]))
    return plan_on(rng, network, array, rng.choice(shares))


def plan_on(
    rng: Random, network: ho.Network, array: Array, share: float | tuple[float, ...]
) -> ho.Plan:
    asked: dict[str, Any] = {
        "array": array,
        "cost": "time",
        "share": share,
        "batch": rng.choice([48, 93, 128]),
    }
    asked["choices"] = rng.choice([PAPERS_CHOICES, CHOICES])
    workload = Instance(network, problem_of(network, **asked)).workload
    pins = []
    for layer, words in zip(network.layers, workload.words[workload.shared :], strict=True):
        for level in range(array.levels):
            allowed = [word for word in words if word and (not level or word not in PART_WORDS)]
            pins.append(f"{layer.name}@H{level + 1}={rng.choice(allowed)}")
    return ho.solve(network, **asked, constraints={"fix": pins, "runnable": False})


@pytest.mark.parametrize("seed", slow_after(3, range(200)))
def test_any_plan_moves_what_its_program_says_and_computes_what_one_device_does(
    seed: int,
) -> None:
    rng = Random(seed)
    result = ho.run(random_plan(rng, random_network(rng, 4), 0.1, 0.25, 0.3, 0.5, 0.71))
    assert result.agrees, result


@pytest.mark.parametrize("seed", slow_after(3, range(96)))
def test_so_does_any_plan_of_groups_of_other_counts_and_of_three(seed: int) -> None:
    rng = Random(seed)
    array = of_counts([*GROUPS][seed % len(GROUPS)])
    plan = plan_on(rng, random_network(rng, 4), array, some_share(rng, array))
    assert ho.run(plan).agrees


@pytest.mark.parametrize("name", slow_after(1, ["resnet-18", "inception-v3", "mobilenet-v2"]))
def test_networks_are_run_scaled_down(name: str) -> None:
    result = ho.run(random_plan(Random(1), find_network(name), 0.25, 0.75), scale_down=True)
    assert result.agrees, result


def test_what_unequal_groups_do_not_run_is_refused_by_name() -> None:
    few = ho.solve(
        "lenet-c",
        array=nodes(4),
        cost="time",
        share=0.01,
        batch=64,
        constraints={"fix": ["*=data"], "runnable": False},
    )
    with pytest.raises(RefusedError, match="64 images, 1 of them in the first group"):
        ho.run(few)
    with pytest.raises(RefusedError, match="runs on virtual devices alone"):
        ho.run(few, backend="jax")
    tied = ho.solve("gpt2", array=nodes(1), cost="time", share=0.25, batch=8)
    with pytest.raises(RefusedError, match="shares weights"):
        ho.run(tied, scale_down=True)


@pytest.mark.parametrize(
    ("share", "batch"),
    slow_after(
        5,
        [
            *((None, 2), (None, 5), (0.05, 9), (0.3, 2), (0.45, 5)),
            *((None, 9), (0.05, 2), (0.05, 5), (0.3, 5), (0.3, 9), (0.45, 2), (0.45, 9)),
        ],
    ),
)
def test_plans_that_can_run_leave_the_smaller_group_no_part_empty(
    share: float | None, batch: int
) -> None:
    """They do run; and of parts that leave one empty none is allowed."""
    network = random_network(Random(batch), 3)
    plan = ho.solve(network, array=nodes(2), cost="time", share=share, batch=batch)
    assert ho.run(plan).agrees
    ho.check_certificate(plan, ho.certify(plan))
    has = min(parts_by_share(batch, plan.part_shares))
    for level, below in ((1, 1), (2, 2)):
        pins = [f"{network.layers[0].name}@H{n}=data" for n in range(1, level + 1)]
        asked: Any = {"share": plan.share, "batch": batch, "fix": pins}
        if has >= below:
            ho.solve(network, array=nodes(2), cost="time", **asked)
            continue
        with pytest.raises(InfeasibleError, match="H1's parts have shares of"):
            ho.solve(network, array=nodes(2), cost="time", **asked)
