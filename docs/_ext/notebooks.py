"""Notebooks without Jupyter: their cells are run in order, and shown as a page.

A cell's last expression is its result, with the texts of `repr` and of ``_repr_html_``; what it
prints stands before. ``python docs/_ext/notebooks.py FILE`` runs a notebook and writes its outputs.
"""

from __future__ import annotations

import ast
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def outputs_of(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Run the cells of code in one namespace, from top to bottom; return each one's outputs."""
    names: dict[str, Any] = {"__name__": "__main__"}
    codes = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [_run("".join(cell["source"]), number, names) for number, cell in enumerate(codes, 1)]


def _run(source: str, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, shown = io.StringIO(), {}
    with redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            result = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
            shown = _shown(result)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if shown:
        result = {"execution_count": number, "metadata": {}, "output_type": "execute_result"}
        outputs.append({"data": shown, **result})
    return outputs


def _shown(result: object) -> dict[str, list[str]]:
    """Return a result in the forms that a notebook may show."""
    if result is None:
        return {}
    forms = {"text/plain": repr(result)}
    if hasattr(result, "_repr_html_"):
        forms["text/html"] = result._repr_html_()
    return {form: text.splitlines(keepends=True) for form, text in sorted(forms.items())}


def with_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return a notebook with the outputs of a run."""
    outputs = iter(outputs_of(notebook))
    cells = []
    number = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell = {**cell, "execution_count": number, "outputs": next(outputs)}
        cells.append(cell)
    return {**notebook, "cells": cells}


def page_of(notebook: dict[str, Any]) -> str:
    """Return a notebook as Markdown for MyST: its texts, its code, its outputs."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += map(_output, cell["outputs"])
    return "\n\n".join(parts)


def _output(output: dict[str, Any]) -> str:
    data = output.get("data", {"text/plain": output.get("text", [])})
    if "text/html" in data:
        return f"```{{raw}} html\n{''.join(data['text/html'])}\n```"
    text = "".join(data["text/plain"]).rstrip("\n")
    return f"```text\n{text}\n```"


def main() -> None:
    """Run the notebook that is named, and write it with its outputs."""
    file = Path(sys.argv[1])
    notebook = with_outputs(json.loads(file.read_text(encoding="utf-8")))
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    file.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
