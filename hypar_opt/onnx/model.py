"""An ONNX file as plain nodes: parsed, in topological order, with concrete input sizes."""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hypar_opt.documents.files import record_read
from hypar_opt.errors import HyparError, InputError, worded
from hypar_opt.onnx.functions import inlined, line_of
from hypar_opt.onnx.table import CONTROL_FLOW, HOPELESS, OPERATORS
from hypar_opt.onnx.weightless import (
    MAX_STRUCTURE,
    SCOPES,
    BrokenError,
    TooLargeError,
    weightless,
)

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

MAX_BYTES = 2**31
"""A model's file has at most this size, which is protobuf's limit."""

MAX_NODES = 20_000
"""A model has at most this many nodes; 100 transformer blocks have about 10,000."""

MAX_NAMES = 2**18
"""All nodes together have at most this many inputs and outputs."""

MAX_DIMENSION = 2**31 - 1

MAX_RANK = 16

_QUOTED = re.compile(r"'([^']*)'")

BATCH = 7
"""Stands for a batch that the model leaves open while axes are followed.

Any size would do; a prime is unlikely to be mistaken for another dimension."""

FLOATS = frozenset({1, 10, 11, 16})
"""The types FLOAT, FLOAT16, DOUBLE and BFLOAT16."""


class OnnxNode(NamedTuple):
    """One node of the graph; empty names stand for omitted inputs."""

    op: str
    """The operator, with its domain if the name alone is ambiguous."""
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    proto: NodeProto

    def attributes(self) -> dict[str, Any]:
        """Return the attributes: numbers, strings, lists, and tensors as in the file."""
        return {a.name: _attribute(a) for a in self.proto.attribute}

    @property
    def stated(self) -> str:
        """Its operator with the attributes that the file states, as ``Elu (alpha = 0.5)``."""
        attributes = [stated(name, value) for name, value in sorted(self.attributes().items())]
        return f"{self.op} ({', '.join(attributes)})" if attributes else self.op

    def refuse(self, problem: str) -> InputError:
        """Return an error that names this node, for a rule to raise."""
        return InputError(problem, where=f"node {self.label!r} ({self.op})")

    @property
    def label(self) -> str:
        return self.name or (self.outputs[0] if self.outputs else "")

    def input(self, index: int) -> str:
        """Return an input's name, empty where it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else ""

    @property
    def scopes(self) -> list[str]:
        """The names of the modules that it is in, from the model's own, and its own name.

        torch.onnx writes them; other exporters do not.
        """
        values = [one.value for one in self.proto.metadata_props if one.key == SCOPES]
        return _QUOTED.findall(values[0]) if values and isinstance(values[0], str) else []

    @property
    def changes_nothing(self) -> bool:
        """Whether it passes on its first input unchanged; casts among floats do, too."""
        if self.op == "Cast":
            return self.attributes().get("to") in FLOATS
        return self.op == "Identity" or (self.op == "Dropout" and not self.input(2))

    @property
    def word(self) -> str:
        """Its operator's word in the table."""
        return OPERATORS[self.op].word


