"""Functions of a model, inlined unless their expansion is too large."""

from __future__ import annotations

from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, NamedTuple

from hypar_opt.errors import InputError
from hypar_opt.onnx.weightless import MAX_STRUCTURE

if TYPE_CHECKING:
    from onnx import ModelProto

MAX_CALL_DEPTH = 100
"""Calls nest at most this deep, since the inliner recurses for each."""

_NODE, _ATTRIBUTE = 64, 128
"""Bytes that parsing takes for each, in addition to those in the file."""

_Name = tuple[str, str, str]


class _Expansion(NamedTuple):
    """The expansion of a call.

    Parameters
    ----------
    size
        In bytes.
    places
        How many times attributes of the call are substituted.
    depth
        How deep calls nest.
    """

    size: int = 0
    places: int = 0
    depth: int = 0


def inlined(model: ModelProto) -> ModelProto:
    """Return a model without functions.

    Raises
    ------
    InputError
        Where the expansion is too large, or ONNX cannot inline them.
    """
    if not model.functions:
        return model
    _check(model)
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:
        # The inliner raises whatever its C++ side finds.
        raise InputError(f"its functions cannot be inlined: {line_of(error)}") from None


def line_of(error: Exception) -> str:
    """Return the first line of an extension's error message."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _check(model: ModelProto) -> None:
    """Refuse functions whose expansion is too large, before any is inlined."""
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    calls = {
        name: {_call(node) for node in _nodes(function.node)} & functions.keys()
        for name, function in functions.items()
    }
    expansions: dict[_Name, _Expansion] = {}
    try:
        for name in TopologicalSorter(calls).static_order():
            function = functions[name]
            defaults = sum(a.ByteSize() for a in function.attribute_proto)
            expansions[name] = _expanded(function.node, expansions, defaults)
    except CycleError as error:
        (_, name, _), *_ = error.args[1]
        raise InputError(f"its function {name!r} calls itself") from None
    whole = _expanded(model.graph.node, expansions, 0)
    if whole.size > MAX_STRUCTURE:
        raise InputError(
            f"its functions, where they are called, should come to at most"
            f" {MAX_STRUCTURE // 2**20} MiB, got {whole.size / 2**20:,.0f}"
        )
    if whole.depth > MAX_CALL_DEPTH:
        raise InputError(
            f"its functions should call one another {MAX_CALL_DEPTH} deep at most,"
            f" got {whole.depth:,}"
        )


def _call(node: Any) -> _Name:
    return node.domain, node.op_type, node.overload


def _nodes(nodes: Iterable[Any]) -> list[Any]:
    """Return nodes and all nodes of their subgraphs."""
    out = list(nodes)
    for node in out:  # which grows
        for attribute in node.attribute:
            out += attribute.g.node
            for graph in attribute.graphs:
                out += graph.node
    return out


def _expanded(
    nodes: Iterable[Any], functions: dict[_Name, _Expansion], defaults: int
) -> _Expansion:
    """Return the expansion of nodes whose functions' expansions are known.

    An attribute of a call is substituted wherever the function refers to it, also in functions that
    this one calls; where a call omits it, the function's default is.
    """
    size = places = depth = 0
    for node in _nodes(nodes):
        node_bytes = node.ByteSize() + _NODE + _ATTRIBUTE * len(node.attribute)
        referred = sum(bool(attribute.ref_attr_name) for attribute in node.attribute)
        called = functions.get(_call(node))
        if called is None:
            size, places = size + node_bytes, places + referred
        else:
            size += called.size + called.places * node_bytes
            places += called.places if referred else 0
            depth = max(depth, called.depth)
    return _Expansion(size + places * defaults, places, depth + 1)
