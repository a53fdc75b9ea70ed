"""The axes of a network's arrays that are split together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.execution.jax.axes import AxisTies, StoredAxis
from hypar_opt.execution.jax.maps import NETWORK_INPUT, NetworkMaps
from hypar_opt.sharding.layouts import Layout
from hypar_opt.workload.operators.maps import TokenMap

if TYPE_CHECKING:
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.operators.base import Operator


class Shapes(NamedTuple):
    """The axes of the arrays that a layer reads and writes, as numbers in `AxisTies`."""

    reads: tuple[int, ...]
    writes: int
    rows: int | None
    """An embedding's vocabulary."""


class SplitAxes(NamedTuple):
    """All axes of a network as they are stored; the batch's first, then the input's channels.

    Parameters
    ----------
    shapes
        Indexed by position in `Network.layers`.
    flattened_first
        The fully-connected layers whose input is flattened before its layout is converted. No
        level splits that map by channel, so its features need not follow the channels' split.
    """

    axes: list[StoredAxis]
    shapes: list[Shapes]
    flattened_first: frozenset[int]


def split_axes(maps: NetworkMaps, program: Program) -> SplitAxes:
    """Return a network's axes, split as a plan's layouts say.

    Raises
    ------
    HyparError
        If a size cannot be split evenly.
    """
    layers = zip(maps.network.layers, maps.network.sources, strict=True)
    first = frozenset(
        position
        for position, (layer, reads) in enumerate(layers)
        if layer.kind == "fc"
        and NETWORK_INPUT not in reads
        and len(maps.read_positions(reads[0])) == 2
    )
    while True:
        tying = _Tying(maps, program, AxisTies(len(program.rows)), first)
        shapes = tying.shapes()
        axes = tying.ties.solve()
        split = {p for p in first if axes[shapes[maps.network.sources[p][0]].writes].split}
        if not split:
            return SplitAxes(axes, shapes, first)
        first -= split


