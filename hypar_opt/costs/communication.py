"""Communication in bytes: the paper's Tables 1 and 2, in one of four readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.readings import INFERENCE, READINGS, TRAINING, Phase
from hypar_opt.costs.table import CostTable
from hypar_opt.errors import HyparError, UnknownNameError

if TYPE_CHECKING:
    from hypar_opt.costs.base import Splits
    from hypar_opt.shapes import Shapes

DATA, MODEL = 0, 1
ELEMENT_BYTES = (1, 2, 4, 8)


@dataclass(frozen=True)
class CommunicationCost:
    """Bytes exchanged between the two halves of every group of one level, added up.

    With d data and m model choices of a layer above a level (of 2^h groups), a group has
    W / 2^m, F / 2^d and, of the layer's own input, A / 2^(d+m). Times 2^h these are whole
    numbers, also where a size is odd: the table is exact without rounding anything.

    ======  ======  =======================  ===============
    layer   choice  charged for              times
    ======  ======  =======================  ===============
    l       data    dW_l                     gradient
    l       model   F_{l+1}                  partial_sum
    l-1, l  dp-mp   A, forward and backward  data_model each
    l-1, l  mp-mp   A, backward              model_model
    l-1, l  mp-dp   A, backward              model_data
    ======  ======  =======================  ===============

    Parameters
    ----------
    reading
        Whose factors: `hypar_opt.costs.readings` has the four rows.
    element_bytes
        Bytes of a tensor's element: 4 as in the paper, 2 for half precision.
    inference
        Charge the forward pass only: no gradients and no errors.

    Source: Tables 1 and 2; Algorithm 2; MODEL "Sizes" and "Communication at one level".
    """

    reading: str = "text"
    element_bytes: int = 4
    inference: bool = False
    unit = "bytes"

    def __post_init__(self) -> None:
        if self.reading not in READINGS:
            raise UnknownNameError("reading", self.reading, list(READINGS))
        if self.element_bytes not in ELEMENT_BYTES:
            known = ", ".join(map(str, ELEMENT_BYTES))
            raise HyparError(f"element bytes should be one of {known}, got {self.element_bytes}")

    def table(self, shapes: Shapes, splits: Splits) -> CostTable:
        """Price one level for a batch, given the choices above.

        Returns
        -------
        CostTable
            Unit bytes; entries count bytes, or the half or quarter bytes that a quarter
            of a smaller element makes.
        """
        row = READINGS[self.reading]
        phases = INFERENCE if self.inference else TRAINING
        forward, backward, gradient = (phase in phases for phase in Phase)
        # Entries are quarters of an element; element_bytes / 4 in lowest terms makes bytes.
        common = gcd(self.element_bytes, 4)
        scale, per_unit = self.element_bytes // common, 4 // common

        level = splits.level
        outputs = shapes.outputs if row.as_held else shapes.pooled
        number = _number_type(8 * scale << level, shapes.weights, outputs, shapes.boundary_sizes)
        halvings = splits.counts.astype(number)
        ends = np.array([(b.source, b.target) for b in shapes.boundaries], np.intp).reshape(-1, 2)

        node = np.zeros((len(shapes.layers), 2), number)
        weights = np.array(shapes.weights, number) << (level - halvings[MODEL])
        partial_sums = np.array(outputs, number) << (level - halvings[DATA])
        node[:, DATA] = scale * row.gradient * gradient * weights
        node[:, MODEL] = scale * row.partial_sum * forward * partial_sums

        edge = np.zeros((len(ends), 2, 2), number)
        # Either choice halves a layer's input: 2^h groups of A / 2^(d+m) are one A. A run
        # finds it as the source holds it, whole where that layer took model parallelism.
        boundary = np.array(shapes.boundary_sizes, number)
        behind_model = boundary
        if row.as_held:
            behind_model = boundary << (level - halvings[DATA][ends[:, 0]])
        edge[:, DATA, MODEL] = scale * row.data_model * (forward + backward) * boundary
        edge[:, MODEL, MODEL] = scale * row.model_model * backward * behind_model
        edge[:, MODEL, DATA] = scale * row.model_data * backward * behind_model

        kinds = tuple(layer.kind for layer in shapes.layers)
        return CostTable(node, edge, ends, kinds, self.unit, per_unit)


def _number_type(factor: int, *sizes: Sequence[int]) -> type[np.int64 | np.object_]:
    """Return int64 where no sum of charges can overflow it, else Python's own integers."""
    largest = factor * sum(sum(size) for size in sizes)
    return np.int64 if largest < 2**63 else np.object_
