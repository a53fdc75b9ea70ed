"""The tensors of one layer, or of an edge between two layers, for a batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.halos import border_of
from hypar_opt.workload.operators.axes import (
    BATCH,
    BY_BATCH,
    BY_COLUMN,
    BY_EXPERT,
    BY_ROW,
    BY_TOKEN,
    EXPERTS,
    POSITIONS,
    REORDERED,
    SPATIAL,
    TOKENS,
)
from hypar_opt.workload.operators.maps import ExpertMap, FeatureMap
from hypar_opt.workload.parallelism import PART_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from hypar_opt.workload.halos import Border
    from hypar_opt.workload.operators.axes import Choice, Contraction
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.kernels import Fused, PassesKernels
    from hypar_opt.workload.operators.maps import LayerMaps, Load, Map

Made = TypeVar("Made")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LayerTensors:
    """The tensors of layer l: ``(batch, channels, height, width)``, of images.

    Of tokens ``(batch, tokens, features)``, and of a vector ``(batch, features)``.

    Source: section 3.1; docs/model.md: no biases, and the next layer reads pooled maps.
    """

    name: str
    kind: str
    operator: Operator
    """An equal layer (but for the name), which declares the axes of its tensors and what each
    choice splits."""
    sizes: Mapping[str, int]
    """The size of every axis, including the batch's ``b``."""
    input: Shape
    """F_l as this layer reads it: flattened, if it is fully-connected; the first of several inputs.
    """
    output: Shape
    """F_{l+1} before pooling: the extent of model parallelism's partial sums."""
    pooled: Shape
    """F_{l+1} after pooling, as the next layer reads it."""
    further_inputs: tuple[Shape, ...] = ()
    """Further inputs."""
    statistics: tuple[int, int] = (0, 0)
    """Elements of statistics, forward and backward: all-reduced where a split axis is not
    theirs."""
    tied: bool = False
    """Whether it shares weights with another layer; the gradient then belongs to a separate
    node."""
    lacked: tuple[str, ...] = ()
    """The axes that its kind splits and that some of its tensors lack, in the kind's order."""
    borders: Mapping[str, Border] = FrozenDict()
    """How rows and columns may be split, and what their parts exchange; absent where they may
    not."""
    split_outputs: tuple[int, ...] = ()
    """The channels of each result where its output is several of them, concatenated."""
    load: Load = ()
    """The load of its experts, as in `Routing`, if they have no capacity."""

    @property
    def weight(self) -> Shape:
        """W_l: ``(kernel height, width, input, output channels)``, or ``(input, output)``.

        A grouped convolution has the number of groups first, then the channels of one group. Empty
        without weights.
        """
        return self._shape(self.operator.axes.weight)

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one pass (forward, backward or gradient), whole batch."""
        return self.operator.macs(self.sizes)

    def kernels(self, *, fused: Fused) -> PassesKernels:
        """Return the kernels of its passes; see `Operator.kernels`."""
        return self.operator.kernels(self.sizes, fused=fused)

    @property
    def gradient(self) -> Shape:
        """dW_l: as large as the weights."""
        return self.weight

    @property
    def input_error(self) -> Shape:
        """E_l: as large as the layer's input."""
        return self.input

    @property
    def error(self) -> Shape:
        """E_{l+1} as it arrives from the next layer: as large as the pooled feature map."""
        return self.pooled

    def has(self, choice: Choice, *, may_be_whole: bool = False) -> bool:
        """Return whether the layer itself has a choice of its kind."""
        if choice.axis:
            return choice.axis not in self.lacked
        # Shared weights that no choice splits belong to data parallelism.
        return (may_be_whole and bool(self.output)) or choice.word in PART_WORDS

    def split_size(self, choice: Choice) -> int:
        """Return the size of the axis that a choice divides; 0 for none.

        Concatenated results are divided separately, so the size is their greatest common divisor.
        """
        if choice.axis in self.borders:
            return self.borders[choice.axis].size
        size = self.sizes[choice.axis] if choice.axis else 0
        non_channels = (BATCH, *POSITIONS, EXPERTS.axis)
        divides_output = (
            choice.axis not in non_channels and choice.axis in self.operator.axes.output
        )
        return gcd(size, *self.split_outputs) if divides_output else size

    def renamed(self, name: str) -> LayerTensors:
        """Return the tensors of an equal layer of another name."""
        renamed = object.__new__(type(self))  # an eighth of the time of `replace`
        vars(renamed).update(vars(self), name=name)
        return renamed

    def without(self, axes: Collection[str]) -> LayerTensors:
        """Return these tensors with some axes of images barred from splitting."""
        borders = {axis: border for axis, border in self.borders.items() if axis not in axes}
        split_axes = (choice.axis for choice in self.operator.splits.values())
        lacked = tuple(axis for axis in split_axes if axis in self.lacked or axis in axes)
        return replace(self, lacked=lacked, borders=FrozenDict(borders))

    def _shape(self, axes: Sequence[str]) -> Shape:
        return tuple(self.sizes[axis] for axis in axes if axis in self.sizes)


class Boundary(NamedTuple):
    """The tensor on an edge between two positions in `Workload.nodes`."""

    source: int
    target: int
    shape: Shape
    weights: bool = False
    """Whether it leads from shared weights to a layer that uses them."""
    input: int = 0
    """The number of the target's input that it is."""

    @property
    def extent(self) -> Extent:
        """The sizes of the tensor and of its axes."""
        elements = int(prod(self.shape))  # with fractions of slots, too
        if self.weights:
            return Extent(elements)
        if len(self.shape) == 4:
            batch, channels, *image = self.shape
            return Extent(elements, batch, channels, 1, *image)
        if len(self.shape) == 5:
            batch, experts, groups, _, features = self.shape
            return Extent(elements, batch, features, groups, experts=experts)
        batch, *tokens, channels = self.shape[:3] if len(self.shape) == 3 else self.shape[:2]
        return Extent(elements, batch, channels, *tokens)


