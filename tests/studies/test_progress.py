"""Progress moves while a command works, never back, and ends where the work does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.display.page.contents import gather
from hypar_opt.search.result import Progress, part_of
from hypar_opt.studies.targets import own_array


def page(progress: Progress) -> None:
    plan = ho.solve("lenet-c", array="hmc-htree-4")
    gather(plan, own_array(plan), progress=progress)


@pytest.mark.parametrize(
    ("work", "steps"),
    [
        (lambda told: ho.compare(["sfc", "lenet-c"], "hmc-htree-4", progress=told), 12),
        (lambda told: ho.pareto("sconv", array="hmc-htree-4", progress=told), 5),
        (lambda told: ho.pareto("sfc", array="h100-8", points=2, progress=told), 3),
        (page, 15),
    ],
)
def test_it_moves_and_never_goes_back(work: Callable[[Progress], Any], steps: int) -> None:
    shares: list[float] = []

    def told(done: int, of: int) -> None:
        assert 0 <= done <= of
        shares.append(done / of)

    work(told)
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0, 1)
    assert len(set(shares)) >= steps


def test_a_part_that_counts_twice_stays_where_it_was() -> None:
    told: list[tuple[int, int]] = []
    part = part_of(lambda done, of: told.append((done, of)), 1, 2)
    for done, of in ((0, 2), (1, 2), (0, 4), (3, 4), (0, 0)):
        part(done, of)
    assert told == [(1000, 2000), (1500, 2000), (1500, 2000), (1750, 2000), (1750, 2000)]
