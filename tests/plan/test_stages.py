"""A plan's H1 row as the stages of a pipeline."""

from __future__ import annotations

import copy
import json
import re
from itertools import combinations, pairwise, product
from math import comb, prod
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

import hypar_opt as ho
from hypar_opt.display.plan_grid import plan_grid
from hypar_opt.display.terminal.plan import plan_view
from hypar_opt.errors import HyparError, InputError
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.models import find_network
from hypar_opt.plan.arguments import problem_of
from hypar_opt.plan.degrees import degrees
from hypar_opt.plan.plan import Plan, parse_plan
from hypar_opt.plan.stages import Stages, even_stages, stages_before, stages_of
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import PART_WORDS, part_word
from hypar_opt.workload.stages import cuts, cuts_between_blocks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HIDDEN: dict[str, Any] = {"kind": "fc", "units": 4}


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
    layers: list[dict[str, Any]] = [
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
    assert stages.part_of_layers == (0, 1, 1, 0, 0, 0, 1, 1)
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
        (two_heads(), 2, "the output of 'stem' would cross; the output of 'beside' should"),
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


@pytest.mark.parametrize(("parts", "chunks"), [(2, 1), (4, 1), (2, 3), (12, 1)])
def test_even_stages_have_as_many_blocks_each(parts: int, chunks: int) -> None:
    described = find_network("gpt2")
    stages = even_stages(described, parts, chunks)
    assert (stages.parts, stages.chunks) == (parts, chunks)
    names = [[described.layers[n].name for n in own] for own in stages.layers]
    assert {sum(name.endswith(".up") for name in own) for own in names} == {12 // parts // chunks}
    begins = [own[0].removesuffix(".norm1") for own in names[1:]]
    assert stages_before(described, parts, begins) == stages


@pytest.mark.parametrize(
    ("parts", "begins", "says"),
    [
        (5, None, "5 stages of equal blocks should divide the 12 blocks of GPT-2"),
        (
            2,
            ["decoder.12"],
            "cuts: no layer or block is called 'decoder.12'; did you mean decoder.",
        ),
        (3, ["decoder.6", "decoder.3"], "cuts: 'decoder.3' should follow what the chunk before"),
        (2, ["token"], "cuts: 'token' should follow"),
        (
            2,
            ["decoder.3", "decoder.6"],
            "cuts: should be one fewer than a multiple of the 2 stages",
        ),
        (2, ["decoder.3.proj"], "layer 'decoder.3.proj', H1: no stage can begin here, as"),
    ],
)
def test_stages_that_a_network_does_not_have_are_refused(
    parts: int, begins: list[str] | None, says: str
) -> None:
    described = find_network("gpt2")
    with pytest.raises(HyparError) as caught:
        _ = (
            even_stages(described, parts)
            if begins is None
            else stages_before(described, parts, begins)
        )
    assert str(caught.value).startswith(says)


def test_the_first_stage_reads_the_input() -> None:
    layers: list[dict[str, Any]] = [
        {"name": "other", "inputs": ["further"], **HIDDEN},
        {"name": "up", **HIDDEN},
        {"name": "token", "kind": "embedding", "inputs": ["input"], "features": 4},
        {"name": "sum", "kind": "add", "inputs": ["up", "token"]},
        {"name": "last", **HIDDEN},
    ]
    further = {"further": {"tokens": 8, "features": 4}}
    two = network(layers, input={"tokens": 8, "vocabulary": 16}, inputs=further)
    assert cuts(two) == (4,)
    with pytest.raises(HyparError, match="as no layer before it reads 'input'"):
        stages_before(two, 2, ["up"])


def test_no_stage_begins_with_routed_tokens() -> None:
    layers: list[dict[str, Any]] = [
        {"name": "router", "kind": "router", "experts": 4, "top_k": 2},
        {"name": "dispatch", "kind": "dispatch", "inputs": ["input", "router"]},
        {"name": "up", "kind": "experts", "units": 16},
        {"name": "down", "kind": "experts", "units": 16},
    ]
    routed = network(layers, input={"tokens": 8, "features": 16})
    assert cuts(routed) == ()
    for begin in ("up", "down"):
        with pytest.raises(HyparError) as caught:
            stages_before(routed, 2, [begin])
        refused = f"layer {begin!r}, H1: no stage can begin here, as it reads routed tokens"
        assert caught.value.message == refused


def test_parts_have_words_for_any_number() -> None:
    assert [*PART_WORDS][7:10] == ["eighth", "part-9", "part-10"]
    assert len(PART_WORDS) == len({*PART_WORDS}) == 1024
    assert all(PART_WORDS[part_word(part)] == part for part in range(1024))


def staged(plan: Plan, parts: int, ends: tuple[int, ...], **training: Any) -> dict[str, Any]:
    """Return the document of a plan in stages; what it costs is that of the plan without."""
    document, sizes = copy.deepcopy(plan.document()), plan.hierarchy.sizes
    merged = next(n for n in range(1, len(sizes) + 1) if prod(sizes[:n]) == parts)
    row = [*map(part_word, Stages(plan.network.description, parts, ends).part_of_layers)]
    layouts = zip(document["layouts"].items(), row, strict=True)
    hierarchy = Hierarchy((parts, *sizes[merged:]))
    cost = document["cost"]
    for key in ("per_level", "communication"):
        cost[key] = cost[key] and cost[key][merged - 1 :]
    document |= {
        "schema": "hypar-opt/plan/15",
        "choices": [*document["choices"], *map(part_word, range(parts))],
        "levels": hierarchy.levels,
        "parallelism": [[*row], *document["parallelism"][merged:]],
        "layouts": {name: [word, *own[merged:]] for (name, own), word in layouts},
        "training": {**document.get("training", {}), "schedule": "1f1b", **training},
    }
    if hierarchy.unless_binary:
        document["parts"] = [*hierarchy.sizes]
    return document


ASKED: dict[str, Any] = {"batch": 64, "solver": "data", "micro_batches": 8}
OF_CHAIN = ho.solve(chain(16), levels=4, choices=("data", "model", "output"), **ASKED)
CHAIN = staged(OF_CHAIN, 4, (4, 8, 12, 16))
ON_ARRAY = staged(ho.solve(chain(16), array="v100-16", runnable=False, **ASKED), 4, (4, 8, 12, 16))


def parsed(document: dict[str, Any]) -> Plan:
    return parse_plan(json.dumps(document), file="plan.json")


@pytest.mark.parametrize(
    ("parts", "ends", "schedule"),
    [
        (2, (7, 16), "1f1b"),
        (4, (4, 8, 12, 16), "zb-h1"),
        (4, (2, 4, 6, 8, 10, 12, 14, 16), "1f1b"),
        (16, tuple(range(1, 17)), "gpipe"),
    ],
)
def test_a_plan_in_stages_reads_back_to_the_same_bytes(
    parts: int, ends: tuple[int, ...], schedule: str
) -> None:
    document = staged(OF_CHAIN, parts, ends, schedule=schedule)
    plan = parsed(document)
    assert plan.document() == document
    assert parsed(plan.document()).to_json() == plan.to_json()
    assert plan.stages == Stages(plan.network.description, parts, ends)
    assert plan.training.schedule == schedule
    assert plan.assignments()[0] == tuple(3 + part for part in plan.stages.part_of_layers)


def test_without_stages_no_file_states_a_schedule() -> None:
    assert OF_CHAIN.stages is None
    stated = ho.solve(chain(4), levels=1, batch=2, schedule="1f1b")
    plain = ho.solve(chain(4), levels=1, batch=2)
    assert "training" not in stated.document()
    for key in ("schema", "choices", "parallelism", "cost"):
        assert stated.document()[key] == plain.document()[key]


def put(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    *before, last = path.split(".")

    def change(document: dict[str, Any]) -> None:
        table: Any = document
        for key in before:
            table = table[int(key) if key.isdigit() else key]
        table[int(last) if last.isdigit() else last] = value

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            put("schema", "hypar-opt/plan/14"),
            "choices: parts of H1 as stages should be in files of",
        ),
        (
            put("parallelism.0.3", "data"),
            "parallelism: layer 'fc3', H1: should be in a part, first",
        ),
        (put("parallelism.0.3", "part-9"), "parallelism[0][3]: should be "),
        (
            put("parallelism.0.3", "third"),
            "parallelism: layer 'fc3', H1: should be in second after",
        ),
        (
            put("parallelism.1.3", "first"),
            "parallelism[1][3]: should be in no part, which H1 alone",
        ),
        (
            put("training.schedule", "dualpipe"),
            "training, schedule: should be 1f1b, gpipe or zb-h1",
        ),
        (
            put("training.schedule", "zb-v"),
            "training, schedule: should be 1f1b, gpipe or zb-h1, got",
        ),
        (
            put("choices", ["data", "model", "output", "first"]),
            "choices: should have all parts of H1",
        ),
        (put("share", 0.5), "share: should be with an array of groups of accelerators"),
        (put("inference", True), "inference: is not supported with stages"),
        (put("layouts.fc1.0", "part-1"), "layouts, fc1[0]: should be 'batch', 'channel',"),
    ],
)
def test_a_wrong_file_of_stages_is_refused_in_one_line(
    change: Callable[[dict[str, Any]], None], says: str
) -> None:
    document = copy.deepcopy(CHAIN)
    change(document)
    with pytest.raises(InputError) as caught:
        parsed(document)
    assert caught.value.message.startswith(f"plan.json: {says}")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("schedule", "micro_batches", "says"),
    [
        ("gpipe", 8, "schedule 'gpipe' has one chunk"),
        ("1f1b", 2, "micro-batches in multiples of 4"),
    ],
)
def test_interleaved_stages_have_one_schedule_and_enough_micro_batches(
    schedule: str, micro_batches: int, says: str
) -> None:
    ends = tuple(range(2, 17, 2))
    document = staged(OF_CHAIN, 4, ends, schedule=schedule, micro_batches=micro_batches)
    with pytest.raises(InputError, match=says):
        parsed(document)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"hierarchy": (4, 4), "choices": "1234"}, (4, 2, 2)),
        ({"hierarchy": (4, 16), "array": "h100-8x8", "choices": "1234"}, (4, 2, 2, 2, 2)),
        ({"hierarchy": (4, 4), "choices": "123"}, "should have all parts of H1, first to fourth"),
        (
            {"hierarchy": (4, 2), "choices": "", "schedule": "gpipe"},
            "schedule: should be with stages",
        ),
        (
            {"hierarchy": (3, 4), "array": "h100-8x8", "choices": "123"},
            "should be 2,2,2,2,2,2, as the",
        ),
        ({"levels": 0, "choices": "1"}, "choices: should have no part of H1"),
    ],
)
def test_h1_has_the_stages_and_the_first_levels_of_an_array(
    asked: dict[str, Any], says: str | tuple[int, ...]
) -> None:
    words = [part_word(int(digit) - 1) for digit in asked["choices"]]
    asked = {**asked, "choices": ("data", "model", *words)}
    if isinstance(says, tuple):
        problem = problem_of(**asked)
        assert problem.hierarchy.sizes == says
        assert problem.is_staged
        assert not problem.has_unequal_parts
        return
    with pytest.raises(HyparError) as caught:
        problem_of(**asked)
    assert says in str(caught.value)


