"""The machines that measured steps ran on, as arrays of any number of accelerators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from hypar_opt.documents.document import Document, Name, Printable, Size, validate
from hypar_opt.documents.files import file_name, read_text
from hypar_opt.documents.kinds import kind_of
from hypar_opt.documents.parsing import parse_toml, shown
from hypar_opt.errors import InputError, RefusedError
from hypar_opt.frozen import FrozenDict
from hypar_opt.hardware import arrays
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.topologies.base import MAX_ACCELERATORS

Machines = Mapping[str, Mapping[str, Any]]
"""A machine's table by its name: `PLACES`, `EFFICIENCY` and ``accelerator``."""

PLACES = ("per_node", "link", "fabric", "adapters")
"""A machine's keys of its topology."""

EFFICIENCY = "overlap_efficiency"
"""A machine's key of its array."""


class MachineTable(Document):
    """A machine's table in a file; missing keys come from the machine named by ``like``."""

    source: Printable = ""
    like: Name | None = None
    per_node: Size | None = None
    link: dict[str, Any] | None = None
    fabric: dict[str, Any] | None = None
    adapters: Size | None = None
    overlap_efficiency: float | None = None
    accelerator: dict[str, Any] | None = None


@cache
def known_machines() -> Machines:
    """Return the machines of the package."""
    text = (files(__package__) / "machines.toml").read_text("utf-8")
    return _resolved(parse_toml(text, file="machines.toml"), {}, "machines.toml")


class MachineSet(NamedTuple):
    """Machines by name; or one array on which all steps ran, by its name alone.

    Parameters
    ----------
    array
        Its name.
    """

    machines: Machines
    array: str | None = None


def read_constants(path: str | Path | Array) -> MachineSet:
    """Read constants of machines, or an array: a file, as ``calibrate`` writes, or a preset.

    Tables of machines add to those of the package, or replace their keys.

    Raises
    ------
    InputError
        Naming the file, the machine and the key, and what would be right.
    RefusedError
        If an array is no nodes of accelerators that say what kernels achieve.
    """
    if isinstance(path, Array):
        return _of_array(path)
    if str(path).lower() in arrays.names():
        return _of_array(arrays.load(str(path)))
    file, text = file_name(path), read_text(path)
    data = parse_toml(text, file=file)
    if kind_of(text) == "array":
        return _of_array(validate(Array, data, file=file))
    machines = known_machines()
    return MachineSet({**machines, **_resolved(data, machines, file)})


def _of_array(array: Array) -> MachineSet:
    return MachineSet({array.name: machine_of(array)}, array.name)


def machine_of(array: Array, start: Mapping[str, Any] = FrozenDict()) -> dict[str, Any]:
    """Return an array of nodes as a machine of any number of them, by kernels.

    Parameters
    ----------
    start
        Kernel constants for an accelerator that states none.

    Raises
    ------
    RefusedError
        If it is no nodes of equal accelerators, or these say nothing of kernels.
    """
    described = array.description()
    topology, accelerator = described["topology"], described["accelerator"]
    if array.groups or topology["kind"] != "nodes":
        kind = "groups" if array.groups else topology["kind"]
        raise RefusedError(f"array {array.name}: should be nodes of equal accelerators, got {kind}")
    if "gemm" not in accelerator and not start:
        raise RefusedError(f"array {array.name}: should say what kernels achieve, by gemm")
    rest = {k: v for k, v in accelerator.items() if k not in ("utilisation", "pe_array")}
    # Measured steps train with Adam.
    start_values: dict[str, Any] = {} if "update" in accelerator else {"updates": {"adam": "44 B"}}
    if "gemm" not in accelerator:
        start_values |= start
    places = {key: topology[key] for key in PLACES if key in topology}
    places |= {EFFICIENCY: described[EFFICIENCY]} if EFFICIENCY in described else {}
    return {"source": array.source, **places, "accelerator": {**start_values, **rest}}


def _resolved(tables: Mapping[str, Any], known_machines: Machines, file: str) -> Machines:
    """Return machines, missing keys filled in from those named by ``like``."""
    resolved: dict[str, Mapping[str, Any]] = {}
    for name, table in tables.items():
        try:
            if not isinstance(table, dict):
                raise InputError(f"should be a table, got {shown(table)}", where=name, file=file)
            stated = validate(MachineTable, table, file=file)
            resolved[name] = _with_like(name, stated, {**known_machines, **resolved})
            array_of(resolved, name, resolved[name]["per_node"])
        except InputError as error:
            # A machine's table has the keys of its topology itself.
            inner = (error.where or "").removeprefix("topology, ")
            where = ".".join(filter(None, (name, inner if inner != name else "")))
            raise InputError(error.problem, where=where, file=file) from None
    return resolved


def _with_like(name: str, table_of_name: MachineTable, others: Machines) -> Mapping[str, Any]:
    """Return a machine's keys, completed by those of the machine it is like."""
    table = table_of_name.model_dump(exclude_none=True, exclude_defaults=True)
    like = table_of_name.like or name
    if like not in others and (table_of_name.like is not None or table_of_name.accelerator is None):
        got = "which a new machine needs" if table_of_name.like is None else f"got {shown(like)}"
        problem = f"should name a machine above it: {', '.join(others)}; {got}"
        raise InputError(problem, where="like")
    base = others.get(like, {})
    accelerator = {"units": 1, **base.get("accelerator", {}), **table.get("accelerator", {})}
    merged = {**base, **table, "accelerator": accelerator}
    for key in ("per_node", "link", "fabric"):
        if key not in merged:
            raise InputError(f"missing key {key!r}")
    return {key: value for key, value in merged.items() if key != "like"}


def array_of(
    machines: Machines, name: str, count: int, *, fused: bool = True, **keys: Any
) -> Array:
    """Return an array of a number of a machine's accelerators.

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
        **{key: table[key] for key in (EFFICIENCY,) if key in table},
        **keys,
    }
    return validate(Array, described, file=name)
