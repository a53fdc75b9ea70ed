"""How a row-stationary array of processing elements is filled by a convolution."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple


class Mapping(NamedTuple):
    """What a layer uses of the array.

    ``active`` are the processing elements of the fullest pass, ``utilisation`` the part of
    all that is active on average over the passes.
    """

    active: int
    utilisation: Fraction


def row_stationary(rows: int, columns: int, kernel_rows: int, output_rows: int) -> Mapping:
    """Map a convolution on ``rows`` x ``columns`` processing elements.

    A set is kernel rows x output rows, one element each. Output rows beyond the columns make
    further strips, kernel rows beyond the rows further passes. Strips are stacked and put
    side by side as often as they fit. A layer has a set for every pair of channels of every
    image, and these are taken to be many: no pass is left partly filled for want of strips.

    Source: Chen, Emer and Sze, "Eyeriss", ISCA 2016, section V. The active elements are those
    of Chen, Krishna, Emer and Sze, "Eyeriss", JSSC 52(1), 2017, Table V, for AlexNet.
    """
    strips = -(-output_rows // columns)
    beside = max(1, columns // output_rows)
    widest = min(columns, beside * output_rows)
    missing = -output_rows % columns if strips > 1 else 0
    heights = [(rows, kernel_rows // rows), (kernel_rows % rows, 1)]
    active, passes = 0, Fraction()
    for height, times in heights:
        if height and times:
            stacked = rows // height
            # The short strip is a set's last, so no pass has fewer of them than the first.
            full = stacked * widest - stacked // strips * missing
            active = max(active, height * full)
            passes += times * Fraction(strips, stacked * beside)
    used = Fraction(kernel_rows * output_rows)
    return Mapping(active, used / (rows * columns * passes))
