"""A step of a GPT in JAX that scans over its blocks, sharded by an exported file."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BLOCKS, WIDTH, WORDS, TOKENS, HEADS, BATCH = 2, 16, 32, 8, 8, 8
INSIDE = {
    "norm1": (WIDTH,),
    "qkv": (WIDTH, 3 * WIDTH),
    "proj": (WIDTH, WIDTH),
    "norm2": (WIDTH,),
    "up": (WIDTH, 4 * WIDTH),
    "down": (4 * WIDTH, WIDTH),
}
"""The parameters of `gpt`'s blocks."""


def parameters(rng: np.random.Generator, *, stacked: int) -> Any:
    """Return a tree with an array of all blocks for each of their parameters."""

    def drawn(*size: int) -> Any:
        return rng.normal(size=size) / 4

    def of_all(*size: int) -> Any:
        return np.moveaxis(drawn(BLOCKS, *size), 0, stacked)

    decoder = {name: {"kernel": of_all(*size)} for name, size in INSIDE.items()}
    decoder["qkv"]["bias"] = of_all(3 * WIDTH)
    outside: dict[str, tuple[int, ...]] = {
        "token": (WORDS, WIDTH),
        "position": (TOKENS, WIDTH),
    }
    outside |= {"norm": (WIDTH,), "head": (WIDTH, WORDS)}
    return {name: drawn(*size) for name, size in outside.items()} | {"decoder": decoder}


def loss(p: Any, ids: Any, labels: Any, laid_out: Any) -> Any:
    """Return the loss of a batch: one block's text, which the scan repeats."""

    def normed(x: Any, scale: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale

    def block(x: Any, own: Any) -> tuple[Any, None]:
        read = normed(x, own["norm1"]["kernel"])
        qkv = laid_out("decoder.qkv", read @ own["qkv"]["kernel"] + own["qkv"]["bias"])
        q, k, v = (part.reshape(*x.shape[:2], HEADS, -1) for part in jnp.split(qkv, 3, axis=-1))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
        seen = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
        weights = jax.nn.softmax(jnp.where(seen, scores, -jnp.inf))
        mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape)
        x = x + laid_out("decoder.attention", mixed) @ own["proj"]["kernel"]
        read = normed(x, own["norm2"]["kernel"])
        wide = laid_out("decoder.up", jax.nn.gelu(read @ own["up"]["kernel"]))
        return x + wide @ own["down"]["kernel"], None

    x = laid_out("embedded", p["token"][ids] + p["position"])
    x, _ = jax.lax.scan(block, x, p["decoder"])
    logits = jax.nn.log_softmax(normed(x, p["norm"]) @ p["head"])
    return -jnp.take_along_axis(logits, labels[..., None], -1).sum()


def found_of(shardings: Path) -> dict[str, Any]:
    """Return the shards of all parameters, and by how much a step differs from one device's.

    Where repetitions are split differently, what the refusal says.
    """
    made: dict[str, Any] = {}
    exec(shardings.read_text(), made)
    rng = np.random.default_rng(0)
    whole, on = parameters(rng, stacked=0), made["mesh"]()
    ids, labels = (rng.integers(0, WORDS, (BATCH, TOKENS)) for _ in range(2))
    try:
        placed = jax.device_put(whole, made["parameter_shardings"](whole, on))
    except ValueError as error:
        return {"refused": str(error)}

    def step(p: Any, *, sharded: bool) -> Any:
        def laid_out(name: str, x: Any) -> Any:
            return made["constrain"](name, x, on) if sharded else x

        return jax.jit(jax.value_and_grad(lambda own: loss(own, ids, labels, laid_out)))(p)

    (one, alone), (two, gradients) = step(whole, sharded=False), step(placed, sharded=True)
    apart = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), alone, gradients)
    second = parameters(rng, stacked=1)
    along_second = jax.device_put(second, made["parameter_shardings"](second, on, stacked=1))
    return {
        "loss": abs(float(one - two)),
        "gradients": max(jax.tree.leaves(apart)),
        "shards": shards(placed),
        "second": shards(along_second["decoder"]),
        "refused for its size": refused(made["parameter_shardings"], second, on),
    }


def refused(of: Any, tree: Any, on: Any) -> str:
    try:
        of(tree, on)
    except ValueError as error:
        return str(error)
    return ""


def shards(tree: Any) -> dict[str, list[int]]:
    """Return the sizes of one device's part of each array."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): own.addressable_shards[0].data.shape
        for path, own in jax.tree_util.tree_leaves_with_path(tree)
    }


if __name__ == "__main__":
    print(json.dumps([found_of(Path(file)) for file in sys.argv[1:]]))
