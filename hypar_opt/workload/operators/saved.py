"""What a layer saves in its forward pass for its backward pass."""

from __future__ import annotations

from typing import NamedTuple

from hypar_opt.workload.operators.axes import Axes

SLOPES_OF_OUTPUTS = frozenset(
    (
        *("relu", "relu6", "leaky_relu", "sigmoid", "hardsigmoid", "tanh", "hard_tanh", "exp"),
        "clipped_plus_one",
    )
)
"""The activations whose derivative follows from their output."""


class Intermediate(NamedTuple):
    """An internal tensor of a layer, which no other layer reads.

    Parameters
    ----------
    elements, bytes
        Per index of the axes: elements in the network's precision, and further bytes.
    """

    axes: Axes
    elements: int = 0
    bytes: int = 0


class Saved(NamedTuple):
    """The tensors that a layer saves for its backward pass.

    Parameters
    ----------
    inputs
        Whether its inputs are among them.
    output
        Whether its output is, behind an activation and before a fused pool.
    before_activation
        Whether its output before the activation is.
    intermediates
        Internal tensors: attention's scores, dropout masks.
    singles
        Transient single-precision values per element of its inputs during its passes, such as a
        copy, an exponential and an error.
    unwritten
        Whether its input and its input's error are never materialised.

    Source: Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
    MLSys 2023, section 4.1.
    """

    inputs: bool = False
    output: bool = False
    before_activation: bool = False
    intermediates: tuple[Intermediate, ...] = ()
    singles: int = 0
    unwritten: bool = False


def activated(activation: str | None, *, inputs: bool) -> Saved:
    """Return what a layer with an activation saves: the activation's output or its input."""
    of_output = activation in SLOPES_OF_OUTPUTS
    return Saved(inputs, of_output, activation is not None and not of_output)
