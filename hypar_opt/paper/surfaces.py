"""Every plan of a subspace, in closed form: Figures 9 and 10."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from hypar_opt.paper.arrays import H_TREE
from hypar_opt.paper.communication import plan
from hypar_opt.paper.rows import Measure, Value, published
from hypar_opt.studies.exploration import Exploration, explore

_AXES = {"Lenet-c": ("H1", "H4"), "VGG-A": ("conv5_2", "fc1")}
_TIE = 1e-9
"""Relative: sums of the same seconds in another order differ by rounding."""


def lenet(readings: Sequence[str]) -> list[Measure]:
    """Figure 9: the peak of 256 plans, which is HyPar's."""
    peak = published()["fig9_lenet_exploration"]["peak"]
    hypar = {"performance": peak["performance"]}
    return _measures("Lenet-c", {"hypar": hypar, "peak": peak}, readings)


def vgg_a(readings: Sequence[str]) -> list[Measure]:
    """Figure 10: HyPar's plan among 256, and the printed peak."""
    return _measures("VGG-A", published()["fig10_vgga_exploration"], readings)


def _measures(
    network: str, printed: Mapping[str, Mapping[str, Value]], readings: Sequence[str]
) -> list[Measure]:
    """Return the performance and the digits of HyPar's plan and of the peak, in each reading."""
    return [
        Measure(
            f"{network} {plan} {quantity}".removesuffix(" performance"),
            reading,
            printed[plan][quantity],
            partial(_OURS[plan], network, quantity, reading),
        )
        for reading in readings
        for plan in ("hypar", "peak")
        for quantity in ("performance", *_AXES[network])
        if quantity in printed[plan]
    ]


@cache
def _exploration(network: str, reading: str) -> Exploration:
    """Price HyPar's plan and all plans that differ from it along the figure's axes."""
    hypar = plan(network, "hypar", reading)
    # The plan minimises bytes and was solved without an array; its time needs one.
    return explore(hypar, ",".join(_AXES[network]), objective="time", array=H_TREE)


def surface(network: str, reading: str = "figures") -> NDArray[np.float64]:
    """Return a network's performance over Data Parallelism on its figure's two axes, 16 x 16.

    Axes are levels, with a digit per layer, or layers, with a digit per level; an index is these
    digits read as a binary number. All other choices are HyPar's.

    Source: Figure 9, Lenet-c ``[H1, H4]``; Figure 10, VGG-A ``[conv5_2, fc1]``.
    """
    exploration = _exploration(network, reading)
    # Performance is Data Parallelism's time over the plan's.
    gains: NDArray[np.float64] = (
        exploration.data_parallel_cost / exploration.grid(*_AXES[network]).values
    )
    return gains


def _of_hypar(network: str, quantity: str, reading: str) -> Value:
    """Return the performance of HyPar's plan, or its digits of a layer, H1's first."""
    if quantity == "performance":
        exploration = _exploration(network, reading)
        return exploration.data_parallel_cost / exploration.plan_cost
    hypar = plan(network, "hypar", reading)
    column = hypar.layers.index(quantity)
    return "".join(str(row[column]) for row in hypar.assignments())


def _of_peak(network: str, quantity: str, reading: str) -> Value:
    """Return the peak's performance, or the digits of all peaks that tie, along one axis."""
    values = surface(network, reading)
    if quantity == "performance":
        return float(values.max())
    # All plans that tie are peaks; the paper prints one of them.
    indices = np.argwhere(values >= values.max() * (1 - _TIE))[:, _AXES[network].index(quantity)]
    # Four digits on every axis: Lenet-c's four layers, or the four levels.
    return "/".join(f"{index:04b}" for index in np.unique(indices))


_OURS = {"hypar": _of_hypar, "peak": _of_peak}
