"""The inputs of commands: plan files, networks and arrays, by the names typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from hypar_opt.cli.groups import ProblemOptions, SolvingOptions
from hypar_opt.errors import HyparError, argument_option

if TYPE_CHECKING:
    import typer

    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.network import Network


def is_plan(name: str) -> bool:
    """Return whether a name is that of a plan file: JSON starts with a brace, TOML cannot."""
    from hypar_opt import models
    from hypar_opt.documents.document import exists, is_standard_input, read_text

    if is_standard_input(name):
        return read_text(name).lstrip().startswith("{")
    path = Path(name)
    if models.zoo_name(name) in models.names() or not exists(path) or path.is_dir():
        return False
    if path.suffix == ".onnx":
        return False  # binary
    if path.suffix == ".json":
        return True  # even if damaged: reading it as a plan says where
    return path.is_file() and read_text(path).lstrip().startswith("{")


def is_array(name: str) -> bool:
    """Return whether a name is that of an array: a preset, or a file with an array's keys."""
    from hypar_opt import models
    from hypar_opt.documents.document import exists, is_standard_input, kind_of, read_text
    from hypar_opt.hardware import arrays

    if is_standard_input(name):
        return kind_of(read_text(name)) == "array"
    path = Path(name)
    if models.zoo_name(name) in models.names() or path.suffix == ".onnx":
        return False
    if name.lower() in arrays.names():
        return True
    # If it is not a document, reading it as a network says what is wrong.
    return exists(path) and path.is_file() and kind_of(read_text(path)) == "array"


def read_plan(context: typer.Context, file: str, reading: str | None, *free: str) -> Plan:
    """Read a plan file, repriced by ``--reading`` if given.

    Refuses options that the plan fixes, except for ``--array`` and those named ``free``.
    """
    from hypar_opt.search.plan_file import read_plan, repriced

    names = [field.name for group in (ProblemOptions, SolvingOptions) for field in fields(group)]
    # A plan may be simulated on another array, and repriced in another reading.
    fixed = [name for name in names if name not in {"array", "reading", *free}]
    refuse_what_a_plan_fixes(context, *fixed)
    return repriced(read_plan(file), reading=reading)


def plan_or_network(
    context: typer.Context, name: str, problem: ProblemOptions, *free: str
) -> tuple[Plan | None, Network]:
    """Read a plan file and return it with its network, or a network, as `solve` does, alone.

    A plan fixes its options, except for those named ``free``.
    """
    from hypar_opt.models import find_network

    if is_plan(name):
        plan = read_plan(context, name, problem.reading, *free)
        return plan, plan.network.description
    return None, find_network(name, problem.tokens)


def was_typed(context: typer.Context, name: str) -> bool:
    """Return whether a parameter was typed, and is not a default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse_what_a_plan_fixes(context: typer.Context, *names: str) -> None:
    """Refuse options that were typed although the plan fixes them."""
    for name in names:
        if was_typed(context, name):
            raise HyparError(f"{argument_option(name)} is fixed by the plan; leave it out")


def array_named(array: str | None) -> Array | None:
    """Return the array of ``--array``, if it was typed."""
    from hypar_opt.hardware.arrays import find_array

    return None if array is None else find_array(array)


def dimensions(typed: Sequence[str] | None) -> dict[str, int]:
    """Return the sizes of an ONNX model's dynamic dimensions, by name."""
    return dict(map(_size, typed or []))


def _size(typed: str) -> tuple[str, int]:
    name, _, number = typed.rpartition("=")
    if not name or not number.isascii() or not number.isdecimal() or not 0 < len(number) < 10:
        raise HyparError(f"--dim should be NAME=N, as sequence=128; got {typed!r}")
    if not int(number):
        raise HyparError(f"--dim {name} should be at least 1")
    return name, int(number)
