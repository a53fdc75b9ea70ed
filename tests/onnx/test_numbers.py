"""An imported model computes what the model computes: its output, and its gradients.

The oracles are onnx's reference evaluator, in double precision, and JAX, which differentiates the
model node by node.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest

import hypar_opt as ho
from hypar_opt.execution.run import step_data
from hypar_opt.execution.virtual.division import Division
from hypar_opt.execution.virtual.step import TrainingStep
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.onnx import imported_model
from hypar_opt.onnx.weights import weights_of
from hypar_opt.sharding.program import Program
from hypar_opt.studies.model_weights import with_weights
from hypar_opt.workload.tensors import workload_of
from tests.onnx.with_weights import BATCH, MODELS, computed, initialisers, with_values


class Case(NamedTuple):
    path: Path
    model: Any
    network: ho.Network


@pytest.fixture(scope="module", params=MODELS)
def case(request: Any, tmp_path_factory: Any) -> Iterator[Case]:
    path = tmp_path_factory.mktemp("models") / f"{request.param}.onnx"
    model = MODELS[request.param]()
    onnx.save(model, path)
    yield Case(path, model, imported_model(path).network)


def one_device(network: ho.Network) -> Program:
    return Program(workload_of(network, BATCH, shared_tensors=True), (), Hierarchy(()))


def test_outputs_are_the_models(case: Case) -> None:
    step = with_weights(case.path, None, case.network, one_device(case.network), seed=0)
    assert step.difference < 1e-6


def test_gradients_are_those_of_the_model(case: Case) -> None:
    network, program = case.network, one_device(case.network)
    data = with_weights(case.path, None, network, program, seed=0).data
    record = TrainingStep(Division(network, program), data).run()
    values = initialisers(case.model)
    learned = {name: v.astype(np.float64) for name, v in values.items() if v.dtype == np.float32}

    def loss(own: Mapping[str, Any]) -> Any:
        output = computed(case.model, values | own, data.input.reshape(shape))
        if not data.targets:
            (errors,) = data.errors.values()
            return (output * errors.reshape(output.shape)).sum()
        (targets,) = data.targets.values()
        logs = jax.nn.log_softmax(output.reshape(*targets.shape, -1))
        return -jnp.take_along_axis(logs, targets[..., None], -1).mean()

    dims = case.model.graph.input[0].type.tensor_type.shape.dim
    shape = [BATCH, *(dim.dim_value for dim in dims[1:])]
    with jax.enable_x64(True):
        gradients = {k: np.asarray(v) for k, v in jax.grad(loss)(learned).items()}
    expected = weights_of(imported_model(case.path), with_values(case.model, gradients))
    names = [layer.name for layer in network.layers]
    found = {names[n]: own[0] for n, own in record.gradients.items()}
    biases = {names[n]: own[0] for n, own in record.bias_gradients.items()}
    assert found.keys() == expected.weights.keys()
    assert biases.keys() == expected.biases.keys()
    for name, gradient in (*expected.weights.items(), *expected.biases.items()):
        own = found[name] if gradient.ndim > 1 else biases[name]
        assert np.abs(own - gradient).max() <= 1e-6 * max(1.0, np.abs(gradient).max()), name
