"""The table of mutants is up to date; ``make mutants`` runs the tests that must notice them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.mutants import AREAS
from tests.mutants.mutant import ROOT, Mutant

MUTANTS = [mutant for mutants in AREAS.values() for mutant in mutants]


@cache
def source_of(path: Path) -> tuple[str, str]:
    """Return the text of a file, and its syntax tree in words."""
    source = (ROOT / path).read_text()
    return source, ast.dump(ast.parse(source))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_applies_to_the_package_as_it_is(mutant: Mutant) -> None:
    source, parsed = source_of(mutant.path)
    assert ast.dump(ast.parse(mutant.mutated(source))) != parsed
    for test in mutant.test_paths():
        file, _, name = test.partition("::")
        assert f"def {name}" in (ROOT / file).read_text()


def test_no_two_mutants_are_the_same() -> None:
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    for mutants in AREAS.values():
        assert len({mutant.name for mutant in mutants}) == len(mutants)


def test_what_does_not_apply_any_more_is_an_error() -> None:
    mutant = Mutant("of a line that is gone", "units", "no such line", "", ())
    with pytest.raises(ValueError, match=r"units\.py: 'no such line' is there 0 times"):
        mutant.mutated((ROOT / mutant.path).read_text())


def test_contributing_has_the_table_of_mutants() -> None:
    text = " ".join(Path(ROOT, "CONTRIBUTING.md").read_text().split())
    for area, mutants in AREAS.items():
        equivalent = sum(bool(mutant.equivalent) for mutant in mutants)
        assert f"| {area} | {len(mutants)} | {equivalent} |" in text
    for mutant in MUTANTS:
        assert not mutant.equivalent or f"*{mutant.name}*" in text
