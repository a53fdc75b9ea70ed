"""Steps of one's own in JAX, each sharded by an exported file: on virtual devices, its numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def step_of(shardings: Path) -> dict[str, Any]:
    """Return by how much a step differs from that of one device, and what devices have."""
    made: dict[str, Any] = {}
    exec(shardings.read_text(), made)
    rng = np.random.default_rng(0)
    sizes = {"up": (16, 32), "down": (32, 8)}
    parameters = {
        name: {"kernel": rng.normal(size=size), "bias": rng.normal(size=size[1])}
        for name, size in sizes.items()
    } | {"other": rng.normal(size=3)}
    x, y = rng.normal(size=(8, 16)), rng.normal(size=(8, 8))
    on = made["mesh"]()

    def loss(p: Any, x: Any, *, sharded: bool) -> Any:
        def laid_out(name: str, value: Any) -> Any:
            return made["constrain"](name, value, on) if sharded else value

        hidden = laid_out("up", jax.nn.relu(x @ p["up"]["kernel"] + p["up"]["bias"]))
        out = laid_out("down", hidden @ p["down"]["kernel"] + p["down"]["bias"])
        return jnp.sum((out - y) ** 2) / 2

    placed = jax.device_put(parameters, made["parameter_shardings"](parameters, on))
    step = jax.jit(jax.value_and_grad(loss), static_argnames="sharded")
    one, alone = step(parameters, x, sharded=False)
    two, gradients = step(placed, x, sharded=True)
    apart = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), alone, gradients)
    shards = {
        jax.tree_util.keystr(path, simple=True, separator="."): own.addressable_shards[0].data.shape
        for path, own in jax.tree_util.tree_leaves_with_path(placed)
    }
    compiled = step.lower(placed, x, sharded=True).compile().as_text() or ""
    reduced = compiled.count(" all-reduce(") + compiled.count(" all-reduce-start(")
    largest = max(jax.tree.leaves(apart))
    return {
        "loss": abs(float(one - two)),
        "apart": largest,
        "shards": shards,
        "reduces": reduced > 0,
    }


if __name__ == "__main__":
    print(json.dumps([step_of(Path(file)) for file in sys.argv[1:]]))
