"""The interface of a kind of layer."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, NamedTuple, Self

from pydantic import AfterValidator, Field

from hypar_opt.documents.document import Document, Name, rule
from hypar_opt.errors import RefusedError
from hypar_opt.workload.operators.axes import (
    BATCH,
    EXPERTS,
    OUTPUT,
    POSITIONS,
    REORDERED,
    Axes,
    Choice,
    Contraction,
    Parts,
    Run,
)
from hypar_opt.workload.operators.free_sizes import FreeSizes, SmallLayer, SmallMap
from hypar_opt.workload.operators.kernels import (
    Fused,
    PassesKernels,
    elementwise_kernels,
    product_kernels,
)
from hypar_opt.workload.operators.maps import ExpertMap as ExpertMap
from hypar_opt.workload.operators.maps import FeatureMap as FeatureMap
from hypar_opt.workload.operators.maps import LayerMaps as LayerMaps
from hypar_opt.workload.operators.maps import Map as Map
from hypar_opt.workload.operators.saved import Saved, activated
from hypar_opt.workload.operators.windows import Window

if TYPE_CHECKING:
    from hypar_opt.workload.operators.windows import PoolWindow

Activation = Annotated[str, Field(min_length=1)]


def default(value: object) -> AfterValidator:
    """Return a validator that maps a default, written out in a file, to its absence."""
    return AfterValidator(lambda given: None if given == value else given)


def padded(size: int, pad: int | None) -> int:
    """Return a size rounded up to a multiple of ``pad``; None for no padding.

    >>> padded(50257, 128)
    50304
    """
    return size if pad is None else -(-size // pad) * pad


class Statistics(NamedTuple):
    """The sums that a norm takes over some axes of its input, per index of the other axes.

    If a choice splits an axis that they lack, each part has partial sums, which are all-reduced.

    Parameters
    ----------
    axes
        The axes that they have; by default those of a position, whose channels share them.
    """

    forward: int = 0
    backward: int = 0
    axes: Axes = (BATCH, *POSITIONS)

    def elements(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """Return their number, forward and backward; ``sizes`` includes the batch's ``b``."""
        count = elements(self.axes, sizes)
        return self.forward * count, self.backward * count


MAX_AXIS = 2**40
"""The maximum elements along an axis, so that sums over 2^20 accelerators fit in 64 bits."""


