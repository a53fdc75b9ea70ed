"""The charges of a plan whose array has groups of accelerators, part by part of H1.

Shares are exact fractions here, and each state and pair of states is charged by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.charges import Bytes
from hypar_opt.proofs.reference.physical import LayerWork, Time
from hypar_opt.proofs.reference.plan_graph import of_longest
from hypar_opt.proofs.reference.repetitions import Pass
from hypar_opt.workload.parallelism import SIDES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.integers import Integers
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.reference.buckets import Share
    from hypar_opt.proofs.reference.conversions import EdgeConversion
    from hypar_opt.proofs.reference.exchanges import Exchanges
    from hypar_opt.proofs.reference.plan_graph import PlanNode, State
    from hypar_opt.proofs.reference.reductions import Often, Reduction

Amounts = list[dict[int, int]]
"""Of each part of H1, by level, as if all parts had as much."""

ChargeOfLevel = Callable[[int, Sequence[tuple[int, Sequence[int]]]], int]
"""Returns a level's charge of passes: how often each moves a tensor, and its amounts by part."""


def _half_up(amount: Fraction) -> int:
    return math.floor(amount + Fraction(1, 2))


class _Reduced(NamedTuple):
    """What the parts of H1 reduce in one pass."""

    amounts: Amounts
    often: Often
    latency: Share | None


