"""The table of operators: what a node states is read, or named, or without effect."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, defs, helper
from onnx.reference import ReferenceEvaluator

import hypar_opt.onnx
from hypar_opt.onnx.rules import RULES
from hypar_opt.onnx.samples import COMPUTED, SAMPLE, computed
from hypar_opt.onnx.table import OPERATORS, WITHOUT_EFFECT, unread
from tests.onnx.graph_writer import GraphWriter

FOLDER = Path(hypar_opt.onnx.__file__).parent
SCHEMAS: dict[str, list[Any]] = {}
for _schema in defs.get_all_schemas_with_history():
    if not _schema.domain and _schema.name in OPERATORS:
        SCHEMAS.setdefault(_schema.name, []).append(_schema)

OTHERS: dict[int, Any] = {
    AttributeProto.FLOAT: 0.625,
    AttributeProto.INT: 3,
    AttributeProto.STRING: "other",
    AttributeProto.FLOATS: [0.625],
    AttributeProto.INTS: [3],
    AttributeProto.STRINGS: ["other"],
}
"""Values that are no default of any attribute."""


def attributes() -> Iterator[tuple[str, str, Any]]:
    """The attributes of all operators in the table, in all versions of ONNX."""
    for op, schemas in SCHEMAS.items():
        every = {name: own.type for one in schemas for name, own in one.attributes.items()}
        for name, kind in every.items():
            yield op, name, OTHERS[int(kind.value)]


def test_an_attribute_is_read_or_named_or_without_effect() -> None:
    """But for operators that are named whole, between layers and before the output."""
    seen = 0
    for op, name, value in attributes():
        row = OPERATORS[op]
        said = dict(unread(op, {name: value}, []))
        read = row.attributes is None or name in row.attributes | WITHOUT_EFFECT
        assert said == ({} if read else {name: value}), (op, name)
        seen += 1
    assert seen > 150


def test_an_input_is_read_or_named() -> None:
    for op, schemas in SCHEMAS.items():
        row = OPERATORS[op]
        last = max(schemas, key=lambda one: one.since_version)
        names = [own.name for own in last.inputs]
        said = [name for name, _ in unread(op, {}, names)]
        first = len(names) if row.inputs is None else row.inputs
        assert said == [f"input {place + 1}" for place in range(first, len(names))], op


def test_a_default_is_not_named() -> None:
    for op, schemas in SCHEMAS.items():
        last = max(schemas, key=lambda one: one.since_version)
        given = {
            name: helper.get_attribute_value(own.default_value)
            for name, own in last.attributes.items()
            if own.default_value.type
        }
        texts = {k: v.decode() if isinstance(v, bytes) else v for k, v in given.items()}
        assert not list(unread(op, texts, [])), op


def test_what_is_declared_read_is_read() -> None:
    """Each attribute's name is in the code of its operator's rule, or of what that rule calls."""
    words: set[str] = set()
    for file in FOLDER.glob("*.py"):
        if file.name != "table.py":
            words |= {
                node.value
                for node in ast.walk(ast.parse(file.read_text()))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
    for op, row in OPERATORS.items():
        assert row.rule in RULES
        # Rotations are run with all that they state, and sides of a product are A and B.
        in_other_words = {"interleaved", "rotary_embedding_dim", "transBatchA", "transBatchB"}
        missing = set(row.attributes or ()) - words - in_other_words
        assert not missing, op


def test_what_is_named_whole_is_not_computed() -> None:
    whole = {op for op, row in OPERATORS.items() if row.attributes is None}
    assert whole.isdisjoint(COMPUTED)
    assert all(OPERATORS[op].rule == "elementwise" for op in whole)


def test_what_is_not_read_is_in_the_network_file(tmp_path: Path) -> None:
    g = GraphWriter(("x", [2, 8]))
    weights = g.weight("w", 8, 8), g.weight("b", 8)
    x = g("Gemm", "x", *weights, alpha=0.5, beta=2.0, name="odd")
    out = g.linear(x, "last", 8, 4)
    phrases = g.content(tmp_path, out)["not_kept"]
    assert "alpha = 0.5 (node 'odd' (Gemm))" in phrases
    assert "beta = 2 (node 'odd' (Gemm))" in phrases


ELEMENTWISE = [op for op, row in OPERATORS.items() if row.rule == "elementwise" and op in SCHEMAS]


def _inputs(op: str) -> list[Any]:
    last = max(SCHEMAS[op], key=lambda one: one.since_version)
    count = 3 if op in ("Where", "Sum", "Mean", "Max", "Min") else min(2, len(last.inputs))
    rng = np.random.default_rng(0)
    others = [rng.uniform(0.5, 2.0, SAMPLE.shape) for _ in range(count - 1)]
    if op in ("And", "Or", "Xor", "Not"):
        return [SAMPLE > 0, *(other > 1 for other in others)]
    if op == "Where":
        return [SAMPLE > 0, *others]
    return [SAMPLE] if op in ("Clip", "Dropout", "Cast") else [SAMPLE, *others]


def _stated(op: str) -> list[dict[str, Any]]:
    """The defaults of an operator's attributes, and other values of each that is read."""
    if op in ("Cast", "Mod"):
        return [{"to": 11} if op == "Cast" else {"fmod": 1}]
    numbers = ("alpha", "beta", "gamma", "lambd", "bias")
    stated = [{name: 0.375} for name in OPERATORS[op].attributes or () if name in numbers]
    return [{}, *stated, *([{"approximate": "tanh"}] if op == "Gelu" else [])]


@pytest.mark.parametrize("op", [op for op in ELEMENTWISE if op in COMPUTED and op != "CastLike"])
def test_elementwise_operators_are_computed_as_onnx_does(op: str) -> None:
    inputs = _inputs(op)
    names = [f"i{n}" for n in range(len(inputs))]
    for attributes in _stated(op):
        node = helper.make_node(op, names, ["out"], **attributes)
        values = [helper.make_tensor_value_info(name, 11, None) for name in names]
        out = helper.make_tensor_value_info("out", 11, None)
        graph = helper.make_graph([node], "one", values, [out])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
        with np.errstate(all="ignore"):
            feeds = dict(zip(names, inputs, strict=True))
            (expected,) = ReferenceEvaluator(model).run(None, feeds)
            found = computed(op, attributes, inputs)
        assert found is not None
        finite = np.isfinite(found) & np.isfinite(expected)
        assert finite.mean() > 0.3
        assert np.allclose(found[finite], expected[finite], rtol=1e-6, atol=1e-6), attributes


def documented() -> str:
    """Return the table of docs/onnx.md: operators with equal entries are in one row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for op, row in OPERATORS.items():
        read = ", ".join(f"`{name}`" for name in sorted(row.attributes or ())) or "none"
        if row.attributes is None:
            read = "named whole"
        inputs = "all" if row.inputs is None else str(row.inputs)
        if row.unread:
            inputs += f" but {' and '.join(str(place + 1) for place in sorted(row.unread))}"
        rows.setdefault((read, inputs), []).append(f"`{op}`")
    lines = ["| operators | attributes that are read | inputs |", "|---|---|---|"]
    lines += [f"| {', '.join(ops)} | {read} | {inputs} |" for (read, inputs), ops in rows.items()]
    return "\n".join(lines)


def test_the_table_is_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs/onnx.md").read_text()
    assert documented() in page
    assert all(f"`{name}`" in page for name in WITHOUT_EFFECT)
