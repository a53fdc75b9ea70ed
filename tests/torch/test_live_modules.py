"""Modules, and their exported programs, are the networks of their ONNX exports."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch", reason="make torch runs these with PyTorch")

import torch
import torch.nn.functional as f
import transformers
from torch import nn

import hypar_opt as ho
from hypar_opt.execution.export import torch_file
from hypar_opt.models import find_network
from hypar_opt.models.imported import read_model
from hypar_opt.workload.description import describe
from hypar_opt.workload.network import Network
from tests.torch import models
from tests.torch.processes import Case, steps
from tests.torch.test_steps import BATCH, drawn, of_degrees, solved

Export = Callable[..., Any]

legacy = partial(
    torch.onnx.export,
    dynamo=False,
    do_constant_folding=False,
    training=torch.onnx.TrainingMode.PRESERVE,
)
"""PyTorch's older exporter, which shares nothing with that of programs but the operators; without
folding, since a folded transposition of a shared weight is a weight of its own."""

dynamo = partial(torch.onnx.export, dynamo=True, verbose=False)
"""The newer one, for what the older does not know."""


class Tied(nn.Module):
    """Words, one layer, and the words' table as the head."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(models.WORDS, models.WIDTH)
        self.inner = nn.Linear(models.WIDTH, models.WIDTH)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(models.WIDTH, models.WORDS, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Any) -> Any:
        return self.head(self.drop(f.relu(self.inner(self.table(ids)))))


class Residual(nn.Module):
    """Images through batch norms, a sum of two branches and a mean over pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8))
        self.conv, self.bn = nn.Conv2d(8, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)
        self.down = nn.Sequential(nn.Conv2d(8, 16, 1, 2, bias=False), nn.BatchNorm2d(16))
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        x = f.relu(self.stem(x))
        x = f.relu(self.bn(self.conv(x)) + self.down(x))
        return self.fc(f.adaptive_avg_pool2d(x, 1).flatten(1))


class VisionBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Any) -> Any:
        y = self.norm1(x)
        query, key, value = (
            own(y).unflatten(-1, (models.HEADS, -1)).transpose(1, 2)
            for own in (self.query, self.key, self.value)
        )
        seen = f.scaled_dot_product_attention(query, key, value)
        x = x + self.proj(seen.transpose(1, 2).flatten(2))
        return x + self.down(f.gelu(self.up(self.norm2(x))))


class Vision(nn.Module):
    """Patches of an image as tokens, behind one that is learned, with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        width = models.WIDTH
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 17, width))
        self.blocks = nn.Sequential(*(VisionBlock(width) for _ in range(2)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images: Any) -> Any:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def published_llama() -> nn.Module:
    """Return transformers' own, with rotary positions, whose frequencies are a buffer."""
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=models.WORDS,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=96,
            use_cache=False,
        )
    )


class Model(NamedTuple):
    make: Callable[[], nn.Module]
    example: Callable[[], Any]
    export: Export = legacy


def ids() -> Any:
    return torch.zeros(2, models.TOKENS, dtype=torch.long)


MODELS = {
    "tied": Model(Tied, ids),
    "residual": Model(Residual, lambda: torch.zeros(2, 3, 16, 16)),
    "gpt": Model(models.Gpt, ids),
    "llama": Model(models.Llama, ids, dynamo),
    "vision": Model(Vision, lambda: torch.zeros(2, 3, 16, 16)),
    "transformers' llama": Model(published_llama, ids, dynamo),
}


@cache
def module(name: str) -> nn.Module:
    """Return a model in which no two weights are equal, as if it were trained."""
    torch.manual_seed(0)
    made = MODELS[name].make()
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


@cache
def network(name: str) -> Network:
    return ho.from_torch(module(name), MODELS[name].example())


