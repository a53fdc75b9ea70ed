"""Steps that benchmarks/torch_steps.py measured on one GPU, beside what is calculated of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

import hypar_opt as ho
from hypar_opt.studies.validation import Validation

MEASURED = Path(__file__).parent
CONSTANTS = MEASURED / "machines.toml"
"""Fitted on every other step of each file of an H100, from the first on."""

FITTED = ["h100-eager.toml", "h100-compiled.toml"]


@cache
def calculated(file: str) -> Validation:
    return ho.validate(MEASURED / file, constants=CONSTANTS)


@pytest.mark.parametrize("file", FITTED)
def test_steps_are_calculated_with_constants_fitted_on_others(file: str) -> None:
    """Within 5 %, as asked of published runs."""
    steps = list(calculated(file))
    for part, bound in ((steps[::2], 0.035), (steps[1::2], 0.05)):
        assert fmean(abs(step.error) for step in part if step.error is not None) < bound


def test_steps_of_another_gpu_are_calculated_from_its_datasheet() -> None:
    """An H200 is an H100 of a faster DRAM: nothing is fitted on its steps."""
    (found,) = calculated("h200-compiled.toml").sets
    assert found.modelled == 20
    assert found.mean is not None
    assert found.mean < 0.05


@pytest.mark.parametrize("file", [*FITTED, "h200-compiled.toml"])
def test_memory_is_what_pytorch_allocates(file: str) -> None:
    """With nothing fitted: never less, and above by at most 3 bytes a logit."""
    for step in calculated(file):
        layers, tokens, sequences, _ = step.name.split("-")
        logits = int(tokens) * int(sequences) * 50304
        assert step.bytes is not None
        assert isinstance(step.measured_bytes, int), layers
        assert 0 <= step.bytes - step.measured_bytes < 3 * logits + 2**28


@pytest.mark.slow
@pytest.mark.parametrize("file", FITTED)
def test_constants_of_one_gpu_are_physical(file: str) -> None:
    """A part of the peak that kernels reach; attention's of what a causal mask leaves."""
    fitted = ho.calibrate("h100-8", MEASURED / file)
    assert fitted.held_out is not None
    assert fitted.held_out <= 0.05
    assert 0.4 < fitted.constants["flash"] < 0.7
    # Products of 8192 x 8192 matrices reach .81 of the peak on that GPU.
    assert 0.6 < fitted.constants["gemm"] < 0.81