_VIEWS = frozenset(("Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
"""Operators that hand on the values of their input in other dimensions."""


def stated(name: str, value: Any) -> str:
    """Return an attribute as messages show it."""
    return f"{name} = {value:.4g}" if isinstance(value, float) else f"{name} = {value}"[:60]


def _attribute(a: Any) -> Any:
    match a.type:  # onnx.AttributeProto.AttributeType
        case 1:
            return a.f
        case 2:
            return a.i
        case 3:
            return a.s.decode(errors="replace")
        case 4:
            return a.t
        case 6:
            return list(a.floats)
        case 7:
            return list(a.ints)
        case 8:
            return [text.decode(errors="replace") for text in a.strings]
    return None


class Input(NamedTuple):
    """An input of the graph: its concrete shape, with the batch first."""

    name: str
    shape: tuple[int, ...]
    is_float: bool


@dataclass(frozen=True)
class OnnxGraph:
    """The parts of a model that are read: nodes in topological order, and their tensors."""

    nodes: tuple[OnnxNode, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    initialisers: Mapping[str, TensorProto]
    producer: str
    proto: ModelProto = field(repr=False)
    notes: tuple[str, ...] = ()
    open_batch: bool = False
    """Whether the model leaves the size of its batch open."""

    @cached_property
    def version(self) -> int:
        """The version of ONNX's own operators."""
        imports = self.proto.opset_import
        return max((one.version for one in imports if one.domain in ("", "ai.onnx")), default=1)

    @cached_property
    def readers(self) -> Mapping[str, list[OnnxNode]]:
        """The nodes that read each tensor."""
        readers: dict[str, list[OnnxNode]] = {}
        for node in self.nodes:
            for name in node.inputs:
                readers.setdefault(name, []).append(node)
        return readers

    def ends(self, name: str) -> bool:
        """Return whether a tensor is an output, read by nothing but nodes that change no value."""
        while name not in self.outputs:
            read = self.readers.get(name, [])
            if len(read) != 1 or not (read[0].changes_nothing or read[0].op in _VIEWS):
                return False
            name = read[0].outputs[0]
        return name not in self.readers

    @cached_property
    def writers(self) -> Mapping[str, int]:
        """The place among the nodes of the one that writes each tensor."""
        return {name: n for n, node in enumerate(self.nodes) for name in node.outputs if name}


def load(path: str | Path) -> ModelProto:
    """Parse a model, without weights in other files.

    Raises
    ------
    InputError
        Says what is wrong with the file.
    HyparError
        Where the package onnx is not installed.
    """
    if find_spec("onnx") is None:
        raise HyparError(f"{path}: ONNX files need: pip install 'hypar-opt[onnx]'")
    return parsed(_bytes_of(path))


def parsed(data: bytes) -> ModelProto:
    """Parse the bytes of a model, and inline its functions.

    Raises
    ------
    InputError
        Says what is wrong with them.
    """
    import onnx

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:
        # An error of protobuf, which onnx imports and this package does not.
        raise InputError(f"should be an ONNX model: {line_of(error)}") from None
    if not model.HasField("graph") or not model.graph.node:
        raise InputError("should be an ONNX model with a graph of nodes")
    model = inlined(model)
    if len(model.graph.node) > MAX_NODES:
        count = len(model.graph.node)
        raise InputError(f"should have at most {MAX_NODES:,} nodes, got {count:,}")
    return model


def _bytes_of(path: str | Path) -> bytes:
    record_read(path)
    try:
        with Path(path).open("rb") as stream:
            # A device such as /dev/zero never ends, and models are not piped.
            state = os.fstat(stream.fileno())
            if not stat.S_ISREG(state.st_mode):
                raise InputError("should be a file")
            if state.st_size > MAX_BYTES:
                raise InputError(f"should have at most {MAX_BYTES // 2**30} GiB")
            return weightless(stream, state.st_size)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}") from None
    except ValueError as error:  # a null byte in the path
        raise InputError(f"should be a file name: {error}") from None
    except BrokenError:
        raise InputError("should be an ONNX model: its bytes are not a protobuf message") from None
    except TooLargeError:
        limit = MAX_STRUCTURE // 2**20
        raise InputError(f"should have at most {limit} MiB besides its weights") from None


def graph_of(model: ModelProto, dims: Mapping[str, int]) -> OnnxGraph:
    """Return the graph of a model, with sizes for its dynamic dimensions.

    Raises
    ------
    InputError
        Where the graph has a cycle, reads what nothing writes, or a size is missing.
    """
    graph = model.graph
    names = sum(len(proto.input) + len(proto.output) for proto in graph.node)
    if names > MAX_NAMES:
        raise InputError(f"its nodes should have at most {MAX_NAMES:,} inputs and outputs")
    nodes = [_node(proto) for proto in graph.node]
    _check_texts(nodes, graph)
    nodes = _without_sequences(nodes, graph)
    for node in nodes:
        if node.op in HOPELESS:
            raise node.refuse(HOPELESS[node.op])
    initialisers = {tensor.name: tensor for tensor in graph.initializer}
    for sparse in graph.sparse_initializer:
        raise InputError(
            "sparse weights are not supported", where=f"initializer {sparse.values.name!r}"
        )
    inputs = [value for value in graph.input if value.name not in initialisers]
    available = {"", *initialisers, *(value.name for value in inputs)}
    producer = model.producer_name, model.producer_version
    in_order = _sorted(nodes, available)
    _check_control_flow(in_order, [value.name for value in graph.output])
    return OnnxGraph(
        nodes=in_order,
        inputs=_inputs(inputs, dims),
        outputs=tuple(value.name for value in graph.output),
        initialisers=initialisers,
        producer=" ".join(text for text in producer if text and isinstance(text, str)),
        proto=model,
        notes=_batch_notes(inputs, dims),
        open_batch=_batch_of(inputs) == 0,
    )


def _without_sequences(nodes: list[OnnxNode], graph: GraphProto) -> list[OnnxNode]:
    """Return nodes in which a sequence of parts, each read by its number, is a split.

    So torch.onnx writes chunks where its optimiser does not run. Without sizes parts are rows, of
    a number that is not known yet.
    """
    sequences = [node for node in nodes if node.op == "SplitToSequence"]
    if not sequences or not all(node.input(1) for node in sequences):
        return nodes
    from onnx import helper, numpy_helper

    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for proto in graph.node:
        if proto.op_type == "Constant" and proto.attribute[:1] and proto.attribute[0].HasField("t"):
            tensors[proto.output[0]] = proto.attribute[0].t

    def integers(name: str) -> list[int]:
        tensor = tensors.get(name)
        if tensor is None or tensor.external_data or math.prod(tensor.dims) > MAX_NODES:
            return []
        return [int(value) for value in numpy_helper.to_array(tensor).ravel()]

    parts: dict[str, dict[int, str]] = {node.outputs[0]: {} for node in sequences if node.outputs}
    readers = [node for node in nodes if not parts.keys().isdisjoint(node.inputs)]
    for node in readers:
        at = integers(node.input(1)) if node.op == "SequenceAt" else []
        if len(at) != 1 or at[0] < 0 or not node.outputs:
            return nodes
        parts[node.inputs[0]].setdefault(at[0], node.outputs[0])
    if sum(map(len, parts.values())) < len(readers):
        return nodes  # a part that is read twice
    out = []
    for node in nodes:
        if node.op == "SplitToSequence":
            outputs, sizes = parts[node.outputs[0]], integers(node.input(1))
            count = max(len(sizes), max(outputs, default=0) + 1)
            names = [outputs.get(n, f"{node.outputs[0]}:{n}") for n in range(count)]
            axis = node.attributes().get("axis", 0)
            proto = helper.make_node("Split", node.inputs[:2], names, name=node.name, axis=axis)
            out.append(_node(proto))
        elif node.op != "SequenceAt":
            out.append(node)
    return out


def _check_control_flow(nodes: Sequence[OnnxNode], outputs: Iterable[str]) -> None:
    """Refuse control flow that an output needs."""
    needed = set(outputs)
    for node in reversed(nodes):
        if needed.isdisjoint(node.outputs):
            continue
        if node.op in CONTROL_FLOW:
            raise node.refuse(CONTROL_FLOW[node.op])
        needed.update(node.inputs)


def _batch_notes(values: list[ValueInfoProto], dims: Mapping[str, int]) -> tuple[str, ...]:
    leading = [value.type.tensor_type.shape.dim[:1] for value in values]
    names = {"batch", *(dim.dim_param for first in leading for dim in first)}
    return tuple(
        f"the batch is not a dimension of a network: --batch {dims[name]} sets {name!r}"
        for name in sorted(names & set(dims))
    )


def _check_texts(nodes: Iterable[OnnxNode], graph: GraphProto) -> None:
    """Refuse names that are not UTF-8: protobuf passes such bytes through."""
    try:
        for node in nodes:
            # One call, since a loop over all names of a large model is slow.
            "".join((node.op, node.name, *node.inputs, *node.outputs))
        for value in (*graph.input, *graph.output):
            "".join((value.name, *(d.dim_param for d in value.type.tensor_type.shape.dim)))
    except TypeError:
        raise InputError("should be an ONNX model: its names should be UTF-8") from None


def _node(proto: NodeProto) -> OnnxNode:
    op = proto.op_type
    # The only name that two domains give to operators of different inputs.
    if op == "Attention" and proto.domain == "com.microsoft":
        op = "com.microsoft.Attention"
    if op == "CastLike":
        # Only the type of its second input matters, so that it depends on the first alone.
        return OnnxNode("Identity", proto.name, tuple(proto.input[:1]), tuple(proto.output), proto)
    return OnnxNode(op, proto.name, tuple(proto.input), tuple(proto.output), proto)


def _sorted(nodes: list[OnnxNode], available: set[str]) -> tuple[OnnxNode, ...]:
    """Return nodes in topological order: the file's order, if it is one."""
    writers: dict[str, int] = {}
    in_order = True
    for position, node in enumerate(nodes):
        in_order = in_order and all(name in available or name in writers for name in node.inputs)
        for name in filter(None, node.outputs):
            if name in writers or name in available:
                raise node.refuse(f"writes {name!r}, which is written already")
            writers[name] = position
    return tuple(nodes) if in_order else _reordered(nodes, available, writers)


def _reordered(
    nodes: list[OnnxNode], available: set[str], writers: Mapping[str, int]
) -> tuple[OnnxNode, ...]:
    """Return nodes in topological order, ties broken by their order in the file."""
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(len(nodes)))
    for position, node in enumerate(nodes):
        for name in node.inputs:
            if name not in writers and name not in available:
                raise node.refuse(f"reads {name!r}, which nothing writes")
            if name in writers:
                graph.add_edge(writers[name], position, name=name)
    try:
        return tuple(nodes[position] for position in nx.lexicographical_topological_sort(graph))
    except nx.NetworkXUnfeasible:
        (writer, reader), *_ = nx.find_cycle(graph)
        name = graph.edges[writer, reader]["name"]
        raise nodes[writer].refuse(f"is in a cycle, through {name!r}") from None


def _inputs(values: list[ValueInfoProto], dims: Mapping[str, int]) -> tuple[Input, ...]:
    """Return the inputs with concrete sizes."""
    unread = set(dims)
    missing: dict[str, None] = {}
    batch = _batch_of(values) or BATCH
    inputs = []
    for value in values:
        tensor, where = value.type.tensor_type, f"input {value.name!r}"
        if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
            raise InputError("has no shape; an input needs one", where=where)
        rank = len(tensor.shape.dim)
        if rank > MAX_RANK:
            problem = f"should have at most {MAX_RANK} dimensions, got {rank:,}"
            raise InputError(problem, where=where)
        shape = []
        for axis, dim in enumerate(tensor.shape.dim):
            # Exporters write -1 for a size that they leave open.
            size = max(0, dim.dim_value) if dim.HasField("dim_value") else 0
            name = dim.dim_param or f"{value.name}:{axis}"
            if size > MAX_DIMENSION:
                problem = f"dimension {axis} should be at most {MAX_DIMENSION}, got {size}"
                raise InputError(problem, where=where)
            if axis == 0:
                # The batch is not a dimension of a network, and sizes for it are ignored.
                unread -= {name, "batch"}
                size = size or batch
            elif size == 0:
                unread.discard(name)
                size = dims.get(name, 0)
                if not size:
                    missing[name] = None
            shape.append(size)
        inputs.append(Input(value.name, tuple(shape), tensor.elem_type in FLOATS))
    if missing:
        names = ", ".join(map(repr, missing))
        raise InputError(f"has dynamic dimensions: {names}; import it with {_stating(missing)}")
    if unread:
        name = min(unread)
        raise InputError(f"has no dynamic dimension {name!r}: {_stating([name])}")
    return tuple(inputs)


def _stating(names: Iterable[str]) -> str:
    """Return how the sizes of some dimensions are stated, for messages."""
    names = list(names)
    python = ", ".join(f"{name!r}: N" for name in names)
    return worded(f"dims={{{python}}}", " ".join(f"--dim {name}=N" for name in names))


def _batch_of(values: list[ValueInfoProto]) -> int:
    """Return the first fixed leading dimension among inputs; 0 if there is none."""
    for value in values:
        shape = value.type.tensor_type.shape.dim
        if shape and shape[0].HasField("dim_value") and 0 < shape[0].dim_value <= MAX_DIMENSION:
            return int(shape[0].dim_value)
    return 0
