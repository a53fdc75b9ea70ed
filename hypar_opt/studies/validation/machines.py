"""The machines that measured steps ran on, as arrays of any number of accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from hypar_opt.documents.document import file_name, read_text, validate
from hypar_opt.documents.parsing import parse_toml
from hypar_opt.errors import InputError
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.topologies.base import MAX_ACCELERATORS

Machines = Mapping[str, Mapping[str, Any]]
"""A machine's table by its name: `PLACES`, and ``accelerator``."""

PLACES = ("per_node", "link", "fabric", "adapters")
"""A machine's keys of its topology."""

_KEYS = ("source", "like", *PLACES, "accelerator")


@cache
def known_machines() -> Machines:
    """Return the machines of the package."""
    text = (files(__package__) / "machines.toml").read_text("utf-8")
    return _resolved(parse_toml(text, file="machines.toml"), {}, "machines.toml")


def read_machines(path: str | Path) -> Machines:
    """Read constants of machines: tables that add to those of the package, or replace their keys.

    Raises
    ------
    InputError
        Naming the file, the machine and the key, and what would be right.
    """
    file = file_name(path)
    known = known_machines()
    own = _resolved(parse_toml(read_text(path), file=file), known, file)
    for name in own:
        try:
            array_of(own, name, 8)
        except InputError as error:
            # A machine's table has the keys of its topology itself.
            where = ".".join(filter(None, (name, (error.where or "").removeprefix("topology, "))))
            raise InputError(error.problem, where=where, file=file) from None
    return {**known, **own}


def _resolved(tables: Mapping[str, Any], known: Machines, file: str) -> Machines:
    """Return machines with the keys of those that they are like."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise InputError(f"should be a table, got {table!r}", where=name, file=file)
        others = {**known, **found}
        wrong = [key for key in table if key not in _KEYS]
        if wrong:
            wanted = f"should be one of {', '.join(_KEYS)}"
            raise InputError(wanted, where=f"{name}.{wrong[0]}", file=file)
        like = table.get("like", name)
        if like not in others and ("like" in table or "accelerator" not in table):
            got = f"got {like!r}" if "like" in table else "which a new machine needs"
            problem = f"should name a machine above it: {', '.join(others)}; {got}"
            raise InputError(problem, where=f"{name}.like", file=file)
        base = others.get(like, {})
        accelerator = {"units": 1, **base.get("accelerator", {}), **table.get("accelerator", {})}
        merged = {**base, **table, "accelerator": accelerator}
        found[name] = {key: value for key, value in merged.items() if key != "like"}
    return found


def array_of(
    machines: Machines, name: str, count: int, *, fused: bool = True, **keys: str
) -> Array:
    """Return so many accelerators of a machine as an array.

    Parameters
    ----------
    fused
        Whether attention is one kernel.
    **keys
        Of the array: ``bucket``, ``overlap``.

    Raises
    ------
    InputError
        If they are no whole nodes, or too many.
    """
    table = dict(machines[name])
    per_node = min(table["per_node"], count)
    if count % per_node or count > MAX_ACCELERATORS:
        raise InputError(f"should be whole nodes of {per_node}, got {count:,}", where="gpus")
    described = {
        "schema": "hypar-opt/array/1",
        "name": f"{name}-{count}",
        "source": table.get("source", ""),
        "element_bytes": 2,
        "accelerator": {
            **table["accelerator"],
            "attention": "fused" if fused else "unfused",
        },
        "topology": {
            **{key: table[key] for key in PLACES if key in table},
            "kind": "nodes",
            "nodes": count // per_node,
            "per_node": per_node,
        },
        **keys,
    }
    return validate(Array, described)
