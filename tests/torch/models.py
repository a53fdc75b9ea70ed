"""Small PyTorch models as one writes them, and their networks, whose layers have modules' names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as f
from torch import nn

from hypar_opt.documents.document import validate
from hypar_opt.workload.network import Network

TOKENS, WORDS, WIDTH, HEADS = 8, 64, 32, 4


def network(name: str, given: dict[str, int], *layers: dict[str, Any], **more: Any) -> Network:
    described = {"schema": "hypar-opt/network/2", "name": name, "input": given}
    return validate(Network, {**described, "layer": list(layers), **more})


def layer(name: str, kind: str = "fc", **keys: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, **keys}


class Mlp(nn.Module):
    """Four layers; no biases, which a plan does not count."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 32, bias=False)
        self.second = nn.Linear(32, 32, bias=False)
        self.third = nn.Linear(32, 16, bias=False)
        self.last = nn.Linear(16, 8, bias=False)

    def forward(self, x: Any) -> Any:
        x = f.relu(self.second(f.relu(self.first(x))))
        return self.last(f.relu(self.third(x)))


def mlp() -> Network:
    sizes = {"first": 32, "second": 32, "third": 16, "last": 8}
    layers = [layer(name, units=units, activation="relu") for name, units in sizes.items()]
    return network("small MLP", {"features": 16}, *layers, layer("loss", "output"))


@dataclass(frozen=True)
class Sizes:
    """Of a LLaMA, or a GPT, with two blocks."""

    width: int = WIDTH
    heads: int = HEADS
    kv_heads: int = 2
    inner: int = 96
    words: int = WORDS
    normed: bool = False
    """Whether each head of queries and keys has a norm."""


