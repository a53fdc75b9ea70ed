"""Reading an ONNX model as a network, against loading it and inferring its shapes in C++."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import onnx

from hypar_opt.workload.onnx import read_onnx

MODEL = Path(os.path.dirname(onnx.__file__)) / "backend/test/data/light/light_resnet50.onnx"  # noqa: PTH120
ROUNDS = 25
TARGET = 3.0


def seconds(call: Callable[[], object]) -> float:
    # Of the process: another's work beside this one would count on one side alone.
    started = time.process_time()
    call()
    return time.process_time() - started


def bare() -> object:
    model = onnx.load(MODEL, load_external_data=False)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def main() -> None:
    read_onnx(MODEL), bare()  # warm up
    pairs = [(seconds(lambda: read_onnx(MODEL)), seconds(bare)) for _ in range(ROUNDS)]
    ours, theirs = median(a for a, _ in pairs), median(b for _, b in pairs)
    ratio = median(a / b for a, b in pairs)
    print(f"{MODEL.name} as a network: {ours:.4f} s; load and infer_shapes: {theirs:.4f} s")
    print(f"ratio {ratio:.2f} (at most {TARGET})")
    sys.exit(ratio > TARGET)


if __name__ == "__main__":
    main()
