"""The plan of a GPT of 24 layers against what JAX takes to compile its step.

Three choices at three levels, GPT-2 medium at batch 8: the joint optimum, with graph, tables and
order of elimination, against tracing and compiling the exported module for eight virtual devices.
One ratio in one run; at most 1.
"""

from __future__ import annotations

import sys
import time

import hypar_opt as ho
from benchmarks.measure import judged, needs, size
from hypar_opt.execution.export import jax_module
from hypar_opt.execution.jax.run import load

TARGET = 1.0
NETWORK, LEVELS, BATCH = size(("gpt2-medium", 3, 8), ("lenet-c", 1, 8))


def main() -> None:
    needs("jax")
    started = time.perf_counter()
    plan = ho.solve(
        NETWORK,
        batch=BATCH,
        levels=LEVELS,
        choices=("data", "model", "output"),
        reading="executed",
        search="joint",
        constraints={"even": True},
    )
    ours = time.perf_counter() - started
    module = load(jax_module(plan))
    import jax
    import jax.numpy as jnp

    on = module.mesh()
    tables = (module.WEIGHTS, module.INPUTS_GIVEN, module.TARGETS)
    shapes = [
        {
            name: jax.ShapeDtypeStruct(
                row[0],
                jnp.int32 if table is not module.WEIGHTS and row[-1] is not None else jnp.float32,
            )
            for name, row in table.items()
        }
        for table in tables
    ]
    started = time.perf_counter()
    module.on_devices(module.update, on).lower(*shapes).compile()
    theirs = time.perf_counter() - started
    print(
        f"{len(plan.layers)} layers at {LEVELS} levels: {ours:.2f} s; JAX compiles {theirs:.2f} s"
    )
    sys.exit(judged("the plan against compiling", ours / theirs, TARGET))


if __name__ == "__main__":
    main()
