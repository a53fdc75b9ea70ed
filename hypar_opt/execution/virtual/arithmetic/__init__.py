"""The computation of each kind of layer on one device's parts of tensors and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.execution.virtual.arithmetic import (
    attention,
    elementwise,
    experts,
    losses,
    norms,
    products,
    views,
)

if TYPE_CHECKING:
    from hypar_opt.execution.virtual.arithmetic.base import Arithmetic
    from hypar_opt.workload.operators.base import Operator

KINDS = (
    products.KINDS
    | attention.KINDS
    | experts.KINDS
    | norms.KINDS
    | elementwise.KINDS
    | views.KINDS
    | losses.KINDS
)
"""The kinds of layers that can run."""


def arithmetic_of(layer: Operator) -> type[Arithmetic]:
    """Return the arithmetic of a layer."""
    if getattr(layer, "transposed", None):
        return products.TransposedArithmetic
    softmax = getattr(layer, "loss", None) == "softmax"
    return losses.SoftmaxLoss if softmax else KINDS[layer.kind]
