"""Structures of others are taken as they are, or refused: parameters, outputs and gradients.

Each is a program of torch.export, as `from_torch` reads it, with random weights. The oracle is the
module itself, in double precision.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("torchvision", reason="make models runs these with PyTorch")

import torch
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

import hypar_opt as ho
from hypar_opt.models import program
from hypar_opt.models.imported import import_
from hypar_opt.onnx import imported_model
from hypar_opt.studies.model_weights import with_weights
from hypar_opt.workload.description import describe
from tests.models.structures import STRUCTURES
from tests.onnx.with_weights import Refused, directed, one_device, slope, with_values

TAKEN = ""

EXPECTED: dict[str, str] = {}
"""What is said of a structure that is not taken exactly: a part of a refusal, or of what is left
out."""


def made(name: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a structure with random weights, whose batch norms take the statistics of a batch."""
    torch.manual_seed(0)
    build, given = STRUCTURES[name]
    module = build().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.3)
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            part.train()
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
    said, path = EXPECTED.get(name, TAKEN), tmp_path / "model.onnx"
    if isinstance(said, Refused):
        with pytest.raises(ho.HyparError) as refused:
            ho.from_torch(module, *given)
        assert said in str(refused.value)
        return
    network = ho.from_torch(module, *given)
    model = written(module, given, path)
    assert import_(path).layers == network.layers
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
    inputs = [torch.from_numpy(one) for one in feeds[0].values()]
    imported = imported_model(path)
    output = module(*inputs)
    found = slope(...)
