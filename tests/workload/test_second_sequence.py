"""Embeddings beside the input's: a second sequence of ids, tied tables, rows that are read."""

from __future__ import annotations

from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError
from hypar_opt.workload.description import describe
from tests.choices import WITH_TOKENS
from tests.execution.drawn import drawn_programs, run_as_one_device
from tests.execution.small_networks import translator
from tests.execution.virtual.test_arithmetic import assert_gradients_are_slopes
from tests.slow import slow_after

TOKEN = {"name": "token", "kind": "embedding", "features": 8}


def table(second: dict[str, Any], *layers: dict[str, Any]) -> dict[str, Any]:
    other = {"name": "second", "kind": "embedding", "inputs": [], "features": 8, **second}
    return {
        "schema": "hypar-opt/network/2",
        "name": "two sequences",
        "input": {"tokens": 6, "vocabulary": 16},
        "layer": [TOKEN, other, *layers],
    }


def test_one_table_embeds_both_sequences_and_is_the_head() -> None:
    network = translator()
    assert describe(network, 1)["total"]["weights"] == 16 * 16 + 4 * 16 * 16
    lengths = {
        layer.name: m.output.tokens for layer, m in zip(network.layers, network.maps(), strict=True)
    }
    assert (lengths["token"], lengths["second"], lengths["loss"]) == (6, 4, 4)


def test_the_gradient_of_a_table_is_of_both_sequences() -> None:
    assert_gradients_are_slopes(translator(), seed=0)


@pytest.mark.parametrize("seed", slow_after(4, range(8)))
def test_bytes_and_numbers_are_those_modelled_and_of_one_device(seed: int) -> None:
    """Also where either sequence's tokens are split."""
    for program in drawn_programs(translator(), seed, 3, ((2,), (2, 2)), choices=WITH_TOKENS):
        run_as_one_device(translator(), program, seed)


@pytest.mark.parametrize(
    ("second", "refused"),
    [
        ({"vocabulary": 4, "tokens": 6}, "tokens: should be at most the 4 rows, got 6"),
        ({"tokens": 6}, "vocabulary: is missing, and the layer has no inputs"),
        ({"ids": 6, "tokens": 6}, "tokens: should be left out: 'ids' says how many there are"),
        ({"inputs": ["input"], "ids": 6}, "ids: goes with no inputs: should be 'inputs = []'"),
        ({"inputs": ["input"], "tokens": 6}, "tokens: goes with no inputs"),
        ({"vocabulary": 6, "tied": "token"}, "tied: should be left out: rows are read in order"),
        ({"ids": 6, "vocabulary": 9, "tied": "token"}, "this layer needs 9 by 8"),
        ({"ids": 6, "tied": "nobody"}, "tied: should name an embedding that has its own weights"),
        ({"ids": 6, "tied": "head"}, "tied: should name an embedding that has its own weights"),
    ],
)
def test_what_is_no_second_sequence_is_refused(second: dict[str, Any], refused: str) -> None:
    described = table(
        second,
        {"name": "sum", "kind": "add", "inputs": ["token", "second"]},
        {"name": "head", "kind": "fc", "units": 8},
    )
    with pytest.raises(InputError) as caught:
        validate(ho.Network, described)
    assert refused in str(caught.value)