class Extent(NamedTuple):
    """The size of a tensor in elements, and of the axes between which all-to-alls convert it.

    Each may be an array over many tensors.

    Parameters
    ----------
    batch, channels, tokens, rows, columns, experts
        1 if no all-to-all converts the tensor, or it lacks the axis. Of dispatched tokens,
        ``tokens`` counts the routing groups.
    """

    elements: int
    batch: int = 1
    channels: int = 1
    tokens: int = 1
    rows: int = 1
    columns: int = 1
    experts: int = 1

    @staticmethod
    def axis(layout: str) -> int:
        """Return the position of the field that a layout splits."""
        positions = {BY_BATCH: 1, BY_TOKEN: 3, BY_ROW: 4, BY_COLUMN: 5, BY_EXPERT: 6}
        return positions.get(layout, 2)

    def along(self, layout: str) -> int:
        """Return the size of the axis that a layout splits."""
        return self[self.axis(layout)]


def memoised(
    make: Callable[..., Made], layers: Iterable[tuple[Operator, *tuple[Hashable, ...]]]
) -> list[Made]:
    """Return ``make`` of each layer, called once for layers equal but for their names and inputs.

    An embedding and a learned table differ in whether there are inputs.

    Parameters
    ----------
    make
        Called with a layer and the further arguments that its result depends on.
    """
    cache: dict[Hashable, Made] = {}
    results = []
    for layer, *arguments in layers:
        settings = [value for key, value in vars(layer).items() if key not in ("name", "inputs")]
        key = type(layer), layer.inputs == (), *arguments, *settings
        if key not in cache:
            cache[key] = make(layer, *arguments)
        results.append(cache[key])
    return results


def tensors_of(layer: Operator, maps: LayerMaps, batch: int, *, tied: bool = False) -> LayerTensors:
    """Return the tensors of a layer, given its maps for one image or sequence."""
    contraction = layer.axes
    sizes = {BATCH: batch, **layer.sizes(maps)}

    def shape(axes: tuple[str, ...], over: Map) -> Shape:
        if not axes:
            return ()
        # Without axes of height and width a map is a vector: a fully-connected layer flattens what
        # it reads.
        is_image = sum(axis.rstrip(REORDERED) in sizes for axis in axes if axis != "g") >= 3
        is_vector = isinstance(over, FeatureMap) and not is_image
        return (batch, over.elements) if is_vector else (batch, *over)

    borders = {axis: border_of(layer, maps, axis) for axis in SPATIAL if axis in sizes}
    return LayerTensors(
        name=layer.name,
        kind=layer.kind,
        operator=layer,
        sizes=FrozenDict(sizes),
        input=shape(contraction.input, maps.input),
        output=shape(contraction.output, maps.output),
        pooled=shape(contraction.output, maps.pooled),
        further_inputs=tuple((batch, *other) for other in maps.further_inputs),
        statistics=layer.statistics.elements(sizes),
        tied=tied,
        lacked=tuple(
            choice.axis
            for choice in layer.splits.values()
            if choice.axis
            and not (
                borders.get(choice.axis)
                if choice.axis in SPATIAL
                else _all_have(choice.axis, contraction, sizes, maps)
            )
        ),
        borders=FrozenDict({axis: border for axis, border in borders.items() if border}),
        load=next(
            (side.load for side in (maps.output, maps.input) if isinstance(side, ExpertMap)), ()
        ),
    )


def _all_have(
    axis: str, contraction: Contraction, sizes: Mapping[str, int], maps: LayerMaps
) -> bool:
    """Return whether all tensors with an axis have its full extent: none is broadcast.

    Channels are always split together; see `Operator.parts`.
    """
    if axis not in sizes:
        return False
    if axis != TOKENS.axis:
        return True
    read = zip(contraction.read(len(maps.inputs), len(maps.inputs)), maps.inputs, strict=True)
    named = [*read, (contraction.output, maps.output)]
    # Tokens may be groups, which have several each.
    return all(
        over.tokens == sizes[axis] * (sizes["T"] if "T" in axes else 1)
        for axes, over in named
        if axis in axes
    )


def unaligned_pool_axes(writer: LayerTensors) -> frozenset[str]:
    """Return the image axes that a layer's readers may not split: its fused pool crosses parts.

    Partial sums are reduced before the pool, into the layout of the reader.
    """
    if (pool := writer.operator.fused_pool) is None:
        return frozenset()
    extents = zip(SPATIAL, writer.output[2:], writer.pooled[2:], pool.stride, strict=False)
    return frozenset(
        axis
        for axis, before, after, stride in extents
        if pool.window(axis).halo != (0, 0) or before != stride * after
    )


def drop_unaligned_splits(
    nodes: Sequence[LayerTensors], boundaries: Sequence[Boundary]
) -> list[LayerTensors]:
    """Return the nodes, barred from splitting the `unaligned_pool_axes` of layers that they read.

    Parameters
    ----------
    boundaries
        In an order in which the boundary into a shared tensor precedes those to its readers.
    """
    hidden, restricted = [unaligned_pool_axes(node) for node in nodes], [*nodes]
    for edge in boundaries:
        if not edge.weights and (axes := hidden[edge.source]):
            restricted[edge.target] = restricted[edge.target].without(axes)
            if nodes[edge.target].kind == "tensor":
                hidden[edge.target] |= axes
    return restricted
