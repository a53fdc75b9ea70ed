"""A run keeps to the memory that it promises, and is refused before it takes any."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.cli.app import run as run_command
from hypar_opt.errors import HyparError, RefusedError
from hypar_opt.execution import run as execution
from hypar_opt.execution.run import run_program
from hypar_opt.execution.step_size import step_bytes
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.cli.shell import Shell
from tests.execution.drawn import drawn_network, drawn_programs
from tests.limited import GIB, limited
from tests.slow import slow_after
from tests.strategies.mixtures import mixture

PYTHON = 100_000
"""Bytes of Python's own objects, which are not counted."""


def peak(network: ho.Network, program: Program) -> int:
    """The most bytes that a run has at once."""
    tracemalloc.start()
    try:
        run_program(network, program, max_memory=100 * GIB)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def whole(table: dict[str, Any], batch: int = 4) -> tuple[ho.Network, Program]:
    network = ho.Network.model_validate({"name": "n", **table})
    return network, Program(
        workload_of(network, batch, CHOICES, shared_tensors=True), (), Hierarchy(())
    )


def pooled(kind: str, size: int, extent: int) -> dict[str, Any]:
    pool = {"kind": kind, "size": size, "stride": 1}
    layer = {"name": "conv", "kind": "conv", "filters": 4, "kernel": 1, "pool": pool}
    return {"input": {"channels": 4, "height": extent, "width": extent}, "layer": [layer]}


@pytest.mark.parametrize("part", slow_after(1, range(8)))
def test_no_run_takes_more_than_the_estimate(part: int) -> None:
    """Of any kinds of layers, on up to 8 devices, in batches that outweigh Python's objects."""
    ran = 0
    for seed in range(part, 80, 8):
        network = drawn_network(seed)
        for drawn in drawn_programs(network, seed, 1):
            workload = workload_of(network, 64 * drawn.workload.batch, CHOICES, shared_tensors=True)
            program = Program(workload, drawn.rows, drawn.hierarchy)
            try:
                taken = peak(network, program)
            except RefusedError:  # a shuffle that moves other channels than half of them
                continue
            assert taken <= step_bytes(network, program) + PYTHON, (seed, drawn.rows)
            ran += 1
    assert ran >= 7


@pytest.mark.parametrize("seed", slow_after(1, range(3)))
def test_a_mixture_of_experts_takes_no_more_than_the_estimate(seed: int) -> None:
    network = mixture(seed)
    for drawn in drawn_programs(network, seed, 2):
        workload = workload_of(network, 16 * drawn.workload.batch, CHOICES, shared_tensors=True)
        program = Program(workload, drawn.rows, drawn.hierarchy)
        assert peak(network, program) <= step_bytes(network, program) + PYTHON


LARGE_WEIGHTS: dict[str, dict[str, Any]] = {
    "one": {
        "input": {"features": 400},
        "layer": [{"name": "fc", "kind": "fc", "units": 400}],
    },
    "several": {
        "input": {"features": 250},
        "layer": [{"name": f"fc{n}", "kind": "fc", "units": 250} for n in range(4)],
    },
    "tied": {
        "schema": "hypar-opt/network/2",
        "input": {"tokens": 4, "vocabulary": 800},
        "layer": [
            {"name": "table", "kind": "embedding", "features": 120},
            {"name": "head", "kind": "linear", "units": 800, "tied": "table", "bias": False},
            {"name": "loss", "kind": "output"},
        ],
    },
}


@pytest.mark.parametrize("solver", ["data", "model"])
@pytest.mark.parametrize("name", LARGE_WEIGHTS)
def test_nor_does_one_of_large_weights(name: str, solver: str) -> None:
    network = ho.Network.model_validate({"name": name, **LARGE_WEIGHTS[name]})
    workload = workload_of(network, 4, CHOICES, shared_tensors=True)
    for levels in range(3):
        column = 0 if solver == "data" else 1
        program = Program(
            workload, [[column] * len(workload.nodes)] * levels, Hierarchy((2,) * levels)
        )
        assert peak(network, program) <= step_bytes(network, program) + PYTHON, levels


@pytest.mark.parametrize("kind", ["max", "average"])
def test_a_pool_takes_no_more_memory_for_larger_windows(kind: str) -> None:
    small, large = (peak(*whole(pooled(kind, size, 64))) for size in (2, 33))
    assert large < 1.1 * small


def test_the_memory_is_at_most_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    network, program = whole(pooled("max", 2, 8))
    needed = step_bytes(network, program)
    run_program(network, program, max_memory=needed)
    # Nothing has been allocated when it is refused.
    monkeypatch.setattr(execution, "random_data", None)
    with pytest.raises(RefusedError, match=r"^n would take about .* more than"):
        run_program(network, program, max_memory=needed - 1)


@pytest.fixture
def plan(tmp_path: Path) -> str:
    network = ho.Network.model_validate({"name": "n", **pooled("max", 3, 16)})
    path = tmp_path / "plan.json"
    path.write_text(ho.solve(network, batch=8, levels=2, reading="executed").to_json())
    return str(path)


@pytest.mark.parametrize("more", [(), ("--backend", "jax"), ("--scale-down",)])
def test_a_refusal_names_a_limit_that_is_enough(
    more: tuple[str, ...], plan: str, shell: Shell
) -> None:
    said = shell.refused("run", plan, *more, "--max-memory", "1kB")
    assert ("--scale-down runs" in said) == ("--scale-down" not in more)
    _, _, after = said.partition("--max-memory ")
    enough = after.split()[0]
    assert "--backend" in more or run_command(["run", plan, *more, "--max-memory", enough]) == 0


@pytest.mark.parametrize("odd", ["", "8", "eight", "-1", "0", "1e9", "8 XB"])
def test_what_is_no_memory_is_refused_by_name(odd: str, plan: str, shell: Shell) -> None:
    assert "max-memory" in shell.refused("run", plan, "--max-memory", odd)


@pytest.mark.parametrize("odd", [1.5, True, [8], None, 0])
def test_in_python_too(odd: Any) -> None:
    plan = ho.solve("lenet-c", batch=4, levels=1, reading="executed")
    if odd is None:
        assert ho.run(plan, scale_down=True, max_memory=None).agrees
        return
    with pytest.raises(HyparError, match=r"^max_memory:? should be "):
        ho.run(plan, max_memory=odd)


def test_memory_that_runs_out_is_one_line_and_no_mismatch(tmp_path: Path) -> None:
    """Status 1 is a check's that failed; that memory is short says nothing about the plan."""
    network = ho.Network.model_validate(
        {
            "name": "n",
            "input": {"features": 4000},
            "layer": [{"name": "fc", "kind": "fc", "units": 5000}],
        }
    )
    path = tmp_path / "plan.json"
    path.write_text(ho.solve(network, batch=2, levels=1, reading="executed").to_json())
    code = f"""
        import os, sys
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        from hypar_opt.cli.app import run
        sys.exit(run(["run", {str(path)!r}]))
    """
    (line,) = limited(code, memory=GIB // 2, status=2).told
    assert line.startswith("hypar-opt: out of memory: Unable to allocate ")


def test_memory_that_runs_out_without_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def short(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("hypar_opt.planning.solve.solve", short)
    assert run_command(["solve", "lenet-c"]) == 2
    assert capsys.readouterr().err == "hypar-opt: out of memory\n"