class Attention(nn.Module):
    """Grouped queries, with one matrix each for queries, keys and values."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        few = sizes.width * sizes.kv_heads // sizes.heads
        self.q_proj = nn.Linear(sizes.width, sizes.width, bias=False)
        self.k_proj = nn.Linear(sizes.width, few, bias=False)
        self.v_proj = nn.Linear(sizes.width, few, bias=False)
        self.o_proj = nn.Linear(sizes.width, sizes.width, bias=False)
        if sizes.normed:
            self.q_norm, self.k_norm = (RmsNorm(sizes.width // sizes.heads) for _ in range(2))

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        size, queries = width // self.sizes.heads, self.sizes.heads // self.sizes.kv_heads
        query, key, value = (
            own(x).view(batch, tokens, -1, size) for own in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.sizes.normed:
            query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (own.transpose(1, 2) for own in (query, key, value))
        key, value = key.repeat_interleave(queries, 1), value.repeat_interleave(queries, 1)
        scores = query @ key.transpose(-1, -2) * size**-0.5
        mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        seen = scores.masked_fill(~mask, -torch.inf).softmax(-1) @ value
        return self.o_proj(seen.transpose(1, 2).reshape(batch, tokens, width))


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        return f.rms_norm(x, self.weight.shape, self.weight, 1e-5)


class LlamaBlock(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        width, inner = sizes.width, sizes.inner
        self.input_layernorm, self.self_attn = RmsNorm(width), Attention(sizes)
        self.post_attention_layernorm, self.mlp = RmsNorm(width), nn.Module()
        self.mlp.gate_proj = nn.Linear(width, inner, bias=False)
        self.mlp.up_proj = nn.Linear(width, inner, bias=False)
        self.mlp.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Any) -> Any:
        x = x + self.self_attn(self.input_layernorm(x))
        y = self.post_attention_layernorm(x)
        return x + self.mlp.down_proj(f.silu(self.mlp.gate_proj(y)) * self.mlp.up_proj(y))


class Llama(nn.Module):
    """LLaMA, with the names of its published weights."""

    def __init__(self, sizes: Sizes = Sizes()) -> None:
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(sizes.words, sizes.width)
        self.model.layers = nn.ModuleList(LlamaBlock(sizes) for _ in range(2))
        self.model.norm = RmsNorm(sizes.width)
        self.lm_head = nn.Linear(sizes.width, sizes.words, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.model.embed_tokens(ids)
        for block in self.model.layers:
            x = block(x)
        return self.lm_head(self.model.norm(x))


def llama(*, normed: bool = False) -> Network:
    attention = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    read, norms = attention, []
    if normed:
        read = ("self_attn.q_norm", "self_attn.k_norm", attention[2])
        norms = [
            layer(name, "norm", norm="rms", heads=heads, inputs=[source])
            for name, source, heads in zip(read, attention[:2], (HEADS, 2), strict=False)
        ]
    block = [
        layer("input_layernorm", "norm", norm="rms"),
        layer(attention[0], units=WIDTH, inputs=["input_layernorm"]),
        layer(attention[1], units=WIDTH // 2, inputs=["input_layernorm"]),
        layer(attention[2], units=WIDTH // 2, inputs=["input_layernorm"]),
        *norms,
        layer("attention", "attention", inputs=read, heads=HEADS, kv_heads=2, causal=True),
        layer("self_attn.o_proj", units=WIDTH),
        layer("add1", "add", inputs=["input", "self_attn.o_proj"]),
        layer("post_attention_layernorm", "norm", norm="rms"),
        layer("mlp.gate_proj", units=96, activation="silu"),
        layer("mlp.up_proj", units=96, inputs=["post_attention_layernorm"]),
        layer("gated", "mul", inputs=["mlp.gate_proj", "mlp.up_proj"]),
        layer("mlp.down_proj", units=WIDTH),
        layer("add2", "add", inputs=["add1", "mlp.down_proj"]),
    ]
    return network(
        "small LLaMA",
        {"tokens": TOKENS, "vocabulary": WORDS},
        layer("model.embed_tokens", "embedding", features=WIDTH),
        layer("model.norm", "norm", norm="rms", inputs=["model.layers"]),
        layer("lm_head", units=WORDS),
        layer("loss", "output"),
        block=[
            {"name": "model.layers", "repeat": 2, "inputs": ["model.embed_tokens"]}
            | {"layer": block}
        ],
    )


class Conv1D(nn.Module):
    """A product whose weight has its inputs first, as in the published GPT-2."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs) / inputs**0.5)
        self.bias = nn.Parameter(torch.randn(outputs)) if bias else None

    def forward(self, x: Any) -> Any:
        return x @ self.weight if self.bias is None else x @ self.weight + self.bias


class GptBlock(nn.Module):
    """A block with query, key and value in one matrix, and PyTorch's own attention."""

    def __init__(self, sizes: Sizes, product: Any, *, bias: bool) -> None:
        super().__init__()
        self.sizes, width = sizes, sizes.width
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn = product(width, 3 * width, bias=bias)
        self.attn.c_proj = product(width, width, bias=bias)
        self.mlp.c_fc = product(width, 4 * width, bias=bias)
        self.mlp.c_proj = product(4 * width, width, bias=bias)

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        query, key, value = (
            own.view(batch, tokens, self.sizes.heads, -1).transpose(1, 2)
            for own in self.attn.c_attn(self.ln_1(x)).split(width, -1)
        )
        seen = f.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attn.c_proj(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp.c_proj(f.gelu(self.mlp.c_fc(self.ln_2(x))))


class Gpt(nn.Module):
    """GPT-2, whose head is its embedding."""

    def __init__(
        self,
        sizes: Sizes = Sizes(),
        positions: int = TOKENS,
        product: Any = nn.Linear,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        words, width = sizes.words, sizes.width
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(positions, width)
        self.h = nn.ModuleList(GptBlock(sizes, product, bias=bias) for _ in range(2))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Any) -> Any:
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))


GPT_NAMES = {
    "token": "wte",
    "position": "wpe",
    "norm": "ln_f",
    "head": "lm_head",
    "norm1": "ln_1",
    "norm2": "ln_2",
    "qkv": "attn.c_attn",
    "proj": "attn.c_proj",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}
