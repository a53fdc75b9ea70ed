"""A step's tasks as MLCommons Chakra execution traces: a graph of nodes for each accelerator.

A trace is messages of Protocol Buffers, each behind its length as a varint: the schema's version,
then the nodes. A computation is a COMP_NODE that lasts as long as simulated. An exchange in which
all of a group send as much, by a collective of the schema, is a COMM_COLL_NODE; any other is pairs
of a COMM_SEND_NODE and a COMM_RECV_NODE. A node depends on those that its task waits for, whether
for a tensor or in its stream. In pipeline stages, devices have the nodes of their stage's passes in
the order of its schedule, and pairs between them.

Source: mlcommons/chakra, schema/protobuf/et_def.proto at 6dc63e1 (messages, fields, numbers), and
src/feeder/et_feeder_node.cpp at 02da5d0 (attributes that ASTRA-sim reads, and their types);
Protocol Buffers, "Encoding".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

from hypar_opt.errors import RefusedError, argument
from hypar_opt.hardware.folded import MAX_LISTED
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.sharding.passes import Phase
from hypar_opt.simulator.tasks import (
    ComputeTask,
    Dependencies,
    ExchangeTask,
    Task,
    before_last_micro_batch,
    predecessors,
)

if TYPE_CHECKING:
    from hypar_opt.hardware.interconnect import Interconnect
    from hypar_opt.hardware.patterns import MessagePattern

MAX_NODES = 5 * 10**6
"""The most nodes of all accelerators together: about 500 MB of files."""

COMPUTE, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""Types of nodes: COMP_NODE, COMM_SEND_NODE, COMM_RECV_NODE and COMM_COLL_NODE."""

COLLECTIVES = {
    StepKind.ALL_REDUCE: 0,
    StepKind.ALL_GATHER: 2,
    StepKind.ALL_TO_ALL: 6,
    StepKind.REDUCE_SCATTER: 7,
}
"""The schema's numbers of collectives: of its type CollectiveCommType."""

_INT32, _INT64, _BOOL, _STRING = 7, 9, 27, 29
"""The fields of an attribute's value, by its type."""


def collective_input(kind: StepKind, sent: Fraction, ranks: int) -> Fraction:
    """Return the bytes that a rank passes to a collective, given the bytes that it sends.

    For an all-gather its shard, for all others the whole: as ASTRA-sim reads ``comm_size``.

    Source: astra-sim/astra-sim,
    astra-sim/system/astraccl/native_collectives/collective_algorithm/Ring.cc at 7c77518.
    """
    if kind is StepKind.ALL_GATHER:
        return sent / (ranks - 1)
    crossings = 2 if kind is StepKind.ALL_REDUCE else 1
    return sent * ranks / (crossings * (ranks - 1))


class _Whole:
    """Amounts rounded to integers, with rounding errors carried over to the next amount."""

    def __init__(self) -> None:
        self._exact, self._rounded = Fraction(), 0

    def next(self, amount: Fraction) -> int:
        """Return the next amount: the sum of all so far is at most half off."""
        before, self._exact = self._rounded, self._exact + amount
        self._rounded = round(self._exact)
        return self._rounded - before


class TracedPass(NamedTuple):
    """Tasks that begin when all before them have ended."""

    tasks: Sequence[Task]
    micro_batch: int


class TracedEnd(NamedTuple):
    """An end of a message to, or from, the accelerator at the same position in another stage.

    Parameters
    ----------
    other
        The first accelerator of the other stage.
    size
        The bytes of each accelerator.
    after
        The number of the turn whose result is sent; None at the receiver.
    border
        A key of messages whose sizes are rounded cumulatively.
    """

    name: str
    other: int
    tag: int
    size: Fraction
    after: int | None
    border: Hashable


class TracedSum(NamedTuple):
    """An all-reduce among the accelerators at the same position in several stages.

    Parameters
    ----------
    size
        The bytes of each accelerator.
    communicator
        The number of the first accelerators' one.
    """

    name: str
    size: Fraction
    communicator: int


Turn = TracedPass | TracedEnd | TracedSum
"""One item in the sequence of an accelerator."""


def by_micro_batch(tasks: Sequence[Task], micro_batches: int) -> list[Turn]:
    """Return a step whose micro-batches follow one another; its tasks are those of the last."""
    single, last = before_last_micro_batch(tasks), micro_batches - 1
    return [*(TracedPass(single, number) for number in range(last)), TracedPass(tasks, last)]


