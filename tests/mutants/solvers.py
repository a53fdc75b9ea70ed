"""Mutants of solvers: what is compared within capacities, and which of equal optima is returned."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_LABELS = "solvers/within_load"
_LIMITED = "solvers/elimination/limited"
_TESTS = ("solvers/test_graphs", "solvers/test_within_load")

SOLVERS = (
    Mutant(
        "of several loads the first alone has to fit",
        _LABELS,
        "fits.all(axis=-1)",
        "fits[..., 0]",
        _TESTS,
    ),
    Mutant(
        "a heavier label of a lower rank leaves out a lighter one",
        _LABELS,
        "all(map(le, other, load))",
        "any(map(le, load, other))",
        _TESTS,
    ),
    Mutant(
        "of several limits fronts compare costs and the first load",
        _LABELS,
        "entries = np.column_stack((costs, loads))",
        "entries = np.column_stack((costs, loads[:, :1]))",
        _TESTS,
    ),
    Mutant(
        "of labels of equal cost the highest rank is kept",
        _LABELS,
        "least_rank = min(rank >> shift",
        "least_rank = max(rank >> shift",
        _TESTS,
    ),
    Mutant(
        "where nothing that fits is known, little above the bound is compared",
        _LIMITED,
        "while self.bound <= highest:",
        "for _ in range(2):",
        _TESTS,
    ),
    Mutant(
        "the sum of loads fits where the first does",
        _LIMITED,
        "return [(total.astype(dtype), sum(capacities)), *table.limits]",
        "return [(total.astype(dtype), capacities[0]), *table.limits]",
        _TESTS,
    ),
)
