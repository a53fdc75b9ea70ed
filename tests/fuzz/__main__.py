"""Run the calls of many seeds; print each that breaks what must hold, and its seed.

A single seed is run again by ``make fuzz N=1 SEED=...``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from pathlib import Path

from tests.fuzz.calls import call
from tests.fuzz.run import broken


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--seconds", type=float, default=60, help="that a case may take")
    asked = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(asked.seed, asked.seed + asked.cases):
            problem = broken(seed, Path(folder) / "here", seconds=asked.seconds)
            if problem:
                wrong += 1
                made = call(seed)
                print(f"\nseed {seed}: {problem}\n$ hypar-opt {shlex.join(made.args)[:2000]!a}")
                for name, data in made.files.items():
                    if name in made.args or wrong == 1:
                        print(f"--- {name}\n{data[:2000]!r}")
            if seed % 1000 == 999:
                print(f"{seed + 1 - asked.seed} of {asked.cases}, {wrong} wrong", file=sys.stderr)
    print(f"{asked.cases} calls, {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    os.environ["COLUMNS"] = "100"
    sys.exit(main())
