"""GPTs of any size: parameters as published, names with keys, and what is refused."""

from __future__ import annotations

import pytest

import hypar_opt as ho
from hypar_opt.errors import HyparError
from hypar_opt.models import find_network
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
    made = ho.gpt(layers=2, hidden=64, heads=4, tokens=32, vocabulary=100, dropout=True)
    assert find_network(made.name) == made
    assert find_network(
        "GPT:heads=4, hidden=64,layers=2,dropout=true,tokens=32,vocabulary=100"
    ) == (made)
    assert ho.gpt(layers=1, hidden=8, heads=2).name == "gpt:layers=1,hidden=8,heads=2"
    assert ho.solve(made.name, batch=4, levels=1).network.description == made


def test_dropout_changes_no_bytes_and_no_products() -> None:
    plain, drops = (
        workload_of(ho.gpt(layers=1, hidden=8, heads=2, tokens=4, dropout=own), 2)
        for own in (False, True)
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
        ("gpt:layers=1,hidden=9,heads=2", "heads should divide the hidden size 9, got 2"),
        ("gpt:layers=0,hidden=8,heads=2", "layers should be 1 or more, got 0"),
        ("gpt:layers=1,hidden=8,heads=2,dropout=1", "gpt:dropout should be true or false, got '1'"),
    ],
)
def test_a_wrong_name_is_refused_by_its_key(name: str, said: str) -> None:
    with pytest.raises(HyparError) as refused:
        find_network(name)
    assert said in str(refused.value)
