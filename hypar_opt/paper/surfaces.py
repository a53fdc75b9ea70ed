"""Every plan of a subspace, by the closed form: Figures 9 and 10."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.time import TimeCost
from hypar_opt.paper.arrays import H_TREE
from hypar_opt.paper.communication import plan
from hypar_opt.paper.rows import Measure, printed
from hypar_opt.pipeline import find_network, problem_of, shapes_of
from hypar_opt.simulator.closed_form import ClosedForm

_LEVELS = 4
_TIES = 1 - 1e-9


@cache
def lenet_surface() -> NDArray[np.float64]:
    """Return Lenet-c's performance over Data Parallelism: ``[H1, H4]``, 16 x 16.

    An index is the level's digits, a layer each, read as a binary number. H2 and H3 are
    HyPar's.

    Source: Figure 9.
    """
    _, second, third, _ = plan("Lenet-c", "hypar", "figures").assignments()
    states = [
        [8 * first + 4 * h2 + 2 * h3 + fourth for first in (0, 1) for fourth in (0, 1)]
        for h2, h3 in zip(second, third, strict=True)
    ]
    found = _performance("Lenet-c", states).reshape((2, 2) * len(states))
    first, fourth = range(0, found.ndim, 2), range(1, found.ndim, 2)
    return found.transpose(*first, *fourth).reshape(2 ** len(states), -1)


@cache
def vgg_a_surface() -> NDArray[np.float64]:
    """Return VGG-A's performance over Data Parallelism: ``[conv5_2, fc1]``, 16 x 16.

    An index is the layer's digits, H1's first, read as a binary number. The other layers are
    HyPar's.

    Source: Figure 10.
    """
    every = range(2**_LEVELS)
    states = [
        every if name in ("conv5_2", "fc1") else [state]
        for name, state in zip(_names("VGG-A"), _hypar("VGG-A"), strict=True)
    ]
    return _performance("VGG-A", states).reshape(len(every), -1)


def lenet() -> list[Measure]:
    """Figure 9: the peak of 256 plans, which is HyPar's."""
    peak = printed()["fig9_lenet_exploration"]["peak"]
    return [
        Measure("Lenet-c hypar", "figures", peak["performance"], _lenet_hypar),
        Measure("Lenet-c peak", "figures", peak["performance"], lambda: _peak(lenet_surface())),
        Measure("Lenet-c peak H1", "figures", peak["H1"], lambda: _place(lenet_surface(), 0)),
        Measure("Lenet-c peak H4", "figures", peak["H4"], lambda: _place(lenet_surface(), 1)),
    ]


def vgg_a() -> list[Measure]:
    """Figure 10: HyPar's plan among 256, and the printed peak."""
    figure = printed()["fig10_vgga_exploration"]
    hypar, peak = figure["hypar"], figure["peak"]

    def chosen(layer: str) -> str:
        return f"{_hypar('VGG-A')[_names('VGG-A').index(layer)]:0{_LEVELS}b}"

    def performance() -> float:
        return float(vgg_a_surface()[int(chosen("conv5_2"), 2), int(chosen("fc1"), 2)])

    return [
        Measure("VGG-A hypar", "figures", hypar["performance"], performance),
        Measure("VGG-A hypar conv5_2", "figures", hypar["conv5_2"], lambda: chosen("conv5_2")),
        Measure("VGG-A hypar fc1", "figures", hypar["fc1"], lambda: chosen("fc1")),
        Measure("VGG-A peak", "figures", peak["performance"], lambda: _peak(vgg_a_surface())),
        Measure(
            "VGG-A peak conv5_2", "figures", peak["conv5_2"], lambda: _place(vgg_a_surface(), 0)
        ),
        Measure("VGG-A peak fc1", "figures", peak["fc1"], lambda: _place(vgg_a_surface(), 1)),
    ]


def _performance(network: str, states: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Return each plan's performance, an axis a layer."""
    shapes = shapes_of(find_network(network), 256)
    problem = problem_of(array=H_TREE, cost="time", reading="figures")
    closed = ClosedForm.of(TimeCost.asked(problem, shapes), shapes, _LEVELS)
    data = closed.of_all([[0]] * len(states)).item()
    seconds: NDArray[np.float64] = closed.of_all(states)
    return data / seconds


def _names(network: str) -> tuple[str, ...]:
    return plan(network, "hypar", "figures").layers


def _hypar(network: str) -> list[int]:
    """Return what each layer takes in HyPar's plan: its digits, H1's first, in binary."""
    rows = plan(network, "hypar", "figures").assignments()
    return [int("".join(map(str, digits)), 2) for digits in zip(*rows, strict=True)]


def _lenet_hypar() -> float:
    rows = plan("Lenet-c", "hypar", "figures").assignments()
    first, fourth = (int("".join(map(str, rows[level])), 2) for level in (0, 3))
    return float(lenet_surface()[first, fourth])


def _peak(surface: NDArray[np.float64]) -> float:
    return float(surface.max())


def _place(surface: NDArray[np.float64], axis: int) -> str:
    """Return the digits of the peak, or of all peaks that tie, along one axis."""
    places = np.argwhere(surface >= surface.max() * _TIES)[:, axis]
    return "/".join(f"{place:0{_LEVELS}b}" for place in np.unique(places))
