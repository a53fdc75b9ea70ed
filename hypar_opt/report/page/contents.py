"""What the page tells: a plan simulated beside the baselines, and what each choice costs."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from hypar_opt.costs import COSTS
from hypar_opt.errors import HyparError, shell_words
from hypar_opt.plan.plan import Plan
from hypar_opt.report import terminal
from hypar_opt.search import certificate
from hypar_opt.search.pricing import level_tables
from hypar_opt.studies import advice, alternatives, evaluation
from hypar_opt.workload.parallelism import Parallelism
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.base import CostModel
    from hypar_opt.hardware.array import Array
    from hypar_opt.search.certificate import Certificate
    from hypar_opt.search.partition import Progress
    from hypar_opt.simulator.result import StepResult
    from hypar_opt.studies.alternatives import Regret
    from hypar_opt.workload.tensors import Workload

BASELINES = {"trick": "the Trick", "data": "Data Parallelism", "model": "Model Parallelism"}
"""Solvers that search nothing, and the paper's names of their plans."""

MOST_CELLS = 300
"""Layers times levels up to which each other choice is solved for."""

MOST_STEPS = 10**8
"""Steps between joint states, over all other choices, up to which they are solved for."""

MOST_PROVED = 2**8
"""States a layer up to which a joint plan is proved optimal unasked."""

MOST_SPANS = 200_000
"""Spans of a step up to which it is recorded for the timeline."""


@dataclass(frozen=True)
class Option:
    """What one choice of a cell costs, in the plan's unit.

    Parameters
    ----------
    layer, neighbours
        At this level, given the levels above: the layer's own cost, and that of its edges to
        the layers beside it as the plan has them.
    extra
        Over all levels with everything else re-optimised; None where not asked or where no
        plan has it.
    """

    choice: Parallelism
    taken: bool
    layer: Fraction
    neighbours: Fraction
    extra: int | float | None


@dataclass(frozen=True)
class Contents:
    """All that the page shows.

    Parameters
    ----------
    steps
        Of the plan under ``plan``, and of the baselines under their solvers' names.
    executed
        The plan's and Data Parallelism's by the reading ``executed``; None where that is the
        plan's own, or where no run is known.
    cells
        What each choice costs: levels x layers x choices.
    regretted
        Whether the extra costs were asked for; if not, ``note`` says why.
    proof
        What is known of a proof that the plan is optimal; ``proved`` is whether there is one.
    command
        The command that makes this page.
    """

    plan: Plan
    array: Array
    steps: dict[str, StepResult]
    executed: evaluation.Steps | None
    cells: tuple[tuple[tuple[Option, ...], ...], ...]
    regretted: bool
    note: str
    proof: str
    proved: bool
    warnings: tuple[str, ...]
    command: str


def gather(
    plan: Plan,
    array: Array,
    *,
    proof: Certificate | None = None,
    command: str = "",
    other_array: bool = False,
    parameters: bool = False,
    progress: Progress = lambda done, of: None,
    **run: Any,
) -> Contents:
    """Simulate a plan and the baselines on an array, and ask what each choice costs.

    Parameters
    ----------
    proof
        A certificate of the plan, which is checked.
    parameters
        As in `hypar_opt.pipeline.options_of`, to ask what each choice costs.
    **run
        As `hypar_opt.simulator.simulate`.

    Raises
    ------
    CheckFailedError
        If the certificate proves nothing of the plan.
    RefusedError
        If the array is not the plan's, or not as large.
    """
    if proof is not None:
        certificate.check_certificate(plan, proof)
    count, skipped = len(plan.layers) * plan.levels * (len(plan.choices) - 1), _too_many(plan)
    of = len(BASELINES) + 1 + (0 if skipped else count)
    recorded = 3 * len(plan.layers) * (plan.levels + 1) << plan.levels <= MOST_SPANS
    progress(0, of)
    run = {"other_array": other_array, **run}
    steps = {"plan": evaluation.simulate(plan, array, trace=recorded, **run)}
    for name in BASELINES:
        progress(len(steps), of)
        steps[name] = evaluation.simulate(evaluation.baseline(plan, array, name), array, **run)
    executed = evaluation.steps_when_run(plan, array, **run)
    turned = evaluation.warnings_of_run(plan.cost.reading, (steps["plan"], steps["data"]), executed)
    regrets: list[Regret] = []
    if not skipped:
        try:
            regrets = alternatives.regrets(
                plan,
                lambda done, _: progress(len(BASELINES) + 1 + done, of),
                parameters=parameters,
            )
        except HyparError as error:
            skipped = (
                f"What each other choice costs over all levels is not known: {error.for_shell}."
            )
    progress(of, of)
    said, proved = _proof(plan, proof)
    return Contents(
        plan=plan,
        array=array,
        steps=steps,
        executed=executed,
        cells=_cells(plan, regrets),
        regretted=not skipped,
        note=skipped,
        proof=said,
        proved=proved,
        warnings=(*map(shell_words, (*advice.warnings(plan), *turned)), *_memory(steps["plan"])),
        command=command,
    )


