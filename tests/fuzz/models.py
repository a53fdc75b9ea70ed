"""ONNX models that are wrong: nodes put together by chance, and the bytes of right ones spoilt."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from hypar_opt.onnx.table import OPERATORS
from tests.onnx.graph_writer import EXPORTED, GraphWriter

SIZES = (0, 1, 1, 2, 2, 3, 4, 4, 8, 8, 16, 64, 1000, 2**12, 2**16, 2**21, 2**28, 2**31, 2**40, -1)
CONSTANT_OPS = (
    *("ArgMax", "Cast", "Clip", "Concat", "Constant", "ConstantOfShape", "CumSum", "EyeLike"),
    *("GatherElements", "GatherND", "If", "Loop", "Mod", "NonZero", "Range", "ReduceProd"),
    *("Resize", "ScatterElements", "ScatterND", "TopK", "Trilu", "Where", "OneHot", "STFT"),
)
OPS = (*sorted(op for op in OPERATORS if "." not in op), *CONSTANT_OPS * 2)
TYPES = (1, 1, 1, 6, 7, 7, 7, 9, 10, 11, 14, 15, 2, 16, 17, 8)
ATTRIBUTES: dict[str, tuple[Any, ...]] = {
    "allowzero": (0, 1),
    "auto_pad": ("SAME_UPPER", "VALID", "odd"),
    "axes": ([0], [1], [-1], [0, 1], [5], []),
    "axis": (0, 1, 2, -1, 7),
    "dilations": ([1, 1], [2, 2], [0, 0]),
    "equation": ("bi,io->bo", "bij,bkj->bik", "...", ""),
    "group": (1, 2, 4, 0),
    "keepdims": (0, 1),
    "kernel_shape": ([1, 1], [3, 3], [2], [2**20, 2**20], [0, 0], []),
    "num_heads": (1, 2, 0),
    "num_outputs": (1, 2, 2**31),
    "pads": ([0, 0, 0, 0], [1, 1, 1, 1], [2**20] * 4, [-1] * 4),
    "perm": ([0, 1], [1, 0], [0, 2, 1], [3, 2, 1, 0], [0, 0]),
    "shape": ([0, -1], [1], []),
    "split": ([4, 4], [1, 7]),
    "strides": ([1, 1], [2, 2], [0, 0]),
    "to": (1, 6, 7, 9, 10, 14, 8, 99),
    "transB": (0, 1),
    "value_ints": ([1, 2], [2**40], []),
    "value_float": (0.0, float("nan")),
}


@cache
def _right() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(EXPORTED.glob("*.onnx")))


def model(rng: Random) -> bytes:
    """Return a model's file."""
    if rng.random() < 0.4:
        return _spoilt(rng.choice(_right()), rng)
    data: bytes = _drawn(rng).SerializeToString()
    return _spoilt(data, rng) if rng.random() < 0.1 else data


def _spoilt(data: bytes, rng: Random) -> bytes:
    """Return bytes with some changed, left out, or there twice."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place, other = rng.randrange(len(out) + 1), rng.randrange(len(out) + 1)
        how = rng.randrange(5)
        if how < 2:
            out[place : place + 1] = rng.randbytes(1)
        elif how == 2:
            out[place : place + rng.choice((1, 4, 100))] = b""
        elif how == 3:
            out[place:place] = out[other : other + rng.choice((1, 10, 300))]
        else:
            out[place : place + 1] = b"\xff\xff\xff\xff\x7f"
    return bytes(out)


def _drawn(rng: Random) -> Any:
    """Return a graph of nodes that read what is before them, maps and constants."""
    shapes: list[list[int | str]] = [[2, 8], [2, 4, 8], [2, 4, 8, 8], [2, 4]]
    shapes += [["batch", "tokens", 8], [2]]
    shape = rng.choice(shapes)
    g = GraphWriter(("x", shape), ids=rng.random() < 0.1)
    maps, constants = ["x"], [_constant(g, rng) for _ in range(4)]
    for _ in range(rng.choice((1, 3, 10, 30))):
        op = rng.choice(OPS)
        of_constants = rng.random() < 0.5
        pool = constants if of_constants else [*maps[-3:], *maps[-3:], *constants]
        count = rng.choice((1, 1, 2, 2, 3, 4))
        given = [rng.choice(pool) for _ in range(count)]
        if not of_constants:
            given[0] = maps[-1] if rng.random() < 0.9 else given[0]
        if rng.random() < 0.05:
            given[rng.randrange(count)] = ""
        made = g(op, *given, outputs=rng.choice((1, 1, 1, 2)), **_attributes(rng))
        written = [made] if isinstance(made, str) else made
        (constants if of_constants else maps).extend(written)
        if rng.random() < 0.3:
            constants.append(_constant(g, rng))
    made = g.model(maps[-1], *rng.sample(maps, rng.choice((0, 0, 1)) and 1))
    if rng.random() < 0.1:
        _add_functions(made, rng)
    return made


def _constant(g: GraphWriter, rng: Random) -> str:
    dims = [rng.choice(SIZES) for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4)))]
    how = rng.randrange(4)
    if how == 0:
        return g.weight(f"w{len(g.initialisers)}", *dims)
    if how == 1:
        shape = g.value(np.array(dims, np.int64))
        return str(g("ConstantOfShape", shape, value=_tensor(rng, 1)))
    if how == 2:
        return g.value(np.array([rng.choice(SIZES) for _ in range(rng.choice((1, 2, 4)))]))
    name = f"v{len(g.initialisers)}"
    tensor = _tensor(rng, rng.choice((0, 1, 4, 8)))
    tensor.name = name
    if rng.random() < 0.2:
        tensor.dims[:] = dims
    g.initialisers.append(tensor)
    return name


def _tensor(rng: Random, count: int) -> Any:
    kind = rng.choice(TYPES)
    if kind == TensorProto.STRING:
        return helper.make_tensor("s", kind, [count], [b"text"] * count)  # type: ignore[list-item]
    numbers = np.array([rng.choice((0, 1, 2, 8, -1)) for _ in range(count)])
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    return numpy_helper.from_array(np.abs(numbers).astype(dtype))


def _attributes(rng: Random) -> dict[str, Any]:
    names = rng.sample(sorted(ATTRIBUTES), rng.choice((0, 1, 2, 5)))
    made = {name: rng.choice(ATTRIBUTES[name]) for name in names}
    if rng.random() < 0.2:
        made["value"] = _tensor(rng, rng.choice((1, 2)))
    return {name: value for name, value in made.items() if value != []}


def _add_functions(model: Any, rng: Random) -> None:
    """Have the last node's output go through functions that call one another."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    depth, width = rng.choice((1, 3, 30, 150)), rng.choice((1, 2, 5))
    for number in range(depth):
        last = number == depth - 1 and rng.random() < 0.9
        domain, op = ("", "Relu") if last else ("f", f"f{(number + 1) % depth}")
        names = ["a", *(f"b{n}" for n in range(width))]
        nodes = [helper.make_node(op, [a], [b], domain=domain) for a, b in pairwise(names)]
        model.functions.append(
            helper.make_function("f", f"f{number}", ["a"], [names[-1]], nodes, opsets)
        )
    model.opset_import.append(opsets[1])
    output = model.graph.output[0]
    model.graph.node.append(helper.make_node("f0", [output.name], ["after"], domain="f"))
    output.name = "after"
