"""Plans that split rows and columns of images: what their proofs take, and what they refuse."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import CheckFailedError
from hypar_opt.hardware.array import COLLECTIVES
from hypar_opt.hardware.arrays import load
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.plan import words_of
from hypar_opt.proofs.check.rows import price_of
from tests.execution.drawn_images import IMAGE_CHOICES, image_program, images
from tests.slow import slow_after
from tests.strategies.written_plans import written


@pytest.mark.parametrize("seed", slow_after(10, range(60)))
def test_plans_cost_what_a_derivation_of_its_own_says(seed: int) -> None:
    rng = Random(seed)
    network, sizes = images(rng), rng.choice([(2,), (4,), (2, 2), (2, 4), (2, 2, 2)])
    reading = rng.choice(["executed", "joined"])
    asked: Any = {"batch": 8, "hierarchy": sizes, "whole_levels": True, "choices": IMAGE_CHOICES}
    asked |= {"reading": reading, "element_bytes": rng.choice([1, 2, 4])}
    asked["inference"] = rng.random() < 0.2
    asked["level_weights"] = tuple(rng.randint(1, 4) for _ in sizes)
    program = image_program(rng, network, 8, sizes)
    write, shared = written(network, "joint", **asked), program.workload.shared
    plan = write(tuple(tuple(row[shared:]) for row in program.rows))
    assert price_of(plan) == plan.cost.total
    # Of a file that states no layouts they are those that cost least.
    if len(sizes) < 3:
        assert price_of(plan.model_copy(update={"layouts": None})) == plan.cost.total


@pytest.mark.parametrize("seed", slow_after(6, range(40)))
def test_optima_are_proved_and_dearer_plans_are_not(seed: int) -> None:
    rng = Random(seed)
    network, scope = images(rng, most=4), rng.choice(["joint", "levelwise"])
    asked: Any = {"batch": rng.choice([1, 2, 8]), "levels": 2, "choices": IMAGE_CHOICES}
    plan = ho.solve(network, search=scope, **asked)
    ho.check_certificate(plan, ho.certify(plan))
    data = ho.solve(network, solver="data", **asked)
    if data.cost.total > plan.cost.total and scope == "joint":
        with pytest.raises(ho.HyparError):
            ho.certify(data.model_copy(update={"solver": plan.solver}))


@pytest.mark.parametrize(
    ("seed", "tables"), [(31, 1), (32, 2), *slow_after(0, [(111, 4), (145, 4)])]
)
def test_plans_of_each_order_of_levels_are_proved(seed: int, tables: int) -> None:
    """Where the least of all states has parts with gaps; where pins leave one order, by that."""
    rng = Random(seed)
    network = images(rng, unit=8, most=3)
    names, levels = [layer.name for layer in network.layers], rng.choice([2, 2, 3])
    fix = [
        f"{rng.choice(names)}@H{rng.randint(1, levels)}={rng.choice(['rows', 'columns'])}"
        for _ in range(rng.randint(1, 3))
    ]
    asked: Any = {"batch": rng.choice([2, 4, 8]), "levels": levels, "choices": IMAGE_CHOICES}
    asked |= {"reading": rng.choice(["executed", "joined"]), "constraints": {"fix": fix}}
    plan = ho.solve(network, search="joint", **asked)
    certificate = ho.certify(plan)
    ho.check_certificate(plan, certificate)
    assert len(certificate.tables) == tables
    if tables > 1:
        fewer = certificate.model_copy(update={"tables": certificate.tables[1:]})
        with pytest.raises(CheckFailedError, match=r"tables|reduced cost"):
            ho.check_certificate(plan, fewer)


def test_parts_with_gaps_and_of_unequal_size_are_refused() -> None:
    described = {
        "name": "three",
        "input": {"channels": 4, "height": 12, "width": 12},
        "layer": [
            {"name": f"conv{n}", "kind": "conv", "filters": 4, "kernel": 3, "padding": 1}
            for n in range(3)
        ],
    }
    network = ho.Network.model_validate(described)
    asked: Any = {"batch": 4, "levels": 2, "reading": "executed", "choices": IMAGE_CHOICES}
    write = written(network, "joint", **asked)
    rows, data = IMAGE_CHOICES.index("rows"), 0
    plan = write(((rows, rows, data), (rows, data, data)))
    assert price_of(plan) == plan.cost.total
    for wrong in (((rows, data, data), (data, rows, data)), ((rows, data, data), (rows, rows, 0))):
        with pytest.raises(ho.HyparError, match="may not take rows at H2 and not at H1"):
            Instance.of_plan(plan).constraints.check(wrong)
        words = words_of(wrong, plan.words)
        with pytest.raises(CheckFailedError, match="rows are split into parts with gaps"):
            price_of(plan.model_copy(update={"parallelism": words}))
    three = ho.solve(network, solver="data", **{**asked, "levels": 3, "batch": 8})
    words = words_of(((rows,) * 3,) * 3, three.words)
    with pytest.raises(CheckFailedError, match="may not take rows at H3"):
        price_of(three.model_copy(update={"parallelism": words}))


@pytest.mark.parametrize("seed", slow_after(3, [0, 1, 6, *range(2, 6), *range(7, 40)]))
def test_time_and_energy_are_proved_and_time_is_that_of_a_simulation(seed: int) -> None:
    rng = Random(seed)
    array = load(rng.choice(["h100-8", "hmc-htree-8", "a100-4x8", "hmc-torus-8"]))
    array = array.model_copy(update={"collective": rng.choice(COLLECTIVES)})
    network, batch = images(rng, most=5), rng.choice([8, 3, 1])  # also of uneven batches
    asked: Any = {"batch": batch, "array": array, "choices": IMAGE_CHOICES}
    asked |= {"reading": rng.choice(["executed", "joined"]), "inference": rng.random() < 0.2}
    program = image_program(rng, network, batch, array.hierarchy().sizes)
    rows = tuple(tuple(row[program.workload.shared :]) for row in program.rows)
    plan = written(network, "joint", **asked, cost="time")(rows)
    assert price_of(plan) == plan.cost.total
    unit = {"femtoseconds": 1e-15, "picoseconds": 1e-12}[plan.cost.unit]
    simulated = ho.simulate(plan, overlap="none")
    assert simulated.seconds == pytest.approx(float(plan.cost.total) * unit, rel=1e-3)
    if array.name.startswith("hmc"):
        plan = written(network, "joint", **asked, cost="energy")(rows)
        assert price_of(plan) == plan.cost.total
