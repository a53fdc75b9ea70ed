"""The cost in joules against the formula of docs/assumptions.md, and against the simulator."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs import COSTS
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.level_tables import level_table
from hypar_opt.costs.state_charges import canonical_states
from hypar_opt.costs.state_table import StateTable
from hypar_opt.documents.document import validate
from hypar_opt.hardware.array import COLLECTIVES, Array
from hypar_opt.instance.pricing import price_levels, price_table
from hypar_opt.sharding.passes import INFERENCE, TRAINING
from hypar_opt.units import PREFIXES
from tests.hardware.cubes import cubes
from tests.slow import examples
from tests.strategies.arrays import stages_by_hand
from tests.strategies.networks import networks
from tests.strategies.plans import (
    Asked,
    asked_of_arrays,
    counts,
    macs,
    plan_with,
    plans,
    total,
    workload,
)


def per_joule(plan: ho.Plan) -> int:
    return next(parts for parts, name in PREFIXES.items() if plan.cost.unit == f"{name}joules")


def level_bytes(plan: ho.Plan) -> tuple[Fraction, ...]:
    """What the plan's reading moves at each level, all groups together."""
    phases = INFERENCE if plan.inference else TRAINING
    cost = CommunicationCost(plan.cost.reading, plan.element_bytes, phases)
    return price_levels(workload(plan), cost, plan.assignments())


def local_words(plan: ho.Plan) -> Fraction:
    """|W| + |F_in| + |F_out| of every layer on an accelerator, times the accelerators."""
    sizes, words = workload(plan), Fraction()
    for place, (d, m, o) in enumerate(counts(plan)):
        words += Fraction(sizes.weights[place], 2 ** (m + o))
        words += Fraction(sizes.inputs[place], 2 ** (d + m))
        words += Fraction(sizes.pooled[place], 2 ** (d + o))
    return words * (1 << plan.levels)


def by_the_formula(plan: ho.Plan) -> Fraction:
    """docs/assumptions.md, a word having 4 bytes and crossing some links."""
    assert plan.array is not None
    assert plan.placement is not None
    array, passes = plan.array.description, 1 if plan.inference else 3
    constants = array.energies
    joules = constants.dram * passes * local_words(plan) * Fraction(plan.element_bytes, 4)
    joules += (constants.mac + constants.sram) * passes * sum(macs(plan))
    joules += constants.remote * sum(level_bytes(plan), Fraction()) / 4
    joules += constants.hop * crossed_by_the_formula(plan) / 4
    return joules


def crossed_by_the_formula(plan: ho.Plan) -> Fraction:
    """Bytes times links: those of a level's pairs, or of the rings over all of a layer's levels."""
    assert plan.array is not None
    assert plan.placement is not None
    array = plan.array.description
    interconnect, rings = array.interconnect, array.collective != "pairwise"
    phases = INFERENCE if plan.inference else TRAINING
    cost = CommunicationCost(plan.cost.reading, plan.element_bytes, phases)
    states = list(zip(*plan.assignments(), strict=True))
    above: list[tuple[int, ...]] = []
    crossed = Fraction()
    for bit, row in zip(plan.placement, plan.assignments(), strict=True):
        table = level_table(cost, workload(plan), above)
        for layer, choice in enumerate(row):
            bits = [b for b, c in zip(plan.placement, states[layer], strict=True) if c == choice]
            stages = stages_by_hand(array, bits) if rings else []
            of_bit = (link for stage, link in stages if bit in stage)
            hops = next(of_bit, interconnect.bisection(bit)).hops
            crossed += hops * table.in_units(int(table.node[layer, choice]))
        for edge, (source, target) in enumerate(table.ends):
            moved = table.in_units(int(table.edge[edge, row[source], row[target]]))
            crossed += interconnect.bisection(bit).hops * moved
        above.append(row)
    return crossed


@examples(150)
@given(plans("energy"))
def test_a_plan_costs_what_the_closed_formula_says(plan: ho.Plan) -> None:
    exact = by_the_formula(plan) * per_joule(plan)
    summands = len(plan.layers) * (2 * plan.levels + 2 + plan.levels + len(plan.choices))
    assert abs(total(plan) - exact) <= Fraction(summands, 2)