@dataclass(frozen=True)
class _Tying:
    """The ties of a network's axes, layer by layer."""

    maps: NetworkMaps
    program: Program
    ties: AxisTies
    flattened_first: frozenset[int]

    @property
    def _shared(self) -> int:
        return self.program.workload.shared

    def shapes(self) -> list[Shapes]:
        """Return each layer's axes, tied and split."""
        network, program = self.maps.network, self.program
        batch = self.ties.new(program.workload.batch, "the batch")
        network_input = self.ties.new(network.input.feature_map().channels, "channels of the input")
        everywhere = (*program.read, *program.written, *program.stored)
        self.ties.split(batch, {h for lay in everywhere for h in _where(lay, Layout.BATCH)})
        shapes: list[Shapes] = []
        for position, (layer, reads) in enumerate(
            zip(network.layers, network.sources, strict=True)
        ):
            sources = [network_input if s == NETWORK_INPUT else shapes[s].writes for s in reads]
            shape = self._tied(position, layer, sources)
            if position in self.flattened_first:
                read = self.maps.read_map(reads[0]).elements
                features = self.ties.new(read, f"layer {layer.name!r}, features")
                shape = shape._replace(reads=(features,))
            shapes.append(shape)
            node = position + self._shared
            for layouts in (program.written[node], program.stored[node]):
                self.ties.split(shapes[-1].writes, _where(layouts, Layout.CHANNEL))
            for read in shapes[-1].reads:
                self.ties.split(read, _where(program.read[node], Layout.CHANNEL))
            if layer.shuffles:
                self.ties.split(shapes[-1].writes, _where(program.read[node], Layout.SHUFFLED))
        self._tie_shared(shapes)
        return shapes

    def _tie_shared(self, shapes: list[Shapes]) -> None:
        """Split shared tensors, and tie the axes of layers that use the same weights."""
        workload = self.program.workload
        for node, writer in workload.tensor_writers.items():
            axis = shapes[writer - self._shared].writes
            self.ties.split(axis, _where(self.program.stored[node], Layout.CHANNEL))
        for users in workload.weight_users.values():
            owner = self.maps.owner(users[0] - self._shared)
            owned = shapes[owner]
            for user in (node - self._shared for node in users):
                if user == owner:
                    continue
                ends = (shapes[user].reads[0], shapes[user].writes)
                if self.maps.transposes(user):
                    assert owned.rows is not None
                    self.ties.same(owned.writes, ends[0])
                    self.ties.same(owned.rows, ends[1])
                else:
                    self.ties.same(owned.reads[0], ends[0])
                    self.ties.same(owned.writes, ends[1])

    def _tied(self, position: int, layer: Operator, sources: list[int]) -> Shapes:
        """Return a layer's axes, after tying those that it reads to the one that it writes."""
        written = self.maps.maps[position]
        name = f"layer {layer.name!r}"
        if layer.kind in ("norm", "add", "mul", "pool", "global_pool", "output"):
            for other in sources[1:]:
                self.ties.same(sources[0], other)
            return Shapes(tuple(sources), sources[0], None)
        writes = self.ties.new(written.channels, f"{name}, channels")
        if layer.kind == "embedding":
            rows = self.ties.new(
                layer.sizes(self.maps.layer_maps[position])["i"], f"{name}, vocabulary"
            )
            node = position + self._shared
            self.ties.split(rows, _where(self.program.written[node], Layout.PARTIAL))
            return Shapes((), writes, rows)
        if layer.kind == "concat":
            offset = 0
            sizes = [
                self.maps.read_map(source).channels
                for source in self.maps.network.sources[position]
            ]
            if getattr(layer, "axis", "channels") == "tokens":
                for source in sources:
                    self.ties.same(sources[0], source)
                return Shapes(tuple(sources), sources[0], None)
            for source, size in zip(sources, sizes, strict=True):
                self.ties.tie(source, writes, offset=offset)
                offset += size
            return Shapes(tuple(sources), writes, None)
        (first, *_) = (self.maps.read_map(source) for source in self.maps.network.sources[position])
        if layer.kind == "fc" and position in self.flattened_first:
            return Shapes((), writes, None)
        if layer.kind == "fc":
            return Shapes((self._flattened(position, sources[0], name),), writes, None)
        if layer.kind == "flatten":
            if getattr(layer, "to", "features") == "tokens":
                return Shapes((sources[0],), sources[0], None)
            return Shapes((sources[0],), self._flattened(position, sources[0], name), None)
        if layer.kind == "attention":
            self._tie_heads(position, sources, writes)
        if layer.kind == "shuffle":
            groups = layer.groups  # type: ignore[attr-defined]
            outer = self.ties.new(groups, f"{name}, groups")
            self.ties.tie(outer, sources[0], scale=first.channels // groups)
            inner = self.ties.new(first.channels // groups, f"{name}, channels of a group")
            self.ties.tie(inner, writes, scale=groups)
        groups = getattr(layer, "groups", None) or 1
        if layer.kind == "conv" and groups > 1:
            group = self.ties.new(groups, f"{name}, groups")
            self.ties.tie(group, sources[0], scale=first.channels // groups)
            self.ties.tie(group, writes, scale=written.channels // groups)
        return Shapes(tuple(sources), writes, None)

    def _flattened(self, position: int, source: int, name: str) -> int:
        """Return the axis of a layer's flattened input."""
        (read,) = self.maps.network.sources[position]
        over = self.maps.read_map(read)
        tokens = isinstance(over, TokenMap)
        if (
            tokens and self.maps.network.layers[position].kind == "fc"
        ) or not self.maps.read_positions(read):
            return source
        flat = self.ties.new(over.elements, f"{name}, features")
        if tokens:
            self.ties.tie(source, flat, repeats=over.tokens)
        else:
            self.ties.tie(source, flat, scale=over.positions)
        return flat

    def _tie_heads(self, position: int, sources: Sequence[int], writes: int) -> None:
        layer, maps = self.maps.network.layers[position], self.maps.layer_maps[position]
        sizes = layer.sizes(maps)
        groups, each = sizes["g"], sizes["r"]
        heads = self.ties.new(groups, f"layer {layer.name!r}, key-value heads")
        self.ties.tie(heads, writes, scale=each * sizes["d"])
        if len(sources) == 1:
            offset = 0
            for scale in (each * sizes["e"], sizes["e"], sizes["e"]):
                self.ties.tie(heads, sources[0], scale, offset)
                offset += groups * scale
            return
        scales = (each * sizes["e"], sizes["e"], sizes["d"])
        for source, scale in zip(sources, scales, strict=True):
            self.ties.tie(heads, source, scale)


def _where(layouts: Layouts, wanted: Layout) -> Iterator[int]:
    return (level for level, layout in enumerate(layouts) if layout is wanted)
