"""Structures of others are taken as they are, or refused: parameters, outputs and gradients.

Each is a program of torch.export, as `from_torch` reads it, with random weights. The oracle is the
module itself, in double precision.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("torch", reason="make models runs these with PyTorch")

import torch
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

import hypar_opt as ho
from hypar_opt.models import program
from hypar_opt.models.imported import import_
from hypar_opt.onnx import imported_model
from hypar_opt.onnx.reference import in_double
from hypar_opt.onnx.weights import ModelWeights, weights_of
from hypar_opt.studies.model_weights import with_weights
from hypar_opt.workload.description import describe
from tests.models.structures import STRUCTURES
from tests.onnx.with_weights import (
    COMPUTED,
    Refused,
    assert_slope,
    initialisers,
    loss_gradient,
    one_device,
    with_values,
)

MIXTURE = Refused("torch.onnx cannot translate it: No ONNX function found for")

EXPECTED: dict[str, str] = {
    "BERT": "positions or types by which a table is read",
    "T5": Refused("torch.onnx cannot translate it: Cannot view a tensor"),
    "CLIP": Refused("(ArgMax): is not an operator that can be imported"),
    "wav2vec 2": "'model.wav2vec2.encoder.pos_conv_embed.conv.parametrizations.weight.original0'",
    "Mamba": Refused("(Mul): its inputs should have equally many channels, got 4 and 64"),
    "SegFormer": "interpolation between pixels",
    "DiT": Refused("which index another table too; only those of the first input may"),
    "Mixer": Refused("(MatMul): multiplies the tokens of a sequence by weights"),
    "Mixtral": MIXTURE,
    "Qwen2-MoE": MIXTURE,
    "DeepSeek-V2": MIXTURE,
}
"""What is said of a structure that is not taken exactly: a part of a refusal, or of what is left
out."""


def made(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a structure with random weights, whose batch norms take the statistics of a batch."""
    torch.manual_seed(0)
    build, given = STRUCTURES[name]
    module = build().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter.requires_grad_(), std=0.3)  # also positions that are fixed
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.train()
        if isinstance(part, nn.MaxPool2d) and part.stride == 1:
            part.ceil_mode = False  # the same, and onnx's evaluator reads it wrong with a border
    return module, given()


def written(module: nn.Module, given: tuple[Any, ...], path: Path) -> Any:
    """Write a module as `from_torch` reads it, with its weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(module, given)
    parameters = dict(module.named_parameters(remove_duplicate=False))
    model = onnx.load_from_string(
        program._translated("model", exported, set(parameters)).SerializeToString()
    )
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            values = parameters[tensor.name].detach().numpy()
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(model, path)
    return model


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_structure_is_taken_or_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, given = made(name)
    said, path = EXPECTED.get(name, COMPUTED), tmp_path / "model.onnx"
    if isinstance(said, Refused):
        with pytest.raises(ho.HyparError) as refused:
            ho.from_torch(module, *given)
        assert said in str(refused.value)
        return
    model = written(module, given, path)
    network = import_(path)
    if said:
        assert said in "".join(network.not_kept or ())
        return
    assert not network.not_kept
    count = sum(parameter.numel() for parameter in module.parameters())
    assert describe(network, 1)["total"]["parameters"] == count
    feeds: list[dict[str, Any]] = []
    run = ReferenceEvaluator.run

    def recorded(self: Any, outputs: Any, feed: dict[str, Any], **how: Any) -> Any:
        feeds.append(feed)
        return run(self, outputs, feed, **how)

    monkeypatch.setattr(ReferenceEvaluator, "run", recorded)
    step = with_weights(path, None, network, one_device(network), seed=0)
    assert step.difference < 1e-5
    module.double()
    names = {one.name for one in model.graph.input}
    feed = next(one for one in feeds if one.keys() == names)
    inputs = [torch.from_numpy(one) for one in feed.values()]
    output = module(*inputs)
    imported, theirs = imported_model(path), output.detach().numpy()
    (own,) = run(ReferenceEvaluator(in_double(model)), None, feed)
    assert np.abs(own - theirs).max() < 1e-5 * np.abs(theirs).max()
    output.backward(torch.from_numpy(loss_gradient(imported, step.data, theirs)))
    # Of tied weights the file may have either name.
    named = dict(module.named_parameters(remove_duplicate=False))
    values = {key: one.detach().numpy() for key, one in named.items()}
    # What a module does not train, as Whisper's positions of frames, does not move.
    along = {
        key: np.random.default_rng(1).normal(size=one.shape) * named[key].requires_grad
        for key, one in values.items()
    }
    change = sum(
        float((one.grad.numpy() * along[key]).sum())
        for key, one in module.named_parameters()
        if one.grad is not None
    )
    assert_slope(network, step.data, difference(imported, model, values, along), [change])


@pytest.mark.parametrize("name", ["Mixtral", "Qwen2-MoE", "DeepSeek-V2", "Llama", "Gemma 3"])
def test_a_configuration_is_the_network_of_its_module(name: str, tmp_path: Path) -> None:
    """As mixtures of experts come, which torch.onnx cannot translate."""
    module, _ = made(name)
    module.model.config.to_json_file(tmp_path / "config.json")
    network = ho.read_network(tmp_path / "config.json")
    named = re.findall(r"\((\d+) parameters\)", "".join(network.not_kept or ()))
    count = sum(parameter.numel() for parameter in module.parameters())
    assert describe(network, 1)["total"]["parameters"] + sum(map(int, named)) == count


def difference(imported: Any, model: Any, values: Any, along: Any) -> ModelWeights:
    """Return a direction of a module's weights in the order of its network."""
    ends = []
    for by in (0, 1):
        arrays = {name: own + by * along[name] for name, own in values.items()}
        ends.append(weights_of(imported, with_values(model, initialisers(model) | arrays)))
    return ModelWeights(
        *(
            {name: end[name] - own for name, own in start.items()}
            for start, end in zip(*((one.weights, one.biases) for one in ends), strict=True)
        )
    )
