"""The texts that exported modules are made of: operations, the program around them, collectives."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

_FOLDER = Path(__file__).parent


def program() -> str:
    """Return the text of the program, around the lines of its loss, with its placeholders."""
    return _template("program.py.txt")


def step() -> str:
    """Return the text of a step without micro-batches, recomputation or sharding."""
    return _template("step.py.txt")


def trained() -> str:
    """Return the text of a step with any of these, with its placeholders."""
    return _template("trained.py.txt")


def sharded() -> str:
    """Return the text that gathers sharded weights for each use of them."""
    return _template("sharded.py.txt")


def again(*, all_of: bool, by_op: bool) -> list[str]:
    """Return the texts that run layers again in the backward pass.

    Parameters
    ----------
    all_of, by_op
        Whether some layers are fully recomputed, and whether some are except for products.
    """
    files = ["part_of"] * (all_of or by_op) + ["again"] * all_of + ["again_by_op"] * by_op
    return [_template(f"{name}.py.txt") for name in files]


def main(*, biases: bool) -> str:
    """Return the text of what a module does when it is run.

    Parameters
    ----------
    biases
        Whether it has biases, whose bytes are reported separately.
    """
    said = _template("biases.py.txt") if biases else ""
    return filled(_template("main.py.txt"), {"    # What biases move\n": said})


def shardings() -> str:
    """Return the text of a file of shardings, with its placeholders."""
    return _template("shardings.py.txt")


def collectives() -> str:
    """Return the text that reads compiled modules, without its docstring and imports."""
    text = (_FOLDER / "collectives.py").read_text()
    return text[text.index("KINDS = ") :].rstrip() + "\n"


@lru_cache
def operations() -> Mapping[str, str]:
    """Return the text of each operation, by name, with anything that belongs to it."""
    kinds = ("expert_", "sequence_", "image_", "")
    text = "".join((_FOLDER / f"{kind}operations.py").read_text() for kind in kinds)
    lines = text.splitlines()
    functions = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            functions[node.name] = "\n".join(lines[first - 1 : node.end_lineno])
    # Only the last line names the loss's two passes, which it needs.
    passes = [functions.pop(f"softmax_loss{which}") for which in ("", "_forward", "_backward")]
    functions["softmax_loss"] = "\n\n\n".join([*passes, lines[-1]])
    return functions


def filled(template: str, parts: Mapping[str, str]) -> str:
    """Return a template with its placeholders, each of which occurs once, filled.

    All are replaced in one pass: inserted names may look like placeholders.
    """
    assert all(template.count(place) == 1 for place in parts)
    places = re.compile("|".join(map(re.escape, parts)))
    return places.sub(lambda place: parts[place[0]], template)


def _template(name: str) -> str:
    text = (_FOLDER / "templates" / name).read_text()
    return text[text.index("# ---\n") + len("# ---\n") :]
