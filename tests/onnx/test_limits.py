"""Whatever a model's file says, its import takes little memory and time, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from hypar_opt.onnx.model import MAX_NODES
from tests.limited import GIB, limited
from tests.onnx.graph_writer import GraphWriter

READ = """
    import cProfile
    from hypar_opt.errors import InputError
    from hypar_opt.models.imported import import_
    for path in {paths!r}:
        with cProfile.Profile(builtins=False) as counts:
            try:
                said = f"{{len(import_(path).layers)}} layers"
            except InputError as error:
                said = error.problem
        print(path, said, flush=True)
        assert sum(function.callcount for function in counts.getstats()) < 3 * 10**6
        # Of this program: getrusage has the peak of the process that started it, if that is higher.
        status = dict(line.split(":", 1) for line in open("/proc/self/status"))
        assert int(status["VmHWM"].split()[0]) < {most} // 1024
"""


def read_within(models: dict[str, Any], folder: Path) -> dict[str, str]:
    """What an import says of each, within a gibibyte and 3 * 10^6 calls of Python functions.

    Calls, and not seconds: they are as many on every machine. A function calls no other for long
    only where it handles much memory at once.
    """
    for name, model in models.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    paths = {str(folder / f"{name}.onnx"): name for name in models}
    said = limited(READ.format(paths=list(paths), most=GIB)).printed
    assert len(said) == len(models)
    words = (line.partition(".onnx ") for line in said)
    return {paths[path + ".onnx"]: word for path, _, word in words}


def small() -> GraphWriter:
    return GraphWriter(("x", [2, 8]))


def filled(g: GraphWriter, value: int, *shape: int) -> str:
    """A tensor of one value that takes no room in the file."""
    tensor = numpy_helper.from_array(np.array([value]))
    return str(g("ConstantOfShape", g.value(np.array(shape)), value=tensor))


def end(g: GraphWriter, *constants: str) -> Any:
    """A model in which constants are added to its only layer's output."""
    x = g("MatMul", "x", g.weight("w", 8, 8))
    for constant in constants:
        x = g("Add", x, constant)
    return g.model(x)


def doubled_calls() -> Any:
    """Functions of which each calls the next twice: 2^30 nodes."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    model = end(small())
    for number in range(30):
        domain, op = ("f", f"f{number + 1}") if number < 29 else ("", "Relu")
        nodes = [helper.make_node(op, [a], [b], domain=domain) for a, b in (("a", "b"), ("b", "c"))]
        model.functions.append(helper.make_function("f", f"f{number}", ["a"], ["c"], nodes, opsets))
    model.opset_import.append(opsets[1])
    last = model.graph.node[-1]
    model.graph.node.append(helper.make_node("f0", [last.output[0]], ["y"], domain="f"))
    model.graph.output[0].name = "y"
    return model


def copied_attributes() -> Any:
    """A function that refers to one attribute often, called often, with many numbers."""
    opsets = [helper.make_opsetid("", 20)]
    nodes = []
    for number in range(500):
        node = helper.make_node("Constant", [], [f"k{number}"])
        reference = node.attribute.add()
        reference.name, reference.ref_attr_name, reference.type = "value_ints", "many", 7
        nodes.append(node)
    nodes.append(helper.make_node("Relu", ["a"], ["b"]))
    model = end(small())
    model.functions.append(
        helper.make_function("f", "f", ["a"], ["b"], nodes, opsets, attributes=["many"])
    )
    model.opset_import.append(helper.make_opsetid("f", 1))
    many = list(range(50_000))
    model.graph.node.append(
        helper.make_node("f", [model.graph.output[0].name], ["y"], domain="f", many=many)
    )
    model.graph.output[0].name = "y"
    return model


def doubled_values() -> Any:
    """A list that is joined with itself 39 times, where ONNX's inference is needed elsewhere."""
    g = small()
    shape = g.value(np.array([1]))
    for _ in range(39):
        shape = g("Concat", shape, shape, axis=0)
    tiled = g("Tile", g.value(np.ones(4)), g.value(np.array([2])))
    return end(g, tiled, g("ReduceSum", g("Cast", shape, to=1), keepdims=1))


def shape_of_2_28(op: str) -> Any:
    g = small()
    many = filled(g, 0, 2**28)
    if op == "Slice":
        return end(g, g("Slice", g.value(np.ones(8)), many, many, many))
    if op == "ConstantOfShape":
        return end(g, g(op, many))
    return end(g, g(op, g.value(np.ones(8)), many))


def map_of_shape_2_28(op: str) -> Any:
    g = small()
    x = g("MatMul", "x", g.weight("w", 8, 8))
    many = filled(g, 0, 2**28)
    return g.model(g(op, x, *[many] * (3 if op == "Slice" else 1)))


