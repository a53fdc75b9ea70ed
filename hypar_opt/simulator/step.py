"""A plan's training step on an array: its exchanges, its computations, and their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.buckets import buckets_of
from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.contract import check_loads
from hypar_opt.costs.groups import check_of_groups
from hypar_opt.costs.physical import Pairs, Rings
from hypar_opt.costs.work import Work, launches_of
from hypar_opt.errors import HyparError, argument
from hypar_opt.sharding.passes import INFERENCE, TRAINING, Phase
from hypar_opt.simulator.decomposed import Divided, divided
from hypar_opt.simulator.exchanges import StepExchanges, of_groups, of_plan
from hypar_opt.simulator.memory import parts_between_groups
from hypar_opt.simulator.options import RunOptions
from hypar_opt.simulator.result import FullestExperts
from hypar_opt.simulator.schedule import Schedule
from hypar_opt.step.order import PlanExchanges
from hypar_opt.step.rules import rules_of
from hypar_opt.step.shares import WorkOfPart
from hypar_opt.step.states import copies, shard_counts, states_from_rows
from hypar_opt.step.uneven import most_loaded, padded_sizes, split_sizes
from hypar_opt.workload.early_stop import read_by_backward
from hypar_opt.workload.operators.attention import Attention
from hypar_opt.workload.operators.axes import TOKENS
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.recomputation import units_of, with_repeats
from hypar_opt.workload.repeats import EPILOGUE, PASS, Repeats

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem, ProblemFields
    from hypar_opt.simulator.tasks import OfParts, Task
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload


def program(
    plan: Plan, workload: Workload, array: Array, options: RunOptions, rows: Rows
) -> tuple[Task, ...]:
    """Return the tasks of a plan's step on an array.

    Parameters
    ----------
    rows : (levels, nodes)
        As for `hypar_opt.simulator.simulation.simulate_step`.

    Raises
    ------
    HyparError
        If the profile is not of this network and batch.
    """
    check_groups(plan, array, options)
    step = plan.problem, workload, array, options, rows
    tasks = schedule_of(plan.network.description, *step).tasks()
    return tuple(in_parts(tasks, *step))


def schedule_of(
    network: Network,
    problem: Problem,
    workload: Workload,
    array: Array,
    options: RunOptions,
    rows: Rows,
) -> Schedule:
    """Return what determines the tasks of a step; parameters as for `program`, for its problem."""
    collective, overlap = options.on(array)
    placement = _placement(problem, array)
    pairs = Pairs(array.interconnect, placement)
    repeats = repeats_on(network, problem, workload, array, options)
    return Schedule(
        workload,
        _exchanges(problem, workload, array, options, rows, repeats),
        _seconds(problem, workload, array, options, rows),
        pairs,
        Rings.of(array, placement, collective) or pairs,
        buckets_of(workload, array.bucket_elements(problem.element_bytes)),
        overlap,
        repeats,
        _updates(problem, workload, array, options, rows, repeats),
        units_of(network, workload),
        _epilogues(problem, workload, array, options, rows) if repeats.by_op else (),
    )


def in_parts(
    tasks: Sequence[Task],
    problem: Problem,
    workload: Workload,
    array: Array,
    options: RunOptions,
    rows: Rows,
) -> Sequence[Task]:
    """Return a step's tasks with those divided that run beside one another part by part."""
    into = _divided(problem, workload, array, options, rows)
    return tasks if into is None or options.on(array)[1] == "branches" else divided(tasks, into)


def _divided(
    problem: Problem, workload: Workload, array: Array, options: RunOptions, rows: Rows
) -> Divided | None:
    """Return which exchanges run beside the computations next to them; None if none do."""
    ring, hidden = options.in_parts_on(array)
    if not (ring or hidden):
        return None
    nodes = [*enumerate(workload.nodes)][workload.shared :]
    rings = {
        (node.name, level)
        for number, node in nodes
        for level, row in enumerate(rows)
        if isinstance(node.operator, Attention)
        and workload.words[number][row[number]] == TOKENS.word
    }
    products = {node.name for _, node in nodes if node.weight and node.macs}
    return Divided(hidden, products, rings if ring else (), problem.hierarchy.sizes)


def repeats_on(
    network: Network, problem: Problem, workload: Workload, array: Array, options: RunOptions
) -> Repeats:
    """Return how often a step repeats the passes of a micro-batch's tensors."""
    fused = Fused.on(array.accelerator)
    repeats = options.repeats(network, workload, problem.element_bytes, fused=fused)
    if not options.early_stop:
        return repeats
    return replace(repeats, recomputed=read_by_backward(workload, repeats.recomputed, fused=fused))


