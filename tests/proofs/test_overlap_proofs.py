"""Certificates of plans with overlap: priced tables derived twice, and what is proved of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.costs.overlap import OverlapTime, least_of, waits_on
from hypar_opt.errors import CheckFailedError, RefusedError
from hypar_opt.integers import Integers
from hypar_opt.proofs.certificate import Certificate, certify, proved_bound
from hypar_opt.proofs.check.nodes import State
from hypar_opt.proofs.check.overlap import PRICE, StatedPrices, prices_of_nodes
from hypar_opt.proofs.check.rows import PlanProblem
from hypar_opt.proofs.check.tables import table_with_overlap
from hypar_opt.search.overlap import OVERLAPS, least_time
from hypar_opt.step.states import exact_sum
from hypar_opt.workload.recomputation import units_of
from tests.search.test_overlap import IN_LOCKSTEP, TORI, Drawn, drawn
from tests.slow import slow_after


def random_prices(rng: Random, layers: tuple[str, ...]) -> dict[str, int]:
    """Prices that never fall along the backward pass, from some layers on."""
    begins = sorted(rng.sample(range(len(layers)), rng.randint(1, len(layers))), reverse=True)
    rising = sorted(rng.randint(0, PRICE) for _ in begins)
    return {layers[n]: price for n, price in zip(begins, rising, strict=True)}


def charged_by_the_search(own: Drawn, cost: OverlapTime, node: int, state: State) -> int:
    """What the search's cost charges a node in a state of all levels."""
    block = np.array(state, np.intp)[:, None]
    return int(exact_sum(cost.node(own.workload, np.array([node]), [block])).item())


