"""Graphs that are none: each is refused in one line that names the layer and the key."""

from __future__ import annotations

import json
from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.errors import InputError

Table = dict[str, Any]

IMAGE = {"channels": 4, "height": 6, "width": 6}
TOKENS = {"tokens": 6, "features": 8}
IDS = {"tokens": 6, "vocabulary": 10}


def layer(name: str, kind: str, *inputs: str, **keys: Any) -> Table:
    return {"name": name, "kind": kind} | ({"inputs": list(inputs)} if inputs else {}) | keys


def fc(name: str, *inputs: str, units: int = 8, **keys: Any) -> Table:
    return layer(name, "fc", *inputs, units=units, **keys)


def block(*layers: Table, **keys: Any) -> Table:
    return {"name": "block", "inputs": ["input"], "layer": list(layers)} | keys


def network(of: Table, *layers: Table, blocks: tuple[Table, ...] = (), **keys: Any) -> Table:
    table = {"schema": "hypar-opt/network/2", "name": "net", "input": of, "layer": list(layers)}
    return table | ({"block": list(blocks)} if blocks else {}) | keys


def projections(query: int, key: int, value: int) -> tuple[Table, ...]:
    widths = {"q": query, "k": key, "v": value}
    return tuple(fc(name, "input", units=units) for name, units in widths.items())


def attention(heads: int, **keys: Any) -> Table:
    return layer("a", "attention", "q", "k", "v", heads=heads, **keys)


