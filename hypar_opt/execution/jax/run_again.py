"""The lines of a loss with recomputation: each recomputed group of layers is a function."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypar_opt.execution.jax.values import quoted

if TYPE_CHECKING:
    from hypar_opt.execution.jax.steps import Lines


def loss_lines(lines: Lines) -> list[str]:
    """Return the lines of a loss, layer by layer.

    Layers that run again together, or from a tensor that they gather again, are a function of the
    weights, the inputs and the tensors that they read of other layers. It returns what others read,
    and the step calls it by `again`, or by `again_by_op`, which keeps what its products leave.
    """
    layers = range(len(lines.network.layers))
    of_group = _groups(lines)
    first = {group[0]: group for group in of_group}
    inside = {position for group in of_group for position in group}
    parts = []
    for position in layers:
        if position in first:
            parts.append(_Layers.of(lines, first[position]))
        elif position not in inside:
            parts.append(_Layers.of(lines, [position]))
    ends = list(lines.ends())
    body = ["total = jnp.zeros(())"]
    for number, part in enumerate(parts):
        if not lines.runs_again(part.layers[0]):
            body += part.lines
            continue
        reads = [one.read for n, one in enumerate(parts) if n != number]
        body += ["", *part.as_function(lines, other_reads=[*reads, _names_of(ends).read])]
    return [*body, "", *ends, "return total"]


def _groups(lines: Lines) -> list[list[int]]:
    """Return the groups of layers that are recomputed together."""
    groups: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for position in range(len(lines.network.layers)):
        if (run := lines.run_of(position)) is not None:
            groups[run].append(position)
    return list(groups.values())


@dataclass(frozen=True)
class _NamesOf:
    """The names that some lines read and assign, and the weights that they use, in order."""

    read: Mapping[str, None]
    assigned: Mapping[str, None]
    weights: Mapping[str, None]


@dataclass(frozen=True)
class _Layers:
    """One layer, or a group of layers that is recomputed together."""

    layers: Sequence[int]
    lines: Sequence[str]

    @classmethod
    def of(cls, lines: Lines, layers: Sequence[int]) -> _Layers:
        # A tensor that is gathered again is so by those that read it.
        writers = lines.program.workload.tensor_writers
        run = lines.run_of(layers[0])
        text: list[str] = []
        if run is not None and run[0] == "tensor":
            text += ["", *lines.stored(writers[run[1]] - lines.shared)]
        again = {writers[node] - lines.shared for node in lines.repeats.converted_again}
        for position in layers:
            text += ["", *lines.layer(position)]
            text += [] if position in again and not lines.alone else lines.stored(position)
        return cls(layers, text)

    @property
    def read(self) -> Mapping[str, None]:
        return _names_of(self.lines).read

    def as_function(
        self, lines: Lines, *, other_reads: Iterable[Mapping[str, None]]
    ) -> Iterator[str]:
        """Yield the lines of a function of these layers, and of its call.

        Parameters
        ----------
        other_reads
            The names that other parts of the loss read.
        """
        uses = _names_of(self.lines)
        variables = {*lines.names, *(f"{name}_stored" for name in lines.names)}
        read_elsewhere = {name for names in other_reads for name in names}
        inputs = [n for n in uses.read if n in variables and n not in uses.assigned]
        results = [n for n in uses.assigned if n in variables and n in read_elsewhere]
        function = f"from_{lines.names[self.layers[0]]}"
        while function in variables:
            function += "_"
        run = lines.run_of(self.layers[0])
        by_op = run is not None and run[0] == "op"
        yield f"def {function}({', '.join((*['kept'] * by_op, 'w', 'inputs', *inputs))}):"
        returned = ", ".join(results) + "," * (len(results) == 1)
        for line in [*self.lines[1:], f"return {returned}"]:
            yield f"    {line}".rstrip() if "\n" not in line else _indented(line)
        yield ""
        names = "".join(f"\n    {quoted(name)}," for name in uses.weights)
        yield f"own = [{names}\n]" if names else "own = []"
        arguments = ", ".join((function, lines.number(), "part_of(w, own)", "inputs", *inputs))
        yield f"{returned} = {'again_by_op' if by_op else 'again'}({arguments})"


def _indented(lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines.split("\n"))


def _names_of(lines: Iterable[str]) -> _NamesOf:
    read: dict[str, None] = {}
    assigned: dict[str, None] = {}
    weights: dict[str, None] = {}
    for node in ast.walk(ast.parse("\n".join(lines))):
        match node:
            case ast.Subscript(ast.Name("w"), ast.Constant(str(name))):
                weights[name] = None
            case ast.Name(name, ast.Load()):
                read[name] = None
            case ast.Name(name, ast.Store()):
                assigned[name] = None
    return _NamesOf(read, assigned, weights)