def broadcast(op: str) -> Any:
    """A column and a row of 2^21 elements, for 2^42 of the output."""
    g = small()
    column, row = filled(g, 1, 2**21, 1), filled(g, 1, 1, 2**21)
    inputs = {"Where": (g("Cast", column, to=9), row, row), "Clip": (row, column, column)}
    return end(g, g("ReduceMax", g(op, *inputs.get(op, (column, row)))))


def gathered_rows() -> Any:
    """2^21 times the one row of a table of 2^21 columns."""
    g = small()
    table, rows = filled(g, 1, 1, 2**21), filled(g, 0, 2**21, 1)
    return end(g, g("ReduceMax", g("GatherND", table, rows)))


def gathered_nothing() -> Any:
    """Places in an empty table, of which the output has none and the indices 2^40."""
    g = small()
    return end(g, g("ReduceMax", g("Gather", filled(g, 1, 1, 0), filled(g, 0, 2**40))))


def switched_off() -> Any:
    """A dropout whose switch, a single number, has 2^40 elements."""
    g = small()
    x = g("MatMul", "x", g.weight("w", 8, 8))
    ratio = g.value(np.array(0.5, np.float32))
    return g.model(g("Dropout", x, ratio, g("Cast", filled(g, 0, 2**40), to=9)))


def gathered_weights() -> Any:
    """A layer's weights by 2^28 times the same index."""
    g = small()
    rows = g("Gather", g.weight("table", 8, 8), filled(g, 0, 2**28), axis=0)
    x = g("MatMul", "x", g.weight("w", 8, 8))
    return g.model(g("MatMul", x, g("Transpose", rows, perm=[1, 0])))


def kept(count: int) -> Any:
    """Constants of 2^22 elements that are all there at once."""
    g = small()
    constant = g("Cast", filled(g, 1, 2**22), to=1)
    for _ in range(count):
        constant = g("Neg", constant)
    return end(g, g("ReduceMax", constant))


def copied_by_reshape() -> Any:
    g = small()
    column = g.value(np.arange(2**10).reshape(-1, 1))
    wide = g("Expand", column, g.value(np.array([2**10, 2**20])))
    return end(g, g("ReduceMax", g("Reshape", wide, g.value(np.array([-1])))))


def scattered(count: int) -> Any:
    g = small()
    data = g("Cast", filled(g, 1, 2**10, 2**10), to=1)
    places = filled(g, 0, 2**10, 2**10, 2)
    for _ in range(count):
        data = g("ScatterND", data, places, filled(g, 0, 2**10, 2**10))
    return end(g, g("ReduceMax", data))


def sums_of_weights(count: int) -> Any:
    """Tables that are added to one another: each sum is made of all before it."""
    g = small()
    table = g.weight("first", 1, 8)
    for number in range(count):
        table = g("Add", table, g.weight(f"table{number}", 1, 8))
    return end(g, table)


def sliced(count: int) -> Any:
    g = GraphWriter(("x", [2, 2 * count]))
    x = g("MatMul", "x", g.weight("w", 2 * count, 2 * count))
    one, far = g.value(np.array([1])), g.value(np.array([2**40]))
    for _ in range(count):
        x = g("Slice", x, one, far, one)
    return g.model(g("Relu", x))


def transposed(rank: int) -> Any:
    g = small()
    x = g("MatMul", "x", g.weight("w", 8, 8))
    x = g("Reshape", x, g.value(np.array([0, 8] + [1] * (rank - 2))))
    for _ in range(100):
        x = g("Transpose", x, perm=list(range(rank))[::-1])
    return g.model(g("Relu", x))


def tiled(count: int) -> Any:
    g = small()
    x = g("MatMul", "x", g.weight("w", 8, 8))
    times = g.value(np.array([1, 2]))
    for _ in range(count):
        x = g("Tile", x, times)
    return g.model(g("Relu", x))


def masks(count: int, nodes: int, tokens: int) -> Any:
    """Scores to which masks are added that are all made of the same many nodes."""
    g = GraphWriter(("x", [2, tokens, 8]))
    query, key, value = (g("MatMul", "x", g.weight(name, 8, 8)) for name in "qkv")
    scores = g("MatMul", query, g("Transpose", key, perm=[0, 2, 1]))
    mask = g("Cast", filled(g, 0, tokens, tokens), to=1)
    for _ in range(nodes):
        mask = g("Neg", mask)
    for _ in range(count):
        scores = g("Add", scores, g("Neg", mask))
    return g.model(g("MatMul", g("Softmax", scores, axis=-1), value))


