"""A step's operations, derived a second time: of a node in a state, a boundary between two.

All amounts are of all accelerators together, and count quarters of an element, as the paper's
tables do. Where the levels above have split a layer into d parts by data, m by model and o by
output parallelism, there are W * d of its weights, F * m of its output and A * o of its input; in t
parts by tokens, W * t, and the keys and values of attention t times. Between n parts a
reduce-scatter or an all-gather moves n - 1 times as much, an all-reduce twice that, and an
all-to-all moves all except what each part keeps.

Source: docs/model.md; docs/decisions/0005-joint-optimum.md.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.check.nodes import (
    PARTS,
    PlanEdge,
    PlanGraph,
    PlanNode,
    State,
    copies_in,
)
from hypar_opt.proofs.check.training import Pass, counts_of
from hypar_opt.workload.operators.axes import (
    BY_BATCH,
    BY_CHANNEL,
    BY_SHUFFLED_CHANNEL,
    PARTIAL,
    WHOLE,
)
from hypar_opt.workload.parallelism import PART_WORDS

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.operators.maps import Load

Share = tuple[Fraction, Fraction]
"""Where a gradient's share of a latency begins and ends; both are rounded, so shares add up."""

LATENCY_UNITS = 2**16
"""The units into which a latency is divided."""


class Times(NamedTuple):
    """How often a tensor is all-reduced in a step, or the two halves of an all-reduce occur.

    Between n parts each half takes n - 1 messages, and so does an exchange between pairs.
    """

    all_reduces: int = 0
    scatters: int = 0
    gathers: int = 0
    exchanges: int = 0


class Transfer(NamedTuple):
    """The amount that all accelerators receive across a level in a step.

    Parameters
    ----------
    amount
        In quarters of an element.
    joins
        A key of reductions: those of one pass with equal keys, at all levels and for all tensors,
        are joined. None for an exchange between pairs.
    share
        Its share of a bucket's latency; None if it has a latency of its own.
    top
        The layout meanwhile of its tensor at H1; whole where all parts of H1 receive all of it.
    between
        Across H1 from one layout to another: both, and the quarters of the whole tensor.
    weight
        The factor of its charge.
    """

    phase: Pass
    level: int
    amount: int
    times: Times
    joins: str | None = None
    share: Share | None = None
    top: str = WHOLE
    between: tuple[str, str, int] | None = None
    weight: int = 1


class TensorEnd(NamedTuple):
    """A boundary's tensor at one of its ends, by choice.

    Parameters
    ----------
    layouts
        The layout of each choice, in which the tensor is written, or read.
    axes
        The choices that split one of its axes, with its size.
    """

    layouts: tuple[str, ...]
    axes: tuple[SplitAxis, ...]


class LayerWork(NamedTuple):
    """What a layer computes in each pass, including copies.

    Parameters
    ----------
    macs, inner
        Its multiply-accumulates, and the elements of the inner tensor.
    words
        Those of the weights, of each operand and of the output.
    updated
        The weights that it updates once a step.
    """

    macs: int
    inner: int
    words: Sequence[int]
    updated: int

    def scaled(self, factor: int) -> LayerWork:
        words = [factor * size for size in self.words]
        return LayerWork(factor * self.macs, factor * self.inner, words, factor * self.updated)


class ReadingFactors(NamedTuple):
    """The factors of a reading between two parts, in quarters of an element, both directions added.

    Parameters
    ----------
    gradient
        dW of a layer in data parallelism: an all-reduce.
    forward_sum, backward_sum
        The output of a layer in model parallelism: all-reduced forward, or, where it ``runs``,
        reduce-scattered before pooling forward, its error gathered backward.
    converted
        A boundary between a split by batch and one by channel, dp-mp say, on A: forward and
        backward. A run's is counted, index by index.
    behind_model
        A boundary behind partial sums, mp-mp and mp-dp, on A: backward.
    gathered
        A boundary from a split to an input that is read whole, on A: forward and backward.
    input_error
        An input that is read whole, backward: an all-reduce; 0 where it is reduce-scattered, as
        its boundary says. None if the reading has no charge for such a choice.
    of_network_input
        Whether ``input_error`` is charged for the network's first layer, too.
    runs
        Whether it is that of a run, which all-gathers a tensor after all other exchanges.

    Source: Tables 1 and 2, section 3.4; docs/model.md.
    """

    gradient: int
    forward_sum: int
    backward_sum: int
    converted: int
    behind_model: int
    gathered: tuple[int, int] = (2, 0)
    input_error: int | None = None
    of_network_input: bool = False
    runs: bool = False


