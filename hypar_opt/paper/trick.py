"""HyPar over the Trick on parts of VGG-E: Figure 13."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from statistics import geometric_mean

from hypar_opt.hardware.arrays import papers
from hypar_opt.models import find_network
from hypar_opt.paper.communication import SOLVERS
from hypar_opt.paper.rows import Measure, published
from hypar_opt.pipeline import solve
from hypar_opt.simulator.result import StepResult
from hypar_opt.studies.simulation import simulate
from hypar_opt.workload.network import Network
from hypar_opt.workload.tensors import workload_of

PARTS = {"conv5": ("conv5_", 32), "fc3": ("fc3", 4096)}
"""Parts of VGG-E: the prefix of their layers' names, and the batch."""


def trick(readings: Sequence[str]) -> list[Measure]:
    """Figure 13: HyPar over the Trick.

    The figure's conv5 is reproduced if conv5_1 to conv5_4 are a separate network with its plan;
    as part of VGG-E's step, the same layers also pay for the boundaries around them and gain
    less.

    Source: section 6.5.2; docs/simulator.md.
    """
    return [
        measure
        for reading in readings
        for measure in (*_measures(reading), *_mean_measures(reading))
    ]


def _cases() -> list[tuple[str, int]]:
    figure = published()["fig13_trick"]
    return [(part, levels) for part in PARTS for levels in figure["levels"]]


def _measures(reading: str) -> list[Measure]:
    figure = published()["fig13_trick"]
    measures = []
    for quantity in ("performance", "energy"):
        for part, levels in _cases():
            name = f"{part}_b{PARTS[part][1]}"
            # The figure prints one list per part, along the levels.
            value = figure[f"{name}_{quantity}"][figure["levels"].index(levels)]
            ours = partial(_over_the_trick, quantity, reading, part, levels)
            label = f"VGG-E {name.replace('_', ' ')} h{levels} {quantity}"
            measures.append(Measure(label, reading, value, ours))
    return measures


def _mean_measures(reading: str) -> list[Measure]:
    figure = published()["fig13_trick"]
    return [
        Measure(
            f"geometric mean {quantity}",
            reading,
            figure[f"{quantity}_gmean"],
            partial(_mean_over_the_trick, quantity, reading),
        )
        for quantity in ("performance", "energy")
    ]


@cache
def _part(name: str) -> Network:
    """Return some layers of VGG-E as a network with their input in VGG-E."""
    prefix, batch = PARTS[name]
    vgg_e = find_network("vgg-e")
    # The part's first layer reads the feature map that it reads in VGG-E.
    shape = next(
        layer.input[1:]
        for layer in workload_of(vgg_e, batch).layers
        if layer.name.startswith(prefix)
    )
    layers = [layer for layer in vgg_e.description()["layer"] if layer["name"].startswith(prefix)]
    # A convolution reads a feature map, a fully-connected layer a vector.
    keys = ("channels", "height", "width") if len(shape) == 3 else ("features",)
    network = {"name": name, "input": dict(zip(keys, shape, strict=True)), "layer": layers}
    return Network.model_validate(network)


@cache
def _part_step(name: str, column: str, levels: int, reading: str) -> StepResult:
    # Cached: performance, energy and their means share the steps.
    batch, array = PARTS[name][1], papers(levels)
    plan = solve(_part(name), solver=SOLVERS[column], reading=reading, array=array, batch=batch)
    return simulate(plan)


def _over_the_trick(quantity: str, reading: str, part: str, levels: int) -> float:
    hypar, trick = (_part_step(part, name, levels, reading) for name in ("hypar", "trick"))
    if quantity == "energy":
        return trick.energy.total / hypar.energy.total
    return trick.seconds / hypar.seconds


def _mean_over_the_trick(quantity: str, reading: str) -> float:
    return geometric_mean(_over_the_trick(quantity, reading, *case) for case in _cases())
