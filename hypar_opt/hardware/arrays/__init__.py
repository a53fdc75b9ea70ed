"""Array presets, one TOML file per array: the paper's arrays, and several current machines."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from hypar_opt.checked import checked
from hypar_opt.errors import HyparError, InputError, argument

if TYPE_CHECKING:
    from pathlib import Path

    from hypar_opt.hardware.array import Array


MAX_LEVELS = 6
"""Levels of the largest of the paper's arrays, which have 2 to 64 accelerators (Figure 11)."""


def papers(levels: int | None) -> str:
    """Return the name of the paper's H tree of 2^levels accelerators; of its sixteen for None.

    Raises
    ------
    HyparError
        If the paper has no array of that size.
    """
    levels = 4 if levels is None else levels
    if not 1 <= levels <= MAX_LEVELS:
        raise HyparError(
            f"{argument('levels')} should be from 1 to {MAX_LEVELS} for the paper's arrays, which"
            f" have 2 to {2**MAX_LEVELS} accelerators, got {levels}; name another with"
            f" {argument('array')}"
        )
    return f"hmc-htree-{2**levels}"


@cache
def names() -> tuple[str, ...]:
    """Return the presets' names, the paper's first, numbers in names in numerical order."""
    presets = (file.name for file in files(__name__).iterdir() if file.name.endswith(".toml"))
    return tuple(sorted((file.removesuffix(".toml") for file in presets), key=_sort_key))


def _sort_key(name: str) -> tuple[bool, list[tuple[str, int]]]:
    # Numbers as integers, so that hmc-htree-4 comes before hmc-htree-16.
    pairs = re.findall(r"([^0-9]*)([0-9]*)", name)
    return not name.startswith("hmc-"), [(text, int(number or 0)) for text, number in pairs]


def with_model(described: Any) -> Any:
    """Return a preset's description with its ``model``, where all but that key is there.

    Plan files that were written before arrays had the key have such descriptions.
    """
    name = described.get("name") if isinstance(described, dict) else None
    if name not in names() or "model" in described:
        return described
    preset = load(name).description()
    return preset if {**described, "model": preset.get("model")} == preset else described


def load(name: str) -> Array:
    """Return a preset by its name, in any case.

    Raises
    ------
    UnknownNameError
        Suggesting the nearest name.
    """
    # Imported late: the names alone are listed without pydantic.
    from hypar_opt.documents.document import load_preset
    from hypar_opt.hardware.array import Array

    return load_preset("array", Array, __name__, names(), name)


def file_text(name: str) -> str:
    """Return the text of a preset's file, by its name in any case, or of an array file.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    from hypar_opt.documents.document import preset_text
    from hypar_opt.documents.files import read_text

    if name.lower() in names():
        return preset_text(__name__, name.lower())
    return read_text(name)


@checked
def read_array(path: str | Path) -> Array:
    """Read an array file, and the files that it refers to; or return a preset by its name.

    Raises
    ------
    InputError
        Naming the file and the key, and what would be right.
    UnknownNameError
        If there is neither such a file nor such a preset; it suggests the nearest name.
    """
    return find_array(path)


def find_array(array: str | Path | Array) -> Array:
    """Return a preset by its name, in any case, or read an array file.

    Raises
    ------
    InputError
        If the file cannot be read or does not describe an array.
    UnknownNameError
        If there is neither such a preset nor such a file; it suggests the nearest name.
    """
    from hypar_opt.documents.document import find
    from hypar_opt.documents.files import file_name
    from hypar_opt.hardware.array import Array, read_array

    resolved = find("array", array, Array, names(), load, read_array)
    # Written before the key, or to have another model: which of them, only another name says.
    described = resolved.description() if resolved.name in names() else {}
    if with_model(described) is not described:
        problem = f"should be {load(resolved.name).model!r}, as in the preset {resolved.name!r}"
        file = None if isinstance(array, Array) else file_name(array)
        raise InputError(f"{problem}, unless name is another", where="model", file=file)
    return resolved
