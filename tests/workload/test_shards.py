"""What data parallelism splits of weights, and from which level down, as a word."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest

from hypar_opt.workload.parallelism import SHARDED
from hypar_opt.workload.repeats import ZERO_STAGES, Repeats
from hypar_opt.workload.shards import (
    Shards,
    fault_in_levels,
    renumbered,
    shards_of,
    with_node_levels,
)


@pytest.mark.parametrize("levels", range(5))
def test_every_choice_of_levels_has_one_word(levels: int) -> None:
    """The state from one level on, gradients from one no higher, weights from one no higher."""
    words = set()
    for begins in combinations_with_replacement(range(levels + 1), 3):
        word = Shards(*begins).word(levels)
        words.add(word)
        assert fault_in_levels([word], levels) is None
        for level in range(levels):
            split = [first <= level for first in begins]
            assert Shards(*begins).at(level) == shards_of(word).at(level) == SHARDED[sum(split)]
    assert len(words) == (levels + 1) * (levels + 2) * (levels + 3) // 6


def test_words_of_all_levels_are_as_before() -> None:
    assert [shards_of(word).word(6) for word in SHARDED] == [*SHARDED]
    assert shards_of("weights@H1-H6") == shards_of("weights")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("wights", "none, state, gradients or weights, or that from a level down"),
        ("weights@4", "none, state, gradients or weights, or that from a level down"),
        ("none@H2", "none, state, gradients or weights, or that from a level down"),
        ("weights+state@H2-H3", "state, gradients, weights in this order"),
        ("state@H3+weights@H2-H3", "state, gradients, weights in this order"),
        ("weights@H3-H2", "levels down to one last level"),
        ("state@H2-H4+weights@H3-H5", "levels down to one last level"),
    ],
)
def test_another_word_is_refused_with_what_it_should_be(word: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        shards_of(word)


def test_a_word_names_levels_down_to_the_last() -> None:
    for words, levels in ((["weights@H2-H3"], 4), (["state", "weights@H2"], 3)):
        said = f"should name levels down to H{levels}, the last, got {words[-1]!r}"
        assert fault_in_levels(words, levels) == said
    assert str(fault_in_levels(["weights@H1"], 0)).startswith("should name levels none")


@pytest.mark.parametrize(
    ("word", "inside", "said"),
    [
        ("weights@node", [4, 5, 6], "weights@H4-H6"),
        ("state+weights@node", [3], "state+weights@H3"),
        ("gradients@node", [2, 3], "gradients@H2-H3"),
        ("gradients@node", [1, 2], "gradients"),
        ("state+weights@node", [1, 2], "weights"),
        ("weights", [1, 2], "weights"),
    ],
)
def test_nodes_stand_for_the_levels_inside_them(word: str, inside: list[int], said: str) -> None:
    assert with_node_levels(word, inside) == said
    assert shards_of(said) is not None


def walked(word: str, micro_batches: int, users: int) -> list[tuple[str, bool]]:
    """Return the halves of a step and whether each moves weights, walking through its passes."""
    halves = []
    for _ in range(micro_batches):
        for _pass in ("forward", "backward"):
            for _layer in range(users):
                halves += [("all-gather", True)] if word == "weights" else []
        halves += [("reduce-scatter", False)] if word in ("gradients", "weights") else []
    if word in ("none", "state"):
        halves.append(("reduce-scatter", False))
    if word != "weights":
        halves.append(("all-gather", word != "none"))  # without shards of gradients
    return halves


@pytest.mark.parametrize("word", SHARDED)
@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("reduced", [1, 2])
def test_the_collectives_of_a_stage_are_those_of_a_walk_through_a_step(
    word: str, micro_batches: int, reduced: int
) -> None:
    split = Repeats(micro_batches, {n: shards_of(word) for n in range(3)}, {}, reduced)
    users = [1, 2, 5]
    walks = [walked(word, micro_batches, own) for own in users]
    taken = [
        sum(one.rounds * split.times(one, count) for one in ZERO_STAGES[word]) for count in users
    ]
    assert taken == [len(halves) for halves in walks]
    assert split.moved(users, 0).tolist() == [
        sum(1 if weights else reduced for _, weights in halves) for halves in walks
    ]
    kinds = [one.kind for one in ZERO_STAGES[word]]
    assert kinds == (["all-reduce"] if word == "none" else ["reduce-scatter", "all-gather"])


def test_zero_moves_what_its_paper_says() -> None:
    """As much as an all-reduce up to its second stage, and half as much more in the third."""
    assert [*ZERO_STAGES] == [*SHARDED]
    moved = [Repeats(1, {0: shards_of(word)}).moved([1], 0).item() for word in SHARDED]
    assert moved == [2, 2, 2, 3]


@pytest.mark.parametrize("levels", range(1, 5))
def test_levels_of_stages_are_numbered_from_below_those_between_them(levels: int) -> None:
    for begins in combinations_with_replacement(range(levels + 1), 3):
        word = Shards(*begins).word(levels)
        for above in range(levels):
            inside = shards_of(renumbered(word, -above))
            outside = shards_of(renumbered(renumbered(word, -above), above))
            assert fault_in_levels([renumbered(word, -above)], levels - above) is None
            for level in range(above, levels):
                expected = shards_of(word).at(level)
                assert inside.at(level - above) == outside.at(level) == expected
