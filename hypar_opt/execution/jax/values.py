"""A layer's computation as an expression over its inputs: calls of operations and of jax."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError
from hypar_opt.execution.jax.axes import split_by
from hypar_opt.execution.jax.gathers import readers_of
from hypar_opt.execution.jax.maps import BETWEEN
from hypar_opt.execution.jax.weights import bias_of, split_ends, weights_of
from hypar_opt.sharding.layouts import BATCH, CHANNEL, EXPERT, PARTIAL, TOKEN
from hypar_opt.workload.operators.attention import HEADS, QUERIES
from hypar_opt.workload.operators.maps import LogitMap
from hypar_opt.workload.operators.sinusoid import SINUSOID_BASE

if TYPE_CHECKING:
    from hypar_opt.execution.jax.axes import StoredAxis
    from hypar_opt.execution.jax.tensors import ShardedNetwork
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.maps import Routing
    from hypar_opt.workload.operators.windows import PoolWindow


class Values:
    """The expressions of a sharded network's layers.

    Parameters
    ----------
    alone
        Generate code for one device that holds everything: the same arrays, no exchanges.
    """

    def __init__(self, sharded: ShardedNetwork, *, alone: bool) -> None:
        self.sharded, self.alone = sharded, alone
        self.network, self.program = sharded.network, sharded.program
        self.shared = sharded.shared
        self.repeats = sharded.program.workload.repeats
        # Numbers of `apart`, which no index of the topmost level exceeds.
        self._numbers = count(next(iter(sharded.hierarchy.sizes), 2) - 1)

    def value(self, position: int, layer: Operator, reads: Sequence[str]) -> str:
        """Return the expression of a layer, before its partial sums are reduced.

        Raises
        ------
        HyparError
            If its kind has no program.
        """
        if layer.kind not in KINDS:
            raise HyparError(f"layer {layer.name!r}: {layer.kind!r} has no program in JAX")
        return KINDS[layer.kind](self, position, layer, *reads)

    def runs_again(self, position: int) -> bool:
        """Return whether the backward pass runs a layer again with others, exchanges included."""
        return self.run_of(position) is not None

    def run_of(self, position: int) -> tuple[str, int] | None:
        """Return what a layer is recomputed with: a block, perhaps without products, or a tensor.

        The numbers are those of the block's first layer, and of the tensor's node.
        """
        if self.alone:
            return None
        layer = position + self.shared
        first = self.repeats.recomputed.get(layer)
        if first is not None:
            return "block", first
        for block in self.repeats.blocks:
            if layer in block:
                return "op", block[0]
        node = self._reads_again.get(position)
        return None if node is None else ("tensor", node)

    def keeps(self, position: int) -> bool:
        """Return whether a layer's products are kept when its block is recomputed."""
        run = self.run_of(position)
        return run is not None and run[0] == "op" and self.network.layers[position].sums

    @cached_property
    def _reads_again(self) -> Mapping[int, int]:
        """The tensor that is gathered again, by the layer that reads it."""
        readers = readers_of(self.program.workload)
        return {position: node for node, positions in readers.items() for position in positions}

    def number(self) -> str:
        """Return a number that no other call of `apart` has."""
        return str(next(self._numbers))

    def gathers(self, position: int) -> bool:
        """Return whether a layer's weights are gathered for each use."""
        return self.network.layers[self.sharded.owner(position)].name in self._gathered

    @cached_property
    def _gathered(self) -> frozenset[str]:
        """The layers of whose weights devices keep shards."""
        stored = {} if self.alone else weights_of(self.sharded)
        return frozenset(name for name, weights in stored.items() if weights.over("weights"))

    def _applied(self, function: str, position: int, read: str, more: str = "") -> str:
        """Return the call of a function of what a layer reads, its weights, and other arguments."""
        if not self.gathers(position) or self.runs_again(position):
            return f"{function}({read}, {self._weights(position)}{more})"
        # The second number is that of the backward pass.
        number, _ = next(self._numbers), next(self._numbers)
        weights_slice = self._slice(position, "a")
        if more or weights_slice != "a":
            function = f"lambda x, a: {function}(x, {weights_slice}{more})"
        return f"used({function}, {number}, {unwrapped(read)}, {self._stored_weights(position)})"

    def _weights(self, position: int) -> str:
        """Return a layer's weights; of shared weights, the slice that it uses."""
        text = self._stored_weights(position)
        if self.gathers(position):
            text = f"whole({text}, {self.number()})"
        return self._slice(position, text)

    def bias(self, position: int) -> str:
        """Return a layer's bias, of the channels that a device has of its output."""
        return f"w[{quoted(bias_of(self.network.layers[position].name))}]"

    def _stored_weights(self, position: int) -> str:
        """Return the weights that a layer's are among, as devices keep them."""
        return f"w[{quoted(self.network.layers[self.sharded.owner(position)].name)}]"

    def _slice(self, position: int, text: str) -> str:
        """Return a layer's weights, given the text of those that they are among."""
        node = position + self.shared
        users = self.program.workload.weight_users
        shared = next((one for one, layers in users.items() if node in layers), None)
        if shared is None:
            return text
        stored, used = (split_ends(self.sharded, one) for one in (shared, node))
        if self.sharded.transposes(position):
            text, stored = f"transposed({text})", stored[::-1]
        for levels, stored_levels, end in zip(used, stored, ("INPUTS", "OUTPUTS"), strict=True):
            for level in self.mesh_levels(levels):
                if level not in stored_levels:
                    text = f"keep_part({text}, {self.sharded.axis(level)}, {end})"
        return text

    def mesh_levels(self, levels: Sequence[int]) -> Sequence[int]:
        """Return the levels of the module's mesh among some: none on one device."""
        return () if self.alone else levels

    def axes(self, levels: Sequence[int]) -> str:
        """Return the text of a tuple of the mesh axes among some levels: empty on one device."""
        return self.sharded.names(self.mesh_levels(levels))

    def apart(self, value: str) -> str:
        """Return a value tagged with a unique number, so that XLA does not merge it with equals."""
        if self.alone or value.startswith("apart("):
            return value
        return f"apart({value}, {self.number()})"

    def _fc(self, position: int, layer: Operator, read: str) -> str:
        del layer
        (source,) = self.network.sources[position]
        is_image = self.sharded.read_positions(source) and not self.sharded.positions[position]
        if is_image and position not in self.sharded.split.flattened_first:
            read = f"flatten({read})"
        return self._applied("linear", position, read)

    def _conv(self, position: int, layer: Any, read: str) -> str:
        padding = self._unless_extended(position, _borders(layer.padding))
        dilation = f", {layer.dilation}" if layer.dilation else ""
        function = "transposed_conv" if layer.transposed else "conv"
        return self._applied(function, position, read, f", {layer.stride}, {padding}{dilation}")

    def pooled(self, position: int, pool: PoolWindow, value: str) -> str:
        maps = self.sharded.layer_maps[position]
        over = maps.output if self.network.layers[position].fused_pool else maps.input
        extents = (over.height, over.width)  # type: ignore[union-attr]
        borders = []
        for extent, windows, size, stride, (before, after) in zip(
            extents,
            (maps.pooled.height, maps.pooled.width),  # type: ignore[union-attr]
            pool.size,
            pool.stride,
            _borders(pool.padding),
            strict=True,
        ):
            # A last window that only partly covers the map needs a wider border.
            borders.append((before, max(after, (windows - 1) * stride + size - extent - before)))
        padding, parts = tuple(borders), ""
        if not self.network.layers[position].fused_pool:
            padding = self._unless_extended(position, borders)
            reads = self.parts_of_images(position) if pool.kind == "average" else ()
            parts = f", ({', '.join(reads)},)" if reads else ""
        return f"{pool.kind}_pool({unwrapped(value)}, {pool.size}, {pool.stride}, {padding}{parts})"

    def _unless_extended(
        self, position: int, padding: Sequence[tuple[int, int]]
    ) -> tuple[tuple[int, int], ...]:
        """Return the padding of a layer's windows: none where they read parts of an image."""
        read = self.program.read[position + self.shared]
        split = [layout in read and not self.alone for layout in BETWEEN[2]]
        return tuple(
            (0, 0) if is_split else one for is_split, one in zip(split, padding, strict=True)
        )

    def parts_of_images(self, position: int) -> tuple[str, ...]:
        """Return the text of a layer's halos: rows first, then columns."""
        return tuple(
            f"({halo.layout.upper()}, {self.axes(halo.levels)}, {halo.before}, {halo.behind})"
            for halo in (() if self.alone else self.sharded.halos(position))
        )

    def local_places(self, over: Any, layouts: Layouts) -> tuple[int, ...]:
        """Return the dimensions of the rows and columns that a device has of an image."""
        axes = zip(self.sharded.along((over.height, over.width)), BETWEEN[2], strict=True)
        return tuple(
            size for axis, layout in axes for size in self._local(axis, split_by(layouts, layout))
        )

    def _embedding(self, position: int, layer: Any, read: str | None = None) -> str:
        rows = self._rows(position, layer, read)
        return f"jnp.multiply({rows}, {layer.scale})" if layer.scale else rows

    def _rows(self, position: int, layer: Any, read: str | None) -> str:
        node = position + self.shared
        weights = self._weights(position)
        if read is None and self.repeats.micro_batches > 1 and not self.alone:
            # Else XLA would compute what no image decides once for all micro-batches.
            weights = f'apart({weights}, {self.number()} + inputs["turn"])'
        images = self._local(self.sharded.batch, split_by(self.program.written[node], BATCH))
        if "i" not in layer.axes.weight:
            return f"each_image({weights}, {images})"
        rows = self.sharded.rows(position)
        split = self.axes(split_by(self.program.written[node], PARTIAL))
        if read is not None:
            return f"embedding({read}, {weights}, {rows.shape}, {split})"
        tokens = split_by(self.program.written[node], TOKEN)
        places = self._local(self.sharded.tokens(position), tokens)
        ids = f"held({places}, {self.axes(tokens)})"
        if (axis := self.sharded.tokens(position)).mirrored:
            ids = f"tokens_at({ids}, {axis.size}, {axis.size // axis.parts})"
        ids = f"jnp.broadcast_to({ids}, {(*images, *places)})"
        return f"embedding({ids}, {weights}, {rows.shape}, {split})"

    def _local(self, axis: StoredAxis | int, split: Sequence[int]) -> tuple[int, ...]:
        """Return the dimensions of a device's part of an axis."""
        if isinstance(axis, int):
            return (axis,)
        split = self.mesh_levels(split)
        return tuple(1 if level in split else size for level, size in enumerate(axis.shape))

    def _attention(self, position: int, layer: Any, *reads: str) -> str:
        sizes = layer.sizes(self.sharded.layer_maps[position])
        words, function = self.program.words(position + self.shared), "attention"
        groups, queries = sizes["g"] // self.sharded.written(position).parts, sizes["r"]
        if QUERIES.word in words:
            function = "attention_below_heads"
            groups, queries = (
                sizes[choice.axis]
                // self.program.hierarchy.parts(
                    self.mesh_levels([n for n, word in enumerate(words) if word == choice.word])
                )
                for choice in (HEADS, QUERIES)
            )
        if layer.shares_features:
            function = "attention_with_shared_features"
        sinks = reads[3:] if layer.sinks else ()
        inputs = ", ".join(reads[: len(reads) - len(sinks)])
        split = self.mesh_levels(split_by(self.program.written[position + self.shared], TOKEN))
        more = f"{groups}, {queries}, causal={bool(layer.causal)}"
        if layer.windows:
            function = "attention_in_windows"
            more = f"queries={queries}, features={sizes['e']}, size={layer.windows.size}"
            more += f", columns={layer.windows.columns}"
            more += f", shift={layer.windows.shift}" if layer.windows.shift else ""
        more += f", window={layer.window}" if layer.window else ""
        more += f", softcap={layer.softcap!r}" if layer.softcap else ""
        more += ", mirrored=True" if self.sharded.mirrors_tokens else ""
        more += f", split={self.axes(split)}" if split else ""
        if layer.rotary is not None:
            more += f", rotary={layer.rotary.pairing(sizes.get('m', sizes['e']))}"
        more += f", scale={layer.scale!r}" if layer.scale else ""
        more += "".join(f", sinks={sink}" for sink in sinks)
        again = position + self.shared in self.repeats.recomputed
        if again and not (self.alone or self.runs_again(position)):
            return f"jax.checkpoint(lambda *x: {function}(*x, {more}))({inputs})"
        return f"{function}({inputs}, {more})"

    def _norm(self, position: int, layer: Any, read: str) -> str:
        epsilon = "" if layer.epsilon is None else f", epsilon={layer.epsilon!r}"
        if layer.norm == "batch":
            # One device normalises each device's part separately, as the devices do.
            of = f", {self._shares(position)}" if self.alone else ""
            if self.sharded.padding is not None:
                layouts = self.program.read[position + self.shared]
                of = f"{of or ', ()'}, {self.real_images(read, layouts)}"
            read = f"batch_norm({unwrapped(read)}{of}{epsilon})"
        elif layer.heads:
            size = layer.sizes(self.sharded.layer_maps[position])["e"]
            more = f"{size}, centred={layer.norm == 'layer'}{epsilon}"
            of_heads = self._applied("affine", position, f"head_norm({unwrapped(read)}, {more})")
            return f"heads_joined({of_heads})"
        elif layer.norm != "affine":
            steps = self.program.statistics_steps(position + self.shared)
            split = sorted(step.level for step in steps)
            features = self.sharded.written(position).size
            more = f"{self.axes(split)}, centred={layer.norm == 'layer'}{epsilon}"
            function, over = "layer_norm", f"{features}"
            if layer.groups:
                size = features // layer.groups
                elements = size * self.sharded.layer_maps[position].input.positions
                function, over = "group_norm", f"{size if layer.groups > 1 else None}, {elements}"
            read = f"{function}({unwrapped(read)}, {over}, {more})"
        return self._applied("affine", position, read)

    def real_images(self, variable: str, layouts: Layouts) -> str:
        """Return which images of a tensor are not padding."""
        split = self.axes(split_by(layouts, BATCH))
        return f"real_images({unwrapped(variable)}, {split})"

    def _shares(self, position: int) -> tuple[int, ...]:
        """Return the dimensions by which levels split the images that a layer reads."""
        read, stride = self.program.read[position + self.shared], self.sharded.levels + 1
        axes = enumerate((BATCH, *BETWEEN[2]))
        return tuple(n * stride + level for n, layout in axes for level in split_by(read, layout))

    def _broadcast(self, position: int, reads: Sequence[str], sign: str) -> str:
        places = self.sharded.places(position)
        terms = []
        for read, source in zip(reads, self.network.sources[position], strict=True):
            same = len(self.sharded.places(source)) == len(places)
            terms.append(read if same else f"at_positions({read}, {self._dimensions(position)})")
        return f"({f' {sign} '.join(terms)})"

    def _add(self, position: int, layer: Operator, *reads: str) -> str:
        del layer
        sources = self.network.sources[position]
        first = next((source for source in sources if source >= 0), None)
        # A sum passes the same error to all its inputs.
        terms = [
            read if source == first or source < 0 else self.apart(read)
            for read, source in zip(reads, sources, strict=True)
        ]
        return self._broadcast(position, terms, "+")

    def _concat(self, position: int, layer: Any, *reads: str) -> str:
        if layer.axis == "tokens":
            sizes = self.sharded.tokens(position).shape
            return f"concatenate_tokens([{', '.join(reads)}], {sizes})"
        return f"jnp.concatenate([{', '.join(reads)}], -1)"

    def _global_pool(self, position: int, layer: Any, read: str) -> str:
        (source,) = self.network.sources[position]
        first = self.sharded.levels + 1
        over = tuple(range(first, first + self._dimensions(source)))
        match layer.over:
            case "average":
                # The average over a part of an image is a partial sum.
                layouts = self.program.read[position + self.shared]
                parts = 1 if self.alone else self.program.parts(layouts, *BETWEEN[2])
                return f"jnp.mean({read}, {over})" + (f" / {parts}" if parts > 1 else "")
            case "max":
                return f"jnp.max({read}, {over})"
        return f"token({read}, {0 if layer.over == 'first' else -1})"

    def _flatten(self, position: int, layer: Any, read: str) -> str:
        (source,) = self.network.sources[position]
        places = len(self.sharded.places(source))
        if layer.to == "features":
            return (read, f"flatten_tokens({read})", f"flatten({read})")[places]
        return (
            read if places == 1 else f"as_positions({read}, {self.sharded.tokens(position).shape})"
        )

    def _unflatten(self, position: int, layer: Any, read: str) -> str:
        del layer
        (source,) = self.network.sources[position]
        places = self.sharded.places(position)
        sizes = tuple(
            size for one in places for size in ((one,) if isinstance(one, int) else one.shape)
        )
        function = "as_positions" if self.sharded.places(source) else "unflatten"
        return f"{function}({read}, {sizes})"

    def _pixel_shuffle(self, position: int, layer: Any, read: str) -> str:
        del position
        function = "blocks_of_channels" if layer.to == "space" else "channels_of_blocks"
        return f"{function}({read}, {layer.factor}, {layer.order!r})"

    def _sliced(self, position: int, layer: Any, read: str) -> str:
        parts = self.sharded.read(position).parts
        return f"{read}[..., {layer.start // parts}:{(layer.start + layer.size) // parts}]"

    def _sinusoid(self, position: int, layer: Any, read: str) -> str:
        axis = self.sharded.written(position)
        layouts = self.program.written[position + self.shared]
        features = f"held({axis.shape}, {self.axes(split_by(layouts, CHANNEL))})"
        if (order := axis.order.ravel().tolist()) != [*range(axis.size)]:
            features = f"jnp.array({order})[{features}]"
        rates = f"{layer.features}, {layer.base or SINUSOID_BASE!r}, {layer.scale or 1.0!r}"
        return f"sinusoid({read}, {features}, {rates}, {layer.first!r})"

    def _dispatch(self, position: int, layer: Operator, tokens: str, logits: str) -> str:
        routing, layouts = (
            self._routing(position, layer),
            self.program.written[position + self.shared],
        )
        split = split_by(layouts, EXPERT)
        experts = self._local(self.sharded.experts(position), split)
        groups = self._local(self.sharded.tokens(position), split_by(layouts, TOKEN))
        _, _, slots = self.sharded.positions[position]
        more = f"{routing.top_k}, {slots}, {groups}, {experts}, {self.axes(split)}"
        limit = _limit(routing) and f"{_limit(routing)}{_sigmoid(routing)}"
        return f"dispatched({tokens}, {logits}, {more}{limit})"

    def _combine(self, position: int, layer: Operator, slots: str, logits: str) -> str:
        routing = self._routing(position, layer)
        layouts = self.program.read[position + self.shared]
        split = split_by(layouts, EXPERT)
        places = self._local(self.sharded.tokens(position), split_by(layouts, TOKEN))
        more = f"{routing.top_k}, {places}, {self.axes(split)}{_limit(routing)}"
        more += f", over_chosen={routing.over_chosen}{_sigmoid(routing)}"
        more += f", factor={routing.factor!r}" if routing.factor != 1 else ""
        return f"combined({slots}, {logits}, {more})"

    def _routing(self, position: int, layer: Operator) -> Routing:
        """Return what a layer does with a router's logits.

        Raises
        ------
        HyparError
            If it reads logits in another order than the network's.
        """
        if len(self.sharded.read(position, 1).segments) > 1:
            raise HyparError(
                f"layer {layer.name!r}: logits that are split part by part, as the channels of a"
                " concatenation, have no program in JAX"
            )
        (logits,) = self.sharded.layer_maps[position].further_inputs
        assert isinstance(logits, LogitMap)
        return logits.routing

    def _dimensions(self, source: int) -> int:
        """Return how many dimensions a layer's output has between batch and channels."""
        places = self.sharded.places(source)
        return sum(1 if isinstance(one, int) else len(one.shape) for one in places)


