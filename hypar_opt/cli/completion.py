"""What a shell completes: the names that an option or an argument may be.

A table is imported when Tab asks for it, so that `--help` and a command's start are quick.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from hypar_opt import models

Completion = Callable[[str], list[str]]
"""From what is typed so far to what it may become."""


def matching(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that start with what is typed, in any case; what is typed stays."""
    typed = len(incomplete)
    return [incomplete + n[typed:] for n in names if n.startswith(incomplete.lower())]


def one_of(*names: str) -> Completion:
    """Return a completion from a few fixed names."""

    def complete(incomplete: str) -> list[str]:
        return matching(incomplete, names)

    return complete


def several_of(complete_one: Completion) -> Completion:
    """Return a completion of the last of several names that commas separate."""

    def complete(incomplete: str) -> list[str]:
        # A shell replaces the word as a whole, so what stands before the comma is given back.
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in complete_one(last)]

    return complete


def networks(incomplete: str) -> list[str]:
    return matching(incomplete, models.names()) + onnx_files(incomplete)


def onnx_files(incomplete: str) -> list[str]:
    """Return the models, and the folders, whose path starts with what is typed."""
    folder, name = os.path.split(incomplete)
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    except (OSError, ValueError):
        return []
    paths = []
    for entry in entries:
        # Folders only where one is being typed: else they would stand between the names.
        if entry.name.startswith(name) and entry.name.endswith(".onnx"):
            paths.append(os.path.join(folder, entry.name))  # noqa: PTH118
        elif folder and entry.name.startswith(name) and entry.is_dir():
            paths.append(os.path.join(folder, entry.name, ""))  # noqa: PTH118
    return paths


def arrays(incomplete: str) -> list[str]:
    from hypar_opt.hardware import arrays

    return matching(incomplete, arrays.names())


def networks_and_arrays(incomplete: str) -> list[str]:
    return networks(incomplete) + arrays(incomplete)


def costs(incomplete: str) -> list[str]:
    from hypar_opt.costs import COSTS

    return matching(incomplete, COSTS)


def formats(incomplete: str) -> list[str]:
    from hypar_opt.execution.formats import FORMATS

    return matching(incomplete, FORMATS)


def readings(incomplete: str) -> list[str]:
    from hypar_opt.costs.readings import READINGS

    return matching(incomplete, READINGS)


def solvers(incomplete: str) -> list[str]:
    from hypar_opt.solvers import SOLVERS

    return matching(incomplete, SOLVERS)


def figures(incomplete: str) -> list[str]:
    from hypar_opt.paper import FIGURES

    # By the table that `reproduce` checks names against, so that neither forgets a figure.
    return matching(incomplete, (*FIGURES, "all"))
