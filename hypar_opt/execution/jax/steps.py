"""The lines of a step: each layer's exchanges and computation."""

from __future__ import annotations

import ast
import keyword
import re
from collections import defaultdict
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError
from hypar_opt.execution.jax.axes import split_by
from hypar_opt.execution.jax.tensors import ACTIVATIONS, ShardedNetwork
from hypar_opt.execution.jax.values import Values, quoted, unwrapped
from hypar_opt.execution.jax.weights import (
    COLLECTIVES,
    ends_of,
    inputs_of,
    is_softmax,
)
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.layouts import (
    BATCH,
    CHANNEL,
    COLUMN,
    EXPERT,
    PARTIAL,
    ROW,
    SHUFFLED,
    TOKEN,
    WHOLE,
)
from hypar_opt.workload.operands import operands_of
from hypar_opt.workload.operators.maps import ExpertMap

if TYPE_CHECKING:
    from hypar_opt.sharding.conversions import Step
    from hypar_opt.workload.operators.base import Operator

_WORDS = {
    BATCH: "BATCH",
    CHANNEL: "CHANNEL",
    SHUFFLED: "CHANNEL",
    TOKEN: "TOKEN",
    EXPERT: "EXPERT",
    ROW: "ROW",
    COLUMN: "COLUMN",
}
_RESERVED = frozenset(
    (
        *("again", "again_by_op", "inputs", "instead", "jax", "jnp", "keep", "kept", "lax"),
        *("loss", "math", "own", "part_of", "partial", "targets", "total", "used", "whole"),
    )
)


_WIDTH = 96
"""The maximum width of a line, without its function's indentation."""


