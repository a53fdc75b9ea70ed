"""Schedules of pipeline stages: the passes of each device in order, and walks through them.

A network in ``stages * chunks`` parts, of which device ``i`` has parts ``i``, ``stages + i``, ...:
its chunks. Each part passes each micro-batch forward to the next part, and its errors back. Time
and memory of a schedule follow from walking through it, pass by pass, without formulas.

Source: Y. Huang et al., "GPipe", NeurIPS 2019; D. Narayanan et al., "Efficient large-scale language
model training on GPU clusters using Megatron-LM", SC 2021 (1F1B, interleaved); P. Qi et al., "Zero
bubble pipeline parallelism", ICLR 2024 (ZB-H1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.plan.stages import check_schedule
from hypar_opt.sharding.passes import Phase

if TYPE_CHECKING:
    from hypar_opt.plan.stages import Stages


class StagePass(NamedTuple):
    """One pass of a device: a phase of one chunk and one micro-batch, numbered from 0."""

    phase: Phase
    chunk: int
    micro_batch: int


Order = tuple[StagePass, ...]


class MessageEnd(NamedTuple):
    """An end of a message from one part to the next, or of its errors back.

    Parameters
    ----------
    border
        The number of the part before the border.
    chunk
        The chunk of the device's pass that sends it, or waits for it.
    """

    is_sent: bool
    border: int
    phase: Phase
    chunk: int
    micro_batch: int

    @property
    def of_pass(self) -> StagePass:
        """The device's pass that sends it, or waits for it."""
        return StagePass(self.phase, self.chunk, self.micro_batch)


class PipelineRun(NamedTuple):
    """The result of a walk through a schedule.

    Parameters
    ----------
    seconds
        Of the step.
    ended
        When each device has ended its last pass, and what it does once.
    begun
        When each device begins each pass of its order.
    """

    seconds: float
    ended: tuple[float, ...]
    begun: tuple[tuple[float, ...], ...]


@lru_cache(maxsize=2)
def orders(schedule: str, stages: int, micro_batches: int, chunks: int = 1) -> tuple[Order, ...]:
    """Return the passes of each device in order.

    Without `Phase.GRADIENT` among them, the backward passes compute the weights' gradients, too.

    Parameters
    ----------
    schedule
        One of `hypar_opt.workload.parallelism.SCHEDULES`.

    Raises
    ------
    HyparError
        If a schedule has no such chunks, or chunks whose micro-batches are no multiple of stages.
    """
    check_schedule(schedule, stages, micro_batches, chunks)
    passes = {"1f1b": _one_forward_one_backward, "gpipe": _all_forward, "zb-h1": _zero_bubble}
    order = passes[schedule]
    return tuple(tuple(order(stage, stages, micro_batches, chunks)) for stage in range(stages))


def _all_forward(
    _device: int, _stages: int, micro_batches: int, _chunks: int
) -> Iterator[StagePass]:
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        yield from (StagePass(phase, 0, number) for number in range(micro_batches))


def _one_forward_one_backward(
    device: int, stages: int, micro_batches: int, chunks: int
) -> Iterator[StagePass]:
    """Yield forward passes up to the first error that arrives, then alternate both kinds."""
    total = micro_batches * chunks
    behind = stages - device - 1
    warm_up = min(total, behind if chunks == 1 else 2 * behind + (chunks - 1) * stages)
    for turn in range(warm_up + total):
        if turn < total:
            yield _turn(Phase.FORWARD, turn, stages, chunks)
        if turn >= warm_up:
            yield _turn(Phase.BACKWARD, turn - warm_up, stages, chunks)


def _turn(phase: Phase, turn: int, stages: int, chunks: int) -> StagePass:
    """Return a pass of a device by its number: chunks alternate after groups of micro-batches."""
    if chunks == 1:
        return StagePass(phase, 0, turn)
    rounds, place = divmod(turn, stages * chunks)
    chunk, number = divmod(place, stages)
    backward = phase is Phase.BACKWARD
    return StagePass(phase, chunks - 1 - chunk if backward else chunk, rounds * stages + number)


def _zero_bubble(device: int, stages: int, micro_batches: int, chunks: int) -> Iterator[StagePass]:
    """Yield 1F1B's passes, with each device's gradients as many turns late as its number."""
    late = 0
    for one in _one_forward_one_backward(device, stages, micro_batches, chunks):
        yield one
        if one.phase is Phase.BACKWARD and one.micro_batch >= device:
            yield StagePass(Phase.GRADIENT, 0, late)
            late += 1
    yield from (StagePass(Phase.GRADIENT, 0, number) for number in range(late, micro_batches))


