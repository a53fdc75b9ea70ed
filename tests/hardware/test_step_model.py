"""How a step is counted is a key of an array's file, whatever the array's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.documents.document import digest_of, validate
from hypar_opt.errors import HyparError, InputError
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.step_model import STEP_MODELS
from hypar_opt.plan.arguments import problem_of
from hypar_opt.proofs.certificate import proved_bound
from hypar_opt.workload.parallelism import CHOICES, PAPERS_CHOICES
from tests.cli.shell import Shell
from tests.hardware.cubes import cubes
from tests.slow import slow_after

PAPERS = [name for name in arrays.names() if arrays.load(name).model == "hypar-2019"]
UNEVEN: dict[str, Any] = {"cost": "time", "reading": "executed", "batch": 100}


def copied(name: str = "hmc-htree-16", **changes: Any) -> dict[str, Any]:
    """Return a preset's description under another name."""
    return arrays.load(name).description() | {"name": "mine"} | changes


def without_model(described: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in described.items() if key != "model"}


def results(array: Array, **asked: Any) -> str:
    """Return a plan, its step and its memory as JSON without names, digests and seconds."""
    plan = ho.solve("lenet-c", array=array, **asked)
    solved = plan.document()
    del solved["solver"]["seconds"], solved["array"]["digest"]
    documents = solved, ho.simulate(plan).document(), ho.memory(plan).document()
    return json.dumps(documents).replace(array.name, "ARRAY")


def test_the_models_have_the_choices_of_the_paper_and_of_runs() -> None:
    assert {own.choices for own in STEP_MODELS.values()} == {PAPERS_CHOICES, CHOICES}


def test_the_papers_arrays_state_its_model() -> None:
    assert [f"hmc-{kind}-{2**n}" for kind in ("htree", "torus") for n in range(1, 7)] == PAPERS


@pytest.mark.parametrize("asked", [{}, UNEVEN, {"cost": "energy", "memory": "8 GB"}])
@pytest.mark.parametrize("preset", ["hmc-htree-16", "hmc-torus-8"])
def test_a_renamed_copy_is_solved_simulated_and_held_as_the_original(
    preset: str, asked: dict[str, Any]
) -> None:
    array = validate(Array, copied(preset))
    assert results(array, **asked) == results(arrays.load(preset), **asked)


def test_without_the_model_a_copy_is_counted_as_it_runs() -> None:
    paper, own = (validate(Array, described) for described in (copied(), without_model(copied())))
    assert (problem_of(array=paper).reading, problem_of(array=own).reading) == ("text", "executed")
    assert (problem_of(array=paper).cost, problem_of(array=own).cost) == ("bytes", "time")
    asked = UNEVEN | {"solver": "data", "choices": PAPERS_CHOICES, "runnable": False}
    by_mean, by_largest = (ho.solve("lenet-c", array=array, **asked) for array in (paper, own))
    assert by_mean.cost.total < by_largest.cost.total
    sums, moments = (ho.simulate(plan).memory for plan in (by_mean, by_largest))
    assert sums != moments


def test_an_array_of_ones_own_may_have_the_papers_model() -> None:
    own = validate(Array, cubes() | {"model": "hypar-2019", "element_bytes": 2})
    problem = problem_of(array=own)
    assert (problem.reading, problem.cost, problem.choices) == ("text", "bytes", PAPERS_CHOICES)
    assert problem.element_bytes == 2
    assert problem.device_memory is None
    assert not problem.constraints.runnable
    # The paper's reading has levels of two parts only.
    thirds = validate(Array, cubes(kind="ring", accelerators=6, link={"bandwidth": "1 GB/s"}))
    thirds = validate(Array, thirds.description() | {"model": "hypar-2019"})
    assert problem_of(array=thirds).reading == "executed"
    assert ho.simulate(ho.solve("lenet-c", array=thirds)).seconds > 0


def test_settings_keep_the_model_and_state_it() -> None:
    settings: dict[str, Any] = {"accelerator.utilisation": 0.5}
    assert ho.solve("lenet-c", array="hmc-torus-4", settings=settings).cost.reading == "text"
    own, settings = validate(Array, without_model(copied())), {"model": "hypar-2019"}
    assert ho.solve("lenet-c", array=own, settings=settings).cost.reading == "text"


def test_another_model_is_refused_in_a_line(tmp_path: Path, shell: Shell) -> None:
    file = tmp_path / "mine.toml"
    text = arrays.file_text("hmc-htree-4").replace("hmc-htree-4", "mine")
    file.write_text(text.replace("hypar-2019", "hypar-2018"))
    said = shell.refused("solve", "lenet-c", "--array", file)
    assert f"{file}: model: should be 'hypar-2019', got \"hypar-2018\"" in said
    file.write_text(text)
    assert "reading text" in shell.output("solve", "lenet-c", "--array", file)


def test_groups_of_accelerators_have_no_such_model() -> None:
    groups = arrays.load("a100-h100-2x8").description() | {"model": "hypar-2019"}
    with pytest.raises(InputError, match="model: should be left out with groups"):
        validate(Array, groups, file="groups.toml")


# Files that were written before arrays had the key.


def older(plan: ho.Plan) -> dict[str, Any]:
    """Return a plan's document as it was when the paper's arrays were known by their digests."""
    document = plan.document()
    described = without_model(document["array"]["description"])
    document["array"] |= {"description": described, "digest": digest_of(described)}
    return document


@pytest.mark.parametrize("name", slow_after(4, PAPERS))
def test_an_older_plan_file_is_read_with_the_papers_model(name: str, tmp_path: Path) -> None:
    plan, file = ho.solve("sfc", array=name, **UNEVEN), tmp_path / "old.json"
    document = older(plan)
    if name == "hmc-htree-16":  # as files have it that were written before
        assert document["array"]["digest"].startswith("sha256:ebea76a96bdcbd862fb47f17a46c766e")
    file.write_text(json.dumps(document))
    read = ho.read_plan(file)
    assert read.array == plan.array
    assert ho.simulate(read) == ho.simulate(plan)
    assert proved_bound(read, ho.certify(plan)) == plan.cost.total


def test_an_older_plan_file_that_was_edited_is_refused(tmp_path: Path) -> None:
    document, file = older(ho.solve("sfc", array="hmc-htree-4")), tmp_path / "old.json"
    document["array"]["description"]["accelerator"]["vaults"] = 8
    file.write_text(json.dumps(document))
    with pytest.raises(HyparError, match="digest should be"):
        ho.read_plan(file)


def test_an_older_plan_file_of_a_renamed_copy_is_read_as_it_was_counted(tmp_path: Path) -> None:
    own, file = validate(Array, without_model(copied("hmc-htree-4"))), tmp_path / "old.json"
    plan = ho.solve("sfc", array=own)
    ho.write_plan(plan, file)
    assert ho.read_plan(file) == plan


def test_a_file_with_a_presets_name_and_without_its_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    text = arrays.file_text("hmc-htree-4")
    file.write_text(text)
    assert ho.read_array(file) == arrays.load("hmc-htree-4")
    text = text.replace('model = "hypar-2019"\n', "")
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        ho.read_array(file)
    assert str(raised.value) == (
        f"{file}: model: should be 'hypar-2019', as in the preset 'hmc-htree-4', unless name"
        " is another"
    )
    file.write_text(text.replace('"hmc-htree-4"', '"mine"'))
    assert ho.read_array(file).model is None
    file.write_text(text.replace("0.80", "0.50"))  # as no plan of the preset's
    assert ho.read_array(file).model is None
