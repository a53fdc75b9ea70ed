"""The program of an exported module, around the lines of its loss."""
# ruff: noqa
# mypy: ignore-errors
# ---
import math
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

LEVELS = ...
DEVICES = 2 ** len(LEVELS)
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    # Read when jax looks for devices; accelerators are what they are.
    flag = f" --xla_force_host_platform_device_count={DEVICES}"
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + flag

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

BATCH, CHANNEL, GROUP = "batch", "channel", "group"
INPUTS, OUTPUTS = BATCH, CHANNEL  # of weights
Levels = tuple[str, ...]
Arrays = dict[str, jax.Array]
RATE = 0.01

# Weights by layer: shape, sharding, the levels that all-reduce the gradient, and what each output
# sums up (0 for scale and shift).
WEIGHTS = ...

# The input as its readers want it, and the targets of what ends the network: shape, sharding, and
# for integers what they are below.
INPUTS_GIVEN = ...
TARGETS = ...


# The library
def loss(w: Arrays, inputs: Arrays, targets: Arrays) -> jax.Array:
    """Return this device's share of the loss, which is a sum over all devices."""
    return jnp.zeros(())  # the step


def gradients(w: Arrays, inputs: Arrays, targets: Arrays) -> tuple[jax.Array, Arrays]:
    """Return the loss and the gradients of the weights, all-reduced where these are replicas."""
    value, partial_sums = jax.value_and_grad(loss)(w, inputs, targets)
    summed = {
        name: lax.psum(partial_sums[name], reduced) if reduced else partial_sums[name]
        for name, (_, _, reduced, _) in WEIGHTS.items()
    }
    return lax.psum(value, LEVELS) if LEVELS else value, summed


def update(w: Arrays, inputs: Arrays, targets: Arrays) -> tuple[jax.Array, Arrays]:
    """Return the loss, and the weights after a step of gradient descent."""
    value, gradient = gradients(w, inputs, targets)
    return value, jax.tree.map(lambda old, slope: old - RATE * slope, w, gradient)


def mesh() -> Mesh:
    """Return the mesh: a device's number has a bit for each level, h1's the most significant."""
    devices = jax.devices()
    if len(devices) < DEVICES:
        devices = jax.devices("cpu")
    if len(devices) < DEVICES:
        sys.exit(f"needs {DEVICES} devices, and there are {len(devices)}; see XLA_FLAGS")
    return Mesh(np.array(devices[:DEVICES]).reshape((2,) * len(LEVELS)), LEVELS)


def shardings(table: dict[str, tuple], on: Mesh) -> dict[str, NamedSharding]:
    """Return how each array of a table is sharded."""
    return {name: NamedSharding(on, row[1]) for name, row in table.items()}


def on_devices(function, on: Mesh):
    """Return `gradients` or `update` as a program for all devices of a mesh."""
    specs = [{name: row[1] for name, row in t.items()} for t in (WEIGHTS, INPUTS_GIVEN, TARGETS)]
    # Replicas' errors are partial sums: no device's types say what is whole (check_vma).
    sharded = jax.shard_map(
        function, mesh=on, in_specs=tuple(specs), out_specs=(P(), specs[0]), check_vma=False
    )
    return jax.jit(sharded)
