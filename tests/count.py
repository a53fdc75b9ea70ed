"""Lines of code by room: without docstrings, comments and blank lines.

$ python -m tests.count
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "hypar_opt"

_NO_CODE = frozenset(
    (
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    )
)


def lines_of_code(source: str) -> int:
    """Return the lines of a module on which there is anything but a docstring or a comment."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - {line for some in _docstrings(ast.parse(source)) for line in some})


def _docstrings(module: ast.Module) -> Iterator[range]:
    """Yield the lines of each docstring, those under an assignment among them."""
    for node in ast.walk(module):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                yield range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)


def by_room(package: Path = PACKAGE) -> Counter[str]:
    """Return the lines of code of each room of the package; single files are ``(root)``."""
    lines: Counter[str] = Counter()
    for path in package.rglob("*.py"):
        room = path.relative_to(package).parts[0]
        lines[room if room != path.name else "(root)"] += lines_of_code(path.read_text("utf-8"))
    return lines


if __name__ == "__main__":
    counted = by_room()
    for room, lines in counted.most_common():
        print(f"{lines:7,} {room}")
    print(f"{counted.total():7,}")