"""The modules of `Gpt` by the names of hypar-opt's own GPTs."""


IMPORTED_GPT = Sizes(width=768, heads=12, words=50257)
"""Those of tests/data/onnx/gpt2.onnx, without biases: of a model that is not trained they are zero,
and the exporter left them out."""

IMPORTED_GPT_NAMES = {
    "embedding": "wte",
    "layer_norm_1": "ln_1",
    "layer_norm_2": "ln_2",
    "layer_norm_4": "ln_f",
}
"""The modules of `Gpt` where the exporter lost the names of weights that are shared."""


def name_in_imported_gpt(name: str) -> str:
    """Return the module of an imported layer: ``transformer.h.1.mlp.c_fc`` is ``h.1.mlp.c_fc``."""
    own = name.removeprefix("transformer.")
    block, _, last = own.rpartition(".")
    return f"{block}.{IMPORTED_GPT_NAMES.get(last, last)}".removeprefix(".")


def name_in_gpt(name: str) -> str:
    """Return the module of a layer: that of ``decoder.1.up`` is ``h.1.mlp.c_fc``."""
    block, _, own = name.rpartition(".")
    return f"{block.replace('decoder', 'h')}.{GPT_NAMES[own]}".removeprefix(".")


class Cnn(nn.Module):
    """Two convolutions with a norm between them, of the batch or of groups of channels."""

    def __init__(self, *, bias: bool = False, groups: int | None = None) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(4, 8, 3, padding=1, bias=bias)
        self.bn = nn.GroupNorm(groups, 8) if groups else nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1, bias=bias)
        self.fc1 = nn.Linear(256, 32, bias=False)
        self.fc2 = nn.Linear(32, 16, bias=False)

    def forward(self, x: Any) -> Any:
        x = f.max_pool2d(f.relu(self.bn(self.conv1(x))), 2)
        x = f.relu(self.conv2(x)).flatten(1)
        return self.fc2(f.relu(self.fc1(x)))


def cnn(*, bias: bool = False, groups: int | None = None) -> Network:
    normed = {"norm": "layer", "groups": groups} if groups else {"norm": "batch"}
    return network(
        "small CNN",
        {"channels": 4, "height": 8, "width": 8},
        layer("conv1", "conv", filters=8, kernel=3, padding=1, bias=bias),
        layer("bn", "norm", **normed, activation="relu"),
        layer("pool", "pool", pool={"kind": "max", "size": 2}),
        layer("conv2", "conv", filters=16, kernel=3, padding=1, bias=bias, activation="relu"),
        layer("fc1", units=32, activation="relu"),
        layer("fc2", units=16),
        layer("loss", "output"),
    )


IMPORTED_LLAMA = Sizes(width=512, heads=8, kv_heads=2, inner=1408, words=32000)
"""Those of tests/data/onnx/llama-gqa.onnx."""

IMPORTED_LLAMA_NAMES = {
    "norm_1": "input_layernorm",
    "linear_1": "self_attn.q_proj",
    "linear_2": "self_attn.k_proj",
    "linear_3": "self_attn.v_proj",
    "linear_4": "self_attn.o_proj",
    "norm_2": "post_attention_layernorm",
    "linear_5": "mlp.gate_proj",
    "linear_6": "mlp.up_proj",
    "linear_7": "mlp.down_proj",
    "norm": "model.norm",
    "linear_14": "lm_head",
}
"""The modules of `Llama` by names that are left where an exporter lost those of weights."""


def name_in_llama(name: str) -> str:
    """Return the module of an imported layer: that of ``block.1.linear_7`` in ``model.layers``."""
    block, _, own = name.rpartition(".")
    if not block.startswith("block"):
        return IMPORTED_LLAMA_NAMES.get(name, name)
    return f"{block.replace('block', 'model.layers')}.{IMPORTED_LLAMA_NAMES[own]}"