@pytest.mark.parametrize("first", slow_after(2, range(12)))
def test_priced_tables_are_derived_twice_to_the_unit(first: int) -> None:
    """Of all nodes and boundaries, in random states of each and in all pairs of these."""
    arrays = TORI if first % 2 else IN_LOCKSTEP
    for own in (own for n, own in enumerate(drawn(6 * (first + 1), arrays)) if n // 6 == first):
        plan, workload = own.plan, own.workload
        prices = random_prices(own.rng, plan.layers)
        overlap, forward = own.rng.choice(OVERLAPS), own.rng.choice([0, 17, PRICE])
        problem = PlanProblem(plan, StatedPrices(overlap, prices, forward))
        graph = problem.graph
        nodes = prices_of_nodes(plan, graph, prices)
        assert plan.array is not None
        array = plan.array.description
        units = units_of(own.instance.network, workload) if overlap == "prefetch" else None
        more: Any = {"waits": waits_on(array), "units": units, "forward": forward}
        least = least_of(own.instance.cost.time, array, overlap)
        cost = OverlapTime.of(least, workload, nodes, **more)
        cost = replace(cost.in_units(own.instance.cost.time.per_unit, workload), max_total=2**80)
        assert problem.charges.resolution == cost.scale
        states: list[list[State]] = []
        for node, laid_out in enumerate(graph.nodes):
            every = [*product(laid_out.choices, repeat=plan.levels)]
            states.append(own.rng.sample(every, min(len(every), 8)))
            for state in states[node]:
                charged = charged_by_the_search(own, cost, node, state)
                assert problem.charges.node(node, state) == charged, (node, state)
        for n, edge in enumerate(graph.edges):
            ends = (states[edge.source], states[edge.target])
            there: Integers = problem.charges.edge(n, *ends)
            blocks = [np.array(end, np.intp).T for end in ends]
            here = exact_sum(
                cost.edge(
                    workload, np.array([[n]]), [blocks[0][:, :, None]], [blocks[1][:, None, :]]
                )
            )
            assert (there == np.broadcast_to(here, there.shape)).all(), (n, edge)


ASKED: dict[str, Any] = {"array": "mosaic-h100-8", "batch": 64, "bucket": 0}


@pytest.fixture(scope="module")
def proved() -> tuple[ho.Plan, Certificate]:
    two: dict[str, Any] = {"choices": ("data", "model"), "settings": {"topology.per_node": 4}}
    plan = ho.solve("lenet-c", overlap="gradient", search="joint", **two, **ASKED)
    return plan, certify(plan)


PROBLEMS: list[Any] = [
    ("sfc", ASKED | {"overlap": "gradient", "bucket": "25 MB"}),
    ("vgg-a", ASKED | {"overlap": "prefetch"}),
    ("resnet-18", {"array": "mosaic-a100-4x8", "batch": 64, "overlap": "prefetch"}),
    ("gpt2", ASKED | {"overlap": "prefetch", "shard": "weights", "micro_batches": 2}),
]


@pytest.mark.parametrize(("network", "asked"), slow_after(1, PROBLEMS))
def test_the_bound_by_prices_is_that_of_the_search(network: str, asked: dict[str, Any]) -> None:
    plan = ho.solve(network, **asked)
    certificate = certify(plan)
    found = plan.solver.with_overlap
    assert found is not None
    assert certificate.overlap == found.overlap
    bound = proved_bound(plan, certificate)
    per_second = 10**15 if plan.cost.unit == "femtoseconds" else 10**12
    prices = tuple(map(int, found.prices))
    by_prices = least_time(plan, found.overlap, closes=False, prices=prices).time.bound
    # The search charges picoseconds where femtoseconds would not fit.
    assert bound / per_second == pytest.approx(by_prices, rel=1e-7)
    # What is stated may be proved by listing plans, too, and is never less than by prices.
    assert 0.5 * found.seconds < by_prices <= found.bound * (1 + 1e-7)
    is_listed = found.bound > by_prices * (1 + 1e-7)
    assert (certificate.claimed_beyond(plan, bound) is None) == (not is_listed)
    assert Certificate.model_validate_json(certificate.to_json()) == certificate


def test_no_plan_takes_less_than_the_bound_of_a_certificate(
    proved: tuple[ho.Plan, Certificate],
) -> None:
    from hypar_opt.search.overlap import PlansWithOverlap

    plan, certificate = proved
    search, rng = PlansWithOverlap(plan, "gradient"), Random(1)
    nodes = len(search.workload.nodes)
    least = float(proved_bound(plan, certificate)) / 10**15
    seconds = []
    for _ in range(40):
        rows = tuple(tuple(rng.randrange(2) for _ in range(nodes)) for _ in range(plan.levels))
        seconds.append(search.seconds(rows))
    assert least <= min(seconds) * (1 + 1e-9)


def tampered(certificate: Certificate, where: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(certificate.to_json())
    prices: dict[str, Any] = document["prices"]
    names = [*prices]
    potentials = document["tables"][0]["potentials"]
    match where:
        case "lower":
            prices[names[-1]] -= 1
        case "falls":
            document["prices"] = {"fc2": 9, "conv1": 8}
        case "unordered":
            document["prices"] = {"conv1": 1, "fc2": 2}
        case "unknown":
            document["prices"] = {"fc9": 1}
        case "above":
            prices[names[-1]] = PRICE + 1
        case "float":
            prices[names[-1]] = 0.5
        case "forward":
            document["forward"] = PRICE + 1
        case "potential":
            potentials[-1] = [number + 1 for number in potentials[-1]]
        case "bound":
            document["bound"] = str(int(document["bound"].split("/")[0]) + 10**9)
        case "overlap":
            document["overlap"] = "prefetch"
        case "scope":
            document["scope"] = "level"
        case "version":
            document["schema"] = "hypar-opt/certificate/1"
        case "none":
            del document["prices"]
        case "no bound":
            del document["bound"]
    return document


@pytest.mark.parametrize(
    ("where", "complaint", "status"),
    [
        ("lower", "a reduced cost|bound: should be at most", 1),
        ("falls", "prices, conv1: should be 9 to 64, for prices never fall, got 8", 1),
        ("unordered", "prices, fc2: should be layers of the plan, in the order of the", 1),
        ("unknown", "prices, fc9: should be layers of the plan", 1),
        ("above", "prices.*64", 2),
        ("float", "prices.*should be a", 2),
        ("forward", "forward.*64", 2),
        ("potential", "a reduced cost", 1),
        ("bound", r"bound: should be at most the [\d.]+ femtoseconds that the", 1),
        ("overlap", "overlap: should be 'gradient', the plan's, got 'prefetch'", 1),
        ("scope", "scope: should be 'joint' with overlap", 1),
        ("version", "overlap and prices should be in files of 'hypar-opt/certificate/3'", 2),
        ("none", "overlap and prices should be in files of 'hypar-opt/certificate/3'", 2),
        ("no bound", "with overlap there should be a bound", 2),
    ],
)
def test_a_tampered_certificate_with_overlap_fails_by_name(
    where: str,
    complaint: str,
    status: int,
    proved: tuple[ho.Plan, Certificate],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan, certificate = proved
    file, proof = tmp_path / "plan.json", tmp_path / "proof.json"
    ho.write_plan(plan, file)
    proof.write_text(json.dumps(tampered(certificate, where)))
    assert run(["verify", str(file), "--certificate", str(proof)]) == status
    err = capsys.readouterr().err
    assert re.search(complaint, err)
    assert err.count("\n") == 1


def with_record(plan: ho.Plan, **update: Any) -> ho.Plan:
    """A plan that states another time with overlap."""
    found = plan.solver.with_overlap
    assert found is not None
    rows = (found._replace(**update).statistics,)
    return plan.model_copy(update={"solver": plan.solver.model_copy(update={"statistics": rows})})


def test_the_seconds_of_a_plan_are_simulated_again(proved: tuple[ho.Plan, Certificate]) -> None:
    plan, certificate = proved
    found = plan.solver.with_overlap
    assert found is not None
    other = with_record(plan, seconds=found.seconds * 0.999, bound=found.bound * 0.99)
    with pytest.raises(CheckFailedError, match=r"should be .* s with overlap, as the plan is"):
        proved_bound(other, certificate)
    without = plan.model_copy(update={"solver": plan.solver.model_copy(update={"statistics": ()})})
    with pytest.raises(CheckFailedError, match="left out, as the plan states none"):
        proved_bound(without, certificate)


def test_a_claim_beyond_the_bound_is_named(proved: tuple[ho.Plan, Certificate]) -> None:
    plan, certificate = proved
    found = plan.solver.with_overlap
    assert found is not None
    bound = proved_bound(plan, certificate)
    modest = with_record(plan, bound=float(bound) / 10**15)
    assert certificate.claimed_beyond(modest, bound) is None
    assert "no plan with the same training settings" in certificate.claim(modest)
    assert certificate.claimed_beyond(with_record(plan, bound=found.seconds), bound) == (
        "to take the least time with overlap (gradient)"
    )
    more = with_record(plan, bound=(float(bound) / 10**15 + found.seconds) / 2)
    assert "that none takes less than" in str(certificate.claimed_beyond(more, bound))


def test_what_is_no_time_of_alike_accelerators_is_refused_by_name() -> None:
    refused: list[Any] = [
        {"array": "h100-8", "cost": "bytes"},
        {"array": "a100-h100-2x8", "share": 0.3},
    ]
    for asked in refused:
        plan = ho.solve("lenet-c", batch=64, **asked)
        with pytest.raises(RefusedError, match="a proof with overlap is of the time of accel"):
            table_with_overlap(plan, StatedPrices("prefetch", {}))
