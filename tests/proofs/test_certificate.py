"""Certificates: what proves a plan optimal, and that nothing else passes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.documents import files
from hypar_opt.errors import RefusedError
from hypar_opt.models import PAPER_NETWORKS
from hypar_opt.proofs.certificate import Proof, read_certificate, write_certificate
from hypar_opt.proofs.chains import TableProof
from hypar_opt.proofs.graphs import EliminationProof, FlowProof
from hypar_opt.workload.parallelism import CHOICES
from tests.slow import slow_after


@pytest.mark.parametrize("search", ["levelwise", "joint"])
@pytest.mark.parametrize(
    ("name", "asked", "form"),
    [
        *slow_after(2, [(name, {}, TableProof) for name in PAPER_NETWORKS]),
        *slow_after(
            2,
            [(name, {"levels": 3, "choices": CHOICES}, TableProof) for name in PAPER_NETWORKS],
        ),
        ("resnet-18", {"levels": 2}, FlowProof),
        ("resnet-18", {"levels": 2, "choices": CHOICES, "reading": "tables"}, EliminationProof),
        *slow_after(
            1,
            [
                (name, {"levels": 2, "choices": CHOICES, "batch": 8}, EliminationProof)
                for name in ("gpt2", "resnet-50")
            ],
        ),
        ("lenet-c", {"hierarchy": (6, 8), "batch": 48}, TableProof),
        ("vgg-a", {"hierarchy": (6, 8), "batch": 48, "whole_levels": True}, TableProof),
        ("alexnet", {"hierarchy": (2, 3), "batch": 6, "choices": CHOICES}, TableProof),
        ("resnet-18", {"hierarchy": (3,), "batch": 12}, FlowProof),
        ("gpt2", {"hierarchy": (6,), "batch": 12, "choices": CHOICES}, EliminationProof),
    ],
)
def test_plans_of_the_zoo_are_certified(
    name: str, asked: dict[str, Any], form: type[Proof], search: str
) -> None:
    plan = ho.solve(name, search=search, **{"reading": "executed", **asked})
    assert plan.solver.status == "optimal"
    certificate = ho.certify(plan)
    assert {type(proof) for proof in certificate.tables} == {form}
    ho.check_certificate(plan, certificate)


@pytest.mark.parametrize(
    ("name", "solver", "form"), [("vgg-e", "data", "potentials"), ("resnet-18", "data", "flows")]
)
def test_a_plan_that_is_not_optimal_has_no_certificate(
    name: str, solver: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proof = tmp_path / "proof.json"
    args = ["solve", name, "--solver", solver, "--levels", "2", "--certificate", str(proof)]
    assert run(args) == 2
    refusal = rf"no certificate: {form} prove \d+ bytes, the plan costs"
    assert re.search(refusal, capsys.readouterr().err)
    assert not proof.exists()


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
            document["schema"] = "hypar-opt/certificate/5"
    return document


@pytest.mark.parametrize(
    ("where", "complaint", "status"),
    [
        ("higher", "a reduced cost of layer", 1),
        ("lower", "a reduced cost|the potentials prove", 1),
        ("shape", "should be one potential a layer and choice", 1),
        ("tables", "tables: should be 4, got 5", 1),
        ("plan", "the certificate belongs to another plan", 1),
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
    plan = ho.solve("cifar-c")
    file, proof = tmp_path / "plan.json", tmp_path / "proof.json"
    ho.write_plan(plan, file)
    proof.write_text(json.dumps(tamper(plan, where)))
    assert run(["verify", str(file), "--certificate", str(proof)]) == status
    err = capsys.readouterr().err
    assert re.search(complaint, err)
    assert str(proof) in err
    assert err.count("\n") == 1


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


def test_a_certificate_is_of_a_hierarchy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of levels as they are, which its plan states: of others it proves nothing."""
    plan_file, proof_file = tmp_path / "plan.json", tmp_path / "proof.json"
    asked = ["--batch", "48", "--hierarchy", "6,8", "--search", "joint"]
    written = ["--output", str(plan_file), "--certificate", str(proof_file)]
    assert run(["solve", "lenet-c", *asked, *written]) == 0
    verify = ["verify", str(plan_file), "--certificate", str(proof_file)]
    assert run(verify) == 0
    assert "proved (joint)" in capsys.readouterr().out
    plan, proof = ho.read_plan(plan_file), read_certificate(proof_file)
    assert plan.parts == (2, 3, 2, 2, 2)
    dearer = plan.cost.model_copy(update={"total": plan.cost.total + 1})
    for update in ({"parts": (2, 2, 2, 3, 2)}, {"cost": dearer}):
        forged = plan.model_copy(update=update)
        ho.write_plan(forged, plan_file)
        assert run(verify) == 1
        assert "cost, total: should be" in capsys.readouterr().err
        with pytest.raises(ho.HyparError, match="the certificate belongs to another plan"):
            ho.check_certificate(forged, proof)
    ho.write_plan(plan, plan_file)
    document = json.loads(proof_file.read_text())
    document["tables"][0]["potentials"][1][0] += 1
    proof_file.write_text(json.dumps(document))
    assert run(verify) == 1
    assert "a reduced cost of layer" in capsys.readouterr().err


def test_a_certificate_is_read_as_it_was_written(tmp_path: Path) -> None:
    certificate, file = ho.certify(ho.solve("cifar-c")), tmp_path / "proof.json"
    write_certificate(certificate, file)
    assert read_certificate(file) == certificate


def test_a_certificate_that_could_not_be_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, file = ho.certify(ho.solve("cifar-c")), tmp_path / "proof.json"
    size = len(certificate.to_json())
    monkeypatch.setattr(files, "MAX_BYTES", size)
    write_certificate(certificate, file)
    assert read_certificate(file) == certificate
    file.unlink()
    monkeypatch.setattr(files, "MAX_BYTES", size - 1)
    with pytest.raises(RefusedError, match=r"^no certificate: its file would have"):
        write_certificate(certificate, file)
    assert not file.exists()
