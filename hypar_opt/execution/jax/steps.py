"""The lines of a step: a layer's exchanges, and what it computes between them."""

from __future__ import annotations

import json
import keyword
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError
from hypar_opt.execution.jax.tensors import ACTIVATIONS, NETWORK_INPUT, ShardedNetwork
from hypar_opt.execution.jax.weights import (
    COLLECTIVES,
    ends_of,
    inputs_of,
    is_softmax,
    split_by,
    split_ends,
)
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.layouts import Layout

if TYPE_CHECKING:
    from hypar_opt.sharding.conversions import Step
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.operators.windows import Pool

_WORDS = {
    Layout.BATCH: "BATCH",
    Layout.CHANNEL: "CHANNEL",
    Layout.SHUFFLED: "CHANNEL",
}
_RESERVED = frozenset(
    ("inputs", "jax", "jnp", "lax", "loss", "math", "partial", "targets", "total")
)


_WIDTH = 96
"""Of a line, without its function's indentation."""


class Lines:
    """The lines of the loss of a sharded network, layer by layer.

    Parameters
    ----------
    reserved
        Names that no variable may have.
    alone
        For one device that holds everything: the same arrays, and no exchanges.
    """

    def __init__(
        self, sharded: ShardedNetwork, reserved: frozenset[str], *, alone: bool = False
    ) -> None:
        self.alone = alone
        self.sharded = sharded
        self.network, self.program = sharded.network, sharded.program
        self.shared = sharded.shared
        self.inputs = inputs_of(sharded)[1]
        self.names = _identifiers([layer.name for layer in self.network.layers], reserved)
        self._copies: Counter[object] = Counter()

    def layer(self, position: int) -> list[str]:
        """Return the lines of one layer, which assign what it writes to its variable."""
        layer, node = self.network.layers[position], position + self.shared
        words = [layer.splits[row[node]].word for row in self.program.rows]
        at = ", ".join(f"H{level + 1} {word}" for level, word in enumerate(words))
        lines = [f"# {layer.name}: {at or 'one device'}"]
        reads = []
        for number, source in enumerate(self.network.sources[position]):
            name = "x" if len(self.network.sources[position]) == 1 else f"x{number + 1}"
            converted = list(self._read(position, source, name))
            # What needs no step is read as it is.
            if len(converted) == 1:
                reads.append(converted[0].removeprefix(f"{name} = "))
            else:
                lines += converted
                reads.append(name)
        lines += self._computed(position, layer, reads)
        return [lines[0], *map(_wrapped, lines[1:])]

    def ends(self) -> Iterator[str]:
        """Yield the lines that add up the loss."""
        for position in ends_of(self.sharded):
            name = self.network.layers[position].name
            variable, target = self.names[position], f"targets[{quoted(name)}]"
            layouts = self.program.stored[position + self.shared]
            if is_softmax(self.sharded, position):
                split = names(self._here(split_by(layouts, Layout.CHANNEL)))
                yield f"total += softmax_loss({variable}, {target}, {split})"
                continue
            # Replicas count a share each.
            whole = 0 if self.alone else len(split_by(layouts, Layout.WHOLE))
            share = f" / {2**whole}" if whole else ""
            yield f"total += squared_error({variable}, {target}){share}"

    def _read(self, position: int, source: int, name: str) -> Iterator[str]:
        """Yield the lines that bring an input into the layout that the layer reads."""
        node = position + self.shared
        if source == NETWORK_INPUT:
            yield f"{name} = inputs[{quoted(self.inputs[position])}]"
            return
        boundary = self._boundaries[source, node]
        start = self.program.workload.boundaries[boundary].source
        value = self.names[source] if start >= self.shared else self._stored(source)
        steps = self.program.input_steps(boundary)
        shuffles = self.network.layers[position].kind == "shuffle"
        if shuffles and Layout.SHUFFLED not in self.program.stored[source + self.shared]:
            value = f"by_group({value}, {self._of_group(position)})"
        lines = list(self._steps(name, steps, boundary, value, grouped=shuffles))
        yield from lines or [f"{name} = {value}"]

    def _of_group(self, position: int) -> tuple[int, ...]:
        """Return the dimensions of a group's channels, as a shuffle splits them."""
        layer: Any = self.network.layers[position]
        written = self.sharded.written(position)
        channels = self.sharded.layer_maps[position].input.channels // layer.groups
        return (*written.shape[:-1], channels >> len(written.split))

    def _stored(self, source: int) -> str:
        """Return the variable of a tensor as it is stored for several readers."""
        steps = self.program.input_steps(self._into_shared[source + self.shared])
        moves = steps and not self.alone
        return f"{self.names[source]}_stored" if moves else self.names[source]

    def stored(self, position: int) -> list[str]:
        """Return the lines that store a tensor with several readers in its own layout."""
        boundary = self._into_shared.get(position + self.shared)
        if boundary is None:
            return []
        name, steps = self._stored(position), self.program.input_steps(boundary)
        return list(self._steps(name, steps, boundary, self.names[position]))

    def _steps(
        self,
        name: str,
        steps: Sequence[Step],
        boundary: int | None,
        value: str,
        *,
        grouped: bool = False,
    ) -> Iterator[str]:
        """Yield the lines that take a value through steps, into a variable."""
        for step in () if self.alone else steps:
            target = _WORDS.get(step.target, "")
            source = _WORDS.get(step.source, "")
            if grouped and step.source is Layout.CHANNEL:
                source = "GROUP"
            if grouped and step.target is Layout.CHANNEL:
                target = "GROUP"
            ends = {
                StepKind.SLICE: target,
                StepKind.REDUCE_SCATTER: target,
                StepKind.ALL_TO_ALL: f"{source}, {target}",
                StepKind.ALL_GATHER: source,
            }[step.kind]
            copy = self._copy(step, boundary)
            call = f'{COLLECTIVES[step.kind]}({value}, "h{step.level + 1}", {ends}{copy})'
            yield f"{name} = {call}"
            value = name

    def _copy(self, step: Step, boundary: int | None) -> str:
        """Return the argument that tells an exchange from others that may be alike in all."""
        if boundary is None or step.kind is StepKind.SLICE:
            return ""
        key = (self._alike[boundary], step.kind, step.level, step.source, step.target)
        self._copies[key] += 1
        return f", copy={self._copies[key] - 1}" if self._copies[key] > 1 else ""

    @cached_property
    def _alike(self) -> dict[int, int]:
        """Of each boundary the group of those that may carry equal tensors, or equal errors.

        One tensor's readers are given equal tensors; a sum hands one error on to all that it reads,
        and so do sums of sums.
        """
        edges = self.program.workload.boundaries
        group = list(range(len(edges)))

        def find(edge: int) -> int:
            while group[edge] != edge:
                edge = group[edge]
            return edge

        first: dict[tuple[str, int], int] = {}
        for number, edge in enumerate(edges):
            ends = [("source", edge.source)]
            if edge.target >= self.shared:
                kind = self.network.layers[edge.target - self.shared].kind
                ends += [("target", edge.target)] * (kind in ("add", "concat"))
            else:
                ends.append(("source", edge.target))
            if edge.source >= self.shared:
                kind = self.network.layers[edge.source - self.shared].kind
                ends += [("target", edge.source)] * (kind in ("add", "concat"))
            for end in ends:
                group[find(number)] = find(first.setdefault(end, number))
        return {number: find(number) for number in range(len(edges))}

    @cached_property
    def _boundaries(self) -> dict[tuple[int, int], int]:
        """The boundary over which a layer's node reads what a layer writes."""
        edges = self.program.workload.boundaries
        stored_from = {
            edge.target: edge.source - self.shared for edge in edges if edge.target < self.shared
        }
        return {
            (stored_from.get(edge.source, edge.source - self.shared), edge.target): number
            for number, edge in enumerate(edges)
            if not edge.weights and edge.target >= self.shared
        }

    @cached_property
    def _into_shared(self) -> dict[int, int]:
        edges = enumerate(self.program.workload.boundaries)
        return {edge.source: number for number, edge in edges if edge.target < self.shared}

    def _computed(self, position: int, layer: Operator, reads: list[str]) -> Iterator[str]:
        """Yield the lines that compute a layer from what it reads, and reduce partial sums."""
        variable, node = self.names[position], position + self.shared
        value = self._value(position, layer, reads)
        shuffled = Layout.SHUFFLED in self.program.stored[node] and layer.kind != "shuffle"
        reductions = list(
            self._steps("y", self.program.output_steps(node), None, "y", grouped=shuffled)
        )
        if shuffled:
            # Partial sums are scattered in the order in which the shuffle reads them.
            (reader,) = (n for n, of in enumerate(self.network.sources) if position in of)
            if getattr(layer, "pool", None):
                raise HyparError(
                    f"layer {layer.name!r}, pool: none may precede a shuffle of partial sums"
                )
            reductions.insert(0, f"y = by_group(y, {self._of_group(reader)})")
        if reductions:
            yield f"y = {value}"
            follows = getattr(layer, "activation", None) or getattr(layer, "pool", None)
            yield from reductions if follows else reductions[:-1]
            value = "y"
        elif layer.kind == "conv" and layer.pool:  # type: ignore[attr-defined]
            yield f"y = {value}"
            value = "y"
        activation = getattr(layer, "activation", None)
        if activation is not None:
            value = f"{ACTIVATIONS[activation]}({_unwrapped(value)})"
        if layer.kind == "conv" and getattr(layer, "pool", None):
            value = self._pooled(position, layer.pool, value)  # type: ignore[attr-defined]
        if value == "y" and reductions:
            reductions[-1] = f"{variable}{reductions[-1].removeprefix('y')}"
            yield from reductions[-1:]
            return
        yield f"{variable} = {_unwrapped(value)}"

    def _value(self, position: int, layer: Operator, reads: list[str]) -> str:
        build: Any = getattr(self, f"_{layer.kind}")
        value: str = build(position, layer, *reads)
        return value

    def _weights(self, position: int) -> str:
        """Return a layer's weights, cut to what it multiplies of those that it shares."""
        layer, node = self.network.layers[position], position + self.shared
        users = self.program.workload.weight_users
        shared = next((one for one, of in users.items() if node in of), None)
        if shared is None:
            return f"w[{quoted(layer.name)}]"
        owner = self.network.layers[self.sharded.owner(node)].name
        text = f"w[{quoted(owner)}]"
        turned = self.sharded.transposes(position)
        if turned:
            text = f"transposed({text})"
        stored = split_ends(self.sharded, shared)
        if turned:
            stored = stored[::-1]
        own = split_ends(self.sharded, node)
        if self.alone:
            return text
        for kept, here, end in zip(own, stored, ("INPUTS", "OUTPUTS"), strict=True):
            for level in kept:
                if level not in here:
                    text = f'keep_half({text}, "h{level + 1}", {end})'
        return text

    def _here(self, levels: Sequence[int]) -> Sequence[int]:
        return () if self.alone else levels

    def _fc(self, position: int, layer: Operator, read: str) -> str:
        del layer
        (source,) = self.network.sources[position]
        if self.sharded.read_positions(source) and len(self.sharded.positions[position]) == 0:
            read = f"flatten({read})"
        return f"linear({read}, {self._weights(position)})"

    def _conv(self, position: int, layer: Any, read: str) -> str:
        padding = _borders(layer.padding)
        dilation = f", {layer.dilation}" if layer.dilation else ""
        return f"conv({read}, {self._weights(position)}, {layer.stride}, {padding}{dilation})"

    def _pooled(self, position: int, pool: Pool, value: str) -> str:
        maps = self.sharded.layer_maps[position]
        over = maps.output if self.network.layers[position].kind == "conv" else maps.input
        extents = (over.height, over.width)  # type: ignore[union-attr]
        borders = []
        for extent, count, size, stride, (before, after) in zip(
            extents,
            (maps.pooled.height, maps.pooled.width),  # type: ignore[union-attr]
            pool.size,
            pool.stride,
            _borders(pool.padding),
            strict=True,
        ):
            # A last window that is only partly covered needs a wider border.
            borders.append((before, max(after, (count - 1) * stride + size - extent - before)))
        padding = tuple(borders)
        return f"{pool.kind}_pool({_unwrapped(value)}, {pool.size}, {pool.stride}, {padding})"

    def _pool(self, position: int, layer: Any, read: str) -> str:
        return self._pooled(position, layer.pool, read)

    def _embedding(self, position: int, layer: Any, read: str | None = None) -> str:
        del layer
        rows = self.sharded.rows(position)
        node = position + self.shared
        split = names(self._here(split_by(self.program.written[node], Layout.PARTIAL)))
        weights = self._weights(position)
        if read is not None:
            return f"embedding({read}, {weights}, {rows.shape}, {split})"
        data = () if self.alone else split_by(self.program.written[node], Layout.BATCH)
        sizes = self.sharded.batch.shape
        local = (*(1 if n in data else size for n, size in enumerate(sizes[:-1])), sizes[-1])
        ids = f"jnp.broadcast_to(jnp.arange({rows.size}), {(*local, rows.size)})"
        return f"embedding({ids}, {weights}, {rows.shape}, {split})"

    def _attention(self, position: int, layer: Any, *reads: str) -> str:
        sizes = layer.sizes(self.sharded.layer_maps[position])
        groups = sizes["g"] >> len(self.sharded.written(position).split)
        inputs = "".join(f"{read}, " for read in reads).rstrip()
        inputs = inputs if len(reads) == 1 else inputs.rstrip(",")
        return f"attention(({inputs}), {groups}, {sizes['r']}, causal={bool(layer.causal)})"

    def _norm(self, position: int, layer: Any, read: str) -> str:
        weights = self._weights(position)
        if layer.norm == "affine":
            return f"affine({read}, {weights})"
        if layer.norm == "batch":
            # One device takes the statistics of each share as the devices do.
            own = split_by(self.program.read[position + self.shared], Layout.BATCH)
            apart = f", {names(own)}" if self.alone else ""
            return f"batch_norm({read}, {weights}{apart})"
        split = split_by(self.program.read[position + self.shared], Layout.CHANNEL)
        features = self.sharded.written(position).size
        source = self.network.sources[position][0]
        key = ("statistics", source, split, layer.norm)
        self._copies[key] += 1
        copy = f", copy={self._copies[key] - 1}" if self._copies[key] > 1 and split else ""
        centred = layer.norm == "layer"
        more = f"{names(self._here(split))}, centred={centred}{copy}"
        return f"layer_norm({read}, {weights}, {features}, {more})"

    def _broadcast(self, position: int, reads: Sequence[str], sign: str) -> str:
        places = len(self.sharded.positions[position])
        terms = []
        for read, source in zip(reads, self.network.sources[position], strict=True):
            same = len(self.sharded.read_positions(source)) == places
            terms.append(read if same else f"at_positions({read}, {places})")
        return f"({f' {sign} '.join(terms)})"

    def _add(self, position: int, layer: Operator, *reads: str) -> str:
        del layer
        return self._broadcast(position, reads, "+")

    def _mul(self, position: int, layer: Operator, *reads: str) -> str:
        del layer
        return self._broadcast(position, reads, "*")

    def _concat(self, position: int, layer: Any, *reads: str) -> str:
        del position
        axis = self.sharded.levels + 1 if layer.axis == "tokens" else -1
        return f"jnp.concatenate([{', '.join(reads)}], {axis})"

    def _global_pool(self, position: int, layer: Any, read: str) -> str:
        (source,) = self.network.sources[position]
        first = self.sharded.levels + 1
        over = tuple(range(first, first + len(self.sharded.read_positions(source))))
        match layer.over:
            case "average":
                return f"jnp.mean({read}, {over})"
            case "max":
                return f"jnp.max({read}, {over})"
        return f"token({read}, {0 if layer.over == 'first' else -1})"

    def _flatten(self, position: int, layer: Any, read: str) -> str:
        (source,) = self.network.sources[position]
        if layer.to == "features":
            return f"flatten({read})" if self.sharded.read_positions(source) else read
        already = len(self.sharded.read_positions(source)) == 1
        return read if already else f"as_tokens({read})"

    def _shuffle(self, position: int, layer: Operator, read: str) -> str:
        del position, layer
        return f"dealt_out({read})"

    def _output(self, position: int, layer: Operator, read: str) -> str:
        del position, layer
        return read


