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


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights(name: str) -> None:
    assert sum(workload(name).weights) == WEIGHTS[name]


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("vgg11", "vgg-a"),
        ("VGG-13", "vgg-b"),
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
    assert [ho.load(name).name for name in models.PAPER_NETWORKS] == list(WEIGHTS)


def test_a_name_is_taken_in_any_case() -> None:
    assert ho.load("VGG-a") == ho.load("vgg-A")


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


def test_vgg_e_has_the_shapes_and_macs_of_its_paper() -> None:
    vgg = workload("vgg-e", batch=2)
    first, last = vgg.layers[0], vgg.layers[-1]
    assert (first.input, first.weight) == ((2, 3, 224, 224), (3, 3, 3, 64))
    assert vgg.layers[15].pooled == (2, 512, 7, 7)
    assert vgg.layers[16].input == (2, 25_088)
    assert (last.weight, last.output) == ((4096, 1000), (2, 1000))
    assert sum(layer.macs for layer in workload("vgg-e").layers) == 19_632_062_464


def test_alexnet_states_the_real_single_column() -> None:
    alexnet = workload("alexnet")
    assert [layer.output[2] for layer in alexnet.layers[:5]] == [55, 27, 13, 13, 13]
    assert [layer.pooled[2] for layer in alexnet.layers[:5]] == [27, 13, 13, 13, 6]
    assert alexnet.layers[5].input == (1, 128 * 6 * 6)


def test_cifar_c_pools_rounding_up_as_caffe_does() -> None:
    assert [layer.pooled[2:] for layer in workload("cifar-c").layers[:3]] == [
        (16, 16),
        (8, 8),
        (4, 4),
    ]
