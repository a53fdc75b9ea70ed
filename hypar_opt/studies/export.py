"""A plan as text for another program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from hypar_opt.checked import checked
from hypar_opt.documents.files import check_writable
from hypar_opt.execution.formats import FORMATS
from hypar_opt.plan.plan import Plan
from hypar_opt.search.solver_settings import SolveArguments
from hypar_opt.studies.sources import planned

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network


@checked
def export(
    plan: Plan | str | Path | Network,
    to: str,
    output: str | Path | None = None,
    *,
    approximate: bool = False,
    **arguments: Unpack[SolveArguments],
) -> str:
    """Return a plan in a format for another program.

    Parameters
    ----------
    plan
        A plan, the path of a plan file, or a network, which is solved first.
    to
        A name of `hypar_opt.execution.formats.FORMATS`, as ``hypar-opt list formats`` has them.
    output
        Also write this file; beside it those of a format that has several, such as ``chakra``.
    approximate
        Export a network that leaves out parts of its model, such as a mask; without it all
        formats but ``json`` and the settings of frameworks, which say nothing of what is computed,
        refuse such a network.
    **arguments
        The arguments of `hypar_opt.solve`, for a network.

    Raises
    ------
    HyparError
        If the plan cannot be written so.
    """
    form = FORMATS[to]()
    if output is not None:
        check_writable(output)
    described, _ = planned(plan, arguments)
    if output is not None:
        return form.write(described, output, approximate=approximate)
    return form.text(described, approximate=approximate)
