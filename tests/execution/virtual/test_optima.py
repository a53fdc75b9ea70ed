"""Optimal plans of three choices run as they are priced: the paper's ten networks, and the zoo."""

from __future__ import annotations

import pytest

import hypar_opt as ho
from hypar_opt.execution.result import TOLERANCE
from tests.slow import slow_after

THREE = ("data", "model", "output")
PAPER = ("sfc", "sconv", "lenet-c", "cifar-c", "alexnet", *(f"vgg-{v}" for v in "abcde"))
EACH_ONCE = [
    *((name, 3) for name in ("gpt2", "vit-b16", "resnet-18")),
    *((name, 2) for name in ("mobilenet-v2", "inception-v3")),
]
OTHERS = [
    ("llama-70b", 1),
    *((name, 3) for name in ("bert-base", "llama-7b")),
    ("densenet-121", 2),
    ("resnet-50", 4),
    *((name, levels) for name in ("gpt2", "bert-base", "vit-b16") for levels in (1, 2, 4)),
    *(("resnet-18", levels) for levels in (1, 4)),
    *(("resnet-50", levels) for levels in (1, 3)),
    *(("mobilenet-v2", levels) for levels in (1, 4)),
    ("llama-7b", 1),
    ("gpt2-medium", 4),
    ("gpt2-xl", 2),
    ("resnet-152", 2),
]


def assert_runs_as_priced(plan: ho.Plan) -> None:
    result = ho.run(plan, scale_down=True)
    assert list(result.disagreements()) == []
    assert result.modelled == result.counted == result.priced
    assert result.values is not None
    assert result.gradients is not None
    assert max(result.values, result.gradients) <= TOLERANCE


@pytest.mark.parametrize(
    ("network", "levels"),
    slow_after(len(PAPER), [(name, n) for n in (3, 0, 1, 2, 4) for name in PAPER]),
)
def test_the_papers_networks(network: str, levels: int) -> None:
    plan = ho.solve(network, levels=levels, reading="executed", choices=THREE, search="joint")
    assert_runs_as_priced(plan)


@pytest.mark.parametrize(("network", "levels"), slow_after(len(EACH_ONCE), EACH_ONCE + OTHERS))
def test_the_zoo(network: str, levels: int) -> None:
    # A small batch, for which the optimum has all three choices.
    assert_runs_as_priced(
        ho.solve(network, batch=8, levels=levels, reading="executed", choices=THREE)
    )


def test_lenet_on_eight_devices_as_it_is() -> None:
    plan = ho.solve("lenet-c", batch=16, levels=3, reading="executed", choices=THREE)
    result = ho.run(plan)
    assert result.agrees
    assert result.counted == plan.cost.per_level
