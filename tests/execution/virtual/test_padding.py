"""A padded vocabulary is charged, stored and moved; it changes neither the loss nor a gradient."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.documents.document import validate
from hypar_opt.errors import InfeasibleError, InputError
from hypar_opt.execution.virtual.data import StepData, random_data
from hypar_opt.execution.virtual.division import Division
from hypar_opt.execution.virtual.step import StepRecord, TrainingStep
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of
from tests.slow import slow_after

WORDS, PADDED = 13, 16


def language_model(*, tied: bool, **pad: int) -> ho.Network:
    """A head of 13 words, tied to their embedding or not."""
    head = {"name": "head", "kind": "fc", "units": WORDS, **pad}
    layers: list[dict[str, Any]] = [
        {"name": "token", "kind": "embedding", "features": 8, **(pad if tied else {})},
        {"name": "norm", "kind": "norm", "norm": "layer"},
        head | ({"tied": "token"} if tied else {}),
        {"name": "loss", "kind": "output"},
    ]
    given = {"tokens": 3, "vocabulary": WORDS}
    schema = "hypar-opt/network/2"
    return validate(
        ho.Network, {"name": "words", "schema": schema, "input": given, "layer": layers}
    )


def on_one_device(network: ho.Network, data: StepData) -> StepRecord:
    workload = workload_of(network, 4, CHOICES, shared_tensors=True)
    return TrainingStep(Division(network, Program(workload, (), Hierarchy(()))), data).run()


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("pad", [8, 16])
def test_a_padded_model_has_the_loss_and_the_gradients_of_the_model(tied: bool, pad: int) -> None:
    plain, network = language_model(tied=tied), language_model(tied=tied, pad=pad)
    workload = workload_of(network, 4, CHOICES, shared_tensors=True)
    data = random_data(network, workload, 7)
    assert int(data.inputs[-1].max()) < WORDS
    assert int(data.targets[3].max()) < WORDS
    assert {weights.shape for weights in data.weights.values()} >= {
        (PADDED, 8) if tied else (8, PADDED)
    }
    cut = {
        n: weights[:WORDS] if n == 0 else weights[:, :WORDS] if n == 2 else weights
        for n, weights in data.weights.items()
    }
    record = on_one_device(network, data)
    expected = on_one_device(plain, replace(data, weights=cut))
    assert record.loss == pytest.approx(expected.loss, rel=1e-14)
    for position, blocks in expected.gradients.items():
        (whole,), (own,) = record.gradients[position], blocks
        real = tuple(map(slice, own.shape))
        np.testing.assert_allclose(whole[real], own, rtol=1e-12, atol=1e-15)
        whole = whole.copy()
        whole[real] = 0
        assert not whole.any()  # nothing is learnt of the padding


@pytest.mark.parametrize("tied", slow_after(1, [True, False]))
def test_every_split_of_a_padded_head_and_loss_moves_what_is_modelled(tied: bool) -> None:
    network = language_model(tied=tied, pad=8)
    losses = set()
    for head in itertools.product(("data", "model", "output"), repeat=2):
        for loss in itertools.product(("data", "channel"), repeat=2):
            pins = [
                *(f"head@H{level}={word}" for level, word in enumerate(head, 1)),
                *(f"loss@H{level}={word}" for level, word in enumerate(loss, 1)),
            ]
            asked: Any = {"choices": CHOICES, "reading": "executed", "levels": 2, "batch": 4}
            plan = ho.solve(network, constraints={"even": True, "fix": pins}, **asked)
            ran = ho.run(plan)
            assert all(row.modelled == row.counted for row in ran.exchanges)
            assert ran.loss == pytest.approx(ran.reference_loss, rel=1e-12)
            losses.add(round(ran.loss, 9))
    assert len(losses) == 1


def test_sizes_bytes_and_work_are_of_the_padded_vocabulary() -> None:
    gpt = ho.load("gpt2").model_dump(mode="json", by_alias=True, exclude_none=True)
    for layer in gpt["layer"]:
        if layer["name"] in ("token", "head"):
            layer["pad"] = 128
    network = validate(ho.Network, gpt)
    maps = dict(zip((layer.name for layer in network.layers), network.maps(), strict=True))
    assert maps["head"].output.channels == 50304
    workload = workload_of(network, 8, shared_tensors=True)
    assert workload.stored[0] == 768 * 50304
    with pytest.raises(InfeasibleError, match="layer 'head'"):
        ho.solve(
            "gpt2",
            levels=3,
            batch=8,
            constraints={"even": True, "fix": ["head=output"]},
            choices=CHOICES,
            reading="executed",
        )
    plan = ho.solve(
        network, levels=3, batch=8, constraints={"even": True}, choices=CHOICES, reading="executed"
    )
    assert ho.Plan.model_validate_json(plan.to_json()).network.description == network


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"head": {"pad": 4, "tied": None}, "loss": {"loss": "none"}}, "only a softmax"),
        ({"token": {"pad": 4}}, "pad both alike"),
        ({"loss": {"classes": 14}}, "classes: should be at most 13, got 14"),
        (
            {"token": {"inputs": [], "vocabulary": 3, "pad": 2}, "head": {"tied": None}},
            "rows are read in order",
        ),
        ({"head": {"pad": 0}}, "pad: should be"),
    ],
)
def test_padding_that_nothing_masks_is_refused(
    change: dict[str, dict[str, Any]], complaint: str
) -> None:
    data = language_model(tied=True).model_dump(mode="json", by_alias=True, exclude_none=True)
    for layer in data["layer"]:
        layer |= change.get(layer["name"], {})
    with pytest.raises(InputError) as raised:
        validate(ho.Network, data)
    assert complaint in str(raised.value)
