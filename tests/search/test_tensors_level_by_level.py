"""Tensors that several layers read keep to the rule on splits level by level, as layers do."""

from __future__ import annotations

from pathlib import Path

import pytest

import hypar_opt as ho
from tests.strategies.mixtures import mixture


@pytest.mark.parametrize("seed", range(4))
def test_no_tensor_is_split_into_empty_parts_below_what_it_was_above(
    seed: int, tmp_path: Path
) -> None:
    """Three images have a part each at H1, and none at H2."""
    for choices in (("data", "model", "addends"), ("data", "model", "output")):
        plan = ho.solve(
            mixture(seed),
            batch=3,
            hierarchy=(3, 3),
            whole_levels=True,
            choices=choices,
            reading="executed",
            search="levelwise",
            constraints={"runnable": True},
        )
        plan.save(tmp_path / "plan.json")
        assert ho.read_plan(tmp_path / "plan.json") == plan
