"""Charges as folds of a step's operations: bytes, seconds and joules of nodes and boundaries.

A state is a node's choices at the topmost levels, H1 first. A level is charged what appending its
choices adds, so that the tables of a level, of thresholds and of all levels are the same function.

Source: docs/assumptions.md.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache, partial
from itertools import groupby, pairwise
from math import prod
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from hypar_opt.errors import CheckFailedError
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.proofs.check.nodes import indices_by_share
from hypar_opt.proofs.check.operations import PlanStep, padded
from hypar_opt.proofs.check.training import Pass
from hypar_opt.workload.operators.axes import PARTIAL, WHOLE
from hypar_opt.workload.parallelism import PART_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.nodes import PlanGraph, State
    from hypar_opt.proofs.check.operations import LayerWork, PaddedAxes, Share, Times, Transfer

# A separate table: this derivation shares none with the search.
PREFIXES = {"femto": 10**15, "pico": 10**12, "nano": 10**9, "micro": 10**6, "milli": 10**3, "": 1}
UNSPLIT = (WHOLE, PARTIAL, "none")
WORD_BYTES = 4
"""An array's energies are those of 32-bit words."""


class Charges(ABC):
    """The charges of a problem, as integers of a fraction of the plan's unit.

    Parameters
    ----------
    resolution
        Charges per unit of the plan's cost.
    """

    resolution: int = 1

    @abstractmethod
    def node(self, node: int, state: State) -> int:
        """Return the charge of a node in a state, over all its levels."""

    @abstractmethod
    def edge(self, edge: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        """Return the charges of pairs of states of an edge's ends: ``(sources, targets)``.

        Parameters
        ----------
        sources, targets
            States of equally many levels.
        """

    def joins_levels(self, node: int, state: State) -> bool:  # noqa: ARG002
        """Return whether levels of a state are charged together, as around a ring.

        Totals do not show it: the increments of levels always add up to them.
        """
        return False

    def for_plan(self, chosen: Sequence[State]) -> Charges:  # noqa: ARG002
        """Return the charges of one plan, whose nodes may share charges, given their states."""
        return self


class Fold(Charges):
    """Charges of operations. Equal nodes and edges are charged once."""

    def __init__(
        self, plan: Plan, graph: PlanGraph, chosen: Sequence[State] = (), *, pads: bool = False
    ) -> None:
        self.plan, self.hierarchy, kinds = plan, plan.hierarchy, dict[object, int]()
        self.step = self._operations(plan, graph, chosen, pads=pads)
        self._like_node = [
            kinds.setdefault(self.step.kind_of_node(n), n) for n in range(len(graph.nodes))
        ]
        kinds = {}
        self._like_edge = [
            kinds.setdefault(self.step.kind_of_edge(n), n) for n in range(len(graph.edges))
        ]
        self._node_charge = cache(
            lambda n, state: self._charge(self.step.node(n, state)) + self._local(n, state)
        )
        self._edge_charge = cache(self._charge_edge)
        self._padded_charge = cache(self._charge_padded)

    def _operations(
        self, plan: Plan, graph: PlanGraph, chosen: Sequence[State], *, pads: bool
    ) -> PlanStep:
        return PlanStep(plan, graph, chosen, pads=pads)

    @abstractmethod
    def _charge(self, ops: Iterable[Transfer]) -> int:
        """Return the charge of all exchanges of a node, or a boundary."""

    def _local(self, node: int, state: State) -> int:  # noqa: ARG002
        """Return the charge of a node's own work, and of its accesses to memory."""
        return 0

    def node(self, node: int, state: State) -> int:
        return self._node_charge(self._like_node[node], state)

    def edge(self, edge: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        return self._edge_charge(self._like_edge[edge], tuple(sources), tuple(targets))

    def _charge_edge(
        self, edge: int, sources: tuple[State, ...], targets: tuple[State, ...]
    ) -> Integers:
        numbers, operations = self._equal_pairs(edge, sources, targets)
        (written, rows), (read, columns) = (
            self._paddings(edge, end, states) for end, states in enumerate((sources, targets))
        )
        shape = len(written), len(read), 1 + max((kind for kind, _ in operations), default=0)
        charges: Integers = np.zeros(shape, object)
        for (row, had), (column, wanted) in itertools.product(enumerate(written), enumerate(read)):
            for kind, ops in operations:
                charges[row, column, kind] = self._padded_charge(ops, (had, wanted))
        charges = charges.astype(exact_dtype(len(numbers) * charges.max(initial=0)))
        charged: Integers = charges[rows[:, None], columns, numbers].sum(axis=0)
        return charged

    def _paddings(
        self, edge: int, end: int, states: Sequence[State]
    ) -> tuple[list[PaddedAxes], NDArray[np.intp]]:
        """Return the sets of axes that states divide unevenly, and the number of each state's."""
        numbers: dict[PaddedAxes, int] = {}
        paddings = (self.step.padding(edge, end, state) for state in states)
        of_states = [numbers.setdefault(padding, len(numbers)) for padding in paddings]
        return [*numbers], np.array(of_states, np.intp)

    def _charge_padded(self, ops: Sequence[Transfer], ends: tuple[PaddedAxes, PaddedAxes]) -> int:
        """Return the charge of a boundary's operations between ends that divide axes unevenly."""
        return self._charge(
            op._replace(
                amount=max(padded(op.amount, axes) for axes in ends[: 1 + (op.joins is None)])
            )
            if any(ends)
            else op
            for op in ops
        )

    def _equal_pairs(
        self, edge: int, sources: Sequence[State], targets: Sequence[State]
    ) -> tuple[NDArray[np.intp], list[tuple[int, tuple[Transfer, ...]]]]:
        """Return, for each level, numbers of pairs that move the same there, and their operations.

        A level's operations depend on how a tensor is stored and read there, and on copies at other
        levels; if levels are joined, also on their parts above and below, and on all changes. So
        one pair gives the operations of all pairs with its number.

        Returns
        -------
        numbers : (levels, sources, targets)
            And one more row for sums that are reduced on the way.
        """
        step, sizes = self.step, self.hierarchy.sizes[: len(sources[0])]
        layouts = [end.layouts for end in step.ends[edge]]
        names = sorted({*layouts[0], *layouts[1]})
        # The number of copies depends on few layouts, and most states have these.
        counted = names if self.plan.joins_levels or self.plan.groups else UNSPLIT
        like = np.array([n if name in counted else -1 for n, name in enumerate(names)], np.intp)
        like[like < 0] = (like < 0).argmax()
        written, read = (
            np.array([names.index(by_choice[c]) for state in states for c in state], np.intp)
            .reshape(len(states), len(sizes))
            .T
            for by_choice, states in zip(layouts, (sources, targets), strict=True)
        )
        (stored, rows), (wanted, columns) = (
            np.unique(like[states], axis=1, return_inverse=True) for states in (written, read)
        )
        pairs = stored[:, :, None] * len(names) + wanted[:, None]
        levels = np.arange(len(sizes))[:, None, None]
        parts = np.array(sizes, exact_dtype(prod(sizes)))[:, None, None]
        marks = (step.marks(edge, *pair) for pair in itertools.product(names, repeat=2))
        *multiplied, reduced = (np.array(mark)[pairs] for mark in zip(*marks, strict=True))
        repeats, gathers, changes, copied = (np.where(mark, parts, 1) for mark in multiplied)
        digits = [levels, repeats.prod(axis=0) - 1, gathers.cumprod(axis=0) // gathers - 1]
        if self.plan.groups:  # parts of H1 have shares by a tensor's layout there
            digits.append(pairs[:1])
        if self.plan.joins_levels:
            bits = 1 << stored[:, :, None] | 1 << wanted[:, None]
            digits.append(np.bitwise_or.reduce(np.where(changes > 1, bits, 0), axis=0))
            digits += [changes.cumprod(axis=0) - 1, changes.prod(axis=0) - 1]
        at = rows.reshape(-1, 1), columns.reshape(-1)
        numbers = _numbered(digits)[:, *at] * len(names) ** 2
        numbers = numbers + written[:, :, None] * len(names) + read[:, None]
        if reduced.any():  # sums over all levels are one
            sums = _numbered([(reduced << levels).sum(axis=0)[None], copied.prod(axis=0)[None] - 1])
            numbers = np.concatenate([numbers, 1 + numbers.max(initial=0) + sums[:, *at]])
        examples = np.full(1 + numbers.max(initial=0), -1)
        examples[numbers.ravel()] = np.arange(numbers.size)
        operations = []
        for kind in np.flatnonzero(examples >= 0).tolist():
            row, source, target = np.unravel_index(examples[kind], numbers.shape)
            ops = step.boundary(edge, sources[source], targets[target])
            row_of = ((op, op.level if op.joins is None else len(sizes)) for op in ops)
            operations.append((kind, tuple(op for op, level in row_of if level == row)))
        return numbers, operations


def _numbered(digits: Sequence[Integers]) -> NDArray[np.intp]:
    """Return consecutive numbers for combinations of digits that are not negative."""
    radices = [1 + int(digit.max(initial=0)) for digit in digits]
    dtype = exact_dtype(prod(radices))
    number: Integers = np.zeros(1, dtype)
    for digit, radix in zip(digits, radices, strict=True):
        number = number * dtype(radix) + digit.astype(dtype)
    return np.unique(number, return_inverse=True)[1].reshape(number.shape)


class Bytes(Fold):
    """Bytes, weighted by the cost of a byte at each level."""

    def __init__(self, plan: Plan, graph: PlanGraph) -> None:
        unit = "weighted bytes" if plan.level_weights else "bytes"
        if plan.cost.unit != unit:
            raise CheckFailedError(f"cost, unit: should be {unit!r}, got {plan.cost.unit!r}")
        super().__init__(plan, graph)
        # A charge is a quarter of an element: a byte, or half or a quarter of one.
        self.resolution = Fraction(plan.element_bytes, 4).denominator
        self._weights = plan.level_weights or (1,) * plan.levels

    def _charge(self, ops: Iterable[Transfer]) -> int:
        weighted = sum(op.amount * self._weights[op.level] for op in ops)
        # The division leaves no remainder.
        return weighted * self.plan.element_bytes * self.resolution // 4


class BytesOfGroups(Bytes):
    """Bytes of plans with unequal parts, in halves: the mean of what parts receive."""

    def __init__(self, plan: Plan, graph: PlanGraph) -> None:
        super().__init__(plan, graph)
        self.resolution *= 2
        self._parts = PartsOfH1(plan, waits=False)

    def _charge(self, ops: Iterable[Transfer]) -> int:
        totals: Counter[int] = Counter()
        for op in ops:
            totals[op.level] += sum(self._parts.received(op))
        return sum(_half_up(Fraction(2 * total, self._parts.count)) for total in totals.values())


class PartsOfH1:
    """The shares of H1's parts between groups of accelerators: a factor of what is received.

    Parameters
    ----------
    waits
        Whether, between more than two parts, each waits for the longest message of a round.
    """

    def __init__(self, plan: Plan, *, waits: bool) -> None:
        if plan.array is None or plan.cost.reading != "executed":
            raise CheckFailedError("cost, reading: groups of accelerators need executed")
        self._shares = plan.part_shares
        self.accelerators = plan.array.description.groups_of_parts
        self.count = len(self._shares)
        self._is_synchronous = waits and self.count > 2
        # A charge is a quarter of an element, or several where that is a whole number of bytes.
        self._scale = Fraction(plan.element_bytes, 4).numerator
        self._received = cache(self._receive)

    def indices(self, part: int, size: int) -> int:
        """Return how many of an axis's indices a part has."""
        return indices_by_share(size, self._shares)[part]

    def has(self, layout: str, part: int) -> Fraction:
        """Return a part's share of a tensor, scaled to n equal parts."""
        if layout in PART_WORDS:
            return Fraction(self.count * (PART_WORDS[layout] == part))
        share = Fraction(self.count * self._shares[part], sum(self._shares))
        return Fraction(1) if layout == WHOLE else share

    def received(self, op: Transfer) -> Sequence[int]:
        """Return what each part receives, scaled to equal parts."""
        return self._received(op._replace(joins=None, share=None))

    def _receive(self, op: Transfer) -> Sequence[int]:
        amount, parts = op.amount * self._scale, range(self.count)
        if op.level and op.top != WHOLE:
            return [_half_up(amount * self.has(op.top, part)) for part in parts]
        if op.between is not None and not op.level:
            had, wanted, quarters = op.between
            quarters *= self._scale * self.count
            shares = (self._across(had, wanted, part, op.phase) for part in parts)
            return [_half_up(quarters * share) for share in shares]
        if op.level or op.times.all_reduces or op.phase is Pass.GRADIENT:
            return [amount] * self.count
        if op.times.gathers and not self._is_synchronous:
            tensor = Fraction(amount, self.count - 1)
            return [_half_up(tensor * (self.count - self.has(PARTIAL, part))) for part in parts]
        return [_half_up(amount * self.has(PARTIAL, part)) for part in parts]

    def _across(self, written: str, read: str, part: int, step: Pass) -> Fraction:
        """Return what a part receives of a tensor across H1, or waits for."""
        forward = step is Pass.FORWARD
        had, has = (
            [self.has(layout, n) / self.count for n in range(self.count)]
            for layout in (written, read)
        )
        if read == WHOLE:
            return (
                1 - had[part]
                if forward and not self._is_synchronous
                else (self.count - 1) * had[part]
            )
        sent, wanted = (had, has) if forward else (has, had)
        if not self._is_synchronous:
            return wanted[part] * (1 - sent[part])
        # In round r each part sends to the r-th after it.
        longest = (
            max(share * wanted[(n + r) % self.count] for n, share in enumerate(sent))
            for r in range(1, self.count)
        )
        return sum(longest, Fraction())


def _half_up(amount: Fraction) -> int:
    """Return the nearest integer, rounded like the search's charges, with which it has to agree."""
    return (2 * amount.numerator + amount.denominator) // (2 * amount.denominator)


class Rate(NamedTuple):
    """The charge of an exchange per unit of its amount, and per message."""

    per_amount: Fraction
    per_message: Fraction = Fraction()

    def charge(
        self, amount: int, messages: int = 1, share: Share | None = None, unshared: int = 0
    ) -> int:
        """Return the charge of an exchange with its latency, or a share of a whole number.

        Without an amount there is no message.

        Parameters
        ----------
        unshared
            The number of messages whose latency is not shared.
        """
        if not amount:
            return 0
        if share is None:
            return _half_up(amount * self.per_amount + (messages + unshared) * self.per_message)
        latency = _half_up(self.per_message)
        begin, end = (math.floor(latency * fraction) for fraction in share)
        return _half_up(amount * self.per_amount) + messages * (end - begin) + unshared * latency


class ArrayFold(Fold):
    """Charges on a plan's array, as integers of a part of a second or joule."""

    UNITS: ClassVar[str]

    def __init__(
        self, plan: Plan, graph: PlanGraph, chosen: Sequence[State] = (), *, pads: bool = False
    ) -> None:
        per_unit = {prefix + self.UNITS: parts for prefix, parts in PREFIXES.items()}
        if plan.cost.unit not in per_unit:
            unit = plan.cost.unit
            raise CheckFailedError(f"cost, unit: should be one of {self.UNITS}, got {unit!r}")
        if plan.array is None or plan.placement is None or plan.level_weights:
            kind = plan.cost.kind
            raise CheckFailedError(f"cost, kind: {kind!r} goes with an array, unweighted")
        super().__init__(plan, graph, chosen, pads=pads)
        self.array, self.placement = plan.array.description, plan.placement
        self.per_unit = per_unit[plan.cost.unit]
        self.around_rings = self.array.collective != "pairwise"
        self.dimensions = self.array.dimensions_of(plan.placement)

    def joins_levels(self, node: int, state: State) -> bool:
        _, passes = self._by_pass(self.step.node(node, state))
        stages = (stage for ops in passes for stage in self._stages({op.level for op in ops}))
        return any(len(stage) > 1 for stage in stages)

    @staticmethod
    def _by_pass(ops: Iterable[Transfer]) -> tuple[list[Transfer], list[list[Transfer]]]:
        """Return the exchanges between pairs, and the joined reductions of each pass."""
        pairs: list[Transfer] = []
        passes: defaultdict[object, list[Transfer]] = defaultdict(list)
        for op in ops:
            (pairs if op.joins is None else passes[op.phase, op.joins]).append(op)
        return pairs, [*passes.values()]

    def _stages(self, levels: Iterable[int]) -> list[tuple[int, ...]]:
        """Return the levels of each stage of a reduction, one after the other.

        Between pairs each level is one; around rings all levels are, or, hierarchical, each run of
        levels of a dimension of the hardware.
        """
        stages: Sequence[int] = range(self.plan.levels)
        if self.around_rings:
            hierarchical = self.array.collective == "hierarchical"
            stages = self.dimensions if hierarchical else [0] * self.plan.levels
        return [tuple(run) for _, run in groupby(sorted(levels), stages.__getitem__)]

    def _ring(self, levels: Sequence[int], among: range | None = None) -> BisectionLink:
        """Return the link of a stage's rounds, with the latency of all rounds.

        There are n - 1 around n accelerators. On a torus or mesh each dimension has a ring.

        Parameters
        ----------
        among
            The participating accelerators, if not all.
        """
        network = self.array.interconnect
        at_once = self.array.collective == "ring" and self.array.topology.grid() is not None
        rings: dict[int, list[int]] = {}
        for level in levels:
            ring = self.dimensions[level] if at_once else 0
            rings.setdefault(ring, []).append(self.placement[level])
        return network.link(network.around(rings.values(), at_once=at_once), among)


class Time(ArrayFold):
    """Seconds of a step in which nothing overlaps: exchanges and, at the last level, compute.

    An exchange takes its bytes over the level's bandwidth, and a latency for each message, n - 1
    between n parts. An all-reduce reduce-scatters and then all-gathers, so that it crosses each of
    its levels twice, the topmost once where that has two parts; around a ring of n it takes 2(n -
    1) messages, of all levels at which the layer makes the choice at once. A reduce-scatter or
    all-gather is half of that. With sharded gradients the reduce-scatters share a bucket's latency,
    and weights are gathered layer by layer. On groups of accelerators the slowest part counts in
    each exchange and pass.
    """

    UNITS = "seconds"
    rounds_together: ClassVar[bool] = True
    """Whether equal passes that run once are rounded together."""

    def __init__(self, plan: Plan, graph: PlanGraph, chosen: Sequence[State] = ()) -> None:
        super().__init__(plan, graph, chosen, pads=plan.step_model.by_largest_shard)
        self._parts = PartsOfH1(plan, waits=True) if plan.groups else None
        self._members = self.array.members if plan.groups else (None,)
        self._bytes = Fraction(plan.element_bytes, 4)
        if plan.groups:
            self._bytes = 1 / Fraction(self._bytes.denominator)
        self._between_pairs, self._around = cache(self._rate_of_pairs), cache(self._rate_of_ring)
        self._kernel_rates = cache(self._rates_of_kernels)

    def for_plan(self, chosen: Sequence[State]) -> Time:
        """Return one plan's charges: gradients reduced over the same levels share latencies."""
        return Time(self.plan, self.step.graph, chosen)

    def node(self, node: int, state: State) -> int:
        """Return a node's charge in a state; that of a message between stages is for all levels."""
        context, graph = self.plan.stage, self.step.graph
        link = context and context.links.get(graph.nodes[node].name)
        charge = super().node(node, state)
        if not link or node < graph.shared or len(state) < self.plan.levels:
            return charge
        return charge + self._charge_message(node, state, link)

    def _charge_message(self, node: int, state: State, link: BisectionLink) -> int:
        """Return the charge of a tensor that a stage receives, or sends, and of its error.

        Accelerators send what they store: whole copies, or a part of each copy, which receivers
        gather from the topmost level down; whichever takes less.
        """
        layer, times = self.step.graph.nodes[node], len(self.step.passes[:2])
        size = layer.pooled * self.plan.element_bytes
        copies, gathers = 1, 0
        for level, choice in enumerate(state):
            if choice in layer.whole:
                parts = self.hierarchy.sizes[level]
                split = self.array.interconnect.bisection(self.placement[level])
                moved = size * copies * (parts - 1)
                gathers += _half_up(moved * split.seconds_per_byte * self.per_unit)
                gathers += _half_up((parts - 1) * split.latency * self.per_unit)
                copies *= parts
        whole, shared_out = (
            _half_up(sent * link.seconds_per_byte * self.per_unit) for sent in (size * copies, size)
        )
        once = min(whole, shared_out + gathers) + _half_up(link.latency * self.per_unit)
        return times * (self.plan.training.micro_batches or 1) * once

    def _rate(self, link: BisectionLink) -> Rate:
        per_amount = link.seconds_per_byte * self._bytes
        return Rate(per_amount * self.per_unit, link.latency * self.per_unit)

    def _rate_of_pairs(self, level: int, part: int) -> Rate:
        link = self.array.interconnect.bisection(self.placement[level], self._among([level], part))
        return self._rate(link)

    def _rate_of_ring(self, levels: Sequence[int], part: int) -> Rate:
        return self._rate(self._ring(levels, self._among(levels, part)))

    def _among(self, levels: Sequence[int], part: int) -> range | None:
        """Return the accelerators whose messages share links; below H1 a part's own."""
        return self._members[part] if 0 not in levels else None

    def _received(self, op: Transfer) -> Sequence[int]:
        return self._parts.received(op) if self._parts else (op.amount,)

    def _charge(self, ops: Iterable[Transfer]) -> int:
        pairs, passes = self._by_pass(ops)
        total = 0
        for op in pairs:
            messages = op.times.exchanges * (self.hierarchy.sizes[op.level] - 1)
            total += op.weight * max(
                self._between_pairs(op.level, part).charge(amount, messages)
                for part, amount in enumerate(self._received(op))
            )
        return total + sum(ops[0].weight * self._charge_pass(ops) for ops in passes)

    def _charge_pass(self, ops: Sequence[Transfer]) -> int:
        """Return the charge of the reductions of one pass: of the slowest part in each stage."""
        times, share = max(op.times for op in ops), ops[0].share
        moved: list[Counter[int]] = [Counter() for _ in self._members]
        for op in ops:
            for received, amount in zip(moved, self._received(op), strict=True):
                received[op.level] += amount
        charged = [
            dict(self._charge_stages(+received, times, share, part))
            for part, received in enumerate(moved)
        ]
        return sum(
            max(sum(charges.get(level, 0) for level in stage) for charges in charged)
            for stage in self._stages(range(self.plan.levels))
        )

    def _charge_stages(
        self, levels: Counter[int], times: Times, share: Share | None, part: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the topmost level of each stage of a reduction, and its charge."""
        all_reduces, scatters, gathers, _ = times
        for stage in self._stages(levels):
            level, amount = stage[0], sum(levels[n] for n in stage)
            if self.around_rings:
                rate = self._around(stage, part)
                yield level, rate.charge(amount, 2 * all_reduces + scatters, share, gathers)
                continue
            rounds = self.hierarchy.sizes[level] - 1
            # Between the two parts of the topmost level halving and doubling are one exchange.
            reducing = 1 if level == min(levels) and rounds == 1 else 2 * rounds
            messages, alone = reducing * all_reduces + rounds * scatters, rounds * gathers
            yield level, self._between_pairs(level, part).charge(amount, messages, share, alone)

    def _local(self, node: int, state: State) -> int:
        """Return the time of a layer's passes on an accelerator: compute, or DRAM if slower.

        The DRAM's time depends on the final shards, which are unknown before the last level;
        between groups H1 gives a lower bound.
        """
        if len(state) < self.plan.levels:
            if not state or self._parts is None:
                return 0
            state = state[:1]
        if self._parts is None:
            return sum(self._seconds_of(self.array.accelerator, node, self.step.work(node, state)))
        layout, by_part = self.step.layout_at_h1(node, state), []
        for part, accelerator in enumerate(self._parts.accelerators):
            alone = int(self._parts.has(layout, part)) if layout in PART_WORDS else 1
            at_h1 = partial(self._parts.indices, part)
            work = self.step.work(node, state, at_h1).scaled(alone)
            by_part.append(self._seconds_of(accelerator, node, work))
        # All parts wait for the slowest in each pass.
        return sum(map(max, zip(*by_part, strict=True)))

    def _seconds_of(self, accelerator: Accelerator, node: int, work: LayerWork) -> list[int]:
        """Return the charges of a layer's passes on accelerators of one kind.

        Parameters
        ----------
        work
            The work of the whole array, as if it had only these accelerators.
        """
        layer, passes = self.step.graph.nodes[node], self.step.passes_of(node)
        if accelerator.gemm is not None:
            return self._by_kernels(accelerator, node, work)
        rate = accelerator.macs_per_second(layer.kernel_rows, layer.output_rows)
        loading = sum(work.words) * self.plan.element_bytes / accelerator.dram_bandwidth
        # Both are for the whole array's work, so both are divided by its accelerators.
        seconds = max(work.macs / rate, loading) / self.plan.accelerators
        if self.rounds_together and self.step.counts.computes_once:
            return [_half_up(seconds * len(passes) * self.per_unit)]
        return [times * _half_up(seconds * self.per_unit) for times in passes]

    def _by_kernels(self, accelerator: Accelerator, node: int, work: LayerWork) -> list[int]:
        """Return the times of a layer's passes, one kernel after the other, and of an update."""
        layer, passes = self.step.graph.nodes[node], self.step.passes_of(node)
        launch, achieved = accelerator.launch or Fraction(), accelerator.gemm
        if accelerator.attention != "unfused" and layer.inner > 0 and accelerator.flash:
            achieved = accelerator.flash
        elif layer.is_convolution and accelerator.conv:
            achieved = accelerator.conv
        per_operation, per_word, per_update = self._kernel_rates(accelerator, achieved)
        weights, *activations = work.words
        charges = [_half_up(work.updated * per_update)]
        for kernels, times in zip(layer.kernels, passes, strict=False):
            maps = sum(activations)
            read = (weights + maps) * bool(kernels.products) + kernels.scores * work.inner
            computing = 2 * kernels.products * work.macs
            kernel_charge = max(_half_up(read * per_word), _half_up(computing * per_operation))
            passing = kernels.io * maps + kernels.output * activations[-1]
            kernel_charge += _half_up((passing + kernels.inner * work.inner) * per_word / 4)
            kernel_charge += _half_up(kernels.launches * launch * self.per_unit)
            charges.append(times * kernel_charge)
        if times := self.step.counts.epilogues[node]:  # an activation, and no product before it
            forward = layer.kernels[0]
            kernel_charge = _half_up(forward.output * activations[-1] * per_word / 4)
            kernel_charge += _half_up(max(forward.launches - 1, 0) * launch * self.per_unit)
            charges.append(times * kernel_charge)
        return charges

    def _rates_of_kernels(
        self, accelerator: Accelerator, achieved: float | None
    ) -> tuple[Fraction, Fraction, Fraction]:
        """Return the charges of an operation, a word and an update, on all accelerators at once.

        Parameters
        ----------
        achieved
            The fraction of the peak that products achieve.
        """
        elementwise = Fraction(str(accelerator.elementwise or 1))
        peak = accelerator.units * accelerator.operations * Fraction(str(achieved))
        per_unit = Fraction(self.per_unit, self.plan.accelerators)
        per_byte = per_unit / (accelerator.dram_bandwidth * elementwise)
        updating = accelerator.updated_by(self.plan.constraints.optimizer).update or Fraction()
        return per_unit / peak, self.plan.element_bytes * per_byte, updating * per_byte


class StepOfPart(PlanStep):
    """The operations of a part of a step, whose gradients share latencies with those of others."""

    def _shares_of_latency(self, chosen: Sequence[State]) -> list[dict[str, Share]]:
        nothing = Fraction(), Fraction()
        return [dict.fromkeys(shares, nothing) for shares in super()._shares_of_latency(chosen)]


class TimeOfPart(Time):
    """A lower bound on the seconds that a part of a pipeline stage adds to the stage's.

    Its messages may belong to another part, and so cost nothing.
    """

    def _operations(
        self, plan: Plan, graph: PlanGraph, chosen: Sequence[State], *, pads: bool
    ) -> PlanStep:
        return StepOfPart(plan, graph, chosen, pads=pads)

    def _is_message(self, node: int) -> bool:
        graph, context = self.step.graph, self.plan.stage
        return bool(context and graph.nodes[node].name in context.links and node >= graph.shared)

    def node(self, node: int, state: State) -> int:
        return 0 if self._is_message(node) else super().node(node, state)

    def edge(self, edge: int, sources: Sequence[State], targets: Sequence[State]) -> Integers:
        source, target, *_ = self.step.graph.edges[edge]
        if self._is_message(source) or self._is_message(target):
            nothing: Integers = np.zeros((len(sources), len(targets)), np.int64)
            return nothing
        return super().edge(edge, sources, targets)


class Energy(ArrayFold):
    """Joules of a step: communicated words, accessed words, and multiply-accumulates.

    Each pass accesses each local tensor once, with all its copies in the array; a choice between n
    parts leaves n copies of one of W, A and F, and is charged what it adds. The words before any
    choice, and the multiply-accumulates, are charged with the first level.
    """

    UNITS = "joules"

    def __init__(self, plan: Plan, graph: PlanGraph) -> None:
        super().__init__(plan, graph)
        energy, interconnect = self.array.energies, self.array.interconnect
        # If links cost nothing, a ring charges what pairs charge.
        self.around_rings = self.around_rings and energy.hop > 0
        hops = (interconnect.bisection(digit).hops for digit in self.placement)
        self._between_pairs = [self._over(energy.remote + energy.hop * count) for count in hops]
        words = Fraction(plan.element_bytes, WORD_BYTES)
        self._access = Rate(words * energy.dram * self.per_unit)

    def _over(self, joules_per_word: Fraction) -> Rate:
        words = Fraction(self.plan.element_bytes, 4 * WORD_BYTES)
        return Rate(words * joules_per_word * self.per_unit)

    def _charge(self, ops: Iterable[Transfer]) -> int:
        pairs, passes = self._by_pass(ops)
        exchanged, reduced = Counter[int](), Counter[int]()
        by_ring = Counter[tuple[frozenset[int], tuple[int, ...]]]()
        for op in pairs:
            exchanged[op.level] += op.amount
        for joined in passes:
            levels = Counter[int]()
            for op in joined:
                levels[op.level] += op.amount
            reduced.update(levels)
            for ring in self._stages(levels):
                # The words of passes over the same levels are rounded together.
                by_ring[frozenset(levels), ring] += sum(levels[n] for n in ring)
        rates = self._between_pairs
        total = sum(rates[level].charge(amount) for level, amount in exchanged.items())
        if not self.around_rings:
            return total + sum(rates[level].charge(moved) for level, moved in reduced.items())
        energy = self.array.energies
        # Remote access is charged at each level, whatever links its words cross around a ring.
        total += sum(map(self._over(energy.remote).charge, reduced.values()))
        for (_, ring), moved in by_ring.items():
            total += self._over(energy.hop * self._ring(ring).hops).charge(moved)
        return total

    def _local(self, node: int, state: State) -> int:
        if not state:
            return 0
        energy, prefixes = self.array.energies, range(len(state) + 1)
        times, macs = sum(self.step.passes_of(node)), self.step.work(node, ()).macs
        total = _half_up(times * macs * (energy.mac + energy.sram) * self.per_unit)
        words = [self.step.words(node, state[:length]) for length in prefixes]
        for above, below in pairwise(words):
            # Each part accesses a tensor that a choice replicates: its words are added again.
            pairs = zip(above, below, strict=True)
            total += sum(self._access.charge(times * (more - less)) for less, more in pairs)
        return total + self._access.charge(times * sum(words[0]))