def _borders(padding: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int]]:
    top, left = padding[:2]
    bottom, right = padding[-2:]
    return (top, bottom), (left, right)


def names(levels: Sequence[int]) -> str:
    """Return the text of a tuple of mesh axes."""
    axes = [f'"h{level + 1}"' for level in levels]
    return f"({', '.join(axes)}{',' if len(axes) == 1 else ''})"


def quoted(name: str) -> str:
    """Return a name as a literal, in single quotes where it has double ones alone."""
    if '"' in name and "'" not in name:
        return repr(name)
    # JSON's escapes are Python's too.
    return json.dumps(name, ensure_ascii=False)


def _wrapped(line: str) -> str:
    """Return an assignment of a call on three lines, if it is too long for one."""
    if len(line) <= _WIDTH or not line.endswith(")"):
        return line
    opened = line.index("(", line.index(" = ")) + 1
    return f"{line[:opened]}\n    {line[opened:-1]}\n)"


def _unwrapped(value: str) -> str:
    """Return an expression without the brackets around a sum."""
    return value[1:-1] if value.startswith("(") and value.endswith(")") else value


def _identifiers(names: Sequence[str], reserved: frozenset[str]) -> list[str]:
    """Return a variable for each layer, as like its name as Python allows."""
    taken: defaultdict[str, int] = defaultdict(int)
    variables = []
    for name in names:
        plain = re.sub(r"[^0-9a-zA-Z]+", "_", name).strip("_").lower() or "layer"
        # w, x, x2 and y are the lines' own.
        plain = f"layer_{plain}" if re.fullmatch(r"[wxy]\d*", plain) else plain
        if plain[0].isdigit() or keyword.iskeyword(plain) or plain in reserved | _RESERVED:
            plain = f"layer_{plain}"
        variables.append(plain)
        taken[plain] += 1
    used: set[str] = set()
    for number, plain in enumerate(variables):
        unique = plain if taken[plain] == 1 else f"{plain}_{number + 1}"
        while unique in used:
            unique += "_"
        used |= {unique, f"{unique}_stored"}
        variables[number] = unique
    return variables
