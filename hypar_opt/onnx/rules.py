"""The walk over a graph: its operator's rule reads each node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypar_opt.errors import InputError
from hypar_opt.onnx import elementwise, fused_attention, norms, pools, products, views
from hypar_opt.onnx.axes import UnalignedError
from hypar_opt.onnx.import_state import ImportState
from hypar_opt.onnx.model import OnnxGraph, OnnxNode
from hypar_opt.onnx.table import CONTROL_FLOW, OPERATORS, UNSUPPORTED

RULES: dict[str, Callable[[ImportState, OnnxNode], None]] = {
    "attention": fused_attention.attention,
    "concat": views.concat,
    "convolution": products.convolution,
    "einsum": products.einsum,
    "expand": views.expand,
    "fused_projection": fused_attention.fused_projection,
    "gather": views.gather,
    "general_product": products.general_product,
    "pad": pools.pad,
    "product": products.product,
    "quantised_product": products.quantised_product,
    "reshape": views.reshape,
    "shape": views.shape,
    "slice_": views.slice_,
    "softmax": elementwise.softmax,
    "split": views.split,
    "transpose": views.transpose,
}

# Rules that also take the operator's word in the table.
WORDED_RULES: dict[str, Callable[[ImportState, OnnxNode, str], None]] = {
    "batch_norm": norms.batch_norm,
    "channel_norm": norms.channel_norm,
    "elementwise": elementwise.elementwise,
    "global_pool": pools.global_pool,
    "last_norm": norms.last_norm,
    "pool": pools.pool,
    "reduction": pools.reduction,
    "sum_and_norm": norms.sum_and_norm,
}


def read_graph(graph: OnnxGraph, folder: Path | None = None) -> ImportState:
    """Read all nodes of a graph.

    Parameters
    ----------
    folder
        The model's folder, which may hold masks; None to read no files.

    Raises
    ------
    InputError
        Names the first node that cannot be read, and says why.
    """
    state = ImportState(graph, folder)
    for node in graph.nodes:
        if state.tensors.keys().isdisjoint(node.inputs):
            state.constants.defer(node)
        else:
            _read_node(state, node)
    return state


def _read_node(state: ImportState, node: OnnxNode) -> None:
    """Read one node that depends on the network's input.

    Raises
    ------
    InputError
        Where the operator is unknown, or does not fit the node.
    """
    row = OPERATORS.get(node.op)
    if row is None:
        raise _unknown(node)
    with refusals(node):
        if row.rule in RULES:
            RULES[row.rule](state, node)
        else:
            WORDED_RULES[row.rule](state, node, row.word)


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
        return node.refuse(UNSUPPORTED)
    known = [name for name in OPERATORS if "." not in name]
    near = difflib.get_close_matches(node.op, known, n=1, cutoff=0.0)
    return node.refuse(f"is not an operator that can be imported; the nearest known is {near[0]!r}")