class _Collective(NamedTuple):
    """A node that differs between accelerators only in its communicator.

    Parameters
    ----------
    over
        The digits of its members, or the number of the first accelerators' communicator.
    """

    body: bytes
    over: tuple[int, ...] | int


class _End(NamedTuple):
    """An end of a message to another stage, as `TracedEnd` says."""

    number: int
    name: str
    after: Dependencies
    kind: int
    other: int
    tag: int
    size: int


class _Message(NamedTuple):
    """A message that each accelerator sends, and the one that it receives: a node each.

    Parameters
    ----------
    number
        The first of its nodes' numbers.
    sent, received
        In bytes; 0 for no message.
    """

    number: int
    name: str
    after: Dependencies
    pattern: MessagePattern
    sent: int
    received: int
    tag: int


class DeviceNodes:
    """The nodes of accelerators with equal programs, in the order of adding them.

    Each method returns the numbers of the nodes that it adds, for those that wait for them.
    """

    def __init__(self) -> None:
        self.nodes: list[bytes | _Collective | _Message | _End] = []
        self._count = 0
        self._last: dict[int, None] = {}

    @property
    def last(self) -> Dependencies:
        """The nodes for which no other waits yet."""
        return tuple(self._last)

    def compute(self, name: str, after: Dependencies, microseconds: int) -> Dependencies:
        """Add a computation."""
        numbers = self._added(after, 1)
        node = _node(numbers[0], name, COMPUTE, after, microseconds)
        self.nodes.append(_framed(node + _ON_DEVICE))
        return numbers

    def collective(
        self,
        name: str,
        after: Dependencies,
        kind: StepKind,
        size: int,
        over: tuple[int, ...] | int,
    ) -> Dependencies:
        """Add a collective among the accelerators that differ in some digits only.

        Or, with a number, in the communicator of that number plus the accelerator's.
        """
        numbers = self._added(after, 1)
        node = _node(numbers[0], name, COLLECTIVE, after) + _ON_DEVICE
        node += _attribute("comm_type", _INT64, COLLECTIVES[kind])
        node += _attribute("comm_size", _INT64, size)
        self.nodes.append(_Collective(node, over))
        return numbers

    def messages(
        self,
        name: str,
        after: Dependencies,
        messages: Sequence[tuple[MessagePattern, int, int]],
        tag: int,
    ) -> Dependencies:
        """Add messages that are sent at once: of each its pattern, and the bytes either way."""
        ended: Dependencies = ()
        for pattern, sent, received in messages:
            if numbers := self._added(after, (sent > 0) + (received > 0)):
                self.nodes.append(_Message(numbers[0], name, after, pattern, sent, received, tag))
                ended += numbers
        return ended or after

    def end(self, turn: TracedEnd, after: Dependencies, size: int) -> Dependencies:
        """Add an end of a message to another stage, or from it."""
        if not size:
            return after
        numbers, kind = self._added(after, 1), RECEIVE if turn.after is None else SEND
        node = _End(numbers[0], turn.name, after, kind, turn.other, turn.tag, size)
        self.nodes.append(node)
        return numbers

    def _added(self, after: Dependencies, nodes: int) -> Dependencies:
        numbers = tuple(range(self._count + 1, self._count + nodes + 1))
        for other in after if nodes else ():
            self._last.pop(other, None)
        self._last |= dict.fromkeys(numbers)
        self._count += nodes
        return numbers


