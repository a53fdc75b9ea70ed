"""Optima of levels of two to 48 parts that another program found.

It knew the rules of layouts and conversions alone, and had no norms that all parts compute whole.
"""

from __future__ import annotations

from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.frozen import FrozenDict
from hypar_opt.workload import network, tensors
from hypar_opt.workload.operators.norm import Norm
from hypar_opt.workload.parallelism import CHOICES
from tests.choices import WITH_TOKENS
from tests.slow import slow_after

PADDED = "gpt:layers=12,hidden=768,heads=12,tokens=1024,vocabulary=50304"
"""GPT-2 with a vocabulary that eight parts divide."""


@pytest.fixture
def split_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "MAX_LAYERS_KEPT", 0)  # none that has other norms, nor for others
    monkeypatch.setattr(network, "_words", network._words.__wrapped__)
    split = {word: choice for word, choice in Norm.choices.items() if choice.axis}
    monkeypatch.setattr(Norm, "choices", FrozenDict(split))


def least_bytes(network: str, batch: int, sizes: tuple[int, ...], **asked: Any) -> object:
    asked = {"choices": CHOICES, "element_bytes": 2, "reading": "executed", **asked}
    plan = ho.solve(
        network, batch=batch, hierarchy=sizes, whole_levels=True, search="joint", **asked
    )
    assert plan.solver.status == "optimal"
    return plan.cost.total


@pytest.mark.usefixtures("split_norms")
@pytest.mark.parametrize(
    ("network", "batch", "sizes", "even", "expected"),
    slow_after(
        8,
        [
            ("gpt2", 6, (6,), False, 1_904_302_080),
            ("gpt2", 6, (2, 3), False, 1_677_809_664),
            ("gpt2", 6, (3, 2), False, 1_677_809_664),
            (PADDED, 8, (2, 4), True, 2_405_099_520),
            (PADDED, 8, (4, 2), True, 2_405_099_520),
            (PADDED, 8, (2, 2, 2), True, 2_405_099_520),
            ("llama-70b", 48, (48,), True, 12_967_609_860_096),
            ("llama-70b", 12, (6, 8), True, 4_999_027_064_832),
            ("llama-70b", 8, (8,), True, 1_549_136_003_072),
            ("llama-70b", 48, (6, 8), True, 10_674_348_982_272),
            ("llama-70b", 48, (8, 6), True, 10_674_348_982_272),
            ("llama-70b", 48, (2, 3, 8), True, 8_397_751_025_664),
            ("llama-70b", 12, (6, 2, 4), True, 4_193_567_342_592),
        ],
    ),
)
def test_levels_of_n_parts(
    network: str, batch: int, sizes: tuple[int, ...], even: bool, expected: int
) -> None:
    assert least_bytes(network, batch, sizes, even=even) == expected


@pytest.mark.usefixtures("split_norms")
@pytest.mark.parametrize(
    ("network", "batch", "sizes", "expected"),
    slow_after(
        8,
        [
            ("gpt2", 1, (2,), 315_416_576),
            ("gpt2", 8, (2,), 786_935_808),
            ("gpt2", 8, (2, 2), 2_360_807_424),
            ("gpt2", 64, (2, 2), 2_984_564_736),
            ("gpt2", 8, (2, 2, 2), 4_809_910_272),
            ("llama-70b", 8, (2,), 443_415_592_960),
            ("resnet-50", 32, (2,), 166_267_392),
            ("resnet-50", 32, (2, 2), 409_800_960),
            ("llama-70b", 1, (2, 2), 220_954_329_088),
            ("llama-70b", 8, (2, 2), 1_090_903_801_856),
            ("resnet-50", 8, (2, 2), 230_413_312),
            ("resnet-50", 32, (2, 2, 2), 854_092_032),
        ],
    ),
)
def test_levels_of_two_parts_at_four_bytes(
    network: str, batch: int, sizes: tuple[int, ...], expected: int
) -> None:
    assert least_bytes(network, batch, sizes, element_bytes=4) == expected


@pytest.mark.parametrize(("sizes", "expected"), [((2,), 314_904_576), ((3,), 629_809_152)])
def test_one_sequence_by_tokens_needs_no_statistics_of_others(
    sizes: tuple[int, ...], expected: int
) -> None:
    assert least_bytes("gpt2", 1, sizes, element_bytes=4, choices=WITH_TOKENS) == expected
