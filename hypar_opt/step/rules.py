"""What a node exchanges in a state, and a boundary between two states: a step's rules.

States are given level by level: numbers, for one plan, or arrays that broadcast with the nodes, for
all states. Two rules of a contraction determine all layouts (`hypar_opt.workload.operators.axes`):
a result that lacks the axis of a choice is left as partial sums, which are reduced, and an operand
that lacks it is replicated. What moves at a level is repeated by the copies of the tensor in other
parts: levels above that lack its axis have one in each part, and so have levels at which it is a
replica throughout.

Source: section 3.1, Tables 1 and 2; docs/model.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache, reduce
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.hierarchy import Hierarchy
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.sharding.conversions import StepKind, even_axes, exchanges, reorders
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.operations import Collective
from hypar_opt.step.readings import reading_of
from hypar_opt.step.states import level_choices, replicas, replicas_above
from hypar_opt.step.uneven import (
    SplitLoads,
    loads_at_ends,
    loads_of,
    max_padding_factor,
    padded,
    padded_sizes,
    sizes_at_ends,
    split_sizes,
)
from hypar_opt.workload.addends import accepts_partial_inputs, may_defer_reduction
from hypar_opt.workload.layer_tensors import Extent
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.operators.axes import BY_COLUMN, BY_ROW, COLUMNS, PARTIAL, ROWS
from hypar_opt.workload.parallelism import SHARDED
from hypar_opt.workload.repeats import REDUCTION_GROUPS, ZERO_STAGES
from hypar_opt.workload.splitting import spatial_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.step.operations import Amount
    from hypar_opt.step.readings import Reading
    from hypar_opt.step.states import Indices, States
    from hypar_opt.step.uneven import PaddedSizes
    from hypar_opt.workload.tensors import Workload

    Flags = NDArray[np.bool_]


_CONVERSIONS = (
    (StepKind.ALL_TO_ALL, StepKind.ALL_TO_ALL),
    (StepKind.ALL_GATHER, StepKind.REDUCE_SCATTER),
)
"""The steps that convert a tensor that its target reads split, or whole; and their duals."""


class PartialSums(NamedTuple):
    """A tensor that nodes reduce.

    Parameters
    ----------
    lacks : (choices, nodes)
        Whether a choice leaves an addend of it in each part.
    whole : (choices, nodes)
        Whether each part of a choice reduces it by itself; None if that is so for no choice.
    quarters : (nodes,)
        Quarters of an element: of the whole tensor, in a step.
    times : (nodes,)
    """

    phase: Phase
    kind: StepKind
    tensor: str
    lacks: Flags
    whole: Flags | None
    quarters: Integers
    times: Integers
    passes: Integers | int


class StepRules:
    """The exchanges of a workload's nodes and boundaries.

    Parameters
    ----------
    hierarchy
        The parts of each level.
    reading
        The name of a row of factors in ``hypar_opt.step.readings``.
    phases
        The passes of the step: all three of training, or fewer.
    by_largest_shard
        Whether amounts are scaled as if all parts sent and received as much as the largest shard,
        where axes are divided unevenly: for states over all levels. Otherwise they are what moves.
    unequal
        Whether parts of H1 are unequal: then operations record what H1 splits, for
        ``hypar_opt.step.shares``.
    """

    def __init__(
        self,
        workload: Workload,
        hierarchy: Hierarchy,
        reading: str,
        phases: tuple[Phase, ...],
        *,
        by_largest_shard: bool = False,
        unequal: bool = False,
    ) -> None:
        self.workload, self.hierarchy, self.phases = workload, hierarchy, phases
        self.reading, self.by_largest_shard, self.unequal = (
            reading_of(reading),
            by_largest_shard,
            unequal,
        )
        self._layouts, self._repeats = workload.layouts, workload.repeats
        self._choices = len(workload.choices)

    # Nodes

    def node(self, nodes: Indices, states: States) -> Iterator[Collective]:
        """Yield nodes' reductions, topmost levels first, and halo exchanges."""
        choices = [*level_choices(states)]
        for tensor in self._reduced:
            passes = tensor.passes if isinstance(tensor.passes, int) else tensor.passes[nodes]
            top = self._at_h1(tensor, nodes, choices)
            for level, quarters in self._sums(tensor, nodes, choices):
                moved = tensor.phase, tensor.kind, tensor.tensor, level, quarters
                yield Collective(*moved, tensor.times[nodes], passes, at_h1=top)
        if Phase.GRADIENT in self.phases:
            yield from self._gradients(nodes, choices)
        yield from self._halo_exchanges(nodes, choices)

    @cached_property
    def _reduced(self) -> list[PartialSums]:
        """What passes reduce: nodes' outputs, statistics and, in the paper's tables, errors."""
        workload, layouts, row = self.workload, self._layouts, self.reading
        whole = layouts.whole
        outputs = np.array(workload.outputs if row.before_pool else workload.pooled, object)
        outputs[workload.ends[may_defer_reduction(workload), 0]] = 0
        statistics = np.array([node.statistics for node in workload.nodes], object).T
        partial = (layouts.output < FIRST_SPLIT) & ~whole
        shared = (layouts.statistics < FIRST_SPLIT) & ~whole
        # Replicas sum over the same channels, or rows of an average, each by itself.
        summed_whole, statistics_whole = (
            whole & partial.any(axis=0),
            whole & (statistics > 0).any(axis=0),
        )
        # Only a run splits an all-reduce of partial sums over two passes; the sums of norms are
        # all-reduced in every reading.
        halves = bool(row.gathered_error)
        passes = np.where(statistics.any(axis=0), 2, 1) if halves else 2
        kinds = (
            (StepKind.REDUCE_SCATTER, StepKind.ALL_GATHER) if halves else (StepKind.ALL_REDUCE,) * 2
        )
        reduced = []
        factors = (Phase.FORWARD, row.partial_sum), (Phase.BACKWARD, row.gathered_error)
        for (phase, factor), kind, stats in zip(factors, kinds, statistics, strict=True):
            tensors: list[tuple[StepKind, str, Flags, Flags | None, Integers]] = [
                (StepKind.ALL_REDUCE, "statistics", shared, statistics_whole, row.gradient * stats),
                (kind, "output", partial, summed_whole, factor * outputs),
            ]
            if phase is Phase.BACKWARD and row.input_error:
                read = np.zeros(len(workload.nodes), bool)
                read[[*workload.readers]] = True
                for laid_out, sizes in zip(layouts.inputs, workload.operand_sizes, strict=True):
                    # No layer reads the error of the network's input; AccPar still charges it.
                    errors = row.input_error * np.array(sizes, object)
                    errors = errors if row.first_input_error else errors * read
                    lacks = (laid_out < FIRST_SPLIT) & ~whole
                    tensors.append((StepKind.ALL_REDUCE, "error", lacks, None, errors))
            times = exchanges_of(workload, phase)
            for kind_, name, lacks, repeated, quarters in tensors:
                if phase in self.phases and lacks.any() and quarters.any():
                    replicated = repeated if repeated is not None and repeated.any() else None
                    amounts = (quarters * times).astype(self._dtype)
                    reduced.append(
                        PartialSums(phase, kind_, name, lacks, replicated, amounts, times, passes)
                    )
        return reduced

    def _sums(
        self, tensor: PartialSums, nodes: Indices, choices: Sequence[Indices]
    ) -> Iterator[tuple[int, Integers]]:
        """Yield the levels at which nodes reduce a tensor, and the amounts that move."""
        quarters = tensor.quarters[nodes]
        if not quarters.any():
            return
        lacks = [tensor.lacks[choice, nodes] for choice in choices]
        if tensor.whole is not None:
            quarters = quarters * replicas(
                [tensor.whole[choice, nodes] for choice in choices], self.hierarchy.sizes
            )
        # The level at which a tensor is reduced divides its elements, regardless of their axes.
        of_weights = tensor.phase is Phase.GRADIENT
        uneven = self._uneven(tensor.lacks, nodes, choices, of_weights=of_weights)
        for level, partial in enumerate(lacks):
            if partial.any():
                parts: Integers | int = self.hierarchy.sizes[level]
                if of_weights and not level and self._repeats.holders:
                    parts = self._holders[nodes]
                yield level, padded(quarters * (partial * (parts - 1)), uneven)
                quarters = quarters * np.where(partial, parts, 1)

    def _uneven(
        self,
        lacks: Flags,
        nodes: Indices,
        choices: Sequence[Indices],
        *,
        of_weights: bool = False,
    ) -> PaddedSizes:
        """Return the unevenly divided axes of nodes' tensors, if the largest shard counts.

        Parameters
        ----------
        lacks : (choices, nodes)
            Whether a choice splits no axis of the tensor.
        of_weights
            Whether it is of weights, of which each expert has equally many.
        """
        if not self.by_largest_shard:
            return ()
        sizes = np.where(lacks, 0, split_sizes(self.workload))[:, nodes]
        loads = None if of_weights else loads_of(self.workload, lacks, nodes)
        return self._stretches(sizes, choices, loads)

    def _stretches(
        self, sizes: NDArray[np.int64], choices: Sequence[Indices], loads: SplitLoads | None
    ) -> PaddedSizes:
        states = [choice[None] for choice in choices]
        return padded_sizes(sizes, states, self.hierarchy, loads=loads)

    def _at_h1(
        self, tensor: PartialSums, nodes: Indices, choices: Sequence[Indices]
    ) -> tuple[tuple[str, ...], Indices, Indices] | None:
        """Return the layouts, between unequal parts, of what nodes reduce; whole where copied."""
        if not (self.unequal and choices):
            return None
        output = self._layouts.output[choices[0], nodes]
        layout = np.where(tensor.lacks[choices[0], nodes], 0, output)
        return self._layouts.names, layout, layout

    def _gradients(self, nodes: Indices, choices: Sequence[Indices]) -> Iterator[Collective]:
        """Yield the all-reduces of nodes' gradients, or ZeRO's halves of them."""
        top = self._at_h1(self._gradient, nodes, choices)
        for level, all_reduce in self._sums(self._gradient, nodes, choices):
            for word, splits in self._splits[max(n for n in self._splits if n <= level)]:
                often = splits[nodes].astype(np.int64)
                moved = all_reduce if splits.all() else all_reduce * often
                for half in self._gradient_reductions(word, level, moved, nodes, often):
                    yield half._replace(at_h1=top)

    def _gradient_reductions(
        self, word: str, level: int, all_reduce: Integers, nodes: Indices, often: Integers
    ) -> Iterator[Collective]:
        """Yield an all-reduce of gradients at a level, or its halves, by what is sharded there."""
        repeats, phase = self._repeats, Phase.GRADIENT
        holders = self._holders[nodes] if repeats.holders else 1
        group = next(n for n, words in enumerate(REDUCTION_GROUPS) if word in words)
        users = np.array(self.workload.users)[nodes]
        for stage in ZERO_STAGES[word]:
            kind, tensor = StepKind(stage.kind), "weights" if stage.weights else "gradient"
            quarters = stage.share(all_reduce) * repeats.elements(stage)
            if stage.passes:  # every layer that uses the weights is in one of the parts
                quarters = quarters // holders
            times = repeats.times(stage, users)
            yield Collective(
                *(phase, kind, tensor, level, quarters * times, often * times, stage.rounds, group)
            )

    @cached_property
    def _holders(self) -> Integers:
        """The number of parts of H1 that hold each node's weights; 1 if one part has all."""
        counts = np.ones(len(self.workload.nodes), np.int64)
        for node, parts in self._repeats.holders.items():
            counts[node] = len(parts)
        return counts

    @cached_property
    def _splits(self) -> dict[int, list[tuple[str, Flags]]]:
        """What is sharded from each of `Repeats.shard_start_levels` on: words, and their nodes."""
        repeats, nodes = self._repeats, len(self.workload.nodes)
        return {
            level: [
                (word, splits)
                for word in SHARDED
                if (splits := repeats.splits(nodes, level, word)).any()
            ]
            for level in repeats.shard_start_levels
        }

    @cached_property
    def _gradient(self) -> PartialSums:
        stored = np.array(self.workload.stored, object)
        once = np.ones(len(stored), np.int64)
        lacks = self._layouts.weight < FIRST_SPLIT
        quarters = (self.reading.gradient * stored).astype(self._dtype)
        return PartialSums(
            *(Phase.GRADIENT, StepKind.ALL_REDUCE, "gradient", lacks, None, quarters, once, 2)
        )

    # Halos of images

    def _halo_exchanges(self, nodes: Indices, choices: Sequence[Indices]) -> Iterator[Collective]:
        """Yield the halo exchanges of images: of rows, then of columns that include those rows.

        Halos at the image's edges are as wide as between two parts, since a program has one shape
        for all parts. Errors of halos go back the same way. The network's input arrives with its
        halos.
        """
        if not (self.has_halos and self._halos[:, nodes].any()):
            return
        numbers, names = self._layouts.inputs[0], self._layouts.names
        read = [numbers[choice, nodes] for choice in choices]
        uneven = self._uneven(numbers < FIRST_SPLIT, nodes, choices)
        rows, columns, corners = self._halos.astype(self._dtype)[:, nodes]
        copies = replicas([layout < FIRST_SPLIT for layout in read], self.hierarchy.sizes)
        by_row = names.index(BY_ROW) if BY_ROW in names else -1
        parts_of_rows = replicas([layout == by_row for layout in read], self.hierarchy.sizes)
        across = columns + corners * np.where(np.greater(parts_of_rows, 1), parts_of_rows, 0)
        for name, amount in ((BY_ROW, rows * copies), (BY_COLUMN, across * copies)):
            if name not in names:
                continue
            for level, layout in enumerate(read):
                is_split, parts = layout == names.index(name), self.hierarchy.sizes[level]
                if not is_split.any():
                    continue
                # Two neighbours exchange at the topmost level at which they differ.
                quarters = amount * (is_split * (parts - 1))
                amount = amount * np.where(is_split, parts, 1)
                for phase in (Phase.FORWARD, Phase.BACKWARD):
                    if phase in self.phases:
                        times = exchanges_of(self.workload, phase, inputs=True)[nodes]
                        moved = padded(quarters * times, uneven)
                        yield Collective(phase, StepKind.HALO, "halo", level, moved, times)

    @property
    def has_halos(self) -> bool:
        """Whether any layer's parts may exchange rows or columns of images."""
        return bool(spatial_columns(self.workload)) and bool(self._halos.any())

    @cached_property
    def _halos(self) -> NDArray[np.object_]:
        """Quarters of an element of a halo between two parts: ``(3, nodes)``.

        Of rows, of columns, and of the corners that each part of the rows adds to the columns.
        """
        amounts = np.zeros((3, len(self.workload.nodes)), object)
        for position in self.workload.readers:
            node = self.workload.nodes[position]
            if not node.borders:
                continue
            of_axes = (node.borders.get(axis) for axis in (ROWS.axis, COLUMNS.axis))
            above, beside = (border.halo if border else 0 for border in of_axes)
            *rest, height, width = node.input
            across = 4 * prod(rest)
            amounts[:, position] = (
                across * above * width,
                across * beside * height,
                across * beside * above,
            )
        return amounts

    # Boundaries

    def boundary(
        self, boundaries: Indices, sources: States, targets: States
    ) -> Iterator[Collective]:
        """Yield what boundaries move from their sources' stored layouts to those targets read.

        First all-to-alls, then all-gathers, each from the topmost level down; backward the duals,
        in reverse. Partial sums are reduced by the source, unless the target may accept addends.
        """
        written, read = [*level_choices(sources)], [*level_choices(targets)]
        if self._passes is not None and self._passes[boundaries].any():
            yield from self._passed_sums(boundaries, written, read)
        pairs = [
            (boundaries * self._choices + choice) * self._choices + to
            for choice, to in zip(written, read, strict=True)
        ]
        repeated = self._repeated(boundaries, read, pairs)
        joined = self._joined(boundaries, written, read) if self.reading.joins_levels else None
        at_h1 = self._at_h1_of_ends(boundaries, written, read)
        uneven = self._uneven_ends(boundaries, written, read)
        for kind, dual in _CONVERSIONS:
            kinds = {Phase.FORWARD: kind, Phase.BACKWARD: dual} if self.reading.gathers_last else {}
            for level, (pair, copies) in enumerate(zip(pairs, repeated[kind], strict=True)):
                # Unequal parts receive shares of the whole tensor.
                parts = 0 if self.unequal and not level else self.hierarchy.sizes[level]
                moved = [table.reshape(-1)[pair] for table in self._conversions(parts)[kind]]
                if not any(amount.any() for amount in moved):
                    continue
                messages: Amount = 1
                group: Amount = 0
                if joined is not None and kind is StepKind.ALL_TO_ALL:
                    above, messages, group = joined[level]
                    # The amounts of joined levels are disjoint: there is no remainder.
                    moved = [amount // above for amount in moved]
                amounts = _moved_in(self._directions, moved)
                for phase, amount in zip(self._directions, amounts, strict=True):
                    times = self._times[phase][boundaries]
                    quarters = _slowest(amount * copies * times, uneven)
                    yield Collective(
                        *(phase, kinds.get(phase), "input", level, quarters, times),
                        group=group,
                        messages=messages,
                        at_h1=at_h1.get((kind, level > 0)),
                    )

    def _at_h1_of_ends(
        self, boundaries: Indices, written: Sequence[Indices], read: Sequence[Indices]
    ) -> dict[tuple[StepKind, bool], tuple[tuple[str, ...], Indices, Indices]]:
        """Return the layouts, between unequal parts, of tensors before and after conversions.

        By the kind of conversion, and whether it is below H1; empty where parts are equal.
        """
        if not (self.unequal and written):
            return {}
        workload, layouts = self.workload, self._layouts
        before = layouts.output[written[0], workload.ends[boundaries, 0]]
        after = layouts.inputs[workload.operand[boundaries], read[0], workload.ends[boundaries, 1]]
        # A tensor that is read whole is split as it was written until it is gathered.
        below = {
            StepKind.ALL_TO_ALL: np.where(after == 0, before, after),
            StepKind.ALL_GATHER: after,
        }
        across = {(kind, False): (layouts.names, before, after) for kind in below}
        return across | {
            (kind, True): (layouts.names, layout, layout) for kind, layout in below.items()
        }

    def _uneven_ends(self, boundaries: Indices, *ends: Sequence[Indices]) -> list[PaddedSizes]:
        """Return the unevenly divided axes of tensors: as written, and as read."""
        if not self.by_largest_shard:
            return []
        loads = self.workload.loads
        at_ends = zip(
            sizes_at_ends(self.workload), loads_at_ends(self.workload), ends, strict=False
        )
        return [
            self._stretches(
                sizes[:, boundaries],
                choices,
                SplitLoads(loads, numbers[:, boundaries]) if loads else None,
            )
            for sizes, numbers, choices in at_ends
        ]

    @cached_property
    def _directions(self) -> tuple[Phase, ...]:
        """The passes in which boundaries' tensors, or their errors, move."""
        return tuple(phase for phase in (Phase.FORWARD, Phase.BACKWARD) if phase in self.phases)

    @cached_property
    def _times(self) -> dict[Phase, Integers]:
        """How often a step moves each boundary's tensor, and its error."""
        targets = self.workload.ends[:, 1]
        return {
            phase: exchanges_of(self.workload, phase, inputs=True)[targets]
            for phase in self._directions
        }

    @cached_property
    def _passes(self) -> Flags | None:
        """The boundaries that may defer a reduction of partial sums; None if none may."""
        return may_defer_reduction(self.workload) if accepts_partial_inputs(self.workload) else None

    def _conversions(self, parts: int) -> dict[StepKind, list[Integers]]:
        """Return what boundaries move across a level by pairs of choices: forward, and backward.

        For tensors that targets read split, and for those that they read whole. Between unequal
        parts (0) it is the whole tensor, of which they receive shares.

        Returns
        -------
        dict
            By the kind of exchange, arrays ``(boundaries, choices, choices)``; a single one if
            forward and backward move equally much.
        """
        if parts not in self._tables:
            self._tables[parts] = _conversions(self.workload, self.reading, parts, self._dtype)
        return self._tables[parts]

    @cached_property
    def _tables(self) -> dict[int, dict[StepKind, list[Integers]]]:
        return {}

    def _repeated(
        self, boundaries: Indices, read: Sequence[Indices], pairs: Sequence[Indices]
    ) -> dict[StepKind, list[Integers]]:
        """Return the repetitions of exchanges at each level, of tensors read split and whole.

        A tensor that the target reads whole has a copy in each part. All-gathers come last, the
        topmost first: by then the levels above have gathered their parts; below, only what is
        stored whole is copied. In the paper's readings all-gathers are not last.
        """
        sizes, workload = self.hierarchy.sizes, self.workload
        copies, addends = (
            [table.reshape(-1)[pair] for pair in pairs] if table is not None else []
            for table in self._copied
        )
        whole: list[Flags] = []
        if workload.reads_whole:
            operand, target = workload.operand[boundaries], workload.ends[boundaries, 1]
            whole = [self._layouts.inputs[operand, choice, target] == 0 for choice in read]
        above = replicas_above(whole[:-1], sizes, each=replicas(addends, sizes))[: len(pairs)]
        above += above[:1] * (len(pairs) - len(above))
        exchanged = above if not self.reading.gathers_last else above[:1] * len(pairs)
        if any(flag.any() for flag in copies):
            below = replicas_above(copies[:0:-1], sizes[len(copies) - 1 : 0 : -1])
            everywhere = replicas(copies, sizes)
            exchanged = [repeated * everywhere for repeated in exchanged]
            above = [repeated * more for repeated, more in zip(above, reversed(below), strict=True)]
        return {StepKind.ALL_TO_ALL: exchanged, StepKind.ALL_GATHER: above}

    @cached_property
    def _copied(self) -> list[Flags | None]:
        """Where pairs of choices leave copies of a boundary's tensor; None where none does.

        Where it is stored and read whole; and where the target accepts addends: of addends, or of a
        padded replica. Each ``(boundaries, choices, choices)``.
        """
        workload, layouts = self.workload, self._layouts
        sources, targets = workload.ends.T
        written = layouts.output[:, sources].T[:, :, None]
        whole = (layouts.inputs[workload.operand, :, targets] == 0)[:, None, :]
        stored = layouts.whole[:, sources].T[:, :, None]
        takes = layouts.addends[:, targets].T[:, None, :]
        passes = (written == 1) & may_defer_reduction(workload)[:, None, None]
        shape = len(workload.ends), self._choices, self._choices
        flags = whole & stored, takes & (passes | stored)
        return [
            np.ascontiguousarray(np.broadcast_to(flag, shape)) if flag.any() else None
            for flag in flags
        ]

    def _passed_sums(
        self, boundaries: Indices, written: Sequence[Indices], read: Sequence[Indices]
    ) -> Iterator[Collective]:
        """Yield the reductions of partial sums that boundaries defer, as targets accept addends.

        They are reduce-scattered first, at levels at which the target accepts none. At others
        addends are copies of the tensor, like replicas; a shard that becomes a partial sum is
        zero-padded last, and is not replicated until then.

        Source: docs/model.md.
        """
        workload, layouts, row = self.workload, self._layouts, self.reading
        source, target = workload.ends[boundaries, 0], workload.ends[boundaries, 1]
        assert self._passes is not None
        passes = self._passes[boundaries]
        outputs = np.array(workload.outputs, object).astype(self._dtype)[source] * passes
        partial = [passes & (layouts.output[choice, source] == 1) for choice in written]
        takes = [layouts.addends[choice, target] for choice in read]
        whole = [layouts.whole[choice, source] for choice in written]
        copied = [(a & b) | c for a, b, c in zip(partial, takes, whole, strict=True)]
        outputs = outputs * replicas(copied, self.hierarchy.sizes)
        uneven = self._uneven_ends(boundaries, written)
        statistics = np.array([any(node.statistics) for node in workload.nodes])
        passes_of = np.where(statistics, 2, 1)[source]
        for level, (sums, taken) in enumerate(zip(partial, takes, strict=True)):
            reduced, parts = sums & ~taken, self.hierarchy.sizes[level]
            if not reduced.any():
                continue
            quarters = outputs * (reduced * (parts - 1))
            outputs = outputs * np.where(reduced, parts, 1)
            for phase, kind, factor in (
                (Phase.FORWARD, StepKind.REDUCE_SCATTER, row.partial_sum),
                (Phase.BACKWARD, StepKind.ALL_GATHER, row.gathered_error),
            ):
                if phase in self.phases:
                    times = exchanges_of(workload, phase)[source]
                    moved = _slowest(factor * quarters * times, uneven)
                    yield Collective(phase, kind, "output", level, moved, times, passes_of)

    def _joined(
        self, boundaries: Indices, written: Sequence[Indices], read: Sequence[Indices]
    ) -> list[tuple[Integers, Integers, Flags]]:
        """Return divisors of all-to-alls at each level, their messages, and where they are joined.

        In one all-to-all over several levels, those above divide what remains to cross a level, and
        those below multiply the messages. All levels together determine which axes are uneven: if
        two axes of a conversion are, its levels are exchanged one by one.

        Source: `hypar_opt.sharding.conversions`.
        """
        joins, uneven = self._all_to_alls
        pairs = [*zip(written, read, strict=True)]
        crossing = [joins[boundaries, choice, to] for choice, to in pairs]
        count: Integers | int = 0
        for axis in uneven:
            if axis[boundaries].any():
                met = [axis[boundaries, choice, to] for choice, to in pairs]
                count = count + np.logical_or.reduce(np.broadcast_arrays(*met)).astype(np.int64)
        crossing = [crosses & np.less(count, 2) for crosses in crossing]
        above = replicas_above(crossing, self.hierarchy.sizes)
        total = above[-1]
        return [
            (np.where(crosses, before, 1), np.where(crosses, total // upto, 1), crosses)
            for crosses, (before, upto) in zip(crossing, itertools.pairwise(above), strict=True)
        ]

    @cached_property
    def _all_to_alls(self) -> tuple[Flags, list[Flags]]:
        """Where pairs of choices exchange a boundary's tensor so that levels may be joined.

        And where that is by one of the axes that all levels together divide unevenly, of each axis.
        Each ``(boundaries, choices, choices)``.
        """
        workload, layouts = self.workload, self._layouts
        sources, targets = workload.ends.T
        names = layouts.names
        pairs = [[exchanges(name, to) and not reorders(name, to) for to in names] for name in names]
        written = layouts.output[:, sources].T[:, :, None]
        read = layouts.inputs[workload.operand, :, targets][:, None, :]
        moves = ~workload.is_weight_boundary[:, None, None]
        joins = np.array(pairs)[written, read] & moves
        even = [even_axes(extent, self.hierarchy.accelerators) for extent in workload.extents]
        uneven = []
        for number, axis in enumerate(names[FIRST_SPLIT:], FIRST_SPLIT):
            divided = np.array([axis not in axes for axes in even], bool)[:, None, None]
            uneven.append(joins & divided & ((written == number) | (read == number)))
        return joins, uneven

    @cached_property
    def _dtype(self) -> type[np.int64 | np.object_]:
        """The dtype that holds what moves at any level in a step, in quarters of an element."""
        return exact_dtype(self.upper_bound(len(self.hierarchy.sizes)))

    def upper_bound(self, level: int) -> int:
        """Return an upper bound on the quarters of elements that move at a level, in a step."""
        # A tensor has at most as many copies as groups above a level; with replicas, as
        # accelerators.
        beyond = bool(self.workload.weight_users) or self.workload.has_replicas
        return self._single_pass_bound * prod(self.hierarchy.sizes[: None if beyond else level])

    @cached_property
    def _single_pass_bound(self) -> int:
        """An upper bound on the quarters of elements that move in a group at a level, in a step."""
        # No reading charges a tensor more than 2 (n - 1) elements in all passes. A part is no
        # shorter than its halo: all halos have fewer than 8 times the tensor's elements.
        bound = 8 * (max(self.hierarchy.sizes, default=2) - 1) * (9 if self.has_halos else 1)
        if self.by_largest_shard:
            bound *= max_padding_factor(self.workload, self.hierarchy)
        return bound * self.workload.elements * self.workload.max_repeats


rules_of = lru_cache(maxsize=128)(StepRules)
"""Returns a workload's rules, whose tables are cached."""


@lru_cache(maxsize=64)
def exchanges_of(workload: Workload, phase: Phase, *, inputs: bool = False) -> NDArray[np.int64]:
    """Return how often a step repeats each node's exchanges of feature maps or errors.

    Parameters
    ----------
    inputs
        Whether of its inputs; else of its output.
    """
    times = workload.repeats.forward_exchanges(len(workload.nodes), inputs=inputs)
    return times if phase is Phase.FORWARD else np.full_like(times, workload.repeats.micro_batches)


def _slowest(amounts: Integers, uneven: Sequence[PaddedSizes]) -> Integers:
    """Return the amounts of the slowest part, where the axes of either end are uneven.

    It sends the largest shard of what is written, or receives the largest of what is read.
    """
    if not any(uneven):
        return amounts
    slowest: Integers = reduce(np.maximum, [padded(amounts, end) for end in uneven])
    return slowest


def _moved_in(passes: Sequence[Phase], moved: Sequence[Integers]) -> Sequence[Integers]:
    """Return what moves in some passes, given amounts forward and, if different, backward."""
    by_direction = [*moved, *moved][:2]
    return [by_direction[phase is Phase.BACKWARD] for phase in passes]


def _conversions(
    workload: Workload, reading: Reading, parts: int, dtype: type[np.int64 | np.object_]
) -> dict[StepKind, list[Integers]]:
    """Return what boundaries move by pairs of choices; see `StepRules._conversions`.

    Boundaries from shared weights move nothing: weights are stored as their users split them.
    """
    layouts, names = workload.layouts, workload.layouts.names
    sources, targets = workload.ends.T
    extents = np.array(workload.extents, object).reshape(-1, len(Extent._fields))
    tensors = Extent(*extents.astype(dtype).T)
    shape = len(names), len(names), len(workload.boundaries)
    moved = np.zeros((2, *shape), dtype)
    for written, read in itertools.product(range(len(names)), repeat=2):
        if not parts:
            moved[:, written, read] = 4 * tensors.elements
        elif (
            written != read and names[read] != PARTIAL
        ):  # a replica is padded to addends: nothing moves
            conversion = reading.conversion(names[written], names[read], parts, tensors)
            moved[0, written, read], moved[1, written, read] = conversion
    moved[..., workload.is_weight_boundary] = 0
    moved[1][..., ~workload.has_error] = 0
    writes, reads = layouts.output[:, sources], layouts.inputs[workload.operand, :, targets]
    index = writes.T[:, :, None], reads[:, None, :], np.arange(shape[-1])[:, None, None]
    whole = (reads == 0)[:, None, :]
    ways = moved[:1] if (moved[0] == moved[1]).all() else moved
    pairs = [way[index] for way in ways]
    kinds = (StepKind.ALL_TO_ALL, ~whole), (StepKind.ALL_GATHER, whole)
    return {kind: [table * read for table in pairs if read.any()] for kind, read in kinds}
