"""The documentation's notebook runs from top to bottom, and gives the outputs that it shows."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"


def notebooks() -> Any:
    """Return the module that runs notebooks when the site is built."""
    spec = importlib.util.spec_from_file_location("notebooks", DOCS / "_ext" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_runs_and_shows_what_it_gives() -> None:
    """As ``make notebook`` writes it."""
    notebook = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))
    again = notebooks().with_outputs(notebook)
    shown = [cell.get("outputs") for cell in notebook["cells"]]
    assert [cell.get("outputs") for cell in again["cells"]] == shown
    assert again == notebook


def test_the_notebook_is_of_the_format() -> None:
    notebook = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert {"cells", "metadata", "nbformat", "nbformat_minor"} == notebook.keys()
    keys = {"cell_type", "id", "metadata", "source"}
    for cell in notebook["cells"]:
        code = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        assert cell.keys() == keys | code
    numbers = [cell["id"] for cell in notebook["cells"]]
    assert len(set(numbers)) == len(numbers)


def test_a_page_shows_texts_code_and_outputs() -> None:
    cells: list[dict[str, Any]] = [
        {"cell_type": "markdown", "source": ["# A *title*"]},
        {"cell_type": "code", "source": ["print(2)\n", "3"], "outputs": []},
        {"cell_type": "code", "source": ["x = 1"], "outputs": []},
    ]
    module = notebooks()
    page = module.page_of(module.with_outputs({"cells": cells}))
    assert page == (
        "# A *title*\n\n```python\nprint(2)\n3\n```\n\n```text\n2\n```\n\n```text\n3\n```\n\n"
        "```python\nx = 1\n```"
    )
