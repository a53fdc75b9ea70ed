"""The plan file: self-contained, priced again on reading, and refused where it lies."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import hypar_opt as ho
from hypar_opt.errors import InputError
from hypar_opt.plan.costs import json_number
from hypar_opt.plan.oversplit import oversplit_warnings
from hypar_opt.plan.plan import parse_plan
from hypar_opt.planning.again import search_again
from hypar_opt.search.plan_file import check_plan
from hypar_opt.step.readings import READINGS
from hypar_opt.studies.advice import difference, warnings
from hypar_opt.workload.parallelism import CHOICES
from tests.strategies.networks import networks

CIFAR = ho.solve("cifar-c").document()
TIMED = ho.solve("lenet-c", cost="time", array="hmc-torus-4").document()
Change = Callable[[dict[str, Any]], object]


def reread(document: dict[str, Any]) -> ho.Plan:
    plan = parse_plan(json.dumps(document), file="plan.json")
    check_plan(plan, file="plan.json")
    return plan


@given(
    networks(), st.integers(1, 9), st.integers(0, 4), st.sampled_from(list(READINGS)),
    st.sampled_from([1, 2, 4, 8]), st.booleans(), st.sampled_from(["dp", "model", "trick"]),
    st.sampled_from(["levelwise", "joint"]),
)  # fmt: skip
def test_a_plan_reads_back_and_solves_again_to_the_same_bytes(
    network: ho.Network,
    batch: int,
    levels: int,
    reading: str,
    element_bytes: int,
    inference: bool,
    solver: str,
    search: str,
) -> None:
    assume(search == "joint" or reading != "joined")  # whose all-to-alls cross several levels
    plan = ho.solve(
        network,
        solver=solver,
        search=search,
        batch=batch,
        levels=levels,
        reading=reading,
        element_bytes=element_bytes,
        inference=inference,
    )
    assert plan.solver.versions == {"hypar-opt": ho.__version__}
    again = reread(plan.document())
    assert again == plan
    assert again.to_json() == plan.to_json()
    solved = search_again(again)
    assert difference(plan, solved) is None
    seconds = {"seconds": plan.solver.seconds}
    timed = solved.model_copy(update={"solver": solved.solver.model_copy(update=seconds)})
    assert timed.to_json() == plan.to_json()


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
    (at("schema", "hypar-opt/plan/16"), "schema: 'hypar-opt/plan/16' is newer than this version"),
    (at("schema", "hypar-opt/plan/15"), "choices: parts of H1 as stages should be in files of"),
    (at("schema", "hypar-opt/plan/14"), "choices: queries should be in files of"),
    (at("schema", "hypar-opt/plan/13"), "training: recompute by op should be in files of"),
    (at("schema", "hypar-opt/plan/12"), "training: gather or reduce_bytes should be in files of"),
    (at("schema", "hypar-opt/plan/11"), "choices: addends should be in files of"),
    (at("schema", "hypar-opt/plan/10"), "choices: whole should be in files of 'hypar-opt/plan/10'"),
    (at("schema", "hypar-opt/plan/9"), "choices: rows, columns or experts should be in files of"),
    (at("schema", "hypar-opt/plan/8"), "training: shards from a level down should be in files of"),
    (at("schema", "hypar-opt/plan/7"), "share: of three groups or more should be in files of"),
    (at("schema", "hypar-opt/plan/6"), "training: words by layer should be in files of"),
    (at("schema", "hypar-opt/plan/5"), "choices: tokens should be in files of 'hypar-opt/plan/5'"),
    (at("schema", "hypar-opt/plan/3"), "parts: should be in files of 'hypar-opt/plan/3'"),
    (at("schema", "hypar-opt/network/1"), "this is a network file: pass it as network"),
    (
        at("schema", "hypar-opt/plan/1"),
        "layouts: should be in files of 'hypar-opt/plan/2' or later",
    ),
    (at("layouts", None), "layouts: should have the layouts of every layer, not of 'conv1'"),
    (lambda d: d["layouts"].pop("fc1"), "layouts: should have the layouts of every layer, not"),
    (at("layouts.fc9", ["batch"] * 4), "layouts: should be of the network's layers, got 'fc9'"),
    (at("layouts.fc1", ["batch"]), "layouts, fc1: should have a layout for each of 4 levels"),
    (
        at("layouts.fc1.0", "split"),
        "layouts, fc1[0]: should be 'batch', 'channel', 'token', 'row', 'column', 'expert',",
    ),
    (at("layouts.fc1.0", "whole"), 'layouts, fc1: should be ["batch", "batch", '),
    (at("layouts.conv1", ["channel"] * 4), 'layouts, conv1: should be ["batch", '),
    (lambda document: document.pop("layouts"), "layouts: should have the layouts of every layer"),
    (at("parallelism.1.4", "model"), "cost, total: should be"),
    (
        at("parallelism.1.4", "both"),
        "parallelism[1][4]: should be 'data' or 'model', got",
    ),
    (at("parallelism.1", ["data"]), "parallelism[1]: should have a choice for each of 5 layers"),
    (at("levels", 5), "parallelism: should have a row for each of 5 levels, got 4"),
    (at("levels", True), "levels: should be a whole number, got true"),
    (at("layers.0", "conv0"), "layers: should be the network's layers, in order"),
    (at("batch", 128), "cost, total: should be"),
    (at("inference", True), "cost, total: should be"),
    (at("element_bytes", 2), "cost, total: should be"),
    (at("element_bytes", 3), "element_bytes: should be one of 1, 2, 4, 8, got 3"),
    (at("cost.reading", "tables"), "cost, total: should be"),
    (at("cost.reading", "?"), "unknown reading '?': known: text, tables, figures, executed"),
    (at("cost.total", CIFAR["cost"]["total"] + 1), "cost, total: should be 12542208, as the"),
    (at("cost.total", True), "cost, total: should be a whole number, got true"),
    (at("cost.per_level.0", 0), "cost, per_level: should be [1163008, 1965568"),
    (at("cost.executed_bytes", 1), "cost, executed_bytes: should be 20308224"),
    (at("cost.data_parallel_bytes", 1), "cost, data_parallel_bytes: should be 17445120"),
    (at("cost.baselines.model", 1), "cost, baselines: should be"),
    (at("cost.ratios.data", 2.0), "cost, ratios: should be"),
    (at("solver.bound", 1), "solver, bound: should be the cost's total 12542208 of an optimal"),
    (at("solver.scope", "all"), "solver, scope: should be 'level' or 'joint', got \"all\""),
    (at("solver.name", "a\nb"), "solver, name: should be a name in printable characters"),
    (at("solver.seconds", "0.1"), "solver, seconds: should be a number"),
    (at("cost.ratios.data", "1.0"), "cost, ratios, data: should be a number"),
    (at("solver.options.gap", 2), "solver, options, gap: should be less than or equal to 1"),
    (
        lambda d: d["solver"].update(status="feasible", bound=d["cost"]["total"] + 1),
        "solver, bound: should be at most the cost's total 12542208",
    ),
    (at("network.name", "x"), "network: name should be the description's, 'Cifar-c'"),
    (at("network.digest", "sha256:0"), "network: digest should be the description's, sha256:"),
    (at("network.description.layer.0.filters", 33), "network: digest should be the description's"),
    (at("network.description.layer.0.filters", 0), "network, description, layer 'conv1', filters:"),
    (consistent_digest, "cost, total: should be"),
    (at("array", {}), "array: missing key 'name'"),
    (at("placement", []), "placement: should be there with an array, and null without"),
    (at("cost.kind", "mass"), "unknown cost 'mass': known: bytes, time, energy"),
    (at("cost.kind", "time"), "cost='time' needs an array"),
    (at("cost.unit", "bits"), "cost, unit: should be bytes, as the parallelism is priced, got"),
    (at("constraints", ["fc1=data"]), "constraints: should be a table"),
    (at("constraints.memory", "lots"), "constraints, memory: should be bytes, as in 8GB"),
    (
        at("choices", ["data"]),
        "choices: should be data, model, or these and some of output, tokens, rows, columns",
    ),
    (at("level_weights", [1, 2]), "level_weights: should be one for each of 4 levels, got 2"),
    (
        lambda d: d.update({"schema": "hypar-opt/plan/16", "new": 1}),
        "schema: 'hypar-opt/plan/16' is newer than this version",
    ),
    (at("constraints.fix", ["fc1@H2=data"]), "constraints: fc1 may not take model at H2"),
    (at("constraints.fix", ["fc9=data"]), "constraints.fix='fc9=data': no layer is called 'fc9'"),
    (at("constraints.memory", 8_380_160), "constraints: the plan takes 8,"),
    (at("note", "mine"), "unknown key 'note': known: batch, levels"),
    (lambda document: document.pop("batch"), "missing key 'batch'"),
    (lambda document: document.pop("schema"), "missing key 'schema'"),
    (lambda document: document.pop("placement"), "missing key 'placement'"),
]

ORDERS = "placement: should be one that the array's torus allows, as [1, 0]"
WITHOUT_ARRAY = "placement: should be there with an array, and null without"
REFUSED_ON_AN_ARRAY: list[tuple[Change, str]] = [
    (at("cost.total", 5), "cost, total: should be "),
    (at("cost.unit", "picoseconds"), "cost, unit: should be femtoseconds, as the par"),
    (at("cost.kind", "energy"), "cost, unit: should be femtojoules, as the par"),
    (at("cost.communication", [0, 0]), "cost, communication: should be "),
    (at("cost.communication", None), "cost, communication: should be "),
    (at("array.digest", "sha256:0"), "array: digest should be the description's, sha256:"),
    (at("array.name", "other"), "array: name should be the description's, 'hmc-torus-4'"),
    (
        at("array.description.topology.link", {"bandwidth": "1 GB/s"}),
        "array: digest should be the description's",
    ),
    *((at("placement", wrong), ORDERS) for wrong in ([0, 0], [2, 1], [1])),
    (at("placement", None), WITHOUT_ARRAY),
    (at("array", None), WITHOUT_ARRAY),
    (at("levels", 3), "levels: should be 2, since the array hmc-torus-4 has 4 accelerators"),
]


RESIDUAL = ho.Network.model_validate(
    {
        "schema": "hypar-opt/network/2",
        "name": "residual",
        "input": {"features": 64},
        "layer": [
            {"name": "fc1", "kind": "fc", "units": 64},
            {"name": "fc2", "kind": "fc", "units": 64},
            {"name": "sum", "kind": "add", "inputs": ["fc1", "fc2"]},
            {"name": "fc3", "kind": "fc", "units": 8},
        ],
    }
)
"""The output of ``fc1`` has two readers."""


@pytest.mark.parametrize(
    ("reading", "choices"),
    [*((reading, 2) for reading in READINGS), ("text", 3), ("tables", 3), ("executed", 3)],
)
def test_a_file_of_version_1_has_the_layouts_that_cost_least(
    reading: str, choices: int, tmp_path: Path
) -> None:
    words = CHOICES[:choices]
    plan = ho.solve(RESIDUAL, batch=4, levels=2, reading=reading, choices=words)
    older = plan.document() | {"schema": "hypar-opt/plan/1"}
    del older["layouts"]
    if choices == 3:
        older["cost"]["executed_bytes"] = None
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(older))
    assert ho.read_plan(file) == plan


def test_a_shared_tensor_is_priced_as_it_is_stored() -> None:
    plan = ho.solve(RESIDUAL, batch=64, levels=1, reading="executed", solver="data")
    assert plan.layouts is not None
    assert plan.layouts["fc1"] == ("batch",)
    document = plan.document()
    document["layouts"]["fc1"] = ["channel"]
    # Its writer and both its readers convert it, forward and backward: half of 64 x 64 elements.
    moved = plan.cost.total + 3 * 2 * (64 * 64 // 2) * 4
    with pytest.raises(InputError, match=rf"cost, total: should be {moved}, as the parallelism"):
        reread(document)
    document["layouts"]["fc1"] = ["whole"]
    with pytest.raises(
        InputError, match=r"layouts, fc1: should be among batch, channel, .* got whole"
    ):
        reread(document)


@pytest.mark.parametrize(
    ("plan", "change", "complaint"),
    [
        (plan, *row)
        for plan, rows in ((CIFAR, REFUSED), (TIMED, REFUSED_ON_AN_ARRAY))
        for row in rows
    ],
)
def test_a_tampered_newer_or_misshapen_plan_is_refused_by_name(
    plan: dict[str, Any], change: Change, complaint: str, tmp_path: Path
) -> None:
    document = copy.deepcopy(plan)
    change(document)
    assert refused(json.dumps(document), tmp_path).startswith(complaint)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "should be JSON"),
        ("[]", "should be a table"),
        ('{"batch": NaN}', "NaN is not a JSON number"),
        ('{"batch": 1, "batch": 2}', "key 'batch' is given twice"),
        ("[" * 100_000, "should be JSON"),
        ("1" * 5000, "should be JSON"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    assert complaint in refused(text, tmp_path)


def refused(text: str, folder: Path) -> str:
    """Return the one line about a file, without its name, that refuses to read it."""
    file = folder / "plan.json"
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        ho.read_plan(file)
    name, said = str(raised.value).split(": ", 1)
    assert name == str(file)
    assert "\n" not in said
    return said


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


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("/dev/stdout", "--json prints to standard output"),
        ("-", "--json prints to standard output"),
        ("", "should be a file, not a folder"),
        ("nowhere/plan.json", "there is no folder"),
        ("loop", "cannot be written: Too many levels of symbolic links"),
        ("x" * 300, "cannot be written: File name too long"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(
    name: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError) as raised:
        ho.write_plan(ho.solve("sconv"), name)
    assert complaint in raised.value.for_shell


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
    assert json_number(Fraction(2**80)) == 2**80
    assert json_number(Fraction(3, 4)) == 0.75
    with pytest.raises(
        ho.HyparError, match="more digits than a plan file holds exactly; take 4, or fewer levels"
    ):
        json_number(Fraction(2**60 + 1, 2))


def test_a_plan_past_the_last_image_or_channel_says_so() -> None:
    plan = ho.solve("lenet-c", solver="model", batch=3, levels=2)
    assert oversplit_warnings(plan) == [
        "splits 1 layer below one input channel: conv1 has 1 input channel for 4 parts"
    ]
    plan = ho.solve("lenet-c", solver="data", batch=3, levels=2)
    assert oversplit_warnings(plan) == [
        "splits 4 layers below one image: conv1 has 3 images for 4 parts"
    ]
    assert oversplit_warnings(ho.solve("lenet-c", solver="data", batch=4, levels=2)) == []


def test_no_reading_is_recommended_where_pins_leave_none_that_does_better() -> None:
    plan = ho.solve("cifar-c", constraints={"fix": ("*=model",)})
    assert ho.better_reading(plan) is None
    assert "reading" not in warnings(plan)[0]


def test_a_plan_of_unequal_parts_is_refused_where_they_are_to_be_even(tmp_path: Path) -> None:
    description = copy.deepcopy(CIFAR["network"]["description"])
    description["layer"][1]["filters"] = 33
    document = ho.solve(ho.Network.model_validate(description)).document()
    document["constraints"]["even"] = True
    said = refused(json.dumps(document), tmp_path)
    assert said.startswith("constraints: conv3 may not take model at H4")
