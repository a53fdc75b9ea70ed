"""Nothing is imported that a call does not use: whole processes against their bare imports."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

COMMAND = str(Path(sys.executable).with_name("hypar-opt"))
ROUNDS = 15
TARGET = 1.5

CALLS = {
    "hypar-opt --help": ([COMMAND, "--help"], "import typer, typer.rich_utils"),
    "hypar-opt solve vgg-e": (
        [COMMAND, "solve", "vgg-e"],
        "import typer, typer.rich_utils, numpy, networkx, pydantic",
    ),
}


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    worst = 0.0
    for name, (call, imports) in CALLS.items():
        bare = [sys.executable, "-c", imports]
        seconds(call), seconds(bare)  # warm up
        pairs = [(seconds(call), seconds(bare)) for _ in range(ROUNDS)]
        ours, theirs = median(a for a, _ in pairs), median(b for _, b in pairs)
        ratio = median(a / b for a, b in pairs)
        print(f"{name}: {ours:.3f} s; python -c '{imports}': {theirs:.3f} s")
        print(f"ratio {ratio:.2f} (at most {TARGET})")
        worst = max(worst, ratio)
    sys.exit(worst > TARGET)


if __name__ == "__main__":
    main()
