"""A step in pipeline stages: each stage's passes are simulated, then walked through a schedule.

A stage is simulated by itself, on its accelerators, as any step is: a micro-batch, and the last
one, which alone has the reductions and updates of a step. Stages wait for one another and for
messages, as their schedule says, and at the end sum gradients of weights that they share; exchanges
inside a stage, and those between stages, have the links to themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.costs.stage_messages import StageMessages, seconds_of_tied
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.pipeline_order import Order, PipelineRun, orders, walked
from hypar_opt.simulator.run import seconds_of
from hypar_opt.simulator.step import in_parts, launching, repeats_on, schedule_of
from hypar_opt.simulator.tasks import ComputeTask, before_last_micro_batch, changed, only
from hypar_opt.workload.stages import SENT, Message

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.costs.stage_messages import TiedReduction
    from hypar_opt.hardware.array import Array
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem
    from hypar_opt.simulator.options import RunOptions
    from hypar_opt.simulator.tasks import Task
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload


class StagePasses(NamedTuple):
    """The times of a stage by itself.

    Parameters
    ----------
    forward, backward
        The seconds of a micro-batch's passes, by chunk.
    gradients
        The part of the backward passes that computes the weights' gradients.
    once
        The additional seconds of a step's last micro-batch: reductions and updates.
    message
        The seconds of a message to the next stage; 0 where none is sent.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    gradients: tuple[float, ...]
    once: float = 0.0
    message: float = 0.0

    @property
    def micro_batch(self) -> float:
        """The seconds of a micro-batch in all chunks."""
        return sum(self.forward) + sum(self.backward)


class PipelineStep(NamedTuple):
    """A step in stages.

    Parameters
    ----------
    passes
        Of each stage, in order.
    run
        When passes begin, and the step's time.
    intervals
        When each begins and ends, in seconds, messages left out.
    busy
        The seconds in which each stage computes and reduces.
    tied
        The sums of gradients that stages share, and when they begin.
    """

    passes: tuple[Order, ...]
    run: PipelineRun
    intervals: tuple[tuple[tuple[float, float], ...], ...]
    busy: tuple[float, ...]
    tied: tuple[tuple[float, TiedReduction], ...]

    @property
    def seconds(self) -> float:
        """The seconds of the step."""
        return max(
            [
                self.run.seconds,
                *(start + float(reduction.seconds) for start, reduction in self.tied),
            ]
        )

    @property
    def bubbles(self) -> tuple[float, ...]:
        """The part of the step in which each stage waits for others, or for messages."""
        return tuple(1 - busy / self.seconds if self.seconds else 0.0 for busy in self.busy)


def stage_passes(
    network: Network,
    problem: Problem,
    workload: Workload,
    array: Array,
    options: RunOptions,
    *,
    rows: Rows,
    measure: Callable[[Sequence[Task], Sequence[int]], float] | None = None,
    often: Sequence[int] | None = None,
) -> StagePasses:
    """Simulate a micro-batch of a stage, and return the times of its passes.

    A pass of a chunk ends as the last task of its layers does. Where the host launches kernels
    later than the device ends them, passes are longer by as much in proportion.

    Parameters
    ----------
    network, problem
        Of the stage, on its accelerators. With a `StageContext` its messages are timed.
    workload
        Of a micro-batch.
    rows : (levels, nodes)
        As for `hypar_opt.simulator.simulation.simulate_step`.
    measure
        Returns the seconds of some tasks, given the node of each; None for events.
    often
        The repetitions of each node in the step; None for 1.
    """
    step = problem, workload, array, options, rows
    efficiency = array.efficiency_of_overlap
    visits, ends = _cut(network, *step)
    tasks = [task for _, of_node in visits for task in of_node]
    of_tasks = [node for node, of_node in visits for _ in of_node]
    times = np.ones(len(workload.nodes)) if often is None else np.array(often)
    single = before_last_micro_batch(tasks)

    def seconds(some: Sequence[Task]) -> float:
        if measure is not None:
            return measure(some, of_tasks[: len(some)])
        return seconds_of(in_parts(some, *step), array.interconnect, efficiency=efficiency)

    passes = [after - before for before, after in pairwise(seconds(single[:n]) for n in ends)]
    weights = [
        times[node] * _gradient_seconds(task) for node, task in zip(of_tasks, single, strict=True)
    ]
    gradients = [float(sum(weights[a:b])) for a, b in pairwise(ends)]
    before, chunks = sum(passes), len(passes) // 2
    launched = launching(problem, workload, array, repeats_on(network, *step[:-1]), often)
    slower = max(1.0, launched / before) if before else 1.0
    messages = StageMessages.of_stage(problem, workload)
    sent = (
        [seconds for name, seconds in messages.seconds(rows).items() if name.startswith(SENT)]
        if messages
        else ()
    )
    return StagePasses(
        tuple(slower * of_chunk for of_chunk in passes[:chunks]),
        tuple(slower * of_chunk for of_chunk in passes[: -chunks - 1 : -1]),
        tuple(slower * of_chunk for of_chunk in gradients[: -chunks - 1 : -1]),
        max(0.0, seconds(tasks) - slower * before),
        max(sent, default=0.0),
    )


