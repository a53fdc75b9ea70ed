"""The walk over a graph: each node is read by its operator's rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypar_opt.errors import InputError
from hypar_opt.onnx import elementwise, fused_attention, norms, pools, products, views
from hypar_opt.onnx.axes import UnalignedError
from hypar_opt.onnx.features import Features
from hypar_opt.onnx.import_state import ImportState
from hypar_opt.onnx.model import OnnxGraph, OnnxNode, stated
from hypar_opt.onnx.sinusoids import sinusoid, spans_of
from hypar_opt.onnx.table import CONTROL_FLOW, OPERATORS, unread

Rule = Callable[[ImportState, OnnxNode], Features | None]
"""Reads a node; returns its first output, or None where it has set what the node writes."""

RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        *(elementwise.elementwise, elementwise.rotary, elementwise.softmax),
        *(fused_attention.attention, fused_attention.fused_projection),
        *(norms.batch_norm, norms.channel_norm, norms.last_norm, norms.sum_and_norm),
        *(pools.global_pool, pools.pad, pools.pool, pools.reduction, pools.upsample),
        *(products.convolution, products.einsum, products.general_product, products.product),
        products.quantised_product,
        *(views.concat, views.expand, views.gather, views.reshape, views.shape, views.slice_),
        *(views.pixel_shuffle, views.split, views.transpose),
    )
}


def read_graph(
    graph: OnnxGraph, folder: Path | None = None, *, causal: bool = False
) -> ImportState:
    """Read all nodes of a graph.

    Parameters
    ----------
    folder
        The model's folder, which may hold masks; None to read no files.
    causal
        Take masks whose values are not known to hide all later tokens.

    Raises
    ------
    InputError
        Names the first node that cannot be read, and says why.
    """
    state = ImportState(graph, folder, causal=causal)
    spans = spans_of(state)
    between = {name for span in spans.values() for node in span.nodes for name in node.outputs}
    for node in graph.nodes:
        span = spans.get(node.outputs[0]) if node.outputs else None
        if span is not None:
            features = sinusoid(state, span)
            if features is not None:
                state.put(node, features)
                continue
            for member in span.nodes:
                _read(state, member)
        elif between.isdisjoint(node.outputs):
            _read(state, node)
    return state


def _read(state: ImportState, node: OnnxNode) -> None:
    if state.tensors.keys().isdisjoint(node.inputs):
        state.constants.defer(node)
        return
    if node.op not in OPERATORS:
        raise _unknown(node)
    with refusals(node):
        _check_borders(state, node)
        if node.op == "MatMul":
            _read_learned_tokens(state, node)
        features = RULES[OPERATORS[node.op].rule](state, node)
        if features is not None:
            state.put(node, features)
        for name, value in unread(node.op, node.attributes(), node.inputs):
            state.note(node, stated(name, value))


def _read_learned_tokens(state: ImportState, node: OnnxNode) -> None:
    """Read a constant as a feature map that a product has in place of queries, keys or values.

    It is made of a learned table, such as the query of a pooling by attention: nodes that were
    taken for constants are read as layers of it.
    """
    for name in node.inputs:
        if not state.is_constant(name):
            continue
        constant, chain = state.constant(name), []
        if constant.is_input or sum(size > 1 for size in constant.shape[:-2]) == 0:
            continue  # a matrix of weights
        table = name
        while (writer := state.constants.node(table)) is not None and writer.inputs:
            chain.append(writer)
            first, *rest = writer.inputs
            # A bias and a table are both of the file; what nodes make of one is the table.
            swapped = writer.op in ("Add", "Mul") and state.constants.node(first) is None
            table = next((x for x in rest if state.constants.node(x)), first) if swapped else first
        is_known = all(writer.op in OPERATORS for writer in chain)
        if table not in state.graph.initialisers or not is_known:
            continue
        if math.prod(state.constant(table).shape[:-2]) > 1:
            continue  # folded, with copies for each image
        state.tensors[table] = views.learned_tokens(state, chain[-1] if chain else node, table)
        for writer in reversed(chain):
            with refusals(writer):
                features = RULES[OPERATORS[writer.op].rule](state, writer)
                if features is not None:
                    state.put(writer, features)


def _check_borders(state: ImportState, node: OnnxNode) -> None:
    """Check that the border of a Pad is read only by windows and elementwise operators."""
    if OPERATORS[node.op].rule in ("convolution", "pool", "pad"):
        return
    for name in node.inputs:
        border = state.tensors[name].border if name in state.tensors else None
        operands = [other for other in node.inputs if other and other != name]
        numbers = all(state.is_constant(o) and state.constant(o).elements == 1 for o in operands)
        if border and not (OPERATORS[node.op].rule == "elementwise" and numbers):
            reader = f"node {node.label!r} ({node.op})"
            raise border.node.refuse(
                f"its border is read by {reader}; only convolutions and pools may"
            )


@contextmanager
def refusals(node: OnnxNode) -> Iterator[None]:
    """Refuse a node by name for any error while it is read."""
    try:
        yield
    except UnalignedError:
        raise node.refuse("its view goes across the axes of a feature map") from None
    except InputError:
        raise
    except KeyError as error:
        raise node.refuse(f"has no {error}") from None
    except (ValueError, IndexError, TypeError, AttributeError, ArithmeticError) as error:
        # The file is broken: an attribute of another type, an axis out of range, too few inputs.
        problem = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise node.refuse(f"is not as its operator requires: {problem}") from None


def _unknown(node: OnnxNode) -> InputError:
    import difflib

    if node.op in CONTROL_FLOW:
        return node.refuse(CONTROL_FLOW[node.op])
    names = [name for name in OPERATORS if "." not in name]
    near = difflib.get_close_matches(node.op, names, n=1, cutoff=0.0)
    return node.refuse(f"is not an operator that can be imported; the nearest known is {near[0]!r}")
