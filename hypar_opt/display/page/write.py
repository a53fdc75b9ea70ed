"""``hypar_opt.report``: a page about a plan, from Python."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from hypar_opt.checked import checked
from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.display.page import page
from hypar_opt.display.page.contents import gather
from hypar_opt.display.page.rendering import check_installed
from hypar_opt.documents.files import check_writable, write_whole
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import find_array
from hypar_opt.plan.plan import Plan
from hypar_opt.proofs.certificate import Certificate, read_certificate
from hypar_opt.search.result import Progress, silent
from hypar_opt.studies.sources import is_network, planned
from hypar_opt.studies.targets import own_array

if TYPE_CHECKING:
    from hypar_opt.search.solver_settings import SourceArguments
    from hypar_opt.workload.network import Network


@checked
def report(
    plan: Plan | str | Path | Network,
    output: str | Path = "report.html",
    array: str | Path | Array | None = None,
    *,
    collective: str | None = None,
    overlap: str | None = None,
    certificate: str | Path | Certificate | None = None,
    other_array: bool = False,
    progress: Progress = silent,
    **arguments: Unpack[SourceArguments],
) -> str:
    """Write a self-contained HTML page about a plan and its training step; return its text.

    Parameters
    ----------
    plan
        A plan, the path of a plan file, or a network, which is solved first.
    output
        The file.
    array
        The array to simulate on; None for the plan's, and for a network the paper's.
    collective, overlap
        As for `hypar_opt.simulate`.
    certificate
        A proof of the plan's optimality, or its file, to check and to show.
    other_array
        Allow an array that the plan was not solved for.
    **arguments
        The arguments of `hypar_opt.solve`, for a network.

    Raises
    ------
    HyparError
        If the extra ``figures`` is not installed, an argument is wrong, or there is no array.
    CheckFailedError
        If the certificate proves nothing about the plan.
    """
    check_installed()
    check_writable(output)
    if isinstance(certificate, str | Path):
        certificate = read_certificate(Path(certificate))
    solved_here = is_network(plan)
    started = time.monotonic()
    plan, array = planned(plan, arguments, array, needs_array=True)
    limit = plan.solver.options.time_limit if solved_here else None
    contents = gather(
        plan,
        own_array(plan) if array is None else find_array(array),
        proof=certificate,
        other_array=other_array,
        # Solver parameters are trusted if they were stated, not if a plan file holds them.
        parameters=solved_here,
        progress=progress,
        deadline=NEVER if limit is None else Deadline(started + limit),
        collective=collective,
        overlap=overlap,
    )
    text = page(contents)
    write_whole(output, text)
    return text
