"""The configurations of training frameworks that take the least time on an array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from hypar_opt.checked import checked, several
from hypar_opt.deadline import NEVER, TIME_LIMIT, Deadline
from hypar_opt.documents.sizes import stated_bytes
from hypar_opt.errors import (
    HyparError,
    InfeasibleError,
    Need,
    NoAnswerError,
    RefusedError,
    UnknownNameError,
    argument,
)
from hypar_opt.hardware.array import Array
from hypar_opt.instance.staged import without_stages
from hypar_opt.plan import trained
from hypar_opt.plan.configuration import (
    HYBRID,
    Configuration,
    family,
    limits_of,
    trains_as,
)
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.problem import ArrayRecord, Problem
from hypar_opt.plan.stages import stage_counts
from hypar_opt.plan.stated import stated_problem
from hypar_opt.results import Column, Columns, Documented, Nullable, Results
from hypar_opt.search.degrees import (
    Allowed,
    Candidate,
    Evaluated,
    Evaluator,
    Searched,
    fitting_configurations,
)
from hypar_opt.search.free_modes import problem_left_open
from hypar_opt.search.result import Progress, silent
from hypar_opt.simulator.lockstep import NotInLockstepError
from hypar_opt.simulator.options import RunOptions
from hypar_opt.studies.searched_degrees import (
    SearchedCells,
    fastest_configurations,
    fastest_of_degrees,
)
from hypar_opt.units import COUNT, SECONDS, format_bytes, format_share, format_si
from hypar_opt.workload.network import Network, TokenInput
from hypar_opt.workload.operators.attention import Attention
from hypar_opt.workload.parallelism import RECOMPUTED, SHARDED
from hypar_opt.workload.stages import block_starts

BOUNDS = ("none", "memory")
"""The lower bounds over all plans that can be requested."""

BOUND_SECONDS = 5.0
"""The default time limit of a bound, in seconds; more minutes hardly ever improve it."""

BEST = 10
"""The default number of configurations listed."""

POINTS = 100
"""How many configurations with stages are points of a picture: each takes a tenth of a second."""

PINS = (
    *("tp", "sp", "cp", "ep", "dp_shard", "dp_replicate"),
    *("zero", "micro_batches", "recompute"),
)
"""The fields of a `Configuration` that ``fix`` pins, in the order of a table."""

PINNED_WITH_STAGES = ("pp", "interleave")
"""Those that it pins of configurations with stages."""

_WORDS: dict[str, dict[str, Any]] = {
    "sp": {"yes": True, "no": False},
    "zero": {word: word for word in (*SHARDED, HYBRID)},
    "recompute": {word: word for word in RECOMPUTED},
}
"""The values of keys that are not numbers."""


ROW = Columns(
    Column("tp", "tp", COUNT, type=int),
    Column("sp", "sp", type=str | None),
    *(Column(name, name, COUNT, type=int) for name in ("cp", "ep", "dp_shard", "dp_replicate")),
    Column("zero", "zero", type=str),
    Column("micro_batches", "micro", COUNT, type=int),
    Column("recompute", "recompute", type=str),
    Column("pp", "pp", COUNT, type=int, absent=...),
    Column("interleave", "v", COUNT, type=int, absent=...),
    Column("cuts", "cuts", type=str | None, absent=...),
    Column("in_flight", "in flight", "{:.4g}".format, type=float, absent=...),
    Column("bubble", "bubble", format_share, type=float | None, absent=...),
    Column("blocks", type=int | None),
    Column("seconds", "step", SECONDS, type=float | None),
    Column("per_second", "{unit}/s", "{:,.0f}".format, type=float | None),
    Column("mfu", "MFU", format_share, type=float | None),
    Column("memory", "memory", format_bytes, type=int),
    Column("spare", "to spare", format_bytes, type=int),
    Column("exposed", "exposed", format_share, type=float | None),
    Column("over_first", "over #1", format_share, type=float | None),
)
"""Of what `Configurations.row` returns."""

_DEGREES = Columns(Column("tp", type=int), Column("pp", type=int))


def _unsharded(configurations: Configurations) -> dict[str, Any] | None:
    return configurations.unsharded and configurations.row(configurations.unsharded)


def _unknown(configurations: Configurations) -> list[dict[str, int]] | None:
    if not configurations.by_degrees:
        return None
    return [{"tp": tp, "pp": pp} for tp, pp in configurations.unknown]


@dataclass(frozen=True, repr=False)
class Configurations(Documented, Results[Evaluated]):
    """The configurations that take the least time, fastest first.

    Parameters
    ----------
    problem
        With the array; its memory is whole, without the margin.
    margin
        Bytes of an accelerator's memory, beside the reserve, that all leave free.
    fix, frameworks
        What all keep to: pins, and the frameworks of which one can express them.
    considered, fitting, simulated
        The numbers of configurations: of the family, of those that fit in memory, and of those
        whose step was simulated, all of which fit; bounds exclude the others. ``fitting`` is None
        where some have stages: of these it is not known which others fit.
    complete
        Whether none is faster: a time limit may end the search before.
    bound
        Seconds that no plan without stages that fits in memory goes below, however its layers
        train, proved; None where it was not asked for, or not found within the time limit.
    unsharded
        Of the configurations that shard no weights, the fastest that fits, or if none does the one
        that needs the least memory; None if there is none, or a time limit came first, or where
        they are by degrees.
    counts
        The numbers of pipeline stages that there may be; None for any.
    by_degrees
        Whether they are the fastest of each tensor parallelism in each number of stages.
    unfit
        Of those degrees of which none fits, the configurations that need the least memory.
    unknown
        Those degrees, as ``(tp, pp)``, for which the time limit came before an answer.
    """

    contents = Columns(
        Column("network", of="network.name"),
        Column("array", of="array.name"),
        Column("batch", of="problem.batch"),
        "tokens",
        Column("optimizer", of="problem.constraints.optimizer"),
        *("capacity", "margin", "considered", "fitting", "simulated", "complete"),
        Column("bound_seconds", of="bound"),
        "unit",
        Column("rows", type=ROW),
        Column("unsharded", of=_unsharded, type=Nullable(ROW)),
        Column("staged", absent=False),
        Column("by_degrees", absent=False),
        Column("unknown", of=_unknown, type=_DEGREES, absent=None),
    )

    network: Network
    problem: Problem
    margin: int
    fix: str | None
    frameworks: tuple[str, ...]
    considered: int
    fitting: int | None
    simulated: int
    complete: bool
    bound: float | None
    unsharded: Evaluated | None
    counts: tuple[int, ...] | None = (1,)
    by_degrees: bool = False
    unfit: tuple[Candidate, ...] = ()
    unknown: tuple[tuple[int, int], ...] = ()

    @property
    def staged(self) -> bool:
        """Whether configurations with pipeline stages were asked for."""
        return self.counts != (1,)

    @property
    def best(self) -> Evaluated:
        """The fastest."""
        return self[0]

    @property
    def array(self) -> Array:
        """The array that all are for."""
        assert self.problem.array is not None
        array: Array = self.problem.array.description
        return array

    @property
    def capacity(self) -> int:
        """Bytes of memory of an accelerator."""
        return int(self.array.accelerator.dram_capacity)

    @property
    def blocks(self) -> int:
        """The network's repeated blocks."""
        return len(block_starts(self.network))

    @property
    def unit(self) -> str:
        """What the network is trained on: ``tokens`` or ``images``."""
        return "tokens" if self.tokens is not None else "images"

    @property
    def tokens(self) -> int | None:
        """Tokens of a sequence; None of images."""
        read = self.network.input
        return read.tokens if isinstance(read, TokenInput) else None

    @checked
    def per_second(self, seconds: float) -> float:
        """Return the tokens, or images, per second and accelerator of a step."""
        return self.problem.batch * (self.tokens or 1) / seconds / self.problem.accelerators

    @checked
    def utilisation(self, seconds: float) -> float:
        """Return the share of the accelerators' peak that the model's operations are (MFU)."""
        chip = self.array.accelerator
        peak = float(chip.units * chip.operations) * self.problem.accelerators
        return self.problem.batch * operations(self.network) / seconds / peak

    @checked
    def plan(self, number: int = 0) -> Plan:
        """Return a configuration as a plan, which all that takes plans takes.

        Parameters
        ----------
        number
            Its place in the order, from 0.
        """
        from hypar_opt.planning.priced import plan_of_configuration

        return plan_of_configuration(self.network, self.problem, self[number].configuration)

    @checked
    def to(self, framework: str, number: int = 0) -> str:
        """Return a configuration as the settings of a framework.

        Parameters
        ----------
        framework
            A name of ``hypar_opt.execution.settings.FRAMEWORKS``.
        number
            Its place in the order, from 0.

        Raises
        ------
        HyparError
            If the framework is unknown.
        """
        from hypar_opt.execution.settings import framework as framework_named

        return framework_named(framework).text(self.plan(number), approximate=False)

    @checked
    def lacks(self, framework: str, number: int = 0) -> list[str]:
        """Return what of a configuration a framework cannot express; `to` leaves it out."""
        from hypar_opt.execution.settings import TrainingRun
        from hypar_opt.execution.settings import framework as framework_named

        run = TrainingRun.of(self.plan(number))
        return framework_named(framework).lacks(self[number].configuration, run)

    @checked
    def points(self, progress: Progress = silent) -> Sequence[Evaluated]:
        """Simulate every configuration without stages that fits.

        None recomputes more than it must to fit. Where some may have stages also the 100 fastest
        of these: all would take minutes.
        """
        within, fixed = _with_margin(self.problem, self.margin), pins(self.fix)
        fixed.pop("pp", None)
        limits: dict[str, Any] = {
            "allowed": _allowed(self.network, self.problem, self.frameworks),
            "progress": progress,
        }
        points: list[Evaluated] = []
        if self.counts in (None, (1,)) and fixed.get("interleave", 1) == 1:
            without = {name: value for name, value in fixed.items() if name != "interleave"}
            points = fitting_configurations(self.network, within, fixed=without, **limits)
        if not self.staged:
            return points
        from hypar_opt.search.staged_degrees import search_stages

        limits |= {"counts": self.counts, "count": max(POINTS, len(self)), "fixed": fixed}
        return [*points, *search_stages(self.network, within, **limits).best]

    def row(self, entry: Evaluated | Candidate) -> dict[str, Any]:
        """Return a configuration as a row of a table; None for the time of one that is unfit."""
        configuration = entry.configuration
        evaluated = entry if isinstance(entry, Evaluated) else None
        of_stages = {
            "pp": configuration.pp,
            "interleave": configuration.interleave,
            "cuts": "+".join(map(str, configuration.cuts)) or None,
            "in_flight": max_in_flight(configuration),
            "bubble": evaluated and evaluated.bubble,
        }
        return {
            **{name: getattr(configuration, name) for name in PINS},
            **(of_stages if self.staged else {}),
            "sp": None if configuration.tp == 1 else "yes" if configuration.sp else "no",
            "blocks": configuration.blocks,
            "seconds": evaluated and evaluated.seconds,
            "per_second": evaluated and self.per_second(evaluated.seconds),
            "mfu": evaluated and self.utilisation(evaluated.seconds),
            "memory": entry.memory,
            "spare": self.capacity - entry.memory,
            "exposed": evaluated and evaluated.exposed,
            "over_first": evaluated and evaluated.seconds / self.best.seconds - 1,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each configuration: the rows of a data frame.

        Those that do not fit are the last.
        """
        return [self.row(entry) for entry in (*self, *self.unfit)]

    @property
    def cells(self) -> dict[tuple[int, int], Evaluated | Candidate]:
        """The configurations by `tp` and `pp`, where there is one of each."""
        entries: tuple[Evaluated | Candidate, ...] = (*self, *self.unfit)
        return {(entry.configuration.tp, entry.configuration.pp): entry for entry in entries}

    def __repr__(self) -> str:
        return (
            f"<Configurations of {self.network.name} on {self.array.name}: the fastest of"
            f" {self.considered:,} takes {format_si(self.best.seconds, 's')}>"
        )


@checked
def configure(
    network: str | Path | Network,
    array: str | Path | Array,
    *,
    batch: int = 256,
    tokens: int | None = None,
    optimizer: str | int = "adam",
    reduce_bytes: int | None = None,
    settings: Mapping[str, Any] | None = None,
    margin: int | str = 0,
    fix: str | None = None,
    frameworks: str | Sequence[str] = (),
    best: int | None = None,
    bound: str = "memory",
    stages: int | Literal["auto"] | None = None,
    by_degrees: bool = False,
    time_limit: float | None = None,
    progress: Progress = silent,
) -> Configurations:
    """Find the configurations of training frameworks that take the least time within memory.

    A configuration is the degrees of data, tensor, context and expert parallelism, with or without
    sequence parallelism, the number of micro-batches, what the backward pass computes again, and
    what data parallelism shards. The search is exact: of all that fit in memory none is faster.

    Parameters
    ----------
    network
        As `hypar_opt.solve` takes one; it has repeated blocks.
    array
        A preset's name, a path or an `Array`.
    batch, tokens, reduce_bytes, settings
        As for `hypar_opt.solve`.
    optimizer
        As for `hypar_opt.solve`, where it is ``sgd`` unless it is stated.
    margin
        Bytes of an accelerator's memory to leave free beside the array's reserve, as ``"8GB"``.
    fix
        What configurations keep to, as ``"tp=8,zero=weights"``: the keys are ``PINS``.
    frameworks
        Only configurations that one of these frameworks can express: names of
        ``hypar_opt.execution.settings.FRAMEWORKS``.
    best
        How many to return at most; None for 10, or, by degrees, one of each.
    bound
        ``memory``: prove seconds that no plan without stages that fits goes below; or ``none``. Not
        sought where there may be stages.
    stages
        Pipeline stages, each a part of the array: how many; ``auto`` for any number, 1 among them;
        None for none. What shards is then of all data parallelism, unless ``fix`` has replicas.
    by_degrees
        Return the fastest of each tensor parallelism in each number of stages, in place of the
        fastest of all; ``stages`` is then ``auto`` unless it is stated. Of degrees of which none
        fits, ``unfit`` has what needs the least memory.
    time_limit
        Seconds for the whole call. Without it only the bound has a limit, of ``BOUND_SECONDS``.

    Raises
    ------
    HyparError
        If the input is wrong, or there is no configuration: the network has no repeated blocks, or
        no degrees divide the batch.
    InfeasibleError
        If no configuration fits in memory: its ``least`` is what needs least.
    NoAnswerError
        If the time limit comes before a configuration is known.

    Examples
    --------
    >>> import hypar_opt as ho
    >>> found = ho.configure("gpt2", "h100-8", batch=64, bound="none")
    >>> found.best.configuration.tp
    1
    >>> f"{found.best.seconds:.9f}" == f"{ho.simulate(found.plan()).seconds:.9f}"
    True
    """
    if best is not None and best < 1:
        raise HyparError(f"{argument('best')} should be 1 or more, got {best}")
    if by_degrees and best is not None:
        raise HyparError(
            f"{argument('best')} does not go with {argument('by_degrees')}, which lists one of each"
        )
    if bound not in BOUNDS:
        raise UnknownNameError("bound", bound, list(BOUNDS))
    deadline = Deadline.after(time_limit)
    described, problem = stated_problem(
        network,
        {
            "batch": batch,
            "tokens": tokens,
            "array": array,
            "optimizer": optimizer,
            "reduce_bytes": reduce_bytes,
            "settings": settings,
            "choices": "all",
            "cost": "time",
        },
    )
    return configurations_of(
        described,
        problem,
        margin=stated_bytes("margin", margin, least=0),
        fix=fix,
        frameworks=tuple(several(frameworks)),
        best=BEST if best is None else best,
        bound=bound,
        stages="auto" if by_degrees and stages is None else stages,
        by_degrees=by_degrees,
        deadline=deadline,
        progress=progress,
    )


def configurations_of(
    network: Network,
    problem: Problem,
    *,
    margin: int = 0,
    fix: str | None = None,
    frameworks: tuple[str, ...] = (),
    best: int = BEST,
    bound: str = "none",
    stages: int | Literal["auto"] | None = None,
    by_degrees: bool = False,
    deadline: Deadline,
    progress: Progress = silent,
) -> Configurations:
    """Return the configurations of a problem; the other parameters are those of `configure`."""
    if not network.repeats or problem.groups:
        lacks = "equal accelerators" if network.repeats else "a network of repeated blocks"
        raise HyparError(
            f"configurations need {lacks}, unlike {network.name} {problem.place}: solve finds a"
            " plan layer by layer"
        )
    fixed, allowed = pins(fix), _allowed(network, problem, frameworks)
    within = _with_margin(problem, margin)
    counts = _stage_counts(stages, fixed)
    fixed.pop("pp", None)
    limits: dict[str, Any] = {"fixed": fixed, "allowed": allowed, "deadline": deadline}
    limits["progress"] = progress
    if by_degrees:
        cells = fastest_of_degrees(network, within, counts, **limits)
    else:
        fastest = fastest_configurations(network, within, counts, count=best, **limits)
        cells = SearchedCells(fastest, (), ())
    searched = cells.searched
    if not searched.considered and searched.complete:
        raise _none_considered(network, problem, counts, fix, frameworks)
    if not searched.best:
        may_stage = counts == [1] and problem.accelerators > 2
        raise _none_fits(searched, network, problem, margin, may_stage=may_stage)
    seeks_more = not (by_degrees or deadline.passed())
    unsharded, bound_seconds = None, None
    if not by_degrees:
        unsharded = next(filter(_is_unsharded, searched.best), None)
    if unsharded is None and counts in (None, [1]) and seeks_more:
        limits["allowed"] = lambda one: "weights" not in one.zero and allowed(one)
        limits["progress"] = silent
        whole = fastest_configurations(network, within, [1], count=1, **limits)
        unsharded = next(iter(whole.best), None)
        with suppress(NoAnswerError):  # a limit
            if whole.smallest:
                needs_least = whole.smallest[0].configuration
                unsharded = Evaluator(network, within, deadline=deadline).evaluate(needs_least)
    if bound != "none" and counts == [1] and seeks_more and not deadline.passed():
        bound_seconds = _bound(network, problem, deadline)
    return Configurations(
        searched.best,
        network,
        problem,
        margin,
        fix,
        frameworks,
        searched.considered,
        searched.fitting,
        searched.simulated,
        searched.complete,
        bound_seconds,
        unsharded,
        None if counts is None else tuple(counts),
        by_degrees,
        cells.unfit,
        cells.unknown,
    )


def _stage_counts(
    stages: int | Literal["auto"] | None, fixed: Mapping[str, Any]
) -> list[int] | None:
    """Return the numbers of stages that there may be, with those that are pinned; None for any.

    Raises
    ------
    HyparError
        If pins contradict the stages, or pin several chunks without any.
    """
    counts, parts, chunks = stage_counts(stages), fixed.get("pp"), fixed.get("interleave", 1)
    if parts is not None and stages in (None, "auto", parts):
        counts = [parts]
    elif parts is not None:
        raise HyparError(f"{argument('fix')}: pp={parts} contradicts {argument('stages', stages)}")
    if chunks > 1 and counts == [1]:
        several = argument("stages", "auto")
        raise HyparError(f"{argument('fix')}: interleave={chunks} needs stages, as {several}")
    return counts


def has_configurations(network: Network, problem: Problem) -> bool:
    """Return whether a problem of the least time has configurations among its plans.

    They need repeated blocks, and equal accelerators whose memory counts tensors; and no layers
    that are pinned.
    """
    limits, limited = problem.constraints, problem.device_memory is not None
    return limited and not (problem.groups or limits.fix or limits.even) and bool(network.repeats)


def best_configuration(
    network: Network,
    problem: Problem,
    deadline: Deadline = NEVER,
    *,
    stages: int | Literal["auto"] | None = None,
) -> Evaluated:
    """Return the fastest configuration that fits and has the problem's training settings.

    Parameters
    ----------
    problem
        Nullable that has configurations; what its training leaves open is any configuration's. With
        stages these are by its schedule.
    stages
        As for `configure`.

    Raises
    ------
    HyparError
        If no degrees divide the batch, or the network or the array has no such stages.
    RefusedError
        If accelerators may be out of lockstep in the fastest without stages: each such step is
        simulated by events, for seconds.
    InfeasibleError
        If none fits in memory.
    NoAnswerError
        If the deadline comes first.
    """
    counts = stage_counts(stages)
    try:
        searched = fastest_configurations(
            network,
            problem,
            counts,
            count=1,
            fixed={},
            allowed=lambda configuration: trains_as(
                configuration, network, problem.hierarchy, problem.training
            ),
            by_events=False,
            deadline=deadline,
            progress=silent,
        )
    except NotInLockstepError:
        raise RefusedError(
            "accelerators are out of lockstep in some configurations: configure simulates each"
        ) from None
    if not searched.complete:
        raise NoAnswerError("the best configuration is not known", TIME_LIMIT)
    if not searched.considered:
        raise _none_considered(network, problem, counts)
    if not searched.best:
        raise _none_fits(searched, network, problem, 0)
    return searched.best[0]


def beside(plan: Plan, deadline: Deadline = NEVER) -> str | None:
    """Return a sentence that compares the best configuration with a plan, both simulated.

    Returns
    -------
    str or None
        None if the plan's problem has no configurations, or the best is not known in time.
    """
    from hypar_opt.studies.simulation import simulate

    network = plan.network.description
    problem = without_stages(plan.problem) if plan.is_staged else problem_left_open(plan)
    if problem.array is None or not has_configurations(network, problem):
        return None
    try:
        best = best_configuration(network, problem, deadline)
    except HyparError:  # none fits, or it takes long to know: the plan is the answer
        return None
    overlap = RunOptions().on(problem.array.description)[1]
    with_overlap = plan.solver.with_overlap
    seconds = (
        with_overlap.seconds
        if with_overlap and with_overlap.overlap == overlap
        else simulate(plan).seconds
    )
    how = "simulated" if overlap == "none" else f"with overlap ({overlap})"
    words = in_words(best.configuration, len(block_starts(network)))
    named = "The best configuration without stages" if plan.is_staged else "The best configuration"
    takes = f"{named} takes {format_si(best.seconds, 's')} {how}"
    return f"{takes}, this plan {format_si(seconds, 's')}: {words}."


def _is_unsharded(evaluated: Evaluated) -> bool:
    return "weights" not in evaluated.configuration.zero


def _bound(network: Network, problem: Problem, deadline: Deadline) -> float | None:
    """Return a lower bound in seconds over plans that fit; None if none is proved in time."""
    from hypar_opt.search.overlap import bound_of_all_plans

    if deadline.left() is None:
        deadline = Deadline.after(BOUND_SECONDS)
    try:
        return bound_of_all_plans(network, problem, deadline).seconds or None
    except NoAnswerError:  # the search found no plan that fits, but does not exclude one
        return None


def _with_margin(problem: Problem, margin: int) -> Problem:
    """Return a problem on an array with ``margin`` bytes less memory per accelerator.

    Raises
    ------
    HyparError
        If nothing is left.
    """
    if not margin:
        return problem
    assert problem.array is not None
    chip = problem.array.description.accelerator
    capacity = int(chip.dram_capacity) - margin
    if capacity <= (chip.reserve or 0):
        has = format_bytes(int(chip.dram_capacity) - int(chip.reserve or 0))
        raise HyparError(
            f"{argument('margin')} should leave some of the {has} that tensors may take"
        )
    described = problem.array.description.description()
    described["accelerator"]["dram_capacity"] = f"{capacity} B"
    array = ArrayRecord.of(Array.model_validate(described))
    return problem.model_copy(update={"array": array})


def pins(fix: str | None) -> dict[str, Any]:
    """Return the fields of a `Configuration` that a text such as ``tp=8,zero=weights`` pins.

    Raises
    ------
    HyparError
        With the wrong key or value, and the allowed ones.

    Examples
    --------
    >>> pins("tp=8,sp=no,zero=weights")
    {'tp': 8, 'sp': False, 'zero': 'weights'}
    """
    name, pinned = argument("fix"), dict[str, Any]()
    for pair in fix.split(",") if fix is not None else ():
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise HyparError(f"{name} should be as tp=8,zero=weights, got {pair!r}")
        if key not in (*PINS, *PINNED_WITH_STAGES):
            raise UnknownNameError(f"key of {name}", key, [*PINS, *PINNED_WITH_STAGES])
        if key in pinned:
            raise HyparError(f"{name}: {key} is stated twice")
        words = _WORDS.get(key)
        if words is not None and value not in words:
            raise UnknownNameError(f"value of {key}", value, list(words))
        if words is None and (not value.isdecimal() or len(value) > 9 or not int(value)):
            raise HyparError(f"{name}: {key} should be a whole number from 1, got {value!r}")
        pinned[key] = int(value) if words is None else words[value]
    return pinned


def _allowed(network: Network, problem: Problem, frameworks: Sequence[str]) -> Allowed:
    """Return the test whether any of the given frameworks can express a configuration."""
    if not frameworks:
        return lambda configuration: True
    from hypar_opt.execution.settings import TrainingRun, framework
    from hypar_opt.planning.priced import plan_of_configuration

    named = [framework(name) for name in frameworks]
    configuration = next(iter(family(network, problem)), None)
    if configuration is None:
        return lambda configuration: True
    run = TrainingRun.of(plan_of_configuration(network, problem, configuration))
    return lambda configuration: any(not writer.lacks(configuration, run) for writer in named)


def _none_considered(
    network: Network,
    problem: Problem,
    counts: list[int] | None,
    fix: str | None = None,
    frameworks: Sequence[str] = (),
) -> HyparError:
    """Return the error that says what leaves no configuration of some numbers of stages."""
    if counts in (None, [1]) and pins(fix).get("interleave", 1) == 1:
        return _none_allowed(network, problem, fix, frameworks)
    number = f"{counts[0]} stages" if counts else "stages"
    among = f" that {' or '.join(frameworks)} can express" if frameworks else ""
    fixed = f" with {argument('fix', fix)}" if fix is not None else ""
    return HyparError(f"there is no configuration of {number}{among} for {network.name}{fixed}")


def _none_allowed(
    network: Network, problem: Problem, fix: str | None, frameworks: Sequence[str]
) -> HyparError:
    """Return the error that says which pins leave no configuration, and what to change."""
    fixed = {name: value for name, value in pins(fix).items() if name == "tp"}
    candidates = [
        *dict.fromkeys((*family(network, problem), *family(network, problem, fixed=fixed)))
    ]
    limits = limits_of(network, problem, kv_replicated=bool(fixed))
    case = f"batch {problem.batch:,} of {network.name} {problem.place}"
    if not candidates:
        fault = limits.fault(Configuration(dp_shard=problem.accelerators))
        return HyparError(f"there is no configuration for {case}: {fault}")
    beside = ""
    fixed = pins(fix)
    for key, pinned_value in ((key, fixed[key]) for key in PINS if key in fixed):
        values = sorted({getattr(configuration, key) for configuration in candidates})
        word = {value: word for word, value in _WORDS.get(key, {}).items()}.get
        if pinned_value not in values:
            right = ", ".join(str(word(value, value)) for value in values)
            fault = limits.fault_in_degrees(Configuration(**{key: pinned_value}))
            why = f": {fault}" if fault and key in ("tp", "cp", "ep") else ""
            return HyparError(
                f"{argument('fix')}: {key} should be one of {right}{beside} for {case}, got"
                f" {word(pinned_value, pinned_value)}{why}"
            )
        candidates = [
            configuration
            for configuration in candidates
            if getattr(configuration, key) == pinned_value
        ]
        beside += f"{',' if beside else ' with '}{key}={word(pinned_value, pinned_value)}"
    return HyparError(
        f"{argument('frameworks')}: {' and '.join(frameworks)} cannot express any of the"
        f" {len(candidates):,} configurations{beside} for {case}"
    )


def _none_fits(
    searched: Searched,
    network: Network,
    problem: Problem,
    margin: int,
    *,
    may_stage: bool = False,
) -> HyparError:
    """Return the error that none fits, with the configurations that need the least memory."""
    assert problem.array is not None
    capacity = int(problem.array.description.accelerator.dram_capacity)
    blocks = len(block_starts(network))
    needs = [
        Need(needed, capacity - margin, in_words(configuration, blocks))
        for configuration, needed in searched.smallest
    ]
    room = format_bytes(capacity - margin) + (f" of {format_bytes(capacity)}" if margin else "")
    if problem.constraints.memory is not None:
        room = f"{format_bytes(problem.constraints.memory)} of tensors, beside the reserve"
    smallest = "; ".join(f"{format_bytes(need.bytes)} by {need.plan}" for need in needs)
    which = f"the {len(needs)} that need" if len(needs) > 1 else "the one that needs"
    count = f"{searched.considered:,} configurations"
    message = f"{network.name} {problem.place}: none of {count} fits in {room}"
    if not searched.complete:
        message = f"{network.name} {problem.place}: none was found within the {TIME_LIMIT} that"
        return NoAnswerError(f"{message} fits in {room}", TIME_LIMIT, *needs[:1])
    more = f"; {argument('stages', 'auto')} may fit" if may_stage else ""
    return InfeasibleError(f"{message}; {which} least take {smallest}{more}", *needs[:1])


def max_in_flight(configuration: Configuration) -> float:
    """Return for how many micro-batches the first stage holds activations under 1F1B.

    A chunk counts as its share of the stage.
    """
    if configuration.pp == 1:
        return 1.0
    from hypar_opt.simulator.pipeline_order import in_flight, orders

    chunks = configuration.interleave
    first, *_ = orders("1f1b", configuration.pp, configuration.micro_batches, chunks)
    return sum(in_flight(first, (1,) * chunks)) / chunks


def abbreviated_cuts(cuts: Sequence[int]) -> str:
    """Return the blocks of each stage, ``8+4``, abbreviated for many stages: ``3+30x4+3``."""
    runs = [[*run] for _, run in groupby(cuts)]
    return "+".join(
        f"{len(run)}x{run[0]}" if len(run) > 2 else "+".join(map(str, run)) for run in runs
    )


@lru_cache(maxsize=16)
def operations(network: Network) -> int:
    """Return the operations of products in a training step on one image or sequence.

    Three passes with two operations per multiply-accumulate. Attention counts only unmasked scores,
    about half under a causal mask. Recomputation does not count.

    Source: Chowdhery et al., "PaLM", 2022, appendix B, where causal attention counts in full.
    """
    layers = zip(network.layers, network.maps(), network.rows(), strict=True)
    return sum(
        int(
            6 * row["macs"] * (layer.seen(layer.sizes(maps)) if isinstance(layer, Attention) else 1)
        )
        for layer, maps, row in layers
    )


def in_words(configuration: Configuration, blocks: int) -> str:
    """Return a configuration in words: ``tp 2 with sp, dp_shard 32, ...``.

    Parameters
    ----------
    blocks
        The network's repeated blocks.
    """
    sp = " with sp" if configuration.sp else ""
    parts = [
        f"{name} {getattr(configuration, name)}{sp if name == 'tp' else ''}"
        for name in ("tp", "pp", "cp", "ep", "dp_shard", "dp_replicate")
        if getattr(configuration, name) > 1
    ]
    if configuration.interleave > 1:
        parts.append(f"{configuration.interleave} chunks per stage")
    if configuration.cuts:
        parts.append(f"{abbreviated_cuts(configuration.cuts)} blocks")
    if configuration.micro_batches > 1:
        parts.append(f"{configuration.micro_batches:,} micro-batches")
    if configuration.recompute != "none":
        says = trained.recomputation(configuration.recompute)
        some = "blocks per chunk" if configuration.pp > 1 else f"of {blocks} blocks"
        whole = configuration.blocks in (None, blocks)
        parts.append(says if whole else f"{says} of {configuration.blocks} {some}")
    if configuration.zero != "none":
        parts.append(trained.sharding(configuration.zero))
    return ", ".join(parts) or "one accelerator"


def recomputation(configuration: Configuration, blocks: int) -> str:
    """Return what the backward pass recomputes: ``none``, ``full`` or ``20 of 80`` blocks."""
    if configuration.recompute == "none" or configuration.blocks in (None, blocks):
        return configuration.recompute
    word = "" if configuration.recompute == "full" else f"{configuration.recompute} "
    if configuration.pp > 1:
        return f"{word}{configuration.blocks} per chunk"
    return f"{word}{configuration.blocks} of {blocks}"
