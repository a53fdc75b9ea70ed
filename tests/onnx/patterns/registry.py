"""A graph, what is known of it, and what several graphs have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tests.onnx.graph_writer import GraphWriter

B, T, E, H, D = 2, 16, 24, 4, 6
"""Batch, tokens, features, heads, features of a head."""

SEQUENCE = ("x", [B, T, E])
IDS = ("ids", [B, T])
IMAGE = ("x", [B, 8, 8, 8])
WORDS = 100


Build = Callable[[GraphWriter], str | tuple[str, ...]]
_B = TypeVar("_B", bound=Callable[[GraphWriter], Any])


class Pattern(NamedTuple):
    """A graph, and what is known of it.

    Parameters
    ----------
    build
        Writes the graph and returns its outputs.
    inputs
        The names and shapes of its inputs.
    read
        The elements that are read, where arithmetic hides their numbers from the test's account.
    left_out, added
        The elements that the network does not count, and those that it counts beside what is read.
    said
        What the import says, in parts.
    refused
        What the refusal says instead.
    kinds
        The kinds of the network's layers, in order; none to leave them open.
    keys
        The keys of all layers of some kinds, without names and inputs.
    """

    build: Build
    inputs: tuple[tuple[str, Sequence[int | str]], ...]
    read: int | None = None
    left_out: int = 0
    added: int = 0
    said: tuple[str, ...] = ()
    refused: str = ""
    kinds: str = ""
    keys: Mapping[str, Sequence[Mapping[str, Any]]] = MappingProxyType({})

    def model(self) -> Any:
        g = GraphWriter(*self.inputs, ids=self.inputs[0][0] == "ids")
        outputs = self.build(g)
        return g.model(*((outputs,) if isinstance(outputs, str) else outputs))


PATTERNS: dict[str, Pattern] = {}


def pattern(*inputs: tuple[str, Sequence[int | str]], **known: Any) -> Callable[[_B], _B]:
    """Register a graph under its function's name."""

    def register(build: _B) -> _B:
        PATTERNS[build.__name__] = Pattern(build, inputs, **known)
        return build

    return register


# What several graphs have in common.


def turned(g: GraphWriter, weight: str) -> str:
    return str(g("Transpose", weight, perm=[1, 0]))


def cut(g: GraphWriter, x: str, start: int, end: int, axis: int = 0, step: int = 1) -> str:
    return str(g("Slice", x, *(g.value([n]) for n in (start, end, axis, step))))


def attention(g: GraphWriter, q: str, k: str, v: str, mask: str | None = None) -> str:
    q, k, v = (g.heads(one, B, T, H, D) for one in (q, k, v))
    return g.together(g.core(q, k, v, mask), B, T, E)


def head_of(g: GraphWriter, x: str) -> str:
    return g.linear(x, "head", E, 10)


def parts_of(g: GraphWriter, weight: str, by: str, axis: int = 0) -> list[str]:
    """Cut a weight into three parts of E along a dimension."""
    if by == "Split":
        return list(g("Split", weight, g.value([E, E, E]), axis=axis, outputs=3))
    if by == "equal Split":
        return list(g("Split", weight, axis=axis, num_outputs=3, outputs=3))
    if by == "Slice":
        return [cut(g, weight, n * E, (n + 1) * E, axis) for n in range(3)]
    return [
        g("Gather", weight, g.value(np.arange(n * E, (n + 1) * E)), axis=axis) for n in range(3)
    ]
