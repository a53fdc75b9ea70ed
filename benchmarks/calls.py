"""Single calls of `ho.solve`: in kernels, and beside another checkout of the package.

VGG-E at four levels takes at most 20 kernels (`benchmarks.joint`) jointly, 25 level by level: the
processor's least time of each, which a busy machine disturbs least. `benchmarks.scale` has the
median ratio of both in turn, when caches are cold: at most 20.

With the path of another checkout the same calls are made by both in turn, in processes of their
own, and the ratios of their least times printed: below 1 this checkout is faster.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import hypar_opt as ho
from benchmarks.measure import judged, size

KERNELS = {"joint": 20, "levelwise": 25}

CALLS: dict[str, tuple[str, dict[str, Any], int]] = {
    "VGG-E, joint": ("vgg-e", {"search": "joint"}, 300),
    "VGG-E, level by level": ("vgg-e", {}, 200),
    "VGG-E, time": ("vgg-e", {"array": "hmc-htree-16", "cost": "time"}, 50),
    "ResNet-50, joint": ("resnet-50", {"search": "joint"}, 50),
    "LLaMA-70B, joint": ("llama-70b", {"search": "joint"}, 30),
    "LLaMA-70B, level by level": ("llama-70b", {}, 30),
}
"""Networks, arguments, and how often each is called."""

ROUNDS = 3


def least(work: Callable[[], object], times: int) -> float:
    """Return the least of the processor's seconds of some calls, after two to warm up."""
    seconds = []
    for _ in range(2 + size(times, 1)):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds[2:])


def each_call() -> dict[str, float]:
    return {
        name: least(partial(ho.solve, network, **arguments), times)
        for name, (network, arguments, times) in CALLS.items()
    }


def beside(other: str) -> None:
    """Print the ratio of each call's least time to that of another checkout."""
    here, there = str(Path.cwd()), str(Path(other).resolve())
    found: dict[str, list[dict[str, float]]] = {here: [], there: []}
    for _ in range(ROUNDS):
        for path, rounds in found.items():
            # This file, with the other's package: `-P` keeps this folder's out.
            command = [sys.executable, "-P", __file__, "each"]
            environment = {**os.environ, "PYTHONPATH": f"{path}{os.pathsep}{here}"}
            rounds.append(json.loads(subprocess.check_output(command, env=environment)))
    for name in CALLS:
        own, others = (min(each[name] for each in found[path]) for path in (here, there))
        print(f"{name}: {own * 1e3:.2f} ms, there {others * 1e3:.2f}: ratio {own / others:.2f}")


def main() -> None:
    if sys.argv[1:] == ["each"]:
        print(json.dumps(each_call()))
        return
    if sys.argv[1:]:
        beside(sys.argv[1])
        return
    from benchmarks.joint import levels_of, thresholds, vgg_e

    table, missed = thresholds(vgg_e(), 4), []
    for search, most in KERNELS.items():
        works = partial(ho.solve, "vgg-e", search=search), partial(levels_of, table)
        rounds = [[least(work, 50) for work in works] for _ in range(size(20, 1))]
        call, kernel = map(min, zip(*rounds, strict=True))
        missed.append(judged(f"ho.solve on VGG-E, {search}, in kernels", call / kernel, most))
    sys.exit(any(missed))


if __name__ == "__main__":
    main()