def amount(count: float, unit: str) -> str:
    """Return a cost in the unit that people read it in."""
    if "bytes" in unit:
        shown = advice.readable_bytes(abs(count))
        return shown if unit == "bytes" else f"{shown}, weighted"
    return terminal.amount(abs(count), unit).replace(" u", " µ")


def _too_many(plan: Plan) -> str:
    """Say why the extra costs of other choices are not looked up, or nothing."""
    cells = len(plan.layers) * plan.levels
    steps = 0
    if plan.solver.search == "joint" and (plan.cost.kind != "bytes" or plan.constraints.any):
        others = cells * (len(plan.choices) - 1)
        steps = len(plan.layers) * others * len(plan.choices) ** (2 * plan.levels)
    if cells <= MOST_CELLS and steps <= MOST_STEPS:
        return ""
    return (
        f"For a plan of {len(plan.layers):,} layers and {plan.levels} levels the page does not"
        " say what each other choice costs with all else re-optimised;"
        " solve --regret does, in its time."
    )


def _cells(plan: Plan, regrets: Sequence[Regret]) -> tuple[tuple[tuple[Option, ...], ...], ...]:
    workload = workload_of(plan.network.description, plan.batch)
    cost = COSTS[plan.cost.kind].from_problem(plan.problem, workload)
    extra = {(each.level, each.layer, each.choice): each.extra for each in regrets}
    found = []
    rows = plan.assignments()
    for level, (table, row) in enumerate(level_tables(workload, cost, rows), 1):
        joined = _joined(workload, cost, rows[: level - 1])
        beside = [[0] * table.choices for _ in range(table.layers)]
        for (source, target), edge in zip(table.ends.tolist(), table.edge.tolist(), strict=True):
            for choice in range(table.choices):
                beside[source][choice] += edge[choice][row[target]]
                beside[target][choice] += edge[row[source]][choice]
        found.append(
            tuple(
                tuple(
                    Option(
                        choice=name,
                        taken=choice == row[place],
                        layer=table.in_units(
                            int(table.node[place, choice]) + joined[place][choice]
                        ),
                        neighbours=table.in_units(beside[place][choice]),
                        extra=0 if choice == row[place] else extra.get((level, layer, name)),
                    )
                    for choice, name in enumerate(plan.choices)
                )
                for place, layer in enumerate(plan.layers)
            )
        )
    return tuple(found)


def _joined(
    workload: Workload, cost: CostModel, above: Sequence[tuple[int, ...]]
) -> list[list[int]]:
    """Return what a choice adds to a layer's charges for several levels together."""

    def charged(state: tuple[int, ...], layer: int) -> int:
        return sum(int(charge[layer]) for charge in cost.of_state(workload, state).values())

    found = []
    for layer in range(len(workload.layers)):
        state = tuple(row[layer] for row in above)
        before = charged(state, layer)
        choices = range(cost.choices)
        found.append([charged((*state, choice), layer) - before for choice in choices])
    return found


def _proof(plan: Plan, proof: Certificate | None) -> tuple[str, bool]:
    """Say what proves the plan optimal, and whether anything does."""
    if proof is None:
        if plan.solver.scope == "joint" and len(plan.choices) ** plan.levels > MOST_PROVED:
            return "not looked for: solve --certificate FILE writes one, for report to take", False
        try:
            proof = certificate.certify(plan)
        except HyparError as error:
            said = error.for_shell
            return said if said.startswith("no certificate") else f"no certificate: {said}", False
    tables = len(proof.tables)
    each = "one table" if tables == 1 else f"{tables} tables, one a level"
    within = (
        "over all levels together" if proof.scope == "joint" else "each level given those above"
    )
    within += plan.constraints.within
    return f"potentials of {each}, prove the plan optimal {within}", True


def _memory(step: StepResult) -> list[str]:
    if step.memory <= step.capacity:
        return []
    return [
        f"the plan takes {advice.readable_bytes(step.memory)} of memory an accelerator, which has"
        f" {advice.readable_bytes(step.capacity)}; --memory array makes that a constraint"
    ]
