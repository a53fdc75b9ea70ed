"""Cases of a sweep that are not simulated, solved many at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from hypar_opt.errors import HyparError
from hypar_opt.studies.many import SearchName, affine_chain, solve_many
from hypar_opt.studies.sweep.case import PAPERS, Case, SweepRow, array_of, network_of, row_of


def is_solved_together(case: Case) -> bool:
    """Return whether `run_together` accepts a case."""
    plain = (case.overlap, case.cost, case.solver, case.choices) == (None, "bytes", "dp", PAPERS)
    return plain and all(_is_affine(case.network, name) for name in (case.reading, "executed"))


def run_together(cases: dict[str, Case]) -> Iterator[tuple[str, SweepRow]]:
    """Yield the same rows as if each case were run separately.

    Parameters
    ----------
    cases
        The cases by key; `is_solved_together` accepts all.
    """
    groups: dict[tuple[str, SearchName], dict[str, Case]] = {}
    for key, case in cases.items():
        search: SearchName = "joint" if case.search == "joint" else "levelwise"
        groups.setdefault((case.network, search), {})[key] = case
    for (network, search), group in groups.items():
        yield from _solved(network, search, group)


def _solved(
    network: str, search: SearchName, cases: dict[str, Case]
) -> Iterator[tuple[str, SweepRow]]:
    places = {
        key: (case.batch, case.element_bytes, case.reading, array_of(case.array).levels)
        for key, case in cases.items()
    }
    # The indices of its values give a case its plan among all combinations.
    axes = [dict.fromkeys(values) for values in zip(*places.values(), strict=True)]
    index = [{value: n for n, value in enumerate(axis)} for axis in axes]
    batch, element_bytes, reading, levels = map(list, axes)
    many = solve_many(
        network_of(network),
        search=search,
        batch=batch,
        element_bytes=element_bytes,
        reading=reading,
        levels=levels,
    )
    for key, place in places.items():
        at = tuple(numbers[value] for numbers, value in zip(index, place, strict=True))
        results = {
            "search": search,
            "status": "optimal",
            "bytes": many.totals.item(at),
            "executed_bytes": many.executed_bytes.item(at),
            "data_parallel_bytes": many.data_parallel_bytes.item(at),
        }
        yield key, row_of(cases[key], results)


@lru_cache(64)
def _is_affine(network: str, reading: str) -> bool:
    described = network_of(network)
    try:
        return described.is_chain and affine_chain(described, reading) is not None
    except HyparError:  # by itself the case is a row with this reason
        return False
