"""What a machine runs in a pass of a layer: matrix products and memory-bound kernels."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Literal, NamedTuple, Protocol, Self, get_args

Loss = Literal["eager", "in-place-eager", "in-place", "fused"]


class KernelWords(Protocol):
    """The part of an accelerator that decides which kernels run."""

    @property
    def attention(self) -> Literal["fused", "unfused"] | None: ...

    @property
    def loss(self) -> Loss | None: ...


class Fused(NamedTuple):
    """The tensors that fused kernels do not write to memory.

    Parameters
    ----------
    attention
        Whether attention is one kernel, which never writes its scores.
    loss
        The implementation of softmax with cross-entropy: ``eager``, with a copy of the logits in
        single precision, their exponentials and their errors; ``in-place``, in one such copy, by
        compiled kernels, or ``in-place-eager``, by one operation after the other; or ``fused`` with
        the product before it, some rows or columns at a time, so that neither logits nor their
        errors are ever there as a whole.

    Source: Megatron-LM, ``mpu/cross_entropy.py`` of 2021 and 2022, whose operations are those of
    ``in-place-eager``; P.-L. Hsu et al., "Liger Kernel:
    Efficient Triton Kernels for LLM Training", 2024.
    """

    attention: bool = True
    loss: Loss = "eager"

    @classmethod
    def on(cls, machine: KernelWords | None) -> Self:
        """Return the fusion on a machine; without one, that of most machines."""
        if machine is None:
            return cls()
        return cls(machine.attention != "unfused", machine.loss or "eager")


ALL_FUSED = tuple(Fused(*pair) for pair in product((False, True), get_args(Loss)))
"""Everything that kernels may leave unwritten."""


class PassKernels(NamedTuple):
    """The kernels of one pass, as multiples of the layer's sizes.

    Parameters
    ----------
    products
        Of the multiply-accumulates of a forward pass, by matrix products that read and write the
        layer's weights, inputs and output.
    scores
        Of the elements of an inner tensor (attention's scores), read or written by these products.
    io, output, inner
        Of the elements of inputs and output, of the output alone, and of the inner tensor, read or
        written by kernels that DRAM bounds. In quarters.
    launches
        Kernels in all.
    """

    products: Fraction = Fraction(0)
    scores: int = 0
    io: int = 0
    output: int = 0
    inner: int = 0
    launches: int = 0

    @property
    def epilogue(self) -> Self:
        """The number of kernels after a product: its activation."""
        return type(self)(output=self.output, launches=max(self.launches - 1, 0))


NO_KERNELS = PassKernels()

PassesKernels = tuple[PassKernels, PassKernels, PassKernels]
"""The kernels of the forward, the backward (errors) and the gradient pass."""

NOTHING_RUNS: PassesKernels = (NO_KERNELS,) * 3
"""The kernels of a layer that only names a tensor: none."""


def product_kernels(*, activation: bool) -> PassesKernels:
    """Return the kernels of a layer with weights: one product per pass, and its activation's."""
    one = PassKernels(Fraction(1), launches=1 + activation)
    # An activation reads and writes its output; backward it reads its input and an error, too.
    return (
        one._replace(output=8 * activation),
        one._replace(output=12 * activation),
        PassKernels(Fraction(1), launches=1),
    )


def elementwise_kernels(
    forward: int = 4, backward: int = 4, *, launches: int = 1, activation: bool
) -> PassesKernels:
    """Return the kernels of a layer without products, which read and write every element.

    Parameters
    ----------
    forward, backward
        Elements read or written per element, in quarters.
    launches
        Kernels in each of the two passes.
    activation
        Fused forward; backward it reads its output, too.
    """
    there = PassKernels(io=forward, launches=launches)
    back = PassKernels(io=backward, output=4 * activation, launches=launches)
    return there, back, NO_KERNELS