_RUN = ReadingFactors(8, 4, 4, 2, 0, (4, 4), input_error=0, runs=True)

READINGS: Mapping[str, ReadingFactors] = MappingProxyType(
    {
        "tables": ReadingFactors(4, 4, 0, 1, 2, input_error=4, of_network_input=True),
        "text": ReadingFactors(8, 8, 0, 1, 2, input_error=8),
        "figures": ReadingFactors(8, 8, 0, 2, 0),
        "executed": _RUN,
        "joined": _RUN,
    }
)
"""The factors of each reading, as they are derived a second time."""


PaddedAxes = tuple[tuple[int, int], ...]
"""Of each axis that is divided unevenly: its size, and that of as many parts like the longest."""


class SplitAxis(NamedTuple):
    """An axis of a tensor: the choice that splits it, its size, and counts of tokens along it."""

    choice: int
    size: int
    load: Load = ()


SizeAtH1 = Callable[[int], int]
"""Returns how many indices of an axis of some size a part of H1 has."""


def padded(amount: int, axes: PaddedAxes) -> int:
    """Return an amount as if every part were as long as the longest, rounded up axis by axis."""
    for size, longest in axes:
        amount = -(-amount * longest // size)
    return amount


@lru_cache(maxsize=1024)
def _largest_unmasked(tokens: int, window: int, parts: int, *, mirrored: bool) -> tuple[int, int]:
    """Return the mean scores of parts of a sequence, and those of the part that has most.

    A token attends to those before it, within its window, and to half of itself.
    """

    def of_first(count: Fraction) -> Fraction:
        return count**2 / 2 if count < window else window * count - Fraction(window**2, 2)

    chunks = parts * 2 if mirrored else parts
    ends = [of_first(Fraction(tokens * end, chunks)) for end in range(chunks + 1)]
    seen = [after - before for before, after in pairwise(ends)]
    if mirrored:
        seen = [one + other for one, other in zip(seen[:parts], reversed(seen), strict=False)]
    maximum, mean = (parts * max(seen) / ends[-1]).as_integer_ratio()
    return mean, maximum


def padded_axes(
    axes: Iterable[SplitAxis],
    state: State,
    sizes: Sequence[int],
    at_h1: SizeAtH1 | None = None,
) -> PaddedAxes:
    """Return the axes that a state over all levels divides unevenly.

    Parameters
    ----------
    axes
        With their loads where these count.
    at_h1
        For a part of H1 between groups: its indices of an axis that H1 divides by shares.
    """
    uneven = []
    for choice, size, load in axes:
        levels = [level for level, chosen in enumerate(state) if chosen == choice]
        parts, divided = prod(sizes[level] for level in levels), size
        below = parts
        if at_h1 is not None and 0 in levels and size:
            divided, below = at_h1(size), parts // sizes[0]
        longest = -(-divided // below) * parts
        whole = size
        if load:
            fewest, more = divmod(size, parts)  # the first parts have one expert more
            experts = iter(load)
            tokens = [sum(itertools.islice(experts, fewest + (n < more))) for n in range(parts)]
            whole, longest = sum(tokens), max(tokens) * parts
        if longest != whole:
            uneven.append((whole, longest))
    return tuple(uneven)


class PlanStep:
    """The operations of a step: of all plans of a problem, or of one, given its nodes' states.

    Parameters
    ----------
    pads
        Whether each part of an axis counts as the longest one, in states over all levels.

    Raises
    ------
    CheckFailedError
        If the plan's reading is unknown, or has no charge for one of its choices.
    """

    def __init__(
        self, plan: Plan, graph: PlanGraph, chosen: Sequence[State] = (), *, pads: bool = False
    ) -> None:
        self.plan, self.graph, self._pads = plan, graph, pads
        self.hierarchy, self.sizes = plan.hierarchy, plan.hierarchy.sizes
        reading = READINGS.get(plan.cost.reading)
        if reading is None or (self.graph.reads_whole and reading.input_error is None):
            raise CheckFailedError(
                f"cost, reading: {plan.cost.reading!r} charges nothing for the choices"
                f" {', '.join(plan.choices)}"
            )
        self._reading, self.counts = reading, counts_of(plan, self.graph)
        self.passes = (Pass.FORWARD,) if plan.inference else tuple(Pass)
        self._fed = {edge.target for edge in self.graph.edges if not edge.weights}
        self._shares = self._shares_of_latency(chosen)
        self.ends = [(self._end(edge, 0), self._end(edge, 1)) for edge in self.graph.edges]

    def kind_of_node(self, n: int) -> object:
        """Return a key of a node's operations: nodes with equal keys have equal operations."""
        counts, levels = self.counts, range(len(self.sizes))
        times = [counts.computed[step, n] for step in Pass]
        times += [table[step, n] for table in (counts.exchanged, counts.read) for step in Pass]
        times.append(counts.epilogues[n])
        times += [
            half[n, level] for half in (counts.scattered, counts.gathered) for level in levels
        ]
        words, shares = tuple(counts.sharded[n]), tuple(self._shares[n].items())
        return self.graph.nodes[n], *times, words, shares, n in self._fed, n in self.graph.passing

    def kind_of_edge(self, n: int) -> object:
        """Return a key of a boundary's operations."""
        edge = self.graph.edges[n]
        kind = edge._replace(source=0, target=0, operand=0)
        sums = self.kind_of_node(edge.source) if edge.source in self.graph.passing else None
        return kind, *self.ends[n], *self._times_between(edge), sums

    @property
    def has_thresholds(self) -> bool:
        """Whether a choice's charge at a level depends only on that choice's own count above."""
        return not self.plan.joins_levels and not any(
            any(WHOLE in split.inputs for split in splits)
            or all(split.keeps_weights for split in splits)
            or all(split.output == PARTIAL for split in splits)
            for splits in (node.choices.values() for node in self.graph.nodes)
        )

    # -- A node ------------------------------------------------------------------------------

    def node(self, n: int, state: State) -> Iterator[Transfer]:
        """Yield a node's exchanges in a state: Table 1, AccPar's Type III, and halos."""
        node, reading, counts = self.graph.nodes[n], self._reading, self.counts
        ahead, behind = (counts.exchanged[step, n] for step in (Pass.FORWARD, Pass.BACKWARD))
        weights, *inputs, _ = node.copied
        yield from self._gradient(n, state, weights)
        # No layer reads the error of the network's input; AccPar charges it by convention.
        if n in self._fed or reading.of_network_input:
            for size, copied in zip(node.inputs, inputs, strict=True):
                error = (reading.input_error or 0) * size
                yield from self._summed(n, state, Pass.BACKWARD, Times(behind), error, copied)
        for step, times, size in zip(Pass, (ahead, behind), node.statistics, strict=False):
            of_parts = reading.gradient * size, node.sharing_statistics, node.whole
            yield from self._summed(n, state, step, Times(times), *of_parts)
        if n not in self.graph.passing:  # else they are a boundary's
            for step, often, amount in self._sums(n):
                yield from self._summed(n, state, step, often, amount, node.partial, node.whole)
        if n in self._fed and node.image is not None:
            yield from self._halos(n, state, counts.read[Pass.FORWARD, n], behind)

    def _gradient(self, n: int, state: State, copied: frozenset[int]) -> Iterator[Transfer]:
        """Yield the all-reduces of a gradient, or their halves where weights are sharded."""
        amount, counts = self._reading.gradient // 2 * self.graph.nodes[n].stored, self.counts
        ops = [*self._summed(n, state, Pass.GRADIENT, Times(1), amount, copied)]
        for word, levels in counts.reductions(n).items():
            times, share = Times(1), self._shares[n].get(word)
            if word != "none":
                times = Times(0, counts.scattered[n, levels[0]], counts.gathered[n, levels[0]])
            for op in ops:
                if op.level in levels:
                    amount = op.amount * counts.moved(n, op.level)
                    yield op._replace(amount=amount, times=times, joins=word, share=share)

    def _sums(self, n: int) -> Iterator[tuple[Pass, Times, int]]:
        """Yield the reduction of an output's partial sums, and the all-gather of their error."""
        node, reading = self.graph.nodes[n], self._reading
        # A program reduces partial sums before the activation and the pool; the paper counts the
        # pooled map.
        size = node.outputs if reading.runs else node.pooled
        ahead, behind = (self.counts.exchanged[step, n] for step in (Pass.FORWARD, Pass.BACKWARD))
        summed = Times(scatters=ahead) if reading.runs else Times(ahead)
        yield Pass.FORWARD, summed, reading.forward_sum * size
        yield Pass.BACKWARD, Times(gathers=behind), reading.backward_sum * size

    def _summed(
        self,
        n: int,
        state: State,
        step: Pass,
        times: Times,
        amount: int,
        partial: frozenset[int],
        whole: frozenset[int] = frozenset(),
    ) -> Iterator[Transfer]:
        """Yield the reduction of a node's partial sums: at each level of what those above left.

        Parameters
        ----------
        amount
            The amount of one reduction between two parts.
        partial, whole
            The choices that leave partial sums, and those whose parts each repeat the reduction.
        """
        if partial.isdisjoint(state):
            return
        reduced = [choice in partial for choice in state]
        repeated = [choice in whole for choice in state]
        top = WHOLE if reduced[0] or repeated[0] else self.layout_at_h1(n, state)
        of_weights = step is Pass.GRADIENT
        uneven = self._uneven(self.graph.nodes[n], state, partial, of_weights=of_weights)
        for op in self._reduced(step, times, amount, reduced, repeated):
            yield op._replace(amount=padded(op.amount, uneven), top=top)

    def _reduced(
        self,
        step: Pass,
        times: Times,
        amount: int,
        reduced: Sequence[bool],
        repeated: Sequence[bool],
    ) -> Iterator[Transfer]:
        """Yield the reduction of partial sums at some levels, repeated for copies at others."""
        if step not in self.passes or not amount:
            return
        amount *= sum(times)
        amount *= prod(itertools.compress(self.sizes, repeated))
        for level, is_reduced in enumerate(reduced):
            if is_reduced:
                yield Transfer(step, level, amount * (self.sizes[level] - 1), times, "")
                amount *= self.sizes[level]

    def _halos(self, n: int, state: State, ahead: int, behind: int) -> Iterator[Transfer]:
        """Yield the halo exchanges between parts of images."""
        node = self.graph.nodes[n]
        assert node.image is not None
        # No proof rests on a choice that a node does not have.
        layouts = [node.choices[c].inputs[0] if c in node.choices else "none" for c in state]
        whole = [c for c, split in node.choices.items() if split.inputs[0] == WHOLE]
        uneven = self._uneven(node, state, whole)
        across = 4 * node.image.planes * copies_in(state, whole, self.hierarchy)
        extent = [*node.image.extent]
        for axis, (part, halo) in enumerate(zip(PARTS.values(), node.image.halos, strict=True)):
            parts = 1
            for level, layout in enumerate(layouts):
                if layout == part and halo:
                    borders = parts * (self.sizes[level] - 1)  # that no level above has
                    moved = across * halo * extent[1 - axis] * borders
                    parts *= self.sizes[level]
                    for step, times in zip(self.passes, (ahead, behind), strict=False):
                        often = Times(exchanges=times)
                        yield Transfer(step, level, padded(times * moved, uneven), often)
            if parts > 1:  # all parts hold as many rows, whether or not they are at an edge
                extent[axis] += parts * halo

    def layout_at_h1(self, n: int, state: State) -> str:
        """Return the layout of a node's output at H1."""
        split = self.graph.nodes[n].choices.get(state[0])
        return split.output if split else BY_BATCH

    def _uneven(
        self,
        node: PlanNode,
        state: State,
        copied: Iterable[int] = (),
        at_h1: SizeAtH1 | None = None,
        *,
        of_weights: bool = False,
    ) -> PaddedAxes:
        """Return the unevenly divided axes of a tensor, or of work, whose largest part counts.

        With 12 heads in 8 parts that is 4/3 of the mean.

        Parameters
        ----------
        copied
            The choices that leave copies of the tensor.
        of_weights
            Whether it is of weights, of which each expert has equally many.
        """
        if not (self._pads if at_h1 else self._pads_exchanges(state)):
            return ()
        axes = (
            SplitAxis(c, split.size, () if of_weights else split.load)
            for c, split in node.choices.items()
            if c not in copied
        )
        return padded_axes(axes, state, self.sizes, at_h1)

    def _pads_exchanges(self, state: State) -> bool:
        """Whether exchanges are padded: not if parts of H1 have shares of them."""
        return self._pads and not self.plan.groups and len(state) == len(self.sizes)

    # -- Its work ----------------------------------------------------------------------------

    def passes_of(self, n: int) -> list[int]:
        """Return how often a step runs each pass of a layer."""
        return [self.counts.computed[step, n] for step in self.passes]

    def work(self, n: int, state: State, at_h1: SizeAtH1 | None = None) -> LayerWork:
        """Return what a layer computes.

        Parameters
        ----------
        at_h1
            As for `padded_axes`.
        """
        node, words = self.graph.nodes[n], self.words(n, state, at_h1)
        by_input = self.plan.array and self.plan.array.description.accelerator.mac_count == "input"
        repeated = copies_in(state, node.whole, self.hierarchy)  # by replicas
        padded_axes = self._uneven(node, state, at_h1=at_h1)
        macs = padded(repeated * (node.macs_by_input if by_input else node.macs), padded_axes)
        if self._pads and node.sees and self._skips_masked:
            tokens = self.plan.choices.index("tokens")
            parts = copies_in(state, (tokens,), self.hierarchy)
            macs = padded(macs, (_largest_unmasked(*node.sees, parts, mirrored=self._mirrored),))
        # With sharded state, each weight is updated once, not in each copy.
        shards = prod(
            self.sizes[level]
            for level, choice in enumerate(state)
            if choice in node.copied[0] and self.counts.sharded[n][level] != "none"
        )
        copies = copies_in(state, node.copied[0], self.hierarchy)
        uneven = self._uneven(node, state, node.copied[0], at_h1, of_weights=True)
        updated = 0 if self.plan.inference else padded(node.stored * copies, uneven) // shards
        return LayerWork(macs, padded(repeated * node.inner, padded_axes), words, updated)

    def words(self, n: int, state: State, at_h1: SizeAtH1 | None = None) -> list[int]:
        """Return the words of a layer's weights, of each operand and of its output, with copies."""
        node = self.graph.nodes[n]
        return [
            padded(
                size * copies_in(state, copied, self.hierarchy),
                self._uneven(node, state, copied, at_h1, of_weights=not n_of_tensor),
            )
            for n_of_tensor, (size, copied) in enumerate(
                zip(node.tensors, node.copied, strict=True)
            )
        ]

    @cached_property
    def _skips_masked(self) -> bool:
        """Whether kernels skip masked scores, and parts of a sequence have known positions.

        The position of a share of tokens is not known.
        """
        assert self.plan.array is not None
        accelerator = self.plan.array.description.accelerator
        skips = accelerator.gemm is not None and accelerator.attention != "unfused"
        return skips and not self.plan.groups and "tokens" in self.plan.choices

    @cached_property
    def _mirrored(self) -> bool:
        """Whether parts of a sequence are mirrored: two of equal chunks, one from either end.

        Except for layers with one token, or without a causal mask.
        """
        column, chunks = self.plan.choices.index("tokens"), 2 * self.plan.accelerators
        splits = [(node.splits[column], node.sees) for node in self.graph.nodes if node.has_tokens]
        return all(
            split and (split.size % chunks == 0 or (split.size == 1 and not sees))
            for split, sees in splits
        )

    # -- A boundary --------------------------------------------------------------------------

    def boundary(self, n: int, source: State, target: State) -> Iterator[Transfer]:
        """Yield the exchanges of a tensor between one node's layouts and another's.

        Amounts are those of equal parts: see `padding`.
        """
        edge, (writer, reader) = self.graph.edges[n], self.ends[n]
        written, read = [writer.layouts[c] for c in source], [reader.layouts[c] for c in target]
        if edge.source in self.graph.passing:
            yield from self._sums_between(edge.source, written, read)
        rule = self._resharded if self._reading.runs else self._converted
        for step, times in self._times_between(edge):
            for op in rule(step, edge, written, read):
                between = op.between and (*op.between[:2], times * op.between[2])
                often = Times(exchanges=times * op.times.exchanges)
                yield op._replace(amount=times * op.amount, times=often, between=between)

    def padding(self, n: int, end: int, state: State) -> PaddedAxes:
        """Return the axes of a boundary's tensor that one of its ends divides unevenly.

        Reductions are of the source's layout. In other exchanges the slowest part sends the longest
        part of what is written, or receives the longest of what is read.
        """
        if not self._pads_exchanges(state):
            return ()
        return padded_axes(self.ends[n][end].axes, state, self.sizes)

    def marks(self, n: int, had: str, wanted: str) -> tuple[bool, bool, bool, bool, bool]:
        """Return the effects of two layouts at a level of a boundary on other levels.

        Whether each part has a copy throughout; whether there are copies below, once it is
        gathered; whether it changes axes, which levels may do at once; whether each part repeats
        the reduction of sums at other levels; and whether sums are reduced there.
        """
        if not self._reading.runs:
            return False, wanted == WHOLE, False, False, False
        passing = self.graph.edges[n].source in self.graph.passing
        reduced, repeated = _reduced_between(had, wanted) if passing else (False, False)
        if not passing or (had, wanted) != (PARTIAL, PARTIAL):
            had, wanted = self._settled(had, wanted)
        repeats = had == wanted and had in (WHOLE, PARTIAL)
        gathers = wanted == WHOLE != had
        return repeats, gathers, _changes_axis(had, wanted), repeated, reduced

    def _end(self, edge: PlanEdge, end: int) -> TensorEnd:
        """Return a boundary's tensor as its source writes it, or its target reads it."""
        node = self.graph.nodes[edge.target if end else edge.source]
        layouts = [
            split and (split.inputs[edge.operand] if end else split.output) for split in node.splits
        ]
        axes = (
            SplitAxis(c, s.size, s.load)
            for c, s in node.choices.items()
            if layouts[c] not in (PARTIAL, WHOLE)
        )
        # No proof rests on a choice that a node does not have, but potentials state one for it.
        lacking = layouts[0] if self._reading.runs and self.graph.reads_whole else None
        return TensorEnd(tuple(layout or lacking or "none" for layout in layouts), tuple(axes))

    def _times_between(self, edge: PlanEdge) -> list[tuple[Pass, int]]:
        """Return the passes in which a tensor moves, and how often.

        Weights never move: a layer has them as stored, or slices its part.
        """
        return [
            (step, self.counts.read[step, edge.target])
            for step in self.passes[:2]
            if not edge.weights and (edge.has_error or step is not Pass.BACKWARD)
        ]

    def _sums_between(
        self, n: int, written: Sequence[str], read: Sequence[str]
    ) -> Iterator[Transfer]:
        """Yield the reduction of partial sums, except of those that are read as addends."""
        levels = [_reduced_between(*pair) for pair in zip(written, read, strict=True)]
        reduced, repeated = zip(*levels, strict=True) if levels else ((), ())
        for step, times, amount in self._sums(n):
            yield from self._reduced(step, times, amount, reduced, repeated)

    def _converted(
        self, step: Pass, edge: PlanEdge, written: Sequence[str], read: Sequence[str]
    ) -> Iterator[Transfer]:
        """Yield a pass of a conversion as the paper counts it: Table 2, and AccPar's."""
        copies = 1
        for level, (had, wanted) in enumerate(zip(written, read, strict=True)):
            amount = self._factor(step, had, wanted) * edge.elements * copies
            if wanted == WHOLE:
                amount *= self.sizes[level] - 1
                copies *= self.sizes[level]
            yield Transfer(step, level, amount, Times(exchanges=1))

    def _factor(self, step: Pass, had: str, wanted: str) -> int:
        """Return the quarters of each element that a pass of the paper's moves at a level."""
        reading, forward = self._reading, step is Pass.FORWARD
        if "none" in (had, wanted):
            return 0
        if had == PARTIAL:  # an all-reduced tensor is in both parts; its error is in neither
            return 0 if forward or wanted == WHOLE else reading.behind_model
        if had in (WHOLE, wanted) or wanted == PARTIAL:
            return 0
        return reading.gathered[not forward] if wanted == WHOLE else reading.converted

    @staticmethod
    def _settled(had: str, wanted: str) -> tuple[str, str]:
        """Return a run's layouts at a level after slicing replicas and scattering sums.

        Sums are scattered into the layout that is read, or by batch if that is whole.
        """
        if had == PARTIAL:
            unsplit = wanted == WHOLE or wanted in PART_WORDS
            had = BY_BATCH if unsplit else wanted.replace(PARTIAL, "none")
        if had == WHOLE:
            had = wanted
        elif wanted == PARTIAL or had == wanted or "none" in (had, wanted):
            return "none", "none"
        return had, wanted

    def _resharded(
        self, step: Pass, edge: PlanEdge, written: Sequence[str], read: Sequence[str]
    ) -> Iterator[Transfer]:
        """Yield a pass of a run: the all-to-alls, and the all-gathers or their duals.

        All-gathers come last, from the topmost level down. If a tensor is stored and read whole,
        each part repeats all exchanges for its replica; likewise if it is read as addends, except
        for what is split, which is padded at the end.
        """
        addends = (PARTIAL, PARTIAL) if edge.source in self.graph.passing else None
        pairs = [*zip(written, read, strict=True)]
        pairs = [pair if pair == addends else self._settled(*pair) for pair in pairs]
        levels, now, wanted = range(len(pairs)), [had for had, _ in pairs], [to for _, to in pairs]

        def copies() -> int:
            return prod(
                parts
                for layout, parts in zip(now, self.sizes, strict=False)
                if layout in (WHOLE, PARTIAL)
            )

        def top() -> str:
            return read[0] if now[0] == "none" else now[0]

        moving = [level for level in levels if now[level] != wanted[level] != WHOLE]
        joined = self._joined(edge, now, wanted, moving) if self.plan.joins_levels else []
        crossed, at_once = 1, prod(self.sizes[level] for level in joined)
        for level in moving:
            parts, replicas = self.sizes[level], copies()
            moved = 4 * replicas * _exchanged(edge, parts, now[level], wanted[level])
            exchanges, between = 1, (now[level], wanted[level], 4 * replicas * edge.elements)
            if level in joined:
                # A message crosses the first level at which sender and receiver differ: of a tensor
                # in n parts above a level, 1/n has yet to cross it.
                moved //= crossed
                crossed *= parts
                exchanges = at_once // crossed
            times = Times(exchanges=exchanges)
            yield Transfer(step, level, moved, times, top=top(), between=between)
            now[level] = wanted[level]
        for level in levels:
            if wanted[level] == WHOLE != now[level]:
                tensors = 4 * copies() * edge.elements
                moved, between = tensors * (self.sizes[level] - 1), (now[level], WHOLE, tensors)
                now[level], times = WHOLE, Times(exchanges=1)
                yield Transfer(step, level, moved, times, top=top(), between=between)

    def _joined(
        self, edge: PlanEdge, now: Sequence[str], wanted: Sequence[str], moving: Sequence[int]
    ) -> list[int]:
        """Return the levels at which a tensor's changes of axes are joined."""
        joined = [n for n in moving if _changes_axis(now[n], wanted[n])]
        uneven = (name for name, size in edge.axes if size % self.hierarchy.accelerators)
        changed = {layout for n in joined for layout in (now[n], wanted[n])}
        return joined if len(changed & {*uneven, BY_SHUFFLED_CHANNEL}) < 2 else []

    # -- Latencies ---------------------------------------------------------------------------

    def _shares_of_latency(self, chosen: Sequence[State]) -> list[dict[str, Share]]:
        array, graph = self.plan.array, self.graph
        bucket = array.description.bucket_elements(self.plan.element_bytes) if array else 1
        if bucket == 1:
            return [{} for _ in graph.nodes]
        sharing = [self.counts.reductions(n) for n in range(len(graph.nodes))]
        return shares_of_latency(graph, bucket, chosen, sharing)


def _reduced_between(had: str, wanted: str) -> tuple[bool, bool]:
    """Return whether sums are reduced at a level of a boundary, and whether parts repeat that."""
    return had == PARTIAL != wanted, had == WHOLE or had == PARTIAL == wanted


def _changes_axis(had: str, wanted: str) -> bool:
    """Return whether two layouts split different axes: channels in another order are the same."""
    pair, unsplit = {had, wanted}, {WHOLE, PARTIAL, "none"}
    return (
        had != wanted and pair.isdisjoint(unsplit) and not pair <= {BY_CHANNEL, BY_SHUFFLED_CHANNEL}
    )


def _exchanged(tensor: PlanEdge, parts: int, had: str, wanted: str) -> int:
    """Return the number of elements that move to another part."""
    sizes = dict(tensor.axes)
    channels = sizes.pop(BY_CHANNEL)
    first, second = (sizes.get(layout, channels) for layout in (had, wanted))
    if {had, wanted}.isdisjoint(sizes):  # channels, in another order
        return tensor.elements // first * (first - first // parts)

    def share(size: int, part: int) -> int:  # the first parts have the remainder's indices
        return size // parts + (part < size % parts)

    local = sum(share(first, n) * share(second, n) for n in range(parts))
    return tensor.elements // (first * second) * (first * second - local)


def buckets_of(graph: PlanGraph, limit: int) -> list[list[int]]:
    """Return the nodes of each bucket, in the order in which gradients are complete.

    Buckets take whole gradients as the backward pass completes them, those of shared weights with
    those of their first user, and are full with ``limit`` elements.

    Source: S. Li et al., VLDB 13(12), 2020, section 3.2.3.
    """
    stored = [node.stored for node in graph.nodes]
    with_first = {min(users): n for n in range(graph.shared) if (users := graph.users(n))}
    layers = reversed(range(graph.shared, len(stored)))
    buckets: list[list[int]] = []
    elements = limit
    for node in (node for layer in layers for node in (layer, with_first.get(layer))):
        if node is None or not stored[node]:
            continue
        elements += stored[node]
        if elements > limit or not buckets:
            buckets.append([])
            elements = stored[node]
        buckets[-1].append(node)
    return buckets


def shares_of_latency(
    graph: PlanGraph,
    bucket: int,
    chosen: Sequence[State],
    sharing: Sequence[Mapping[str, Iterable[int]]],
) -> list[dict[str, Share]]:
    """Return the share of its bucket's latency that each node's gradient is charged.

    There is one for each of its reductions, by name. Shares are in proportion to elements.

    Parameters
    ----------
    chosen
        The nodes' states, if only gradients that are reduced over the same levels share; else all
        of a bucket do, which is no more for any plan.
    sharing
        The levels of each node's reductions. Gradients that are scattered micro-batch by
        micro-batch are separate from those that are all-reduced.

    Source: docs/assumptions.md.
    """
    stored = [node.stored for node in graph.nodes]
    together: defaultdict[tuple[int, str | None, object], list[int]] = defaultdict(list)
    buckets = enumerate(buckets_of(graph, bucket))
    for number, node in ((number, node) for number, members in buckets for node in members):
        if not chosen:
            together[number, None, ()].append(node)
            continue
        copying, state = graph.nodes[node].copied[0], chosen[node]
        reduced = {level for level, choice in enumerate(state) if choice in copying}
        top = graph.nodes[node].choices.get(state[0]) if state else None
        side = top.output if top and top.output in PART_WORDS else None
        for name, levels in sharing[node].items():
            together[number, name, (frozenset(reduced.intersection(levels)), side)].append(node)
    shares: list[dict[str, Share]] = [{} for _ in graph.nodes]
    for (_, reduction, _), nodes in together.items():
        ends = [0, *itertools.accumulate(stored[node] for node in nodes)]
        rounded = (Fraction(LATENCY_UNITS * end // ends[-1], LATENCY_UNITS) for end in ends)
        for node, share in zip(nodes, itertools.pairwise(rounded), strict=True):
            names = sharing[node] if reduction is None else [reduction]
            shares[node] |= dict.fromkeys(names, share)
    return shares
