"""The house: no circle of modules, one name for one class, documented parameters that exist."""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import grimp
import networkx as nx
import pytest

import hypar_opt
from tests.count import lines_of_code

ROOT = Path(hypar_opt.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def definitions(file: Path) -> list[ast.ClassDef | Function]:
    every = statements(ast.parse(file.read_text()))
    return [node for node in every if isinstance(node, ast.ClassDef | Function)]


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Walk along statements, but not into their expressions, which define nothing."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


def test_no_module_imports_itself_in_a_circle() -> None:
    """All imports count, those for type checkers and within functions too."""
    graph = grimp.build_graph("hypar_opt")
    imports = (
        (module, imported)
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    )
    parts = nx.strongly_connected_components(nx.DiGraph(imports))
    assert [sorted(part) for part in parts if len(part) > 1] == []


def test_a_class_name_stands_for_one_class() -> None:
    files = defaultdict(list)
    for file in FILES:
        for node in definitions(file):
            if isinstance(node, ast.ClassDef):
                files[node.name].append(file.relative_to(ROOT).as_posix())
    assert {name: where for name, where in files.items() if len(where) > 1} == {}


@pytest.mark.parametrize("room", sorted({file.relative_to(ROOT).parts[0] for file in FILES}))
def test_documented_parameters_exist(room: str) -> None:
    """Those of a function are its own; those of a class are fields, or of its constructor."""
    wrong = [
        f"{file.relative_to(ROOT)}: {node.name} has no {name}"
        for file in FILES
        if file.relative_to(ROOT).parts[0] == room
        for node in definitions(file)
        for name in documented(node)
        if name not in parameters(node)
    ]
    assert wrong == []


def documented(node: ast.ClassDef | Function) -> list[str]:
    """Return the names under ``Parameters``, as in ``rows, columns : (levels, layers)``."""
    docstring = inspect.cleandoc(ast.get_docstring(node) or "")
    section = re.search(r"^Parameters\n-+\n(.*?)(?:^\w[\w ]*\n-+\n|\Z)", docstring, re.M | re.S)
    heads = re.findall(r"^([*\w][\w, *]*?)(?: :.*)?$", section[1], re.M) if section else []
    return [name.strip(" *") for head in heads for name in head.split(",")]


def parameters(node: ast.ClassDef | Function) -> set[str]:
    if isinstance(node, ast.ClassDef):
        fields = {
            inner.target.id
            for inner in node.body
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name)
        }
        made = [n for n in node.body if isinstance(n, Function) and n.name in MAKES]
        return fields.union(*map(parameters, made))
    every = node.args
    named = [*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg]
    return {argument.arg for argument in named if argument is not None}


MAKES = {"__init__", "__new__"}


def test_lines_of_code_are_those_without_docstrings_comments_and_blanks() -> None:
    source = '''"""A module."""

# A comment.
RATE = 2  # with another
"""What it is."""


def twice(x: int) -> int:
    """Return it
    twice.
    """
    return (
        RATE * x
    )
'''
    assert lines_of_code(source) == 5
