"""The network format: what it takes, what it refuses and how it says so."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from jsonschema import Draft202012Validator, ValidationError

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.errors import InfeasibleError, InputError
from hypar_opt.workload.network import json_schema
from tests.strategies.networks import networks

LENET = """
name = "Lenet-c"
source = "LeNet of the Caffe examples; HyPar, section 6.1"
input = { channels = 1, height = 28, width = 28 }
[[layer]]
name = "conv1"
kind = "conv"
filters = 20
kernel = 5
pool = { kind = "max", size = 2, stride = 2, rounding = "down" }
[[layer]]
name = "fc1"
kind = "fc"
units = 500
activation = "relu"
"""

Change = Callable[[dict[str, Any]], object]


def read(tmp_path: Path, text: str) -> ho.Network:
    file = tmp_path / "net.toml"
    file.write_text(text)
    return ho.read_network(file)


def first(key: str, value: object) -> Change:
    return lambda net: net["layer"][0].__setitem__(key, value)


def pool(key: str, value: object) -> Change:
    return lambda net: net["layer"][0]["pool"].__setitem__(key, value)


def top(key: str, value: object) -> Change:
    return lambda net: net.__setitem__(key, value)


REFUSED: list[tuple[Change, str]] = [
    # unknown keys
    (
        top("nmae", "x"),
        "unknown key 'nmae': did you mean name? known: schema, name, source, input, inputs, layer",
    ),
    (
        top("layers", []),
        "unknown key 'layers': did you mean layer? known: schema, name, source, input, inputs,"
        " layer",
    ),
    (
        first("units", 3),
        "layer 'conv1': unknown key 'units': known: name, kind, inputs",
    ),
    (
        pool("sise", 3),
        "layer 'conv1', pool: unknown key 'sise': did you mean size? known: kind, size, stride",
    ),
    (top("input", {"features": 3, "chanels": 1}), "input: unknown key 'chanels'"),
    # missing keys
    (lambda net: net.pop("name"), "missing key 'name'"),
    (lambda net: net.pop("input"), "missing key 'input'"),
    (lambda net: net.pop("layer"), "missing key 'layer'"),
    (lambda net: net["layer"][0].pop("filters"), "layer 'conv1': missing key 'filters'"),
    (lambda net: net["layer"][0].pop("name"), "layer[0]: missing key 'name'"),
    (lambda net: net["layer"][0].pop("kind"), "layer 'conv1': missing key 'kind'"),
    (lambda net: net["layer"][1].pop("units"), "layer 'fc1': missing key 'units'"),
    (lambda net: net["layer"][0]["pool"].pop("size"), "layer 'conv1', pool: missing key 'size'"),
    (top("input", {"channels": 1, "height": 2}), "input: missing key 'width'"),
    # ill-typed
    (first("filters", True), "layer 'conv1', filters: should be a whole number, got true"),
    (first("filters", float("nan")), "layer 'conv1', filters: should be a whole number, got NaN"),
    (first("filters", 20.0), "layer 'conv1', filters: should be a whole number, got 20.0"),
    (first("filters", "20"), "layer 'conv1', filters: should be a whole number, got \"20\""),
    (first("kernel", True), "layer 'conv1', kernel: should be a whole number, got true"),
    (first("kernel", [5, True]), "layer 'conv1', kernel[1]: should be a whole number, got true"),
    (
        first("kernel", [5]),
        "layer 'conv1', kernel: should be one number or [height, width], got [5]",
    ),
    (
        first("kernel", [5, 5, 5]),
        "layer 'conv1', kernel: should be one number or [height, width], got [5, 5, 5]",
    ),
    (first("kind", "convolution"), "layer 'conv1', kind: should be one of 'conv', 'fc', "),
    (first("name", 3), "layer[0], name: should be text, got 3"),
    (first("pool", 2), "layer 'conv1', pool: should be"),
    (pool("kind", "mean"), "layer 'conv1', pool, kind: should be 'max' or 'average', got \"mean\""),
    (pool("rounding", "near"), "layer 'conv1', pool, rounding: should be 'down' or 'up'"),
    (top("input", 784), "input: should be a table, got 784"),
    (top("layer", {}), "layer: should be an array, got {}"),
    (top("layer", [3]), "layer[0]: should be a table, got 3"),
    (top("source", "a\x1b[2J"), "source: should be in printable characters"),
    # sizes
    (first("filters", 0), "layer 'conv1', filters: should be greater than or equal to 1, got 0"),
    (first("stride", -1), "layer 'conv1', stride: should be greater than or equal to 1, got -1"),
    (first("padding", -1), "layer 'conv1', padding: should be greater than or equal to 0, got -1"),
    (first("filters", 2**31), "layer 'conv1', filters: should be less than or equal to 2147483647"),
    (top("input", {"features": 0}), "input, features: should be greater than or equal to 1"),
    # what does not fit
    (first("kernel", 29), "layer 'conv1', kernel: should fit its padded input (28x28"),
    (first("kernel", [1, 29]), "layer 'conv1', kernel: should fit its padded input (28x28"),
    (pool("size", 25), "layer 'conv1', pool: should fit its padded input (24x24"),
    (pool("padding", 2), "layer 'conv1', pool: padding should be smaller than size"),
    (lambda net: net["layer"].reverse(), "layer 'conv1', kind: should be 'fc', got 'conv'"),
    (top("input", {"features": 784}), "layer 'conv1', kind: should be 'fc', got 'conv'"),
    # names
    (first("name", "fc1"), "layer 'fc1', name: should be unique, appears twice"),
    (first("name", ""), "layer '', name: should be a name in printable characters, got ''"),
    (first("name", "  "), "layer '  ', name: should be a name in printable characters"),
    (
        first("name", "a\x1b[31m"),
        "layer 'a\\x1b[31m', name: should be a name in printable characters",
    ),
    (top("name", ""), "name: should be a name in printable characters, got ''"),
    (top("layer", []), "layer: should have at least one entry, got []"),
    # versions
    (top("schema", "hypar-opt/network/3"), "schema: 'hypar-opt/network/3' is newer than this"),
    (
        lambda net: net.update({"schema": "hypar-opt/network/3", "wiring": []}),
        "schema: 'hypar-opt/network/3' is newer than this version of hypar-opt reads",
    ),
    (top("schema", 1), "schema: should be 'hypar-opt/network/2', got 1"),
]


@pytest.mark.parametrize(("change", "complaint"), REFUSED, ids=[c for _, c in REFUSED])
def test_a_bad_description_is_refused_in_a_line_that_names_the_key(
    change: Change, complaint: str
) -> None:
    net = copy.deepcopy(tomllib.loads(LENET))
    change(net)
    with pytest.raises(InputError) as raised:
        validate(ho.Network, net, file="net.toml")
    message = str(raised.value)
    assert message.startswith(f"net.toml: {complaint}")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"name = ", "should be TOML: Invalid value"),
        (b"name = 'a'\nname = 'b'", "should be TOML: Cannot overwrite"),
        (b"\xff\xfe", "should be UTF-8 text"),
        (b"", "missing key 'name'"),
        (b"name = " + b"9" * 5000, "should be TOML: a number should have at most 1,000 digits"),
        (
            b"name = 'a'\ninput = { features = 0x" + b"f" * 5000 + b" }",
            "input, features: should have at most 1,000 digits",
        ),
        (b"x = " + b"[" * 100_000, "should be TOML"),
        (b"name = 'a'\ninput = { features = nan }\nlayer = []", "input, features: should be"),
    ],
)
def test_a_file_that_is_no_network_is_refused(tmp_path: Path, text: bytes, complaint: str) -> None:
    file = tmp_path / "net.toml"
    file.write_bytes(text)
    with pytest.raises(InputError) as raised:
        ho.read_network(file)
    assert str(raised.value).startswith(f"{file}: {complaint}")


@pytest.mark.parametrize("units", [4, 2**31 - 1])
@pytest.mark.parametrize("axes", [(2**31 - 1, 2**31 - 1, 2**31 - 1), (1, 2**21, 2**20)])
def test_a_map_that_is_flattened_is_no_longer_than_an_axis_may_be(
    axes: tuple[int, int, int], units: int
) -> None:
    """Its sizes are at most 2^31 each, their product is not."""
    size = dict(zip(("channels", "height", "width"), axes, strict=True))
    layers = [
        {"name": "pointwise", "kind": "conv", "filters": 1, "kernel": 1},
        {"name": "fc", "kind": "fc", "units": units},
    ]
    with pytest.raises(InputError, match="layer 'fc': should have at most 1,099,511,627,776 elem"):
        validate(ho.Network, {"name": "n", "input": size, "layer": layers})
    size["height"] = 2**20 if size["height"] == 2**21 else 1
    size["channels"] = 1
    network = ho.Network.model_validate({"name": "n", "input": size, "layer": layers})
    assert ho.solve(network, array="hmc-htree-4", batch=2**31 - 1).cost.total > 0
    with suppress(InfeasibleError):  # a device may hold none of its plans
        assert ho.solve(network, array="h100-8", batch=2**31 - 1).cost.total > 0


@cache
def schema() -> Draft202012Validator:
    return Draft202012Validator(json_schema())


@given(networks())
def test_a_chain_is_described_in_version_1(network: ho.Network) -> None:
    description = network.description()
    schema().validate(description)
    assert description["schema"] == "hypar-opt/network/1"
    again = ho.Network.model_validate(description)
    assert again == network
    assert again.digest() == network.digest()


# What a schema cannot say: that layers fit one another, that names are unique or printable.
BEYOND_A_SCHEMA = ("fit", "padding should", "got 'conv'", "unique", "printable", "newer")


@pytest.mark.parametrize(
    "change",
    [change for change, complaint in REFUSED if not any(w in complaint for w in BEYOND_A_SCHEMA)],
    ids=[c for _, c in REFUSED if not any(w in c for w in BEYOND_A_SCHEMA)],
)
def test_the_schema_refuses_what_a_schema_can(change: Change) -> None:
    net = copy.deepcopy(tomllib.loads(LENET))
    change(net)
    if repr(net).count("20.0"):
        return  # in JSON 20.0 is a whole number
    with pytest.raises(ValidationError):
        schema().validate(net)
