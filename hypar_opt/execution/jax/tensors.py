"""The tensors of a plan as a program on devices stores them: their axes, and what splits each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import HyparError
from hypar_opt.execution.jax.axes import Axis, AxisTies
from hypar_opt.sharding.layouts import Layout
from hypar_opt.sharding.program import Program
from hypar_opt.workload.operators.maps import TokenMap

if TYPE_CHECKING:
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import LayerMaps, Map

KINDS = frozenset(
    (
        *("conv", "fc", "embedding", "attention", "norm", "add", "mul", "concat", "pool"),
        *("global_pool", "flatten", "shuffle", "output"),
    )
)
"""The kinds of layers that become programs."""

ACTIVATIONS = {
    "elu": "jax.nn.elu",
    "gelu": "jax.nn.gelu",
    "hardsigmoid": "jax.nn.hard_sigmoid",
    "hardswish": "jax.nn.hard_swish",
    "leaky_relu": "jax.nn.leaky_relu",
    "mish": "jax.nn.mish",
    "relu": "jax.nn.relu",
    "relu6": "jax.nn.relu6",
    "selu": "jax.nn.selu",
    "sigmoid": "jax.nn.sigmoid",
    "silu": "jax.nn.silu",
    "softplus": "jax.nn.softplus",
    "softsign": "jax.nn.soft_sign",
    "tanh": "jnp.tanh",
}
"""What jax calls the activations of network files."""

NETWORK_INPUT = -1


class Tensor(NamedTuple):
    """An array of a program: its dimensions in order, and the levels that split some of them.

    Parameters
    ----------
    dims
        An `Axis`, of a dimension a level and one of the rest, or the size of one dimension.
    split
        For each of ``dims`` the levels that split it in this tensor.
    """

    dims: tuple[Axis | int, ...]
    split: tuple[tuple[int, ...], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The global shape."""
        sizes = ((dim,) if isinstance(dim, int) else dim.shape for dim in self.dims)
        return tuple(size for dim in sizes for size in dim)

    @property
    def mesh_axes(self) -> tuple[str | None, ...]:
        """The mesh axis that splits each dimension of `shape`, if any."""
        names: list[str | None] = []
        for dim, split in zip(self.dims, self.split, strict=True):
            if isinstance(dim, int):
                names.append(None)
            else:
                names += [f"h{n + 1}" if n in split else None for n in range(dim.levels)]
                names.append(None)
        return tuple(names)

    def stored(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return an array in the network's own order as this tensor stores it."""
        indices = (
            np.arange(dim) if isinstance(dim, int) else dim.order.ravel() for dim in self.dims
        )
        return array[np.ix_(*indices)].reshape(self.shape)

    def original(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Return a stored array in the network's own order; inverts `stored`."""
        sizes = [dim if isinstance(dim, int) else dim.size for dim in self.dims]
        array = np.empty(sizes, stored.dtype)
        indices = (
            np.arange(dim) if isinstance(dim, int) else dim.order.ravel() for dim in self.dims
        )
        array[np.ix_(*indices)] = stored.reshape(sizes)
        return array


class Shapes(NamedTuple):
    """The axes of what a layer reads and writes, numbers of `AxisTies`."""

    reads: tuple[int, ...]
    writes: int
    rows: int | None
    """An embedding's vocabulary."""


@dataclass(frozen=True, eq=False)
class ShardedNetwork:
    """A network with a plan's layouts.

    Raises
    ------
    HyparError
        If a kind of layer or an activation has no program, or a size cannot be split evenly.
    """

    network: Network
    program: Program

    def __post_init__(self) -> None:
        for layer in self.network.layers:
            if layer.kind not in KINDS:
                raise HyparError(f"layer {layer.name!r}: {layer.kind!r} has no program in JAX")
            activation = getattr(layer, "activation", None)
            if activation is not None and activation not in ACTIVATIONS:
                known = ", ".join(ACTIVATIONS)
                raise HyparError(
                    f"layer {layer.name!r}, activation: {activation!r} is not known; one of {known}"
                )
        self._axes  # noqa: B018 - what cannot be split is refused at once

    @property
    def levels(self) -> int:
        return len(self.program.rows)

    @property
    def shared(self) -> int:
        return self.program.workload.shared

    @cached_property
    def maps(self) -> tuple[Map, ...]:
        """What each layer hands on."""
        return tuple(maps.pooled for maps in self.network.maps())

    @cached_property
    def positions(self) -> tuple[tuple[int, ...], ...]:
        """The dimensions of each layer's output between batch and channels."""
        found: list[tuple[int, ...]] = []
        for layer, reads, written in zip(
            self.network.layers, self.network.sources, self.maps, strict=True
        ):
            if isinstance(written, TokenMap):
                found.append((written.tokens,))
                continue
            read = (
                self.input_positions if source == NETWORK_INPUT else found[source]
                for source in reads
            )
            image = layer.reads_images or (
                not layer.writes_vectors and any(len(here) == 2 for here in read)
            )
            found.append((written.height, written.width) if image else ())
        return tuple(found)

    @property
    def input_positions(self) -> tuple[int, ...]:
        """The dimensions of the network's input between batch and channels."""
        given = self.network.input.feature_map()
        if isinstance(given, TokenMap):
            return (given.tokens,)
        is_image = "height" in type(self.network.input).model_fields
        return (given.height, given.width) if is_image else ()

    def read_positions(self, source: int) -> tuple[int, ...]:
        """The dimensions between batch and channels of what a layer writes, -1 the input."""
        return self.input_positions if source == NETWORK_INPUT else self.positions[source]

    @cached_property
    def batch(self) -> Axis:
        """The axis of the batch."""
        return self._axes[0]

    def written(self, position: int) -> Axis:
        """The axis of the channels that a layer writes."""
        return self._axes[self._shapes[position].writes]

    def read(self, position: int, number: int = 0) -> Axis:
        """The axis of the channels that a layer reads as one of its inputs, flattened if it is."""
        return self._axes[self._shapes[position].reads[number]]

    def rows(self, position: int) -> Axis:
        """The axis of an embedding's vocabulary."""
        rows = self._shapes[position].rows
        assert rows is not None
        return self._axes[rows]

    @cached_property
    def input_axis(self) -> Axis:
        """The axis of the channels of the network's input."""
        return self._axes[1]

    @property
    def _axes(self) -> list[Axis]:
        return self._solved[0]

    @property
    def _shapes(self) -> list[Shapes]:
        return self._solved[1]

    @property
    def flattened_first(self) -> frozenset[int]:
        """The fully-connected layers whose input is flattened before its layout is converted.

        No level splits the map by channel: its features need not be split as channels are.
        """
        return self._solved[2]

    @cached_property
    def _solved(self) -> tuple[list[Axis], list[Shapes], frozenset[int]]:
        first = frozenset(
            position
            for position, (layer, reads) in enumerate(
                zip(self.network.layers, self.network.sources, strict=True)
            )
            if layer.kind == "fc"
            and NETWORK_INPUT not in reads
            and len(self.read_positions(reads[0])) == 2
        )
        while True:
            ties, shapes = self._tied_axes(first)
            axes = ties.solve()
            split = {p for p in first if axes[shapes[self.network.sources[p][0]].writes].split}
            if not split:
                return axes, shapes, first
            first -= split

    def _tied_axes(self, flattened_first: frozenset[int]) -> tuple[AxisTies, list[Shapes]]:
        ties = AxisTies(self.levels)
        network, program = self.network, self.program
        batch = ties.new(program.workload.batch, "the batch")
        given = ties.new(network.input.feature_map().channels, "channels of the input")
        everywhere = (*program.read, *program.written, *program.stored)
        ties.split(batch, {h for lay in everywhere for h in _where(lay, Layout.BATCH)})
        shapes: list[Shapes] = []
        for position, (layer, reads) in enumerate(
            zip(network.layers, network.sources, strict=True)
        ):
            sources = [given if s == NETWORK_INPUT else shapes[s].writes for s in reads]
            own = self._tied(ties, position, layer, sources, flattened_first)
            if position in flattened_first:
                read = self._read_map(reads[0]).elements
                own = own._replace(reads=(ties.new(read, f"layer {layer.name!r}, features"),))
            shapes.append(own)
            node = position + self.shared
            for layouts in (program.written[node], program.stored[node]):
                ties.split(shapes[-1].writes, _where(layouts, Layout.CHANNEL))
            for read in shapes[-1].reads:
                ties.split(read, _where(program.read[node], Layout.CHANNEL))
            if layer.kind == "shuffle":
                ties.split(shapes[-1].writes, _where(program.read[node], Layout.SHUFFLED))
        self._tie_shared(ties, shapes)
        return ties, shapes

    def _tie_shared(self, ties: AxisTies, shapes: list[Shapes]) -> None:
        """Split shared tensors and weights."""
        workload = self.program.workload
        for edge in workload.boundaries:
            if edge.target < self.shared:
                stored = self.program.stored[edge.target]
                ties.split(shapes[edge.source - self.shared].writes, _where(stored, Layout.CHANNEL))
        for users in workload.weight_users.values():
            owner = self.owner(users[0])
            own = shapes[owner]
            for user in (node - self.shared for node in users):
                if user == owner:
                    continue
                ends = (shapes[user].reads[0], shapes[user].writes)
                if self.transposes(user):
                    assert own.rows is not None
                    ties.same(own.writes, ends[0])
                    ties.same(own.rows, ends[1])
                else:
                    ties.same(own.reads[0], ends[0])
                    ties.same(own.writes, ends[1])

    def owner(self, node: int) -> int:
        """Return the layer that the weights of a user, a node, are called after."""
        layer = self.network.layers[node - self.shared]
        name = layer.shares_weights_with or layer.name
        return next(n for n, one in enumerate(self.network.layers) if one.name == name)

    def transposes(self, position: int) -> bool:
        """Whether a layer uses an embedding's weights, whose outputs are its inputs."""
        layer = self.network.layers[position]
        owner = self.network.layers[self.owner(position + self.shared)]
        return layer.kind == "fc" and owner.kind == "embedding"

    def _tied(
        self,
        ties: AxisTies,
        position: int,
        layer: Operator,
        sources: list[int],
        flattened_first: frozenset[int],
    ) -> Shapes:
        """Return a layer's axes, with what ties those that it reads to the one it writes."""
        written = self.maps[position]
        name = f"layer {layer.name!r}"
        if layer.kind in ("norm", "add", "mul", "pool", "global_pool", "output"):
            for other in sources[1:]:
                ties.same(sources[0], other)
            return Shapes(tuple(sources), sources[0], None)
        writes = ties.new(written.channels, f"{name}, channels")
        if layer.kind == "embedding":
            rows = ties.new(layer.sizes(self.layer_maps[position])["i"], f"{name}, vocabulary")
            node = position + self.shared
            ties.split(rows, _where(self.program.written[node], Layout.PARTIAL))
            return Shapes((), writes, rows)
        if layer.kind == "concat":
            offset = 0
            sizes = [self._read_map(source).channels for source in self.network.sources[position]]
            if getattr(layer, "axis", "channels") == "tokens":
                for source in sources:
                    ties.same(sources[0], source)
                return Shapes(tuple(sources), sources[0], None)
            for source, size in zip(sources, sizes, strict=True):
                ties.tie(source, writes, offset=offset)
                offset += size
            return Shapes(tuple(sources), writes, None)
        (first, *_) = (self._read_map(source) for source in self.network.sources[position])
        if layer.kind == "fc" and position in flattened_first:
            return Shapes((), writes, None)
        if layer.kind == "fc":
            return Shapes((self._flattened(ties, position, sources[0], name),), writes, None)
        if layer.kind == "flatten":
            if getattr(layer, "to", "features") == "tokens":
                return Shapes((sources[0],), sources[0], None)
            return Shapes((sources[0],), self._flattened(ties, position, sources[0], name), None)
        if layer.kind == "attention":
            self._tie_heads(ties, position, sources, writes)
        if layer.kind == "shuffle":
            groups = layer.groups  # type: ignore[attr-defined]
            outer = ties.new(groups, f"{name}, groups")
            ties.tie(outer, sources[0], scale=first.channels // groups)
            inner = ties.new(first.channels // groups, f"{name}, channels of a group")
            ties.tie(inner, writes, scale=groups)
        groups = getattr(layer, "groups", None) or 1
        if layer.kind == "conv" and groups > 1:
            group = ties.new(groups, f"{name}, groups")
            ties.tie(group, sources[0], scale=first.channels // groups)
            ties.tie(group, writes, scale=written.channels // groups)
        return Shapes(tuple(sources), writes, None)

    def _flattened(self, ties: AxisTies, position: int, source: int, name: str) -> int:
        """Return the axis of what a layer reads, flattened."""
        (read,) = self.network.sources[position]
        over = self._read_map(read)
        tokens = isinstance(over, TokenMap)
        if (tokens and self.network.layers[position].kind == "fc") or not self.read_positions(read):
            return source
        flat = ties.new(over.elements, f"{name}, features")
        if tokens:
            ties.tie(source, flat, repeats=over.tokens)
        else:
            ties.tie(source, flat, scale=over.positions)
        return flat

    def _tie_heads(
        self, ties: AxisTies, position: int, sources: Sequence[int], writes: int
    ) -> None:
        layer, maps = self.network.layers[position], self.layer_maps[position]
        sizes = layer.sizes(maps)
        groups, each = sizes["g"], sizes["r"]
        heads = ties.new(groups, f"layer {layer.name!r}, key-value heads")
        ties.tie(heads, writes, scale=each * sizes["d"])
        if len(sources) == 1:
            offset = 0
            for scale in (each * sizes["e"], sizes["e"], sizes["e"]):
                ties.tie(heads, sources[0], scale, offset)
                offset += groups * scale
            return
        scales = (each * sizes["e"], sizes["e"], sizes["d"])
        for source, scale in zip(sources, scales, strict=True):
            ties.tie(heads, source, scale)

    @cached_property
    def layer_maps(self) -> list[LayerMaps]:
        return list(self.network.maps())

    def _read_map(self, source: int) -> Map:
        return self.network.input.feature_map() if source == NETWORK_INPUT else self.maps[source]


def _where(layouts: Layouts, wanted: Layout) -> Iterator[int]:
    return (level for level, layout in enumerate(layouts) if layout is wanted)
