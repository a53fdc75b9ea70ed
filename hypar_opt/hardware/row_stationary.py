"""The row-stationary mapping of a convolution on an array of processing elements."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple


class PeMapping(NamedTuple):
    """A layer's use of the processing elements.

    ``active`` is the highest number of elements in use in a pass, ``utilisation`` the fraction of
    the elements in use on average over the passes.
    """

    active: int
    utilisation: Fraction


def row_stationary(rows: int, columns: int, kernel_rows: int, output_rows: int) -> PeMapping:
    """Map a convolution on ``rows`` x ``columns`` processing elements.

    A set is kernel rows x output rows, one element for each pair. Output rows beyond the
    columns make further strips, kernel rows beyond the rows further passes. Strips are stacked
    and put side by side as often as they fit. A layer has a set for every pair of channels of
    every image; they are assumed to be many, so that no pass lacks strips to fill it.

    Source: Chen, Emer and Sze, "Eyeriss", ISCA 2016, section V. The active elements are those
    of Chen, Krishna, Emer and Sze, "Eyeriss", JSSC 52(1), 2017, Table V, for AlexNet.
    """
    strips = -(-output_rows // columns)
    side_by_side = max(1, columns // output_rows)
    used_columns = min(columns, side_by_side * output_rows)
    # The last strip of a set has the remaining output rows only.
    missing = -output_rows % columns if strips > 1 else 0
    # Kernel rows fold into passes of all rows, and one of the remaining rows.
    heights = [(rows, kernel_rows // rows), (kernel_rows % rows, 1)]
    active, passes = 0, Fraction()
    for height, folds in heights:
        if height and folds:
            stacked = rows // height
            # The short strip is a set's last, so that the first pass is the fullest.
            columns_in_use = stacked * used_columns - stacked // strips * missing
            active = max(active, height * columns_in_use)
            passes += folds * Fraction(strips, stacked * side_by_side)
    # The elements of a set, over the elements of all passes that it takes.
    set_size = Fraction(kernel_rows * output_rows)
    return PeMapping(active, set_size / (rows * columns * passes))
