"""The plan file: self-contained, priced again on reading, and refused where it lies."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.costs.readings import READINGS
from hypar_opt.errors import InputError
from hypar_opt.pipeline import difference, solve_again, warnings
from hypar_opt.plan import amount, parse_plan
from hypar_opt.verify import check_plan, too_fine
from tests.strategies import networks

CIFAR = ho.solve("cifar-c").document()
Change = Callable[[dict[str, Any]], object]


def reread(document: dict[str, Any]) -> ho.Plan:
    plan = parse_plan(json.dumps(document), file="plan.json")
    check_plan(plan, file="plan.json")
    return plan


@given(
    networks(), st.integers(1, 9), st.integers(0, 4), st.sampled_from(list(READINGS)),
    st.sampled_from([1, 2, 4, 8]), st.booleans(), st.sampled_from(["dp", "model", "trick"]),
)  # fmt: skip
def test_a_plan_reads_back_and_solves_again_to_the_same_bytes(
    network: ho.Network,
    batch: int,
    levels: int,
    reading: str,
    element_bytes: int,
    inference: bool,
    solver: str,
) -> None:
    plan = ho.solve(
        network,
        solver=solver,
        batch=batch,
        levels=levels,
        reading=reading,
        element_bytes=element_bytes,
        inference=inference,
    )
    again = reread(plan.document())
    assert again == plan
    assert again.to_json() == plan.to_json()
    solved = solve_again(again)
    assert difference(plan, solved) is None
    seconds = {"seconds": plan.solver.seconds}
    timed = solved.model_copy(update={"solver": solved.solver.model_copy(update=seconds)})
    assert timed.to_json() == plan.to_json()


def test_the_document_is_what_the_architecture_says() -> None:
    assert CIFAR["schema"] == "hypar-opt/plan/1"
    assert set(CIFAR["network"]) == {"name", "digest", "description"}
    assert CIFAR["network"]["description"]["layer"][0]["kernel"] == [5, 5]
    assert CIFAR["array"] is None
    assert (CIFAR["batch"], CIFAR["levels"]) == (256, 4)
    assert CIFAR["layers"] == ["conv1", "conv2", "conv3", "fc1", "fc2"]
    assert {choice for row in CIFAR["parallelism"] for choice in row} == {"data", "model"}
    assert [len(row) for row in CIFAR["parallelism"]] == [5] * 4
    cost = CIFAR["cost"]
    assert (cost["kind"], cost["reading"], cost["unit"]) == ("bytes", "text", "bytes")
    assert sum(cost["per_level"]) == cost["total"]
    assert (cost["executed_bytes"], cost["data_parallel_bytes"]) == (21_815_552, 17_445_120)
    solver = CIFAR["solver"]
    assert (solver["name"], solver["search"]) == ("dp", "levelwise")
    assert (solver["status"], solver["scope"], solver["bound"]) == (
        "optimal",
        "level",
        cost["total"],
    )
    assert solver["versions"] == {"hypar-opt": ho.__version__}


def at(path: str, value: object) -> Change:
    *before, last = path.split(".")

    def change(document: dict[str, Any]) -> None:
        table: Any = document
        for key in before:
            table = table[int(key) if key.isdigit() else key]
        table[int(last) if last.isdigit() else last] = value

    return change


def consistent_digest(document: dict[str, Any]) -> None:
    """Change the network and its digest alike: only the prices give it away."""
    described = document["network"]["description"]
    described["layer"][0]["filters"] = 33
    document["network"]["digest"] = ho.Network.model_validate(described).digest()


REFUSED: list[tuple[Change, str]] = [
    (at("schema", "hypar-opt/plan/2"), "schema: 'hypar-opt/plan/2' is newer than this version"),
    (at("schema", "hypar-opt/network/1"), "schema: should be 'hypar-opt/plan/1', got"),
    (at("parallelism.1.4", "model"), "cost, total: should be"),
    (at("parallelism.1.4", "both"), "parallelism[1][4]: should be 'data' or 'model', got"),
    (at("parallelism.1", ["data"]), "parallelism[1]: should have a choice for each of 5 layers"),
    (at("levels", 5), "parallelism: should have a row for each of 5 levels, got 4"),
    (at("levels", True), "levels: should be a valid integer, got true"),
    (at("layers.0", "conv0"), "layers: should be the network's layers, in order"),
    (at("batch", 128), "cost, total: should be"),
    (at("inference", True), "cost, total: should be"),
    (at("element_bytes", 2), "cost, total: should be"),
    (at("element_bytes", 3), "element bytes should be one of 1, 2, 4, 8, got 3"),
    (at("cost.reading", "tables"), "cost, total: should be"),
    (at("cost.reading", "mine"), "cost, reading: should be 'text', 'tables', 'figures' or"),
    (at("cost.total", CIFAR["cost"]["total"] + 1), "cost, total: should be 12542208, as the"),
    (at("cost.total", True), "cost, total: should be a valid"),
    (at("cost.per_level.0", 0), "cost, per_level: should be (1163008, 1965568"),
    (at("cost.executed_bytes", 1), "cost, executed_bytes: should be 21815552"),
    (at("cost.data_parallel_bytes", 1), "cost, data_parallel_bytes: should be 17445120"),
    (at("cost.baselines.model", 1), "cost, baselines: should be"),
    (at("cost.ratios.data", 2.0), "cost, ratios: should be"),
    (at("solver.bound", 1), "solver, bound: should be the cost's total 12542208 of an optimal"),
    (at("solver.scope", "joint"), "solver, scope: should be 'level', got \"joint\""),
    (at("network.name", "x"), "network: name should be the description's, 'Cifar-c'"),
    (at("network.digest", "sha256:0"), "network: digest should be the description's, sha256:"),
    (at("network.description.layer.0.filters", 33), "network: digest should be the description's"),
    (at("network.description.layer.0.filters", 0), "network, description, layer 'conv1', filters:"),
    (consistent_digest, "cost, total: should be"),
    (at("array", {}), "array: should be None, got {}"),
    (at("placement", []), "placement: should be None, got []"),
    (at("constraints", ["fc1=data"]), "constraints: "),
    (at("choices", ["data"]), 'choices: should be ["data", "model"]'),
    (at("note", "mine"), "unknown key 'note'; known: schema, network, array"),
    (lambda document: document.pop("batch"), "missing key 'batch'"),
]


@pytest.mark.parametrize(("change", "complaint"), REFUSED, ids=[c for _, c in REFUSED])
def test_a_tampered_newer_or_misshapen_plan_is_refused_by_name(
    change: Change, complaint: str
) -> None:
    document = copy.deepcopy(CIFAR)
    change(document)
    with pytest.raises(InputError) as raised:
        reread(document)
    assert str(raised.value).startswith(f"plan.json: {complaint}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "should be JSON"),
        ("[]", "should be a valid dictionary"),
        ('{"batch": NaN}', "NaN is no JSON number"),
        ('{"batch": 1, "batch": 2}', "key 'batch' is given twice"),
        ("[" * 100_000, "should be JSON"),
        ("1" * 5000, "should be JSON"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(InputError, match=complaint) as raised:
        ho.read_plan(file)
    assert str(raised.value).startswith(f"{file}: ")


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "plan.json"
    plan = ho.solve("sconv")
    ho.write_plan(plan, file)
    assert ho.read_plan(file) == plan

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    before = file.read_bytes()
    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        ho.write_plan(ho.solve("sfc"), file)
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_a_link_and_keeps_its_files_mode(tmp_path: Path) -> None:
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.touch(mode=0o640)
    real.chmod(0o640)
    link.symlink_to(real)
    ho.write_plan(ho.solve("sconv"), link)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert ho.read_plan(real).network.name == "SCONV"


def test_halves_of_a_byte_are_exact_or_refused() -> None:
    assert amount(Fraction(2**80)) == 2**80
    assert amount(Fraction(3, 4)) == 0.75
    with pytest.raises(ho.HyparError, match="more than a plan file can hold exactly"):
        amount(Fraction(2**60 + 1, 2))


def test_a_plan_past_the_last_image_or_channel_says_so() -> None:
    plan = ho.solve("lenet-c", solver="model", batch=3, levels=2)
    assert too_fine(plan) == [
        "splits 1 layer below one input channel: conv1 has 1 input channel for 2^2 parts"
    ]
    plan = ho.solve("lenet-c", solver="data", batch=3, levels=2)
    assert too_fine(plan) == ["splits 4 layers below one image: conv1 has 3 images for 2^2 parts"]
    assert too_fine(ho.solve("lenet-c", solver="data", batch=4, levels=2)) == []


def test_warnings_name_the_reading_that_does_better() -> None:
    (warning,) = warnings(ho.solve("cifar-c"))
    assert warning == (
        "run, this plan moves 21.8 MB, Data Parallelism 17.4 MB;"
        " the plan of --solver dp --reading executed moves 13.8 MB"
    )
