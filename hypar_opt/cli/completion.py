"""Completion of names in a shell.

Tables of names are imported only on completion, so that `--help` and commands start quickly.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from importlib import import_module

from hypar_opt import models

Completion = Callable[[str], list[str]]
"""Maps an incomplete word to its completions."""


def matching(incomplete: str, names: Iterable[str]) -> list[str]:
    """Return the names that start with what was typed, ignoring case but keeping what was typed."""
    typed = len(incomplete)
    return [incomplete + n[typed:] for n in names if n.startswith(incomplete.lower())]


def one_of(*names: str) -> Completion:
    """Return a completion for a fixed list of names."""

    def complete(incomplete: str) -> list[str]:
        return matching(incomplete, names)

    return complete


def several_of(complete_one: Completion) -> Completion:
    """Return a completion of the last name in a list separated by commas."""

    def complete(incomplete: str) -> list[str]:
        # A shell replaces the whole word, so the part before the comma is returned too.
        before, comma, last = incomplete.rpartition(",")
        return [before + comma + name for name in complete_one(last)]

    return complete


def networks(incomplete: str) -> list[str]:
    return matching(incomplete, models.names()) + imported(incomplete)


def imported(incomplete: str) -> list[str]:
    """Return models of others and folders whose path starts with what was typed."""
    return _files(incomplete, ("config.json", *models.GRAPHS))


def model_weights(incomplete: str) -> list[str]:
    """Return models with weights, and folders, whose path starts with what was typed."""
    return _files(incomplete, models.GRAPHS)


def _files(incomplete: str, endings: tuple[str, ...]) -> list[str]:
    folder, name = os.path.split(incomplete)
    try:
        entries = sorted(os.scandir(folder or "."), key=lambda entry: entry.name)
    except (OSError, ValueError):
        return []
    paths = []
    for entry in entries:
        # Folders only once a path is being typed: otherwise they would clutter the names.
        if entry.name.startswith(name) and entry.name.endswith(endings):
            paths.append(os.path.join(folder, entry.name))  # noqa: PTH118
        elif folder and entry.name.startswith(name) and entry.is_dir():
            paths.append(os.path.join(folder, entry.name, ""))  # noqa: PTH118
    return paths


def networks_and_arrays(incomplete: str) -> list[str]:
    return networks(incomplete) + arrays(incomplete)


def _names_in(module: str, table: str) -> Completion:
    """Return a completion for the names in a table, or from a function, imported when asked."""

    def complete(incomplete: str) -> list[str]:
        names = getattr(import_module(module), table)
        return matching(incomplete, names() if callable(names) else names)

    return complete


arrays = _names_in("hypar_opt.hardware.arrays", "names")
collectives = _names_in("hypar_opt.hardware.array", "COLLECTIVES")
costs = _names_in("hypar_opt.costs", "COSTS")
frameworks = _names_in("hypar_opt.execution.settings", "FRAMEWORKS")
formats = _names_in("hypar_opt.execution.formats", "FORMATS")
overlaps = _names_in("hypar_opt.simulator.streams", "OVERLAPS")
readings = _names_in("hypar_opt.step.readings", "READINGS")
solvers = _names_in("hypar_opt.solvers", "SOLVERS")


def settings(incomplete: str) -> list[str]:
    """Return the keys that arrays have: those of the presets, which are of all kinds."""
    from hypar_opt.hardware.arrays import load, names
    from hypar_opt.plan.settings import keys

    settings = dict.fromkeys(key for name in names() for key in keys(load(name)))
    return [f"{key}=" for key in matching(incomplete, settings)]


def figures(incomplete: str) -> list[str]:
    from hypar_opt.paper import FIGURES

    # From the table that `reproduce` checks names against, so that both know all figures.
    return matching(incomplete, (*FIGURES, "all"))
