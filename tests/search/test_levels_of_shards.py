"""Over which levels to split weights: those below one, where links are no slower inwards."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, pairwise
from pathlib import Path
from random import Random

import pytest

import hypar_opt as ho
from hypar_opt.studies.simulation import per_second
from hypar_opt.workload.shards import Shards

Levels = tuple[int, ...]


def taken(
    split: Levels, paces: list[Fraction], latencies: list[int], micro_batches: int, parts: int
) -> Fraction:
    """Seconds of a device to train one weight that is split over some levels.

    Reduce-scatters and all-gathers cross the innermost level first, of the whole; each then has a
    part of what the next one moves. What is split is scattered and gathered twice in each
    micro-batch, its shards once over the other levels.
    """
    others = [level for level in range(len(paces)) if level not in split]
    seconds, size = Fraction(), Fraction(1)
    for levels, often in ((split, 3 * micro_batches), (others, 2)):
        for level in sorted(levels, reverse=True):
            size /= parts
            seconds += often * (parts - 1) * (size * paces[level] + latencies[level])
    return seconds


def subsets(levels: int) -> list[Levels]:
    return [own for count in range(levels + 1) for own in combinations(range(levels), count)]


@pytest.mark.parametrize("seed", range(60))
def test_of_equally_many_levels_the_innermost_take_the_least(seed: int) -> None:
    """Of all subsets of up to six levels: the others hold as much and take no less."""
    rng = Random(seed)
    levels, parts = rng.randint(1, 6), rng.choice([2, 2, 3, 8])
    paces = sorted((Fraction(rng.randint(1, 50)) for _ in range(levels)), reverse=True)
    latencies = sorted((rng.randint(0, 5) for _ in range(levels)), reverse=True)
    rest = latencies, rng.randint(1, 8), parts
    for split in subsets(levels):
        innermost = tuple(range(levels - len(split), levels))
        assert taken(innermost, paces, *rest) <= taken(split, paces, *rest)


def test_where_inner_links_are_slower_another_level_may_be_better() -> None:
    """So the claim needs its condition: an outer level of fast links takes less."""
    paces = [Fraction(1), Fraction(10)]
    assert taken((0,), paces, [0, 0], 2, 2) < taken((1,), paces, [0, 0], 2, 2)


ARRAY = """
schema = "hypar-opt/array/1"
name = "two nodes of four"
collective = "pairwise"
element_bytes = 2
bucket = "2 B"

[accelerator]
units = 1
operations = "100 TFLOPS"
gemm = 0.5
launch = "1 us"
dram_bandwidth = "1 TB/s"
dram_capacity = "80 GB"

[topology]
kind = "nodes"
nodes = 2
per_node = 4
link = { bandwidth = "100 GB/s", latency = "0 s" }
fabric = { bandwidth = "10 GB/s", latency = "0 s" }
"""


def test_plans_take_what_these_sums_say_and_nodes_are_one_step(tmp_path: Path) -> None:
    """Between levels of equal links each byte that is not held takes as long: nothing is gained."""
    (tmp_path / "two.toml").write_text(ARRAY)
    layer = {"name": "fc", "kind": "fc", "units": 2**12}
    network = ho.Network.model_validate(
        {"name": "one", "input": {"features": 2**12}, "layer": [layer]}
    )
    count, weights = 3, 2**24

    def trained(first: int) -> tuple[Fraction, int]:
        word = Shards(0, first, first).word(3)
        plan = ho.solve(
            network,
            array=tmp_path / "two.toml",
            batch=24,
            solver="data",
            training={"micro_batches": count, "shard": word},
        )
        return Fraction(plan.cost.total) / per_second(plan), ho.memory(plan).categories["weights"]

    points = [trained(first) for first in range(4)]
    # Two bytes each; four accelerators share what a node sends.
    links = [Fraction(2, 10**10 // 4), Fraction(2, 10**11), Fraction(2, 10**11)]
    paces = [weights * seconds for seconds in links]
    for first, (seconds, _) in enumerate(points[:3]):
        own, least = (taken(tuple(range(n, 3)), paces, [0] * 3, count, 2) for n in (first, 3))
        assert float(seconds - points[3][0]) == pytest.approx(float(own - least), rel=1e-6)
    slopes = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in pairwise(points)]
    assert float(slopes[1]) == pytest.approx(float(slopes[2]), rel=1e-6)
    assert -slopes[0] > -5 * slopes[1]
