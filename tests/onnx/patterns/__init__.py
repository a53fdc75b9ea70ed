"""Graphs of weights that are fused, sliced, shared, transposed and tied, as exporters do it."""

from tests.onnx.patterns import divided, learned, refused, shared, written
from tests.onnx.patterns.registry import PATTERNS, Pattern

__all__ = ["PATTERNS", "Pattern", "divided", "learned", "refused", "shared", "written"]
