"""Run steps in JAX on virtual devices, in a process of their own that reads lists of cases.

XLA makes virtual devices once in a process, before jax is imported: all tests have their cases run
in one process, and read what each of them moved and how far its gradients were off.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hypar_opt.errors import HyparError
from hypar_opt.execution.jax.run import Data, one_device, random_data, run_step
from hypar_opt.execution.jax.tensors import ShardedNetwork
from hypar_opt.execution.jax.weights import bias_of
from hypar_opt.execution.virtual.arithmetic.base import Group
from hypar_opt.execution.virtual.data import StepData
from hypar_opt.execution.virtual.division import Division
from hypar_opt.execution.virtual.norm_groups import norm_groups
from hypar_opt.execution.virtual.step import TrainingStep
from hypar_opt.frozen import FrozenDict
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.sharding.passes import INFERENCE
from hypar_opt.sharding.program import Program
from hypar_opt.studies.virtual_run import JAX_TOLERANCE, difference_in_jax
from hypar_opt.workload.network import Network
from hypar_opt.workload.operators.base import padded
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.repeats import Repeats
from hypar_opt.workload.shards import Shards
from hypar_opt.workload.tensors import Workload, workload_of

ROOT = Path(__file__).parents[3]
DEVICES = 12


def results(programs: list[tuple[Network, Program]], compared: int = 1) -> list[dict[str, Any]]:
    """Return of each step what differs from the plan, in a process with virtual devices.

    The numbers of every ``compared``-th step are compared with one device's, which has to be
    compiled too.
    """
    cases = [
        {
            "network": network.description(),
            "batch": program.workload.batch,
            "choices": program.workload.choices,
            "compare": number % compared == 0,
            "rows": [list(map(int, row)) for row in program.rows],
            "sizes": program.hierarchy.sizes,
            "joined": program.joined,
            "training": [
                program.workload.repeats.micro_batches,
                sorted(program.workload.repeats.sharded.items()),
                sorted(program.workload.repeats.recomputed.items()),
                sorted(program.workload.repeats.by_op.items()),
                program.workload.repeats.blocks,
            ],
        }
        for number, (network, program) in enumerate(programs)
    ]
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(cases) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        _process.cache_clear()  # other tests start another
    assert line, "the process has ended: see its errors"
    found: list[dict[str, Any]] = json.loads(line)
    return found


@cache
def _process() -> subprocess.Popen[str]:
    """Start what runs the steps of all tests of this process: it imports jax once."""
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count={DEVICES}"
    return subprocess.Popen(
        [sys.executable, "-m", "tests.execution.jax.steps"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )


def result(
    network: Network, program: Program, seed: int, *, compare: bool = True
) -> dict[str, Any]:
    """Run one step; return its differences in bytes and, to compare, in loss and gradients."""
    try:
        sharded = ShardedNetwork.of(network, program)
        data = random_data(sharded, seed)
    except HyparError as error:
        return {"refused": str(error)}
    step = run_step(sharded, data)
    found: dict[str, Any] = {
        "differences": [
            (row.named, row.modelled, row.counted)
            for row in step.exchanges
            if row.modelled != row.counted
        ],
        "moved": sum(row.counted for row in step.exchanges),
        "unused": str(step.unused),
        "padding": str(step.padding),
    }
    found["updated"] = step.updated
    if program.rows and len(network.layers) % 4 == 0:
        # The same module for one device: it is what a run without numpy compares with.
        value, gradients = one_device(sharded, data)
        of_losses = abs(value - step.loss) / max(abs(value), 1e-9)
        found["alone"] = difference_in_jax(gradients, step.gradients) if gradients else of_losses
    if compare:
        groups = norm_groups(Division(network, sharded.planned))
        value, gradients = in_numpy(sharded, data, groups)
        found["loss"] = abs(value - step.loss) / max(abs(value), 1e-9)
        found["gradients"] = difference_in_jax(gradients, step.gradients)
        if found["gradients"] > JAX_TOLERANCE:
            found["rounding"] = _rounding(sharded, data, groups, gradients)
    return found


def _rounding(
    sharded: ShardedNetwork,
    data: Data,
    groups: dict[int, list[Group]],
    gradients: dict[str, Any],
) -> float:
    """Return what the last bits of the weights change in gradients.

    A norm of values that are nearly equal multiplies it by orders of magnitude.
    """
    bit, signs = np.finfo(np.float32).eps, np.random.default_rng(0)
    near = {
        name: one.astype(float) * (1 + bit * signs.choice((-1, 1), one.shape))
        for name, one in data.weights.items()
    }
    _, others = in_numpy(sharded, replace(data, weights=near), groups)
    return difference_in_jax(gradients, others)


def in_numpy(
    sharded: ShardedNetwork, data: Data, groups: dict[int, list[Group]]
) -> tuple[float, dict[str, Any]]:
    """Return loss and gradients by the other backend, whose arithmetic has tests of its own.

    All ends are plain outputs there, whose errors are made of what a first step outputs.
    """
    network = Network.model_validate(_without_losses(sharded.network.description()))
    names = [layer.name for layer in network.layers]
    # The whole batch at once, of which the program has micro-batches.
    images = len(next(iter(data.inputs.values())))
    workload = workload_of(network, images, CHOICES, shared_tensors=True)
    division = Division(network, Program(workload, (), Hierarchy(())), groups)
    biases = {
        position: data.weights[bias_of(layer.name)]
        for position, layer in enumerate(sharded.network.layers)
        if layer.has_bias
    }
    weights = _weights(sharded, data, workload)
    inputs = {source: _channels_first(own) for source, own in data.inputs.items()}
    given = StepData(inputs, weights, biases, {}, {})
    ends = {names.index(name): name for name in data.targets}
    outputs = TrainingStep(division, given, INFERENCE).run().outputs
    loss, errors = 0.0, {}
    for position, name in ends.items():
        output, target = outputs[position][1][0], data.targets[name]
        if getattr(sharded.network.layers[position], "loss", None) == "softmax":
            axis = 2 if output.ndim == 3 else 1
            classes = getattr(sharded.network.layers[position], "classes", None)
            if classes is not None:  # behind them are logits of padding
                output = output.copy()
                np.moveaxis(output, axis, 0)[classes:] = -np.inf
            chosen = np.expand_dims(target.reshape(np.delete(output.shape, axis)), axis)
            least = output - output.max(axis, keepdims=True)
            logs = least - np.log(np.exp(least).sum(axis, keepdims=True))
            loss -= float(np.take_along_axis(logs, chosen, axis).sum())
            errors[position] = np.exp(logs)
            hit = np.take_along_axis(errors[position], chosen, axis) - 1
            np.put_along_axis(errors[position], chosen, hit, axis)
        else:
            errors[position] = output - _channels_first(target).reshape(output.shape)
            loss += float((errors[position] ** 2).sum() / 2)
    record = TrainingStep(division, replace(given, errors=errors)).run()
    of_biases = {bias_of(names[n]): one for n, (one,) in record.bias_gradients.items()}
    return loss, of_biases | {
        names[position]: (one.swapaxes(2, 3) if one.ndim == 5 else one).reshape(
            data.weights[names[position]].shape
        )
        for position, (one,) in record.gradients.items()
    }


def _without_losses(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_losses(one) for one in value]
    if not isinstance(value, dict):
        return value
    more: dict[str, object] = {"loss": "none"} if value.get("kind") == "output" else {}
    if value.get("kind") == "fc" and "pad" in value:  # which needs a loss: written out
        more = {"units": padded(value["units"], value["pad"]), "pad": 1}
    return {key: _without_losses(one) for key, one in value.items()} | more


def _channels_first(array: Any) -> Any:
    """Return an image or a vector as numpy's backend has it; tokens and their ids are alike."""
    if array.ndim == 4:
        return np.moveaxis(array, -1, 1)
    vector = array.ndim == 2 and array.dtype.kind == "f"
    return array[:, :, None, None] if vector else array


