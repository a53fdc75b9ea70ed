"""Every plan of a subspace, by the closed form: Figures 9 and 10."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from hypar_opt.paper.arrays import H_TREE
from hypar_opt.paper.communication import READINGS, plan
from hypar_opt.paper.rows import Measure, Value, printed
from hypar_opt.studies.exploration import Exploration, explore

_AXES = {"Lenet-c": ("H1", "H4"), "VGG-A": ("conv5_2", "fc1")}
_TIES = 1 - 1e-9


def lenet_surface(reading: str = "figures") -> NDArray[np.float64]:
    """Return Lenet-c's performance over Data Parallelism: ``[H1, H4]``, 16 x 16.

    An index is the level's digits, a layer each, read as a binary number. H2 and H3 are
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


def lenet() -> list[Measure]:
    """Figure 9: the peak of 256 plans, which is HyPar's."""
    peak = printed()["fig9_lenet_exploration"]["peak"]
    rows: list[tuple[str, Value, Callable[[str], Value]]] = [
        ("hypar", peak["performance"], partial(_hypar, "Lenet-c")),
        ("peak", peak["performance"], lambda reading: _peak(lenet_surface(reading))),
        ("peak H1", peak["H1"], lambda reading: _place(lenet_surface(reading), 0)),
        ("peak H4", peak["H4"], lambda reading: _place(lenet_surface(reading), 1)),
    ]
    return _both("Lenet-c", rows)


def vgg_a() -> list[Measure]:
    """Figure 10: HyPar's plan among 256, and the printed peak."""
    figure = printed()["fig10_vgga_exploration"]
    hypar, peak = figure["hypar"], figure["peak"]
    rows: list[tuple[str, Value, Callable[[str], Value]]] = [
        ("hypar", hypar["performance"], partial(_hypar, "VGG-A")),
        ("hypar conv5_2", hypar["conv5_2"], partial(_digits, "conv5_2")),
        ("hypar fc1", hypar["fc1"], partial(_digits, "fc1")),
        ("peak", peak["performance"], lambda reading: _peak(vgg_a_surface(reading))),
        ("peak conv5_2", peak["conv5_2"], lambda reading: _place(vgg_a_surface(reading), 0)),
        ("peak fc1", peak["fc1"], lambda reading: _place(vgg_a_surface(reading), 1)),
    ]
    return _both("VGG-A", rows)


def _both(network: str, rows: Sequence[tuple[str, Value, Callable[[str], Value]]]) -> list[Measure]:
    """Return the rows by the reading of the figures, and by that of the text."""
    return [
        Measure(f"{network} {name}", reading, value, partial(ours, reading))
        for reading in READINGS
        for name, value, ours in rows
    ]


@cache
def _explored(network: str, reading: str) -> Exploration:
    """Price HyPar's plan and all that differ from it along the figure's axes."""
    found = plan(network, "hypar", reading)
    return explore(found, ",".join(_AXES[network]), objective="time", array=H_TREE)


def _surface(network: str, reading: str) -> NDArray[np.float64]:
    found = _explored(network, reading)
    gains: NDArray[np.float64] = found.data / found.grid(*_AXES[network]).values
    return gains


def _hypar(network: str, reading: str) -> float:
    found = _explored(network, reading)
    return found.data / found.value


def _digits(layer: str, reading: str) -> str:
    """Return a layer's digits in HyPar's plan of VGG-A, H1's first."""
    found = plan("VGG-A", "hypar", reading)
    at = found.layers.index(layer)
    return "".join(str(row[at]) for row in found.assignments())


def _peak(surface: NDArray[np.float64]) -> float:
    return float(surface.max())


def _place(surface: NDArray[np.float64], axis: int) -> str:
    """Return the digits of the peak, or of all peaks that tie, along one axis."""
    places = np.argwhere(surface >= surface.max() * _TIES)[:, axis]
    return "/".join(f"{place:04b}" for place in np.unique(places))
