"""The text of a network or an array file, in the few forms of TOML that they use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_TABLES = ("accelerator", "topology", "energy")


def toml_text(content: Mapping[str, Any]) -> str:
    """Return a file's text; parsing it returns the content.

    Tables within a layer are inline, layers and blocks are arrays of tables; accelerator, topology
    and energy of an array are tables.
    """
    lines = [
        f"{key} = {_lines(value) if key in ('not_kept', 'remarks') else _value(value)}"
        for key, value in content.items()
        if key not in ("layer", "block", *_TABLES)
    ]
    for name in _TABLES:
        if name in content:
            lines += ["", f"[{name}]", *_entries(content[name])]
    for layer in content.get("layer", ()):
        lines += ["", "[[layer]]", *_entries(layer)]
    for block in content.get("block", ()):
        head = {key: value for key, value in block.items() if key != "layer"}
        lines += ["", "[[block]]", *_entries(head)]
        for layer in block["layer"]:
            lines += ["", "[[block.layer]]", *_entries(layer)]
    return "\n".join(lines) + "\n"


def _entries(table: Mapping[str, Any]) -> list[str]:
    return [f"{key} = {_value(value)}" for key, value in table.items()]


def _lines(sentences: list[str]) -> str:
    return "\n".join(("[", *(f"  {_value(sentence)}," for sentence in sentences), "]"))


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_entries(value)) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are valid TOML; names and texts are printable.
        return json.dumps(value, ensure_ascii=False)
    return str(value)
