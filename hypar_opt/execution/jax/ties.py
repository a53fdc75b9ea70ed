"""The axes of a network's arrays that are split together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import HyparError
from hypar_opt.execution.index_labels import levels_by
from hypar_opt.execution.jax.axes import AxisTies, StoredAxis, split_by
from hypar_opt.execution.jax.maps import BETWEEN
from hypar_opt.sharding.layouts import BATCH, CHANNEL, PARTIAL, SHUFFLED, TOKEN
from hypar_opt.workload.expansion import INPUT
from hypar_opt.workload.operands import operands_of
from hypar_opt.workload.operators.attention import HEADS, QUERIES
from hypar_opt.workload.operators.axes import Parts
from hypar_opt.workload.operators.maps import LogitMap

if TYPE_CHECKING:
    from hypar_opt.execution.jax.maps import NetworkMaps
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.sharding.layouts import Layout
    from hypar_opt.workload.operators.base import Operator


class Shapes(NamedTuple):
    """The axes of the arrays that a layer reads and writes, as numbers in `AxisTies`."""

    reads: tuple[int, ...]
    writes: int
    rows: int | None
    """The vocabulary of an embedding that looks up its rows."""


class SplitAxes(NamedTuple):
    """All axes of a network as they are stored; the batch's first, then the input's channels.

    Parameters
    ----------
    shapes
        Indexed by position in `Network.layers`.
    flattened_first
        The fully-connected layers whose input is flattened before its layout is converted. No
        level splits that map by channel, row or column, so its features need not follow the
        channels' split.
    places
        The axes of tokens, experts, rows and columns, by the layout that splits them and their
        number, as positions in ``axes``. Images that no level splits have none.
    """

    axes: list[StoredAxis]
    shapes: list[Shapes]
    flattened_first: frozenset[int]
    places: Mapping[tuple[Layout, int], int]


def split_axes(maps: NetworkMaps) -> SplitAxes:
    """Return a network's axes, split as a plan's layouts say.

    Raises
    ------
    HyparError
        If a size cannot be split evenly.
    """
    network = maps.network
    layers = zip(network.layers, network.sources, strict=True)
    first = frozenset(
        position
        for position, (layer, reads) in enumerate(layers)
        if layer.axes.is_matrix_product
        and all(source >= 0 for source in reads)
        and len(maps.read_positions(reads[0])) == 2
        and not {*BETWEEN[2]} & {*maps.program.stored[maps.read_from(position, reads[0])]}
    )
    while True:
        tying = _Tying(maps, AxisTies(maps.hierarchy), first, {})
        shapes = tying.shapes()
        axes = tying.ties.solve()
        split = {p for p in first if axes[shapes[network.sources[p][0]].writes].split}
        if not split:
            _check_queries(maps, axes, shapes)
            return SplitAxes(axes, shapes, first, tying.places)
        first -= split


def _below_heads(heads: Parts, queries: Parts) -> tuple[Parts, ...]:
    """Return the parts of attention that splits queries: a head's features, of keys each alone."""
    of_queries = {run.tensor: run._replace(repeats=1) for run in queries.runs}
    all_heads = Parts("head", heads.count * queries.count, tuple(of_queries.values()), queries.axis)
    keys = (
        Parts("feature", heads.count * run.scale, (run._replace(scale=1),), heads.axis)
        for run in heads.runs
        if run.tensor not in of_queries
    )
    return all_heads, *keys


def _check_queries(maps: NetworkMaps, axes: Sequence[StoredAxis], shapes: Sequence[Shapes]) -> None:
    """Check that attention's queries are split as its key-value heads, in contiguous parts.

    They do where a key-value head is in each part of the outermost levels of all their features.
    """
    for position, layer in enumerate(maps.network.layers):
        words = maps.program.words(position + maps.shared)
        if QUERIES.word not in words:
            continue
        heads = tuple(level for level, word in enumerate(words) if word == HEADS.word)
        count = layer.sizes(maps.layer_maps[position])["g"]
        splits = [
            axes[number].split for number in (*shapes[position].reads, shapes[position].writes)
        ]
        outermost = all(split[: len(heads)] == heads for split in splits)
        if not outermost or maps.hierarchy.parts(heads) != count:
            raise HyparError(
                f"layer {layer.name!r}: its queries can be split in JAX below levels that have one"
                f" of its {count} key-value heads in each part, and that split nothing else above"
            )


def _input_words(name: str) -> str:
    return name if name == INPUT else f"{INPUT} {name!r}"


