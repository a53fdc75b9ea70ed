"""The inputs of commands: plan files, networks and arrays, by the names typed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from hypar_opt.cli.groups import ProblemOptions, SolvingOptions
from hypar_opt.errors import HyparError, argument_option

if TYPE_CHECKING:
    import typer

    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.network import Network


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
    from hypar_opt.studies.shown import is_plan_file

    if is_plan_file(name):
        plan = read_plan(context, name, problem.reading, *free)
        return plan, plan.network.description
    return None, find_network(name, problem.tokens)


def was_typed(context: typer.Context, name: str) -> bool:
    """Return whether a parameter was typed, not a default."""
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
