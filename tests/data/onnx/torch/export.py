# mypy: ignore-errors
"""Write the small models of this folder, without their weights, and their counts by torch.

By hand: ``pip install torch==2.13.0 onnx==1.23.2 onnxscript==0.7.2``, then ``python export.py``.
``counts.json`` has ``sum(p.numel() for p in model.parameters())`` of each.
"""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import onnx
import torch
from torch import nn
from torch.nn import functional

HERE = Path(__file__).parent
B, T, E, H, D, V = 2, 16, 24, 4, 6, 40

TOKENS = torch.zeros(B, T, E)
IDS = torch.zeros(B, T, dtype=torch.int64)
RGB = torch.zeros(B, 3, 8, 8)


def heads(x):
    return x.view(x.shape[0], x.shape[1], H, -1).transpose(1, 2)


def attend(q, k, v, bias=0.0):
    scores = heads(q) @ heads(k).transpose(-1, -2) / D**0.5 + bias
    return (scores.softmax(-1) @ heads(v)).transpose(1, 2).reshape(q.shape)


class Model(nn.Module):
    """A model of named layers and tensors whose forward pass is a function of itself."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            setattr(self, name, nn.Parameter(part) if isinstance(part, torch.Tensor) else part)

    def forward(self, *inputs):
        return self.run(self, *inputs)


def attention():
    return Model(
        lambda m, x: m.a(x, x, x, need_weights=False)[0],
        a=nn.MultiheadAttention(E, H, batch_first=True),
    )


def encoder():
    layer = nn.TransformerEncoderLayer(E, H, 48, batch_first=True, activation="gelu")
    return Model(
        lambda m, x: m.layers(x), layers=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    )


def encoder_layer_applied_twice():
    layer = nn.TransformerEncoderLayer(E, H, 48, batch_first=True)
    return Model(lambda m, x: m.layer(m.layer(x)), layer=layer)


def decoder():
    layer = nn.TransformerDecoderLayer(E, H, 48, batch_first=True)
    return Model(lambda m, x: m.layer(x, m.memory(x)), layer=layer, memory=nn.Linear(E, E))


def gpt():
    def run(m, x):
        y = m.wte(x) + m.wpe(torch.arange(T))
        z = attend(*m.qkv(m.norm(y)).split(E, -1))
        return m.head(y + m.out(z))

    model = Model(
        run,
        wte=nn.Embedding(V, E),
        wpe=nn.Embedding(32, E),
        qkv=nn.Linear(E, 3 * E),
        out=nn.Linear(E, E),
        norm=nn.LayerNorm(E),
        head=nn.Linear(E, V, bias=False),
    )
    model.head.weight = model.wte.weight
    return model


def bert():
    def run(m, x, kinds):
        y = m.words(x) + m.kinds(kinds) + m.places(torch.arange(T))
        return m.head(m.body(m.norm(y)))

    model = Model(
        run,
        words=nn.Embedding(V, E),
        kinds=nn.Embedding(2, E),
        places=nn.Embedding(T, E),
        norm=nn.LayerNorm(E),
        body=nn.Linear(E, E),
        head=nn.Linear(E, V),
    )
    model.head.weight = model.words.weight
    return model


def vision_transformer():
    def run(m, x):
        y = m.patches(x).flatten(2).transpose(1, 2)
        y = torch.cat([m.first.expand(B, -1, -1), y], 1) + m.places
        return m.head(m.norm(m.layer(y))[:, 0])

    layer = nn.TransformerEncoderLayer(E, H, 48, batch_first=True, norm_first=True)
    return Model(
        run,
        patches=nn.Conv2d(3, E, 2, 2),
        first=torch.zeros(1, 1, E),
        places=torch.zeros(1, 17, E),
        layer=layer,
        norm=nn.LayerNorm(E),
        head=nn.Linear(E, 5),
    )


def fused_keys_and_values():
    def run(m, x):
        keys, values = m.kv.weight.chunk(2)
        return m.out(attend(m.q(x), functional.linear(x, keys), functional.linear(x, values)))

    return Model(
        run, q=nn.Linear(E, E, bias=False), kv=nn.Linear(E, 2 * E, bias=False), out=nn.Linear(E, E)
    )


def gated():
    def run(m, x):
        gate, up = m.up(m.norm(x)).chunk(2, -1)
        return x + m.down(functional.silu(gate) * up)

    return Model(run, norm=nn.RMSNorm(E), up=nn.Linear(E, 96), down=nn.Linear(48, E))


def relative_positions():
    places = (torch.arange(T)[None] - torch.arange(T)[:, None]).clamp(0, 7)
    return Model(
        lambda m, x: attend(m.q(x), m.k(x), m.v(x), m.table(places).permute(2, 0, 1)[None]),
        **{name: nn.Linear(E, E, bias=False) for name in "qkv"},
        table=nn.Embedding(8, H),
    )


def learned_attention_bias():
    linears = {name: nn.Linear(E, E) for name in "qkv"}
    return Model(
        lambda m, x: attend(m.q(x), m.k(x), m.v(x), m.bias), **linears, bias=torch.zeros(1, H, T, T)
    )


def head_that_is_a_slice():
    return Model(
        lambda m, x: functional.linear(m.body(m.words(x)), m.words.weight[:10]),
        words=nn.Embedding(V, E),
        body=nn.Linear(E, E),
    )


def two_lookups():
    return Model(
        lambda m, x, y: m.body(m.words(x) + m.words(y)),
        words=nn.Embedding(V, E),
        body=nn.Linear(E, E),
    )


def autoencoder():
    return Model(
        lambda m, x: functional.linear(torch.relu(m.narrow(x)), m.narrow.weight.t()),
        narrow=nn.Linear(E, 8),
    )


def one_layer_three_times():
    return Model(lambda m, x: m.f(torch.relu(m.f(torch.relu(m.f(x))))), f=nn.Linear(E, E))


def low_rank():
    return Model(
        lambda m, x: m.f(x) @ (m.a @ m.b),
        a=torch.zeros(E, 4),
        b=torch.zeros(4, E),
        f=nn.Linear(E, E),
    )


def adapter():
    def run(m, x):
        return m.g(torch.relu(functional.linear(x, m.f.weight + m.a @ m.b, m.f.bias)))

    return Model(
        run, f=nn.Linear(E, 48), a=torch.zeros(48, 4), b=torch.zeros(4, E), g=nn.Linear(48, E)
    )


def weight_norm():
    normed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(E, 48))
    return Model(lambda m, x: m.g(torch.relu(m.f(x))), f=normed, g=nn.Linear(48, E))


def group_norm():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(4, 8), nn.ReLU(), nn.Conv2d(8, 8, 3))


def instance_norm():
    norm = nn.InstanceNorm2d(8, affine=True)
    return nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Conv2d(8, 8, 3))


def thresholds():
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()),
        *(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 1), nn.PReLU(16)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)),
    )


def detector():
    def run(m, x):
        large = torch.relu(m.a(x))
        return m.head(large), m.head(torch.relu(m.b(large)))

    return Model(run, a=nn.Conv2d(3, 8, 3), b=nn.Conv2d(8, 8, 3, 2), head=nn.Conv2d(8, 5, 1))


def clones():
    """Four copies of a layer, which are not trained yet: their tensors are equal."""
    layer = nn.Sequential(nn.LayerNorm(E), nn.Linear(E, 48), nn.ReLU(), nn.Linear(48, E))
    return nn.Sequential(*(copy.deepcopy(layer) for _ in range(4)))


def recurrent(kind):
    return lambda: Model(
        lambda m, x: m.f(m.r(x)[0]), r=kind(E, E, batch_first=True), f=nn.Linear(E, 5)
    )


LEGACY, PLAIN, OPTIMISED = "legacy", "plain", "optimised"
"""The exporter to TorchScript, and torch.export's with and without ONNX Script's optimiser."""

MODELS = {
    "attention": (attention, (TOKENS,), (LEGACY, PLAIN, OPTIMISED)),
    "encoder": (encoder, (TOKENS,), (OPTIMISED,)),
    "encoder_layer_applied_twice": (encoder_layer_applied_twice, (TOKENS,), (PLAIN,)),
    "decoder": (decoder, (TOKENS,), (OPTIMISED,)),
    "gpt": (gpt, (IDS,), (LEGACY,)),
    "bert": (bert, (IDS, IDS.clone()), (LEGACY, PLAIN)),
    "vision_transformer": (vision_transformer, (RGB,), (PLAIN,)),
    "fused_keys_and_values": (fused_keys_and_values, (TOKENS,), (LEGACY, OPTIMISED)),
    "gated": (gated, (TOKENS,), (OPTIMISED,)),
    "relative_positions": (relative_positions, (TOKENS,), (PLAIN,)),
    "learned_attention_bias": (learned_attention_bias, (TOKENS,), (PLAIN,)),
    "head_that_is_a_slice": (head_that_is_a_slice, (IDS,), (LEGACY, PLAIN)),
    "two_lookups": (two_lookups, (IDS, IDS.clone()), (PLAIN,)),
    "autoencoder": (autoencoder, (TOKENS,), (LEGACY, PLAIN)),
    "one_layer_three_times": (one_layer_three_times, (TOKENS,), (LEGACY, PLAIN, OPTIMISED)),
    "low_rank": (low_rank, (TOKENS,), (LEGACY, PLAIN)),
    "adapter": (adapter, (TOKENS,), (LEGACY, PLAIN)),
    "weight_norm": (weight_norm, (TOKENS,), (LEGACY, PLAIN)),
    "group_norm": (group_norm, (RGB,), (LEGACY, PLAIN, OPTIMISED)),
    "instance_norm": (instance_norm, (RGB,), (LEGACY, PLAIN)),
    "separable": (thresholds, (RGB,), (PLAIN,)),
    "detector": (detector, (RGB,), (PLAIN,)),
    "clones": (clones, (TOKENS,), (LEGACY, OPTIMISED)),
    "gru": (recurrent(nn.GRU), (TOKENS,), (PLAIN,)),
    "lstm": (recurrent(nn.LSTM), (TOKENS,), (PLAIN,)),
}


def export(model, inputs, way, path):
    if way == LEGACY:
        # Unfolded: folding writes transposed copies of weights, which are then no longer shared.
        torch.onnx.export(model, inputs, path, dynamo=False, do_constant_folding=False)
    else:
        torch.onnx.export(model, inputs, path, dynamo=True, optimize=way == OPTIMISED)


def without_weights(path):
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and math.prod(tensor.dims) > D:
            tensor.ClearField("raw_data")
            tensor.ClearField("float_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            del tensor.external_data[:]
            entry = tensor.external_data.add()
            entry.key, entry.value = "location", "weights"
    del model.graph.value_info[:], model.metadata_props[:], model.graph.metadata_props[:]
    for node in model.graph.node:
        node.doc_string = ""
        del node.metadata_props[:]
    path.write_bytes(model.SerializeToString())
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)


def main():
    torch.manual_seed(0)
    counts = {}
    for name, (make, inputs, ways) in MODELS.items():
        for way in ways:
            model = make().eval()
            if make is not clones:
                # Exporters write equal tensors once: no two of a trained model are.
                for parameter in model.parameters():
                    nn.init.normal_(parameter)
            path = HERE / f"{name}.{way}.onnx"
            export(model, inputs, way, path)
            without_weights(path)
            counts[path.stem] = sum(parameter.numel() for parameter in model.parameters())
    (HERE / "counts.json").write_text(json.dumps(counts, indent=2) + "\n")


if __name__ == "__main__":
    main()