def residuals(nodes: int) -> Any:
    """A model of many layers, of which no few are alike."""
    g = small()
    x = "x"
    for number in range(nodes // 3):
        width = 1 + number * number % 53
        inner = g("MatMul", x, g.weight(f"up{number}", 8, width))
        x = g("Add", x, g("MatMul", inner, g.weight(f"down{number}", width, 8)))
    return g.model(x)


SHAPES = ("Reshape", "Expand", "Squeeze", "Unsqueeze", "Slice", "Tile")

BOMBS: dict[str, Callable[[], Any]] = {
    "doubled calls": doubled_calls,
    "copied attributes": copied_attributes,
    "doubled values": doubled_values,
    **{f"{op} of a constant": lambda op=op: shape_of_2_28(op) for op in SHAPES},  # type: ignore[misc]
    **{f"{op} of a map": lambda op=op: map_of_shape_2_28(op) for op in SHAPES},  # type: ignore[misc]
    "ConstantOfShape": lambda: shape_of_2_28("ConstantOfShape"),
    **{op: lambda op=op: broadcast(op) for op in ("Where", "Mod", "Clip", "Add")},  # type: ignore[misc]
    "GatherND": gathered_rows,
    "Gather of nothing": gathered_nothing,
    "Gather of weights": gathered_weights,
    "Dropout": switched_off,
    "kept": lambda: kept(400),
    "copied by Reshape": copied_by_reshape,
    "ScatterND": lambda: scattered(100),
    "sums of weights": lambda: sums_of_weights(2000),
    "slices of slices": lambda: sliced(4000),
    "rank": lambda: transposed(300),
    "tiled": lambda: tiled(15_000),
    "masks of many nodes": lambda: masks(1500, 900, 2),
    "large masks": lambda: masks(200, 10, 2048),
    "many nodes": lambda: residuals(MAX_NODES // 9),
    "more nodes": lambda: residuals(MAX_NODES + 3),
}


HOLLOW = {"doubled values", "Where", "Mod", "Clip", "Add", "GatherND", "Gather of nothing"} | {
    "kept",
    "copied by Reshape",
    "ScatterND",
}
"""Those whose constants no layer needs: they are read, and not computed."""


def test_an_import_takes_little_memory_and_time(tmp_path: Path) -> None:
    said = read_within({name: make() for name, make in BOMBS.items()}, tmp_path)
    read = {name for name, words in said.items() if words.endswith(" layers")}
    assert read == HOLLOW | {"many nodes", "masks of many nodes", "large masks"}
    assert {said[name] for name in HOLLOW} == {"1 layers"}
    assert "should come to at most" in said["doubled calls"]
    assert "is too long" in said["Reshape of a map"]
    assert "should have at most" in said["more nodes"]


def test_weights_in_the_file_are_passed_over(tmp_path: Path) -> None:
    """A matrix of 1.9 GB in a file that takes no room on the disk: its bytes are all holes."""
    model = end(small())
    wide = 21_000
    weight = model.graph.initializer[0]
    raw = 4 * wide * wide
    weight.ClearField("external_data")
    weight.ClearField("data_location")
    weight.dims[:] = [wide, wide]
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = wide
    model.graph.initializer.pop()
    # The tensor's bytes come last: in it, in the graph and in the model.
    head = weight.SerializeToString()
    whole = _head(5, len(head) + len(_head(9, raw)) + raw) + head + _head(9, raw)
    graph = model.graph.SerializeToString()
    model.ClearField("graph")
    start = model.SerializeToString() + _head(7, len(graph) + len(whole) + raw) + graph + whole
    path = tmp_path / "large.onnx"
    with path.open("wb") as stream:
        stream.write(start)
        stream.truncate(len(start) + raw)
    (line,) = limited(READ.format(paths=[str(path)], most=GIB // 4)).printed
    assert line.endswith(" 1 layers")


def _head(number: int, size: int) -> bytes:
    """The tag and length of a field, without its bytes."""
    out = bytes([number << 3 | 2])
    while size > 127:
        out, size = out + bytes([size & 127 | 128]), size >> 7
    return out + bytes([size])


MESSAGES = {
    "nodes": (1, b""),
    "tensors": (5, b""),
    "attributes": (1, b"\x2a\x00" * 500),
    "inputs": (1, b"\x0a\x00" * 500),
}


def test_many_messages_of_a_few_bytes(tmp_path: Path) -> None:
    paths = []
    for name, (number, content) in MESSAGES.items():
        one = _head(number, len(content)) + content
        graph = one * (2**23 // len(one))
        paths.append(tmp_path / f"{name}.onnx")
        paths[-1].write_bytes(_head(7, len(graph)) + graph)
    lines = limited(READ.format(paths=[*map(str, paths)], most=GIB)).printed
    assert len(lines) == len(MESSAGES)
    assert all("should have at most" in line for line in lines)
