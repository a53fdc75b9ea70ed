"""Every plan of a subspace, in closed form: Figures 9 and 10."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def lenet_surface(reading: str = "figures") -> NDArray[np.float64]:
    """Return Lenet-c's performance over Data Parallelism: ``[H1, H4]``, 16 x 16.

    An index is the level's digits, one per layer, read as a binary number. H2 and H3 are
    HyPar's.

    Source: Figure 9.
    """
    return _surface("Lenet-c", reading)


def vgg_a_surface(reading: str = "figures") -> NDArray[np.float64]:
    """Return VGG-A's performance over Data Parallelism: ``[conv5_2, fc1]``, 16 x 16.

    An index is the layer's digits, H1's first, read as a binary number. The other layers are
    HyPar's.

    Source: Figure 10.
    """
    return _surface("VGG-A", reading)


def lenet(readings: Sequence[str]) -> list[Measure]:
    """Figure 9: the peak of 256 plans, which is HyPar's."""
    peak = published()["fig9_lenet_exploration"]["peak"]
    rows: list[tuple[str, Value, Callable[[str], Value]]] = [
        ("hypar", peak["performance"], partial(_hypar, "Lenet-c")),
        ("peak", peak["performance"], lambda reading: _peak(lenet_surface(reading))),
        ("peak H1", peak["H1"], lambda reading: _peak_digits(lenet_surface(reading), 0)),
        ("peak H4", peak["H4"], lambda reading: _peak_digits(lenet_surface(reading), 1)),
    ]
    return _each("Lenet-c", rows, readings)


def vgg_a(readings: Sequence[str]) -> list[Measure]:
    """Figure 10: HyPar's plan among 256, and the printed peak."""
    figure = published()["fig10_vgga_exploration"]
    hypar, peak = figure["hypar"], figure["peak"]
    rows: list[tuple[str, Value, Callable[[str], Value]]] = [
        ("hypar", hypar["performance"], partial(_hypar, "VGG-A")),
        ("hypar conv5_2", hypar["conv5_2"], partial(_digits, "conv5_2")),
        ("hypar fc1", hypar["fc1"], partial(_digits, "fc1")),
        ("peak", peak["performance"], lambda reading: _peak(vgg_a_surface(reading))),
        ("peak conv5_2", peak["conv5_2"], lambda reading: _peak_digits(vgg_a_surface(reading), 0)),
        ("peak fc1", peak["fc1"], lambda reading: _peak_digits(vgg_a_surface(reading), 1)),
    ]
    return _each("VGG-A", rows, readings)


def _each(
    network: str,
    rows: Sequence[tuple[str, Value, Callable[[str], Value]]],
    readings: Sequence[str],
) -> list[Measure]:
    """Return the rows in each reading."""
    return [
        Measure(f"{network} {name}", reading, value, partial(ours, reading))
        for reading in readings
        for name, value, ours in rows
    ]


@cache
def _exploration(network: str, reading: str) -> Exploration:
    """Price HyPar's plan and all plans that differ from it along the figure's axes."""
    hypar = plan(network, "hypar", reading)
    # The plan minimises bytes and was solved without an array; its time needs one.
    return explore(hypar, ",".join(_AXES[network]), objective="time", array=H_TREE)


def _surface(network: str, reading: str) -> NDArray[np.float64]:
    exploration = _exploration(network, reading)
    # Performance is Data Parallelism's time over the plan's.
    gains: NDArray[np.float64] = (
        exploration.data_parallel_cost / exploration.grid(*_AXES[network]).values
    )
    return gains


def _hypar(network: str, reading: str) -> float:
    exploration = _exploration(network, reading)
    return exploration.data_parallel_cost / exploration.plan_cost


def _digits(layer: str, reading: str) -> str:
    """Return a layer's digits in HyPar's plan of VGG-A, H1's first."""
    hypar = plan("VGG-A", "hypar", reading)
    column = hypar.layers.index(layer)
    return "".join(str(row[column]) for row in hypar.assignments())


def _peak(surface: NDArray[np.float64]) -> float:
    return float(surface.max())


def _peak_digits(surface: NDArray[np.float64], axis: int) -> str:
    """Return the digits of the peak, or of all peaks that tie, along one axis."""
    # All plans that tie are peaks; the paper prints one of them.
    indices = np.argwhere(surface >= surface.max() * (1 - _TIE))[:, axis]
    # Four digits on every axis: Lenet-c's four layers, or the four levels.
    return "/".join(f"{index:04b}" for index in np.unique(indices))
