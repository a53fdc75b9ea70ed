"""Every plan of a subspace, by the closed form: Figures 9 and 10."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.time import TimeCost
from hypar_opt.paper.arrays import H_TREE
from hypar_opt.paper.communication import READINGS, plan
from hypar_opt.paper.rows import Measure, Value, printed
from hypar_opt.pipeline import find_network, problem_of, shapes_of
from hypar_opt.simulator.closed_form import ClosedForm

_LEVELS = 4
_TIES = 1 - 1e-9


@cache
def lenet_surface(reading: str = "figures") -> NDArray[np.float64]:
    """Return Lenet-c's performance over Data Parallelism: ``[H1, H4]``, 16 x 16.

    An index is the level's digits, a layer each, read as a binary number. H2 and H3 are
    HyPar's.

    Source: Figure 9.
    """
    _, second, third, _ = plan("Lenet-c", "hypar", reading).assignments()
    states = [
        [8 * first + 4 * h2 + 2 * h3 + fourth for first in (0, 1) for fourth in (0, 1)]
        for h2, h3 in zip(second, third, strict=True)
    ]
    found = _performance("Lenet-c", states, reading).reshape((2, 2) * len(states))
    first, fourth = range(0, found.ndim, 2), range(1, found.ndim, 2)
    return found.transpose(*first, *fourth).reshape(2 ** len(states), -1)


@cache
def vgg_a_surface(reading: str = "figures") -> NDArray[np.float64]:
    """Return VGG-A's performance over Data Parallelism: ``[conv5_2, fc1]``, 16 x 16.

    An index is the layer's digits, H1's first, read as a binary number. The other layers are
    HyPar's.

    Source: Figure 10.
    """
    every = range(2**_LEVELS)
    states = [
        every if name in ("conv5_2", "fc1") else [int(digits, 2)]
        for name, digits in _hypar("VGG-A", reading).items()
    ]
    return _performance("VGG-A", states, reading).reshape(len(every), -1)


def lenet() -> list[Measure]:
    """Figure 9: the peak of 256 plans, which is HyPar's."""
    peak = printed()["fig9_lenet_exploration"]["peak"]
    rows: list[tuple[str, Value, Callable[[str], Value]]] = [
        ("hypar", peak["performance"], _lenet_hypar),
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
        ("hypar", hypar["performance"], _vgg_a_hypar),
        ("hypar conv5_2", hypar["conv5_2"], lambda reading: _hypar("VGG-A", reading)["conv5_2"]),
        ("hypar fc1", hypar["fc1"], lambda reading: _hypar("VGG-A", reading)["fc1"]),
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


def _performance(
    network: str, states: Sequence[Sequence[int]], reading: str
) -> NDArray[np.float64]:
    """Return each plan's performance, an axis a layer."""
    shapes = shapes_of(find_network(network), 256)
    problem = problem_of(array=H_TREE, cost="time", reading=reading)
    closed = ClosedForm.of(TimeCost.asked(problem, shapes), shapes, _LEVELS)
    data = closed.of_all([[0]] * len(states)).item()
    seconds: NDArray[np.float64] = closed.of_all(states)
    return data / seconds


def _hypar(network: str, reading: str) -> dict[str, str]:
    """Return each layer's digits in HyPar's plan, H1's first."""
    found = plan(network, "hypar", reading)
    columns = zip(*found.assignments(), strict=True)
    return {
        name: "".join(map(str, digits)) for name, digits in zip(found.layers, columns, strict=True)
    }


def _lenet_hypar(reading: str) -> float:
    rows = plan("Lenet-c", "hypar", reading).assignments()
    first, fourth = (int("".join(map(str, rows[level])), 2) for level in (0, 3))
    return float(lenet_surface(reading)[first, fourth])


def _vgg_a_hypar(reading: str) -> float:
    digits = _hypar("VGG-A", reading)
    return float(vgg_a_surface(reading)[int(digits["conv5_2"], 2), int(digits["fc1"], 2)])


def _peak(surface: NDArray[np.float64]) -> float:
    return float(surface.max())


def _place(surface: NDArray[np.float64], axis: int) -> str:
    """Return the digits of the peak, or of all peaks that tie, along one axis."""
    places = np.argwhere(surface >= surface.max() * _TIES)[:, axis]
    return "/".join(f"{place:0{_LEVELS}b}" for place in np.unique(places))
