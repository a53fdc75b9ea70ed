"""A step with a model's weights, and the deviation of its output from the model's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import HyparError, InputError

if TYPE_CHECKING:
    from onnx import ModelProto

    from hypar_opt.execution.virtual.data import StepData
    from hypar_opt.onnx import ImportedModel
    from hypar_opt.onnx.weights import ModelWeights
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.network import Network

    Array = NDArray[Any]


BATCH_STATISTICS = (
    "batch norms take the statistics of the batch, the model's too, as in training; in inference"
    " they take those that the model has stored"
)


class ModelStep(NamedTuple):
    """A step's data with a model's weights.

    Parameters
    ----------
    difference
        The largest difference of outputs from the model's, relative to the largest of these.
    notes
        How the model was changed for the comparison.
    """

    data: StepData
    difference: float
    notes: tuple[str, ...] = ()


def read_weights(
    path: str | Path, dims: Mapping[str, int] | None = None, *, untie: bool = False
) -> ModelWeights:
    """Return the weights of a model by the names of its network's layers.

    Parameters
    ----------
    path
        The model's file: ONNX, whose weights may be in files beside it, or a program that
        ``torch.export.save`` has written.
    dims
        The sizes of its dynamic dimensions.
    untie
        As for an import.

    Raises
    ------
    HyparError
        If the model cannot be imported, or a file of weights is missing.
    """
    from hypar_opt.onnx.weights import weights_of

    try:
        return weights_of(*_models(path, dims, untie=untie))
    except InputError as error:
        raise InputError(error.problem, where=error.where, file=str(path)) from None


def with_weights(
    path: str | Path,
    dims: Mapping[str, int] | None,
    network: Network,
    program: Program,
    seed: int,
) -> ModelStep:
    """Return a step's data with a model's weights, and the deviation of the output.

    Raises
    ------
    HyparError
        If the model is not the network's, or cannot be evaluated.
    """
    from hypar_opt.execution.run import outputs_alone, step_data
    from hypar_opt.onnx.reference import outputs_of
    from hypar_opt.onnx.weights import weights_of

    imported, model = _models(path, dims, untie=_is_untied(network))
    data = step_data(network, program, seed)
    try:
        data = _assigned(path, data, network, weights_of(imported, model))
        feeds = {source: data.inputs[place] for source, place in imported.places.items()}
        for source, axes in imported.state.inputs.items():
            if axes.is_whole and source in feeds:
                feeds[source] = np.rint(np.abs(8 * feeds[source]))
        inputs = {imported.places[source]: array for source, array in feeds.items()}
        data = replace(data, inputs={**data.inputs, **inputs})
        theirs = outputs_of(imported.state, model, feeds)
    except InputError as error:
        raise InputError(error.problem, where=error.where, file=str(path)) from None
    difference = _difference(path, imported, outputs_alone(network, program, data), theirs)
    norms = {getattr(layer, "norm", None) for layer in network.layers}
    return ModelStep(data, difference, (BATCH_STATISTICS,) if "batch" in norms else ())


def _models(
    path: str | Path, dims: Mapping[str, int] | None, *, untie: bool
) -> tuple[ImportedModel, ModelProto]:
    """Return a model as a network, and with its weights."""
    from hypar_opt.onnx import imported_model
    from hypar_opt.onnx.weights import complete_model

    if not str(path).endswith(".pt2"):
        return imported_model(path, dims, untie=untie), complete_model(path)
    from hypar_opt.models.program import read_program

    imported = imported_model(path, dims, untie=untie, model=read_program(path))
    return imported, read_program(path, values=True)


def _is_untied(network: Network) -> bool:
    """Return whether only heads share weights, with embeddings."""
    reads_ids = {layer.name: layer.reads_ids for layer in network.layers}
    owners = (layer.shares_weights_with for layer in network.layers)
    return all(reads_ids[owner] for owner in owners if owner is not None)


def _assigned(
    path: str | Path, data: StepData, network: Network, weights: ModelWeights
) -> StepData:
    """Return a step's data with a model's weights and biases."""
    named: dict[str, dict[int, Array]] = {}
    for what, arrays, wanted in (
        ("weights", weights.weights, data.weights),
        ("bias", weights.biases, data.biases),
    ):
        named[what] = {}
        for position, array in wanted.items():
            name = network.layers[position].name
            if name not in arrays or arrays[name].shape != array.shape:
                shape = "x".join(map(str, array.shape))
                raise HyparError(
                    f"{path}: has no {what} of {shape} for layer {name!r}: the plan's network"
                    " should be the import of this model"
                )
            named[what][position] = arrays[name]
    return replace(data, weights=named["weights"], biases=named["bias"])


def _difference(
    path: str | Path, imported: ImportedModel, ours: Mapping[int, Array], theirs: list[Array]
) -> float:
    from hypar_opt.onnx.reference import in_order

    # Stating a loss adds the final output layer, or removes it.
    last = min(len(imported.network.layers), len(ours)) - 1
    features = [imported.state.tensors.get(name) for name in imported.state.graph.outputs]
    expected = None
    if len(theirs) == 1 and features[0] is not None:
        expected = in_order(features[0], theirs[0])
    if expected is None or expected.size != ours[last].size:
        raise HyparError(
            f"{path}: its outputs cannot be compared: it should have one, of the network's last map"
        )
    outputs = ours[last].reshape(expected.shape)
    node = imported.layers[last].node
    op = "" if node is None else node.op
    if imported.layers[last].kind == "output" and op in ("Softmax", "LogSoftmax"):
        outputs = outputs - outputs.max(axis=-1, keepdims=True)
        outputs = outputs - np.log(np.exp(outputs).sum(axis=-1, keepdims=True))
        outputs = np.exp(outputs) if op == "Softmax" else outputs
    # If all outputs are zero, the absolute difference.
    return float(np.abs(outputs - expected).max() / (np.abs(expected).max() or 1.0))
