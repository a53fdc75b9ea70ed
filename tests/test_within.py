"""Whatever limits the choice stands in every sentence that calls a plan optimal or proved."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.display.page import page
from hypar_opt.display.page.contents import gather
from hypar_opt.plan.constraints import Constraints
from hypar_opt.proofs.certificate import certify, write_certificate

LIMITS: dict[str, dict[str, Any]] = {
    " with --fix *=model": {"fix": ("*=model",)},
    " with --even": {"even": True},
    " with --memory 2000000000, --optimizer adam": {"memory": 2 * 10**9, "optimizer": "adam"},
    " with --fix conv*=data, --fix fc1@H1=model, --even": {
        "fix": ("conv*=data", "fc1@H1=model"),
        "even": True,
    },
}
CLAIMS = ("optimal over all levels", "optimal level by level", "proved (", "prove the plan optimal")


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line of a table is folded."""
    monkeypatch.setenv("COLUMNS", "500")


def unlimited(text: str, within: str) -> list[str]:
    """The sentences that claim an optimum and do not say within what."""
    text = re.sub(r"\s+", " ", text)
    wanted = {f"optimal level by level{within}", f"optimal over all levels{within}"}
    found = []
    for claim in CLAIMS:
        for place in (match.start() for match in re.finditer(re.escape(claim), text)):
            rest = text[place : place + len(claim) + len(within) + 60]
            if not any(rest.startswith(each) for each in wanted) and within not in rest:
                found.append(rest)
    found += [
        each
        for each in re.findall(r"Also jointly optimal.*? across all levels", text)
        if within not in each
    ]
    found += [each for each in re.findall(r"Joint optimum across .*?:", text) if within not in each]
    found += [each for each in re.findall(r"Best plans over .*?:", text) if within not in each]
    return found


@pytest.mark.parametrize("within", LIMITS)
@pytest.mark.parametrize("search", ["levelwise", "joint"])
def test_a_claim_says_within_what(
    within: str, search: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    constraints = Constraints(**LIMITS[within])
    plan = ho.solve("alexnet", search=search, constraints=constraints, levels=2)
    file, proof = tmp_path / "p.json", tmp_path / "c.json"
    ho.write_plan(plan, file)
    assert constraints.within == within
    assert run(["show", str(file)]) == 0
    shown = capsys.readouterr().out
    assert plan.solver.status == "optimal"
    assert within in re.sub(r"\s+", " ", shown)
    assert unlimited(shown, within) == []
    try:
        write_certificate(certify(plan), proof)
    except ho.HyparError:  # a memory limit may leave a gap
        return
    for as_json in ([], ["--json"]):
        assert run(["verify", str(file), "--certificate", str(proof), *as_json]) == 0
        said = capsys.readouterr().out
        assert f"proved ({plan.solver.scope}{within})" in re.sub(r"\s+", " ", said)


def test_plans_without_limits_say_nothing_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["solve", "lenet-c", "--optimizer", "adam"]) == 0
    said = capsys.readouterr().out
    assert "(optimal level by level)" in said
    assert "--optimizer" not in said
    assert (
        "Also jointly optimal across all levels." in said
        or "Joint optimum across all levels:" in said
    )


def test_solve_says_what_best_and_joint_are_within(capsys: pytest.CaptureFixture[str]) -> None:
    call = ["solve", "alexnet", "--fix", "fc1@H1=data", "--levels", "2"]
    assert run([*call, "--best", "2", "--regret"]) == 0
    said = capsys.readouterr().out
    assert unlimited(said, " with --fix fc1@H1=data") == []
    assert "Best plans over all levels together with --fix fc1@H1=data:" in said
    assert (
        "jointly optimal with --fix fc1@H1=data across" in said or "across all levels with" in said
    )


@pytest.mark.parametrize("search", ["levelwise", "joint"])
def test_the_page_says_within_what(search: str) -> None:
    within = " with --fix conv*=data, --even"
    plan = ho.solve(
        "lenet-c",
        search=search,
        array="hmc-htree-4",
        constraints={"fix": ["conv*=data"], "even": True},
    )
    assert plan.array is not None
    contents = gather(plan, plan.array.description)
    assert contents.proved
    text = page(contents)
    body = text[text.index("<header>") : text.index("<script", text.index("</header>"))]
    assert within in contents.proof
    assert f"{within}; bound" in body
    assert unlimited(body, within) == []


def test_an_exploration_says_within_what(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explore", "lenet-c", "--free", "H1", "--fix", "fc1@H2=data"]) == 0
    assert "plans by bytes with --fix fc1@H2=data" in capsys.readouterr().out


def test_many_pins_are_counted() -> None:
    within = Constraints(fix=tuple(f"fc{n}=data" for n in range(9))).within
    assert within == " with --fix fc0=data, --fix fc1=data, --fix fc2=data, 6 more pins"
    assert Constraints(fix=("a=data",) * 4).within.count("--fix") == 4
