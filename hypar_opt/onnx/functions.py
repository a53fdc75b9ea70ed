"""Functions of a model, inlined where what they come to is not too large."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from hypar_opt.errors import InputError
from hypar_opt.onnx.weightless import MAX_STRUCTURE

if TYPE_CHECKING:
    from onnx import ModelProto

MAX_CALL_DEPTH = 100
"""The most functions that call one another in turn: the inliner calls itself for each."""

_NODE, _ATTRIBUTE = 64, 128
"""What they take when they are parsed, besides their bytes."""

_Name = tuple[str, str, str]


class _Expansion(NamedTuple):
    """What a call comes to.

    Parameters
    ----------
    size
        In bytes.
    places
        The places at which an attribute of the call is put in.
    depth
        The calls within one another.
    """

    size: int = 0
    places: int = 0
    depth: int = 0


def inlined(model: ModelProto) -> ModelProto:
    """Return a model without functions.

    Raises
    ------
    InputError
        Where what they come to is too large, or ONNX cannot inline them.
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
    """Return the first line of what an extension says."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _check(model: ModelProto) -> None:
    """Count what the calls come to, before any is inlined."""
    functions = {_name(f): f for f in model.functions}
    known: dict[_Name, _Expansion] = {}
    open_: dict[_Name, None] = {}
    waiting = list(functions)
    while waiting:
        name = waiting[-1]
        if name in known:
            waiting.pop()
            continue
        calls = {_call(n) for n in _nodes(functions[name].node)} & functions.keys()
        missing = [call for call in calls if call not in known]
        if any(call in open_ or call == name for call in missing):
            raise InputError(f"its function {name[1]!r} calls itself")
        open_[name] = None
        if missing:
            waiting += missing
            continue
        function = functions[name]
        defaults = sum(a.ByteSize() for a in function.attribute_proto)
        known[name] = _expanded(function.node, known, defaults)
        del open_[name]
        waiting.pop()
    whole = _expanded(model.graph.node, known, 0)
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


def _name(function: Any) -> _Name:
    return function.domain, function.name, function.overload


def _call(node: Any) -> _Name:
    return node.domain, node.op_type, node.overload


def _nodes(nodes: Iterable[Any]) -> list[Any]:
    """Return nodes and those of their subgraphs, however deep."""
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
    """Return what nodes come to where the functions that they call are known.

    An attribute of a call takes its place wherever the function refers to it, also through
    functions that this one calls; where a call leaves it out, the function's default does.
    """
    size = places = depth = 0
    for node in _nodes(nodes):
        own = node.ByteSize() + _NODE + _ATTRIBUTE * len(node.attribute)
        referred = sum(bool(attribute.ref_attr_name) for attribute in node.attribute)
        called = functions.get(_call(node))
        if called is None:
            size, places = size + own, places + referred
        else:
            size += called.size + called.places * own
            places += called.places if referred else 0
            depth = max(depth, called.depth)
    return _Expansion(size + places * defaults, places, depth + 1)
