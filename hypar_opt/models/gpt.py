"""A GPT of any size, as a network.

Source: Radford et al., "Language models are unsupervised multitask learners", OpenAI 2019; sizes as
in Narayanan et al., SC21, section 5.1: feed-forward layers of four times the hidden size.
"""

from __future__ import annotations

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

    Raises
    ------
    HyparError
        Naming an argument that is not positive, or the heads that do not divide the hidden size.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> ho.gpt(layers=24, hidden=2304, heads=24).name
    'gpt:layers=24,hidden=2304,heads=24'
    """
    names = ("layers", "hidden", "heads", "tokens", "vocabulary")
    sizes = dict(zip(names, (layers, hidden, heads, tokens, vocabulary), strict=True))
    for key, size in sizes.items():
        if size < 1:
            raise HyparError(f"{key} should be 1 or more, got {size}")
    if hidden % heads:
        raise HyparError(f"heads should divide the hidden size {hidden}, got {heads}")
    given = {key: size for key, size in sizes.items() if size != _DEFAULTS.get(key)}
    keys = [f"{key}={size}" for key, size in given.items()] + ["dropout=true"] * dropout

    drops = {"dropout": True} if dropout else {}
    described = {
        "schema": "hypar-opt/network/2",
        "name": f"gpt:{','.join(keys)}",
        "input": {"tokens": tokens, "vocabulary": vocabulary},
        "layer": [
            _layer("token", "embedding", features=hidden),
            _layer("position", "embedding", inputs=[], features=hidden, vocabulary=tokens),
            _layer("embedded", "add", inputs=["token", "position"], **drops),
            _layer("norm", "norm", inputs=["decoder"], norm="layer"),
            _layer("head", "fc", units=vocabulary, tied="token"),
            _layer("loss", "output"),
        ],
        "block": [
            {
                "name": "decoder",
                "repeat": layers,
                "inputs": ["embedded"],
                "layer": _block(hidden, heads, drops),
            }
        ],
    }
    return validate(Network, described)


def _block(hidden: int, heads: int, drops: dict[str, bool]) -> list[dict[str, object]]:
    return [
        _layer("norm1", "norm", norm="layer"),
        _layer("qkv", "fc", units=3 * hidden, bias=True),
        _layer("attention", "attention", heads=heads, causal=True, **drops),
        _layer("proj", "fc", units=hidden, bias=True),
        _layer("add1", "add", inputs=["input", "proj"], **drops),
        _layer("norm2", "norm", norm="layer"),
        _layer("up", "fc", units=4 * hidden, bias=True, activation="gelu"),
        _layer("down", "fc", units=hidden, bias=True),
        _layer("add2", "add", inputs=["add1", "down"], **drops),
    ]


def _layer(name: str, kind: str, **own: object) -> dict[str, object]:
    return {"name": name, "kind": kind, **own}


_SIGNATURE = signature(gpt).parameters
_DEFAULTS = {
    key: own.default for key, own in _SIGNATURE.items() if own.default is not Parameter.empty
}


def of_keys(keys: str) -> Network:
    """Return the GPT of keys such as ``layers=24,hidden=2304,heads=24``.

    Raises
    ------
    HyparError
        Naming the key, and what would be right.
    """
    given: dict[str, Any] = {}
    for stated in keys.split(","):
        key, _, value = stated.strip().partition("=")
        if key not in _SIGNATURE:
            raise UnknownNameError("key of a GPT", key, list(_SIGNATURE))
        if key in given:
            raise HyparError(f"gpt:{key} is stated twice")
        if key == "dropout" and value in ("true", "false"):
            given[key] = value == "true"
        elif key != "dropout" and value.isascii() and value.isdecimal():
            # Not even parsed if very long: the conversion of a long number is slow.
            digits = value.lstrip("0") or "0"
            if len(digits) > len(str(LARGEST_SIZE)) or int(digits) > LARGEST_SIZE:
                raise HyparError(
                    f"gpt:{key} should be at most {LARGEST_SIZE:,}, got {value[:40]!r}"
                )
            given[key] = int(digits)
        else:
            wanted = "true or false" if key == "dropout" else "a whole number"
            raise HyparError(f"gpt:{key} should be {wanted}, got {value[:40]!r}")
    missing = [key for key in _SIGNATURE if key not in given and key not in _DEFAULTS]
    if missing:
        example = "gpt:layers=24,hidden=2304,heads=24"
        raise HyparError(f"gpt:{keys} lacks {', '.join(missing)}: it should be as {example}")
    return gpt(**given)
