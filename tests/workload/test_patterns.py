"""Words by layer: names outweigh patterns, and patterns outweigh the word of all others."""

from __future__ import annotations

import pytest

from hypar_opt.errors import HyparError
from hypar_opt.workload.patterns import compact, parsed_words, words_by_layer
from hypar_opt.workload.recomputation import recomputed_words
from tests.execution import small_networks

NAMES = ["token", "decoder.0.up", "decoder.0.down", "decoder.1.up", "head, a=b"]


def test_a_name_outweighs_patterns_and_these_the_word_of_all_others() -> None:
    words = {"*": "none", "decoder.0": "state", "decoder.0.up": "weights", "head, a=b": "state"}
    assert words_by_layer(words, NAMES, "shard") == ["none", "weights", "state", "none", "state"]
    assert words_by_layer({"decoder.*": "state"}, NAMES, "shard")[0] is None
    assert words_by_layer("state", NAMES, "shard") == ["state"] * 5


def test_what_is_typed_is_read_from_the_right() -> None:
    assert parsed_words("state,decoder.0=weights", "shard") == {
        "*": "state",
        "decoder.0": "weights",
    }
    assert parsed_words("a=b=weights", "shard") == {"a=b": "weights"}
    assert parsed_words("*=full", "recompute") == "full"
    with pytest.raises(HyparError, match="'a' has several words in 'a=none,a=full'"):
        parsed_words("a=none,a=full", "recompute")


def test_compact_words_are_those_of_all_layers_again() -> None:
    for words in (["none"] * 5, ["none", "state", "state", "weights", "state"]):
        compacted = compact(words, NAMES)
        assert words_by_layer(compacted, NAMES, "shard") == words
        assert hash(compacted) == hash(compact(words, NAMES))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"decodr.0": "none"}, "no layer is called 'decodr.0'; did you mean decoder"),
        ({"decoder.*": "none", "*.0.*": "full"}, "conflict at decoder.0.norm1"),
        ({"head": "full"}, "'head' names no layer of a block"),
    ],
)
def test_words_of_no_layer_and_of_two_patterns_are_refused(
    words: dict[str, str], message: str
) -> None:
    with pytest.raises(HyparError) as refused:
        recomputed_words(small_networks.gpt(tied=False, blocks=2), words)
    assert message in refused.value.message


def test_a_block_is_computed_again_as_a_whole() -> None:
    network = small_networks.gpt(tied=False, blocks=2)
    words = dict(
        zip(
            [layer.name for layer in network.layers],
            recomputed_words(network, {"decoder.0.up": "full"}),
            strict=True,
        )
    )
    assert {name for name, word in words.items() if word == "full"} == {
        name for name in words if name.startswith("decoder.0.")
    }
