"""One accelerator: its rate of multiply-accumulates, and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import Field, Strict, model_validator

from hypar_opt.documents.document import Document, Name, Size, rule
from hypar_opt.hardware.quantities import Bandwidth, Bytes, OperationRate, OptionalBytes, Time
from hypar_opt.hardware.row_stationary import row_stationary

# Vendors count a multiplication and an addition as two operations.
OPERATIONS_PER_MAC = 2


def exactly(part: float) -> Fraction:
    """Return a fraction as the file states it: 0.8 is 4/5, not the nearest double."""
    return Fraction(str(part))


def without_buffer(accelerator: Any) -> Any:
    """Return the table of an accelerator without ``buffer``."""
    if not isinstance(accelerator, dict) or "buffer" not in accelerator:
        return accelerator
    return {key: value for key, value in accelerator.items() if key != "buffer"}


Part = Annotated[float, Strict(), Field(ge=1e-9, le=1)]

OF_KERNELS = ("conv", "elementwise", "attention", "flash", "launch", "host", "update", "updates")
"""The keys that belong to ``gemm``."""


class PeArray(Document):
    """The processing elements of one unit, on which layers are mapped row-stationary."""

    rows: Size
    columns: Size


# Momentum keeps a velocity for each weight, Adam the first and the second moment.
OPTIMIZERS = {"sgd": 0, "momentum": 1, "adam": 2}
"""Elements of state that an optimizer keeps for each weight."""

SINGLE = 4
"""Bytes of a number in single precision, in which state is kept, and in mixed precision a copy."""


def state_bytes(optimizer: str | int, number_bytes: int, copies: int = 0) -> int:
    """Return the bytes that an optimizer keeps for each weight.

    Parameters
    ----------
    optimizer
        A name of `OPTIMIZERS`, or the bytes themselves.
    number_bytes
        The size of a number of the state.
    copies
        The number of copies of the weight besides the state: one in mixed precision.
    """
    if isinstance(optimizer, int):
        return optimizer
    return number_bytes * (OPTIMIZERS[optimizer] + copies)


class Updates(Document):
    """The bytes that optimizers read and write in DRAM to update a weight; null is not known."""

    momentum: Bytes | None = None
    adam: Bytes | None = None

    def of(self, optimizer: str | int) -> Fraction | None:
        """Return the bytes of an optimizer, stated by name or by the bytes of its state per weight.

        State is read and written once; all else is as in the update of Adam, or of momentum.
        """
        if isinstance(optimizer, str):
            stated: Fraction | None = getattr(self, optimizer, None)
            return stated
        for name in ("adam", "momentum"):
            traffic: Fraction | None = getattr(self, name)
            if traffic is not None and optimizer:
                state = state_bytes(name, SINGLE, copies=1)
                return max(traffic + 2 * (optimizer - state), Fraction())
        return None


class Accelerator(Document):
    """An accelerator of identical processing units and its own DRAM.

    The utilisation of its peak is stated, or follows from each layer's mapping on the units.
    """

    units: Size
    operations: OperationRate
    """Peak of one unit; a multiply-accumulate is two."""
    utilisation: Part | None = None
    """The fraction of the peak that every layer achieves."""
    pe_array: PeArray | None = None
    """Instead of ``utilisation``, which then follows from the mapping."""
    gemm: Part | None = None
    """Instead of both: the fraction of the peak of a large matrix product. A layer then takes the
    time of its kernels, one after the other; the keys below belong to it."""
    conv: Part | None = None
    """The fraction of the peak of convolutions, that of matrix products where it is missing."""
    elementwise: Part | None = None
    """The fraction of the DRAM's bandwidth that kernels achieve; 1 where it is missing."""
    attention: Literal["fused", "unfused"] | None = None
    """Whether attention is one kernel, which never writes its scores; fused where it is missing."""
    loss: Literal["eager", "in-place-eager", "in-place", "fused"] | None = None
    """How the cross-entropy of a softmax is taken: ``eager``, in three values of single precision
    for each logit; ``in-place``, in one, ``in-place-eager`` by one operation after the other;
    ``fused``, without ever holding all logits. Eager where it is missing."""
    flash: Part | None = None
    """The fraction of the peak of fused attention, that of matrix products where it is missing; of
    a causal mask what it hides is no work."""
    launch: Time | None = None
    """Of every kernel, on the device; 0 where it is missing."""
    host: Time | None = None
    """Of every kernel, on the host, which launches them one by one while the device computes."""
    update: OptionalBytes = None
    """Read and written in DRAM to update a weight; 0 where it is missing."""
    updates: Updates | None = None
    """The same by optimizer: of the one that a problem states, instead of ``update``."""
    mac_count: Literal["output", "input"] = "output"
    """Whether a layer's multiply-accumulates are counted over its output, or, as the HyPar
    paper does, over its input, which ignores stride and padding.
    """
    vaults: Size = 1
    """Partitions of the DRAM, each with its own processing units."""
    dram_bandwidth: Bandwidth
    dram_capacity: Bytes
    reserve: OptionalBytes = None
    """Of the capacity, what no tensor may take: the context, buffers of one communicator,
    fragments; 0 where it is missing."""
    reserve_groups: OptionalBytes = None
    """Additional bytes for each further communicator of a plan; 0 where it is missing."""
    reserve_experts: OptionalBytes = None
    """Additional bytes with expert parallelism: buffers of all-to-alls; 0 where it is missing."""

    @model_validator(mode="before")
    @classmethod
    def _without_buffer(cls, data: Any) -> Any:
        """Leave out ``buffer``, which older files have and nothing ever depended on.

        Source: docs/assumptions.md.
        """
        return without_buffer(data)

    @model_validator(mode="after")
    def _one_utilisation(self) -> Self:
        one_of = ("utilisation", "pe_array", "gemm")
        stated = [key for key in one_of if getattr(self, key) is not None]
        if len(stated) != 1:
            got = " and ".join(stated) or "none"
            raise rule(f"should have one of utilisation, pe_array and gemm, got {got}")
        for key in OF_KERNELS if self.gemm is None else ():
            if getattr(self, key) is not None:
                raise rule(f"{key}: goes with gemm, got {stated[0]}")
        if (self.reserve or 0) >= self.dram_capacity:
            raise rule("reserve: should be less than dram_capacity")
        if self.gemm is not None and self.mac_count == "input":
            raise rule("mac_count: should be 'output' with gemm, got 'input'")
        return self

    def updated_by(self, optimizer: str | int) -> Self:
        """Return the accelerator with the bytes of an optimizer as ``update``."""
        update = self.updates and self.updates.of(optimizer)
        return self if update is None else self.model_copy(update={"update": update})

    def reserved(self, communicators: int = 1, *, experts: bool = False) -> int:
        """Return the bytes that no tensor may take, given the number of communicators.

        Parameters
        ----------
        experts
            Whether there is expert parallelism.
        """
        further = max(communicators - 1, 0) * (self.reserve_groups or 0)
        return int((self.reserve or 0) + further + experts * (self.reserve_experts or 0))

    def utilisation_of(self, kernel_rows: int, output_rows: int) -> Fraction:
        """Return the fraction of the peak that a layer achieves.

        Parameters
        ----------
        kernel_rows, output_rows
            A convolution's; 1 and 1 for a fully-connected layer.
        """
        if self.pe_array is not None:
            rows, columns = self.pe_array.rows, self.pe_array.columns
            return row_stationary(rows, columns, kernel_rows, output_rows).utilisation
        return exactly(self.utilisation or self.gemm or 1)

    def macs_per_second(self, kernel_rows: int, output_rows: int) -> Fraction:
        """Return the multiply-accumulates per second of all units together in a layer."""
        peak = self.units * self.operations / OPERATIONS_PER_MAC
        return peak * self.utilisation_of(kernel_rows, output_rows)


class AcceleratorGroup(Accelerator):
    """Equal accelerators of an array that has others beside them."""

    name: Name
    count: Size
    """The number of accelerators, numbered consecutively, those of the first group from 0."""


def check_equal_kernels(groups: Sequence[AcceleratorGroup], together: str) -> None:
    """Check that all groups model kernels, or none, and attention equally.

    Parameters
    ----------
    together
        The groups as text.

    Raises
    ------
    ValueError
        Naming the key, as a validator does.
    """
    for key, wanted, values in (
        ("gemm", "there in all groups or in none", {group.gemm is None for group in groups}),
        ("attention", "the same in all groups", {group.attention or "fused" for group in groups}),
        ("loss", "the same in all groups", {group.loss or "eager" for group in groups}),
    ):
        if len(values) > 1:
            raise rule(f"accelerator, {key}: should be {wanted}, got {together}")
