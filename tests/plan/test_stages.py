"""A plan's H1 row as the stages of a pipeline."""

from __future__ import annotations

import re
from itertools import combinations, pairwise, product
from math import comb
from typing import Any

import pytest

from hypar_opt.errors import HyparError
from hypar_opt.models import find_network
from hypar_opt.plan.stages import Stages, cuts, cuts_between_blocks, stages_of
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import SIDES, part_word

HIDDEN = {"kind": "fc", "units": 4}


def network(layers: list[dict[str, Any]], *blocks: dict[str, Any], **rest: Any) -> Network:
    described = {"schema": "hypar-opt/network/2", "name": "staged", "layer": layers, **rest}
    described.setdefault("input", {"features": 4})
    return Network.model_validate({**described, **({"block": blocks} if blocks else {})})


def chain(count: int) -> Network:
    return network([{"name": f"fc{n}", **HIDDEN} for n in range(count)])


def residual(blocks: int) -> Network:
    block = [
        {"name": "up", **HIDDEN},
        {"name": "down", **HIDDEN},
        {"name": "sum", "kind": "add", "inputs": ["input", "down"]},
    ]
    first, last = {"name": "first", **HIDDEN}, {"name": "last", "inputs": ["block"], **HIDDEN}
    return network(
        [first, last], {"name": "block", "repeat": blocks, "inputs": ["first"], "layer": block}
    )


def tied() -> Network:
    """Return a language model of one block; its head has the weights of its embedding."""
    layers = [
        {"name": "token", "kind": "embedding", "features": 4},
        {"name": "position", "kind": "embedding", "inputs": [], "features": 4, "vocabulary": 8},
        {"name": "embedded", "kind": "add", "inputs": ["token", "position"]},
        {"name": "up", **HIDDEN},
        {"name": "sum", "kind": "add", "inputs": ["embedded", "up"]},
        {"name": "head", "kind": "fc", "units": 16, "tied": "token"},
    ]
    return network(layers, input={"tokens": 8, "vocabulary": 16})


def late_ids() -> Network:
    """Return a network whose ids are read a second time behind a layer."""
    layers = [
        {"name": "token", "kind": "embedding", "features": 4},
        {"name": "up", **HIDDEN},
        {"name": "again", "kind": "embedding", "inputs": ["input"], "features": 4},
        {"name": "sum", "kind": "add", "inputs": ["up", "again"]},
    ]
    return network(layers, input={"tokens": 8, "vocabulary": 16})


def skipping() -> Network:
    """Return two layers down and two up with skips between, as in a U-Net."""
    layers = [
        {"name": "down1", **HIDDEN},
        {"name": "down2", **HIDDEN},
        {"name": "middle", **HIDDEN},
        {"name": "up2", "kind": "add", "inputs": ["down2", "middle"]},
        {"name": "up1", "kind": "add", "inputs": ["down1", "up2"]},
        {"name": "last", **HIDDEN},
    ]
    return network(layers)


def two_heads() -> Network:
    """Return a network with a second output in the middle, of which nothing is read."""
    layers = [
        {"name": "stem", **HIDDEN},
        {"name": "beside", "kind": "output", "inputs": ["stem"]},
        {"name": "last", "inputs": ["stem"], **HIDDEN},
    ]
    return network(layers)


def rereading() -> Network:
    """Return a network whose input, of features, is read a second time."""
    layers = [
        {"name": "fc", **HIDDEN},
        {"name": "sum", "kind": "add", "inputs": ["input", "fc"]},
        {"name": "last", **HIDDEN},
    ]
    return network(layers)


SMALL = (
    *(chain(count) for count in (2, 5)),
    residual(1),
    tied(),
    late_ids(),
    skipping(),
    two_heads(),
    rereading(),
)