class Operator(Document):
    """A layer as a network file describes it; a subclass is a kind of layer.

    What a layer communicates, computes, and keeps in memory under each choice is derived from
    `contraction` and `choices` alone (see `hypar_opt.workload.operators.axes`).
    """

    name: Name
    kind: str
    inputs: tuple[Name, ...] | None = None
    """The layers that it reads, or ``input``; the layer before it by default."""

    contraction: ClassVar[Contraction]
    """The axes of its tensors, the batch's ``b`` included; a layer may lack some of them."""

    choices: ClassVar[Mapping[str, Choice]]
    """The axis that it splits under each choice of a problem (`CHOICES`); it lacks the choices that
    are not keys."""

    trick: ClassVar[str]
    """Its choice in the baseline "one weird trick"."""

    reads_images: ClassVar[bool] = False
    """Whether its input needs channels, height and width; a vector has none of them."""

    writes_vectors: ClassVar[bool] = False
    """Whether its output is a vector, without height and width."""

    writes_images: ClassVar[bool] = False
    """Whether its output is an image, whatever its input is."""

    reads: ClassVar[tuple[int, int]] = (1, 1)
    """The minimum and maximum number of inputs."""

    @property
    def statistics(self) -> Statistics:
        """Its statistics: all-reduced in addition to tensors if a split axis is not theirs."""
        return Statistics()

    reads_experts: ClassVar[bool] = False
    """Whether an input may be dispatched tokens, whose channels are experts."""

    merges: ClassVar[bool] = False
    """Whether it joins branches of a network, by concatenation or as a sum."""

    ends: ClassVar[bool] = False
    """Whether it ends a network, so that no layer needs to read it."""

    adds_bias: ClassVar[bool] = False
    """Whether ``bias`` is a vector beside its weights; a run computes it, and no cost counts it."""

    reads_ids: ClassVar[bool] = False
    """Whether its input is token ids, so that another kind that shares its weights transposes
    them."""

    zero_error_inputs: ClassVar[tuple[int, ...]] = ()
    """The inputs whose gradient is zero: the loss does not depend on small changes of them.

    Nothing is exchanged for it.
    """

    @property
    def shuffles(self) -> bool:
        """Whether it reads channels in another order than the one in memory."""
        return any(axis.endswith(REORDERED) for axis in self.axes.input)

    @property
    def has_bias(self) -> bool:
        """Whether it has a bias beside its weights."""
        return self.adds_bias and bool(getattr(self, "bias", None))

    @property
    def module(self) -> str:
        """The name of the module that holds its weights in the model."""
        return self.name.rpartition(".")[0] if getattr(self, "part", None) else self.name

    @property
    def sums(self) -> bool:
        """Whether it sums over an axis of an input, as matrix products and attention do.

        A look-up of rows by id counts, as a product with one-hot rows.
        """
        read = {axis.removesuffix(REORDERED) for axes in self.axes.inputs.values() for axis in axes}
        return self.reads_ids or not read <= {*self.axes.output}

    @property
    def fused_pool(self) -> PoolWindow | None:
        """The pool that follows its output as part of the layer."""
        return None

    @property
    def leaves_addends(self) -> bool:
        """Whether nothing follows its sums, so that a reader may take them as partial sums."""
        return self.fused_pool is None and not getattr(self, "activation", None)

    def window_along(self, axis: str) -> Window:  # noqa: ARG002
        """Return the window of input rows, or columns, that one row of its output reads."""
        return Window()

    @property
    def axes(self) -> Contraction:
        """The contraction of this layer, which may differ from that of its kind."""
        return self.contraction

    @property
    def splits(self) -> Mapping[str, Choice]:
        """The choices of this layer, which may differ from those of its kind."""
        return self.choices

    @property
    def shares_weights_with(self) -> str | None:
        """The layer that it shares weights with."""
        return None

    @abstractmethod
    def maps(self, *reads: Map) -> LayerMaps:
        """Return the layer's maps for its inputs; raise `refuse`'s error if they do not fit."""

    def in_repetition(self, number: int, count: int) -> Self:  # noqa: ARG002
        """Return the layer as it is in one repetition of its block.

        Parameters
        ----------
        number
            From 0.
        """
        return self

    def in_repetitions(self, numbers: range) -> Self:  # noqa: ARG002
        """Return the layer as it is in a block of some of the repetitions, numbered from 0."""
        return self

    def checked_maps(self, *reads: Map) -> LayerMaps:
        """Return the layer's maps; also raise an error if an axis is longer than `MAX_AXIS`."""
        maps = self.maps(*reads)
        if (longest := max(self.sizes(maps).values(), default=0)) > MAX_AXIS:
            problem = f"should have at most {MAX_AXIS:,} elements along an axis"
            raise rule(f"layer {self.name!r}: {problem}, got {longest:,}")
        return maps

    @abstractmethod
    def sizes(self, maps: LayerMaps) -> Mapping[str, int]:
        """Return the size of every axis except the batch's."""

    def parts(self, maps: LayerMaps) -> tuple[Parts, ...]:
        """Return the parts of its channels that a split has to keep together, in inputs and output.

        By default each index of an axis that a choice splits in both inputs and output is a part;
        there are none if it splits only one of them.
        """
        sizes, tensors = self.sizes(maps), (maps.output, *maps.inputs)
        both = {*self.axes.input} & {*self.axes.output}
        both -= {BATCH, *POSITIONS, EXPERTS.axis}
        read = self.axes.read(len(maps.inputs), len(maps.inputs))
        return tuple(
            Parts(
                choice.part,
                sizes[choice.axis],
                tuple(
                    Run(number, over.channels // sizes[choice.axis])
                    for number, over in enumerate(tensors, OUTPUT)
                    if number == OUTPUT or choice.axis in read[number]
                ),
                choice.axis,
            )
            for choice in self.splits.values()
            if choice.axis in both
        )

    def scaled_down(self, small: FreeSizes, maps: LayerMaps, *reads: SmallMap) -> SmallLayer:  # noqa: ARG002
        """Return its output, and its sizes, in a small network of the same structure.

        By default its output has the shape of its input, and it has no sizes.

        Parameters
        ----------
        maps
            The layer's maps in the network itself.

        Raises
        ------
        RefusedError
            If it has no smaller sizes of that structure.
        """
        if maps.pooled != maps.input:
            raise RefusedError(f"layer {self.name!r}: kind {self.kind!r} has no known small size")
        return reads[0], {}

    inner: ClassVar[Axes] = ()
    """The axes of the tensor between its two products, which a fused kernel does not write."""

    def kernels(self, sizes: Mapping[str, int], *, fused: Fused) -> PassesKernels:  # noqa: ARG002
        """Return the kernels of its passes on a machine that runs one after the other.

        Parameters
        ----------
        sizes
            The size of every axis, the batch's ``b`` among them.
        fused
            What kernels do not write.

        Source: docs/assumptions.md.
        """
        activation = bool(getattr(self, "activation", None))
        if self.axes.contracted:
            return product_kernels(activation=activation)
        return elementwise_kernels(activation=activation)

    def saves(self, *, fused: Fused) -> Saved:  # noqa: ARG002
        """Return what it saves for its backward pass; by default its products' operands.

        Parameters
        ----------
        fused
            What kernels do not write.

        Source: docs/memory.md.
        """
        activation = getattr(self, "activation", None)
        return activated(activation, inputs=bool(self.axes.contracted))

    def weights(self, maps: LayerMaps) -> int:
        """Return the elements of its weights W, without biases."""
        return elements(self.axes.weight, self.sizes(maps))

    def parameters(self, maps: LayerMaps) -> int:
        """Return the number of its learned parameters, biases included."""
        return self.weights(maps) + math.prod(self.bias_shape(maps)) * self.has_bias

    def bias_shape(self, maps: LayerMaps) -> tuple[int, ...]:
        """Return the shape of a bias: the output's channels, per expert if there are experts."""
        written = maps.output
        experts = (written.experts,) if isinstance(written, ExpertMap) else ()
        return (*experts, written.channels)

    def fan_in(self, sizes: Mapping[str, int]) -> int:
        """Return the weighted terms summed in each output; 0 if weights only scale.

        The initialisation of random weights is scaled by it.
        """
        return elements(tuple({*self.axes.weight} - {*self.axes.output}), sizes)

    def macs(self, sizes: Mapping[str, int]) -> int:
        """Return the multiply-accumulates of one pass.

        Parameters
        ----------
        sizes
            The size of every axis, the batch's ``b`` among them.
        """
        if not self.axes.weight:
            return 0
        return elements(self.axes.iterated, sizes)

    def refuse(self, key: str, problem: str) -> Exception:
        """Return the error to raise for one of its keys."""
        return rule(f"layer {self.name!r}, {key}: {problem}")


def elements(axes: tuple[str, ...], sizes: Mapping[str, int]) -> int:
    """Return the elements of a tensor with these axes; 0 for none."""
    return int(math.prod(sizes[axis] for axis in axes if axis in sizes)) if axes else 0
