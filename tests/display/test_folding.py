"""Folded layers: what is alike is shown once, and unfolding gives back the plan."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given

from hypar_opt.display.folding import Section, fold, ranges
from hypar_opt.workload.expansion import Repeat
from tests.display.graphs import Structure, structures


def unfolded(sections: Sequence[Section], keys: Sequence[object]) -> dict[int, object]:
    """The key of each layer, as the first layer of its row says it."""
    shown: dict[int, object] = {}
    for section in sections:
        for row in section.rows:
            for position in row.positions:
                assert position not in shown
                shown[position] = keys[row.positions[0]]
    return shown


@given(structures())
def test_unfolding_gives_back_the_plan(case: Structure) -> None:
    for runs in (False, True):
        sections = fold(case.names, case.repeats, case.keys, runs=runs)
        assert unfolded(sections, case.keys) == dict(enumerate(case.keys))


@given(structures())
def test_repetitions_that_are_alike_stand_once(case: Structure) -> None:
    sections = fold(case.names, case.repeats, case.keys, runs=False)
    for repeat in case.repeats:
        own = [section for section in sections if section.block == repeat.name]
        assert sorted(n for section in own for n in section.numbers) == list(range(repeat.count))
        bodies = {tuple(case.keys[row.positions[0]] for row in section.rows) for section in own}
        assert len(bodies) == len(own)
        for section in own:
            assert [row.first for row in section.rows] == [f"l{n}" for n in range(repeat.length)]


@given(structures())
def test_neighbours_in_a_section_differ(case: Structure) -> None:
    for section in fold(case.names, case.repeats, case.keys):
        shown = [case.keys[row.positions[0]] for row in section.rows]
        assert all(one != other for one, other in pairwise(shown))


def test_a_plan_of_a_thousand_layers_has_as_many_rows_as_it_has_parts() -> None:
    repeats = [Repeat("decoder", 1, 8, 125)]
    names = ["embedding", *(f"decoder.{n}.l{k}" for n in range(125) for k in range(8)), "head"]
    # The last five repetitions differ in one layer.
    keys = [0, *((k in {3, 5}) + 2 * (n >= 120) for n in range(125) for k in range(8)), 1]
    sections = fold(names, repeats, keys)
    assert [section.label for section in sections] == ["", "decoder.0-119", "decoder.120-124", ""]
    assert [row.label() for row in sections[1].rows] == ["l0–l2", "l3", "l4", "l5", "l6–l7"]


def test_numbers_read_as_ranges() -> None:
    assert ranges([0, 1, 2, 3]) == "0-3"
    assert ranges([0, 1, 4, 6, 7]) == "0-1,4,6-7"
    assert ranges([5]) == "5"


def test_a_run_says_what_its_names_begin_with_once() -> None:
    names = ["stem.conv", "stem.norm", "stem.add", "head"]
    (section,) = fold(names, [], [0, 0, 0, 1])
    assert [row.label() for row in section.rows] == ["stem.conv–add", "head"]
    # A block that is not repeated has no numbers.
    stem, _ = fold(names, [Repeat("stem", 0, 3, 1, None)], [0, 0, 0, 1])
    assert stem.label == "stem"
    assert [row.label("-") for row in stem.rows] == ["conv-add"]
