"""The page's contents: the steps of the plan and the baselines, and the cost of each choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Unpack

from hypar_opt.deadline import NEVER, Deadline
from hypar_opt.display.labels import BASELINES, SCOPES
from hypar_opt.display.page.cells import Cells, cell_costs, cells_of_stages, why_no_regrets
from hypar_opt.display.page.trade_offs import TradeOffs, trade_offs
from hypar_opt.errors import HyparError, InputError, shell_words
from hypar_opt.hardware.array import Array
from hypar_opt.plan.plan import Plan
from hypar_opt.proofs import certificate
from hypar_opt.proofs.certificate import Certificate
from hypar_opt.search.free_modes import training_left_open
from hypar_opt.search.result import Progress, part_of, silent
from hypar_opt.simulator.pipeline_result import PipelineResult
from hypar_opt.simulator.result import StepResult
from hypar_opt.studies import advice, alternatives, simulation
from hypar_opt.studies.alternatives import Regret
from hypar_opt.studies.simulation import RunArguments
from hypar_opt.units import format_bytes, format_page_cost

MAX_CERTIFIED_STATES = 2**8
"""Joint plans of up to this many product states per layer are certified by default."""

_PARTS = 3
"""Of the progress: simulations, regrets, fronts."""

MAX_SPANS = 200_000
"""Steps of up to this many spans are recorded for the timeline."""


@dataclass(frozen=True)
class Contents:
    """Everything that the page shows."""

    plan: Plan
    array: Array
    steps: dict[str, StepResult]
    """The plan's simulated step under ``plan``, the baselines' under their solvers' names; none of
    a plan in stages."""
    executed: simulation.Steps | None
    """The steps of the plan and Data Parallelism in the reading ``executed``; None if that is the
    plan's reading, or if no run is known."""
    cells: Cells
    """The cost of each choice: levels x layers x choices."""
    regretted: bool
    """Whether the regrets were computed; if not, ``note`` has the reason."""
    note: str
    proof: str
    """The proof of the plan's optimality, if ``proved``, or the reason why there is none."""
    proved: bool
    warnings: tuple[str, ...]
    command: str
    """The command that makes this page."""
    trade_offs: TradeOffs
    staged: PipelineResult | None = None
    """The step of a plan in stages."""

    @property
    def step(self) -> StepResult:
        """The plan's simulated step."""
        return self.staged or self.steps["plan"]


def gather(
    plan: Plan,
    array: Array,
    *,
    proof: Certificate | None = None,
    command: str = "",
    other_array: bool = False,
    parameters: bool = False,
    progress: Progress = silent,
    deadline: Deadline = NEVER,
    **run: Unpack[RunArguments],
) -> Contents:
    """Simulate a plan and the baselines on an array, and compute the regret of each choice.

    Parameters
    ----------
    proof
        A certificate of the plan, to check. The plan's status follows it.
    deadline
        When to end. What cannot be stopped, certificates and fronts, is then not looked for.
    parameters
        As in `hypar_opt.search.solver_settings.options_of`, for the solves of regrets.
    **run
        As `hypar_opt.simulator.options.RunOptions`.

    Raises
    ------
    CheckFailedError
        If the certificate proves nothing about the plan.
    RefusedError
        If the array is not the plan's, or not as large.
    """
    if proof is not None:  # first, to refuse a wrong certificate before any simulation
        plan = _as_proved(plan, proof)
    if plan.is_staged:
        return _of_stages(plan, array, proof, command, other_array=other_array, **run)
    first, second, third = (part_of(progress, number, _PARTS) for number in range(_PARTS))
    steps = _simulated(plan, array, first, other_array=other_array, **run)
    # A plan may beat Data Parallelism by its reading, but lose to it when run.
    executed = simulation.steps_when_run(plan, array, other_array=other_array, **run)
    by_reading = steps["plan"], steps["data"]
    reversals = simulation.warnings_of_run(plan.cost.reading, by_reading, executed)
    regrets, note = _regrets(plan, parameters, second, deadline)
    third(0, 1)
    limited = deadline != NEVER
    against_memory = trade_offs(plan, array, third, limited=limited)
    progress(1, 1)
    why_not = "" if proof is not None else _why_no_proof(plan, limited=limited)
    if proof is None and not why_not:
        try:
            proof = certificate.certify(plan)
            plan = _as_proved(plan, proof)
        except HyparError as error:
            reason = error.for_shell
            named = reason.startswith("no certificate")
            why_not = reason if named else f"no certificate: {reason}"
    return Contents(
        plan=plan,
        array=array,
        steps=steps,
        executed=executed,
        cells=cell_costs(plan, regrets),
        regretted=not note,
        note=note,
        proof=why_not if proof is None else _proof_note(plan, proof),
        proved=proof is not None and proof.bound is None,
        warnings=_warnings(plan, steps["plan"], reversals),
        command=command,
        trade_offs=against_memory,
    )


