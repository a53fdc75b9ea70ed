"""A GPT of any size, as a network; with grouped queries and a gated MLP a LLaMA.

Source: Radford et al., "Language models are unsupervised multitask learners", OpenAI 2019; sizes as
in Narayanan et al., SC21, section 5.1: feed-forward layers of four times the hidden size. Touvron
et al., "LLaMA: open and efficient foundation language models", 2023, for what is gated.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import Parameter, signature
from typing import Any

from hypar_opt.checked import checked
from hypar_opt.documents.document import LARGEST_SIZE, validate
from hypar_opt.errors import HyparError, UnknownNameError
from hypar_opt.workload.network import Network


@checked
def gpt(
    *,
    layers: int,
    hidden: int,
    heads: int,
    tokens: int = 2048,
    vocabulary: int = 51200,
    dropout: bool = False,
    kv_heads: int | None = None,
    ffn: int | None = None,
    gated: bool = False,
    tied: bool = True,
    rotary: bool = False,
) -> Network:
    """Return a GPT: a decoder of ``layers`` blocks whose head shares the embedding's weights.

    Parameters
    ----------
    hidden
        Features of a token; a multiple of ``heads``.
    tokens
        Of a sequence, all of which have a learned position.
    dropout
        Whether attention's scores and each residual branch are dropped at random.
    kv_heads
        Heads of keys and values, which divide ``heads`` (grouped queries); None for as many.
    ffn
        Features inside the MLP; None for four times ``hidden``.
    gated
        Whether the MLP is gated (SwiGLU), norms are of the root mean square and nothing has a bias,
        as in LLaMA.
    tied
        Whether the head shares the embedding's weights.
    rotary
        Whether positions are rotary, and none are learned.

    Raises
    ------
    HyparError
        Naming an argument that is not positive, or heads that do not divide what they should.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> ho.gpt(layers=24, hidden=2304, heads=24).name
    'gpt:layers=24,hidden=2304,heads=24'
    """
    sizes = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "tokens": tokens,
        "vocabulary": vocabulary,
        "kv_heads": heads if kv_heads is None else kv_heads,
        "ffn": 4 * hidden if ffn is None else ffn,
    }
    for key, size in sizes.items():
        if size < 1:
            raise HyparError(f"{key} should be 1 or more, got {size}")
    if hidden % heads:
        raise HyparError(f"heads should divide the hidden size {hidden}, got {heads}")
    if heads % sizes["kv_heads"]:
        raise HyparError(f"kv_heads should divide the {heads} heads, got {kv_heads}")
    words = {"dropout": dropout, "gated": gated, "tied": tied, "rotary": rotary}
    defaults = _DEFAULTS | {"kv_heads": heads, "ffn": 4 * hidden}
    keys = [f"{key}={size}" for key, size in sizes.items() if size != defaults.get(key)]
    keys += [f"{key}={value}".lower() for key, value in words.items() if value != _DEFAULTS[key]]

    drops = {"dropout": True} if dropout else {}
    norm = "rms" if gated else "layer"
    token = _layer("token", "embedding", features=hidden)
    positions = [
        _layer("position", "embedding", inputs=[], features=hidden, vocabulary=tokens),
        _layer("embedded", "add", inputs=["token", "position"], **drops),
    ]
    described = {
        "schema": "hypar-opt/network/2",
        "name": f"gpt:{','.join(keys)}",
        "input": {"tokens": tokens, "vocabulary": vocabulary},
        "layer": [
            token,
            *([] if rotary else positions),
            _layer("norm", "norm", inputs=["decoder"], norm=norm),
            _layer("head", "fc", units=vocabulary, **({"tied": "token"} if tied else {})),
            _layer("loss", "output"),
        ],
        "block": [
            {
                "name": "decoder",
                "repeat": layers,
                "inputs": ["token" if rotary else "embedded"],
                "layer": [
                    _layer("norm1", "norm", norm=norm),
                    *_attention(sizes, drops, rotary=rotary, separate=gated),
                    _layer("proj", "fc", units=hidden, **_bias(there=not gated)),
                    _layer("add1", "add", inputs=["input", "proj"], **drops),
                    _layer("norm2", "norm", norm=norm),
                    *_mlp(sizes["ffn"], gated=gated),
                    _layer("down", "fc", units=hidden, **_bias(there=not gated)),
                    _layer("add2", "add", inputs=["add1", "down"], **drops),
                ],
            }
        ],
    }
    return validate(Network, described)


def _attention(
    sizes: Mapping[str, int], drops: Mapping[str, bool], *, rotary: bool, separate: bool
) -> list[dict[str, object]]:
    """Return the projections to queries, keys and values, and attention itself."""
    hidden, heads, kv_heads = sizes["hidden"], sizes["heads"], sizes["kv_heads"]
    keys: dict[str, object] = {"heads": heads, "causal": True, **drops}
    keys |= {"rotary": {}} if rotary else {}
    if not separate and kv_heads == heads:
        return [
            _layer("qkv", "fc", units=3 * hidden, bias=True),
            _layer("attention", "attention", **keys),
        ]
    units = {"query": hidden, **dict.fromkeys(("key", "value"), hidden // heads * kv_heads)}
    bias = _bias(there=not separate)
    return [
        *(_layer(name, "fc", inputs=["norm1"], units=n, **bias) for name, n in units.items()),
        _layer("attention", "attention", inputs=[*units], kv_heads=kv_heads, **keys),
    ]


def _mlp(ffn: int, *, gated: bool) -> list[dict[str, object]]:
    """Return an MLP but for its last layer."""
    if not gated:
        return [_layer("up", "fc", units=ffn, bias=True, activation="gelu")]
    return [
        _layer("gate", "fc", inputs=["norm2"], units=ffn, activation="silu"),
        _layer("up", "fc", inputs=["norm2"], units=ffn),
        _layer("gated", "mul", inputs=["gate", "up"]),
    ]


def _bias(*, there: bool) -> dict[str, bool]:
    return {"bias": True} if there else {}


def _layer(name: str, kind: str, **keys: object) -> dict[str, object]:
    return {"name": name, "kind": kind, **keys}


_SIGNATURE = signature(gpt).parameters
_DEFAULTS = {
    key: parameter.default
    for key, parameter in _SIGNATURE.items()
    if parameter.default is not Parameter.empty
}


def gpt_of_keys(keys: str) -> Network:
    """Return the GPT of keys such as ``layers=24,hidden=2304,heads=24``.

    Raises
    ------
    HyparError
        Naming the key, and what would be right.
    """
    sizes: dict[str, Any] = {}
    for stated in keys.split(","):
        key, _, value = stated.strip().partition("=")
        if key not in _SIGNATURE:
            raise UnknownNameError("key of a GPT", key, list(_SIGNATURE))
        if key in sizes:
            raise HyparError(f"gpt:{key} is stated twice")
        is_word = isinstance(_DEFAULTS.get(key), bool)
        if is_word and value in ("true", "false"):
            sizes[key] = value == "true"
        elif not is_word and value.isascii() and value.isdecimal():
            # Not even parsed if very long: the conversion of a long number is slow.
            digits = value.lstrip("0") or "0"
            if len(digits) > len(str(LARGEST_SIZE)) or int(digits) > LARGEST_SIZE:
                raise HyparError(
                    f"gpt:{key} should be at most {LARGEST_SIZE:,}, got {value[:40]!r}"
                )
            sizes[key] = int(digits)
        else:
            wanted = "true or false" if is_word else "a whole number"
            raise HyparError(f"gpt:{key} should be {wanted}, got {value[:40]!r}")
    missing = [key for key in _SIGNATURE if key not in sizes and key not in _DEFAULTS]
    if missing:
        example = "gpt:layers=24,hidden=2304,heads=24"
        raise HyparError(f"gpt:{keys} lacks {', '.join(missing)}: it should be as {example}")
    return gpt(**sizes)
