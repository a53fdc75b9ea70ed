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
    """A tensor that no other layer reads.

    Parameters
    ----------
    elements, bytes
        Kept at each index of the axes: elements of the network's precision, and bytes.
    """

    axes: Axes
    elements: int = 0
    bytes: int = 0


class Saved(NamedTuple):
    """The tensors of a layer that its backward pass reads.

    Parameters
    ----------
    inputs
        Whether its inputs are among them.
    output
        Whether its output is, behind an activation and before a fused pool.
    before_activation
        Whether its output before the activation is.
    intermediates
        Tensors that only this layer has: attention's scores, masks of dropouts.
    singles
        Values in single precision that each element of its inputs has for the moment of its passes,
        such as a copy, an exponential and an error.
    unwritten
        Whether its input and the error of it are never there as a whole.

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
    """Return what a layer with an activation saves: its result, or what it was computed from."""
    of_output = activation in SLOPES_OF_OUTPUTS
    return Saved(inputs, of_output, activation is not None and not of_output)