@examples(60)
@given(plans("energy"))
def test_a_plan_costs_what_its_simulated_step_takes(plan: ho.Plan) -> None:
    energy = ho.simulate(plan).energy
    charged = plan.cost.total / per_joule(plan)
    assert energy.total == pytest.approx(float(by_the_formula(plan)), rel=1e-9, abs=1e-30)
    assert charged == pytest.approx(energy.total, rel=1e-9, abs=100 / per_joule(plan))
    assert plan.cost.communication is not None
    moved = sum(plan.cost.communication) / per_joule(plan)
    assert moved == pytest.approx(energy.remote + energy.hops, rel=1e-9, abs=1e-13)


@examples(36)
@given(plans("time"), st.sampled_from(COLLECTIVES))
def test_a_hop_is_paid_for_each_byte_and_link(plan: ho.Plan, collective: str) -> None:
    """Whatever the topology: a ring pays for the links that it uses."""
    assert plan.array is not None
    array = plan.array.description
    step = ho.simulate(plan, collective=collective)
    crossed = sum(link.bytes for link in step.links)
    assert step.energy.hops == pytest.approx(float(array.energies.hop) * crossed / 4)
    if collective == "pairwise":
        assert plan.placement is not None
        hops = [array.interconnect.bisection(bit).hops for bit in plan.placement]
        expected = sum(map(float, (h * b for h, b in zip(hops, level_bytes(plan), strict=True))))
        assert crossed == pytest.approx(expected)


@given(networks(longest=3), asked_of_arrays(), st.data())
def test_level_by_level_charges_telescope_to_those_of_the_final_shards(
    network: ho.Network, asked: Asked, data: st.DataObject
) -> None:
    """What each level adds, and what a state of all levels costs, are the same whole numbers."""
    plan = ho.solve(network, cost="energy", solver="data", **asked)
    cost, sizes = COSTS["energy"].from_problem(plan.problem, workload(plan)), workload(plan)
    states = canonical_states(plan.levels, len(sizes.choices))
    columns = [data.draw(st.integers(0, len(states) - 1)) for _ in plan.layers]
    rows = list(zip(*(states[column] for column in columns), strict=True))
    assert price_table(StateTable.of(cost, sizes, plan.levels).dense(), columns) == sum(
        price_levels(sizes, cost, rows)
    )


def test_the_papers_formula_in_the_papers_numbers() -> None:
    """SFC, all data, 16 cubes: 640 pJ a touched word, 1920 pJ a moved one, 4.6 pJ a MAC."""
    plan = ho.solve("sfc", solver="data", cost="energy", array="hmc-htree-16")
    weights = 784 * 8192 + 2 * 8192**2 + 8192 * 10
    maps = 256 * (784 + 8192 + 8192 + 8192), 256 * (3 * 8192 + 10)
    moved = 2 * weights * (1 + 2 + 4 + 8)
    expected = (
        640 * 3 * (16 * weights + sum(maps)) + 1920 * moved + Fraction("4.6") * 3 * (256 * weights)
    )
    assert plan.cost.total == expected * 1000


@pytest.mark.parametrize(
    ("mac", "unit"),
    [("4.6 pJ", "femtojoules"), ("4.6 uJ", "nanojoules"), ("1e9 J", "joules")],
)
def test_dear_work_makes_the_unit_coarser_and_the_plan_says_so(mac: str, unit: str) -> None:
    data = cubes()
    data["energy"]["mac"] = mac
    plan = ho.solve("vgg-e", cost="energy", array=validate(Array, data))
    assert plan.cost.unit == unit
    assert abs(total(plan) - by_the_formula(plan) * per_joule(plan)) <= 100
    ho.check_certificate(plan, ho.certify(plan))


def test_an_array_that_takes_no_energy_costs_nothing() -> None:
    data = cubes()
    data["energy"] = {"mac": "0 J", "dram": "0 J", "remote": "0 J"}
    plan = ho.solve("sconv", cost="energy", array=validate(Array, data))
    assert plan.cost.total == 0
    assert plan.cost.ratios.data is None
    assert ho.simulate(plan).energy.total == 0
    assert plan_with([(0,) * 4] * 3, "sconv", cost="energy", array=plan.array).cost.total == 0
