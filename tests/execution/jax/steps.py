"""Run steps in JAX on virtual devices, in a process of their own: run with a JSON list of cases.

XLA makes virtual devices once in a process, before jax is imported: tests have many cases run in
one process, and read what each of them moved and how far its gradients were off.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from packaging.version import Version

from hypar_opt.errors import HyparError
from hypar_opt.execution.jax.run import one_device, random_data, run_step
from hypar_opt.execution.jax.tensors import ShardedNetwork
from hypar_opt.sharding.layouts import BATCH
from hypar_opt.sharding.program import Program
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import CHOICES
from hypar_opt.workload.tensors import workload_of

ROOT = Path(__file__).parents[3]
DEVICES = 8


def results(programs: list[tuple[Network, Program]], compared: int = 1) -> list[dict[str, Any]]:
    """Return of each step what differs from the plan, in a process with virtual devices.

    The numbers of every ``compared``-th step are compared with one device's, which has to be
    compiled too.
    """
    cases = [
        {
            "network": network.description(),
            "batch": program.workload.batch,
            "compare": number % compared == 0,
            "rows": [list(map(int, row)) for row in program.rows],
        }
        for number, (network, program) in enumerate(programs)
    ]
    # Machine code need not be fast: the passes that decide on collectives come before.
    flags = (
        f"--xla_force_host_platform_device_count={DEVICES} --xla_backend_optimization_level=0"
        " --xla_llvm_disable_expensive_passes=true"
    )
    # Halves the time of compiling. Newer versions abort: a flag that they do not know.
    if Version(version("jaxlib")) < Version("0.11"):
        flags += " --xla_cpu_use_fusion_emitters=false"
    done = subprocess.run(
        [sys.executable, "-m", "tests.execution.jax.steps"],
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


def result(
    network: Network, program: Program, seed: int, *, compare: bool = True
) -> dict[str, Any]:
    """Run one step; return its differences in bytes and, to compare, in loss and gradients."""
    import jax

    from tests.execution.jax.one_device import loss

    try:
        sharded = ShardedNetwork(network, program)
    except HyparError as error:
        return {"refused": str(error)}
    data = random_data(sharded, seed)
    step = run_step(sharded, data)
    found: dict[str, Any] = {
        "differences": [[*key, str(value)] for key, value in step.differences.items()],
        "moved": sum(row.compiled for row in step.rows),
        "unused": str(step.unused),
    }
    if program.rows and len(network.layers) % 4 == 0:
        # The same module for one device: it is what a run without numpy compares with.
        value, gradients = one_device(sharded, data)
        found["alone"] = max(
            (_distance(one, step.gradients[name]) for name, one in gradients.items()),
            default=abs(value - step.loss),
        )
    shares = _shares(sharded) if compare else None
    if shares is not None:
        alone = jax.jit(
            jax.value_and_grad(lambda w: loss(network, w, data.input, data.targets, shares))
        )
        value, gradients = alone(data.weights)
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
            split = [level for level, layout in enumerate(read) if layout == BATCH]
            if list(sharded.batch.split[: len(split)]) != split:
                return None
            shares[layer.name] = 2 ** len(split)
    return shares


def main() -> None:
    import jax

    found = []
    for seed, case in enumerate(json.load(sys.stdin)):
        network = Network.model_validate(case["network"])
        workload = workload_of(network, case["batch"], CHOICES, shared_tensors=True)
        found.append(
            result(network, Program(workload, case["rows"]), seed, compare=case["compare"])
        )
        jax.clear_caches()  # type: ignore[no-untyped-call]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
