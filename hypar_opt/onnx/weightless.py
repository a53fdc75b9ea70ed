"""The bytes of a model without its weights, so that large files take little memory.

A protobuf message is a sequence of fields: a tag (number and wire type), then a number, or a length
and that many bytes, which may be another message. Large values of tensors are skipped, and so is
documentation; all other fields are copied.

Source: the protobuf encoding, and ``onnx.proto`` for the numbers of its fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

MAX_STRUCTURE = 8 * 2**20
"""Bytes of a model without its weights; parsed they may take a hundred times as much."""

MAX_VALUES = 2**27
"""Bytes of tensors' values that are read."""

_LARGEST_VALUES = (2**25, 2**22, 2**19, 2**16)
"""The largest tensor whose values are read, lowered until all fit `MAX_VALUES`."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor"},
}
"""The fields of each kind of message that may hold weights, by number, and their kind."""

_TEXTS = {"model": {6, 14}, "graph": {10, 16}, "node": {6}, "function": {8, 14}, "tensor": {12}}
"""Fields of documentation, and of an exporter's own."""

_ORIGIN = 9
"""The field of what an exporter writes of a node's origin, long but for the names of modules."""

SCOPES = "pkg.torch.onnx.name_scopes"
"""The key under which torch.onnx writes the names of the modules that a node is in."""

_SCOPES = b"\n" + bytes([len(SCOPES)]) + SCOPES.encode()
"""How an entry begins that has them."""

_RAW_DATA = 9
_VALUES = {4, 5, 6, 7, _RAW_DATA, 10, 11}
_IN_ANOTHER_FILE = b"\x70\x01"
"""The field of a tensor whose values are in another file, so that none are expected."""

_SMALL = 2**10
"""Messages of at most this many bytes are copied, except tensors."""

_FIELD = 32
"""Bytes that a field counts in addition to its own."""


class TooLargeError(Exception):
    """A model has too many bytes in addition to its weights."""


class BrokenError(Exception):
    """The bytes are not a protobuf message."""


_Field = tuple[int, bytes, int | None]
"""A number, the tag with the value of a field that is one, and the length of bytes that follow."""


def weightless(stream: BinaryIO, size: int) -> bytes:
    """Return a model of ``size`` bytes without its weights, which are skipped, not read.

    Raises
    ------
    TooLargeError
        Where the rest is too large.
    BrokenError
        Where a length goes beyond the end.
    """
    for largest in _LARGEST_VALUES:
        stream.seek(0)
        try:
            return _Reader(stream, largest).message("model", size)
        except _ManyValuesError:
            continue
    raise TooLargeError


class _ManyValuesError(Exception):
    """The values of tensors take more than `MAX_VALUES`."""


class _Reader:
    """A pass over a file, with the bytes that may still be read."""

    def __init__(self, stream: BinaryIO, largest: int) -> None:
        self._stream, self._largest = stream, largest
        self._structure, self._values = MAX_STRUCTURE, MAX_VALUES

    def message(self, kind: str, length: int) -> bytes:
        """Return the next ``length`` bytes, a message, without weights."""
        texts, messages = _TEXTS.get(kind, set()), _MESSAGES.get(kind, {})
        out = []
        for number, head, size in self._fields(length):
            if size is None:
                out.append(head)
            elif number in texts:
                self._pass(size)
            elif kind == "node" and number == _ORIGIN:
                out.append(self._modules(head, size))
            elif kind == "tensor" and number in _VALUES:
                out.append(self._tensor_values(number, head, size))
            elif number in messages and (
                kind == "model" or messages[number] == "tensor" or size > _SMALL
            ):
                content = self.message(messages[number], size)
                out.append(_tag(head) + _varint(len(content)) + content)
            else:
                self._count(size)
                out.append(head + self._take(size))
        return b"".join(out)

    def _modules(self, head: bytes, size: int) -> bytes:
        """Return an entry of a node's origin if it names the modules that the node is in."""
        begins = self._take(min(size, len(_SCOPES)))
        rest = size - len(begins)
        if begins != _SCOPES or size > _SMALL:
            self._pass(rest)
            return b""
        self._count(size)
        return head + begins + self._take(rest)

    def _tensor_values(self, number: int, head: bytes, size: int) -> bytes:
        if size > self._largest:
            self._pass(size)
            return _IN_ANOTHER_FILE
        # Numbers that are not raw may take one byte in the file, and parsed take 8.
        self._values -= size * (1 if number == _RAW_DATA else 8)
        if self._values < 0:
            raise _ManyValuesError
        return head + self._take(size)

    def _fields(self, length: int) -> Iterator[_Field]:
        while length > 0:
            self._count(_FIELD)
            tag, head = self._number()
            wire, size = tag & 7, None
            if wire == _BYTES:
                size, more = self._number()
                head += more
            elif wire == _VARINT:
                head += self._number()[1]
            elif wire in (_FIXED64, _FIXED32):
                head += self._take(8 if wire == _FIXED64 else 4)
            else:
                raise BrokenError
            length -= len(head) + (size or 0)
            if length < 0:
                raise BrokenError
            yield tag >> 3, head, size

    def _number(self) -> tuple[int, bytes]:
        """Return a number of 7 bits per byte, lowest first, and its bytes."""
        value, encoded = 0, b""
        for place in range(0, 70, 7):
            byte = self._stream.read(1)
            if not byte:
                raise BrokenError
            value |= (byte[0] & 127) << place
            encoded += byte
            if byte[0] < 128:
                return value, encoded
        raise BrokenError

    def _take(self, length: int) -> bytes:
        data = self._stream.read(length)
        if len(data) < length:
            raise BrokenError
        return data

    def _pass(self, length: int) -> None:
        self._stream.seek(length, 1)

    def _count(self, length: int) -> None:
        self._structure -= length
        if self._structure < 0:
            raise TooLargeError


def _tag(head: bytes) -> bytes:
    """Return the first number of a field's head."""
    return head[: next(place for place, byte in enumerate(head) if byte < 128) + 1]


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)
