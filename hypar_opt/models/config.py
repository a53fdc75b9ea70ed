"""A language model's ``config.json``, as Hugging Face's transformers write it, as a network.

Layers have the names of the model's modules; where transformers have no module, as for sums, those
of what they do. What changes the arithmetic and has no words in a network is named in ``not_kept``,
with its learned parameters; so are keys that nothing reads.

Source: huggingface/transformers v5.24.0, ``models/*/configuration_*.py`` and ``modeling_*.py`` of
the types in `MODEL_TYPES`.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any

from hypar_opt.documents.document import LARGEST_SIZE, file_name, read_text
from hypar_opt.documents.parsing import parse_json, shown
from hypar_opt.errors import InputError, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    Table = dict[str, Any]

ACTIVATIONS = {
    **dict.fromkeys(("silu", "swish"), "silu"),
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "gelu"),
    **dict.fromkeys(("relu", "relu6", "quick_gelu", "tanh", "sigmoid", "mish"), None),
    "gelu": "gelu_erf",
    "relu2": "squared_relu",
}
"""The activations of networks by transformers' words; None where it is the same word."""

GROUP = 64
"""The tokens of which each expert takes its equal share, as in the zoo's mixtures of experts."""

_TYPES = {"float16": "float16", "bfloat16": "bfloat16", "float64": "float64", "float32": None}