def stage_tasks(
    plan: Plan,
    workload: Workload,
    array: Array,
    options: RunOptions,
    *,
    rows: Rows,
    gradients: bool,
) -> tuple[dict[tuple[Phase, int], Sequence[Task]], Sequence[Task]]:
    """Return the tasks of a micro-batch's passes by phase and chunk, and those once a step.

    Each pass waits for none of another. Parameters as for `stage_passes`.

    Parameters
    ----------
    gradients
        Whether the weights' gradients have passes of their own.
    """
    step = plan.problem, workload, array, options, rows
    visits, ends = _cut(plan.network.description, *step)
    tasks = [task for _, of_node in visits for task in of_node]
    single, chunks = before_last_micro_batch(tasks), len(ends) // 2
    passes: dict[tuple[Phase, int], Sequence[Task]] = {}
    for number, (start, end) in enumerate(pairwise(ends)):
        of_pass = [_from(start, task) for task in single[start:end]]
        if number < chunks:
            passes[Phase.FORWARD, number] = of_pass
            continue
        chunk = 2 * chunks - 1 - number
        if gradients:
            passes[Phase.GRADIENT, chunk] = only(of_pass, lambda task: task.phase is Phase.GRADIENT)
            of_pass = only(of_pass, lambda task: task.phase is not Phase.GRADIENT)
        passes[Phase.BACKWARD, chunk] = of_pass
    inside = {key: in_parts(of_pass, *step) for key, of_pass in passes.items()}
    return inside, only(tasks, lambda task: task.once)


def _cut(
    network: Network,
    problem: Problem,
    workload: Workload,
    array: Array,
    options: RunOptions,
    rows: Rows,
) -> tuple[list[tuple[int, Sequence[Task]]], list[int]]:
    """Return a stage's tasks, by node, and where passes begin and end among them.

    The forward passes of chunks, then backward passes in reverse order; updates belong to the last
    pass.
    """
    visits = [*schedule_of(network, problem, workload, array, options, rows).visits()]
    # A visit is a layer's forward pass, or in reverse order its backward pass.
    layers = len(workload.layers)
    stops = [n for n, layer in enumerate(workload.layers, 1) if _is_sent(layer)]
    starts = [0, *(n for n in stops if n < layers)]
    forward_ends = [*starts[1:], layers]
    backward_ends = [2 * layers - start for start in starts[:0:-1]]
    done = [*accumulate((len(of_node) for _, of_node in visits), initial=0)]
    return visits, [0, *(done[n] for n in (*forward_ends, *backward_ends)), done[-1]]


def _from(start: int, task: Task) -> Task:
    """Return a task relative to a first one, as if all before that had ended."""
    if not start or task.after is None:
        return task
    return changed(task, after=tuple(n - start for n in task.after if n >= start))


def _is_sent(layer: LayerTensors) -> bool:
    return isinstance(layer.operator, Message) and layer.name.startswith(SENT)


def _gradient_seconds(task: Task) -> float:
    """Return the seconds of a task that computes weights' gradients; 0 for others."""
    if isinstance(task, ComputeTask) and task.phase is Phase.GRADIENT:
        return task.seconds
    return 0.0


def pipeline_step(
    stages: Sequence[StagePasses],
    schedule: str,
    micro_batches: int,
    *,
    tied: Sequence[TiedReduction] = (),
) -> PipelineStep:
    """Walk a step through a schedule.

    Both ends wait for messages, and messages in opposite directions cross a border at the same
    time, as in Megatron-LM: an end waits for half of each.

    Parameters
    ----------
    stages
        The times of each stage, in order.
    schedule
        One of `hypar_opt.workload.parallelism.SCHEDULES`.
    tied
        Sums of gradients, one after another, each once its stages have ended everything else.

    Raises
    ------
    HyparError
        If the schedule has no such chunks, or micro-batches.
    """
    passes = orders(schedule, len(stages), micro_batches, len(stages[0].forward))
    backward = [stage.backward for stage in stages]
    seconds = {Phase.FORWARD: [stage.forward for stage in stages], Phase.BACKWARD: backward}
    if any(one.phase is Phase.GRADIENT for one in passes[0]):
        gradients = seconds[Phase.GRADIENT] = [stage.gradients for stage in stages]
        pairs = [zip(*of_stage, strict=True) for of_stage in zip(backward, gradients, strict=True)]
        seconds[Phase.BACKWARD] = [tuple(a - b for a, b in of_stage) for of_stage in pairs]
    messages = [stage.message / 2 for stage in stages]
    once = [stage.once for stage in stages]
    run = walked(passes, seconds, messages=messages, once=once)
    intervals = tuple(
        tuple(
            (start, start + seconds[one.phase][device][one.chunk])
            for one, start in zip(order, run.begun[device], strict=True)
        )
        for device, order in enumerate(passes)
    )
    busy = tuple(
        micro_batches * stage.micro_batch + stage.once + float(seconds_of_tied(tied, part))
        for part, stage in enumerate(stages)
    )
    return PipelineStep(passes, run, intervals, busy, tuple(_begun(tied, run.ended)))


def _begun(
    tied: Sequence[TiedReduction], ended: Sequence[float]
) -> Iterator[tuple[float, TiedReduction]]:
    """Yield when sums of gradients begin, given when each stage has ended everything else."""
    free = [*ended]
    for reduction in tied:
        start = max(free[part] for part in reduction.parts)
        for part in reduction.parts:
            free[part] = start + float(reduction.seconds)
        yield start, reduction
