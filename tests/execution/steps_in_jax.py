"""Run steps in JAX on virtual devices, in a process of their own: run with a JSON list of cases.

XLA makes virtual devices once in a process, before jax is imported: tests have many cases run in
one process, and read what each of them moved and how far its gradients were off.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hypar_opt.errors import HyparError
from hypar_opt.execution.jax.run import run_step
from hypar_opt.execution.jax.tensors import ShardedNetwork
from hypar_opt.execution.jax.weights import inputs_of, targets_of, weights_of
from hypar_opt.sharding.layouts import Layout
from hypar_opt.sharding.program import Program
from hypar_opt.workload.network import Network
from hypar_opt.workload.tensors import workload_of

ROOT = Path(__file__).parents[2]
DEVICES = 8


def results(programs: list[tuple[Network, Program]]) -> list[dict[str, Any]]:
    """Return of each step what differs from the plan, in a process with virtual devices."""
    cases = [
        {
            "network": network.description(),
            "batch": program.workload.batch,
            "rows": [list(map(int, row)) for row in program.rows],
        }
        for network, program in programs
    ]
    flags = f"--xla_force_host_platform_device_count={DEVICES}"
    done = subprocess.run(
        [sys.executable, "-m", "tests.execution.steps_in_jax"],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, list)
    return found


def result(network: Network, program: Program, seed: int) -> dict[str, Any]:
    """Run one step; return its differences in bytes, and in loss and gradients."""
    import jax

    from tests.execution.one_device import loss

    try:
        sharded = ShardedNetwork(network, program)
    except HyparError as error:
        return {"refused": str(error)}
    rng = np.random.default_rng(seed)

    def draw(tensor: Any, below: int | None = None) -> Any:
        shape = [dim if isinstance(dim, int) else dim.size for dim in tensor.dims]
        if below is not None:
            return rng.integers(0, below, shape)
        return rng.standard_normal(shape).astype(np.float32)

    weights = {
        name: draw(one.tensor) / max(one.summed, 1) ** 0.5 + (one.summed == 0)
        for name, one in weights_of(sharded).items()
    }
    weights = {name: one.astype(np.float32) for name, one in weights.items()}
    given = next((draw(g.tensor, g.below) for g in inputs_of(sharded)[0].values()), None)
    targets = {name: draw(g.tensor, g.below) for name, g in targets_of(sharded).items()}
    step = run_step(sharded, weights, given, targets)
    found: dict[str, Any] = {
        "differences": [[*key, str(value)] for key, value in step.differences.items()],
        "moved": sum(row.compiled for row in step.rows),
        "unused": str(step.unused),
    }
    shares = _shares(sharded)
    if shares is not None:
        alone = jax.jit(jax.value_and_grad(lambda w: loss(network, w, given, targets, shares)))
        value, gradients = alone(weights)
        found["loss"] = abs(float(value) - step.loss) / max(abs(float(value)), 1e-9)
        found["gradients"] = {
            name: _distance(np.asarray(one), step.gradients[name])
            for name, one in gradients.items()
        }
    return found


def _distance(expected: Any, found: Any) -> float:
    return float(np.abs(expected - found).max() / max(np.abs(expected).max(), 1e-6))


def _shares(sharded: ShardedNetwork) -> dict[str, int] | None:
    """Return the parts of the batch of each batch norm; None where they are not contiguous."""
    shares = {}
    for position, layer in enumerate(sharded.network.layers):
        if getattr(layer, "norm", None) == "batch":
            read = sharded.program.read[position + sharded.shared]
            split = [level for level, layout in enumerate(read) if layout is Layout.BATCH]
            if list(sharded.batch.split[: len(split)]) != split:
                return None
            shares[layer.name] = 2 ** len(split)
    return shares


def main() -> None:
    import jax

    found = []
    for seed, case in enumerate(json.load(sys.stdin)):
        network = Network.model_validate(case["network"])
        workload = workload_of(network, case["batch"], shared_tensors=True)
        found.append(result(network, Program(workload, case["rows"]), seed))
        jax.clear_caches()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
