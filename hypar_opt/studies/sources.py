"""The source of a study: a plan, a plan file, or a network that is solved first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError, argument
from hypar_opt.hardware import arrays
from hypar_opt.plan.arguments import hierarchy_of_accelerators
from hypar_opt.plan.plan import Plan
from hypar_opt.planning.solve import solve
from hypar_opt.search.plan_file import read_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hypar_opt.hardware.array import Array
    from hypar_opt.workload.network import Network


def is_network(source: Plan | str | Path | Network) -> bool:
    """Return whether a study starts from a network: neither a plan nor the path of one's file."""
    return not isinstance(source, Plan) and not str(source).endswith(".json")


def planned(
    source: Plan | str | Path | Network,
    arguments: Mapping[str, Any],
    array: str | Path | Array | None = None,
    *,
    needs_array: bool = False,
    overlap: Any = None,
) -> tuple[Plan, str | Path | Array | None]:
    """Return a plan and the array to look at it on: None for the plan's own.

    The plan is the caller's, that of a file, or the one that `solve` finds for a network.

    Parameters
    ----------
    source
        A `Plan`, the path of a plan file (``.json``), or a network as for `hypar_opt.solve`.
    arguments
        Those of `hypar_opt.solve`, for a network; its array may be among them.
    array
        The array of a network, or the one to look at a plan on.
    needs_array
        Solve on the paper's array of the levels unless an array is stated, as the command line
        does where a study needs one.
    overlap
        As for `hypar_opt.solve`: ``none`` for a study that compares plans by their cost.

    Raises
    ------
    HyparError
        If an argument is stated that a plan fixes, or a network is not solved.
    """
    if isinstance(source, Plan) or not is_network(source):
        if arguments:
            name = argument(next(iter(arguments)))
            raise HyparError(f"{name} is fixed by the plan; leave it out")
        return (source if isinstance(source, Plan) else read_plan(str(source))), array
    stated = {"array": array, **arguments}
    if stated["array"] is None and needs_array and stated.get("hierarchy") is None:
        levels, count = stated.get("levels"), stated.get("accelerators")
        counted = None if count is None else hierarchy_of_accelerators(count)
        if counted is None or counted.is_binary:
            stated["array"] = arrays.papers(counted.levels if counted else levels)
    return solve(source, overlap=overlap, **stated), None