KINDS: dict[str, Callable[..., str]] = {
    "conv": Values._conv,
    "router": Values._fc,
    "dispatch": Values._dispatch,
    "experts": lambda self, position, _, read: self._applied("by_expert", position, read),
    "combine": Values._combine,
    "fc": Values._fc,
    "embedding": Values._embedding,
    "attention": Values._attention,
    "norm": Values._norm,
    "add": Values._add,
    "mul": lambda self, position, _, *reads: self._broadcast(position, reads, "*"),
    "concat": Values._concat,
    "pool": lambda self, position, layer, read: self.pooled(position, layer.pool, read),
    "upsample": lambda self, position, layer, read: f"enlarged({read}, {layer.factor})",
    "global_pool": Values._global_pool,
    "flatten": Values._flatten,
    "unflatten": Values._unflatten,
    "shuffle": lambda self, position, layer, read: f"dealt_out({read})",
    "pixel_shuffle": Values._pixel_shuffle,
    "slice": Values._sliced,
    "sinusoid": Values._sinusoid,
    "output": lambda self, position, layer, read: (
        f"soft_cap({unwrapped(read)}, {layer.softcap!r})" if layer.softcap else read
    ),
}
"""The kinds of layers that have a JAX program."""


def _limit(routing: Routing) -> str:
    """Return the argument that limits routing to some groups of experts, if there is a limit."""
    groups, top = routing.limit
    return f", {routing.limit}" if top < groups else ""


def _sigmoid(routing: Routing) -> str:
    return ", sigmoid=True" if routing.sigmoid else ""


def _borders(padding: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    top, left = padding[:2]
    bottom, right = padding[-2:]
    return (top, bottom), (left, right)


def quoted(name: str) -> str:
    """Return a name as a literal, in single quotes if it contains only double ones."""
    if '"' in name and "'" not in name:
        return repr(name)
    # JSON's escapes are Python's too.
    return json.dumps(name, ensure_ascii=False)


def unwrapped(value: str) -> str:
    """Return an expression without the brackets around a sum."""
    return value[1:-1] if value.startswith("(") and value.endswith(")") else value
