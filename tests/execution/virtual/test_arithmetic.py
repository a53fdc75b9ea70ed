"""The arithmetic of one device: against plain forward passes, and against finite differences."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hypar_opt as ho
from hypar_opt.execution.virtual.data import StepData, random_data
from hypar_opt.execution.virtual.division import Division
from hypar_opt.execution.virtual.step import StepRecord, TrainingStep
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.program import Program
from hypar_opt.workload.activations import ACTIVATIONS
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import Workload, workload_of
from tests.execution import small_networks
from tests.execution.drawn import drawn_network
from tests.slow import slow_after
from tests.workload import forward

BATCH = 2

TIED = ho.Network.model_validate(
    {
        "schema": "hypar-opt/network/2",
        "name": "one kernel three times",
        "input": {"features": 6},
        "layer": [
            {"name": "fc1", "kind": "fc", "units": 6, "activation": "tanh"},
            {"name": "fc2", "kind": "fc", "units": 6, "activation": "tanh", "tied": "fc1"},
            {"name": "fc3", "kind": "fc", "units": 6, "tied": "fc1"},
        ],
    }
)


def one_device(network: ho.Network, data: StepData, workload: Workload) -> StepRecord:
    program = Program(workload, (), Hierarchy(()))
    # Batch norms see an image at a time, as the plain forward pass does.
    each = [(np.array([image]),) for image in range(BATCH)]
    apart = dict.fromkeys(range(len(network.layers)), each)
    return TrainingStep(Division(network, program, apart), data).run()


def stated(network: ho.Network) -> tuple[StepData, Workload]:
    workload = workload_of(network, BATCH, CHOICES, shared_tensors=True)
    return random_data(network, workload, seed=1), workload


@pytest.mark.parametrize("seed", slow_after(21, [61, *range(61), *range(62, 150)]))
def test_outputs_are_those_of_a_plain_forward_pass(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = drawn_network(seed)
    data, workload = stated(network)
    record = one_device(network, data, workload)
    for image in range(BATCH):
        made: dict[int, Any] = {
            source: _plain(given[image], network.map_of(source))
            for source, given in data.inputs.items()
            if source < 0
        }
        for position, (layer, sources) in enumerate(
            zip(network.layers, network.sources, strict=True)
        ):
            table = layer.model_dump(exclude_none=True)
            weights = _weights(network, data, position)
            if layer.kind == "output":
                table["loss"] = "none"  # a softmax keeps its logits
            given = weights, data.biases.get(position)
            expected = _forward(table, [made[s] for s in sources], given, monkeypatch)
            got = record.outputs[position][1][0][image]
            maps = list(network.maps())[position]
            assert np.allclose(_plain(got, maps.pooled), expected, rtol=1e-9, atol=1e-9), layer
            made[position] = expected


def _plain(array: Any, over: Any) -> Any:
    """Return an image's array as the plain forward pass has it: a vector of one axis."""
    if array.dtype.kind == "i" or over.tokens:
        return array
    return array.reshape(-1) if over.positions == 1 else array


def _weights(network: ho.Network, data: StepData, position: int) -> Any:
    layer = network.layers[position]
    owner = layer.shares_weights_with
    if owner is None:
        return data.weights.get(position)
    names = [one.name for one in network.layers]
    own = data.weights[names.index(owner)]
    return own.T if network.layers[names.index(owner)].kind == "embedding" else own


def _forward(
    table: dict[str, Any],
    reads: list[Any],
    learned: tuple[Any, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Any:
    """Compute one layer by `tests.workload.forward`, with weights and a bias for its own."""
    weights, bias = learned
    activation = table.pop("activation", None)
    pool = table.pop("pool", None) if table["kind"] == "conv" else None
    given = []
    if weights is not None:
        given = list(weights) if table["kind"] == "norm" else [weights]
        if table["kind"] == "norm" and len(given) == 1:
            given.append(np.zeros_like(given[0]))
    if table["kind"] == "conv":
        kernel = weights if weights.ndim == 5 else weights[:, :, None]
        given = [kernel.transpose(2, 4, 3, 0, 1)]  # group, filter, channel, rows, columns
    left = iter(given)
    monkeypatch.setattr(forward, "_values", lambda *shape: next(left).reshape(shape))
    # A pixel's worth of channels is a vector there, an image of one pixel for windows.
    if table["kind"] in ("conv", "pool", "pixel_shuffle"):
        reads = [read if read.ndim == 3 else read[:, None, None] for read in reads]
    made, _ = forward.forward(table, *reads)
    if table["kind"] == "add":
        made = made - 1.0  # it begins at one, as a product does
    if bias is not None:
        made = made + (bias[:, None, None] if made.ndim == 3 else bias)
    if activation is not None:
        made = ACTIVATIONS[activation][0](made)
    if pool is not None:
        made = forward.pool(pool, made)
    return made.reshape(-1) if made.ndim == 3 and made.shape[1:] == (1, 1) else made


@pytest.mark.parametrize("seed", slow_after(10, range(80)))
def test_gradients_are_the_slopes_of_the_loss(seed: int) -> None:
    assert_gradients_are_slopes(drawn_network(seed), seed)


@pytest.mark.parametrize("network", [small_networks.gpt(tied=True), TIED], ids=lambda n: n.name)
def test_the_gradient_of_shared_weights_is_of_all_their_users(network: ho.Network) -> None:
    assert any(layer.shares_weights_with for layer in network.layers)
    assert_gradients_are_slopes(network, seed=0)


def assert_gradients_are_slopes(network: ho.Network, seed: int) -> None:
    data, workload = stated(network)
    record = one_device(network, data, workload)
    rng = np.random.default_rng(seed)
    for what, gradients in (("weights", record.gradients), ("biases", record.bias_gradients)):
        given = dict(getattr(data, what))
        assert given.keys() == gradients.keys()
        for position, whole in given.items():
            direction = rng.standard_normal(whole.shape)
            step = 1e-6
            losses = []
            for sign in (1, -1):
                moved = given | {position: whole + sign * step * direction}
                changed = replace(data, **{what: moved})
                losses.append(one_device(network, changed, workload).loss)
            slope = (losses[0] - losses[1]) / (2 * step)
            expected = float((gradients[position][0] * direction).sum())
            name = network.layers[position].name
            assert slope == pytest.approx(expected, rel=1e-4, abs=1e-5), name


@pytest.mark.parametrize("word", ACTIVATIONS)
def test_an_activations_slope_is_its_derivative(word: str) -> None:
    value, slope = ACTIVATIONS[word]
    x = np.linspace(-7.3, 7.1, 301)
    numeric = (value(x + 1e-6) - value(x - 1e-6)) / 2e-6
    assert np.allclose(slope(x), numeric, atol=1e-6)


def test_softmaxs_loss_is_the_cross_entropy() -> None:
    network = ho.Network.model_validate(
        {
            "name": "softmax",
            "schema": "hypar-opt/network/2",
            "input": {"tokens": 3, "features": 5},
            "layer": [{"name": "output", "kind": "output"}],
        }
    )
    data, workload = stated(network)
    logits = data.inputs[-1]
    shares = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
    images, tokens = np.indices(data.targets[0].shape)
    expected = -np.log(shares[images, tokens, data.targets[0]]).mean()
    assert one_device(network, data, workload).loss == pytest.approx(expected)