def in_flight(order: Order, saved: Sequence[float]) -> tuple[int, ...]:
    """Return the micro-batches in flight of each chunk of a device at its peak.

    What a chunk saves of a micro-batch is held from its forward pass to its last pass.

    Parameters
    ----------
    saved
        What each chunk saves of one micro-batch.
    """
    frees = Phase.GRADIENT if any(one.phase is Phase.GRADIENT for one in order) else Phase.BACKWARD
    in_flight, largest = [0] * len(saved), (0,) * len(saved)
    for one in order:
        if one.phase is Phase.FORWARD:
            in_flight[one.chunk] += 1
            if sum(map(mul, in_flight, saved)) > sum(map(mul, largest, saved)):
                largest = tuple(in_flight)
        elif one.phase is frees:
            in_flight[one.chunk] -= 1
    return largest


def in_flight_of_stages(
    stages: Stages, schedule: str, micro_batches: int
) -> tuple[tuple[int, ...], ...]:
    """Return `in_flight` of each stage, whose chunks save as much as they have layers."""
    passes = orders(schedule, stages.parts, micro_batches, stages.chunks)
    return tuple(
        in_flight(order, [len(chunk) for chunk in stages.chunks_of(part)])
        for part, order in enumerate(passes)
    )


def walked(
    passes: Sequence[Order],
    seconds: Mapping[Phase, Sequence[Sequence[float]]],
    *,
    messages: Sequence[float] | None = None,
    once: Sequence[float] | None = None,
) -> PipelineRun:
    """Return the time of a step in stages.

    Parameters
    ----------
    passes
        Each device's in order, as `orders` gives them.
    seconds
        Of each phase: each device's chunks, for one micro-batch.
    messages
        The seconds for which either end of a message from each device to the next, and of errors
        back, waits: nothing is computed meanwhile.
    once
        The seconds that each device takes after its last pass.

    Raises
    ------
    ValueError
        If passes wait for one another.
    """
    stages = len(passes)
    messages = messages or [0.0] * stages
    last = stages * max((len(of_chunks) for of_chunks in seconds[Phase.FORWARD]), default=1) - 1
    ended: dict[tuple[Phase, int, int], float] = {}
    begun: list[list[float]] = [[] for _ in passes]
    free = [0.0] * stages
    remaining = sum(map(len, passes))
    while remaining:
        before = remaining
        for device, order in enumerate(passes):
            while len(begun[device]) < len(order):
                phase, chunk, number = order[len(begun[device])]
                part = chunk * stages + device
                start = free[device]
                if awaited := _awaited(phase, part, number, last):
                    if awaited not in ended:
                        break
                    received = (
                        messages[min(part, awaited[1]) % stages] if awaited[1] != part else 0.0
                    )
                    start = max(start, ended[awaited]) + received
                end = start + seconds[phase][device][chunk]
                begun[device].append(start)
                if phase is Phase.FORWARD and part < last:
                    end += messages[device]
                if phase is Phase.BACKWARD and part:
                    end += messages[device - 1]
                ended[phase, part, number] = free[device] = end
                remaining -= 1
        if remaining == before:
            raise ValueError("the passes of a schedule wait for one another")
    free = [end + more for end, more in zip(free, once or [0.0] * stages, strict=True)]
    return PipelineRun(max(free), tuple(free), tuple(map(tuple, begun)))


def with_messages(passes: Sequence[Order]) -> list[list[StagePass | MessageEnd]]:
    """Return each device's passes, and between them the ends of the messages that they send.

    Passes and messages of all devices are in one order, of which each has its own: so both ends of
    messages may wait for each other. A message is where its reader begins, if all passes take as
    long.

    Parameters
    ----------
    passes
        Each device's in order, as `orders` gives them.
    """
    stages, chunks = len(passes), 1 + max(one.chunk for one in passes[0])
    equal = [[1.0] * chunks] * stages
    begun = walked(passes, dict.fromkeys(Phase, equal)).begun
    together: dict[float, list[tuple[int, StagePass]]] = defaultdict(list)
    for device, timed in enumerate(zip(passes, begun, strict=True)):
        for one, start in zip(*timed, strict=True):
            together[start].append((device, one))
    turns: list[list[StagePass | MessageEnd]] = [[] for _ in passes]
    for start in sorted(together):
        for device, (phase, chunk, number) in together[start]:
            part = chunk * stages + device
            awaited = _awaited(phase, part, number, stages * chunks - 1)
            if awaited is None:
                continue
            of_sender, sender = divmod(awaited[1], stages)
            if sender != device:
                border = min(part, awaited[1])
                turns[sender].append(MessageEnd(True, border, phase, of_sender, number))
                turns[device].append(MessageEnd(False, border, phase, chunk, number))
        for device, one in together[start]:
            turns[device].append(one)
    return turns


def _awaited(phase: Phase, part: int, number: int, last: int) -> tuple[Phase, int, int] | None:
    """Return the pass whose result a pass reads; None for the first part's forward passes."""
    if phase is Phase.FORWARD:
        return (phase, part - 1, number) if part else None
    if phase is Phase.BACKWARD:
        return (phase, part + 1, number) if part < last else (Phase.FORWARD, part, number)
    return Phase.BACKWARD, part, number
