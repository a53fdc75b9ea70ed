"""Cuts of a network into stages, against all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np

from hypar_opt.search.cuts import IMPOSSIBLE, least_cuts, least_cuts_sharing


def test_no_cuts_cost_less_than_those_found() -> None:
    chosen = random.Random(7)
    for _ in range(400):
        units = chosen.randint(2, 8)
        count, turns = chosen.randint(1, units), chosen.choice([1, 2, 4, 64])
        most = chosen.choice([3, 100, 10**14])
        stages = np.array(
            [
                [
                    [
                        chosen.randint(1, most)
                        if chosen.random() < 0.9 and start < end
                        else IMPOSSIBLE
                        for end in range(units + 1)
                    ]
                    for start in range(units + 1)
                ]
                for _ in range(count)
            ]
        )

        def cost(
            ends: tuple[int, ...], of: np.ndarray = stages, turns: int = turns
        ) -> Fraction | None:
            own = [int(of[n, a, b]) for n, (a, b) in enumerate(zip((0, *ends), ends, strict=False))]
            if max(own) >= IMPOSSIBLE:
                return None
            return max(own) + Fraction(sum(own) - max(own), turns)

        every = [cost((*ends, units)) for ends in combinations(range(1, units), count - 1)]
        possible = [own for own in every if own is not None]
        found = least_cuts(stages, turns)
        assert (found is None) == (not possible)
        if found is not None:
            assert found.cost == min(possible) == cost(found.ends)


def test_no_cuts_of_units_that_share_weights_cost_less() -> None:
    chosen = random.Random(8)
    several = 0
    for _ in range(300):
        units = chosen.randint(2, 8)
        count, turns = chosen.randint(1, min(units, 5)), chosen.choice([1, 2, 8])
        stages = np.array(
            [
                [
                    [
                        chosen.randint(1, 100) if start < end else IMPOSSIBLE
                        for end in range(units + 1)
                    ]
                    for start in range(units + 1)
                ]
                for _ in range(count)
            ]
        )
        weights = [
            chosen.sample(range(units), chosen.randint(2, units))
            for _ in range(chosen.randint(1, 2))
        ]
        charges: dict[tuple[int, ...], Fraction] = {}

        def charge(
            places: Sequence[tuple[int, int]],
            weights: Sequence[Sequence[int]] = weights,
            charges: dict[tuple[int, ...], Fraction] = charges,
        ) -> Fraction:
            total = Fraction()
            for number, own in enumerate(weights):
                has = [any(first <= n < end for n in own) for first, end in places]
                drawn = Fraction(chosen.randint(0, 900), 7)
                total += charges.setdefault((number, *has), drawn)
            return total

        every = []
        for some in combinations(range(1, units), count - 1):
            places = [*pairwise((0, *some, units))]
            own = [int(stages[n, a, b]) for n, (a, b) in enumerate(places)]
            cost = max(own) + Fraction(sum(own) - max(own), turns) + charge(places)
            every.append((cost, (*some, units)))
        found = least_cuts_sharing(stages, turns, weights, charge)
        assert found is not None
        assert found.cost == min(every)[0]
        assert (found.cost, found.ends) in every
        plain = least_cuts(stages, turns)
        assert plain is not None
        several += plain.ends != found.ends
    assert several > 50


def test_blocks_with_a_head_are_cut_by_what_they_cost() -> None:
    """A head of four blocks' work: 16 blocks are 10 and 6 rather than 8 and 8."""
    units = 16
    own = np.full((2, units + 1, units + 1), IMPOSSIBLE)
    for start in range(units):
        for end in range(start + 1, units + 1):
            own[:, start, end] = 10 * (end - start) + (40 if end == units else 0)
    found = least_cuts(own, 64)
    assert found is not None
    assert found.ends == (10, 16)
