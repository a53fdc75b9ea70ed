"""Norms of groups of channels, whose sums are over all positions of an image or a sequence."""

from __future__ import annotations

from typing import Any

import pytest

import hypar_opt as ho
from hypar_opt.execution.scale_down import scaled_down
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.workload.operators.conv import Conv
from hypar_opt.workload.operators.norm import Norm

BATCH, CHANNELS, SIDE = 4, 8, 8
IMAGE = {"channels": CHANNELS, "height": SIDE, "width": SIDE}
SEQUENCE = {"tokens": SIDE, "features": CHANNELS}


def network(given: dict[str, int], **norm: Any) -> ho.Network:
    """Return a norm between two layers with weights that change no size."""
    fc: dict[str, Any] = {"kind": "fc", "units": CHANNELS}
    if "height" in given:
        fc = {"kind": "conv", "filters": CHANNELS, "kernel": 1}
    layers = [
        {"name": "before", **fc},
        {"name": "norm", "kind": "norm", "norm": "layer", **norm},
        {"name": "after", **fc},
    ]
    return ho.Network.model_validate(
        {"schema": "hypar-opt/network/2", "name": "norm", "input": given, "layer": layers}
    )


def moved(given: dict[str, int], split: list[str], **norm: Any) -> int:
    """Return the elements that a plan moves; its bytes are counted, its numbers compared."""
    of: dict[str, Any] = {"batch": BATCH, "levels": 2, "reading": "executed"}
    pins = {"fix": [f"{layer}={word}" for layer, word in zip(LAYERS, split, strict=True)]}
    plan = ho.solve(network(given, **norm), **of, choices="all", constraints=pins)
    assert ho.run(plan).agrees
    return int(plan.cost.total) // plan.element_bytes


LAYERS = ("before", "norm", "after")
BY_CHANNEL = ["output", "channel", "model"]


@pytest.mark.parametrize("groups", [1, 2, CHANNELS])
@pytest.mark.parametrize(
    ("given", "word"), [(IMAGE, "rows"), (IMAGE, "columns"), (SEQUENCE, "tokens")]
)
def test_split_positions_all_reduce_two_sums_of_each_group_in_both_directions(
    given: dict[str, int], word: str, groups: int
) -> None:
    """A ring of four moves 2 x 3 times what is reduced; a layer norm has all of a position."""
    split = [word] * 3
    sums = BATCH * groups * 2
    of_groups, of_positions = (
        moved(given, split, **norm) for norm in ({"groups": groups}, {"norm": "affine"})
    )
    assert of_groups - of_positions == 2 * (2 * 3 * sums)


@pytest.mark.parametrize("given", [IMAGE, SEQUENCE])
def test_split_channels_all_reduce_the_sums_of_a_single_group_alone(given: dict[str, int]) -> None:
    free = moved(given, BY_CHANNEL, norm="affine")
    assert moved(given, BY_CHANNEL, groups=4) == free
    assert moved(given, BY_CHANNEL, groups=CHANNELS) == free
    assert moved(given, BY_CHANNEL, groups=1) - free == 2 * (2 * 3 * BATCH * 2)


@pytest.mark.parametrize("given", [IMAGE, SEQUENCE])
def test_scale_and_shift_are_those_of_each_channel(given: dict[str, int]) -> None:
    own = network(given, groups=2)
    learned = [n.parameters(maps) for n, maps in zip(own.layers, own.maps(), strict=True)]
    assert learned == [CHANNELS**2, 2 * CHANNELS, CHANNELS**2]


def test_a_small_network_has_groups_of_its_own() -> None:
    for groups in (1, 2, CHANNELS):
        small = scaled_down(network(IMAGE, groups=groups), 2, Hierarchy((2,))).network
        conv, norm = small.layers[:2]
        assert isinstance(conv, Conv)
        assert isinstance(norm, Norm)
        assert (
            norm.groups in {1: [1], 2: range(2, conv.filters + 1), CHANNELS: [conv.filters]}[groups]
        )
        assert norm.groups is not None
        assert conv.filters % norm.groups == 0


@pytest.mark.parametrize(
    ("given", "norm", "problem"),
    [
        (IMAGE, {"groups": 3}, "groups: should divide the 8 channels, got 3 groups"),
        (SEQUENCE, {"groups": 3}, "groups: should divide the 8 features, got 3 groups"),
        (IMAGE, {"norm": "batch", "groups": 2}, "should be left out where norm = 'batch'"),
        (SEQUENCE, {"heads": 2, "groups": 2}, "should be left out where there are heads"),
    ],
)
def test_what_is_refused(given: dict[str, int], norm: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        network(given, **norm)
