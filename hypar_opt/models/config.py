"""A language model's ``config.json``, as Hugging Face's transformers write it, as a network.

Layers have the names of the model's modules; where it has no module, as for sums, of what they do.
What changes the arithmetic and has no words in a network is named in ``not_kept``; so are keys that
nothing reads. Parameters are all there.

Source: huggingface/transformers v5.24.0, ``models/*/configuration_*.py`` and ``modeling_*.py`` of
the types in `DECODERS`, of GPT-2 and of GPT-NeoX.
"""

from __future__ import annotations

from functools import cached_property
from itertools import groupby
from math import gcd
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hypar_opt.documents.files import file_name, read_text
from hypar_opt.documents.kinds import read_as
from hypar_opt.documents.parsing import parse_json, shown
from hypar_opt.errors import InputError, unknown
from hypar_opt.models.config_keys import Config
from hypar_opt.workload.omitted import described_slots

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    Table = dict[str, Any]

ACTIVATIONS = {
    **{word: word for word in ("silu", "relu", "relu6", "quick_gelu", "tanh", "sigmoid", "mish")},
    **dict.fromkeys(("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), "gelu"),
    "gelu": "gelu_erf",
    "swish": "silu",
    "relu2": "squared_relu",
}
"""The activations of networks, by transformers' words."""

ELEMENT_TYPES = {word: word for word in ("float16", "bfloat16", "float64")} | {"float32": None}

GROUP = 64
"""The tokens of which each expert takes its equal share, as in the zoo's mixtures of experts."""


class Decoder(NamedTuple):
    """What distinguishes a type of model beyond its keys.

    Parameters
    ----------
    activation, tied, head_dim, qkv_bias, normalised
        Its default where a key does not say: of the MLP's activation, whether head and embedding
        share weights, the features of a head (None: their equal share), whether queries, keys and
        values have a bias, whether the weights of a token's experts add up to 1.
    output_bias
        Whether ``attention_bias`` is of the projection of attention's output, too.
    norms
        Whether queries and keys are normalised: each of their heads, or all together.
    fused
        Whether one weight projects to queries, keys and values, and one to both halves of an MLP.
    before, after
        Whether what attention and the MLP read is normalised, and what they write.
    scaled
        Whether embeddings are multiplied by the root of their features.
    period
        Layers of which the last alone sees all tokens where others have a window; 0 where all have
        it that are after ``max_window_layers``.
    slides
        Whether there is a window where ``use_sliding_window`` does not say.
    sigmoid
        Whether sigmoids weigh experts, of the best groups, where softmax does else.
    sinks
        Whether attention has a learned score of each head beside those of its keys.
    router, expert_bias, clipped
        The router's name in the MLP; whether it and experts have biases; whether both factors of an
        expert are clipped.
    """

    activation: str = "silu"
    tied: bool = False
    head_dim: int | None = None
    qkv_bias: bool = False
    normalised: bool = True
    output_bias: bool = True
    norms: Literal["heads", "all"] | None = None
    fused: bool = False
    before: bool = True
    after: bool = False
    scaled: bool = False
    period: int = 0
    slides: bool = True
    sigmoid: bool = False
    sinks: bool = False
    router: str = "gate"
    expert_bias: bool = False
    clipped: bool = False


_GEMMA = Decoder(activation="gelu_pytorch_tanh", tied=True, head_dim=256, scaled=True)
_QWEN2 = Decoder(qkv_bias=True, output_bias=False, slides=False, normalised=False)
_QWEN3 = Decoder(head_dim=128, norms="heads", slides=False, normalised=False)

DECODERS = {
    "llama": Decoder(),
    "mistral": Decoder(),
    "mixtral": Decoder(),
    "phi3": Decoder(fused=True),
    "qwen2": _QWEN2,
    "qwen2_moe": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "gemma": _GEMMA,
    "gemma2": _GEMMA._replace(after=True, period=2),
    "gemma3_text": _GEMMA._replace(after=True, period=6, norms="heads"),
    "olmo2": Decoder(norms="all", before=False, after=True),
    "deepseek_v2": Decoder(normalised=False),
    "deepseek_v3": Decoder(sigmoid=True),
    "gpt_oss": Decoder(period=2, sinks=True, router="router", expert_bias=True, clipped=True),
}
"""The types of models of decoder layers as LLaMA has them."""


class _Parts(NamedTuple):
    """A model as layers before its blocks, the blocks, and layers after them."""

    tokens: int
    """The maximum positions that it was trained for."""
    embedding: list[Table]
    name: str
    """The name of its blocks, without their numbers."""
    blocks: list[list[Table]]
    norm: Table
    head: str
    tied: bool
    """Whether head and embedding share weights where ``tie_word_embeddings`` does not say."""
    softcap: float = 0.0


class _Notes:
    """The omitted parts of a model, and remarks on how the rest was read."""

    def __init__(self) -> None:
        self.omissions: dict[str, None] = {}
        self.remarks: dict[str, None] = {}

    def leave_out(self, part: str) -> None:
        """Note a part that is left out, once."""
        self.omissions[part] = None

    def keys(self) -> Table:
        """Return the keys of a network's file with both."""
        keys = {"not_kept": [*self.omissions], "remarks": [*self.remarks]}
        return {key: value for key, value in keys.items() if value}


def read_config(path: str | Path) -> Table:
    """Read a configuration as the content of a network's file.

    Raises
    ------
    InputError
        Naming the file and the key, and what would be right.
    """
    file, text = file_name(path), read_text(path)
    with read_as("network", text, file):
        keys = parse_json(text, file=file)
        try:
            return content_of(keys)
        except InputError as error:
            raise InputError(error.problem, where=error.where, file=file) from None


def content_of(keys: object) -> Table:
    """Return the content of a network's file for the keys of a configuration.

    Its sequences have all the positions that the model has been trained for.

    Raises
    ------
    InputError
        Naming the key, and what would be right.
    """
    if not isinstance(keys, dict) or "model_type" not in keys:
        raise InputError("should be a table with the key 'model_type', as transformers write it")
    config, notes = Config(keys), _Notes()
    kind = config.word("model_type")
    if kind not in (kinds := ["gpt2", "gpt_neox", *DECODERS]):
        raise InputError(unknown("type of model", kind, kinds), where="model_type")
    for name in config.words("architectures"):
        if not name.endswith(("ForCausalLM", "LMHeadModel")):
            problem = f"should be a model with a head of its vocabulary, got {shown(name)}"
            raise config.refuse("architectures", problem)
    if kind in DECODERS:
        parts = _DecoderLayers(config, DECODERS[kind], notes).parts()
    else:
        parts = (_gpt2 if kind == "gpt2" else _gpt_neox)(config, notes)
    vocabulary = config.size("vocab_size")
    tied = config.flag("tie_word_embeddings", default=parts.tied)
    element_type = config.word("dtype", "torch_dtype", default="float32")
    if element_type not in ELEMENT_TYPES:
        problem = f"should be one of {', '.join(ELEMENT_TYPES)}, got {shown(element_type)}"
        raise config.refuse("dtype", problem)
    if config.has("quantization_config"):
        notes.leave_out("quantisation (quantization_config)")
    name = config.word("_name_or_path", default="").rstrip("/").rpartition("/")[2] or kind
    if unread := config.unread():
        notes.leave_out(f"what these keys say: {', '.join(unread)}")
    head = _layer(
        parts.head, "fc", units=vocabulary, tied=parts.embedding[0]["name"] if tied else None
    )
    stated = {"element_type": ELEMENT_TYPES[element_type]} if ELEMENT_TYPES[element_type] else {}
    return {
        "schema": "hypar-opt/network/2",
        "name": name,
        "source": "a config.json of Hugging Face transformers",
        **stated,
        **notes.keys(),
        "input": {"tokens": parts.tokens, "vocabulary": vocabulary},
        "layer": [
            *parts.embedding,
            {**parts.norm, "inputs": [parts.name]},
            head,
            _layer("loss", "output", softcap=parts.softcap),
        ],
        "block": [*_runs(parts)],
    }


def _runs(parts: _Parts) -> Iterator[Table]:
    """Yield the runs of equal blocks, numbered as the model's."""
    first = 0
    for block, run in groupby(parts.blocks):
        count = len([*run])
        start = {"first": first} if first else {"inputs": [parts.embedding[-1]["name"]]}
        yield {"name": parts.name, "repeat": count, **start, "layer": block}
        first += count


def _layer(name: str, kind: str, *inputs: str, **keys: object) -> Table:
    """Return a layer's table, without keys that are false, 0 or None."""
    reads = {"inputs": [*inputs]} if inputs else {}
    return {"name": name, "kind": kind, **reads, **{k: v for k, v in keys.items() if v}}


def _activation(config: Config, *keys: str, default: str) -> str:
    word = config.word(*keys, default=default)
    if word not in ACTIVATIONS:
        raise config.refuse(keys[-1], unknown("activation", word, [*ACTIVATIONS]))
    return ACTIVATIONS[word]


def _rotary(
    config: Config,
    notes: _Notes,
    size: int,
    *,
    kind: str = "",
    share: float = 1.0,
    interleaved: bool = False,
) -> Table:
    """Return the key of rotary positions of heads of some features.

    Parameters
    ----------
    kind
        The word of a layer's attention, which may have angles of its own.
    share
        Of the features that turn, where no key says.
    interleaved
        Whether pairs are neighbours, where no key says.
    """
    stated = config.table("rope_parameters")
    if stated.has(kind):
        stated = stated.table(kind)
    base = config.number("rope_theta", "rotary_emb_base", default=10_000.0)
    if kind == "sliding_attention":
        base = config.number("rope_local_base_freq", default=base)
    base = stated.number("rope_theta", default=base)
    share = config.number("partial_rotary_factor", "rotary_pct", default=share)
    features = int(size * stated.number("partial_rotary_factor", default=share))
    for table in (stated, config.table("rope_scaling")):
        if (word := table.word("rope_type", "type", default="default")) != "default":
            notes.leave_out(f"the angles of rotary positions by {word!r}")
    turned: Table = {"features": features} if features < size else {}
    if config.flag("rope_interleave", default=interleaved):
        turned["interleaved"] = True
    return {"rotary": {**({"base": base} if base != 10_000 else {}), **turned}}


def _gpt2(config: Config, notes: _Notes) -> _Parts:
    width, tokens = config.size("n_embd"), config.size("n_positions")
    drops = {
        key: bool(config.number(key, default=0.1))
        for key in ("embd_pdrop", "resid_pdrop", "attn_pdrop")
    }
    if config.flag("add_cross_attention"):
        raise config.refuse("add_cross_attention", "should be false: a decoder alone is read")
    if config.flag("scale_attn_by_inverse_layer_idx"):
        notes.leave_out("the division of scores by the number of their layer")
    dropout = drops["resid_pdrop"]
    norm = {"norm": "layer", "epsilon": config.number("layer_norm_epsilon", default=1e-5)}
    names = ("transformer.wte", "transformer.wpe")
    block = [
        _layer("ln_1", "norm", **norm),
        _layer("attn.c_attn", "fc", units=3 * width, bias=True),
        _layer(
            "attn.attention",
            "attention",
            heads=config.size("n_head"),
            causal=True,
            scale=None if config.flag("scale_attn_weights", default=True) else 1.0,
            dropout=drops["attn_pdrop"],
        ),
        _layer("attn.c_proj", "fc", units=width, bias=True),
        _layer("attn.residual", "add", "input", "attn.c_proj", dropout=dropout),
        _layer("ln_2", "norm", **norm),
        _layer(
            "mlp.c_fc",
            "fc",
            units=config.size("n_inner", default=4 * width),
            bias=True,
            activation=_activation(config, "activation_function", default="gelu_new"),
        ),
        _layer("mlp.c_proj", "fc", units=width, bias=True),
        _layer("mlp.residual", "add", "attn.residual", "mlp.c_proj", dropout=dropout),
    ]
    return _Parts(
        tokens,
        [
            _layer(names[0], "embedding", features=width),
            {**_layer(names[1], "embedding", features=width, vocabulary=tokens), "inputs": []},
            _layer("transformer.embedded", "add", *names, dropout=drops["embd_pdrop"]),
        ],
        "transformer.h",
        [block] * config.size("n_layer"),
        _layer("transformer.ln_f", "norm", **norm),
        "lm_head",
        tied=True,
    )


def _gpt_neox(config: Config, notes: _Notes) -> _Parts:
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    bias = config.flag("attention_bias", default=True)
    dropout = bool(config.number("hidden_dropout", default=0))
    norm = {"norm": "layer", "epsilon": config.number("layer_norm_eps", default=1e-5)}
    block = [
        _layer("input_layernorm", "norm", **norm),
        _layer("attention.query_key_value", "fc", units=3 * width, bias=bias),
        _layer(
            "attention.attention",
            "attention",
            heads=heads,
            causal=True,
            dropout=bool(config.number("attention_dropout", default=0)),
        )
        | _rotary(config, notes, width // heads, share=0.25),
        _layer("attention.dense", "fc", units=width, bias=bias),
    ]
    second, addends = "input", ["input", "attention.dense"]
    if not config.flag("use_parallel_residual", default=True):
        second, addends = "attention.residual", ["attention.residual"]
        block.append(_layer(second, "add", "input", "attention.dense", dropout=dropout))
    block += [
        _layer("post_attention_layernorm", "norm", second, **norm),
        _layer(
            "mlp.dense_h_to_4h",
            "fc",
            units=config.size("intermediate_size"),
            bias=True,
            activation=_activation(config, "hidden_act", default="gelu"),
        ),
        _layer("mlp.dense_4h_to_h", "fc", units=width, bias=True),
        _layer("mlp.residual", "add", *addends, "mlp.dense_4h_to_h", dropout=dropout),
    ]
    return _Parts(
        config.size("max_position_embeddings"),
        [_layer("gpt_neox.embed_in", "embedding", features=width)],
        "gpt_neox.layers",
        [block] * config.size("num_hidden_layers"),
        _layer("gpt_neox.final_layer_norm", "norm", **norm),
        "lm_head",
        tied=False,
    )


class _DecoderLayers:
    """The layers of a model as LLaMA has them, or nearly so."""

    def __init__(self, config: Config, decoder: Decoder, notes: _Notes) -> None:
        self.config = config
        self.decoder = decoder
        self.notes = notes
        self.width = config.size("hidden_size")
        self.depth = config.size("num_hidden_layers")
        self.tokens = config.size("max_position_embeddings")

    def parts(self) -> _Parts:
        config, notes = self.config, self.notes
        scale = self.width**0.5 if self.decoder.scaled else None
        if config.number("embd_pdrop", default=0):
            notes.leave_out("the dropout of embeddings")
        if config.flag("use_bidirectional_attention"):
            problem = "should be false: a token sees those before it"
            raise config.refuse("use_bidirectional_attention", problem)
        return _Parts(
            self.tokens,
            [_layer("model.embed_tokens", "embedding", features=self.width, scale=scale)],
            "model.layers",
            [self._block(number) for number in range(self.depth)],
            self._norm("model.norm"),
            "lm_head",
            tied=self.decoder.tied,
            softcap=config.number("final_logit_softcapping", default=0),
        )

    def _block(self, number: int) -> list[Table]:
        before, after = self.decoder.before, self.decoder.after
        first = "input_layernorm" if before else "input"
        attention = self._attention(number, first)
        residual = "self_attn.residual"
        names = ("pre_feedforward_layernorm", "post_attention_layernorm")
        second = names[not after] if before else residual
        dense = self._is_dense(number)
        mlp = self._gated("mlp", second, "intermediate_size") if dense else self._experts(second)
        added = [attention[-1]["name"], mlp[-1]["name"]]
        written = [names[1], "post_feedforward_layernorm"] if after else []
        dropout = bool(self.config.number("resid_pdrop", default=0))
        return [
            *([self._norm(first)] if before else []),
            *attention,
            *(self._norm(name) for name in written[:1]),
            _layer(residual, "add", "input", (written or added)[0], dropout=dropout),
            *([self._norm(second)] if before else []),
            *mlp,
            *(self._norm(name) for name in written[1:]),
            _layer("mlp.residual", "add", residual, (written or added)[1], dropout=dropout),
        ]

    def _norm(self, name: str, *inputs: str, **keys: object) -> Table:
        epsilon = self.config.number("rms_norm_eps", default=1e-6)
        return _layer(name, "norm", *inputs, norm="rms", epsilon=epsilon, **keys)

    @cached_property
    def heads(self) -> tuple[int, int, int]:
        """The heads of queries, those of keys and values, and the features of one."""
        config = self.config
        heads = config.size("num_attention_heads")
        if not (size := self.decoder.head_dim or self.width // heads):
            problem = f"should be at most hidden_size, {self.width}, got {heads}"
            raise config.refuse("num_attention_heads", problem)
        size = config.size("head_dim", default=size)
        return heads, config.size("num_key_value_heads", default=heads), size

    def _heads(self, norm: str) -> tuple[list[Table], list[str]]:
        """Return the layers that write queries, keys and values, and what attention reads."""
        config, decoder = self.config, self.decoder
        heads, kv_heads, size = self.heads
        bias = config.flag("qkv_bias", "attention_bias", default=decoder.qkv_bias)
        if decoder.fused:
            name = "self_attn.qkv_proj"
            return [_layer(name, "fc", norm, units=(heads + 2 * kv_heads) * size)], [name]
        counts = {"q": heads, "k": kv_heads, "v": kv_heads}
        projections = {
            word: _layer(f"self_attn.{word}_proj", "fc", norm, units=count * size, bias=bias)
            for word, count in counts.items()
        }
        norms = {
            word: self._norm(
                f"self_attn.{word}_norm",
                f"self_attn.{word}_proj",
                heads=counts[word] if decoder.norms == "heads" else None,
            )
            for word in ("qk" if decoder.norms else "")
        }
        layers = [projections["q"], projections["k"], *norms.values(), projections["v"]]
        return layers, [layer["name"] for layer in (projections | norms).values()]

    def _latent(self, norm: str) -> tuple[list[Table], list[str]]:
        """Return the layers of latent attention (MLA), whose keys and values are of a latent.

        All heads share the features of keys that turn, which are of what the latent is of.
        """
        config = self.config
        heads, rotary = config.size("num_attention_heads"), config.size("qk_rope_head_dim")
        features = config.size("qk_nope_head_dim")
        for key in ("num_key_value_heads", "head_dim", "qk_head_dim"):
            config.has(key)  # said by others, too
        bias = config.flag("attention_bias")
        down, up = "self_attn.kv_a_proj_with_mqa", "self_attn.kv_b_proj"
        part = {"bias": bias, "part": True}
        latent = self._norm("self_attn.kv_a_layernorm", f"{down}.latent")
        query = {"units": heads * (features + rotary)}
        queries = [_layer("self_attn.q_proj", "fc", norm, **query)]
        if config.has("q_lora_rank"):
            rank = config.size("q_lora_rank")
            queries = [
                _layer("self_attn.q_a_proj", "fc", norm, units=rank, bias=bias),
                self._norm("self_attn.q_a_layernorm"),
                _layer("self_attn.q_b_proj", "fc", **query),
            ]
        widths = {"key": features, "value": config.size("v_head_dim")}
        layers = [
            _layer(f"{down}.latent", "fc", norm, units=config.size("kv_lora_rank"), **part),
            latent,
            *queries,
            *(
                _layer(f"{up}.{word}", "fc", latent["name"], units=heads * width, part=True)
                for word, width in widths.items()
            ),
            _layer(f"{down}.rotary", "fc", norm, units=rotary, **part),
        ]
        return layers, [layer["name"] for layer in layers[-4:]]

    def _attention(self, number: int, norm: str) -> list[Table]:
        """Return attention, with the layers before and behind it."""
        config = self.config
        word = self._attention_words[number]
        heads, kv_heads, size = self.heads
        latent = config.has("kv_lora_rank")
        layers, reads = (self._latent if latent else self._heads)(norm)
        if latent:
            kv_heads, size = heads, config.size("qk_rope_head_dim")
        sinks = []
        if self.decoder.sinks:
            table = _layer("self_attn.sinks", "embedding", features=heads, vocabulary=1)
            sinks.append({**table, "inputs": []})
            reads.append(table["name"])
        scalar = config.number("query_pre_attn_scalar", default=size)
        core = _layer(
            "self_attn.attention",
            "attention",
            *reads,
            heads=heads,
            kv_heads=kv_heads,
            causal=True,
            window=config.size("sliding_window") if word == "sliding_attention" else None,
            scale=None if scalar == size else scalar**-0.5,
            softcap=config.number("attn_logit_softcapping", default=0),
            sinks=self.decoder.sinks,
            dropout=bool(config.number("attention_dropout", default=0)),
        ) | _rotary(config, self.notes, size, kind=word, interleaved=latent)
        bias = self.decoder.output_bias and config.flag("attention_bias")
        output = _layer("self_attn.o_proj", "fc", units=self.width, bias=bias)
        return [*layers, *sinks, core, output]

    @cached_property
    def _attention_words(self) -> list[str]:
        """The word of each layer's attention, as ``layer_types`` has it."""
        config, depth = self.config, self.depth
        full, sliding = "full_attention", "sliding_attention"
        slides = config.flag("use_sliding_window", default=self.decoder.slides)
        period = config.size(
            "sliding_window_pattern", "_sliding_window_pattern", default=self.decoder.period or 1
        )
        first = int(config.number("max_window_layers", default=0))
        slides = config.has("sliding_window") and slides
        words = config.words("layer_types") or [
            sliding
            if slides and n >= first and (self.decoder.period == 0 or (n + 1) % period)
            else full
            for n in range(depth)
        ]
        if len(words) != depth:
            problem = f"should have {depth} words, one for each layer, got {len(words)}"
            raise config.refuse("layer_types", problem)
        for word in words:
            if word not in (full, sliding):
                raise config.refuse(
                    "layer_types", f"should be {full} or {sliding}, got {shown(word)}"
                )
        return words

    def _gated(self, name: str, norm: str, *keys: str, times: int = 1) -> list[Table]:
        """Return a gated MLP whose inner features a key says."""
        config = self.config
        sizes = {"units": times * config.size(*keys), "bias": config.flag("mlp_bias")}
        fused = self.decoder.fused
        form = f"{name}.gate_up_proj.{{}}" if fused else f"{name}.{{}}_proj"
        gate, up, gated = form.format("gate"), form.format("up"), f"{name}.gated"
        return [
            _layer(gate, "fc", norm, **sizes, part=fused, activation=self._activation()),
            _layer(up, "fc", norm, **sizes, part=fused),
            _layer(gated, "mul", gate, up),
            _layer(f"{name}.down_proj", "fc", units=self.width, bias=sizes["bias"]),
        ]

    def _activation(self) -> str:
        keys = ("hidden_activation", "hidden_act")
        return _activation(self.config, *keys, default=self.decoder.activation)

    EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")

    def _is_dense(self, number: int) -> bool:
        """Return whether a block has an MLP, in place of a mixture of experts."""
        config = self.config
        if not any(config.has(key) for key in self.EXPERTS):
            return True
        if config.size("moe_layer_freq", default=1) > 1:
            raise config.refuse("moe_layer_freq", "should be 1: all blocks but the first")
        step = config.size("decoder_sparse_step", default=1)
        first = config.number("first_k_dense_replace", default=0)
        return (
            number < first or number in config.numbers("mlp_only_layers") or (number + 1) % step > 0
        )

    def _experts(self, norm: str) -> list[Table]:
        """Return a mixture of experts, with those that all tokens use."""
        config = self.config
        experts, top_k = config.size(*self.EXPERTS), config.size("num_experts_per_tok")
        units = config.size("moe_intermediate_size", "intermediate_size")
        group = gcd(GROUP, self.tokens)
        share = -(-top_k * group // experts)
        self.notes.remarks[
            f"{described_slots(share, group)}: what it would take beyond is dropped, where the"
            " model drops none"
        ] = None
        self._leave_out_of_experts()
        router, bias = f"mlp.{self.decoder.router}", self.decoder.expert_bias
        gate, up, gated, down = (
            f"mlp.experts.{word}" for word in ("gate_proj", "up_proj", "gated", "down_proj")
        )
        activations: tuple[str, str | None] = (self._activation(), None)
        if self.decoder.clipped:
            for key, value in (("swiglu_alpha", 1.702), ("swiglu_limit", 7)):
                if (stated := config.number(key, default=value)) != value:
                    raise config.refuse(key, f"should be {value:g}, got {stated:g}")
            activations = ("clipped_quick_gelu", "clipped_plus_one")
        routed = [
            _layer(
                router,
                "router",
                norm,
                experts=experts,
                top_k=top_k,
                group=group,
                bias=bias,
                **self._weighing(),
            ),
            _layer("mlp.dispatch", "dispatch", norm, router),
            *(
                _layer(name, "experts", "mlp.dispatch", units=units, bias=bias, activation=word)
                for name, word in zip((gate, up), activations, strict=True)
            ),
            _layer(gated, "mul", gate, up),
            _layer(down, "experts", units=self.width, bias=bias),
            _layer("mlp.combine", "combine", down, router),
        ]
        if config.has("shared_expert_intermediate_size"):
            shared = self._gated("mlp.shared_expert", norm, "shared_expert_intermediate_size")
            by, last = "mlp.shared_expert_gate", shared[-1]["name"]
            shared += [
                _layer(by, "fc", norm, units=1, activation="sigmoid"),
                _layer("mlp.shared_expert.weighed", "mul", last, by, gate=True),
            ]
        elif config.has("n_shared_experts"):
            times = config.size("n_shared_experts")
            shared = self._gated("mlp.shared_experts", norm, "moe_intermediate_size", times=times)
        else:
            return routed
        return [*routed, *shared, _layer("mlp.sum", "add", "mlp.combine", shared[-1]["name"])]

    def _weighing(self) -> Table:
        """Return the keys of a router that say how experts are chosen and weighed."""
        config, sigmoid = self.config, self.decoder.sigmoid
        scores = "sigmoid" if sigmoid else "softmax"
        if config.word("scoring_func", default=scores) != scores:
            raise config.refuse("scoring_func", f"should be {scores}, as transformers compute it")
        normalised = config.flag("norm_topk_prob", default=self.decoder.normalised)
        method = config.word("topk_method", default="noaux_tc" if sigmoid else "greedy")
        groups = config.size("n_group", default=8 if sigmoid else 1)
        top = config.size("topk_group", default=4 if sigmoid else 1)
        factor = config.number("routed_scaling_factor", default=2.5 if sigmoid else 1)
        return {
            "softmax": None if normalised or sigmoid else "all",
            "sigmoid": ("normalised" if normalised else "plain") if sigmoid else None,
            "factor": factor if factor != 1 else None,
            **({"expert_groups": groups, "top_groups": top} if method != "greedy" else {}),
        }

    def _leave_out_of_experts(self) -> None:
        """Note the parts of routers and experts that a network lacks."""
        config, notes = self.config, self.notes
        if config.flag("output_router_logits"):
            notes.leave_out("the loss that balances experts' loads (output_router_logits)")
        if config.number("router_jitter_noise", default=0):
            notes.leave_out("the noise of routers' inputs (router_jitter_noise)")
        if self.decoder.sigmoid:
            notes.leave_out("what corrects the choice of experts by load (e_score_correction_bias)")
        if config.number("num_nextn_predict_layers", default=0):
            notes.remarks["its layers that predict further tokens are not transformers'"] = None
