"""A plan's price and proof checked, or the answers of several solvers compared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from hypar_opt.checked import checked
from hypar_opt.documents.document import validate
from hypar_opt.documents.files import file_name, read_text
from hypar_opt.documents.kinds import check_kind
from hypar_opt.documents.parsing import parse_json
from hypar_opt.errors import CheckFailedError, HyparError, InputError, NoAnswerError, argument
from hypar_opt.plan.arguments import ProblemArguments, problem_of, schedule_of_stages
from hypar_opt.plan.plan import Plan, SolverSettings
from hypar_opt.plan.stages import stage_counts
from hypar_opt.plan.stated import OF_NETWORK, stated_problem
from hypar_opt.proofs import certificate as proofs
from hypar_opt.proofs.certificate import Certificate
from hypar_opt.results import Column, Columns, Documented, Results
from hypar_opt.search.plan_file import read_plan
from hypar_opt.search.result import Progress, silent
from hypar_opt.studies import crosscheck
from hypar_opt.studies.crosscheck import CrosscheckRow
from hypar_opt.studies.random_networks import random_networks
from hypar_opt.studies.sources import is_network, planned

if TYPE_CHECKING:
    from hypar_opt.workload.network import Network


@dataclass(frozen=True)
class PlanCheck:
    """A plan whose price agrees; ``optimal`` says what a certificate proves, None without one.

    And ``unproved`` what the plan claims more, None if nothing.
    """

    plan: str
    total: int | float
    unit: str
    priced: str
    optimal: str | None = None
    unproved: str | None = None


@dataclass(frozen=True, repr=False)
class Verification(Documented, Results[PlanCheck | CrosscheckRow]):
    """The check of a plan, or a row for each solver and search."""

    contents = Columns(Column("rows", type=tuple[PlanCheck, ...] | tuple[CrosscheckRow, ...]))

    def __repr__(self) -> str:
        verdicts = dict.fromkeys(getattr(row, "verdict", "checked") for row in self)
        return f"<Verification of {len(self)} rows: {', '.join(verdicts)}>"

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each row; without a certificate it has no ``optimal``.

        Nor has it ``unproved`` if the plan claims no more than is proved.
        """
        left_out = ("optimal", "unproved")
        return [
            {
                name: value
                for name, value in row.items()
                if name not in left_out or value is not None
            }
            for row in map(vars, self)
        ]

    def check(self) -> None:
        """Raise if a plan claims more than is proved, solvers disagree, or none has an answer.

        Raises
        ------
        CheckFailedError
            Naming what the plan claims, or the first of the solvers that disagree.
        NoAnswerError
            If all refuse, or none has a plan within the time limit.
        """
        for row in self:
            if isinstance(row, PlanCheck) and row.unproved is not None:
                raise CheckFailedError(
                    f"{row.plan}: its file claims {row.unproved}, and is {row.optimal}"
                )
        rows = [row for row in self if isinstance(row, CrosscheckRow)]
        # A disagreement outranks everything else; a refusal alone is not an error.
        wrong = [row for row in rows if row.verdict == "disagrees"]
        if wrong:
            first = wrong[0]
            raise CheckFailedError(
                f"{len(wrong)} of {len(rows)} disagree; first {first.solver} on {first.network},"
                f" {first.search}"
            )
        if rows and all(row.verdict == "refused" for row in rows):
            raise NoAnswerError("all solvers refuse")
        if rows and not any(row.verdict in {"agrees", "feasible"} for row in rows):
            raise NoAnswerError("no solver has an answer within the time limit")