def unnamed(network: Network) -> list[Any]:
    """Return the layers, and what they read, by their places instead of their names."""
    place = {layer.name: n for n, layer in enumerate(network.layers)}
    layers = [
        layer.model_dump(exclude={"name", "inputs", "tied"})
        | {"tied": place.get(layer.shares_weights_with or "")}
        for layer in network.layers
    ]
    return [*layers, list(network.sources)]


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_module_is_the_network_of_its_onnx_export(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.export(module(name), (model.example(),), tmp_path / "model.onnx")
    theirs, own = ho.import_(tmp_path / "model.onnx"), network(name)
    assert unnamed(own) == unnamed(theirs)
    assert own.input == theirs.input
    assert own.remarks == theirs.remarks
    for left_out in (own.not_kept, theirs.not_kept):
        # In training mode, as the module is; the exporters' names of the node differ.
        assert [one.split()[0] for one in left_out or ()] == ["dropout"] * (name == "tied")


def test_layers_have_the_names_and_the_parameters_of_modules(name: str) -> None:
    own, made = network(name), module(name)
    count = sum(parameter.numel() for parameter in made.parameters())
    assert describe(own, 1)["total"]["parameters"] == count
    learned = {key.rpartition(".")[0] or key for key, _ in made.named_parameters()}
    # Of parameters of the model itself, the layer has the parameter's name.
    learned |= {key for key, _ in made.named_parameters(recurse=False)}
    names = {layer.name for layer in own.layers}
    assert learned - {""} - names <= set(), learned - names


def test_neither_weights_nor_the_mode_matter(name: str) -> None:
    """Weights that are equal are not merged, and no norm is folded, as exporters to files do."""
    made = MODELS[name].make().eval()
    for parameter in made.parameters():
        nn.init.zeros_(parameter)
    assert unnamed(ho.from_torch(made, MODELS[name].example())) == unnamed(network(name))
    if name != "transformers' llama":  # whose buffer of frequencies then has no values
        with torch.device("meta"):
            without = MODELS[name].make()
        assert unnamed(ho.from_torch(without, MODELS[name].example())) == unnamed(network(name))


def test_parameters_of_no_device_and_buffers_with_values_are_enough() -> None:
    made = published_llama()
    for part in made.modules():
        for key, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[key] = nn.Parameter(parameter.to("meta"))
    assert ho.from_torch(made, ids()) == network("transformers' llama")
    rotary = ho.from_torch(published_llama().to("meta"), ids()).not_kept
    assert rotary is not None
    assert rotary[0].startswith("rotary positions")


def test_a_saved_program_is_the_same_network(name: str, tmp_path: Path) -> None:
    file = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(module(name), (MODELS[name].example(),)), file)
    own = ho.read_network(file)
    assert own.layers == network(name).layers
    assert own.not_kept == network(name).not_kept
    assert own.source == f"PyTorch program program.pt2, written by pytorch {torch.__version__}"


@pytest.mark.parametrize("own", ["tied", "vision", "phi3", "gemma2"])
def test_a_saved_program_gives_its_weights(own: str, tmp_path: Path) -> None:
    """On four devices its network writes what the program does with the same weights."""
    configs = {"phi3": PHI, "gemma2": PHI | {"model_type": "gemma2", "head_dim": 16}}
    made = {name: partial(module, name) for name in MODELS} | {
        name: partial(Published, config) for name, config in configs.items()
    }
    example = MODELS[own].example() if own in MODELS else ids()
    file = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(made[own]().eval(), (example,)), file)
    plan = ho.solve(ho.import_(file), levels=2, batch=4)
    found = ho.run(plan, weights=file)
    assert found.model is not None
    assert found.model < 1e-6


