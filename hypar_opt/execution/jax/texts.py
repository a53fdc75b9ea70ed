"""The texts that exported modules are made of: operations, the program around them, collectives.

They are written for levels of any parts. A module whose levels have two parts each says so: halves
in place of parts, and bits in place of digits.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

_FOLDER = Path(__file__).parent

_OPERATIONS = {
    "keep a part of them": "keep a half of them",
    "keep_part": "keep_half",
    "this device's part": "this device's half",
    "No index is above a number, which XLA does not know: it takes each factor": (
        "The index is 0 or 1, which XLA does not know: it takes each number's factor"
    ),
    "= lax.axis_size(level)\n": "= 2\n",
    "math.prod(lax.axis_size(level) for level in split)": "2 ** len(split)",
}
_PROGRAM = {
    "SIZES = ...\nDEVICES = math.prod(SIZES)": "DEVICES = 2 ** len(LEVELS)",
    "a digit for each level": "a bit for each level",
    ".reshape(SIZES)": ".reshape((2,) * len(LEVELS))",
}
_MAIN = {"collectives(text, SIZES)": "collectives(text, len(LEVELS))"}
_COLLECTIVES = {
    "(\n    shape: str, operation: str, rest: str, phase: str, levels: Sequence[int]\n)": (
        "(shape: str, operation: str, rest: str, phase: str, levels: int)"
    ),
    "levels: Sequence[int]": "levels: int",
    "reduce-scatters from the deepest of them up, and\n    all-gathers back down": (
        "halving from the deepest of them up, and\n    doubling back down"
    ),
    "an axis a level.\n    levels\n        The parts of each level, H1 first.\n": (
        "an axis of two a level.\n"
    ),
    "math.prod(levels))\n    crossed": "1 << levels)\n    crossed",
    "        parts = levels[level]\n": "",
    "whole * (parts - 1) // parts": "whole // 2",
    """\
            received = whole * (parts - 1) * math.prod(levels[n] for n in crossed[:above])
            moved = len(groups) * received * (2 if kind == "all-reduce" else 1)
""": """\
            moved = len(groups) * whole * (2 if kind == "all-reduce" else 1) << above
""",
}
"""What texts say, and what they say where all levels have two parts."""

_BITS = '''\
def _crossed(groups: Sequence[Sequence[int]], levels: int) -> list[int]:
    """Return the levels between whose halves each group exchanges."""
    differ = {max(device ^ group[0] for device in group) for group in groups}
    (bits,) = differ if len(differ) == 1 else (0,)
    boxes = all(
        len({d & ~bits for d in g}) == 1 and len(g) == 1 << bits.bit_count() for g in groups
    )
    if not boxes or sorted(d for g in groups for d in g) != list(range(1 << levels)):
        raise ValueError(f"groups {groups} are not the devices along some of {levels} levels")
    return [n for n in range(levels) if bits >> (levels - 1 - n) & 1]


def _level(source: int, target: int, levels: int) -> int:
    """Return the topmost level that a transfer crosses; -1 for none."""
    return levels - (source ^ target).bit_length() if source != target else -1
'''
"""What ends the text of collectives there, from its function `_crossed` on."""


def program(*, halves: bool) -> str:
    """Return the text of the program, around the lines of its loss, with its placeholders."""
    return _worded(_template("program.py.txt"), _PROGRAM if halves else {})


def main(*, halves: bool) -> str:
    """Return the text of what a module does when it is run."""
    return _worded(_template("main.py.txt"), _MAIN if halves else {})


def collectives(*, halves: bool) -> str:
    """Return the text that reads compiled modules, without its docstring and imports."""
    text = (_FOLDER / "collectives.py").read_text()
    text = text[text.index("KINDS = ") :].rstrip() + "\n"
    return _worded(text[: text.index("def _crossed(")], _COLLECTIVES) + _BITS if halves else text


@lru_cache
def operations(*, halves: bool) -> Mapping[str, str]:
    """Return the text of each operation, by name, with anything that belongs to it."""
    text = _worded((_FOLDER / "operations.py").read_text(), _OPERATIONS if halves else {})
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


def _worded(text: str, words: Mapping[str, str]) -> str:
    """Return a text with other words, one after another."""
    for phrase, other in words.items():
        assert phrase in text, phrase
        text = text.replace(phrase, other)
    return text


def _template(name: str) -> str:
    text = (_FOLDER / "templates" / name).read_text()
    return text[text.index("# ---\n") + len("# ---\n") :]