def crossing(described: Network, end: int) -> set[int]:
    """Return what crosses before a layer: what those from there on read of what is before."""
    layers = [*zip(described.layers, described.sources, strict=True)][end:]
    return {source for layer, reads in layers if not layer.reads_ids for source in reads} - {
        *range(end, len(described.layers))
    }


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize(
    "described", SMALL, ids=lambda own: f"{len(own.layers)}-{own.layers[0].name}"
)
def test_a_row_is_of_stages_where_parts_take_turns_and_one_output_crosses(
    described: Network, parts: int
) -> None:
    layers = len(described.layers)
    allowed = [end for end in range(1, layers) if crossing(described, end) == {end - 1}]
    turns = {
        tuple(
            n % parts for n, (a, b) in enumerate(pairwise((0, *ends, layers))) for _ in range(a, b)
        )
        for visits in range(parts, layers + 1, parts)
        for ends in combinations(allowed, visits - 1)
    }
    accepted, refused = set(), []
    for row in product(range(parts), repeat=layers):
        words = [part_word(part) for part in row]
        try:
            stages = stages_of(described, words, parts)
        except HyparError as error:
            refused.append(error.message)
            continue
        assert stages is not None
        assert stages.row == tuple(words)
        assert stages.part_of_layers == row
        accepted.add(row)
        assert stages == Stages(described, parts, stages.ends)
        for border, own in zip(stages.borders, stages.layers[1:], strict=True):
            assert crossing(described, own.start) == {border.writer}
            assert {*border.readers} <= {*own}
            assert border.map == described.map_of(border.writer)
    assert accepted == turns
    assert all(re.match(r"layer '[\w.]+', H1: \w[^\n]+$", message) for message in refused)
    assert cuts(described) == tuple(allowed)


@pytest.mark.parametrize(("layers", "visits"), [(4, 2), (6, 3), (6, 4), (8, 8)])
def test_a_chain_may_be_cut_anywhere(layers: int, visits: int) -> None:
    described = chain(layers)
    assert len([*combinations(cuts(described), visits - 1)]) == comb(layers - 1, visits - 1)
    assert cuts_between_blocks(described) == cuts(described)


@pytest.mark.parametrize("blocks", [1, 4])
def test_residual_blocks_may_be_cut_behind_additions(blocks: int) -> None:
    described = residual(blocks)
    assert cuts(described) == tuple(range(1, 3 * blocks + 2, 3))


def test_a_transformer_may_be_cut_twice_in_a_block_and_between_blocks() -> None:
    described = find_network("gpt2")
    names = [described.layers[end - 1].name for end in cuts(described)]
    of_blocks = [f"decoder.{n}.{name}" for n in range(12) for name in ("add1", "add2")]
    assert names == ["token", "embedded", *of_blocks, "norm", "head"]
    between = [described.layers[end - 1].name for end in cuts_between_blocks(described)]
    assert between == ["token", "embedded", *of_blocks[1::2], "norm", "head"]


def test_a_chunk_takes_turns_with_those_of_other_parts() -> None:
    stages = Stages(chain(8), 2, (1, 3, 6, 8))
    assert stages.chunks == 2
    assert stages.row == ("first", "second", "second", *["first"] * 3, "second", "second")
    assert stages.chunks_of(0) == (range(1), range(3, 6))
    assert stages.chunks_of(1) == (range(1, 3), range(6, 8))
    assert [border.writer for border in stages.borders] == [0, 2, 5]


@pytest.mark.parametrize(
    ("ends", "parts", "held"),
    [((3, 6), 2, [(0, 1)]), ((3, 5, 6), 3, [(0, 2)]), ((6,), 1, []), ((1, 2, 3, 6), 2, None)],
)
def test_weights_of_both_ends_are_held_by_both(
    ends: tuple[int, ...], parts: int, held: list[tuple[int, ...]] | None
) -> None:
    if held is None:
        with pytest.raises(HyparError, match="'token' and the output of 'position' would cross"):
            Stages(tied(), parts, (1, 2, 3, 6))
        return
    stages = Stages(tied(), parts, ends)
    assert [(own.owner, own.users, own.parts) for own in stages.tied] == [
        (0, (5,), p) for p in held
    ]


