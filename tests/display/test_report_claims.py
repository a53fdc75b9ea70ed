"""A report's status is what its certificate proves, and its time limit is kept."""

from __future__ import annotations

from math import floor
from pathlib import Path

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display.page.contents import gather
from hypar_opt.display.page.facts import facts
from hypar_opt.proofs import certificate as proofs
from hypar_opt.studies.targets import own_array
from tests.studies.test_trained_alternatives import trained


def test_within_a_time_limit_no_certificate_is_looked_for_and_the_limit_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(plan: ho.Plan) -> None:
        raise AssertionError("a certificate was looked for")

    monkeypatch.setattr(proofs, "certify", never)
    page = tmp_path / "page.html"
    asked = ["report", "lenet-c", "--array", "hmc-htree-8", "--search", "joint", "-o", str(page)]
    assert run([*asked, "--time-limit", "0.000001"]) == 0
    said = capsys.readouterr()
    assert "warning: the search was stopped by its time limit" in said.err
    text = page.read_text()
    assert "not looked for: the plan is not said to be optimal" in text
    assert "prove the plan optimal" not in text
    assert run([*asked, "--time-limit", "1000"]) == 0
    assert "not looked for within a time limit" in page.read_text()


def test_the_status_follows_the_certificate() -> None:
    """What a file claims less, it proves; what it claims more, it does not."""
    plan = ho.solve("lenet-c", array="hmc-htree-8", search="joint")
    proof = ho.certify(plan)
    claims = {"status": "feasible", "bound": plan.cost.total // 2, "gap": 0.5}
    modest = plan.model_copy(update={"solver": plan.solver.model_copy(update=claims)})
    shown = gather(modest, own_array(plan), proof=proof)
    assert dict(facts(shown))["status"] == "optimal"
    assert (shown.proved, shown.plan.solver.bound) == (True, plan.cost.total)


def test_what_a_file_claims_beyond_its_certificate_is_not_shown(tmp_path: Path) -> None:
    found = 0
    for seed in range(4):
        _, network, asked = trained(seed)
        plan = ho.solve(network, **asked, solver="model")
        memory = ho.memory(plan).total
        limits = {**asked["constraints"], "memory": memory}
        plan = ho.solve(network, **{**asked, "constraints": limits})
        proof = proofs.certify(plan)
        if proof.bound is None:
            continue
        found += 1
        plan.save(tmp_path / "plan.json")
        plan = ho.read_plan(tmp_path / "plan.json")  # whose claims are the file's
        claims = {"status": "optimal", "bound": plan.cost.total}
        solver = plan.solver.model_copy(update=claims)
        shown = gather(plan.model_copy(update={"solver": solver}), own_array(plan), proof=proof)
        assert (shown.proved, shown.plan.solver.status) == (False, "feasible")
        assert shown.plan.solver.bound is not None
        assert shown.plan.solver.bound == floor(proof.bound) < plan.cost.total
    assert found
