"""Python's own collection of cycles: seldom while we compute, as it was before and after."""

from __future__ import annotations

import gc

import pytest

from hypar_opt.checked import checked
from hypar_opt.garbage import COLLECT_AFTER


@pytest.mark.parametrize(
    ("set_before", "while_computing"),
    [(700, COLLECT_AFTER), (2 * COLLECT_AFTER, 2 * COLLECT_AFTER), (0, 0)],
)
def test_cycles_are_looked_for_seldom_while_a_public_function_runs(
    set_before: int, while_computing: int
) -> None:
    @checked
    def inner() -> int:
        return gc.get_threshold()[0]

    @checked
    def outer() -> tuple[int, int]:
        return inner(), gc.get_threshold()[0]

    @checked
    def failing() -> None:
        raise ValueError

    before = gc.get_threshold()
    try:
        gc.set_threshold(set_before, 11, 12)
        assert outer() == (while_computing, while_computing)
        with pytest.raises(ValueError):  # noqa: PT011
            failing()
        assert gc.get_threshold()[:2] == (set_before, 11)
    finally:
        gc.set_threshold(*before)