@dataclass(frozen=True, eq=False)
class Traces:
    """The traces of a step, one for each accelerator of an array, or of a stage's part of it.

    Times are whole microseconds, and sizes whole bytes: rounding errors are carried over to the
    next computation, or the next exchange of the same kind over the same levels.

    Parameters
    ----------
    turns
        The sequence of each accelerator.
    first
        The number of its first accelerator in the whole array.
    named
        The number of communicators with lower numbers.

    Raises
    ------
    RefusedError
        If tasks lack the amounts between parts of H1.
    """

    schema: ClassVar[str] = "0.0.4"
    """The version, as Chakra's own generators state it."""

    turns: Sequence[Turn]
    interconnect: Interconnect
    first: int = 0
    named: int = 0

    def __post_init__(self) -> None:
        for task in self._exchanges:
            is_unsaid = len(task.levels) > 1 or (len(task.sent) > 2 and not task.between)
            if task.is_together and is_unsaid and _collective_of(task) is None:
                raise RefusedError(
                    f"{task.name}: {len(task.sent)} parts of H1 send different amounts over"
                    f" {task.level_names} around one ring, and what each accelerator passes on is"
                    f" not known level by level; plans of {argument('cost', 'bytes')} have equal"
                    " parts"
                )

    @classmethod
    def of_stages(
        cls, stages: Iterable[tuple[Sequence[Turn], Interconnect]], named: int = 0
    ) -> list[Self]:
        """Return the traces of each stage, whose accelerators are numbered one stage after another.

        Parameters
        ----------
        stages
            The sequences of a stage's accelerators, and their interconnect.
        named
            The communicators between stages.

        Raises
        ------
        RefusedError
            If there are more than `MAX_NODES`.
        """
        first, traces = 0, list[Self]()
        for turns, interconnect in stages:
            traces.append(cls(turns, interconnect, first, named))
            first += interconnect.accelerators
            named += len(traces[-1].communicators)
        nodes = sum(trace.max_nodes for trace in traces)
        if nodes > MAX_NODES or first > MAX_LISTED:
            raise RefusedError(
                f"traces of this step have up to {nodes:,} nodes, and at most {MAX_NODES:,} are"
                f" written; use an array of fewer than {first:,} accelerators, or fewer"
                " micro-batches"
            )
        return traces

    @property
    def max_nodes(self) -> int:
        """The nodes of all accelerators, if no task were left out."""
        counts = (len(turn.tasks) if isinstance(turn, TracedPass) else 1 for turn in self.turns)
        return self.interconnect.accelerators * sum(counts)

    def of(self, accelerator: int) -> bytes:
        """Return the trace of an accelerator, by its number among these."""
        parts = [_framed(_text(1, self.schema))]
        for node in self._programs[self._part(accelerator)].nodes:
            if isinstance(node, bytes):
                parts.append(node)
            elif isinstance(node, _Collective):
                if isinstance(node.over, int):
                    name = str(node.over + accelerator)
                else:
                    name = self._names[node.over, self._lowest(node.over, accelerator)]
                parts.append(_framed(node.body + _attribute("pg_name", _STRING, name)))
            elif isinstance(node, _End):
                endpoint, other = self.first + accelerator, node.other + accelerator
                ends = (endpoint, other) if node.kind == SEND else (other, endpoint)
                parts.append(_end(*node[:4], *ends, node.tag, node.size))
            else:
                parts += self._ends(node, accelerator)
        return b"".join(parts)

    @property
    def overlaps_exchanges(self) -> bool:
        """Whether an accelerator may be in several exchanges at a time."""
        return len({task.stream for task in self._exchanges}) > 1

    @property
    def has_uneven(self) -> bool:
        """Whether sizes are means over accelerators of a group."""
        return any(len(task.sent) == 1 for task in self._exchanges)

    @property
    def communicators(self) -> dict[str, list[int]]:
        """The accelerators of each communicator, by the name that its nodes give."""
        return {
            name: (self.interconnect.group(digits) + self.first + lowest).tolist()
            for (digits, lowest), name in self._names.items()
        }

    @cached_property
    def _names(self) -> dict[tuple[tuple[int, ...], int], str]:
        """The name of each communicator, by the digits that it is over and its first member.

        Numbers from 1: ASTRA-sim takes 0 for all accelerators.
        """
        over = {_digits(task) for task in self._exchanges if _collective_of(task) is not None}
        keys = (
            (digits, accelerator)
            for digits in sorted(over)
            for accelerator in range(self.interconnect.accelerators)
            if self._lowest(digits, accelerator) == accelerator
        )
        return {key: str(number) for number, key in enumerate(keys, 1 + self.named)}

    def _lowest(self, digits: tuple[int, ...], accelerator: int) -> int:
        """Return the first accelerator of a communicator: that of which its digits are 0."""
        places = map(self.interconnect.place, digits)
        return accelerator - sum(stride * (accelerator // stride % n) for stride, n in places)

    @cached_property
    def _passes(self) -> dict[int, Sequence[Task]]:
        """The tasks of all passes, of equal ones once; first those of the last pass."""
        passes = (turn.tasks for turn in reversed(self.turns) if isinstance(turn, TracedPass))
        return {id(tasks): tasks for tasks in passes}

    @cached_property
    def _waits(self) -> dict[int, list[Dependencies]]:
        return {key: predecessors(tasks) for key, tasks in self._passes.items()}

    @cached_property
    def _tasks(self) -> list[Task]:
        return [task for tasks in self._passes.values() for task in tasks]

    @property
    def _exchanges(self) -> Iterator[ExchangeTask]:
        return (task for task in self._tasks if isinstance(task, ExchangeTask))

    @cached_property
    def _parts(self) -> int:
        """The parts of H1 whose accelerators may have different nodes."""
        computed = (task.of_parts for task in self._tasks if isinstance(task, ComputeTask))
        exchanged = (task.sent for task in self._exchanges)
        return max((len(amounts) for amounts in chain(computed, exchanged) if amounts), default=1)

    def _part(self, accelerator: int) -> int:
        return accelerator * self._parts // self.interconnect.accelerators

    @cached_property
    def _programs(self) -> list[DeviceNodes]:
        return list(map(self._program, range(self._parts)))

    def _program(self, part: int) -> DeviceNodes:
        """Return the nodes of a part's accelerators."""
        program, time, sizes = DeviceNodes(), _Whole(), defaultdict[Hashable, _Whole](_Whole)
        ended_turns: list[Dependencies] = []
        for turn in self.turns:
            began = program.last
            if isinstance(turn, TracedPass):
                self._add_pass(program, turn, part, time, sizes)
            elif isinstance(turn, TracedEnd):
                after = began if turn.after is None else ended_turns[turn.after]
                program.end(turn, after, sizes[turn.border].next(turn.size))
            else:
                size, kind = round(turn.size), StepKind.ALL_REDUCE
                program.collective(turn.name, began, kind, size, turn.communicator)
            ended_turns.append(program.last)
        return program

    def _add_pass(
        self,
        program: DeviceNodes,
        turn: TracedPass,
        part: int,
        time: _Whole,
        sizes: Mapping[Hashable, _Whole],
    ) -> None:
        """Add the nodes of a pass of a part's accelerators."""
        began, ends = program.last, list[Dependencies]()
        for task, waits_for in zip(turn.tasks, self._waits[id(turn.tasks)], strict=True):
            # A task without work for this part passes on its dependencies.
            waited = {node for other in waits_for for node in ends[other]}
            ended = tuple(sorted(waited)) or began
            if isinstance(task, ComputeTask):
                seconds = task.of_parts[part] if task.of_parts else task.seconds
                if seconds:
                    whole = time.next(10**6 * Fraction(seconds))
                    ended = program.compute(task.name, ended, whole)
            elif kind := _collective_of(task):
                exact = collective_input(kind, self._sent(task)[part], self._ranks(task))
                if size := sizes[kind, task.digits].next(exact):
                    ended = program.collective(task.name, ended, kind, size, _digits(task))
            else:
                tag = self._tag(task, turn.micro_batch)
                for messages in self._messages(task, part, sizes):
                    ended = program.messages(task.name, ended, messages, tag)
            ends.append(ended)

    def _ranks(self, task: ExchangeTask) -> int:
        return prod(self.interconnect.place(number).parts for number in task.digits)

    def _sent(self, task: ExchangeTask) -> list[Fraction]:
        """Return the bytes that an accelerator of each part sends.

        Where all send as much, `ExchangeTask.sent` may be the longest part's.
        """
        together = 0 in task.levels and _collective_of(task) is not None
        amounts = task.sent if task.of_parts and not together else [task.bytes] * self._parts
        return [Fraction(amount) / self.interconnect.accelerators for amount in amounts]

    def _messages(
        self, task: ExchangeTask, part: int, sizes: Mapping[Hashable, _Whole]
    ) -> Iterator[list[tuple[MessagePattern, int, int]]]:
        """Yield the messages of each round: the pattern, and the bytes either way."""
        first = -(-part * self.interconnect.accelerators // self._parts)
        for lanes, times in task.rounds:
            for turn in range(times):
                messages = []
                for pattern, share in lanes:
                    # For all parts, so that both ends of a message round it equally.
                    sent = self._between(task, pattern, turn) or self._sent(task)
                    whole = [
                        sizes[pattern, part].next(share * amount)
                        for part, amount in enumerate(sent)
                    ]
                    sender = self._peers(pattern)[1][first]
                    messages.append((pattern, whole[part], whole[self._part(sender)]))
                yield messages

    def _between(self, task: ExchangeTask, pattern: MessagePattern, turn: int) -> list[Fraction]:
        """Return what accelerators of each part would send in all rounds, if all were as this one.

        None where all rounds are alike. In pairs it is what a part has for the receiver's; around a
        ring a piece that is passed on: reduced on the way to its part, or gathered from it.
        """
        count = self._parts
        if not task.between:
            return []
        pairs = [task.between[part * count :][:count] for part in range(count)]
        share = Fraction(count - 1, self.interconnect.accelerators)
        if len(task.rounds) > 1:
            return [share * pair[(part + pattern.shift) % count] for part, pair in enumerate(pairs)]
        direction = 1 if pattern.shift == 1 else -1
        if task.step is StepKind.ALL_GATHER:
            pieces = [pair[(part + 1) % count] for part, pair in enumerate(pairs)]
            return [share * pieces[(part - direction * turn) % count] for part in range(count)]
        pieces = [pairs[(part + 1) % count][part] for part in range(count)]
        return [share * pieces[(part - direction * (turn + 1)) % count] for part in range(count)]

    def _tag(self, task: ExchangeTask, micro_batch: int) -> int:
        """Return what distinguishes messages between two accelerators.

        Twice the number of the place in the network, and one more backward; further on with each
        micro-batch.
        """
        place = self._places[_place(task)] + micro_batch * len(self._places)
        return 2 * place + (task.phase is Phase.BACKWARD)

    @cached_property
    def _places(self) -> dict[Hashable, int]:
        """The numbers of the places in the network at which messages are sent."""
        places = dict.fromkeys(
            _place(task) for task in self._exchanges if _collective_of(task) is None
        )
        return {place: number for number, place in enumerate(places)}

    def _ends(self, message: _Message, accelerator: int) -> Iterator[bytes]:
        """Yield an accelerator's nodes of a message: first that of the lower sender, at each end.

        So all have the pairs of a round in one order.
        """
        receivers, senders = self._peers(message.pattern)
        sender, receiver = senders[accelerator], receivers[accelerator]
        pairs = [(accelerator, receiver, SEND, message.sent)]
        pairs += [(sender, accelerator, RECEIVE, message.received)]
        present = sorted(pair for pair in pairs if pair[-1])
        for number, (source, target, kind, size) in enumerate(present, message.number):
            ends = self.first + source, self.first + target
            yield _end(number, message.name, message.after, kind, *ends, message.tag, size)

    def _peers(self, pattern: MessagePattern) -> tuple[list[int], list[int]]:
        """Return the accelerators that each sends to, and receives from, in a pattern."""
        if pattern not in self._peers_of:
            receivers = self.interconnect.receivers(pattern).tolist()
            senders = sorted(range(len(receivers)), key=receivers.__getitem__)
            self._peers_of[pattern] = receivers, senders
        return self._peers_of[pattern]

    @cached_property
    def _peers_of(self) -> dict[MessagePattern, tuple[list[int], list[int]]]:
        return {}


def _collective_of(task: ExchangeTask) -> StepKind | None:
    """Return the schema's collective of a task in which all of a group send equally much."""
    is_even = 0 not in task.levels or len({*task.sent}) <= 1
    return task.collective if task.collective in COLLECTIVES and is_even else None


def _digits(task: ExchangeTask) -> tuple[int, ...]:
    return tuple(sorted(task.digits))


def _place(task: ExchangeTask) -> Hashable:
    return task.layer, task.kind, task.levels


def _node(number: int, name: str, kind: int, after: Dependencies, microseconds: int = 0) -> bytes:
    """Return the fields of a node but its attributes."""
    body = _number(1, number) + _text(2, name) + _number(3, kind)
    if after:
        body += _block(5, b"".join(map(_varint, after)))
    return body + (_number(7, microseconds) if microseconds else b"")


def _end(
    number: int,
    name: str,
    after: Dependencies,
    kind: int,
    source: int,
    target: int,
    tag: int,
    size: int,
) -> bytes:
    """Return a node that is one end of a message."""
    return _framed(
        _node(number, name, kind, after)
        + _ON_DEVICE
        + _attribute("comm_src", _INT32, source)
        + _attribute("comm_dst", _INT32, target)
        + _attribute("comm_tag", _INT32, tag)
        + _attribute("comm_size", _INT64, size)
    )


def _attribute(name: str, field: int, value: int | str) -> bytes:
    """Return an attribute of a node, whose value is written also where it is 0."""
    written = _text(field, value) if isinstance(value, str) else _number(field, value)
    return _block(10, _text(1, name) + written)


def _framed(message: bytes) -> bytes:
    return _varint(len(message)) + message


def _text(field: int, text: str) -> bytes:
    return _block(field, text.encode())


def _block(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _framed(content)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _varint(value: int) -> bytes:
    """Return a natural number in groups of seven bits, the least significant first."""
    groups = []
    while value > 127:
        groups.append(value & 127 | 128)
        value >>= 7
    return bytes([*groups, value])


_ON_DEVICE = _attribute("is_cpu_op", _BOOL, False)
"""What ASTRA-sim takes to run on an accelerator."""
