"""Labels: every index on one side of each level, ties kept together, halves as even as can be."""

from __future__ import annotations

import pytest

import hypar_opt as ho
from hypar_opt.execution.index_labels import contiguous_labels, labels_of, levels_by
from hypar_opt.execution.ties import Axis, dealt, ties_of
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.layouts import BATCH, CHANNEL
from hypar_opt.sharding.program import Program
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.execution.drawn import drawn_network, drawn_programs
from tests.slow import slow_after


def program_of(description: dict[str, object], rows: list[list[int]]) -> tuple[ho.Network, Program]:
    network = ho.Network.model_validate(
        {"name": "small", "schema": "hypar-opt/network/2"} | description
    )
    return network, Program(
        workload_of(network, 8, CHOICES, shared_tensors=True), rows, Hierarchy((2,) * len(rows))
    )


@pytest.mark.parametrize("seed", slow_after(30, range(60)))
def test_tied_channels_have_one_label(seed: int) -> None:
    network = drawn_network(seed)
    for program in drawn_programs(network, seed, 3):
        made = labels_of(network, program)
        for position in range(len(network.layers)):
            node = position + program.workload.shared
            for level in range(len(program.rows)):
                if program.read[node][level] != CHANNEL:
                    continue
                choice = program.workload.choices_of_nodes[node][program.rows[level][node]]
                assert choice is not None
                for tie in ties_of(network, position, choice.axis):
                    left = program.hierarchy.digit(made.of[tie.left], level)[tie.left_indices]
                    right = program.hierarchy.digit(made.of[tie.right], level)[tie.right_indices]
                    assert (left == right).all()


@pytest.mark.parametrize("seed", slow_after(30, range(60)))
def test_an_axis_has_bits_only_where_it_is_split(seed: int) -> None:
    network = drawn_network(seed)
    for program in drawn_programs(network, seed, 3):
        made = labels_of(network, program)
        levels = range(len(program.rows))
        for axis in made.of:
            for level in set(levels) - set(made.splits[axis]):
                assert not program.hierarchy.digit(made.of[axis], level).any()


FC = {"name": "fc", "kind": "fc"}
SIDE_BY_SIDE = [
    FC | {"units": 16},
    # Four query heads of two features, on two key-value heads.
    {"name": "attention", "kind": "attention", "heads": 4, "kv_heads": 2},
]
CONCATENATION = [
    {"name": "a", "kind": "fc", "units": 4, "inputs": ["input"]},
    {"name": "b", "kind": "fc", "units": 2, "inputs": ["input"]},
    {"name": "both", "kind": "concat", "inputs": ["a", "b"]},
]


@pytest.mark.parametrize(
    ("given", "layers", "rows", "labels"),
    [
        # Free channels are halved one after the other; an odd one goes to either half in turn.
        ({"features": 6}, [FC | {"units": 8}], [[2], [2]], {0: [0, 0, 1, 1, 2, 2, 3, 3]}),
        ({"features": 6}, [FC | {"units": 6}], [[2], [2]], {0: [0, 0, 1, 2, 3, 3]}),
        # Queries of either key-value head, then keys, then values.
        (
            {"tokens": 2, "features": 8},
            SIDE_BY_SIDE,
            [[2, 1]],
            {0: [0] * 4 + [1] * 4 + [0, 0, 1, 1] * 2, 1: [0] * 4 + [1] * 4},
        ),
        ({"features": 4}, CONCATENATION, [[2, 2, 1]], {2: [0, 0, 1, 1, 0, 1]}),
    ],
)
def test_parts_that_belong_together_are_halved_each(
    given: dict[str, int],
    layers: list[dict[str, object]],
    rows: list[list[int]],
    labels: dict[int, list[int]],
) -> None:
    made = labels_of(*program_of({"input": given, "layer": layers}, rows))
    assert {layer: made.of[Axis(layer)].tolist() for layer in labels} == labels
    assert not made.of[Axis(-1)].any()


def test_a_split_shuffle_moves_half_of_its_channels() -> None:
    network, program = program_of(
        {
            "input": {"channels": 4, "height": 2, "width": 2},
            "layer": [
                {"name": "conv", "kind": "conv", "filters": 8, "kernel": 1},
                {"name": "shuffle", "kind": "shuffle", "groups": 2},
            ],
        },
        [[2, 1], [2, 1]],
    )
    made = labels_of(network, program)
    read, written = made.of[Axis(0)], made.of[Axis(1)]
    assert (made.shuffled(network, 1)[dealt(network.layers[1], 8)] == written).all()
    for level in (0, 1):
        moved = (read ^ made.shuffled(network, 1)) >> (1 - level) & 1
        assert moved.sum() == 4


def test_images_are_split_where_any_tensor_is() -> None:
    _, program = program_of(
        {"input": {"features": 4}, "layer": [{"name": "fc", "kind": "fc", "units": 4}]},
        [[0], [2], [0]],
    )
    # The levels H1 and H3 halve the batch; the batch of an output is that of its layer.
    labels = contiguous_labels(program, program.workload.batch, BATCH)
    assert labels.tolist() == [0, 0, 1, 1, 4, 4, 5, 5]


def test_weights_that_two_layers_share_have_no_images() -> None:
    """They are stored whole, as data parallelism leaves them, where their users differ."""
    layers = [
        {"name": "fc1", "kind": "fc", "units": 4},
        {"name": "fc2", "kind": "fc", "units": 4, "tied": "fc1"},
        {"name": "loss", "kind": "output"},
    ]
    _, program = program_of({"input": {"features": 4}, "layer": layers}, [[0, 2, 1, 1]])
    assert program.words(0) == ("data",)
    assert levels_by(program, BATCH) == ()
