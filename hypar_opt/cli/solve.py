"""``hypar-opt solve``."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hypar_opt.cli import completion, inputs, options, output, request
from hypar_opt.cli.groups import ProblemOptions, SolvingOptions, TrainingOptions
from hypar_opt.cli.options import file_option, solving_option, what_if_option
from hypar_opt.cli.plan_view import check_explanation, print_plan
from hypar_opt.cli.signatures import takes_groups
from hypar_opt.deadline import Deadline
from hypar_opt.errors import HyparError, NoAnswerError

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.studies.simulation import Contender

EXAMPLES = (
    "hypar-opt solve vgg-e --batch 32 --search joint -o plan.json",
    "hypar-opt solve vgg-e --json | hypar-opt simulate - --array hmc-torus-16",
)

SOLUTION = solving_option(
    metavar="FILE",
    help="Read the plan from a solution file (HiGHS, CBC, GLPK, Gurobi) of the model that"
    " hypar-opt model writes, and check it.",
)
WARM_START = solving_option(
    metavar="PLAN",
    help="Start the search from a plan of the same network and levels, with the same choices or"
    " fewer.",
)
SOLVER_LOG = solving_option(metavar="FILE", help="Write the log of the solver's backend.")
EXPORT_MODEL = solving_option(
    metavar="FILE",
    help="Write the model passed to the solver: .lp or .mps (ilp), .pb (cpsat); a levelwise"
    " search writes one per level, FILE-H1 and so on. To write it without solving: hypar-opt"
    " model.",
)
OVERLAP = solving_option(
    help="Find the least time with overlap: none; gradient (all-reduces of gradients overlap the"
    " rest of the backward pass); or prefetch (of FSDP: weights are gathered a block ahead, too)."
    " Default: the array's, in a joint search of its time; none with --regret, --best, --simulate"
    " and --certificate.",
    autocompletion=completion.one_of("none", "gradient", "prefetch"),
)
REGRET = what_if_option(
    "--regret",
    help="Show how much each other choice would add to the cost, with all else re-optimised.",
)
BEST = what_if_option(metavar="K", help="List the K best plans over all levels jointly.")
SIMULATE = what_if_option(
    metavar="K",
    help="Simulate the K best plans over all levels jointly, and take the fastest.",
)
CERTIFICATE = file_option(help="Write a proof that the plan is optimal, which verify checks.")
PLAN_FILE = options.result_option(help="Write the plan to this file; - prints it and nothing else.")


@takes_groups
def solve(
    network: options.NETWORK,
    problem: ProblemOptions,
    solving: SolvingOptions,
    training: TrainingOptions,
    solution: Annotated[Path | None, SOLUTION] = None,
    warm_start: Annotated[Path | None, WARM_START] = None,
    solver_log: Annotated[Path | None, SOLVER_LOG] = None,
    export_model: Annotated[Path | None, EXPORT_MODEL] = None,
    overlap: Annotated[str | None, OVERLAP] = None,
    regret: Annotated[bool, REGRET] = False,
    best: Annotated[int | None, BEST] = None,
    simulate: Annotated[int | None, SIMULATE] = None,
    explain: options.EXPLAIN = None,
    certificate: Annotated[Path | None, CERTIFICATE] = None,
    plan_file: Annotated[Path | None, PLAN_FILE] = None,
    picture: options.PICTURE = None,
    as_json: options.JSON = False,
) -> None:
    from rich.text import Text

    from hypar_opt.documents.files import record_read
    from hypar_opt.models import find_network
    from hypar_opt.plan.plan import write_plan
    from hypar_opt.plan.stated_degrees import states_stages
    from hypar_opt.planning.stages import check_goes_with_stages
    from hypar_opt.search.plan_file import read_plan

    deadline = Deadline.after(solving.time_limit)
    if plan_file is not None and str(plan_file) == "-":
        if regret or best is not None:
            raise HyparError("--output - prints the plan alone; --regret and --best need a file")
        plan_file, as_json = None, True
    check_explanation(explain, as_json=as_json)
    # Checked before the search, which may take hours.
    models = output.exported_models(export_model)
    outputs = (plan_file, certificate, solver_log, *models)
    with output.outputs_checked(*outputs, picture=picture):
        if solution is not None:
            record_read(solution)
        start = None if warm_start is None else read_plan(warm_start)
        described, array = find_network(network, problem.tokens), inputs.array_named(problem.array)
    if request.stages(solving.stages) not in (None, 1) or states_stages(problem.degrees):
        check_goes_with_stages(regret=regret, best=best, simulate=simulate, explain=explain)
    if overlap is None and (regret or best or simulate or certificate):
        overlap = "none"  # these compare plans by their cost, or prove it
    plan = request.solved(
        described,
        problem,
        solving,
        array=array,
        training=training,
        start=start,
        solution=solution,
        log=solver_log,
        export=export_model,
        overlap=overlap,
        explain=explain,
    )
    if simulate is not None:
        # From here on, the fastest plan is the one that is written, drawn and certified.
        plan = _fastest(plan, simulate, deadline)
    if plan_file is not None:
        write_plan(plan, plan_file)
    output.draw(picture, plan)
    print_plan(plan, regret=regret, best=best, explain=explain, as_json=as_json, deadline=deadline)
    # JSON output is a plan file, which has no place for this sentence.
    if not as_json and plan.array is not None:
        # Imported late: without an array nothing is simulated.
        from hypar_opt.studies.configurations import beside

        if (sentence := beside(plan, deadline)) is not None:
            output.print_view(Text(sentence), folds=True)
    if certificate is not None:  # last: it may be refused, which does not affect the plan
        from hypar_opt.proofs.certificate import certify, write_certificate

        proof = certify(plan)
        bound = plan.cost.total if proof.bound is None else proof.bound
        if (claimed := proof.claimed_beyond(plan, Fraction(bound))) is not None:
            output.warn(
                f"the certificate proves less than the plan claims, {claimed}: it is"
                f" {proof.claim(plan)}"
            )
        elif proof.overlap is not None:  # its bound is on the time with overlap, not on the cost
            output.note(f"the plan is {proof.claim(plan)}")
        write_certificate(proof, certificate)


def _fastest(plan: Plan, number: int, deadline: Deadline) -> Plan:
    """Return the fastest of the best plans, and report how well their cost predicted it."""
    from hypar_opt.studies import simulation

    try:
        with output.progress_bar("plans") as progress:
            contenders = simulation.contenders(plan, number, progress=progress, deadline=deadline)
    except NoAnswerError as error:
        output.warn(f"--simulate: {error.message}; the plan is the search's own")
        return plan
    fastest = simulation.fastest(contenders)
    output.note(_comparison(plan, contenders, fastest))
    return fastest.plan


def _comparison(plan: Plan, contenders: list[Contender], fastest: Contender) -> str:
    """Compare the fastest of the best plans with the one that their cost prefers."""
    from hypar_opt.units import format_percent, format_si

    # Contenders come in order of cost: the first is what the cost alone would choose.
    preferred, kind = contenders[0], plan.cost.kind
    plans = "1 plan" if len(contenders) == 1 else f"{len(contenders)} plans"
    seconds = format_si(fastest.seconds, "s")
    sentence = f"of {plans}{plan.constraints.within} simulated, the fastest takes {seconds}; "
    if fastest is preferred:
        sentence += f"it is the first by {kind}"
    else:
        # A levelwise plan need not be among the best over all levels; then it has no rank.
        searched = fastest.plan.parallelism == plan.parallelism
        rank = contenders.index(fastest) + 1
        which = "the search's own" if searched else f"number {rank} by {kind}"
        seconds = format_si(preferred.seconds, "s")
        excess = format_percent(preferred.seconds / fastest.seconds - 1)
        sentence += f"it is {which}; the first by {kind} takes {seconds}, {excess} more"
    # Bytes and joules predict no seconds.
    return sentence + (_prediction(preferred) if kind == "time" else "")


def _prediction(contender: Contender) -> str:
    """Return how far a plan's cost of time is from its simulated step, as text."""
    from hypar_opt.studies import simulation
    from hypar_opt.units import format_percent

    predicted = contender.plan.cost.total / simulation.per_second(contender.plan)
    error = predicted / contender.seconds - 1
    amount = f"{format_percent(abs(error))} {'less' if error < 0 else 'more'}"
    # A difference below half of the last digit shown is invisible.
    return "; the cost predicted " + (amount if abs(error) >= 5e-5 else "as much")