@checked
def verify(
    plan: Plan | str | Path | Network | None = None,
    *,
    certificate: str | Path | Certificate | None = None,
    solvers: Sequence[str] = ("dp", "cut", "ilp", "cpsat", "brute"),
    random: int | None = None,
    search: str | None = None,
    stages: int | Literal["auto"] | None = None,
    time_limit: float | None = None,
    seed: int | None = None,
    progress: Progress = silent,
    **problem: Unpack[ProblemArguments],
) -> Verification:
    """Check a plan and its certificate, or compare solvers on a network.

    Parameters
    ----------
    plan
        A plan or the path of a plan file, to check; or a network, on which to compare solvers.
    certificate
        A proof of the plan's optimality, or its file.
    solvers
        Names in `hypar_opt.solvers.SOLVERS`.
    random
        Compare solvers on so many random networks instead: chains and graphs.
    search
        Compare in one search only, ``levelwise`` or ``joint``; None for both.
    stages
        As for `hypar_opt.solve`: compare plans in stages, of ``dp`` as its search finds them, and
        of other solvers of the stages of all cuts, one by one.
    time_limit
        Seconds for one solve, for the solvers that have the option.
    seed
        Of the random networks.
    progress
        Called with the networks done, and all.
    **problem
        The problem of a network, as for `hypar_opt.solve`.

    Raises
    ------
    CheckFailedError
        If the plan's stated price is wrong, or the certificate proves nothing about it.
    InfeasibleError
        If a search proves that no plan keeps to the problem's constraints.
    HyparError
        If a name or an argument is wrong.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> every = ho.verify("lenet-c", levels=2, solvers=["dp", "brute"], search="joint")
    >>> every.check()  # raises if they disagree
    >>> [(row.solver, row.verdict) for row in every]
    [('dp', 'agrees'), ('brute', 'agrees')]
    """
    # Also of a plan, whose check needs neither, and before anything is read.
    validate(SolverSettings, {"time_limit": time_limit, "seed": seed})
    if isinstance(plan, Plan) or (plan is not None and not is_network(plan)):
        if search is not None:
            raise HyparError(f"{argument('search')} is fixed by the plan; leave it out")
        if problem or stages is not None:
            planned(plan, {**problem, "stages": stages})  # names what the plan fixes
        return checked_plan(plan if isinstance(plan, Plan) else str(plan), certificate)
    if certificate is not None:
        raise HyparError(f"{argument('certificate')} goes with a plan file")
    in_stages = None
    if stages is not None:
        stage_counts(stages)
        if search not in (None, "joint"):
            raise HyparError(f"{argument('search', search)} goes without {argument('stages')}")
        in_stages = stages, schedule_of_stages(problem, stages)
    alone: Any = {name: value for name, value in problem.items() if name not in OF_NETWORK}
    problem_of(**alone)  # before thousands of networks are generated
    networks, count = _networks(plan, problem.get("tokens"), random, seed or 0)
    searches = None if search is None else (search,)
    rows: list[CrosscheckRow] = []
    for done, network in enumerate(networks):
        progress(done, count)
        # The default reading is a network's own. Networks are generated one at a time, so that
        # thousands take little memory.
        described, stated = stated_problem(network, problem)
        rows += crosscheck.compare(
            described, solvers, stated, time_limit, searches=searches, stages=in_stages
        )
    return Verification(tuple(rows))


def checked_plan(
    plan: Plan | str | Path, certificate: str | Path | Certificate | None
) -> Verification:
    """Check a plan, and its certificate if there is one.

    Raises
    ------
    CheckFailedError
        If the plan is invalid or its price is wrong, or the certificate does not prove it.
    """
    name = plan.network.name if isinstance(plan, Plan) else file_name(plan)
    if not isinstance(plan, Plan):
        # A file of another kind, or that is not JSON, is a wrong call, not a wrong plan.
        text = read_text(plan)
        check_kind("plan", text, name)
        parse_json(text, file=name)
        try:
            plan = read_plan(plan)
        except InputError as error:
            raise CheckFailedError(error.message) from None
    try:
        # Independent of the tables that the search solves: see hypar_opt.proofs.check.
        proofs.check_price(plan)
    except CheckFailedError as error:
        raise CheckFailedError(f"{name}: {error.message}") from None
    optimal = unproved = None
    if certificate is not None:
        optimal, unproved = _proved(plan, certificate)
    row = PlanCheck(name, plan.cost.total, plan.cost.unit, "agrees", optimal, unproved)
    return Verification((row,))


def _proved(plan: Plan, certificate: str | Path | Certificate) -> tuple[str, str | None]:
    """Return what a certificate proves, and what the plan claims more, as text."""
    proof, file = certificate, ""
    if not isinstance(proof, Certificate):
        proof, file = proofs.read_certificate(proof), f"{certificate}: "
    try:
        bound = proofs.proved_bound(plan, proof)
    except CheckFailedError as error:
        raise CheckFailedError(f"{file}{error.message}") from None
    return proof.claim(plan), proof.claimed_beyond(plan, bound)


def _networks(
    source: str | Path | Network | None, tokens: int | None, random: int | None, seed: int
) -> tuple[Iterable[str | Path | Network], int]:
    """Return the networks to compare solvers on, and their number."""
    if (source is None) == (random is None):
        raise HyparError(f"verify takes a NETWORK, a PLAN, or {argument('random', example='N')}")
    if source is not None:
        return [source], 1
    if tokens is not None:
        name = argument("tokens")
        raise HyparError(f"{name} goes with a NETWORK: random ones have lengths of their own")
    # The range is checked where the networks are generated.
    count = random or 0
    return random_networks(count, seed), count
