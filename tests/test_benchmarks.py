"""Each benchmark runs, in small: what it compares agrees, whatever the seconds are."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.commands import ROOT, program

SHARED = {"__init__", "measure", "programs"}
BENCHMARKS = sorted({file.stem for file in (ROOT / "benchmarks").glob("*.py")} - SHARED)
NEEDS = {
    "dask_sweep": "distributed",
    "jax_compile": "jax",
    "onnx_import": "onnx",
    "three_choices": "highspy",
    "torch_steps": "torch",
}
"""Packages that need not be installed."""


# With PyTorch it would look for a GPU.
ASIDE = {"torch_steps"} if find_spec("torch") else set()


@pytest.mark.parametrize("name", sorted({*BENCHMARKS} - ASIDE))
def test_a_benchmark_runs_in_small(name: str, tmp_path: Path) -> None:
    done = program(f"benchmarks.{name}", tmp_path, SMALL="1")
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        assert done.status == 1
        assert done.errors == f"this benchmark needs {NEEDS[name]}, which is not installed\n"
        return
    assert done.status == 0, done.errors
    assert done.output