class Lines(Values):
    """The lines of the loss of a sharded network, layer by layer.

    Parameters
    ----------
    reserved
        Names that variables must not have.
    alone
        As in `Values`.
    """

    def __init__(
        self, sharded: ShardedNetwork, reserved: frozenset[str], *, alone: bool = False
    ) -> None:
        super().__init__(sharded, alone=alone)
        self.inputs = inputs_of(sharded)[1]
        self.names = _identifiers([layer.name for layer in self.network.layers], reserved)
        self._exchanged: set[int | str] = set()

    def layer(self, position: int) -> list[str]:
        """Return the lines of one layer, which assign its output to its variable."""
        layer, node = self.network.layers[position], position + self.shared
        words = self.program.words(node)
        at = ", ".join(
            f"{axis.name} {word}" for axis, word in zip(self.sharded.axes, words, strict=True)
        )
        lines = [f"# {layer.name}: {at or 'one device'}"]
        reads = []
        operands = operands_of(self.network)[position]
        for number in range(len(operands)):
            name = "x" if len(operands) == 1 else f"x{number + 1}"
            converted = list(self._read(position, number, name))
            # An input that needs no conversion is used directly.
            if len(converted) == 1:
                reads.append(converted[0].removeprefix(f"{name} = "))
            else:
                lines += converted
                reads.append(name)
        if (position, position) in self.inputs:
            reads.append(f"inputs[{quoted(self.inputs[position, position])}]")  # ids of its own
        lines += self._computed(position, layer, reads)
        width = _WIDTH - 4 * self.runs_again(position)
        return [lines[0], *(_wrapped(line, width) for line in lines[1:])]

    def ends(self) -> Iterator[str]:
        """Yield the lines that add up the loss."""
        for position in ends_of(self.sharded):
            name = self.network.layers[position].name
            variable, target = self.names[position], f"targets[{quoted(name)}]"
            layouts = self.program.stored[position + self.shared]
            # Each replica counts its share.
            replicas = self.mesh_levels(split_by(layouts, WHOLE))
            share = f" / {self.sharded.hierarchy.parts(replicas)}" if replicas else ""
            if is_softmax(self.sharded, position):
                split = self.axes(split_by(layouts, CHANNEL))
                classes = getattr(self.network.layers[position], "classes", None)
                if classes is not None:
                    variable = f"without_padding({variable}, {classes}, {split})"
                variable = yield from self._on_target(
                    position, variable, f"sure_of({variable}, {target}, {split})"
                )
                yield f"total += softmax_loss({variable}, {target}, {split}){share}"
                continue
            variable = yield from self._on_target(position, variable, target)
            yield f"total += squared_error({variable}, {target}){share}"

    def _on_target(self, position: int, value: str, target: str) -> Generator[str, None, str]:
        """Yield the line that masks padding of the batch from the loss, and return the value."""
        if self.sharded.padding is None:
            return value
        name = self.names[position]
        real = self.real_images(name, self.program.stored[position + self.shared])
        yield _wrapped(f"{name} = jnp.where({real}, {value}, {target})", _WIDTH)
        return name

    def _read(self, position: int, number: int, name: str) -> Iterator[str]:
        """Yield the lines that bring an operand into the layout that the layer reads."""
        node = position + self.shared
        source, channels = operands_of(self.network)[position][number]
        part = ""
        if channels:
            axis = self.sharded.read(position, number)
            part = f"[..., {channels[0] // axis.parts}:{channels[1] // axis.parts}]"
        if source < 0:
            key = self.inputs[position, source]
            value = f"inputs[{quoted(key)}]"
            value = self.apart(value) if self._repeated(position, key, moves=False) else value
            if self.network.layers[position].shuffles:
                value = f"by_group({value}, {self._group_dims(position)})"
            yield f"{name} = {value}{part}"
            addends = split_by(self.program.read_as(position + self.shared, number), PARTIAL)
            for level in self.mesh_levels(addends):
                yield f"{name} = one_of({name}, {self.sharded.axis(level)})"
            for level in self._levels_of_input_tokens(position, number):
                yield f"{name} = keep_part({name}, {self.sharded.axis(level)}, TOKEN)"
            yield from self._bordered(position, name, "cut_out")
            return
        boundary = self.program.workload.boundary_of_input[node, number]
        start = self.program.workload.boundaries[boundary].source
        value = self.names[source] if start >= self.shared else self._stored(source)
        steps = self.program.input_steps(boundary)
        moves = bool(steps or self.parts_of_images(position))
        if self._repeated(position, source, moves=moves) and not channels:
            value = self.apart(value)
        shuffles = self.network.layers[position].shuffles
        if shuffles and SHUFFLED not in self.program.stored[source + self.shared]:
            value = f"by_group({value}, {self._group_dims(position)})"
        if position in self.sharded.split.flattened_first:
            value = f"split_features(flatten({value}), {self.sharded.read(position).shape})"
        lines = list(self._steps(name, steps, f"{value}{part}", grouped=shuffles))
        yield from lines or [f"{name} = {value}{part}"]
        yield from self._bordered(position, name, "with_borders")

    def _bordered(self, position: int, name: str, function: str) -> Iterator[str]:
        """Yield the lines that extend a part of an image by its halo."""
        layer: Any = self.network.layers[position]
        outside = ", -jnp.inf" if layer.kind == "pool" and layer.pool.kind == "max" else ""
        for part in self.parts_of_images(position):
            yield f"{name} = {function}({name}, {part}{outside})"

    def _levels_of_input_tokens(self, position: int, number: int) -> Sequence[int]:
        """Return the levels at which a layer keeps its tokens of an input of the network.

        Those of queries, which are side by side with keys and values that are read whole.
        """
        *_, last = (
            self.program.read_as(position + self.shared, n)
            for n in range(len(operands_of(self.network)[position]))
        )
        levels = split_by(self.program.read_as(position + self.shared, number), TOKEN)
        return self.mesh_levels([level for level in levels if last[level] == WHOLE])

    def _group_dims(self, position: int) -> tuple[int, ...]:
        """Return the dimensions of a group's channels, as a shuffle splits them."""
        layer: Any = self.network.layers[position]
        written = self.sharded.written(position)
        channels = self.sharded.layer_maps[position].input.channels // layer.groups
        return (*written.shape[:-1], channels // written.parts)

    def _stored(self, source: int) -> str:
        """Return the variable of a shared tensor."""
        steps = self.program.input_steps(
            self.program.workload.boundary_into_shared[source + self.shared]
        )
        moves = steps and not self.alone
        return f"{self.names[source]}_stored" if moves else self.names[source]

    def stored(self, position: int) -> list[str]:
        """Return the lines that convert a shared tensor to its stored layout."""
        boundary = self.program.workload.boundary_into_shared.get(position + self.shared)
        if boundary is None:
            return []
        name, steps = self._stored(position), self.program.input_steps(boundary)
        return list(self._steps(name, steps, self.names[position]))

    def _steps(
        self, name: str, steps: Sequence[Step], value: str, *, grouped: bool = False
    ) -> Iterator[str]:
        """Yield the lines that apply conversion steps to a value, into a variable."""
        words = _WORDS | ({CHANNEL: "GROUP"} if grouped else {})
        for step in () if self.alone else steps:
            ends = zip(step.levels, step.sources, step.targets, strict=True)
            moves = [
                (self.sharded.axis(level), words.get(source, ""), words.get(target, ""))
                for level, source, target in ends
            ]
            function, (level, of, to) = COLLECTIVES[step.kind], moves[0]
            arguments = {
                StepKind.SLICE: f"{level}, {to}",
                StepKind.REDUCE_SCATTER: f"{level}, {to}",
                StepKind.ALL_TO_ALL: f"{level}, {of}, {to}",
                StepKind.ALL_GATHER: f"{level}, {of}",
                StepKind.PAD: f"{level}, {of}",
            }[step.kind]
            if step.kind is StepKind.SLICE and not to:
                function, arguments = "one_of", level
            if len(moves) > 1:
                function = f"joined_{function}"
                arguments = ", ".join(f"({', '.join(move)})" for move in moves)
            yield f"{name} = {function}({value}, {arguments})"
            value = name

    def _repeated(self, position: int, tensor: int | str, *, moves: bool) -> bool:
        """Return whether XLA may merge this exchange with that of another reader of the tensor.

        Separate weights make a layer's computation distinct, as does a number.
        """
        layer = self.network.layers[position]
        shared = {node for users in self.program.workload.weight_users.values() for node in users}
        has_own_weights = layer.axes.contracted and position + self.shared not in shared
        if has_own_weights and not moves:
            return False
        again = tensor in self._exchanged
        self._exchanged.add(tensor)
        return again

    def _computed(self, position: int, layer: Operator, reads: list[str]) -> Iterator[str]:
        """Yield the lines that compute a layer from what it reads, and reduce partial sums."""
        variable, node = self.names[position], position + self.shared
        maps = self.sharded.layer_maps[position]
        value = self.value(position, layer, reads)
        shuffled = SHUFFLED in self.program.stored[node] and not layer.shuffles
        reductions = list(self._steps("y", self.program.output_steps(node), "y", grouped=shuffled))
        if shuffled:
            # Partial sums are scattered in the order in which the shuffle reads them.
            (reader,) = (n for n, reads in enumerate(self.network.sources) if position in reads)
            for key in ("pool", "bias"):
                if getattr(layer, key, None):
                    raise HyparError(
                        f"layer {layer.name!r}, {key}: none may precede a shuffle of partial sums"
                    )
            reductions.insert(0, f"y = by_group(y, {self._group_dims(reader)})")
        if layer.reads_images and self.sharded.splits_images:
            # Windows leave rows, and columns, in one dimension each.
            places = self.local_places(maps.output, self.program.written[node])
            reductions.insert(0, f"y = as_positions(y, {places})")
        keys, keeps = ("bias", "activation", "pool"), self.keeps(position)
        follows = any(getattr(layer, key, None) for key in keys)
        if reductions:
            yield f"y = {value}"
            yield from reductions if follows or keeps else reductions[:-1]
            value = "y"
        elif layer.fused_pool or keeps:
            yield f"y = {unwrapped(value)}"
            value = "y"
        if keeps:
            value = f"keep(kept, {quoted(layer.name)}, y)"
            if follows:
                yield f"y = {value}"
                value = "y"
        if layer.has_bias:
            bias = self.bias(position)
            for level in self.mesh_levels(split_by(self.program.stored[node], PARTIAL)):
                bias = f"in_one({bias}, {self.sharded.axis(level)})"
            if isinstance(maps.output, ExpertMap):
                bias = f"of_slots({bias})"
            value = f"({value} + {bias})"
        activation = getattr(layer, "activation", None)
        if activation is not None:
            value = f"{ACTIVATIONS[activation]}({unwrapped(value)})"
        if layer.fused_pool:
            value = self.pooled(position, layer.fused_pool, value)
            if self.sharded.splits_images:
                places = self.local_places(maps.pooled, self.program.stored[node])
                value = f"as_positions({value}, {places})"
        if value == "y" and reductions:
            reductions[-1] = f"{variable}{reductions[-1].removeprefix('y')}"
            yield from reductions[-1:]
            return
        yield f"{variable} = {unwrapped(value)}"


def _wrapped(line: str, width: int) -> str:
    """Return an assignment, broken into three lines if it is too long, or one per argument."""
    if len(line) <= width:
        return line
    variable, _, value = line.partition(" = ")
    parsed = ast.parse(value, mode="eval").body
    function = ast.unparse(parsed.func) if isinstance(parsed, ast.Call) else ""
    inside = value[len(function) + 1 : -1] if function else value
    if isinstance(parsed, ast.Call) and len(inside) > width - 4:
        arguments = [(parsed_one, "") for parsed_one in parsed.args]
        arguments += [(one.value, f"{one.arg}=") for one in parsed.keywords]
        segments = (f"{name}{ast.get_source_segment(value, one)}" for one, name in arguments)
        inside = "\n    ".join(f"{segment}," for segment in segments)
    return f"{variable} = {function}(\n    {inside}\n)"


def _identifiers(names: Sequence[str], reserved: frozenset[str]) -> list[str]:
    """Return a variable for each layer, as close to its name as Python allows."""
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
        while {unique, f"{unique}_stored"} & used:
            unique += "_"
        used |= {unique, f"{unique}_stored"}
        variables[number] = unique
    return variables