_NO_STEP = frozenset(
    (
        # Of generation, of files, of other heads and of other code: no training step reads them.
        *("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "use_cache"),
        *("transformers_version", "auto_map", "initializer_range", "task_specific_params"),
        *("n_ctx", "reorder_and_upcast_attn", "classifier_dropout", "pretraining_tp", "is_decoder"),
        *("attn_implementation", "_attn_implementation", "id2label", "label2id", "cache_implementation"),
        *(f"summary_{what}" for what in ("type", "use_proj", "activation", "proj_to_labels")),
        *("summary_first_dropout", "router_aux_loss_coef", "aux_loss_alpha", "seq_aux", "ep_size"),
        *("original_max_position_embeddings", "max_window_layers", "_sliding_window_pattern"),
    )
)


class Config:
    """The keys of a configuration, checked where they are read; null is as a missing key."""

    def __init__(self, keys: Mapping[str, Any], where: str = "") -> None:
        self._keys = {key: value for key, value in keys.items() if value is not None}
        self._where = where
        self._read: set[str] = set()

    def size(self, *keys: str, default: int | None = None) -> int:
        """Return a whole number from 1 on: of the first of some keys that there is."""
        return self._value(
            keys,
            default,
            lambda value: type(value) is int and 1 <= value <= LARGEST_SIZE,
            f"a whole number from 1 to {LARGEST_SIZE:,}",
        )

    def number(self, *keys: str, default: float | None = None) -> float:
        """Return a number of 0 or more."""
        return float(
            self._value(
                keys,
                default,
                lambda value: type(value) in (int, float) and 0 <= value < float("inf"),
                "a number of 0 or more",
            )
        )

    def flag(self, *keys: str, default: bool = False) -> bool:
        """Return true or false."""
        return bool(self._value(keys, default, lambda value: type(value) is bool, "true or false"))

    def word(self, *keys: str, default: str | None = None) -> str:
        """Return a text."""
        return str(self._value(keys, default, lambda value: type(value) is str, "a text"))

    def words(self, key: str, count: int, default: list[str]) -> list[str]:
        """Return a list of so many texts."""
        value: list[str] = self._value(
            (key,),
            default,
            lambda value: type(value) is list and all(type(word) is str for word in value),
            "a list of texts",
        )
        if len(value) != count:
            raise self.refuse(key, f"should have {count} words, one for each layer, got {len(value)}")
        return value

    def numbers(self, key: str) -> list[int]:
        """Return a list of whole numbers; an empty one where there is none."""
        value: list[int] = self._value(
            (key,),
            [],
            lambda value: type(value) is list and all(type(number) is int for number in value),
            "a list of whole numbers",
        )
        return value

    def table(self, *keys: str) -> Config:
        """Return a table of keys; an empty one where there is none."""
        value = self._value(keys, {}, lambda value: type(value) is dict, "a table")
        key = next((key for key in keys if key in self._keys), keys[0])
        return Config(value, f"{self._where}{key}, ")

    def has(self, key: str) -> bool:
        """Return whether there is a key."""
        self._read.add(key)
        return key in self._keys

    def unread(self) -> list[str]:
        """Return the keys that were not read, in order."""
        return [key for key in self._keys if key not in self._read | _NO_STEP]

    def refuse(self, key: str, problem: str) -> InputError:
        """Return the error to raise for one of its keys."""
        return InputError(problem, where=f"{self._where}{key}")

    def _value(
        self, keys: tuple[str, ...], default: Any, fits: Callable[[Any], bool], what: str
    ) -> Any:
        self._read.update(keys)
        for key in keys:
            if key in self._keys:
                if not fits(self._keys[key]):
                    raise self.refuse(key, f"should be {what}, got {shown(self._keys[key])}")
                return self._keys[key]
        if default is None:
            raise InputError(f"{self._where}missing key {keys[0]!r}")
        return default


def read_config(path: str | Path) -> Table:
    """Read a configuration as the content of a network file.

    Raises
    ------
    InputError
        Naming the file and the key, and what would be right.
    """
    file = file_name(path)
    try:
        return content_of(parse_json(read_text(path), file=file))
    except InputError as error:
        raise InputError(error.problem, where=error.where, file=file) from None


def content_of(keys: object) -> Table:
    """Return the content of the network file of a configuration.

    Sequences have all the positions that the model has been trained for.

    Raises
    ------
    InputError
        Naming the key, and what would be right.
    """
    if not isinstance(keys, dict) or "model_type" not in keys:
        raise InputError("should be a table with the key 'model_type', as transformers write it")
    config = Config(keys)
    kind = config.word("model_type")
    if kind not in MODEL_TYPES:
        raise InputError(unknown("type of model", kind, list(MODEL_TYPES)), where="model_type")
    for name in keys.get("architectures") or ():
        if not str(name).endswith(("ForCausalLM", "LMHeadModel")):
            raise config.refuse(
                "architectures", f"should be a model with a head of its vocabulary, got {shown(name)}"
            )
    config.has("architectures")
    model = MODEL_TYPES[kind](config)
    return model.content(kind)


class _Decoder:
    """A model of decoder layers: its keys, and what a network leaves out of it.

    ``left_out`` has the learned parameters of each part that is left out.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.left_out: Counter[str] = Counter()
        self.remarks: dict[str, None] = {}

    width = "hidden_size"
    depth = "num_hidden_layers"
    blocks = "model.layers"
    head = "lm_head"
    tied = False
    """What ``tie_word_embeddings`` is by default; transformers leave a default out."""

    def embedding(self) -> list[Table]:
        """Return the layers before the blocks."""
        raise NotImplementedError

    def block(self, number: int) -> list[Table]:
        """Return the layers of a block."""
        raise NotImplementedError

    def norm(self, name: str, *inputs: str, **keys: object) -> Table:
        """Return a norm of the model."""
        raise NotImplementedError

    def end(self) -> list[Table]:
        """Return the layers between the blocks and the head."""
        raise NotImplementedError

    def positions(self) -> int:
        """Return the tokens that the model has been trained for."""
        return self.config.size("max_position_embeddings")

    def logits_cap(self) -> float:
        """Return what the logits are capped at; 0 for nothing."""
        return 0.0

    def content(self, kind: str) -> Table:
        """Return the content of the network file."""
        config = self.config
        embedding = self.embedding()
        layers = [self.block(number) for number in range(config.size(self.depth))]
        vocabulary = config.size("vocab_size")
        tied = {"tied": embedding[0]["name"]}
        head = layer(
            self.head,
            "fc",
            units=vocabulary,
            **(tied if config.flag("tie_word_embeddings", default=self.tied) else {}),
            bias=self.head_bias(),
        )
        loss = layer("loss", "output", softcap=self.logits_cap())
        ends = [*self.end(), head, loss]
        ends[0]["inputs"] = [self.blocks]
        element_type = config.word("dtype", "torch_dtype", default="float32")
        if element_type not in _TYPES:
            raise config.refuse("dtype", f"should be one of {', '.join(_TYPES)}, got {element_type!r}")
        if config.has("quantization_config"):
            self.left_out["quantisation (quantization_config)"] += 0
        name = config.word("_name_or_path", default="").rpartition("/")[2] or kind
        tokens = self.positions()
        if unread := config.unread():
            self.left_out[f"what these keys say: {', '.join(unread)}"] += 0
        head_of_file: Table = {"element_type": _TYPES[element_type]}
        head_of_file["not_kept"] = [
            f"{part} ({count:,} parameters)" if count else part
            for part, count in self.left_out.items()
        ]
        head_of_file["remarks"] = [*self.remarks]
        return {
            "schema": "hypar-opt/network/2",
            "name": name,
            "source": "a config.json of Hugging Face transformers",
            **{key: value for key, value in head_of_file.items() if value},
            "input": {"tokens": tokens, "vocabulary": vocabulary},
            "layer": [*embedding, *ends],
            "block": [*self._runs(layers, embedding[-1]["name"])],
        }

    def head_bias(self) -> bool:
        """Return whether the head has a bias."""
        return False

    def _runs(self, layers: list[list[Table]], entry: str) -> Iterable[Table]:
        """Yield the runs of equal blocks, numbered as the model's."""
        first = 0
        for block, run in groupby(layers):
            count = len([*run])
            numbered: Table = {"name": self.blocks, "repeat": count}
            numbered |= {"first": first} if first else {"inputs": [entry]}
            yield {**numbered, "layer": block}
            first += count


def layer(name: str, kind: str, *inputs: str, **keys: object) -> Table:
    """Return a layer's table, without keys that are false, 0 or None."""
    reads = {"inputs": [*inputs]} if inputs else {}
    return {"name": name, "kind": kind, **reads, **{k: v for k, v in keys.items() if v}}


class _Gpt2(_Decoder):
    width, depth, blocks, tied = "n_embd", "n_layer", "transformer.h", True

    def positions(self) -> int:
        return self.config.size("n_positions")

    def norm(self, name: str, *inputs: str, **keys: object) -> Table:
        epsilon = self.config.number("layer_norm_epsilon", default=1e-5)
        return layer(name, "norm", *inputs, norm="layer", epsilon=epsilon, **keys)

    def embedding(self) -> list[Table]:
        config, names = self.config, ("transformer.wte", "transformer.wpe")
        width = config.size(self.width)
        positions = layer(names[1], "embedding", features=width, vocabulary=self.positions())
        dropout = bool(config.number("embd_pdrop", default=0.1))
        return [
            layer(names[0], "embedding", features=width),
            {**positions, "inputs": []},
            layer("transformer.embedded", "add", *names, dropout=dropout),
        ]

    def block(self, number: int) -> list[Table]:  # noqa: ARG002
        config = self.config
        width = config.size(self.width)
        dropout = bool(config.number("resid_pdrop", default=0.1))
        if config.flag("scale_attn_by_inverse_layer_idx"):
            self.left_out["scores divided by the number of their layer"] += 0
        if config.flag("add_cross_attention"):
            raise config.refuse("add_cross_attention", "should be false: a decoder alone is read")
        scaled = config.flag("scale_attn_weights", default=True)
        return [
            self.norm("ln_1"),
            layer("attn.c_attn", "fc", units=3 * width, bias=True),
            layer(
                "attn.attention",
                "attention",
                heads=config.size("n_head"),
                causal=True,
                scale=None if scaled else 1.0,
                dropout=bool(config.number("attn_pdrop", default=0.1)),
            ),
            layer("attn.c_proj", "fc", units=width, bias=True),
            layer("attn.residual", "add", "input", "attn.c_proj", dropout=dropout),
            self.norm("ln_2"),
            layer(
                "mlp.c_fc",
                "fc",
                units=config.size("n_inner", default=4 * width),
                bias=True,
                activation=_activation(config, "activation_function", default="gelu_new"),
            ),
            layer("mlp.c_proj", "fc", units=width, bias=True),
            layer("mlp.residual", "add", "attn.residual", "mlp.c_proj", dropout=dropout),
        ]

    def end(self) -> list[Table]:
        return [self.norm("transformer.ln_f")]


class _GptNeoX(_Decoder):
    blocks, head = "gpt_neox.layers", "embed_out"

    def norm(self, name: str, *inputs: str, **keys: object) -> Table:
        epsilon = self.config.number("layer_norm_eps", default=1e-5)
        return layer(name, "norm", *inputs, norm="layer", epsilon=epsilon, **keys)

    def embedding(self) -> list[Table]:
        width = self.config.size(self.width)
        return [layer("gpt_neox.embed_in", "embedding", features=width)]

    def block(self, number: int) -> list[Table]:  # noqa: ARG002
        config = self.config
        width, heads = config.size(self.width), config.size("num_attention_heads")
        bias = config.flag("attention_bias", default=True)
        dropout = bool(config.number("hidden_dropout", default=0))
        parallel = config.flag("use_parallel_residual", default=True)
        core = layer(
            "attention.attention",
            "attention",
            heads=heads,
            causal=True,
            dropout=bool(config.number("attention_dropout", default=0)),
        )
        core["rotary"] = _rotary(self, width // heads, share=config.number("rotary_pct", default=0.25))
        block = [
            self.norm("input_layernorm"),
            layer("attention.query_key_value", "fc", units=3 * width, bias=bias),
            core,
            layer("attention.dense", "fc", units=width, bias=bias),
        ]
        second, addends = "input", ["input", "attention.dense"]
        if not parallel:
            second, addends = "attention.residual", ["attention.residual"]
            block.append(layer(second, "add", "input", "attention.dense", dropout=dropout))
        return [
            *block,
            self.norm("post_attention_layernorm", second),
            layer(
                "mlp.dense_h_to_4h",
                "fc",
                units=config.size("intermediate_size"),
                bias=True,
                activation=_activation(config, "hidden_act", default="gelu"),
            ),
            layer("mlp.dense_4h_to_h", "fc", units=width, bias=True),
            layer("mlp.residual", "add", *addends, "mlp.dense_4h_to_h", dropout=dropout),
        ]

    def end(self) -> list[Table]:
        return [self.norm("gpt_neox.final_layer_norm")]


class _Llama(_Decoder):
    """LLaMA, and what differs from it in a few places."""

    activation = "silu"

    query_bias = False
    """Whether queries, keys and values have a bias where no key says."""

    def embedding(self) -> list[Table]:
        width = self.config.size(self.width)
        return [layer("model.embed_tokens", "embedding", features=width)]

    def norm(self, name: str, *inputs: str, **keys: object) -> Table:
        epsilon = self.config.number("rms_norm_eps", default=1e-6)
        return layer(name, "norm", *inputs, norm="rms", epsilon=epsilon, **keys)

    def end(self) -> list[Table]:
        return [self.norm("model.norm")]

    def block(self, number: int) -> list[Table]:
        attention, mlp = self.attention(number), self.mlp(number, "post_attention_layernorm")
        last = mlp[-1]["name"] if isinstance(mlp[-1]["name"], str) else ""
        return [
            self.norm("input_layernorm"),
            *attention,
            self.sum("self_attn.residual", "input", attention[-1]["name"]),
            self.norm("post_attention_layernorm"),
            *mlp,
            self.sum("mlp.residual", "self_attn.residual", last),
        ]

    def sum(self, name: str, *addends: str) -> Table:
        """Return a residual sum."""
        dropout = bool(self.config.number("resid_pdrop", default=0))
        return layer(name, "add", *addends, dropout=dropout)

    @property
    def heads(self) -> tuple[int, int, int]:
        """The heads, those of keys and values, and the features of one."""
        config = self.config
        heads = config.size("num_attention_heads")
        size = config.size("head_dim", default=config.size(self.width) // heads)
        return heads, config.size("num_key_value_heads", default=heads), size

    def attention(self, number: int) -> list[Table]:
        """Return the layers from the first norm to the output's projection."""
        config = self.config
        heads, kv_heads, size = self.heads
        bias = config.flag("qkv_bias", "attention_bias", default=self.query_bias)
        projections = {"q": heads, "k": kv_heads, "v": kv_heads}
        layers = [
            layer(f"self_attn.{own}_proj", "fc", "input_layernorm", units=count * size, bias=bias)
            for own, count in projections.items()
        ]
        return self.attended(number, layers, [own["name"] for own in layers])

    def attended(self, number: int, layers: list[Table], read: list[str]) -> list[Table]:
        """Return attention over some projections, and what follows it."""
        config = self.config
        heads, kv_heads, size = self.heads
        core = layer(
            "self_attn.attention",
            "attention",
            *read,
            heads=heads,
            kv_heads=kv_heads,
            causal=True,
            window=self.window(number),
            scale=self.scale(),
            softcap=config.number("attn_logit_softcapping", default=0),
            dropout=bool(config.number("attention_dropout", default=0)),
        )
        core["rotary"] = _rotary(self, size, kind=self.kind_of(number))
        output = layer(
            "self_attn.o_proj", "fc", units=config.size(self.width), bias=self.output_bias()
        )
        return [*layers, core, output]

    def output_bias(self) -> bool:
        """Return whether the projection of attention's output has a bias."""
        return self.config.flag("attention_bias")

    def scale(self) -> float | None:
        """Return the factor of scores; None for one over the root of a head's features."""
        return None

    def kind_of(self, number: int) -> str:
        """Return the word of a layer's attention."""
        config = self.config
        depth = config.size(self.depth)
        words = config.words("layer_types", depth, self.kinds(depth))
        if words[number] not in ("full_attention", "sliding_attention"):
            known = "full_attention or sliding_attention"
            raise config.refuse("layer_types", f"should be {known}, got {shown(words[number])}")
        return words[number]

    def kinds(self, depth: int) -> list[str]:
        """Return the words of all layers' attention where no key says them."""
        return ["sliding_attention" if self._slides() else "full_attention"] * depth

    slides = True
    """Whether there is a window where ``use_sliding_window`` does not say."""

    def _slides(self) -> bool:
        config = self.config
        used = config.flag("use_sliding_window", default=self.slides)
        return config.has("sliding_window") and used

    def window(self, number: int) -> int | None:
        """Return the tokens that each sees; None for all before it."""
        if self.kind_of(number) == "full_attention":
            # Read, so that it is not named as left out.
            self.config.has("sliding_window")
            return None
        return self.config.size("sliding_window")

    def mlp(self, number: int, norm: str) -> list[Table]:  # noqa: ARG002
        """Return the feed-forward layers."""
        config = self.config
        return self.gated("mlp", norm, config.size("intermediate_size"), config.flag("mlp_bias"))

    def gated(self, name: str, norm: str, units: int, bias: bool = False) -> list[Table]:  # noqa: FBT001, FBT002
        """Return a gated MLP."""
        activation = _activation(
            self.config, "hidden_activation", "hidden_act", default=self.activation
        )
        gate, up, gated = f"{name}.gate_proj", f"{name}.up_proj", f"{name}.gated"
        return [
            layer(gate, "fc", norm, units=units, bias=bias, activation=activation),
            layer(up, "fc", norm, units=units, bias=bias),
            layer(gated, "mul", gate, up),
            layer(f"{name}.down_proj", "fc", units=self.config.size(self.width), bias=bias),
        ]


class _Phi3(_Llama):
    def embedding(self) -> list[Table]:
        if self.config.number("embd_pdrop", default=0):
            self.left_out["dropout of embeddings"] += 0
        return super().embedding()

    def attention(self, number: int) -> list[Table]:
        heads, kv_heads, size = self.heads
        units = (heads + 2 * kv_heads) * size
        fused = layer("self_attn.qkv_proj", "fc", "input_layernorm", units=units)
        return self.attended(number, [fused], [fused["name"]])


class _Qwen2(_Llama):
    query_bias, slides = True, False

    def output_bias(self) -> bool:
        return False

    def kinds(self, depth: int) -> list[str]:
        config = self.config
        full = config.size("max_window_layers", default=depth) if self._slides() else depth
        return ["full_attention" if n < full else "sliding_attention" for n in range(depth)]


class _NormedHeads(_Llama):
    """Queries and keys are normalised, each head by itself."""

    by_head = True

    def attended(self, number: int, layers: list[Table], read: list[str]) -> list[Table]:
        query, key, value = read
        heads, kv_heads, _ = self.heads
        groups = (heads, kv_heads) if self.by_head else (None, None)
        norms = [
            self.norm(f"self_attn.{own}_norm", of, groups=count)
            for own, of, count in zip("qk", (query, key), groups, strict=True)
        ]
        return super().attended(number, layers + norms, [*(own["name"] for own in norms), value])


class _Qwen3(_NormedHeads, _Qwen2):
    query_bias = False

    def output_bias(self) -> bool:
        return self.config.flag("attention_bias")

    @property
    def heads(self) -> tuple[int, int, int]:
        heads, kv_heads, _ = super().heads
        return heads, kv_heads, self.config.size("head_dim", default=128)


class _Sandwiched(_Llama):
    """What attention and the MLP add to the residual is normalised, too."""

    before: tuple[str, str] | None = ("input_layernorm", "pre_feedforward_layernorm")
    """The norms before attention and the MLP; None for none."""

    def block(self, number: int) -> list[Table]:
        first, second = self.before or ("input", "self_attn.residual")
        attention, mlp = self.attention(number), self.mlp(number, second)
        for own in attention:
            own |= {"inputs": [first]} if own.get("inputs") == ["input_layernorm"] else {}
        norms = [[self.norm(name, read)] if self.before else [] for name, read in (
            (first, "input"), (second, "self_attn.residual"))]
        return [
            *norms[0],
            *attention,
            self.norm("post_attention_layernorm"),
            self.sum("self_attn.residual", "input", "post_attention_layernorm"),
            *norms[1],
            *mlp,
            self.norm("post_feedforward_layernorm"),
            self.sum("mlp.residual", "self_attn.residual", "post_feedforward_layernorm"),
        ]


class _Olmo2(_NormedHeads, _Sandwiched):
    before, by_head = None, False


class _Gemma(_Llama):
    activation, tied = "gelu_pytorch_tanh", True

    @property
    def heads(self) -> tuple[int, int, int]:
        heads, kv_heads, _ = super().heads
        return heads, kv_heads, self.config.size("head_dim", default=256)

    def embedding(self) -> list[Table]:
        factor = self.config.size(self.width) ** 0.5
        self.left_out[f"multiplication of embeddings by {factor:.6g}"] += 0
        if self.config.flag("use_bidirectional_attention"):
            problem = "should be false: each token sees those before it"
            raise self.config.refuse("use_bidirectional_attention", problem)
        return super().embedding()


class _Gemma2(_Sandwiched, _Gemma):
    period = 2
    """One layer of so many has no window."""

    def scale(self) -> float | None:
        scalar = self.config.number("query_pre_attn_scalar", default=256)
        return None if scalar == self.heads[2] else scalar**-0.5

    def kinds(self, depth: int) -> list[str]:
        return [
            "sliding_attention" if (n + 1) % self.period else "full_attention" for n in range(depth)
        ]

    def logits_cap(self) -> float:
        return self.config.number("final_logit_softcapping", default=0)


class _Gemma3(_NormedHeads, _Gemma2):
    @property
    def period(self) -> int:  # type: ignore[override]
        return self.config.size("sliding_window_pattern", "_sliding_window_pattern", default=6)


class _Mixtral(_Llama):
    """Feed-forward layers are mixtures of experts."""

    experts_key, units_key, router = "num_local_experts", "intermediate_size", "gate"

    def mlp(self, number: int, norm: str) -> list[Table]:  # noqa: ARG002
        config = self.config
        experts, top_k = config.size(self.experts_key), config.size("num_experts_per_tok")
        units = config.size(self.units_key, default=self.units_by_default)
        group = min(GROUP, self.positions())
        activation = _activation(config, "hidden_act", default=self.activation)
        share = -(-top_k * group // experts)
        self.remarks[
            f"an expert takes at most {share} tokens of each group of {group}: what it would take"
            " beyond is dropped, where the model drops none"
        ] = None
        router = f"mlp.{self.router}"
        if config.flag("output_router_logits"):
            self.left_out["the loss that balances experts' loads (output_router_logits)"] += 0
        if config.number("router_jitter_noise", default=0):
            self.left_out["noise of the router's inputs (router_jitter_noise)"] += 0
        return [
            layer(
                router,
                "router",
                norm,
                experts=experts,
                top_k=top_k,
                group=group,
                softmax=None if self.normalised() else "all",
            ),
            layer("mlp.dispatch", "dispatch", norm, router),
            layer("mlp.experts.gate_proj", "experts", "mlp.dispatch", units=units, activation=activation),
            layer("mlp.experts.up_proj", "experts", "mlp.dispatch", units=units),
            layer("mlp.experts.gated", "mul", "mlp.experts.gate_proj", "mlp.experts.up_proj"),
            layer("mlp.experts.down_proj", "experts", units=config.size(self.width)),
            layer("mlp.combine", "combine", "mlp.experts.down_proj", router),
        ]

    units_by_default: int | None = None

    def normalised(self) -> bool:
        """Return whether the weights of a token's experts add up to 1."""
        return True


class _QwenMoe(_Mixtral):
    """Some layers are dense, others have experts."""

    experts_key, units_key = "num_experts", "moe_intermediate_size"

    def mlp(self, number: int, norm: str) -> list[Table]:
        if self.is_dense(number):
            return _Llama.mlp(self, number, norm)
        # Of dense layers, where there are any.
        self.config.has("intermediate_size")
        return super().mlp(number, norm)

    def is_dense(self, number: int) -> bool:
        """Return whether a layer has no experts."""
        step = self.config.size("decoder_sparse_step", default=1)
        return number in self.config.numbers("mlp_only_layers") or bool((number + 1) % step)

    def normalised(self) -> bool:
        return self.config.flag("norm_topk_prob")

    def beside_shared(self, routed: list[Table], name: str, norm: str, units: int) -> list[Table]:
        """Return experts, and one that all tokens use beside them."""
        shared = self.gated(name, norm, units)
        return [
            *routed,
            *shared,
            layer("mlp.sum", "add", routed[-1]["name"], shared[-1]["name"]),
        ]


class _Qwen2Moe(_QwenMoe, _Qwen2):
    def mlp(self, number: int, norm: str) -> list[Table]:
        layers = super().mlp(number, norm)
        units = self.config.size("shared_expert_intermediate_size")
        if self.is_dense(number):
            return layers
        width = self.config.size(self.width)
        self.left_out["a sigmoid gate of what the shared expert adds"] += width
        return self.beside_shared(layers, "mlp.shared_expert", norm, units)


class _Qwen3Moe(_QwenMoe, _Qwen3):
    pass


class _GptOss(_Mixtral):
    router = "router"
    period = 2

    def kinds(self, depth: int) -> list[str]:
        return [
            "full_attention" if n % self.period else "sliding_attention" for n in range(depth)
        ]

    def attended(self, number: int, layers: list[Table], read: list[str]) -> list[Table]:
        self.left_out["sinks of attention, a score of each head"] += self.heads[0]
        return super().attended(number, layers, read)

    def mlp(self, number: int, norm: str) -> list[Table]:
        config = self.config
        layers = super().mlp(number, norm)
        experts, units = config.size(self.experts_key), config.size(self.units_key)
        self.left_out["biases of routers"] += experts
        self.left_out["biases of experts"] += experts * (2 * units + config.size(self.width))
        limit, alpha = config.number("swiglu_limit", default=7), config.number("swiglu_alpha", default=1.702)
        self.left_out[f"the clamps at {limit:g} of experts' gates and what they multiply, and its 1 more"] += 0
        if alpha != 1.702:
            raise config.refuse("swiglu_alpha", f"should be 1.702, got {alpha:g}")
        gate = next(own for own in layers if own["name"] == "mlp.experts.gate_proj")
        gate["activation"] = "quick_gelu"
        return layers


class _DeepseekV2(_QwenMoe):
    """Latent attention, and experts after some dense layers."""

    experts_key, units_key = "n_routed_experts", "moe_intermediate_size"

    def is_dense(self, number: int) -> bool:
        config = self.config
        if config.size("moe_layer_freq", default=1) != 1:
            raise config.refuse("moe_layer_freq", "should be 1: all layers but the first have experts")
        return number < config.number("first_k_dense_replace", default=0)

    def mlp(self, number: int, norm: str) -> list[Table]:
        config = self.config
        layers = super().mlp(number, norm)
        if config.number("n_group", default=1) > 1 and config.number("topk_group", default=1):
            self.left_out["the choice of groups of experts before experts"] += 0
        if (factor := config.number("routed_scaling_factor", default=1)) != 1:
            self.left_out[f"multiplication of experts' sums by {factor:g}"] += 0
        count = config.size("n_shared_experts", default=0)
        if self.is_dense(number) or not count:
            return layers
        units = count * config.size(self.units_key)
        return self.beside_shared(layers, "mlp.shared_experts", norm, units)

    def attention(self, number: int) -> list[Table]:
        config = self.config
        heads = config.size("num_attention_heads")
        nope, rope = config.size("qk_nope_head_dim"), config.size("qk_rope_head_dim")
        value = config.size("v_head_dim")
        bias = config.flag("attention_bias")
        query = heads * (nope + rope)
        latent = "self_attn.kv_a_proj_with_mqa"
        layers: list[Table] = []
        norm = "input_layernorm"
        if config.has("q_lora_rank"):
            rank = config.size("q_lora_rank")
            layers += [
                layer("self_attn.q_a_proj", "fc", norm, units=rank, bias=bias),
                self.norm("self_attn.q_a_layernorm"),
                layer("self_attn.q_b_proj", "fc", units=query),
            ]
        else:
            layers.append(layer("self_attn.q_proj", "fc", norm, units=query))
        read = layers[-1]["name"]
        layers += [
            layer(f"{latent}.latent", "fc", norm, units=config.size("kv_lora_rank"), bias=bias),
            self.norm("self_attn.kv_a_layernorm"),
            layer("self_attn.kv_b_proj.key", "fc", "self_attn.kv_a_layernorm", units=heads * nope),
            layer("self_attn.kv_b_proj.value", "fc", "self_attn.kv_a_layernorm", units=heads * value),
            layer(f"{latent}.rotary", "fc", norm, units=rope, bias=bias),
        ]
        keys = ["self_attn.kv_b_proj.key", "self_attn.kv_b_proj.value", f"{latent}.rotary"]
        return self.attended(number, layers, [read, *keys])

    @property
    def heads(self) -> tuple[int, int, int]:
        heads = self.config.size("num_attention_heads")
        # The features that turn; keys and values are of all heads, of a latent.
        for key in ("num_key_value_heads", "head_dim", "qk_head_dim"):
            self.config.has(key)
        return heads, heads, self.config.size("qk_rope_head_dim")


class _DeepseekV3(_DeepseekV2):
    def mlp(self, number: int, norm: str) -> list[Table]:
        layers = super().mlp(number, norm)
        if not self.is_dense(number):
            self.left_out["sigmoids of experts' logits in place of a softmax"] += 0
        if self.config.has("num_nextn_predict_layers"):
            self.remarks["layers that predict further tokens are none of transformers' model"] = None
        return layers

    def normalised(self) -> bool:
        return self.config.flag("norm_topk_prob", default=True)


MODEL_TYPES: dict[str, Callable[[Config], _Decoder]] = {
    "llama": _Llama,
    "mistral": _Llama,
    "qwen2": _Qwen2,
    "qwen3": _Qwen3,
    "phi3": _Phi3,
    "gemma": _Gemma,
    "gemma2": _Gemma2,
    "gemma3_text": _Gemma3,
    "olmo2": _Olmo2,
    "mixtral": _Mixtral,
    "qwen2_moe": _Qwen2Moe,
    "qwen3_moe": _Qwen3Moe,
    "deepseek_v2": _DeepseekV2,
    "deepseek_v3": _DeepseekV3,
    "gpt_oss": _GptOss,
    "gpt2": _Gpt2,
    "gpt_neox": _GptNeoX,
}
"""The types of models that are read, as ``model_type`` has them."""


def _activation(config: Config, *keys: str, default: str) -> str:
    word = config.word(*keys, default=default)
    if word not in ACTIVATIONS:
        raise config.refuse(keys[-1], unknown("activation", word, list(ACTIVATIONS)))
    return ACTIVATIONS[word] or word


def _rotary(model: _Decoder, size: int, *, kind: str = "", share: float = 1.0) -> Table:
    """Return the rotary positions of heads of some features."""
    config = model.config
    stated = config.table("rope_parameters")
    if stated.has(kind):
        stated = stated.table(kind)
    default = config.number("rope_theta", "rotary_emb_base", default=10_000.0)
    if kind == "sliding_attention":
        default = config.number("rope_local_base_freq", default=default)
    base = stated.number("rope_theta", default=default)
    share = config.number("partial_rotary_factor", default=share)
    features = int(size * stated.number("partial_rotary_factor", default=share))
    scaling = config.table("rope_scaling")
    words = (table.word("rope_type", "type", default="default") for table in (stated, scaling))
    for word in words:
        if word != "default":
            model.left_out[f"rotary positions' angles by {word!r}"] += 0
    rotary: Table = {"base": base} if base != 10_000.0 else {}
    return rotary | ({"features": features} if features < size else {})