def launching(
    problem: Problem,
    workload: Workload,
    array: Array,
    repeats: Repeats,
    times: Sequence[int] | None = None,
) -> float:
    """Return the seconds in which the host launches all kernels of a micro-batch.

    Parameters
    ----------
    repeats
        What of them runs again.
    times
        How often the step has each node; None for once.
    """
    host = max(accelerator.host or 0 for accelerator in array.groups or [array.accelerator])
    if not host:
        return 0.0
    fused = Fused.on(array.accelerator)
    passes = [launches_of(workload, phase, fused=fused) for phase in phases_of(problem)]
    often = times or [1] * len(workload.nodes)
    kernels = sum(sum(map(mul, kernels_of_node, often)) for kernels_of_node in passes)
    again = [*repeats.recomputed, *(node for node, word in repeats.by_op.items() if word == PASS)]
    kernels += sum(passes[0][node] * often[node] for node in again)
    kernels += sum(
        workload.nodes[node].kernels(fused=fused)[0].epilogue.launches * often[node]
        for node, word in repeats.by_op.items()
        if word == EPILOGUE
    )
    return float(kernels * host)


class StepTimes(NamedTuple):
    """The seconds of a step's micro-batches, whatever their number.

    Parameters
    ----------
    last, before
        Of the last micro-batch, and of each before it.
    launching
        In which the host launches the kernels of one.
    """

    last: float
    before: float
    launching: float

    def of(self, micro_batches: int) -> float:
        """Return the seconds of a step of a number of micro-batches, as of `simulate_step`."""
        return max(self.last + (micro_batches - 1) * self.before, micro_batches * self.launching)


def check_groups(plan: Plan, array: Array, options: RunOptions) -> None:
    """Refuse what groups of accelerators do not have, and a plan of groups on an array without.

    Raises
    ------
    HyparError
        Naming the option, or the array.
    """
    if not array.groups:
        if plan.has_unequal_parts:
            raise HyparError(
                f"the plan is for groups of accelerators, and the array {array.name} has none"
            )
        return
    check_of_groups(plan.problem)
    if options.profile is not None:
        raise HyparError(f"{argument('profile')}: is not supported with groups of accelerators")


def _exchanges(
    problem: Problem,
    workload: Workload,
    array: Array,
    options: RunOptions,
    rows: Rows,
    repeats: Repeats,
) -> StepExchanges:
    """Return the exchanges of a micro-batch, and those of the step's end."""
    check_loads(workload, array, unequal_parts=problem.has_unequal_parts)
    if workload.loads and options.profile is not None:
        raise HyparError(
            f"{argument('profile')}: measured layers do not say what parts of experts take; a"
            " router's load should be 'even'"
        )
    sharded = Repeats(sharded=repeats.sharded, reduced=repeats.reduced)
    # Updated weights are gathered where the next step reads them.
    in_halves = options.on(array)[1] == "prefetch"
    step = with_repeats(workload, sharded), problem.hierarchy, problem.reading, phases_of(problem)
    if array.groups:
        # The simulator moves unweighted bytes: a level's weight belongs to the search's objective.
        unweighted = problem.model_copy(update={"level_weights": ()})
        cost = CommunicationCost.of_problem(unweighted, unequal=True)
        shares = problem.part_shares
        return of_groups(rules_of(*step), workload, rows, cost, shares, in_halves=in_halves)
    uneven = _longest(workload, array, options)
    if uneven and not workload.loads:
        states = states_from_rows(rows, len(workload.nodes))
        uneven = bool(padded_sizes(split_sizes(workload), states, step[1]))
    longest = rules_of(*step, by_largest_shard=True) if uneven else None
    return of_plan(rules_of(*step), rows, problem.element_bytes, longest, in_halves=in_halves)


def fullest_experts(
    problem: Problem,
    workload: Workload,
    rows: Rows,
    repeats: Repeats,
) -> FullestExperts | None:
    """Return the part of experts with most tokens; None where all have as many.

    Parameters
    ----------
    workload
        Of a micro-batch.
    rows : (levels, nodes)
    repeats
        Of a whole step.
    """
    if not workload.loads:
        return None
    fullest = []
    parts = shard_counts(rows, len(workload.nodes), len(workload.choices), problem.hierarchy)
    for choice, node in zip(*workload.split_loads.nonzero(), strict=True):
        if workload.nodes[node].operator.axes.weight:
            load, count = workload.nodes[node].load, int(parts[choice, node])
            more = Fraction(most_loaded(load, count) * count, sum(load))
            fullest.append((more, -int(node), count))
    more, node, count = max(fullest, default=(Fraction(1), 0, 1))
    if more == 1:
        return None
    step = with_repeats(workload, repeats), problem.hierarchy, problem.reading, phases_of(problem)
    received = (
        sum(
            one.quarters
            for one in PlanExchanges.of(rules_of(*step, by_largest_shard=longest), rows)
        )
        for longest in (False, True)
    )
    quarter = problem.element_bytes / 4 / problem.accelerators
    mean, largest = (quarter * quarters for quarters in received)
    return FullestExperts(workload.nodes[-node].name, count, float(more), mean, largest)


