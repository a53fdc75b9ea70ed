"""One network for many batches at once: the tables of all batches follow from those of two.

With two choices and thresholds a charge is affine in the batch: weights do not depend on it, and
every other tensor is in proportion to it. Only an all-to-all between n parts of channels that n
does not divide depends on the remainder of the batch too; batches of one remainder are affine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import chain_ends
from hypar_opt.costs.thresholds import ThresholdTable
from hypar_opt.integers import Integers, exact_dtype
from hypar_opt.solvers.elimination.graph import PairGraph, graph_of
from hypar_opt.solvers.elimination.schedule import MAX_ENUMERATED
from hypar_opt.solvers.pseudo_boolean import PseudoBoolean
from hypar_opt.studies.many.kernels import Bits, GraphPairs, Int64, solve_chains

_ENTRIES = 2**18
"""Layers times batches of a chain processed together, so that they stay in the cache."""

_ON_A_GRAPH = 2**17
"""Rows of elimination times batches of a graph processed together, for the same reason."""

_COLUMNS = ("data", "model", "pairs")

Solve = Callable[[Int64, Int64], tuple[Int64, NDArray[np.bool_]]]


def bits_type(levels: int) -> type[np.unsignedinteger[Any]]:
    """Return the narrowest type with a bit for each level."""
    kinds: dict[int, type[np.unsignedinteger[Any]]]
    kinds = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
    return next(kind for width, kind in kinds.items() if levels <= width)


@dataclass(frozen=True, eq=False)
class AffineTable:
    """A table by thresholds as an affine function of the batch, for batches a period apart.

    Parameters
    ----------
    first
        The table of the first batch. It has one level, and forbids unlike choices of shared
        weights at a charge that is enough for all levels that are asked for.
    per_step
        What each period adds to it.
    shared
        The number of nodes that are not layers; they are the first.
    """

    first: ThresholdTable
    per_step: ThresholdTable
    start: int = 1
    period: int = 1
    shared: int = 0

    @classmethod
    def of(
        cls,
        table_of: Callable[[int], ThresholdTable | None],
        start: int = 1,
        period: int = 1,
        shared: int = 0,
    ) -> AffineTable | None:
        """Return the tables of batches a period apart; None if they are not affine."""
        first, second, third = (table_of(start + step * period) for step in range(3))
        if first is None or second is None or third is None:
            return None
        first = replace(first, levels=1)
        columns = [
            [np.array(getattr(table, name), object) for name in _COLUMNS]
            for table in (first, second, third)
        ]
        steps = [b - a for a, b in zip(*columns[:2], strict=True)]
        again = [b - a for a, b in zip(*columns[1:], strict=True)]
        # Any cost may have thresholds.
        if any((a != b).any() or (a < 0).any() for a, b in zip(steps, again, strict=True)):
            return None
        one, more = (
            replace(first, **dict(zip(_COLUMNS, column, strict=True)))
            for column in (columns[0], steps)
        )
        return cls(one, more, start, period, shared)

    def at(self, batch: int, levels: int) -> ThresholdTable:
        """Return the table of a batch for a number of levels."""
        step = (batch - self.start) // self.period
        columns = {
            name: getattr(self.first, name) + step * getattr(self.per_step, name)
            for name in _COLUMNS
        }
        table = replace(self.first, levels=levels, **columns)
        dtype = exact_dtype(table.max_total)
        return replace(table, **{name: column.astype(dtype) for name, column in columns.items()})

    def line(self, assignment: Sequence[int], levels: int) -> tuple[int, int]:
        """Return an assignment's cost for the first batch, and the cost that a period adds."""
        chosen = np.reshape(np.array(assignment, np.intp), (levels, -1))
        sources, targets = np.array(self.first.ends, np.intp).reshape(-1, 2).T
        kinds = 2 * chosen[:, sources] + chosen[:, targets]
        copies = np.array(self.copies(levels), object)
        # The multiplicity of each charge, as Python integers.
        nodes = [((chosen == choice) * copies[:, [choice]]).sum(axis=0) for choice in range(2)]
        pairs = [(kinds == kind).sum(axis=0).astype(object) for kind in range(4)]
        first, more = (
            sum(
                int(np.dot(times, charges))
                for times, charges in zip(
                    (*nodes, *pairs), (table.data, table.model, *table.pairs), strict=True
                )
            )
            for table in (self.first, self.per_step)
        )
        return first, more

    def largest_batch(self, levels: int) -> int:
        """Return the largest batch whose sums of charges fit int64 with room; 0 if there is none.

        Elimination on a graph adds up more of them than a chain does.
        """
        room = 2**62 if self.is_chain else 2**56
        first, more = (
            replace(table, levels=levels).max_total for table in (self.first, self.per_step)
        )
        # The factors have to fit even if nothing is charged.
        steps = (room - 1 - first - self.first.parts**levels) // max(1, more)
        return self.start + steps * self.period if steps >= 0 else 0

    def copies(self, levels: int) -> list[tuple[int, int]]:
        """Return the multiplicity of ``data`` and ``model`` charges at each threshold."""
        return replace(self.first, levels=levels).copies

    @property
    def layers(self) -> int:
        return len(self.first.data)

    @cached_property
    def is_chain(self) -> bool:
        return np.array_equal(self.first.ends, chain_ends(self.layers))

    @cached_property
    def is_batched(self) -> bool:
        """Whether `levelwise` and `joint` solve it: a chain, or a graph that rounds eliminate."""
        if self.is_chain:
            return True
        one, more = self._functions
        submodular = one.submodular and more.submodular
        ends = np.array(self.first.ends, np.intp).reshape(-1, 2)
        # Completing a plan takes each shared node separately.
        alone = bool((ends.max(axis=1) >= self.shared).all())
        return submodular and alone and len(self.graph.schedule.core) <= MAX_ENUMERATED

    @cached_property
    def graph(self) -> PairGraph:
        return graph_of(self.layers, self.first.ends)

    def levelwise(self, batches: Int64, levels: int) -> tuple[Int64, Bits]:
        """Solve level by level, each given the choices above it (Algorithm 2).

        Charges do not depend on the number of levels, so the first levels of a plan are the plan
        of fewer levels.

        Parameters
        ----------
        batches : (batches,)
            The first and any number of periods.

        Returns
        -------
        totals : (levels + 1, batches)
            Costs of the first 0, 1, ... levels.
        bits : (batches, nodes)
            Bit h is 1 where the node takes model parallelism at level h, H1 being 0.
        """
        steps = self._steps(batches)
        totals = np.zeros((levels + 1, len(steps)), np.int64)
        kind = bits_type(levels)
        bits: Bits = np.zeros((len(steps), self.layers), kind)
        further = self.first.parts - 1
        for chunk in self._chunks(len(steps)):
            data, model, solve = self._charges(steps[chunk])
            bits_of_chunk: Bits = np.zeros(data.shape, kind)
            for level in range(levels):
                costs, answers = solve(data, model)
                totals[level + 1, chunk] = totals[level, chunk] + costs
                bits_of_chunk |= answers.astype(kind) << level
                # Each choice has a replica in each part of the tensors that it does not split.
                more = answers * np.int64(further)
                model *= 1 + more
                data *= self.first.parts - more
            bits[chunk] = bits_of_chunk.T
        return totals, bits

    def joint(self, batches: Int64, levels: int) -> tuple[Int64, Bits]:
        """Solve all levels jointly, by the thresholds "at t levels or more".

        Returns totals, (batches,), and bits as `levelwise` does.
        """
        steps = self._steps(batches)
        totals = np.zeros(len(steps), np.int64)
        kind = bits_type(levels)
        bits: Bits = np.zeros((len(steps), self.layers), kind)
        for chunk in self._chunks(len(steps)):
            data, model, solve = self._charges(steps[chunk])
            bits_of_chunk: Bits = np.zeros(data.shape, kind)
            for level, (of_data, of_model) in enumerate(self.copies(levels)):
                costs, answers = solve(data * of_data, model * of_model)
                totals[chunk] += costs
                # Answers are nested: the topmost levels are model parallel.
                bits_of_chunk |= answers.astype(kind) << level
            bits[chunk] = bits_of_chunk.T
        return totals, bits

    def price(self, batches: Int64, bits: Bits, levels: int) -> Int64:
        """Return the charges, ``(batches,)``, of layers' choices, with the cheapest shared nodes.

        Parameters
        ----------
        bits : (batches, layers)
            As `levelwise` returns them, without those of shared nodes.
        """
        steps = self._steps(batches)
        totals = np.zeros(len(steps), np.int64)
        if not levels:
            return totals
        copied = _geometric(self.first.parts, levels)
        sources, targets = np.array(self.first.ends, np.intp).reshape(-1, 2).T
        for chunk in self._chunks(len(steps)):
            chosen = self._with_shared(bits[chunk].T, steps[chunk], levels)
            # The levels at which a node, or both ends of a boundary, are model parallel.
            model = np.zeros(chosen.shape, np.int8)
            both = np.zeros((len(sources), len(steps[chunk])), np.int8)
            for level in range(levels):
                answers = (chosen >> level & 1).astype(bool)
                model += answers
                both += answers[sources] & answers[targets]
            into_model, out_of_model = model[targets] - both, model[sources] - both
            into_data = levels - model[targets] - out_of_model
            kinds = (into_data, into_model, out_of_model, both)
            for charges, counts in zip(self._pairs_by_kind, kinds, strict=True):
                for times, column in zip((1, steps[chunk]), charges, strict=True):
                    if column.any():
                        totals[chunk] += column @ counts * times
            # A node's charge grows each time that its choice is taken.
            data_charge, model_charge = self._nodes(steps[chunk])
            data_charge *= copied[levels - model]
            model_charge *= copied[model]
            data_charge += model_charge
            totals[chunk] += data_charge.sum(axis=0)
        return totals

    def uniform(self, batches: Int64, levels: int, choice: int) -> Int64:
        """Return the charges of one choice of every layer at every level: ``(batches,)``."""
        if self.shared:
            return self._uniform_with_shared(batches, levels, choice)
        # A layer's charge grows from level to level, a boundary's does not.
        copied = int(_geometric(self.first.parts, levels)[levels])
        name = ("data", "model")[choice]
        first, more = (
            int(getattr(table, name).sum()) * copied + int(table.pairs[3 * choice].sum()) * levels  # type: ignore[union-attr]
            for table in (self.first, self.per_step)
        )
        return first + more * self._steps(batches)

    def _uniform_with_shared(self, batches: Int64, levels: int, choice: int) -> Int64:
        same = np.array(choice * (2**levels - 1), bits_type(levels))

        def priced(batches: Int64) -> Int64:
            rows = np.broadcast_to(same, (len(batches), self.layers - self.shared))
            return self.price(batches, rows, levels)

        first, last = batches.min(), batches.max()
        some = np.array([first, first + (last - first) // self.period // 2 * self.period, last])
        low, middle, high = priced(some).tolist()
        periods = (some - first) // self.period
        slope, rest = divmod(high - low, max(1, int(periods[2])))
        # The cheapest of lines is concave: it is one line if it is on its chord in between, too.
        if rest or middle != low + slope * int(periods[1]) or periods[2] < 2:
            return priced(batches)
        line: Int64 = low + slope * ((batches - first) // self.period)
        return line

    @cached_property
    def _functions(self) -> tuple[PseudoBoolean, PseudoBoolean]:
        """The pairs of the first table, and of a step, as terms of 0-1 variables."""
        alone = np.zeros(self.layers, object)
        first, more = (
            PseudoBoolean.of(replace(table, data=alone, model=alone))
            for table in (self.first, self.per_step)
        )
        return first, more

    @cached_property
    def _int64(self) -> list[list[Int64]]:
        """Data, model and pairs of the first table, and of a step."""
        return [
            [np.asarray(getattr(table, name)).astype(np.int64) for name in _COLUMNS]
            for table in (self.first, self.per_step)
        ]

    @cached_property
    def _pairs_by_kind(self) -> list[tuple[Int64, Int64]]:
        """The charges of dp-dp, dp-mp, mp-dp and mp-mp: of the first table and of a step."""
        (*_, first), (*_, more) = self._int64
        return list(zip(first, more, strict=True))

    def _steps(self, batches: Int64) -> Int64:
        return (batches - self.start) // self.period

    def _chunks(self, steps: int) -> list[slice]:
        if self.is_chain:
            size = max(1, _ENTRIES // max(1, self.layers))
        else:
            size = max(8, _ON_A_GRAPH // self.graph.schedule.rows)
        return [slice(start, start + size) for start in range(0, steps, size)]

    def _nodes(self, steps: Int64) -> tuple[Int64, Int64]:
        """Return the charges of data and of model parallelism, ``(nodes, steps)`` each."""
        (*first, _), (*more, _) = self._int64
        data, model = (a[:, None] + b[:, None] * steps for a, b in zip(first, more, strict=True))
        return data, model

    def _charges(self, steps: Int64) -> tuple[Int64, Int64, Solve]:
        """Return the charges of nodes, and what solves tables of them and of all pairs."""
        data, model = self._nodes(steps)
        if not self.is_chain:
            one, more = self._functions
            terms = (
                np.asarray(a).astype(np.int64)[:, None]
                + np.asarray(b).astype(np.int64)[:, None] * steps
                for a, b in (
                    (one.constant, more.constant),
                    (one.linear[:, 0], more.linear[:, 0]),
                    (one.quadratic, more.quadratic),
                )
            )
            constant, linear, quadratic = terms
            return data, model, GraphPairs(self.graph, constant[0], linear, quadratic).solve
        # Pairs without a charge, as mp-mp mostly is, need not be added.
        pairs = [
            [0 if charge is None else charge[0] + charge[1] * steps for charge in column]
            for column in self._free
        ]
        return data, model, partial(solve_chains, pairs=pairs)

    @cached_property
    def _free(self) -> list[list[tuple[int, int] | None]]:
        """A chain's charged pairs; None for a pair that no layer is charged for."""
        kinds = [
            list(zip(*map(np.ndarray.tolist, kind), strict=True)) for kind in self._pairs_by_kind
        ]
        return [
            [charge if any(charge) else None for charge in column]
            for column in zip(*kinds, strict=True)
        ]

    def _with_shared(self, layers: Bits, steps: Int64, levels: int) -> Bits:
        """Return the choices of all nodes, ``(nodes, steps)``: shared ones take the cheapest.

        Its own charge decides with those of its boundaries: where it has any, as shared weights,
        their users leave it one choice.
        """
        if not self.shared:
            return layers
        bits: Bits = np.zeros((self.layers, len(steps)), layers.dtype)
        bits[self.shared :] = layers
        ends = np.array(self.first.ends, np.intp).reshape(-1, 2)
        edges = np.flatnonzero(ends.min(axis=1) < self.shared)
        sources, targets = ends[edges].T
        (*_, first), (*_, more) = self._int64
        charges = [charge[: self.shared] for charge in self._nodes(steps)]
        for level in range(levels):
            choice = (bits >> level & 1).astype(np.intp)
            charged = []
            for column in range(2):
                choice[: self.shared] = column
                kinds = 2 * choice[sources] + choice[targets]
                pairs = first[kinds, edges[:, None]] + more[kinds, edges[:, None]] * steps
                total = charges[column].copy()
                np.add.at(total, ends[edges].min(axis=1), pairs)
                charged.append(total)
            bits[: self.shared] |= (charged[1] < charged[0]).astype(layers.dtype) << level
        return bits


def _geometric(parts: int, levels: int) -> Integers:
    """Return 1 + n + ... + n^(i-1) for i = 0 to the number of levels."""
    return np.cumsum([0, *(parts**level for level in range(levels))], dtype=np.int64)