@dataclass(frozen=True)
class _Tying:
    """The ties of a network's axes, layer by layer."""

    maps: NetworkMaps
    ties: AxisTies
    flattened_first: frozenset[int]
    places: dict[tuple[Layout, int], int]

    def shapes(self) -> list[Shapes]:
        """Return each layer's axes, tied and split."""
        network, program = self.maps.network, self.maps.program
        batch = self.ties.new(program.workload.batch, "the batch")
        # The first axes after the batch's, in their order.
        input_axes = {
            ~n: self.ties.new(network.map_of(~n).channels, f"channels of the {_input_words(name)}")
            for n, name in enumerate(network.input_names)
        }
        self.ties.split(batch, levels_by(program, BATCH))
        shapes: list[Shapes] = []
        for position, (layer, reads) in enumerate(
            zip(network.layers, network.sources, strict=True)
        ):
            written = input_axes | {source: shape.writes for source, shape in enumerate(shapes)}
            operands = operands_of(network)[position]
            shape = self._tied(position, layer, [written[one.source] for one in operands])
            if position in self.flattened_first:
                read = self.maps.maps[reads[0]].elements
                features = self.ties.new(read, f"layer {layer.name!r}, features")
                shape = shape._replace(reads=(features,))
            shapes.append(shape)
            node = position + self.maps.shared
            for layouts in (program.written[node], program.stored[node]):
                self._split(position, shapes[-1].writes, layouts)
            for number, read in enumerate(shapes[-1].reads):
                self._split(operands[number].source, read, program.read_as(node, number))
            if layer.shuffles:
                self.ties.split(shapes[-1].writes, split_by(program.read[node], SHUFFLED))
        self._tie_shared(shapes)
        return shapes

    def _split(self, source: int, channels: int, layouts: Layouts) -> None:
        """Split the channels and positions of a layer's output as its layouts say."""
        self.ties.split(channels, split_by(layouts, CHANNEL))
        for sizes in (self.maps.read_positions(source), self.maps.unpooled(source)):
            if len(sizes) != 2 or self.maps.splits_images:
                for layout, size in zip(BETWEEN[len(sizes)], sizes, strict=False):
                    self.ties.split(self._place(layout, size, source), split_by(layouts, layout))

    def _place(self, layout: Layout, size: int, source: int) -> int:
        """Return the axis of a number of tokens, or experts, which all layers share."""
        if (layout, size) not in self.places:
            network = self.maps.network
            name = f"{layout}s of the {_input_words(network.source_names[source])}"
            if source >= 0:
                name = f"layer {network.layers[source].name!r}, {layout}s"
            mirrored = layout == TOKEN and size > 1 and self.maps.mirrors_tokens
            self.places[layout, size] = self.ties.new(size, name, mirrored=mirrored)
        return self.places[layout, size]

    def _tie_shared(self, shapes: list[Shapes]) -> None:
        """Split shared tensors, and tie the axes of layers that use the same weights."""
        program, shared = self.maps.program, self.maps.shared
        for node, writer in program.workload.tensor_writers.items():
            self._split(writer - shared, shapes[writer - shared].writes, program.stored[node])
        for users in program.workload.weight_users.values():
            owner = self.maps.owner(users[0] - shared)
            owned = shapes[owner]
            for user in (node - shared for node in users):
                if user == owner:
                    continue
                ends = (*owned.reads, owned.writes)
                if self.maps.transposes(user):
                    assert owned.rows is not None
                    ends = owned.writes, owned.rows
                axes = (*shapes[user].reads, shapes[user].writes)
                rows = shapes[user].rows
                if rows is not None:
                    assert owned.rows is not None
                    ends, axes = (owned.rows, owned.writes), (rows, shapes[user].writes)
                for end, axis in zip(ends, axes, strict=True):
                    self.ties.tie(end, axis)

    def _tied(self, position: int, layer: Operator, sources: list[int]) -> Shapes:
        """Return a layer's axes, after tying those that it reads to the one that it writes."""
        maps, name = self.maps.layer_maps[position], f"layer {layer.name!r}"
        writes = self.ties.new(maps.output.channels, f"{name}, channels")
        if layer.reads_ids:
            if (vocabulary := layer.sizes(maps).get("i")) is None:
                return Shapes((), writes, None)
            rows = self.ties.new(vocabulary, f"{name}, vocabulary")
            written = self.maps.program.written[position + self.maps.shared]
            self.ties.split(rows, split_by(written, PARTIAL))
            return Shapes((), writes, rows)
        if position in self.flattened_first:
            return Shapes((), writes, None)
        image = maps.input.positions > 1 and not maps.input.tokens
        if image and layer.axes.is_matrix_product:
            features = self.ties.new(maps.input.elements, f"{name}, features")
            self.ties.tie(sources[0], features, scale=maps.input.positions)
            return Shapes((features,), writes, None)
        if (tokens := maps.inputs[-1].tokens) and isinstance(maps.inputs[-1], LogitMap):
            groups = self._place(TOKEN, maps.inputs[-1].slots[1], position)
            scale = tokens // maps.inputs[-1].slots[1]
            if scale > 1:
                self.ties.tie(groups, self._place(TOKEN, tokens, position), scale)
        axes = [*sources, writes]
        operands = operands_of(self.maps.network)[position]
        begins = [*(one.channels[0] if one.channels else 0 for one in operands), 0]
        words = self.maps.program.words(position + self.maps.shared)
        parts_of_layer = layer.parts(maps)
        if QUERIES.word in words:
            parts_of_layer = _below_heads(*parts_of_layer)
        elif QUERIES in layer.splits.values():
            parts_of_layer = parts_of_layer[:1]
        for parts in parts_of_layer:
            inner = self.ties.new(parts.count, f"{name}, {parts.name}s")
            for run in parts.runs:
                begin = begins[run.tensor] + run.offset
                self.ties.tie(inner, axes[run.tensor], run.scale, begin, run.repeats)
        if layer.shuffles:
            dealt: int = layer.groups  # type: ignore[attr-defined]
            outer = self.ties.new(dealt, f"{name}, groups")
            self.ties.tie(outer, sources[0], scale=maps.input.channels // dealt)
            inner = self.ties.new(maps.input.channels // dealt, f"{name}, channels of a group")
            self.ties.tie(inner, writes, scale=dealt)
        return Shapes(tuple(sources), writes, None)