def _of_stages(
    plan: Plan,
    array: Array,
    proof: Certificate | None,
    command: str,
    *,
    other_array: bool,
    **run: Unpack[RunArguments],
) -> Contents:
    """Simulate a plan in stages, and return what is known of it: no regrets, and no front."""
    stages = plan.stages
    assert stages is not None
    # Each micro-batch passes each chunk forward and backward, where weights' gradients may be late.
    spans = 3 * len(stages.ends) * (plan.training.micro_batches or 1)
    recorded: RunArguments = {**run, "trace": spans <= MAX_SPANS}
    step = simulation.simulate(plan, array, other_array=other_array, **recorded)
    assert isinstance(step, PipelineResult)
    return Contents(
        plan=plan,
        array=array,
        steps={},
        executed=None,
        cells=cells_of_stages(plan),
        regretted=False,
        note=f"{why_no_regrets(plan)} Charges are a stage's, of all micro-batches.",
        proof=_why_no_proof(plan, limited=False) if proof is None else _proof_note(plan, proof),
        proved=proof is not None and proof.bound is None,
        warnings=_warnings(plan, step, ()),
        command=command,
        trade_offs=trade_offs(plan, array),
        staged=step,
    )


def _as_proved(plan: Plan, proof: Certificate) -> Plan:
    """Return a plan whose status is what a certificate proves, whatever it claimed before.

    Where the search chose how layers train the certificate is of fewer plans than its status: this
    then stays, but for what a file claims beyond the certificate.

    Raises
    ------
    CheckFailedError
        If the certificate proves nothing about the plan.
    """
    bound, total = certificate.proved_bound(plan, proof), Fraction(plan.cost.total)
    if proof.overlap is not None:  # the status is of the time without
        return plan
    solver, claims = plan.solver, certificate.claimed_beyond(plan, bound)
    if training_left_open(plan) and (claims is None or not solver.attribution):
        return plan
    if bound < total and not solver.attribution:  # our own search may have proved more
        return plan
    gap = float((total - bound) / total) if total else 0.0
    status = "optimal" if bound == total else "feasible"
    stated = plan.cost.total if bound == total else floor(bound)
    proved = solver.vouched(status=status, bound=stated, gap=gap)
    return plan.model_copy(update={"solver": proved})


def _regrets(
    plan: Plan, parameters: bool, progress: Progress, deadline: Deadline
) -> tuple[Sequence[Regret], str]:
    """Return the regrets, or why there are none."""
    if note := why_no_regrets(plan):
        return (), note
    try:
        limit = None if deadline == NEVER else deadline
        regrets = alternatives.regrets(plan, progress, parameters=parameters, deadline=limit)
    except InputError:  # a regret disproves what the plan's file says
        raise
    except HyparError as error:  # the page shows the rest
        return (), f"The regret of other choices is not known: {error.for_shell}."
    return regrets, ""


def _simulated(
    plan: Plan,
    array: Array,
    progress: Progress,
    *,
    other_array: bool,
    **run: Unpack[RunArguments],
) -> dict[str, StepResult]:
    """Simulate the plan and the baselines; the plan's spans are recorded if they are few."""
    # In each of three passes a layer computes, and exchanges at every level, on every accelerator.
    spans = 3 * len(plan.layers) * (plan.levels + 1) * plan.accelerators
    progress(0, 1)
    recorded: RunArguments = {**run, "trace": spans <= MAX_SPANS}
    steps = {"plan": simulation.simulated_step(plan, array, other_array=other_array, **recorded)}
    # Only the plan's timeline is drawn, so the baselines' spans are not recorded.
    for name in BASELINES:
        progress(len(steps), len(BASELINES) + 1)
        steps[name] = simulation.simulated_step(
            simulation.baseline(plan, array, name), array, **run
        )
    return steps


def _why_no_proof(plan: Plan, *, limited: bool) -> str:
    """Return why no certificate is computed; empty if one is."""
    if plan.solver.status != "optimal":
        return "not looked for: the plan is not said to be optimal"
    # A certificate has a potential for every product state: choices^levels of them a layer.
    many = len(plan.choices) ** plan.levels > MAX_CERTIFIED_STATES
    if limited or plan.is_staged or (plan.solver.scope == "joint" and many):
        within = " within a time limit" if limited else ""
        return f"not looked for{within}: solve --certificate FILE writes one, for report to take"
    return ""


def _proof_note(plan: Plan, proof: Certificate) -> str:
    """Return what a certificate proves of the plan."""
    if proof.overlap is not None:
        return f"potentials of one table, at prices of the queue: {proof.claim(plan)}"
    count = len(proof.tables)
    of_tables = "one per level" if proof.spans is None else "of stages and what they consist of"
    tables = "one table" if count == 1 else f"{count} tables, {of_tables}"
    within = SCOPES[proof.scope] + proof.qualification(plan)
    if proof.bound is not None:
        bound = format_page_cost(float(proof.bound), plan.cost.unit)
        return f"potentials of {tables}, prove that no plan costs less than {bound} {within}"
    return f"potentials of {tables}, prove the plan optimal {within}"


def _warnings(plan: Plan, step: StepResult, reversals: Sequence[str]) -> tuple[str, ...]:
    # The page shows a command line, so its warnings name options, not arguments.
    sentences = tuple(map(shell_words, (*advice.warnings(plan), *reversals)))
    if step.memory <= step.capacity:
        return sentences
    # A warning, not an error: memory is a constraint only if the problem says so.
    return (
        *sentences,
        f"the plan takes {format_bytes(step.memory)} of memory per accelerator, which has"
        f" {format_bytes(step.capacity)}; --memory array makes that a constraint",
    )