REFUSED: dict[str, tuple[Table, str]] = {
    # what is read
    "a cycle": (
        network(TOKENS, layer("a", "add", "input", "c"), fc("b", "a"), fc("c", "b"), fc("d", "c")),
        "layer: should have no cycle, got a -> b -> c -> a",
    ),
    "a layer that reads itself": (
        network(TOKENS, layer("a", "add", "input", "a")),
        "layer: should have no cycle, got a -> a",
    ),
    "a cycle through a block": (
        network(
            TOKENS, layer("a", "add", "input", "block"), blocks=(block(fc("x"), inputs=["a"]),)
        ),
        "layer: should have no cycle, got a -> block.x -> a",
    ),
    "an unknown input": (
        network(TOKENS, fc("a", "inptu")),
        "layer 'a', inputs: no layer is called \"inptu\"",
    ),
    "an unknown layer of a block": (
        network(TOKENS, fc("a", "block.1.y"), blocks=(block(fc("x"), repeat=2),)),
        "layer 'a', inputs: no layer is called \"block.1.y\"",
    ),
    "a repetition that a block does not have": (
        network(TOKENS, fc("a", "block.2.x"), blocks=(block(fc("x"), repeat=2),)),
        "layer 'a', inputs: no layer is called \"block.2.x\"",
    ),
    "a layer inside a block, read from outside by its short name": (
        network(TOKENS, fc("a", "x"), blocks=(block(fc("x")),)),
        "layer 'a', inputs: no layer is called \"x\"",
    ),
    "an unknown input of a block": (
        network(TOKENS, fc("a"), blocks=(block(fc("x"), inputs=["b"]),)),
        "block 'block', inputs: no layer is called \"b\"",
    ),
    "a first block that reads nothing": (
        network(TOKENS, fc("a"), blocks=({"name": "block", "layer": [fc("x")]},)),
        "block 'block': missing key 'inputs', required of the first block",
    ),
    "a block of two inputs": (
        network(TOKENS, fc("a"), blocks=(block(fc("x"), inputs=["a", "input"]),)),
        'block \'block\', inputs: should have at most one entry, got ["a", "input"]',
    ),
    "two inputs of a layer that reads one": (
        network(TOKENS, fc("a"), fc("b", "input", "a")),
        "layer 'b', inputs: should be 1 layer, got 2",
    ),
    "no inputs of a layer that reads one": (
        network(TOKENS, fc("a", inputs=[])),
        "layer 'a', inputs: should be 1 layer, got 0",
    ),
    "a sum of one": (
        network(TOKENS, layer("a", "add", "input")),
        "layer 'a', inputs: should be 2 or more layers, got 1",
    ),
    "a sum of a layer and itself": (
        network(TOKENS, layer("a", "add", "input", "input")),
        "layer 'a', inputs: should be different layers, got one twice",
    ),
    "a dangling layer": (
        network(TOKENS, fc("a"), fc("b", "input")),
        "layer 'a': no layer reads it",
    ),
    "a dangling layer in a block": (
        network(TOKENS, fc("a", "block"), blocks=(block(fc("x"), fc("y", "input"), repeat=2),)),
        "layer 'block.0.x': no layer reads it",
    ),
    "a dangling block": (
        network(TOKENS, fc("a"), fc("b", "a"), blocks=(block(fc("x")),)),
        "layer 'b': no layer reads it",
    ),
    # names
    "the input's name": (
        network(TOKENS, fc("input")),
        "layer 'input', name: is the network's input",
    ),
    "the input's name in a block": (
        network(TOKENS, fc("a"), blocks=(block(fc("input")),)),
        "layer 'input', name: is the network's input",
    ),
    "a name given twice": (
        network(TOKENS, fc("a"), fc("a")),
        "layer 'a', name: should be unique, appears twice",
    ),
    "a name given twice in a block": (
        network(TOKENS, fc("a"), blocks=(block(fc("x"), fc("x"), repeat=2),)),
        "layer 'block.0.x', name: should be unique, appears twice",
    ),
    "a name that a block's layer has too": (
        network(TOKENS, fc("block.0.x"), blocks=(block(fc("x"), repeat=1),)),
        "layer 'block.0.x', name: should be unique, appears twice",
    ),
    "a block called as a layer is": (
        network(TOKENS, fc("block"), blocks=(block(fc("x")),)),
        "layer 'block', name: should be unique, appears twice",
    ),
    "two runs of blocks with the same numbers": (
        network(
            TOKENS, fc("a"), blocks=(block(fc("x"), repeat=2), block(fc("x"), repeat=2, first=1))
        ),
        "layer 'block.1.x', name: should be unique, appears twice",
    ),
    "a number without repetitions": (
        network(TOKENS, fc("a"), blocks=(block(fc("x"), first=1),)),
        "block 'block', first: numbers the repetitions of a block with 'repeat'",
    ),
    "two blocks of one name": (
        network(TOKENS, fc("a"), blocks=(block(fc("x")), block(fc("y")))),
        "layer 'block', name: should be unique, appears twice",
    ),
    # shapes
    "a sum of other sizes": (
        network(TOKENS, fc("a", units=3), layer("s", "add", "input", "a")),
        "layer 's', inputs: should be of one size, got 6 tokens of 8 features and 6 tokens of 3",
    ),
    "a gate of other channels": (
        network(
            IMAGE, layer("g", "global_pool"), fc("f", units=3), layer("s", "mul", "input", "f")
        ),
        "layer 's', inputs: should be of one size, got 4 channels of 6x6 and 3 features",
    ),
    "a concat of other sizes": (
        network(IMAGE, layer("c", "conv", filters=4, kernel=3), layer("s", "concat", "input", "c")),
        "layer 's', inputs: should differ in channels alone, got 4 channels of 6x6 and 4 channels",
    ),
    "a concat of tokens of other features": (
        network(TOKENS, fc("a", units=3), layer("s", "concat", "input", "a", axis="tokens")),
        "layer 's', inputs: should differ in tokens alone, got 6 tokens of 8 features and 6 tokens",
    ),
    "token ids into an fc": (
        network(IDS, fc("a")),
        "layer 'a', inputs: only an 'embedding' reads token ids",
    ),
    "token ids into a block": (
        network(IDS, fc("a", "block"), blocks=(block(layer("n", "norm", norm="rms")),)),
        "layer 'block.n', inputs: only an 'embedding' reads token ids",
    ),
    "an embedding of an image": (
        network(IMAGE, layer("e", "embedding", features=3, vocabulary=5)),
        "layer 'e', inputs: should be the network's 'input' of token ids, or none for a table",
    ),
    "an embedding of features": (
        network(TOKENS, layer("e", "embedding", features=3, vocabulary=5)),
        "layer 'e', inputs: should be the network's 'input' of token ids, or none for a table",
    ),
    "a table without rows": (
        network(TOKENS, layer("e", "embedding", features=8, inputs=[])),
        "layer 'e', vocabulary: is missing, and the layer has no inputs",
    ),
    "a convolution on tokens": (
        network(TOKENS, layer("c", "conv", filters=3, kernel=1)),
        "layer 'c', inputs: 'conv' needs channels, height and width, got 6 tokens of 8 features",
    ),
    "a pool on tokens": (
        network(TOKENS, layer("p", "pool", pool={"kind": "max", "size": 2})),
        "layer 'p', inputs: 'pool' needs channels, height and width, got 6 tokens of 8 features",
    ),
    "a convolution after a global pool": (
        network(IMAGE, layer("g", "global_pool"), layer("c", "conv", filters=3, kernel=1)),
        "layer 'c', kind: should be 'fc', got 'conv', which needs channels, height and width",
    ),
    "a first token of an image": (
        network(IMAGE, layer("g", "global_pool", over="first")),
        "layer 'g', over: 'first' needs tokens, got 4 channels of 6x6",
    ),
    "groups of input channels": (
        network(IMAGE, layer("c", "conv", filters=6, kernel=3, groups=3)),
        "layer 'c', groups: should divide the 4 input channels, got 3",
    ),
    "groups of filters": (
        network(IMAGE, layer("c", "conv", filters=6, kernel=3, groups=4)),
        "layer 'c', groups: should divide the 6 filters, got 4",
    ),
    "groups of a shuffle": (
        network(IMAGE, layer("s", "shuffle", groups=3)),
        "layer 's', groups: should divide the 4 channels, got 3",
    ),
    "a kernel whose dilation is too wide": (
        network(IMAGE, layer("c", "conv", filters=1, kernel=3, dilation=3)),
        "layer 'c', kernel: should fit its padded input (6x6, padding [0, 0]), got 7x7",
    ),
    "padding of three borders": (
        network(IMAGE, layer("c", "conv", filters=1, kernel=3, padding=[1, 1, 1])),
        "layer 'c', padding: should be one number, [height, width] or [top, left, bottom, right]",
    ),
    "a block whose repetitions do not fit": (
        network(
            IMAGE,
            layer("o", "output", "block"),
            blocks=(block(layer("c", "conv", filters=4, kernel=4), repeat=3),),
        ),
        "layer 'block.1.c', kernel: should fit its padded input (3x3, padding [0, 0]), got 4x4",
    ),
    # attention
    "heads that do not divide": (
        network(TOKENS, *projections(9, 9, 9), attention(2)),
        "layer 'a', heads: should divide the 9 features, got 2 heads",
    ),
    "a fused qkv that does not divide": (
        network(TOKENS, fc("qkv", units=10), layer("a", "attention", heads=2)),
        "layer 'a', heads: should divide the 10 features, got 6 heads of q, k and v",
    ),
    "a norm's heads that do not divide": (
        network(TOKENS, layer("n", "norm", norm="rms", heads=3)),
        "layer 'n', heads: should divide the 8 features, got 3 heads",
    ),
    "heads of a norm of images": (
        network(IMAGE, layer("n", "norm", norm="layer", heads=2)),
        "layer 'n', heads: needs tokens, got ",
    ),
    "heads of a norm over the batch": (
        network(TOKENS, layer("n", "norm", norm="batch", heads=2)),
        "layer 'n', heads: should be left out where norm = 'batch'",
    ),
    "kv_heads that do not divide": (
        network(TOKENS, *projections(12, 8, 8), attention(6, kv_heads=4)),
        "layer 'a', kv_heads: should divide the 6 heads, got 4",
    ),
    "keys of other heads": (
        network(TOKENS, *projections(12, 8, 8), attention(6, kv_heads=2)),
        "layer 'a', inputs: keys and values should have 2 heads of 2 features and as many tokens",
    ),
    "queries and keys without values": (
        network(TOKENS, *projections(12, 12, 12)[:2], layer("a", "attention", "q", "k", heads=2)),
        "layer 'a', inputs: should be q, k and v, or one fused, or with features"
        " that all keys share, of tokens",
    ),
    "attention over an image": (
        network(IMAGE, layer("a", "attention", heads=2)),
        "layer 'a', inputs: should be q, k and v, or one fused, or with features"
        " that all keys share, of tokens; got 4 channels of 6x6",
    ),
    "sinks of fused queries, keys and values": (
        network(TOKENS, fc("f", units=12), layer("a", "attention", heads=4, sinks=True)),
        "layer 'a', inputs: should be q, k, v and 1 tokens of 4 features, a score of each head;"
        " got 6 tokens of 12 features",
    ),
    **{
        f"{key} = {json.dumps(value)} of a layer of kind {kind}": (
            network(of, layer("a", kind, **keys, **{key: value})),
            f"layer 'a', {key}: should be a number, got {json.dumps(value)}",
        )
        for kind, of, key, keys in (
            ("embedding", IDS, "scale", {"features": 8}),
            ("sinusoid", {"features": 1}, "base", {"features": 8}),
            ("attention", TOKENS | {"features": 12}, "softcap", {"heads": 4}),
            ("norm", TOKENS, "epsilon", {"norm": "layer"}),
        )
        for value in (True, "2")
    },
    # shared weights
    "a part of no module": (
        network(TOKENS, fc("gate", part=True)),
        "layer 'gate', part: should be of a name with a dot, without 'tied', 'pad' and 'groups'",
    ),
    "a part of a convolution in groups": (
        network(IMAGE, layer("a.b", "conv", filters=4, kernel=1, groups=2, part=True)),
        "layer 'a.b', part: should be of a name with a dot, without 'tied', 'pad' and 'groups'",
    ),
    "parts that do not read the same": (
        network(TOKENS, fc("a.b", part=True), fc("a.c", part=True)),
        "layer 'a.c', part: should read what 'a.b' reads, with the keys of that part of 'a'",
    ),
    "parts of which one has a bias": (
        network(
            TOKENS,
            fc("a.b", part=True),
            fc("a.c", "input", part=True, bias=True),
            layer("d", "add", "a.b", "a.c"),
        ),
        "layer 'a.c', part: should read what 'a.b' reads, with the keys of that part of 'a'",
    ),
    "tied to nothing": (
        network(IDS, layer("e", "embedding", features=8), fc("f", units=10, tied="emb")),
        "layer 'f', tied: should name an embedding or fc that has its own weights, got \"emb\"",
    ),
    "tied to a norm": (
        network(TOKENS, layer("n", "norm", norm="rms"), fc("f", tied="n")),
        "layer 'f', tied: should name an embedding or fc that has its own weights, got \"n\"",
    ),
    "tied to itself": (
        network(TOKENS, fc("f", tied="f")),
        "layer 'f', tied: should name an embedding or fc that has its own weights, got \"f\"",
    ),
    "tied to a layer of another shape": (
        network(IDS, layer("e", "embedding", features=8), fc("f", units=11, tied="e")),
        "layer 'f', tied: 'e' has weights of 10 by 8, this layer needs 8 by 11",
    ),
    # keys
    "ids and features": (
        network(TOKENS | IDS, fc("a")),
        "input, tokens: should have one of the keys 'vocabulary' and 'features' beside 'tokens'",
    ),
    "a block's unknown key": (
        network(TOKENS, fc("a"), blocks=(block(fc("x"), repaet=2),)),
        "block 'block': unknown key 'repaet': did you mean repeat? known: name, repeat",
    ),
    "an unknown key of a block's layer": (
        network(TOKENS, fc("a"), blocks=(block(fc("x", unit=2)),)),
        "block 'block', layer 'x': unknown key 'unit': did you mean units? known: name, kind",
    ),
    "a block without layers": (
        network(TOKENS, fc("a"), blocks=(block(),)),
        "block 'block', layer: should have at least one entry, got []",
    ),
    "more layers than there is memory for": (
        network(TOKENS, fc("a"), blocks=(block(fc("x"), repeat=2**30),)),
        "block: should expand to at most 100,000 layers, got 1,073,741,825",
    ),
    "a graph that calls itself a chain": (
        network(IMAGE, layer("c", "conv", "input", filters=1, kernel=1))
        | {"schema": "hypar-opt/network/1"},
        "schema: should be 'hypar-opt/network/2', which has inputs",
    ),
    "four borders in version 1": (
        network(IMAGE, layer("c", "conv", filters=1, kernel=1, padding=[1, 0, 0, 0]))
        | {"schema": "hypar-opt/network/1"},
        "schema: should be 'hypar-opt/network/2', which has padding",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_in_a_line_that_names_the_layer(case: str) -> None:
    description, complaint = REFUSED[case]
    with pytest.raises(InputError) as raised:
        validate(ho.Network, description, file="net.toml")
    message = str(raised.value)
    assert message.startswith(f"net.toml: {complaint}")
    assert "\n" not in message


POOL = {"kind": "max", "size": [2, 2], "stride": 2, "padding": 0, "rounding": "down"}
SAME = [
    (fc("a"), fc("a", bias=False, part=False)),
    (layer("a", "embedding", features=8), layer("a", "embedding", features=8, scale=1)),
    (fc("a"), layer("a", "linear", units=8)),
    (
        layer("a", "conv", filters=2, kernel=3),
        layer("a", "conv", filters=2, kernel=3, groups=1, dilation=[1, 1], padding=[0, 0, 0, 0]),
    ),
    (
        layer("a", "conv", filters=2, kernel=3, padding=[1, 2]),
        layer("a", "conv", filters=2, kernel=3, padding=[1, 2, 1, 2], bias=False),
    ),
    (
        layer("a", "conv", filters=2, kernel=3, pool={"kind": "max", "size": 2}),
        layer("a", "conv", filters=2, kernel=[3, 3], stride=[1, 1], pool=POOL),
    ),
    (layer("a", "norm", norm="rms"), layer("a", "norm", norm="rms", bias=False)),
    (layer("a", "norm", norm="layer"), layer("a", "norm", norm="layer", bias=True)),
    (
        layer("a", "attention", heads=2),
        layer("a", "attention", heads=2, kv_heads=2, causal=False),
    ),
]


@pytest.mark.parametrize(("brief", "full"), SAME)
def test_a_default_that_is_given_makes_no_other_network(brief: Table, full: Table) -> None:
    of = {"conv": IMAGE, "attention": TOKENS | {"features": 12}, "embedding": IDS}.get(
        brief["kind"], TOKENS
    )
    short, long = (ho.Network.model_validate(network(of, one)) for one in (brief, full))
    assert short == long
    assert short.digest() == long.digest()


def test_a_file_without_a_schema_is_a_chain_of_version_1() -> None:
    table = network(IMAGE, layer("c", "conv", filters=1, kernel=1))
    del table["schema"]
    assert ho.Network.model_validate(table).description()["schema"] == "hypar-opt/network/1"
