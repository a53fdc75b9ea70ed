"""The zoo: the ten networks of the paper, and today's."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator

import hypar_opt as ho
from hypar_opt import models
from hypar_opt.workload.network import json_schema

WEIGHTS = {
    "SFC": 140_722_176,
    "SCONV": 100_500,
    "Lenet-c": 430_500,
    "Cifar-c": 145_376,
    "AlexNet": 16_624_656,
    "VGG-A": 132_851_392,
    "VGG-B": 133_035_712,
    "VGG-C": 133_625_536,
    "VGG-D": 138_344_128,
    "VGG-E": 143_652_544,
}


def workload(name: str, batch: int = 1) -> ho.Workload:
    return ho.Workload.of(ho.layer_graph(ho.load(name)), batch)


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("vgg11", "vgg-a"),
        ("VGG-13", "vgg-b"),
        ("VGG-a", "vgg-a"),
        ("vgg16", "vgg-d"),
        ("vgg19", "vgg-e"),
        ("resnet50", "resnet-50"),
        ("ResNet_18", "resnet-18"),
        ("gpt-2", "gpt2"),
        ("GPT2-XL", "gpt2-xl"),
    ],
)
def test_a_network_has_the_names_that_others_give_it(alias: str, name: str) -> None:
    assert ho.load(alias).digest() == ho.load(name).digest()
    assert models.find_network(alias).name == ho.load(name).name


def test_no_alias_stands_for_two_networks() -> None:
    plain = [models.zoo_name(name) for name in models.names()]
    assert plain == list(models.names())
    assert not set(models.ALIASES) & set(models.names())


def test_the_zoo_holds_the_papers_ten_in_its_order_first() -> None:
    assert ho.names()[:10] == models.PAPER_NETWORKS
    found = {ho.load(name).name: sum(workload(name).weights) for name in models.PAPER_NETWORKS}
    assert list(found.items()) == list(WEIGHTS.items())


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ho.HyparError, match=r"unknown network 'alexnt': did you mean alexnet\?"):
        ho.load("alexnt")


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(json_schema())


@pytest.mark.parametrize("name", ho.names())
def test_a_file_satisfies_the_schema_and_cites_its_source(name: str) -> None:
    table = tomllib.loads(files(models).joinpath(f"{name}.toml").read_text())
    validator().validate(table)
    assert table["schema"] == f"hypar-opt/network/{1 if ho.load(name).name in WEIGHTS else 2}"
    assert table["source"]


def test_only_the_papers_networks_are_chains() -> None:
    chains = [name for name in ho.names() if ho.load(name).is_chain]
    assert chains == list(models.PAPER_NETWORKS)


def test_chains_have_the_maps_of_their_papers() -> None:
    """Cifar-c pools rounding up, as Caffe does; AlexNet is the real single column."""
    vgg, alexnet, cifar = (workload(name, 2) for name in ("vgg-e", "alexnet", "cifar-c"))
    assert vgg.layers[0].input == (2, 3, 224, 224)
    assert vgg.layers[15].pooled == (2, 512, 7, 7)
    assert sum(layer.macs for layer in vgg.layers) == 2 * 19_632_062_464
    assert [layer.output[2] for layer in alexnet.layers[:5]] == [55, 27, 13, 13, 13]
    assert [layer.pooled[2] for layer in alexnet.layers[:5]] == [27, 13, 13, 13, 6]
    assert [layer.pooled[2] for layer in cifar.layers[:3]] == [16, 8, 4]