def test_stages_of_an_array_split_its_slowest_digits_together() -> None:
    words = tuple(map(part_word, range(16)))
    asked: dict[str, Any] = {"array": "h100-8x8", "choices": ("data", "model", *words)}
    problem = problem_of(hierarchy=(16, 4), **asked)
    assert problem.digits == ((5, 4, 3, 2), (1,), (0,))
    with pytest.raises(HyparError, match="placement: should be the array's"):
        problem_of(hierarchy=(16, 4), placement=(5, 2, 4, 3, 1, 0), **asked)


def test_a_plan_in_stages_is_shown_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    described = find_network("gpt2")
    names = [layer.name for layer in described.layers]
    plan = ho.solve(
        "gpt2",
        batch=64,
        array="h100-8x8",
        cost="bytes",
        solver="data",
        micro_batches=8,
        runnable=False,
    )
    ends = tuple(names.index(f"decoder.{n}.norm1") for n in range(3, 12, 3))
    own = parsed(staged(plan, 4, (*ends, len(names))))
    assert degrees(own) == "pipeline parallelism 4 between the nodes, data parallelism 16"
    assert degrees(own, first=1) == "data parallelism 16"
    Console(width=200).print(plan_view(own))
    says = (
        "4 stages of 16: decoder.0-2 | 3-5 | 6-8 | 9-11; data parallelism 16; 8 micro-batches, 1f1b"
    )
    assert says in capsys.readouterr().out
    rows = {
        row.name: row.choices[0] for row in plan_grid(own).rows if row.name.startswith("decoder")
    }
    assert [*rows.values()] == ["first", "second", "third", "fourth"]
    every = parsed(staged(OF_CHAIN, 16, tuple(range(1, 17))))
    Console(width=200).print(plan_view(every))
    out = capsys.readouterr().out
    assert "16 stages of 1: fc0 | fc1 | fc2 | fc3 | fc4 | fc5 | ... | fc15; 8 micro-batches" in out
    assert "⑯" in out
    assert "all in H1's" not in out