def _weights(sharded: ShardedNetwork, data: Data, workload: Workload) -> dict[int, Any]:
    found = {}
    for position, layer in enumerate(sharded.network.layers):
        if layer.name in data.weights:
            array, shape = data.weights[layer.name], workload.layers[position].weight
            if len(shape) == 5:  # of groups, which stand before the inputs of one
                rows, columns, groups, inputs, outputs = shape
                array = array.reshape(rows, columns, inputs, groups, outputs).swapaxes(2, 3)
            elif len(shape) == 3 and array.ndim == 2:  # a norm's, whose channels are in groups
                array = array.reshape(shape)
            found[position] = array
    return found


def main() -> None:
    import jax

    for line in sys.stdin:
        found = []
        for seed, case in enumerate(json.loads(line)):
            network = Network.model_validate(case["network"])
            choices = tuple(case["choices"])
            workload = workload_of(network, case["batch"], choices, shared_tensors=True)
            count, split, again, by_op, blocks = case["training"]
            shard = ((node, Shards(*own)) for node, own in split)
            workload = with_repeats(
                workload,
                Repeats(
                    count,
                    FrozenDict(shard),
                    FrozenDict(map(tuple, again)),
                    by_op=FrozenDict(map(tuple, by_op)),
                    blocks=tuple(map(tuple, blocks)),
                ),
            )
            hierarchy = Hierarchy(tuple(case["sizes"]))
            program = Program(workload, case["rows"], hierarchy, joined=case["joined"])
            found.append(result(network, program, seed, compare=case["compare"]))
            jax.clear_caches()  # type: ignore[no-untyped-call]
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
