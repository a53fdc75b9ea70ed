"""Arrays on the command line: what simulate, solve and the pictures make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from tests.cli.shell import Shell
from tests.hardware.cubes import CUBES
from tests.hardware.test_profile import LENET


def planned(folder: Path, name: str = "lenet-c", **asked: Any) -> Path:
    file = folder / "plan.json"
    ho.write_plan(ho.solve(name, **asked), file)
    return file


def test_json_adds_up(shell: Shell) -> None:
    asked = ["--batch", "64", "--cost", "bytes", "--choices", "data,model", "--element-bytes", "4"]
    asked += ["--overlap", "none"]
    found = shell.document("simulate", "alexnet", "--array", "a100-4x8", *asked)
    head = ("network", "array", "batch", "reading")
    rest = ("placement", "parallelism", "collective", "overlap")
    assert tuple(found)[:8] == head + rest
    assert [found[key] for key in head] == ["AlexNet", "a100-4x8", 64, "executed"]
    assert (found["placement"], found["collective"]) == ([4, 3, 2, 1, 0], "pairwise")
    assert [level["level"] for level in found["levels"]] == [1, 2, 3, 4, 5]
    plan = ho.solve("alexnet", levels=5, batch=64, reading="executed")
    assert found["parallelism"] == plan.document()["parallelism"]
    parts = found["compute_seconds"], found["communication_seconds"]
    assert sum(parts) == pytest.approx(found["seconds"])
    assert found["closed_form_seconds"] == pytest.approx(found["seconds"])
    for key, total in zip(("compute", "communication"), parts, strict=True):
        assert sum(phase[key] for phase in found["phases"].values()) == pytest.approx(total)
        assert sum(layer[key] for layer in found["layers"]) == pytest.approx(total)
    assert sum(level["seconds"] for level in found["levels"]) == pytest.approx(parts[1])
    joules = dict(found["joules"])
    assert joules.pop("total") == pytest.approx(sum(joules.values()))
    fullest = max(found["links"], key=lambda link: link["full"])
    (named,) = [each for each in found["links"] if each["link"] == found["bottleneck"]["link"]]
    assert named["full"] == pytest.approx(fullest["full"])
    assert named["full"] <= named["busy"] * (1 + 1e-9)
    assert "trace" not in found


def test_without_an_array_the_papers_tree_of_that_size_is_taken(shell: Shell) -> None:
    assert shell.document("simulate", "sfc")["array"] == "hmc-htree-16"
    assert shell.document("simulate", "sfc", "--levels", "3")["array"] == "hmc-htree-8"


def test_a_plan_brings_what_it_was_asked_for(tmp_path: Path, shell: Shell) -> None:
    asked: Any = {"batch": 32, "reading": "figures", "array": "hmc-torus-8", "inference": True}
    found = shell.document("simulate", planned(tmp_path, **asked))
    assert (found["batch"], found["reading"], found["array"]) == (32, "figures", "hmc-torus-8")
    assert list(found["phases"]) == ["forward"]
    args = ["simulate", "lenet-c", "--batch", "32", "--reading", "figures", "--inference"]
    assert shell.document(*args, "--array", "hmc-torus-8") == found


def test_a_plan_is_simulated_on_its_own_array_or_one_that_is_named(
    tmp_path: Path, shell: Shell
) -> None:
    bare = planned(tmp_path, levels=3)
    said = shell.refused("simulate", bare)
    assert "the plan was solved without an array; name one: --array" in said
    assert shell.document("simulate", bare, "--array", "hmc-torus-8")["array"] == "hmc-torus-8"
    complaint = "the plan is for 8 accelerators, and the array hmc-htree-4 has 4"
    for other in ([], ["--other-array"]):
        said = shell.refused("simulate", bare, "--array", "hmc-htree-4", *other)
        assert said.startswith(complaint)
    args = ["simulate", planned(tmp_path, array="hmc-htree-8"), "--array", "hmc-torus-8"]
    assert "--other-array simulates it anyway" in shell.refused(*args)
    other = shell.document(*args, "--other-array")
    assert (other["array"], other["placement"]) == ("hmc-torus-8", [2, 1, 0])


def test_a_plan_of_seven_accelerators_is_asked_for_an_array_and_simulated_on_one(
    tmp_path: Path, shell: Shell
) -> None:
    bare = planned(tmp_path, hierarchy=(7,), batch=28)
    said = shell.refused("simulate", bare)
    assert "solved without an array, for 7 accelerators; name one: --array" in said
    ring = tmp_path / "ring.toml"
    text = shell.output("show", "hmc-htree-8", "--toml")
    begin, end = text.index("[topology]"), text.index("[energy]")
    topology = 'kind = "ring"\naccelerators = 7\nlink = { bandwidth = "10 GBps" }\n'
    ring.write_text(f"{text[:begin]}[topology]\n{topology}\n{text[end:]}")
    assert shell.document("simulate", bare, "--array", str(ring))["seconds"] > 0
    few = planned(tmp_path, hierarchy=(7,), batch=4, solver="data", constraints={"runnable": False})
    said = shell.refused("export", few, "--to", "jax")
    assert "batch: should be at least 7, since one level splits it, got 4" in said


def test_what_a_plan_fixes_is_refused_even_if_it_is_the_same(tmp_path: Path, shell: Shell) -> None:
    file = planned(tmp_path, array="hmc-htree-16")
    for option in (
        *("--batch 256", "--levels 4", "--cost bytes", "--element-bytes 4", "--inference"),
        *("--choices data,model", "--even", "--level-weights 1,1,1,1", "--fix fc1=data"),
        *("--memory 8GB", "--optimizer sgd", "--solver dp", "--search joint", "--place"),
    ):
        name, *value = option.split()
        said = shell.refused("simulate", file, name, *value)
        assert said == f"{name} is fixed by the plan; leave it out"
    said = shell.refused("show", file, "--batch", "2")
    assert said == "--batch is fixed by the plan; leave it out"


def test_how_a_step_is_run_is_an_option(tmp_path: Path, shell: Shell) -> None:
    file = planned(tmp_path, "vgg-a", array="hmc-htree-8", batch=32)
    alone, ring, beside = (
        shell.document("simulate", file, "--collective", collective, "--overlap", overlap)
        for collective, overlap in (("pairwise", "none"), ("ring", "none"), ("ring", "gradient"))
    )
    assert alone == shell.document("simulate", file)
    assert ring["seconds"] != alone["seconds"]
    assert (ring["overlap"], beside["overlap"]) == ("none", "gradient")
    assert beside["lower_bound_seconds"] <= beside["seconds"] < ring["seconds"]


def test_measured_seconds_take_the_place_of_computed_ones(tmp_path: Path, shell: Shell) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text(LENET)
    args = ["simulate", "lenet-c", "--profile", profile]
    assert shell.document(*args)["compute_seconds"] == pytest.approx(4 * 0.048 / 16)
    said = shell.refused(*args, "--batch", "32")
    assert said == "--profile: measured with batch 256, the plan's is 32"


def test_solve_simulates_the_best_and_says_how_far_off_the_cost_was(shell: Shell) -> None:
    args = ["solve", "alexnet", "--array", "a100-4x8", "--batch", "32", "--reading", "text"]
    args += ["--simulate", "8", "--bucket", "0", "--set", "overlap=none"]
    _, _, err = shell(*args)
    assert err.startswith("hypar-opt: of 9 plans simulated, the fastest takes ")
    assert "; it is the search's own; the first by bytes takes " in err
    _, _, err = shell(*args, "--cost", "time")
    assert err.endswith("; it is the first by time; the cost predicted as much\n")


def test_a_placed_plan_says_so(tmp_path: Path, shell: Shell) -> None:
    file = tmp_path / "mesh.toml"
    file.write_text(CUBES.replace('"torus"', '"mesh"'))
    args = ["solve", "alexnet", "--array", file, "--cost", "time"]
    title = "AlexNet: batch 256, on four cubes, reading executed, 4-byte elements,"
    assert shell(*args)[1].startswith(title)
    placed = title.partition(" reading")[0] + " placed (H"
    assert shell(*args, "--place")[1].startswith(placed)


def test_verify_refuses_a_plan_whose_total_was_changed(tmp_path: Path, shell: Shell) -> None:
    plan, proof = tmp_path / "plan.json", tmp_path / "proof.json"
    args = ["solve", "lenet-c", "--array", "a100-8", "--cost", "time", "--bucket", "0"]
    assert shell(*args, "--output", plan, "--certificate", proof)[0] == 0
    document = json.loads(plan.read_text())
    (row,) = shell.document("verify", plan, "--certificate", proof)["rows"]
    assert (row["total"], row["unit"]) == (document["cost"]["total"], document["cost"]["unit"])
    document["cost"]["total"] -= 1
    plan.write_text(json.dumps(document))
    said = shell.refused("verify", plan, "--certificate", proof, status=1)
    assert said.startswith(f"{plan}: cost, total: should be ")


@pytest.mark.parametrize(
    "line",
    [
        "show hmc-torus-4",
        "show sfc",
        "solve lenet-c",
        "simulate lenet-c",
        "compare lenet-c sfc",
        "pareto lenet-c --levels 2",
        "explore lenet-c --free H1,H4",
        "explore lenet-c --free conv1,fc1 --objective time",
    ],
)
def test_a_command_draws_what_it_prints(line: str, tmp_path: Path, shell: Shell) -> None:
    """As a page; `tests/display` has the other formats of pictures, which all commands share."""
    picture = tmp_path / "it.svg"
    assert shell(*line.split(), "--picture", picture)[0] == 0
    assert picture.read_bytes().startswith(b"<svg")
    said = shell.refused(*line.split(), "--picture", tmp_path / "it.gif")
    assert "a picture is one of png, svg, pdf" in said


def test_exploring_time_on_an_array_of_rings_knows_the_rings(tmp_path: Path, shell: Shell) -> None:
    rings = tmp_path / "rings.toml"
    rings.write_text(shell("show", "tpu-v4-4x4x4", "--toml")[1].replace("[4, 4, 4]", "[4, 4]"))
    args = ["explore", "lenet-c", "--free", "H1", "--objective", "time", "--reading", "executed"]
    args += ["--cost", "time", "--array", str(rings)]
    found = shell.document(*args, "--bucket", "0")
    assert found["plan"]["rank"] == 1