@pytest.mark.parametrize(
    "use",
    [
        ho.regrets,
        lambda plan: ho.best_plans(plan, 3),
        lambda plan: ho.export(plan, "jax"),
        lambda plan: ho.export(plan, "json"),
    ],
)
def test_what_plans_in_stages_do_not_have_is_refused_in_one_line(
    use: Callable[[Plan], object],
) -> None:
    with pytest.raises(HyparError, match=r"^(a|the) plan (is )?in (pipeline )?stages[^\n]*$"):
        use(parsed(ON_ARRAY))


@pytest.mark.parametrize(
    ("document", "kind", "says"),
    [
        (CHAIN, "bytes", "a plan in stages is priced by the time on its array alone"),
        (CHAIN, "time", "a plan in stages is priced by the time on its array alone"),
        (ON_ARRAY, "energy", "a plan in stages is priced by the time on its array alone"),
        (ON_ARRAY, "time", "cost, total: should be"),
    ],
)
def test_a_file_of_stages_has_the_time_of_its_stages(
    document: dict[str, Any], kind: str, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    document = copy.deepcopy(document)
    document["cost"]["kind"] = kind
    file.write_text(json.dumps(document))
    with pytest.raises(InputError, match=rf"plan\.json: {says}"):
        ho.read_plan(file)
