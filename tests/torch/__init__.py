"""What needs PyTorch: `make torch`, and the modules that `make models` builds with torchvision."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("torch") and find_spec("torchvision"):
    import torch

    try:
        import torchvision
    except RuntimeError:  # PyPI's is built for CUDA; a processor's PyTorch lacks two operators
        missing = torch.library.Library("torchvision", "DEF")
        for op in ("nms", "qnms"):
            missing.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401
