"""Arrays on the command line: simulate, compare, list arrays, and every bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run
from hypar_opt.hardware import arrays
from tests.cli.test_cli import completed, hypar
from tests.hardware.cubes import CUBES
from tests.hardware.test_profile import LENET

Capture = pytest.CaptureFixture[str]


def document(args: list[str], capsys: Capture) -> dict[str, Any]:
    assert run([*args, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def planned(folder: Path, name: str = "lenet-c", **asked: Any) -> str:
    file = folder / "plan.json"
    ho.write_plan(ho.solve(name, **asked), file)
    return str(file)


# What is printed.


def test_a_step_is_printed_by_phase_layer_level_and_part() -> None:
    done = hypar("simulate", "lenet-c", "--array", "hmc-torus-16")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    step = ho.simulate(ho.solve("lenet-c", array="hmc-torus-16"))
    assert lines[0] == f"Lenet-c on hmc-torus-16: {step.seconds * 1e3:.4g} ms a step, batch 256"
    heads = [line.split()[0] for line in lines if line]
    assert lines[1] == "reading text, pairwise all-reduce, nothing overlaps"
    assert heads[2:6] == ["phase", "forward", "gradient", "backward"]
    assert heads[6:12] == ["total", "layer", "conv1", "conv2", "fc1", "fc2"]
    assert heads[12:17] == ["level", "H1", "H2", "H3", "H4"]
    assert heads[17:19] == ["energy", "multiply-accumulates"]
    assert heads[-5:] == ["total", "Bottleneck:", "Memory:", "From", "When"]
    assert max(map(len, lines)) <= 80


def test_json_adds_up(capsys: Capture) -> None:
    found = document(["simulate", "alexnet", "--array", "a100-4x8", "--batch", "64"], capsys)
    head = (
        "network",
        "array",
        "batch",
        "reading",
        "placement",
        "parallelism",
        "collective",
        "overlap",
    )
    assert tuple(found)[:8] == head
    assert [found[key] for key in head[:4]] == ["AlexNet", "a100-4x8", 64, "executed"]
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


def test_without_an_array_the_papers_tree_of_that_size_is_taken(capsys: Capture) -> None:
    assert document(["simulate", "sfc"], capsys)["array"] == "hmc-htree-16"
    assert document(["simulate", "sfc", "--levels", "3"], capsys)["array"] == "hmc-htree-8"
    assert run(["simulate", "sfc", "--levels", "7"]) == 2
    assert capsys.readouterr().err == (
        "hypar-opt: --levels should be from 1 to 6 for the paper's arrays, got 7; name another"
        " with --array\n"
    )


def test_a_plan_brings_what_it_was_asked_for(tmp_path: Path, capsys: Capture) -> None:
    asked: Any = {"batch": 32, "reading": "figures", "array": "hmc-torus-8", "inference": True}
    file = planned(tmp_path, **asked)
    found = document(["simulate", file], capsys)
    assert (found["batch"], found["reading"], found["array"]) == (32, "figures", "hmc-torus-8")
    assert list(found["phases"]) == ["forward"]
    args = ["simulate", "lenet-c", "--batch", "32", "--reading", "figures", "--inference"]
    assert document([*args, "--array", "hmc-torus-8"], capsys) == found


def test_a_plan_without_an_array_is_simulated_on_any_of_its_size(
    tmp_path: Path, capsys: Capture
) -> None:
    file = planned(tmp_path, levels=3)
    assert run(["simulate", file]) == 2
    assert "the plan was solved without an array; name one: --array" in capsys.readouterr().err
    found = document(["simulate", file, "--array", "hmc-torus-8"], capsys)
    assert found["array"] == "hmc-torus-8"


def test_another_array_is_taken_when_asked_for(tmp_path: Path, capsys: Capture) -> None:
    file = planned(tmp_path, array="hmc-htree-8")
    args = ["simulate", file, "--array", "hmc-torus-8"]
    assert run(args) == 2
    assert "--other-array simulates it anyway" in capsys.readouterr().err
    other = document([*args, "--other-array"], capsys)
    assert (other["array"], other["placement"]) == ("hmc-torus-8", [2, 1, 0])


@pytest.mark.parametrize(
    "option",
    [
        *(["--batch", "256"], ["--levels", "4"], ["--cost", "bytes"]),
        *(["--element-bytes", "4"], ["--inference"], ["--choices", "data,model"], ["--even"]),
        *(["--level-weights", "1,1,1,1"], ["--fix", "fc1=data"], ["--memory", "8GB"]),
        *(["--optimizer", "sgd"], ["--solver", "dp"], ["--search", "joint"], ["--place"]),
    ],
    ids=lambda option: option[0],
)
def test_what_a_plan_fixes_is_refused_even_if_it_is_the_same(
    option: list[str], tmp_path: Path, capsys: Capture
) -> None:
    file = planned(tmp_path, array="hmc-htree-16")
    assert run(["simulate", file, *option]) == 2
    assert capsys.readouterr().err == f"hypar-opt: {option[0]} is fixed by the plan; leave it out\n"


@pytest.mark.parametrize("command", [("simulate", "--trace"), ("explore", "--free", "H1", "--csv")])
def test_what_is_read_is_not_written_over(command: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    hypar("solve", "lenet-c", "--array", "hmc-htree-4", "--output", str(file))
    before = file.read_bytes()
    done = hypar(command[0], str(file), *command[1:], str(file))
    assert done.stderr == f"hypar-opt: {file}: is read or written already; write to another\n"
    assert (done.returncode, file.read_bytes()) == (2, before)


def test_a_trace_is_a_track_an_accelerator_and_a_link(tmp_path: Path) -> None:
    file = tmp_path / "step.json"
    done = hypar("simulate", "lenet-c", "--array", "hmc-htree-4", "--trace", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    trace = json.loads(file.read_text())
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    named = [event for event in trace["traceEvents"] if event["ph"] == "M"]
    assert {event["ph"] for event in trace["traceEvents"]} == {"X", "M"}
    for event in events:
        assert {"name", "ts", "dur", "pid", "tid"} <= set(event)
        assert event["ts"] >= 0
        assert event["dur"] >= 0
    tracks = [event for event in named if event["name"] == "thread_name"]
    links = len(ho.solve("lenet-c", array="hmc-htree-4").array.description.interconnect.links)  # type: ignore[union-attr]
    assert len(tracks) == 4 + links
    step = ho.simulate(ho.solve("lenet-c", array="hmc-htree-4"))
    end = max(event["ts"] + event["dur"] for event in events)
    assert end == pytest.approx(step.seconds * 1e6)


def test_how_a_step_is_run_is_an_option(tmp_path: Path, capsys: Capture) -> None:
    file = planned(tmp_path, "vgg-a", array="hmc-htree-8", batch=32)
    found = {
        (collective, overlap): document(
            ["simulate", file, "--collective", collective, "--overlap", overlap], capsys
        )
        for collective in ("pairwise", "ring")
        for overlap in ("none", "gradient")
    }
    assert found["pairwise", "none"] == document(["simulate", file], capsys)
    for collective in ("pairwise", "ring"):
        alone, beside = found[collective, "none"], found[collective, "gradient"]
        assert (alone["overlap"], beside["overlap"]) == ("none", "gradient")
        assert beside["seconds"] < alone["seconds"]
        assert alone["closed_form_seconds"] == beside["closed_form_seconds"]
        assert beside["lower_bound_seconds"] <= beside["seconds"] <= alone["seconds"]
    assert found["ring", "none"]["seconds"] != found["pairwise", "none"]["seconds"]


def test_measured_seconds_take_the_place_of_computed_ones(tmp_path: Path, capsys: Capture) -> None:
    profile = tmp_path / "profile.toml"
    profile.write_text(LENET)
    args = ["simulate", "lenet-c", "--profile", str(profile)]
    assert document(args, capsys)["compute_seconds"] == pytest.approx(4 * 0.048 / 16)
    assert run([*args, "--batch", "32"]) == 2
    assert capsys.readouterr().err == (
        "hypar-opt: --profile: measured with batch 256, the plan's is 32\n"
    )


def test_solve_simulates_the_best_and_says_how_far_off_the_cost_was(capsys: Capture) -> None:
    args = ["solve", "alexnet", "--array", "a100-4x8", "--batch", "32", "--reading", "text"]
    args += ["--simulate", "8"]
    assert run(args) == 0
    err = capsys.readouterr().err
    assert err.startswith("hypar-opt: of 9 plans simulated, the fastest takes ")
    assert "; it is the search's own; the first by bytes takes " in err
    assert run([*args, "--cost", "time"]) == 0
    assert capsys.readouterr().err.endswith(
        "; it is the first by time; the cost predicted as much\n"
    )
    assert run(["solve", "lenet-c", "--simulate", "3"]) == 2
    assert capsys.readouterr().err == (
        "hypar-opt: --simulate needs an array: --array NAME|FILE (list arrays)\n"
    )
    assert run([*args[:-1], "0"]) == 2
    assert capsys.readouterr().err == "hypar-opt: --simulate should be 1 or more, got 0\n"


def test_a_placed_plan_says_so(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "mesh.toml"
    file.write_text(CUBES.replace('"torus"', '"mesh"'))
    args = ["solve", "alexnet", "--array", str(file), "--cost", "time"]
    assert run(args) == 0
    title, *_ = capsys.readouterr().out.splitlines()
    assert title.startswith("AlexNet: batch 256, on four cubes, reading executed, dp joint (opt")
    assert run([*args, "--place"]) == 0
    title, *_ = capsys.readouterr().out.splitlines()
    assert title.startswith("AlexNet: batch 256, on four cubes, placed, reading executed, dp ")


def test_verify_proves_a_plan_of_time(tmp_path: Path, capsys: Capture) -> None:
    plan, proof = str(tmp_path / "plan.json"), str(tmp_path / "proof.json")
    for cost in ("time", "energy"):
        args = ["solve", "vgg-a", "--array", "a100-4x8", "--cost", cost]
        assert run([*args, "--output", plan, "--certificate", proof]) == 0
        capsys.readouterr()
        assert run(["verify", plan, "--certificate", proof, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        own = json.loads(Path(plan).read_text())["cost"]
        assert (row["total"], row["unit"]) == (own["total"], own["unit"])
    document = json.loads(Path(plan).read_text())
    document["cost"]["total"] -= 1
    Path(plan).write_text(json.dumps(document))
    assert run(["verify", plan, "--certificate", proof]) != 0
    err = capsys.readouterr().err
    assert err.startswith(f"hypar-opt: {plan}: cost, total: should be ")
    assert err.count("\n") == 1


def test_arrays_are_listed(capsys: Capture) -> None:
    assert run(["list", "arrays", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(arrays.names())
    keys = ("name", "accelerators", "topology", "collective", "source")
    assert all(tuple(row) == keys for row in rows)
    for row in rows:
        array = arrays.load(row["name"])
        assert row["accelerators"] == 2**array.levels
        assert row["source"] == array.source
    assert run(["list", "arrays"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == list(keys[:-1])
    assert {line.split()[0] for line in lines[1:] if line[0] != " "} == set(arrays.names())


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("hypar-opt solve sfc --array hmc-torus-1", "hmc-torus-16"),
        ("hypar-opt simulate sfc --array TPU", "TPU-v4-4x4x4"),
        ("hypar-opt compare sfc --array a1", "a100-4x8"),
        ("hypar-opt compare sfc --array hmc-htree-4,a1", "hmc-htree-4,a100-4x8"),
        ("hypar-opt solve sfc --cost t", "time"),
        ("hypar-opt simulate sfc --overlap g", "gradient"),
        ("hypar-opt compare sfc --collective r", "ring"),
        ("hypar-opt list a", "arrays"),
    ],
)
def test_completion_in_a_real_bash(words: str, offered: str) -> None:
    assert completed(words) == offered.split()


# What is refused.


@pytest.mark.parametrize("command", ["solve", "simulate", "compare"])
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (('"1.6 Gb/s"', '"0 Gb/s"'), "topology, link, bandwidth: should be a bandwidth above zero"),
        (('"1.6 Gb/s"', '"1.6 furlongs"'), "topology, link, bandwidth: should be a bandwidth, as"),
        (('"640 pJ"', '"640 cal"'), "energy, dram: should be an energy, as in"),
        (("[2, 4]", "[2, 3]"), "topology, shape[1]: should be a power of two, got 3"),
        (('"torus"', '"donut"'), "topology: kind: unknown topology 'donut'"),
        (("units = 16", "unit = 16"), "accelerator: unknown key 'unit'"),
        (("[topology]", "[topology"), "should be TOML"),
    ],
)
def test_a_wrong_array_file_ends_with_2_and_one_line(
    command: str, change: tuple[str, str], complaint: str, tmp_path: Path, capsys: Capture
) -> None:
    file = tmp_path / "cubes.toml"
    file.write_text(CUBES.replace(*change))
    refused([command, "sfc", "--array", str(file)], f"{file}: {complaint}", capsys)


def test_a_disconnected_graph_file_is_refused(tmp_path: Path, capsys: Capture) -> None:
    nodes = [{"id": number, "accelerator": number} for number in range(4)]
    edges = [{"source": u, "target": u + 1, "bandwidth": "1 GB/s"} for u in (0, 2)]
    (tmp_path / "own.json").write_text(json.dumps({"nodes": nodes, "edges": edges}))
    head, _, tail = CUBES.partition("[topology]")
    file = tmp_path / "own.toml"
    graph = '[topology]\nkind = "graph"\nfile = "own.json"\n'
    file.write_text(head + graph + tail[tail.index("[energy]") :])
    complaint = "topology: accelerators should all be connected; no path from 0 to 2"
    refused(["simulate", "sfc", "--array", str(file)], f"{file}: {complaint}", capsys)


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["--array", "hmc-hteer-16"], "unknown array 'hmc-hteer-16': did you mean hmc-htree-16?"),
        (["--array", "none.toml"], "none.toml: cannot be read: No such file or directory"),
        (["--array", "."], ".: cannot be read: Is a directory"),
        (["--array", ""], "unknown array ''"),
        (
            ["--array", "hmc-htree-16", "--levels", "5"],
            "levels: should be 4, since the array hmc-htree-16 has 16 accelerators, got 5",
        ),
        (["--levels", "0"], "--levels should be from 1 to 6 for the paper's arrays, got 0"),
        (["--levels", "-1"], "--levels should be from 1 to 6 for the paper's arrays, got -1"),
        (["--cost", "hours"], "unknown cost 'hours': known: bytes, time, energy"),
        (["--collective", "tree"], "unknown collective 'tree': known: pairwise, ring"),
        (["--overlap", "everything"], "unknown overlap 'everything': known: none, gradient"),
        (["--trace", "/nowhere/t.json"], "/nowhere/t.json: there is no folder '/nowhere'"),
        (["--trace", "."], ".: should be a file, not a folder"),
        (["--profile", "none.toml"], "none.toml: cannot be read: No such file or directory"),
        (["--place"], "--place goes with --array and --cost time or energy"),
        (["--level-weights", "1,1,1,1", "--cost", "time"], "--level-weights goes with --cost byte"),
        (
            ["--array", "tpu-v4-4x4x4", "--search", "levelwise", "--cost", "time"],
            "solver 'dp' on SFC: a reduction joins several levels",
        ),
    ],
)
def test_a_wrong_call_ends_with_2_and_one_line(
    args: list[str], complaint: str, capsys: Capture
) -> None:
    refused(["simulate", "sfc", *args], complaint, capsys)


def test_memory_that_no_plan_fits_ends_with_4(capsys: Capture) -> None:
    complaint = "--memory: no plan fits 1,000 bytes an accelerator"
    refused(["simulate", "sfc", "--memory", "1kB"], complaint, capsys, status=4)


def test_an_array_smaller_than_the_plan_is_refused(tmp_path: Path, capsys: Capture) -> None:
    file = planned(tmp_path, levels=4)
    complaint = "the plan is for 16 accelerators, and the array hmc-htree-8 has 8"
    refused(["simulate", file, "--array", "hmc-htree-8"], complaint, capsys)
    refused(["simulate", file, "--array", "hmc-htree-8", "--other-array"], complaint, capsys)


def test_a_refusal_is_one_line_in_a_process_too() -> None:
    for args in (
        ["simulate", "sfc", "--array", "hmc-htree-17"],
        ["compare", "all", "--array", "hmc-htree-17"],
        ["solve", "sfc", "--cost", "time"],
    ):
        done = hypar(*args)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("hypar-opt: ")
        assert done.stderr.count("\n") == 1


def refused(args: list[str], complaint: str, capsys: Capture, *, status: int = 2) -> None:
    assert run(args) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"hypar-opt: {complaint}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [
        ["solve", "lenet-c"],
        ["simulate", "lenet-c"],
        ["compare", "lenet-c", "sfc"],
        ["pareto", "lenet-c", "--levels", "2"],
        ["explore", "lenet-c", "--free", "H1,H4"],
        ["explore", "lenet-c", "--free", "conv1,fc1", "--objective", "seconds"],
    ],
    ids=lambda args: " ".join(args),
)
def test_a_command_draws_what_it_prints(args: list[str], tmp_path: Path, capsys: Capture) -> None:
    for suffix, magic in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")):
        picture = (tmp_path / "it").with_suffix(suffix)
        assert run([*args, "--picture", str(picture)]) == 0
        assert picture.read_bytes().startswith(magic)
    capsys.readouterr()
    assert run([*args, "--picture", str(tmp_path / "it.gif")]) == 2
    assert "a picture is one of png, svg, pdf" in capsys.readouterr().err


def test_a_picture_of_more_than_two_axes_is_refused(tmp_path: Path, capsys: Capture) -> None:
    picture = str(tmp_path / "it.png")
    assert run(["explore", "lenet-c", "--free", "all", "--picture", picture]) == 2
    assert capsys.readouterr().err == (
        "hypar-opt: --picture draws two levels or two layers, as H1,H4; got 'all'\n"
    )


def test_exploring_time_on_an_array_of_rings_knows_the_rings(capsys: Capture) -> None:
    args = ["explore", "lenet-c", "--free", "H1", "--objective", "time", "--reading", "executed"]
    found = document([*args, "--cost", "time", "--array", "tpu-v4-4x4x4"], capsys)
    assert found["plan"]["rank"] == 1


def test_one_file_is_not_written_twice(tmp_path: Path, capsys: Capture) -> None:
    file = str(tmp_path / "x.json")
    assert run(["solve", "sfc", "--output", file, "--certificate", file]) == 2
    assert "is read or written already" in capsys.readouterr().err
