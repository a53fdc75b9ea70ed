"""Certificates: what proves a plan optimal, and that nothing else passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.models import PAPER_NETWORKS
from hypar_opt.proofs.certificate import (
    Certificate,
    TableProof,
    read_certificate,
    write_certificate,
)
from hypar_opt.workload.parallelism import CHOICES
from tests.strategies.networks import networks

SEARCHES = st.sampled_from(["levelwise", "joint"])


@given(
    networks(longest=4),
    SEARCHES,
    st.integers(1, 9),
    st.integers(0, 3),
    st.lists(st.integers(1, 5), min_size=3, max_size=3),
    st.booleans(),
)
def test_every_plan_found_without_a_memory_limit_is_certified(
    network: ho.Network, search: str, batch: int, levels: int, weights: list[int], third: bool
) -> None:
    plan = ho.solve(
        network,
        search=search,
        batch=batch,
        levels=levels,
        level_weights=tuple(weights[:levels]),
        choices=CHOICES[: 2 + third],
        constraints={"fix": (f"{network.layers[0].name}=model",)},
    )
    certificate = ho.certify(plan)
    assert certificate.scope == plan.solver.scope
    ho.check_certificate(plan, certificate)


@pytest.mark.parametrize("name", PAPER_NETWORKS)
@pytest.mark.parametrize("search", ["levelwise", "joint"])
def test_the_ten_networks_plans_are_certified(name: str, search: str) -> None:
    plan = ho.solve(name, search=search)
    ho.check_certificate(plan, ho.certify(plan))


def test_a_plan_that_is_not_optimal_has_no_certificate() -> None:
    trick = ho.solve("vgg-e", solver="trick")
    with pytest.raises(ho.HyparError, match=r"no certificate: potentials prove \d+ bytes"):
        ho.certify(trick)


@given(networks(longest=3), SEARCHES, st.integers(1, 9), st.integers(1, 3), st.data())
def test_under_memory_a_certificate_proves_or_gives_bound_and_gap(
    network: ho.Network, search: str, batch: int, levels: int, data: st.DataObject
) -> None:
    memory = data.draw(st.integers(1, 16 * ho.Workload.of(ho.layer_graph(network), batch).elements))
    try:
        plan = ho.solve(
            network, search=search, batch=batch, levels=levels, constraints={"memory": memory}
        )
    except ho.HyparError:
        return  # no plan fits at all
    try:
        certificate = ho.certify(plan)
    except ho.HyparError as error:
        refusal = str(error)
    else:
        ho.check_certificate(plan, certificate)
        return
    words = refusal.split()
    bound, total = float(words[4]), float(words[9].rstrip(","))
    assert bound < total == plan.cost.total
    assert "a gap of" in refusal


def test_a_binding_memory_limit_may_leave_a_gap_that_is_named() -> None:
    """The smallest memory is proved by its price; a little more leaves a duality gap."""
    free, smallest, more = (
        ho.solve("cifar-c", search="joint", constraints={"memory": memory})
        for memory in (None, 8_380_160, 8_547_763)
    )
    assert free.cost.total < more.cost.total < smallest.cost.total
    proof = ho.certify(smallest)
    assert isinstance(proof.tables[0], TableProof)
    assert proof.tables[0].multiplier > 0
    ho.check_certificate(smallest, proof)
    with pytest.raises(ho.HyparError, match=r"no certificate: .* a gap of 0\.00438"):
        ho.certify(more)


def tamper(plan: ho.Plan, where: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ho.certify(plan).to_json())
    table = document["tables"][0]
    match where:
        case "higher":
            table["potentials"][0][0] += 1
        case "lower":
            table["potentials"][-1][0] -= 10**12
            table["potentials"][-1][1] -= 10**12
        case "shape":
            table["potentials"].pop()
        case "tables":
            document["tables"].append(table)
        case "plan":
            document["plan"] = "sha256:0"
        case "scope":
            document["scope"] = "joint"
        case "multiplier":
            table["multiplier"] = 1
        case "scale":
            table["scale"] = 2
        case "float":
            table["potentials"][0][0] = 0.5
        case "newer":
            document["schema"] = "hypar-opt/certificate/2"
    return document


@pytest.mark.parametrize(
    ("where", "complaint", "status"),
    [
        ("higher", "a reduced cost of layer", 1),
        ("lower", "a reduced cost|the potentials prove", 1),
        ("shape", "should be one potential a layer and choice", 1),
        ("tables", "tables: should be 4, got 5", 1),
        ("plan", "the certificate is of another plan", 1),
        ("scope", "scope: should be the plan's, 'level'", 1),
        ("multiplier", "a multiplier, and there is no capacity", 1),
        ("scale", "the potentials prove", 1),
        ("float", "should be a", 2),
        ("newer", "is newer than this version", 2),
    ],
)
def test_a_tampered_certificate_fails_by_name(
    where: str,
    complaint: str,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import re

    plan = ho.solve("cifar-c")
    file, proof = tmp_path / "plan.json", tmp_path / "proof.json"
    ho.write_plan(plan, file)
    proof.write_text(json.dumps(tamper(plan, where)))
    assert run(["verify", str(file), "--certificate", str(proof)]) == status
    err = capsys.readouterr().err
    assert re.search(complaint, err)
    assert str(proof) in err
    assert err.count("\n") == 1


def test_verify_proves_a_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, proof = tmp_path / "plan.json", tmp_path / "proof.json"
    args = ["solve", "vgg-a", "--search", "joint", "--output", str(file)]
    assert run([*args, "--certificate", str(proof)]) == 0
    capsys.readouterr()
    assert run(["verify", str(file), "--certificate", str(proof), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["optimal"] == "proved (joint)"
    assert read_certificate(proof) == ho.certify(ho.read_plan(file))


@pytest.mark.parametrize("key", ["parallelism", "total", "filters"])
def test_verify_fails_a_tampered_plan_by_name(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = ho.solve("cifar-c").document()
    match key:
        case "parallelism":
            document["parallelism"][0][0] = "model"
        case "total":
            document["cost"]["total"] -= 1
        case "filters":
            document["network"]["description"]["layer"][0]["filters"] += 1
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document))
    assert run(["verify", str(file)]) == 1
    assert capsys.readouterr().err.startswith(f"hypar-opt: {file}: ")


def test_a_certificate_of_another_plan_proves_nothing(tmp_path: Path) -> None:
    one, other = ho.solve("cifar-c"), ho.solve("cifar-c", batch=255)
    with pytest.raises(ho.HyparError, match="of another plan"):
        ho.check_certificate(other, ho.certify(one))
    file = tmp_path / "proof.json"
    write_certificate(ho.certify(one), file)
    assert isinstance(read_certificate(file), Certificate)