def test_tied_weights_in_two_chunks_of_one_part_are_held_once() -> None:
    described = network(
        [{"name": f"fc{n}", **HIDDEN} | ({"tied": "fc0"} if n == 2 else {}) for n in range(4)]
    )
    assert Stages(described, 2, (1, 2, 3, 4)).tied == ()
    assert [own.parts for own in Stages(described, 2, (2, 4)).tied] == [(0, 1)]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("1122", None),
        ("1212", None),
        ("1222", None),
        (
            "1d22",
            "layer 'fc1', H1: should be in a part, first to second, as other layers are, got data",
        ),
        (
            "2211",
            "layer 'fc0', H1: should be in first: layers visit the 2 parts in order, got second",
        ),
        (
            "1133",
            "layer 'fc2', H1: should be in second after first: layers visit the 2 parts in order",
        ),
        (
            "1111",
            "layer 'fc0', H1: the last layers should be in second, the last of 2 parts, got first",
        ),
        ("1221", "layer 'fc3', H1: stages in a V, 1 2 3 4 4 3 2 1, are not modelled; should be in"),
        ("dddd", None),
    ],
)
def test_a_row_that_is_refused_names_the_layer(row: str, says: str | None) -> None:
    words = ["data" if word == "d" else part_word(int(word) - 1) for word in row]
    if says is None:
        stages = stages_of(chain(4), words, 2)
        assert stages is None if row == "dddd" else stages is not None
        return
    with pytest.raises(HyparError) as caught:
        stages_of(chain(4), words, 2)
    assert caught.value.message.startswith(says)
    assert "\n" not in caught.value.message


def test_a_v_of_four_parts_is_refused_by_its_shape() -> None:
    with pytest.raises(HyparError, match="layer 'fc5', H1: stages in a V"):
        stages_of(chain(8), [part_word(part) for part in (0, 1, 2, 3, 3, 2, 1, 0)], 4)


@pytest.mark.parametrize(
    ("described", "end", "says"),
    [
        (skipping(), 3, "the output of 'down1' and the output of 'down2' and 1 more would cross"),
        (two_heads(), 2, "the output of 'stem', not of 'beside', would cross"),
        (rereading(), 1, "input 'input' and the output of 'fc' would cross"),
    ],
)
def test_what_crosses_a_border_is_named(described: Network, end: int, says: str) -> None:
    with pytest.raises(HyparError) as caught:
        Stages(described, 2, (end, len(described.layers)))
    assert says in caught.value.message


def test_networks_whose_tensors_skip_layers_are_cut_at_their_ends_only() -> None:
    t5 = find_network("t5-base")
    names = [layer.name for layer in t5.layers]
    between = cuts_between_blocks(t5)
    first, last = names.index("encoder.0.norm1"), names.index("decoder.11.add3")
    assert between
    assert not any(first <= end <= last for end in between)
    unet = find_network("unet")
    names = [layer.name for layer in unet.layers]
    skipped = range(names.index("down1.conv2") + 2, names.index("up1.concat") + 1)
    assert cuts(unet)
    assert not {*cuts(unet)} & {*skipped}
    with pytest.raises(HyparError, match=r"the output of 'down1\.conv2'"):
        Stages(unet, 2, (skipped[3], len(names)))


@pytest.mark.parametrize(
    ("blocks", "ends", "labels"),
    [
        (4, (7, 14), ["block.0-1", "2-3"]),
        (4, (1, 7, 13, 14), ["first", "block.0-1", "2-3", "last"]),
        (3, (4, 11), ["block.0", "1-2"]),
        (1, (1, 5), ["first", "block.0"]),
    ],
)
def test_chunks_are_named_by_their_blocks(
    blocks: int, ends: tuple[int, ...], labels: list[str]
) -> None:
    assert [*Stages(residual(blocks), len(ends), ends).labels] == labels


def test_chunks_inside_blocks_are_named_by_their_layers() -> None:
    described = find_network("gpt2")
    cut = next(end for end in cuts(described) if described.layers[end].name == "decoder.1.norm2")
    stages = Stages(described, 2, (cut, len(described.layers)))
    assert stages.labels == ("token to decoder.1.add1", "decoder.1.norm2 to loss")


def test_parts_have_words_for_any_number() -> None:
    assert [*SIDES][7:10] == ["eighth", "part-9", "part-10"]
    assert len(SIDES) == len({*SIDES}) == 1024
    assert all(SIDES[part_word(part)] == part for part in range(1024))