class Groups:
    """The shares of H1's parts, and what each part exchanges.

    Parameters
    ----------
    waits
        Whether between more than two parts each waits for the longest message of a round.
    """

    def __init__(self, plan: Plan, *, waits: bool) -> None:
        if plan.array is None or plan.cost.reading != "executed":
            raise CheckFailedError("cost, reading: groups of accelerators have a run's, executed")
        self._sizes = plan.hierarchy.sizes
        stated = plan.share
        counts = [group.count for group in plan.groups]
        if stated is None:
            of_groups = [Fraction(own, sum(counts)) for own in counts]
        elif isinstance(stated, float):
            of_groups = [Fraction(str(stated)), 1 - Fraction(str(stated))]
        else:
            of_groups = [Fraction(str(own)) for own in stated]
        each = plan.accelerators // self._sizes[0]
        divided = [
            (share / (group.count // each), group)
            for share, group in zip(of_groups, plan.groups, strict=True)
            for _ in range(group.count // each)
        ]
        self.shares = [share for share, _ in divided]
        self.accelerators = [group for _, group in divided]
        self.count = len(divided)
        self._waits = waits and self.count > 2
        self._moved = cache(lambda edge, size: edge.moved(size))
        # A charge is a quarter of an element, or several where that is a whole number of bytes.
        self._scale = Fraction(plan.element_bytes, 4).numerator

    def indices(self, part: int, size: int) -> int:
        """Return how many of an axis's indices a part has: where its share ends, rounded."""
        before = sum(self.shares[:part], Fraction())
        return round(size * (before + self.shares[part])) - round(size * before)

    @staticmethod
    def layout_at_h1(node: PlanNode, state: State) -> str:
        """Return the layout of a node's output at H1."""
        split = node.own.get(state[0])
        return split.output if split else "batch"

    def of_layout(self, layout: str, part: int) -> Fraction:
        """Return what a part has of a tensor, as if all had as much: n times its share."""
        if layout in SIDES:
            return Fraction(self.count * (SIDES.index(layout) == part))
        return Fraction(1) if layout == "whole" else self.count * self.shares[part]

    def reduced(self, exchanges: Exchanges, node: int, state: State) -> list[_Reduced]:
        """Return what a node reduces in each pass."""
        if not state:
            return []
        passes: dict[tuple[Pass, frozenset[int] | None], _Reduced] = {}
        layout = self.layout_at_h1(exchanges.graph.nodes[node], state)
        levels = [*zip(state, self._sizes, strict=False)]
        for one in exchanges.reductions[node]:
            here = {level for level, (choice, _) in enumerate(levels) if choice in one.choices}
            if not here & (here if one.levels is None else one.levels):
                continue
            own = passes.setdefault(
                (one.step, one.levels),
                _Reduced([{} for _ in self.shares], one.often, one.latency),
            )
            for part, amounts in enumerate(own.amounts):
                for level, amount in self._levels_of(one, layout, levels, part):
                    if one.takes_place(level):
                        amounts[level] = amounts.get(level, 0) + amount
        return list(passes.values())

    def _levels_of(
        self, one: Reduction, layout: str, levels: Sequence[tuple[int, int]], part: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the levels at which one tensor is reduced, with a part's amounts."""
        top, size = levels[0]
        amount = one.quarters * self._scale
        amount *= math.prod(own for choice, own in levels[1:] if choice in one.repeating)
        if top in one.choices:
            if one.often.all_reduces or one.step is Pass.GRADIENT:
                yield 0, amount * (size - 1)
            elif one.often.gathers and not self._waits:
                yield 0, _half_up(amount * (size - self.of_layout("", part)))
            else:
                yield 0, _half_up(amount * (size - 1) * self.of_layout("", part))
        everywhere = top in one.choices or top in one.repeating
        for level, (choice, own) in enumerate(levels[1:], 1):
            if choice in one.choices:
                moved = amount * (own - 1)
                has = self.of_layout(layout, part)
                yield level, moved * size if everywhere else _half_up(moved * has)
                amount *= own

    def of_pairs(
        self,
        edge: EdgeConversion,
        sources: Sequence[State],
        targets: Sequence[State],
        charge: ChargeOfLevel,
    ) -> Integers:
        """Return the charge of what is moved for each pair of states: ``(sources, targets)``.

        Pairs that make the same choices at a level and at H1, and move as many copies there, are
        charged as much for that level: one of them is charged, for all.
        """
        charges: Integers = np.zeros((len(sources), len(targets)), object)
        levels = len(sources[0]) if len(sources) else 0
        made, needed = (
            np.array(states, np.intp).reshape(len(states), levels).T
            for states in (sources, targets)
        )
        for level in range(levels):
            copies = self._copies(edge, made, needed, level)
            alike = np.zeros(copies.shape, np.int64)
            ends = made[0][:, None], needed[0], made[level][:, None], needed[level], copies
            for own in ends:
                _, numbers = np.unique(own, return_inverse=True)
                alike = alike * (1 + numbers.max()) + numbers.reshape(own.shape)
            _, first, which = np.unique(alike, return_index=True, return_inverse=True)
            of_kinds = []
            for source, target in zip(*np.unravel_index(first, alike.shape), strict=True):
                asked = sources[source], targets[target], level, int(copies[source, target])
                of_kinds.append(charge(level, self._converted(edge, *asked)))
            charges += np.array(of_kinds, object)[which.reshape(alike.shape)]
        return charges

    def _converted(
        self, edge: EdgeConversion, source: State, target: State, level: int, copies: int
    ) -> list[tuple[int, list[int]]]:
        """Return how often each pass moves a tensor at a level, and its amounts, part by part."""
        written, read = (
            [layouts[choice] for choice in state]
            for layouts, state in ((edge.written, source), (edge.read, target))
        )
        size, every = self._sizes[level], range(self.count)
        passes = []
        for number, (step, times) in enumerate(edge.passes):
            if step is Pass.GRADIENT:
                continue
            if level:
                moved = self._moved(edge, size)[source[level]][target[level]][number]
                moved *= copies * self._scale
                amounts = [self._below(moved, written, read, level, part) for part in every]
            else:
                whole = 4 * edge.tensor.elements * times * copies * self._scale * self.count
                has = (self._between(written[0], read[0], part, step) for part in every)
                amounts = [_half_up(whole * own) for own in has]
            passes.append((times, amounts))
        return passes

    def _copies(
        self,
        edge: EdgeConversion,
        sources: NDArray[np.intp],
        targets: NDArray[np.intp],
        level: int,
    ) -> Integers:
        """Return the copies of a tensor, below H1, that are moved at a level, for pairs of states.

        What is read whole is gathered after all else, from the topmost level down.
        """
        stored = (np.array(edge.written) == "whole")[sources][:, :, None]
        wanted = (np.array(edge.read) == "whole")[targets][:, None]
        copies: Integers = np.ones((sources.shape[1], targets.shape[1]), object)
        for other in range(1, len(sources)):
            repeated = stored[other] & wanted[other]
            if other < level:
                repeated = repeated | (wanted[other] & wanted[level])
            if other != level:
                copies = copies * np.where(repeated, self._sizes[other], 1)
        return copies

    def _below(
        self, amount: int, written: Sequence[str], read: Sequence[str], level: int, part: int
    ) -> int:
        """Return a part's amount below H1, which has copied the tensor, or has divided it."""
        is_read_whole = read[0] == "whole"
        kept = written[0] == "whole" and is_read_whole
        if is_read_whole if read[level] == "whole" else kept:
            return self.count * amount
        return _half_up(amount * self.of_layout(written[0] if is_read_whole else read[0], part))

    def _between(self, written: str, read: str, part: int, step: Pass) -> Fraction:
        """Return what a part receives at H1 of a tensor, or waits for."""
        if written in ("whole", read) or read == "partial":
            return Fraction()
        if written == "partial" and read != "whole" and read not in SIDES:
            return Fraction()
        forward, others = step is Pass.FORWARD, self.count - 1
        had = [self.of_layout(written, n) / self.count for n in range(self.count)]
        if read == "whole":
            return 1 - had[part] if forward and not self._waits else others * had[part]
        has = [self.of_layout(read, n) / self.count for n in range(self.count)]
        sent, kept = (had, has) if forward else (has, had)
        if not self._waits:
            return kept[part] * (1 - sent[part])
        # In round r each part sends to the r-th after it.
        every = range(self.count)
        return sum(
            (max(sent[n] * kept[(n + r) % self.count] for n in every) for r in every[1:]),
            Fraction(),
        )


class BytesOfGroups(Bytes):
    """Bytes of plans with unequal parts, in halves: of what all parts receive the mean."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.resolution *= 2
        self._groups = Groups(plan, waits=False)

    def _charge_node(self, node: int, state: State) -> int:
        reduced = self._groups.reduced(self.exchanges, node, state)
        totals: Counter[int] = Counter()
        for each in reduced:
            for amounts in each.amounts:
                totals.update(amounts)
        return sum(map(self._twice_the_mean, totals.values()))

    def _charge_edge(
        self, conversion: EdgeConversion, sources: tuple[State, ...], targets: tuple[State, ...]
    ) -> Integers:
        return self._groups.of_pairs(conversion, sources, targets, self._of_level)

    def _of_level(self, level: int, passes: Sequence[tuple[int, Sequence[int]]]) -> int:  # noqa: ARG002
        return self._twice_the_mean(sum(sum(amounts) for _, amounts in passes))

    def _twice_the_mean(self, total: int) -> int:
        """Return twice the mean over parts of a level's amounts, rounded half up."""
        return _half_up(Fraction(2 * total, self._groups.count))


class TimeOfGroups(Time):
    """Seconds of a step on groups of accelerators: the slowest part's of each exchange and pass."""

    def __init__(self, plan: Plan, chosen: Sequence[State] = ()) -> None:
        super().__init__(plan, chosen)
        self._groups = Groups(plan, waits=True)
        self._rates = cache(lambda level, part: self._rate(self._link(level, part)))
        self.amount_bytes = 1 / Fraction(Fraction(plan.element_bytes, 4).denominator)
        each = plan.accelerators // self._groups.count
        self._members = [range(n * each, (n + 1) * each) for n in range(self._groups.count)]

    def _link(self, level: int, part: int) -> BisectionLink:
        """Return the link of a part between pairs: below H1 its own."""
        own = self._members[part] if level else None
        return self.array.interconnect.bisection(self.placement[level], own)

    def _ring_of(self, levels: Sequence[int], part: int) -> BisectionLink:
        """Return the link of a stage's rounds around rings; below H1 those of a part."""
        network, own = self.array.interconnect, self._members[part] if 0 not in levels else None
        rings: dict[int, list[int]] = {}
        at_once = self.array.collective == "ring" and self.array.topology.grid() is not None
        for level in levels:
            ring = self.dimensions[level] if at_once else 0
            rings.setdefault(ring, []).append(self.placement[level])
        return network.link(network.around(rings.values(), at_once=at_once), own)

    def _charge_node(self, node: int, state: State) -> int:
        runs: list[tuple[int, ...]] = [(n,) for n in range(len(state))]
        if self.around_rings:
            runs = self._stages(range(len(state)))
        total = 0
        for reduced in self._groups.reduced(self.exchanges, node, state):
            by_part = [self._of_part(reduced, part) for part in range(self._groups.count)]
            total += sum(
                max(sum(charges.get(level, 0) for level in run) for charges in by_part)
                for run in runs
            )
        return total + self._local(node, state)

    def _of_part(self, reduced: _Reduced, part: int) -> dict[int, int]:
        """Return what a part is charged in a pass, by level: a stage's at its topmost one."""
        levels = {level: own for level, own in reduced.amounts[part].items() if own}
        all_reduces, scatters, gathers = reduced.often
        charges = {}
        if self.around_rings:
            for stage in self._stages(levels) if levels else ():
                amount = sum(map(levels.__getitem__, stage))
                rate = self._rate(self._ring_of(stage, part))
                messages = 2 * all_reduces + scatters
                charges[stage[0]] = rate.charge(amount, messages, reduced.latency, gathers)
            return charges
        for level, amount in levels.items():
            rounds = self.hierarchy.sizes[level] - 1
            both = 1 if level == min(levels) and rounds == 1 else 2 * rounds
            messages, alone = both * all_reduces + rounds * scatters, rounds * gathers
            charges[level] = self._rates(level, part).charge(
                amount, messages, reduced.latency, alone
            )
        return charges

    def _charge_edge(
        self, conversion: EdgeConversion, sources: tuple[State, ...], targets: tuple[State, ...]
    ) -> Integers:
        return self._groups.of_pairs(conversion, sources, targets, self._slowest)

    @cached_property
    def _skips_what_is_hidden(self) -> bool:
        return False  # where a share of tokens begins is not known

    def _slowest(self, level: int, passes: Sequence[tuple[int, Sequence[int]]]) -> int:
        """Return what the slowest part takes of each pass at a level, between pairs."""
        rounds = self.hierarchy.sizes[level] - 1
        return sum(
            max(
                self._rates(level, part).charge(amount, times * rounds)
                for part, amount in enumerate(amounts)
            )
            for times, amounts in passes
        )

    def _local(self, node: int, state: State) -> int:
        """Return the time of a layer's passes in the slowest part.

        Until all levels are known H1 says what it is at least.
        """
        if not state:
            return 0
        if len(state) < self.plan.levels:
            state = state[:1]
        layer, passes = self.exchanges.graph.nodes[node], self.exchanges.passes(node)[: self.passes]
        layout, copies = (
            self._groups.layout_at_h1(layer, state),
            layer.copies(state, self.hierarchy),
        )
        by_part = []
        for part, accelerator in enumerate(self._groups.accelerators):
            if layout in SIDES and SIDES.index(layout) != part:
                work = LayerWork([0] * len(layer.tensors), 0, 0, 0)
            else:
                work = self._work(node, state, partial(self._groups.indices, part))
                # What weights' copies update is shared out after it is rounded.
                uneven = self._uneven(
                    layer, state, layer.copied[0], partial(self._groups.indices, part)
                )
                kept = of_longest(layer.stored * copies[0], uneven) // work.sharing
                times = self._groups.count if layout in SIDES else 1
                work = LayerWork(
                    [times * own for own in work.accessed],
                    times * kept,
                    times * work.macs,
                    times * work.inner,
                )
            by_part.append(self._seconds_of(accelerator, layer, work, passes))
        # All parts wait for the slowest in each pass.
        return sum(map(max, zip(*by_part, strict=True)))
