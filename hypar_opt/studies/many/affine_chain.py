"""One chain for many batches at once: their dynamic programs together, in numpy's int64.

With two choices and thresholds a charge is affine in the batch: weights do not depend on it, and
every other tensor is in proportion to it. So a table of coefficients stands for the tables
of all batches, and one pass over the layers decides all of them (Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.table import chain_ends
from hypar_opt.costs.thresholds import ThresholdTable

Int64 = NDArray[np.int64]
Bits = NDArray[np.unsignedinteger[Any]]
"""A layer's choices at all levels: bit h is that of level h, 0 for H1."""

_ENTRIES = 2**18
"""Layers times batches processed together, so that they stay in the cache."""


def bits_type(levels: int) -> type[np.unsignedinteger[Any]]:
    """Return the narrowest type with a bit for each level."""
    kinds: dict[int, type[np.unsignedinteger[Any]]]
    kinds = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
    return next(kind for most, kind in kinds.items() if levels <= most)


@dataclass(frozen=True, eq=False)
class AffineChain:
    """The charges of a chain at the topmost level, as functions of the batch.

    Parameters
    ----------
    fixed, per_image : (2, layers) int64
        Of data and of model parallelism: ``fixed + per_image * batch``.
    pairs : (4, layers) int64
        Of dp-dp, dp-mp, mp-dp and mp-mp, an image: of the boundary into each layer; 0 into the
        first.

    Source: docs/decisions/0005-joint-optimum.md.
    """

    fixed: Int64
    per_image: Int64
    pairs: Int64

    @classmethod
    def of(cls, table_of: Callable[[int], ThresholdTable | None]) -> AffineChain | None:
        """Return the chain of threshold tables by batch; None if they are not affine."""
        tables = [table_of(batch) for batch in (1, 2, 3)]
        one, two, three = tables
        if one is None or two is None or three is None:
            return None
        if not np.array_equal(one.ends, chain_ends(len(one.data))):
            return None
        first, second, third = (_columns(table) for table in (one, two, three))
        per_image = second - first
        fixed = first - per_image
        # Any cost may have thresholds.
        if (third - second != per_image).any() or fixed[2:].any():
            return None
        if max(map(int, np.abs([fixed, per_image]).max(axis=0).reshape(-1)), default=0) >= 2**62:
            return None
        fixed, per_image = fixed.astype(np.int64), per_image.astype(np.int64)
        return cls(fixed[:2], per_image[:2], per_image[2:])

    def largest(self, batch: int, levels: int) -> int:
        """Return an upper bound on any sum of charges of a plan of so many levels."""
        parts = (int(part.astype(object).sum()) for part in (self.per_image, self.pairs))
        return (int(self.fixed.astype(object).sum()) + batch * sum(parts)) << levels

    def uniform(self, batches: Int64, levels: int, choice: int) -> Int64:
        """Return the charges of one choice of every layer at every level: ``(batches,)``."""
        # A layer's charge doubles from level to level, a boundary's does not.
        pairs = int(self.pairs[3 * choice].sum()) * levels
        node = int(self.fixed[choice].sum()), int(self.per_image[choice].sum())
        total: Int64 = (node[0] + node[1] * batches) * (2**levels - 1) + pairs * batches
        return total

    def levelwise(self, batches: Int64, levels: int) -> tuple[Int64, Bits]:
        """Solve level by level, each given the choices above it (Algorithm 2).

        Charges do not depend on the number of levels, so the first levels of a plan are the plan
        of fewer levels.

        Returns
        -------
        totals : (levels + 1, batches)
            Costs of the first 0, 1, ... levels.
        bits : (batches, layers)
            Bit h is 1 where the layer takes model parallelism at level h, H1 being 0.
        """
        totals = np.zeros((levels + 1, len(batches)), np.int64)
        kind = bits_type(levels)
        bits: Bits = np.zeros((len(batches), self.layers), kind)
        for chunk in self._chunks(len(batches)):
            data, model, pairs = self._charges(batches[chunk])
            made: Bits = np.zeros(data.shape, kind)
            for level in range(levels):
                costs, answers = _chains(data, model, pairs)
                totals[level + 1, chunk] = totals[level, chunk] + costs
                made |= answers.astype(kind) << level
                # Each choice doubles the replicas of the tensors that it does not split.
                twice = answers.astype(np.int64)
                model <<= twice
                data <<= 1 - twice
            bits[chunk] = made.T
        return totals, bits

    def joint(self, batches: Int64, levels: int) -> tuple[Int64, Bits]:
        """Solve all levels jointly, by the thresholds "at t levels or more".

        Returns totals, (batches,), and bits as `levelwise` does.
        """
        totals = np.zeros(len(batches), np.int64)
        kind = bits_type(levels)
        bits: Bits = np.zeros((len(batches), self.layers), kind)
        for chunk in self._chunks(len(batches)):
            data, model, pairs = self._charges(batches[chunk])
            made: Bits = np.zeros(data.shape, kind)
            for t in range(1, levels + 1):
                costs, answers = _chains(data << levels - t, model << t - 1, pairs)
                totals[chunk] += costs
                # Answers are nested: the topmost levels are model parallel.
                made |= answers.astype(kind) << t - 1
            bits[chunk] = made.T
        return totals, bits

    def price(self, batches: Int64, bits: Bits, levels: int) -> Int64:
        """Return the charges, ``(batches,)``, of choices that `levelwise` returns as bits."""
        totals = np.zeros(len(batches), np.int64)
        doubled = (1 << np.arange(levels + 1)) - 1
        for chunk in self._chunks(len(batches)):
            chosen = bits[chunk].T
            # The number of levels at which a layer, or it and the one before, is model parallel.
            model, both = np.zeros(chosen.shape, np.int8), np.zeros(chosen[1:].shape, np.int8)
            for level in range(levels):
                answers = (chosen >> level & 1).astype(bool)
                model += answers
                both += answers[1:] & answers[:-1]
            into_model, out_of_model = model[1:] - both, model[:-1] - both
            into_data = levels - model[1:] - out_of_model
            pairs = np.zeros(len(batches[chunk]), np.int64)
            for charges, counts in zip(
                self.pairs, (into_data, into_model, out_of_model, both), strict=True
            ):
                if charges.any():
                    pairs += charges[1:] @ counts
            # A layer's charge doubles each time that its choice is taken.
            data_charge, model_charge, _ = self._charges(batches[chunk])
            data_charge *= doubled[levels - model]
            model_charge *= doubled[model]
            data_charge += model_charge
            totals[chunk] = data_charge.sum(axis=0) + pairs * batches[chunk]
        return totals

    @property
    def layers(self) -> int:
        return int(self.fixed.shape[1])

    @cached_property
    def _free(self) -> list[list[int | None]]:
        """Each layer's charged pairs, per image; None for a pair that no layer is charged for."""
        return [[int(charge) if charge else None for charge in column] for column in self.pairs.T]

    def _chunks(self, batches: int) -> list[slice]:
        size = max(1, _ENTRIES // max(1, self.layers))
        return [slice(start, start + size) for start in range(0, batches, size)]

    def _charges(self, batches: Int64) -> tuple[Int64, Int64, list[list[Int64 | int]]]:
        """Return the charges of a chunk: ``(layers, batches)`` each, and pairs by layer."""
        data, model = (
            fixed[:, None] + per_image[:, None] * batches
            for fixed, per_image in zip(self.fixed, self.per_image, strict=True)
        )
        # Pairs without a charge, as mp-mp mostly is, need not be added.
        pairs = [
            [0 if charge is None else charge * batches for charge in column]
            for column in self._free
        ]
        return data, model, pairs


def _columns(table: ThresholdTable) -> NDArray[np.object_]:
    """Return a table's charges: data, model and the four pairs, ``(6, layers)``."""
    layers = len(table.data)
    columns = np.zeros((6, layers), object)
    columns[0], columns[1] = list(map(int, table.data)), list(map(int, table.model))
    for row, pairs in enumerate(table.pairs, 2):
        columns[row, 1:] = list(map(int, pairs))
    return columns


def _chains(
    data: Int64, model: Int64, pairs: list[list[Int64 | int]]
) -> tuple[Int64, NDArray[np.bool_]]:
    """Return the least cost of each of many chains, and its canonical assignment.

    As `hypar_opt.solvers.dynamic_programming.ChainDP`, ties included.

    Parameters
    ----------
    data, model : (layers, chains)
    pairs
        For each layer, the charges of the edge into it, ``(chains,)`` or 0.

    Returns
    -------
    costs : (chains,)
    answers : (layers, chains)
        True for model parallelism.
    """
    to_data, gap = data[0].copy(), model[0] - data[0]
    before_data, before_model = np.empty((2, *data.shape), bool)
    for layer in range(1, len(data)):
        dd, dm, md, mm = pairs[layer]
        into_data, into_model = gap + md, gap + mm
        # Strictly less: of equal paths the one from data, the first choice, is canonical.
        np.less(into_data, dd, out=before_data[layer])
        np.less(into_model, dm, out=before_model[layer])
        into_data = np.minimum(into_data, dd)
        into_data += data[layer]
        to_data += into_data
        gap = np.minimum(into_model, dm)
        gap += model[layer]
        gap -= into_data
    answers = np.empty(data.shape, bool)
    np.less(gap, 0, out=answers[-1])
    to_data += np.minimum(gap, 0)
    for layer in range(len(data) - 1, 0, -1):
        answers[layer - 1] = np.where(answers[layer], before_model[layer], before_data[layer])
    return to_data, answers