def phases_of(problem: ProblemFields) -> tuple[Phase, ...]:
    """Return the passes of a step, in their order."""
    return INFERENCE if problem.inference else TRAINING


def _placement(problem: Problem, array: Array) -> tuple[int, ...]:
    """Return the plan's placement if the plan was made for this array, or else the array's."""
    # On another array the plan's order of the digits has no meaning.
    made_for_array = problem.array is not None and problem.array.digest == array.digest()
    return (
        problem.placement if made_for_array and problem.placement is not None else array.placement
    )


def _seconds(
    problem: Problem, workload: Workload, array: Array, options: RunOptions, rows: Rows
) -> Mapping[Phase, Sequence[float | OfParts]]:
    """Return the seconds of every node's computation on one accelerator, by pass."""
    phases = phases_of(problem)
    nodes, states = np.arange(len(workload.nodes)), states_from_rows(rows, len(workload.nodes))
    if options.profile is None:
        works = _works(problem, workload, array, options)
        computed = [work.passes(workload, states, phases) for work in works]
        return {
            phase: _seconds_by_part([seconds[phase] for seconds in computed]) for phase in phases
        }
    names = [layer.name for layer in workload.layers]
    measured = options.profile.seconds(names, workload.batch, [phase.value for phase in phases])
    # Nodes that layers share compute nothing.
    shared = [0.0] * workload.shared
    # The profile is of one accelerator with the whole batch; every choice splits a layer's work,
    # but where it is whole all parts do all of it.
    doing = copies(workload.layouts.whole, nodes, states, problem.hierarchy)
    all_doing = np.broadcast_to(doing, nodes.shape)[workload.shared :].tolist()
    shares = [parts / problem.accelerators for parts in all_doing]
    return {
        phase: shared + [float(s * share) for s, share in zip(measured[phase], shares, strict=True)]
        for phase in phases
    }


def _works(problem: Problem, workload: Workload, array: Array, options: RunOptions) -> list[Work]:
    """Return the work of an accelerator, or of one of each part of H1 between groups."""
    return [
        Work(
            accelerator.updated_by(problem.constraints.optimizer),
            *(problem.hierarchy, problem.element_bytes, options.input_sizes),
            by_largest_shard=_longest(workload, array, options),
            part=WorkOfPart(share, share.indices) if share else None,
        )
        for accelerator, share in parts_between_groups(problem, array)
    ]


def _seconds_by_part(seconds: Sequence[Sequence[Fraction]]) -> list[float] | list[OfParts]:
    """Return seconds by node: of the parts of H1, if there is more than one."""
    columns = [list(map(float, column)) for column in seconds]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def _longest(workload: Workload, array: Array, options: RunOptions) -> bool:
    """Return whether layers and exchanges take as long as those of the longest part.

    Where experts have a load they do: what else is divided exactly then counts as its longest part.
    """
    exact = options.exact_shares and not workload.loads
    return array.step_model.by_largest_shard and not exact


def _updates(
    problem: Problem,
    workload: Workload,
    array: Array,
    options: RunOptions,
    rows: Rows,
    repeats: Repeats,
) -> Sequence[float | OfParts]:
    """Return the seconds in which each node's weights are updated, where an array counts them."""
    if problem.inference or options.profile is not None:
        return []
    works = _works(problem, workload, array, options)
    states = states_from_rows(rows, len(workload.nodes))
    return _seconds_by_part([work.updates(workload, states, repeats) for work in works])


def _epilogues(
    problem: Problem, workload: Workload, array: Array, options: RunOptions, rows: Rows
) -> Sequence[float | OfParts]:
    """Return the seconds of what follows each node's products; 0 where a profile is measured."""
    if options.profile is not None:
        return [0.0] * len(workload.nodes)
    states = states_from_rows(rows, len(workload.nodes))
    works = _works(problem, workload, array, options)
    return _seconds_by_part([work.epilogues(workload, states) for work in works])
