"""GPTs of any size: parameters as published, names with keys, and what is refused."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.models import find_network
from hypar_opt.workload.network import TokenInput
from hypar_opt.workload.tensors import workload_of


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "billions"),
    [(24, 2304, 24, 1.7), (36, 4096, 32, 7.5), (48, 8192, 64, 39.1), (105, 20480, 128, 529.6)],
)
def test_a_gpt_has_the_published_parameters(
    layers: int, hidden: int, heads: int, billions: float
) -> None:
    """Narayanan et al., SC21, table 1 and equation 2."""
    network = ho.gpt(layers=layers, hidden=hidden, heads=heads)
    shared = next(layer for layer in network.layers if layer.name == "head")
    parameters = sum(
        layer.parameters(maps)
        for layer, maps in zip(network.layers, network.maps(), strict=True)
        if layer is not shared
    )
    more = 1 + 13 / (12 * hidden) + (51200 + 2048) / (12 * layers * hidden)
    assert parameters == pytest.approx(12 * layers * hidden**2 * more, rel=1e-5)
    assert parameters / 1e9 == pytest.approx(billions, abs=0.06)


def test_a_name_with_keys_is_the_network_that_a_call_makes() -> None:
    network = ho.gpt(layers=2, hidden=64, heads=4, tokens=32, vocabulary=100, dropout=True)
    assert find_network(network.name) == network
    assert find_network(
        "GPT:heads=4, hidden=64,layers=2,dropout=true,tokens=32,vocabulary=100"
    ) == (network)
    assert ho.gpt(layers=1, hidden=8, heads=2).name == "gpt:layers=1,hidden=8,heads=2"
    assert ho.solve(network.name, batch=4, levels=1).network.description == network


@pytest.mark.parametrize("key", signature(ho.gpt).parameters)
def test_each_key_changes_the_network_and_stands_in_its_name(key: str) -> None:
    sizes: dict[str, Any] = {"layers": 2, "hidden": 16, "heads": 4}
    numbers = {"layers": 3, "hidden": 32, "heads": 2, "tokens": 8, "vocabulary": 64}
    numbers |= {"kv_heads": 2, "ffn": 24}
    default = signature(ho.gpt).parameters[key].default
    value = not default if isinstance(default, bool) else numbers[key]
    plain, network = ho.gpt(**sizes), ho.gpt(**sizes | {key: value})
    assert f"{key}={value}".lower() in network.name
    assert find_network(network.name) == network
    assert network.model_copy(update={"name": plain.name}) != plain


def test_dropout_changes_no_bytes_and_no_products() -> None:
    plain, drops = (
        workload_of(ho.gpt(layers=1, hidden=8, heads=2, tokens=4, dropout=drop), 2)
        for drop in (False, True)
    )
    assert [layer.macs for layer in plain.layers] == [layer.macs for layer in drops.layers]
    assert plain.boundary_sizes == drops.boundary_sizes


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpt:layers=24", "lacks hidden, heads"),
        ("gpt:layer=24", "did you mean layers?"),
        ("gpt:layers=x,hidden=8,heads=2", "gpt:layers should be a whole number, got 'x'"),
        ("gpt:layers=-1,hidden=8,heads=2", "gpt:layers should be a whole number, got '-1'"),
        ("gpt:layers=2147483648,hidden=8,heads=2", "gpt:layers should be at most 2,147,483,647"),
        (f"gpt:layers={'9' * 5000}", "gpt:layers should be at most 2,147,483,647, got '999"),
        ("gpt:layers=2147483647,hidden=8,heads=2", "should expand to at most 100,000 layers"),
        ("gpt:layers=1,layers=2,hidden=8,heads=2", "gpt:layers is stated twice"),
        ("gpt:layers=1,hidden=8,heads=4,kv_heads=3", "kv_heads should divide the 4 heads, got 3"),
        ("gpt:layers=1,hidden=8,heads=4,ffn=0", "ffn should be 1 or more, got 0"),
        ("gpt:layers=1,hidden=9,heads=2", "heads should divide the hidden size 9, got 2"),
        ("gpt:layers=0,hidden=8,heads=2", "layers should be 1 or more, got 0"),
        ("gpt:layers=1,hidden=8,heads=2,dropout=1", "gpt:dropout should be true or false, got '1'"),
    ],
)
def test_a_wrong_name_is_refused_by_its_key(name: str, said: str) -> None:
    with pytest.raises(HyparError) as refused:
        find_network(name)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("name", "of_zoo"),
    [
        ("layers=32,hidden=4096,heads=32,ffn=11008", "llama-7b"),
        ("layers=32,hidden=4096,heads=32,kv_heads=8,ffn=14336", "llama-3-8b"),
        ("layers=80,hidden=8192,heads=64,kv_heads=8,ffn=28672", "llama-70b"),
    ],
)
def test_with_its_keys_a_gpt_is_a_llama(name: str, of_zoo: str) -> None:
    """Layer by layer the zoo's; of rotary positions the zoo says nothing, as they cost nothing."""
    zoo = ho.load(of_zoo)
    assert isinstance(zoo.input, TokenInput)
    own = find_network(
        f"gpt:{name},gated=true,tied=false,rotary=true,tokens={zoo.input.tokens},"
        f"vocabulary={zoo.input.vocabulary}"
    )
    assert own.sources == zoo.sources
    for ours, theirs in zip(own.layers, zoo.layers, strict=True):
        described = ours.model_dump(exclude_none=True)
        assert described.pop("rotary", {}) == {}
        assert described == theirs.model_dump(exclude_none=True)


def test_keys_that_state_the_default_change_nothing() -> None:
    plain = ho.gpt(layers=1, hidden=8, heads=2)
    assert ho.gpt(layers=1, hidden=8, heads=2, kv_heads=2, ffn=32).digest() == plain.digest()
