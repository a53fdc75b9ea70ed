"""Chakra's traces, read by Google's protobuf, which has to write the same bytes again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import hypar_opt as ho
from hypar_opt.execution.formats import FORMATS

_VALUES = ["double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"]
_VALUES += ["fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"]

FIELDS = {
    "AttributeProto": {
        "name": (1, "string"),
        "doc_string": (2, "string"),
        # Each is followed by a list of its kind, which nothing here has.
        **{f"{kind}_val": (3 + 2 * n, kind) for n, kind in enumerate(_VALUES)},
    },
    "GlobalMetadata": {"version": (1, "string"), "attr": (2, "AttributeProto*")},
    "Node": {
        "id": (1, "uint64"),
        "name": (2, "string"),
        "type": (3, "int32"),  # an enumeration: written alike
        "ctrl_deps": (4, "uint64*"),
        "data_deps": (5, "uint64*"),
        "start_time_micros": (6, "uint64"),
        "duration_micros": (7, "uint64"),
        "attr": (10, "AttributeProto*"),
    },
}
"""Messages of et_def.proto, with the number and the type of each field; ``*`` if repeated."""

ATTRIBUTES = {
    "is_cpu_op": "bool_val",
    "comm_type": "int64_val",
    "comm_size": "int64_val",
    "comm_src": "int32_val",
    "comm_dst": "int32_val",
    "comm_tag": "int32_val",
    "pg_name": "string_val",
}
"""Of what types ASTRA-sim's feeder reads them."""

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
KINDS = {0: "all-reduce", 2: "all-gather", 6: "all-to-all", 7: "reduce-scatter"}


class Node(NamedTuple):
    id: int
    name: str
    type: int
    after: tuple[int, ...]
    micros: int
    attributes: dict[str, Any]


@cache
def _classes() -> dict[str, Any]:
    """The classes that protobuf makes of the messages."""
    file = descriptor_pb2.FileDescriptorProto(name="et", package="chakra", syntax="proto3")
    own = descriptor_pb2.FieldDescriptorProto
    for name, fields in FIELDS.items():
        message = file.message_type.add(name=name)
        for key, (number, kind) in fields.items():
            label = own.LABEL_REPEATED if kind.endswith("*") else own.LABEL_OPTIONAL
            field = message.field.add(name=key, number=number, label=label)
            if (kind := kind.rstrip("*")) in FIELDS:
                field.type, field.type_name = own.TYPE_MESSAGE, f".chakra.{kind}"
            else:
                field.type = getattr(own, f"TYPE_{kind.upper()}")
            if key.endswith("_val"):
                field.oneof_index = 0
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}"))
        for name in FIELDS
    }


def read(trace: bytes) -> list[Node]:
    """Return the nodes of a trace; protobuf has to know all fields, and to write all its bytes."""
    classes, messages, at = _classes(), list[bytes](), 0
    while at < len(trace):
        size, at = _varint(trace, at)
        messages.append(trace[at : at + size])
        at += size
    head, *rest = messages
    metadata = classes["GlobalMetadata"].FromString(head)
    assert metadata == classes["GlobalMetadata"](version="0.0.4")
    nodes = [classes["Node"].FromString(message) for message in rest]
    for message, written in zip((metadata, *nodes), messages, strict=True):
        message.DiscardUnknownFields()
        assert message.SerializeToString(deterministic=True) == written
    return [_node(node) for node in nodes]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at


def _node(node: Any) -> Node:
    attributes = {}
    for attribute in node.attr:
        kind = attribute.WhichOneof("value")
        assert kind == ATTRIBUTES[attribute.name]
        attributes[attribute.name] = getattr(attribute, kind)
    assert attributes.pop("is_cpu_op") is False
    assert len(node.attr) == len(attributes) + 1
    micros = node.duration_micros
    return Node(node.id, node.name, node.type, tuple(node.data_deps), micros, attributes)


def exported(plan: ho.Plan) -> tuple[list[list[Node]], dict[str, Any]]:
    """The nodes of every device, and ASTRA-sim's files by name."""
    import json

    files = dict(FORMATS["chakra"]().files(plan))
    traces = [read(files.pop(f".{device}.et")) for device in range(plan.accelerators)]
    return traces, {name: json.loads(content) for name, content in files.items()}


def moved(traces: Iterable[list[Node]], groups: dict[str, list[int]]) -> Iterator[Any]:
    """Yield every exchange: device, kind, those that take part, and the bytes it receives."""
    for device, nodes in enumerate(traces):
        for node in nodes:
            size = node.attributes.get("comm_size", 0)
            if node.type == COLLECTIVE:
                ranks = groups[node.attributes["pg_name"]]
                kind, count = KINDS[node.attributes["comm_type"]], len(ranks)
                part = size if kind == "all-gather" else size / count
                times = 2 * (count - 1) if kind == "all-reduce" else count - 1
                yield device, kind, tuple(ranks), part * times
            elif node.type == RECEIVE:
                assert node.attributes["comm_dst"] == device
                yield device, "message", (node.attributes["comm_src"], device), size
