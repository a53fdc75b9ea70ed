"""``--tokens``: a network for sequences of another length, in one document."""

from __future__ import annotations

from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.workload.description import describe
from hypar_opt.workload.network import TokenInput
from hypar_opt.workload.operators.maps import ExpertMap
from hypar_opt.workload.sequence_length import with_tokens

OF_TOKENS = [name for name in ho.names() if isinstance(ho.load(name).input, TokenInput)]


def network(of: dict[str, Any], *layers: dict[str, Any]) -> ho.Network:
    table = {"schema": "hypar-opt/network/2", "name": "net", "input": of, "layer": list(layers)}
    return ho.Network.model_validate(table)


@pytest.mark.parametrize("name", OF_TOKENS)
def test_the_same_weights_read_sequences_of_another_length(name: str) -> None:
    whole, short = ho.load(name), with_tokens(ho.load(name), 128)
    counts = [describe(each, 1)["total"]["parameters"] for each in (whole, short)]
    assert counts[0] == counts[1]
    assert short.input.feature_map().tokens == 128
    assert short.digest() != whole.digest()
    assert with_tokens(short, whole.input.feature_map().tokens).layers[-1] == whole.layers[-1]
    # What follows the input has as many tokens, but for what reads a second sequence.
    written = (maps.output for maps in short.maps())
    lengths = {over.tokens for over in written if not isinstance(over, ExpertMap)}
    assert lengths <= {128, 0, 114}


def test_a_plan_is_that_of_a_network_file_of_that_length() -> None:
    described = ho.load("llama-3-8b").description()
    described["input"]["tokens"] = 131_072
    asked: dict[str, Any] = {"batch": 8, "levels": 3}
    written = ho.solve(ho.Network.model_validate(described), **asked)
    plan = ho.solve("llama-3-8b", tokens=131_072, **asked)
    assert plan.network == written.network
    assert plan.cost == written.cost


def test_of_learned_positions_the_first_are_read() -> None:
    short = with_tokens(ho.load("gpt2"), 512)
    (position,) = (layer for layer in short.layers if layer.name == "position")
    assert position.maps().output == (512, 768)
    assert (position.tokens, position.vocabulary) == (512, 1024)  # type: ignore[attr-defined]
    # The whole table is stored, and its gradient reduced.
    assert position.weights(position.maps()) == 1024 * 768


FLAT = network(
    {"tokens": 8, "features": 4},
    {"name": "flat", "kind": "flatten"},
    {"name": "fc", "kind": "fc", "units": 3},
)
CLASSED = network(
    {"tokens": 8, "features": 4},
    {"name": "class", "kind": "embedding", "inputs": [], "vocabulary": 1, "features": 4},
    {"name": "all", "kind": "concat", "inputs": ["class", "input"], "axis": "tokens"},
    {"name": "position", "kind": "embedding", "inputs": [], "vocabulary": 9, "features": 4},
    {"name": "sum", "kind": "add", "inputs": ["all", "position"]},
)


@pytest.mark.parametrize(
    ("of", "tokens", "refused"),
    [
        ("alexnet", 8, "tokens: AlexNet does not read tokens; leave it out"),
        ("vit-b16", 8, "tokens: ViT-B/16 does not read tokens; leave it out"),
        ("gpt2", 1025, "should be at most 1,024, the learned positions of layer 'position' of"),
        ("mixtral-8x7b", 100, "layer 'decoder.0.router', group: should divide 100 tokens, got 64"),
        ("gpt2", 0, "tokens should be from 1 to 2,147,483,647, got 0"),
        ("gpt2", 2**31, "tokens should be from 1 to 2,147,483,647, got 2147483648"),
        ("gpt2", 8.0, "tokens should be from 1 to 2,147,483,647, got 8.0"),
        (FLAT, 9, "net is not for sequences of 9 tokens: layer 'fc' has weights for 8"),
        (CLASSED, 9, "net is not for sequences of 9 tokens: layer 'sum', inputs: should be of one"),
    ],
)
def test_a_length_that_does_not_fit_is_refused(of: Any, tokens: Any, refused: str) -> None:
    with pytest.raises(ho.HyparError) as caught:
        ho.solve(of, tokens=tokens, levels=1)
    assert refused in str(caught.value)


def test_every_study_takes_a_length() -> None:
    asked: dict[str, Any] = {"tokens": 16, "levels": 1}
    plan = ho.solve("gpt2", batch=4, search="joint", **asked)
    (row,) = ho.compare("gpt2", batches=4, arrays=None, **asked).rows()[:1]
    many = ho.solve_many("gpt2", batch=4, search="joint", **asked)
    every = ho.solve_all_batches("gpt2", lo=4, hi=4, **asked)
    assert row["network"] == "GPT-2"
    assert plan.cost.total == many.totals.item() == every.at(4).bytes_at(4)
    fronts = ho.pareto("gpt2", ["bytes"], batch=4, points=1, **asked)
    assert fronts.network.input == plan.network.description.input