def test_sizes_of_a_program_may_be_open(tmp_path: Path) -> None:
    file = tmp_path / "program.pt2"
    sizes = {"ids": {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens", max=512)}}
    program = torch.export.export(module("llama"), (ids(),), dynamic_shapes=sizes)
    torch.export.save(program, file)
    with pytest.raises(ho.HyparError, match=r"has dynamic dimensions: '\w+'; import it") as refused:
        ho.import_(file)
    # PyTorch keeps no names of dimensions.
    name = str(refused.value).split("'")[1]
    dims = {name: models.TOKENS}
    assert ho.import_(file, dims=dims).layers == network("llama").layers
    assert ho.from_torch(program, dims=dims).layers == network("llama").layers


def test_equal_layers_in_a_row_are_blocks(tmp_path: Path) -> None:
    ho.from_torch(module("gpt"), ids(), output=tmp_path / "gpt.toml")
    text = (tmp_path / "gpt.toml").read_text()
    assert re.findall(r'\[\[block\]\]\nname = "(\w+)"\nrepeat = (\d)', text) == [("h", "2")]
    assert ho.read_network(tmp_path / "gpt.toml") == network("gpt")


class Published(nn.Module):
    """One of transformers' models without dropout, as it stands in a step: ids to logits."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        config = {"vocab_size": models.WORDS, "bos_token_id": 1, "eos_token_id": 2, **config}
        config = transformers.AutoConfig.for_model(**config, pad_token_id=0, use_cache=False)
        self.model = transformers.AutoModelForCausalLM.from_config(config)

    def forward(self, ids: Any) -> Any:
        return self.model(ids).logits


PHI = {
    "model_type": "phi3",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 32,
}
"""Both halves of its MLPs are one weight."""

GPT = {
    "model_type": "gpt2",
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 32,
    **dict.fromkeys(("embd_pdrop", "resid_pdrop", "attn_pdrop"), 0),
}
"""Its table of positions has more rows than sequences have tokens."""


DEEPSEEK = PHI | {
    "model_type": "deepseek_v3",
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "first_k_dense_replace": 2,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
}
"""Keys and values of a latent: two of its weights are of two layers each. No block has experts."""


def of_config(config: dict[str, Any], folder: Path) -> Network:
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": models.WORDS}))
    return find_network(str(folder / "config.json"), tokens=models.TOKENS)


def of_onnx(config: dict[str, Any], folder: Path) -> Network:
    made = Published(config)
    for parameter in made.parameters():
        nn.init.normal_(parameter)  # or biases, which are zeros, are left out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dynamo(made, (ids(),), folder / "model.onnx")
    return ho.import_(folder / "model.onnx")


def test_weights_in_one_and_tables_of_more_rows_are_the_modules(tmp_path: Path) -> None:
    """As they stand in transformers' models, and from whatever of them one has."""
    tokens = lambda: torch.randint(models.WORDS, (BATCH, models.TOKENS))  # noqa: E731
    within = "model.{}".format
    cut = lambda name: f"{name}.wpe" if name == "model.transformer" else name  # noqa: E731
    networks: dict[str, tuple[Network, Callable[[str], str]]] = {
        "phi3": (ho.from_torch(Published(PHI), ids()), str),
        "phi3 by its configuration": (of_config(PHI, tmp_path), within),
        "gpt2": (ho.from_torch(Published(GPT), ids()), str),
        "gpt2 by its configuration": (of_config(GPT, tmp_path), within),
        "deepseek_v3 by its configuration": (of_config(DEEPSEEK, tmp_path), within),
        # The exporter cut the table, and lost its name.
        "gpt2 by ONNX": (of_onnx(GPT, tmp_path), cut),
    }
    cases = {}
    for name, (own, names) in networks.items():
        (config,) = (own for own in (PHI, GPT, DEEPSEEK) if own["model_type"] == name.split()[0])
        plans = {"tensor": of_degrees(own, 1, 2), "drawn": drawn(own, 1, 1)}
        for plan_name, plan in plans.items():
            cases[f"{name}, {plan_name}"] = Case(
                torch_file(plan, approximate=True),
                partial(Published, config),
                tokens,
                models.WORDS,
                names,
            )
    text = cases["phi3, tensor"].text
    assert text.count('mlp.gate_up_proj": ColwiseParallel(output_layouts=Shard(0), ') == 1
    said = " ".join(text.split())
    assert "its outputs are split in one with other parts of its weight, not part by" in said
    for name, step in steps(2, cases).items():
        assert not step.failure, (name, step.failure)
        assert all(step.placements.values()), (name, step.placements)
        # Its norms are in single precision.
        bound = 1e-12 if "gpt2" in name else 1e-7
        assert step.loss == pytest.approx(step.expected, rel=bound), name
        assert step.error < bound, name


def test_what_the_exported_plan_splits_is_the_module() -> None:
    """As it stands, without another table of names: what it computes is the module's own step."""
    tokens = lambda: torch.randint(models.WORDS, (BATCH, models.TOKENS))  # noqa: E731
    images = lambda: torch.randn(BATCH, 4, 8, 8)  # noqa: E731
    cases = {}
    for make, data, classes in (
        (models.Llama, tokens, models.WORDS),
        (models.Gpt, tokens, models.WORDS),
        (models.Cnn, images, 16),
    ):
        own = ho.from_torch(make(), data())
        plan = solved(own, 1) if make is models.Cnn else of_degrees(own, 1, 2)
        cases[make.__name__] = Case(torch_file(plan), make, data, classes)
    for name, step in steps(2, cases).items():
        assert not step.failure, (name, step.failure)
        assert all(step.placements.values()), (name, step.placements)
        assert step.loss == pytest.approx(step.expected, rel=1e-12), name
        assert step.error < 1e-12, name


class Sorted(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.sort(x, -1).values


class Branches(nn.Module):
    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


class Untranslated(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.eigvalsh(x)


@pytest.mark.parametrize(
    ("made", "example", "said"),
    [
        (3, (), "module should be a module of PyTorch's, got int"),
        (Tied(), (), r"Tied: torch\.export cannot export it: .*argument"),
        (Branches(), (torch.zeros(2, 3),), r"Branches: torch\.export cannot export it: .*data"),
        (Untranslated(), (torch.zeros(2, 3, 3),), r"Untranslated: torch\.onnx cannot translate it"),
        (Sorted(), (torch.zeros(2, 3),), r"Sorted: node .* \((Sort|TopK)\): "),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_line(
    made: Any, example: tuple[Any, ...], said: str
) -> None:
    with pytest.raises(ho.HyparError, match=said) as refused:
        ho.from_torch(made, *example)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("odd", [3, "no\nname", [3]])
@pytest.mark.parametrize("argument", ["kwargs", "output", "dims", "loss", "untie", "causal"])
def test_a_value_of_an_odd_type_is_refused_in_a_line(argument: str, odd: Any) -> None:
    program = torch.export.export(Tied(), (ids(),))
    if argument == "output" and odd == "no\nname":
        odd = b"x"
    with pytest.raises(ho.HyparError) as refused:
        ho.from_torch(program, **{argument: odd})
    assert "\n" not in str(refused.value)


def test_a_program_that_pytorch_cannot_read_is_refused_in_a_line(tmp_path: Path) -> None:
    file = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(Tied(), (ids(),)), file)
    data = file.read_bytes()
    file.write_bytes(data.replace(b"aten.linear", b"aten.liinar"))
    with pytest.raises(ho.HyparError) as refused:
        read_model(file)
    assert str(refused.value).startswith(f"{file}: should be a program") or "cannot read it" in str(
        refused.value
    )
    assert "\n" not in str(refused.value)
