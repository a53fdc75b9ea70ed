"""An imported model computes what the model computes: its output, and its gradients.

The oracles are onnx's reference evaluator, in double precision, and JAX, which differentiates the
model node by node.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import hypar_opt as ho
from hypar_opt.execution.jax.module import module_text
from hypar_opt.execution.jax.run import load
from hypar_opt.execution.jax.tensors import ShardedNetwork
from hypar_opt.execution.jax.weights import bias_of, inputs_of, targets_of, trained_of
from hypar_opt.execution.virtual.data import StepData
from hypar_opt.execution.virtual.division import Division
from hypar_opt.execution.virtual.step import StepRecord, TrainingStep
from hypar_opt.onnx import imported_model
from hypar_opt.onnx.weights import ModelWeights, weights_of
from hypar_opt.sharding.program import Program
from hypar_opt.studies.model_weights import with_weights
from tests.onnx.by_jax import computed
from tests.onnx.with_weights import (
    BATCH,
    MODELS,
    assert_computes_its_model,
    initialisers,
    one_device,
    with_values,
)
from tests.slow import slow_after


class Case(NamedTuple):
    path: Path
    model: Any
    network: ho.Network


# Of three the layers are among those of the others.
@pytest.fixture(
    scope="module", params=slow_after(7, sorted(MODELS, key=("mlp", "lenet", "gpt").__contains__))
)
def case(request: Any, tmp_path_factory: Any) -> Case:
    path = tmp_path_factory.mktemp("models") / f"{request.param}.onnx"
    model = MODELS[request.param]()
    onnx.save(model, path)
    return Case(path, model, imported_model(path).network)


def test_outputs_are_the_models(case: Case) -> None:
    assert_computes_its_model(case.network, case.path)


def gradients_by_jax(case: Case, data: StepData) -> ModelWeights:
    """Return the gradients of the model's initializers, in the order of the network."""
    values = initialisers(case.model)
    learned = {name: v.astype(np.float64) for name, v in values.items() if v.dtype == np.float32}
    imported = imported_model(case.path)
    sources = {axes.name: source for source, axes in imported.state.inputs.items()}
    arrays = {source: data.inputs[place] for source, place in imported.places.items()}
    given = {
        one.name: arrays[sources[one.name]].reshape(
            BATCH, *(dim.dim_value for dim in one.type.tensor_type.shape.dim[1:])
        )
        for one in case.model.graph.input
    }

    def loss(own: Mapping[str, Any]) -> Any:
        output = computed(case.model, {**values, **own}, given)
        if not data.targets:
            (errors,) = data.errors.values()
            return (output * errors.reshape(output.shape)).sum()
        (targets,) = data.targets.values()
        logs = jax.nn.log_softmax(output.reshape(*targets.shape, -1))
        return -jnp.take_along_axis(logs, targets[..., None], -1).mean()

    with jax.enable_x64(True):
        gradients = jax.jit(jax.grad(loss))(learned)
        own = {name: np.asarray(array) for name, array in gradients.items()}
    return weights_of(imported, with_values(case.model, own))


def check(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        apart = np.abs(np.reshape(found[name], gradient.shape) - gradient).max()
        assert apart <= 1e-6 * max(1.0, np.abs(gradient).max()), name


def test_gradients_are_those_of_the_model(case: Case) -> None:
    network, program = case.network, one_device(case.network)
    data = with_weights(case.path, None, network, program, seed=0).data
    expected = gradients_by_jax(case, data)
    record = TrainingStep(Division(network, program), data).run()
    names = [layer.name for layer in network.layers]
    check({names[n]: own[0] for n, own in record.gradients.items()}, expected.weights)
    check({names[n]: own[0] for n, own in record.bias_gradients.items()}, expected.biases)
    in_module = gradients_of_module(network, program, data, record)
    biases = {bias_of(name): own for name, own in expected.biases.items()}
    check(in_module, {**expected.weights, **biases})


def gradients_of_module(
    network: ho.Network, program: Program, data: StepData, record: StepRecord
) -> dict[str, Any]:
    """Return the gradients that an exported module computes of the same numbers, on one device.

    The module's loss is a sum over positions, and its other ends have targets.
    """
    sharded = ShardedNetwork.of(network, program)
    module = load(module_text(sharded, title="On one device.", alone=True))
    weights = trained_of(sharded)
    values = {network.layers[n].name: own for n, own in data.weights.items()}
    values |= {bias_of(network.layers[n].name): own for n, own in data.biases.items()}
    targets, positions = {}, 1
    for name, one in targets_of(sharded).items():
        end = len(network.layers) - 1
        if data.targets:
            targets[name] = one.stored(data.targets[end])
            positions = data.targets[end].size
        else:
            wanted = record.outputs[end][1][0] - data.errors[end]
            last = np.moveaxis(wanted, 1, -1) if wanted.ndim == 4 else wanted
            targets[name] = one.stored(last.reshape(one.tensor.sizes))
    inputs = {}
    for name, one in inputs_of(sharded)[0].items():
        given = data.inputs[one.sequence]
        given = np.moveaxis(given, 1, -1) if given.ndim == 4 else given
        vector = not sharded.read_positions(one.sequence)
        inputs[name] = one.stored(given.reshape(BATCH, -1) if vector else given)
    # A norm's groups are one axis of channels there.
    stored = {
        name: own.tensor.stored(values[name].reshape(own.tensor.sizes))
        for name, own in weights.items()
    }
    with jax.enable_x64(True):
        gradients = jax.jit(jax.grad(module.loss))(stored, inputs, targets)
        return {
            name: own.tensor.original(np.asarray(gradients[name])) / positions
            for name, own in weights.items()
        }
