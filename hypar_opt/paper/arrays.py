"""Time and energy of simulated steps: Figures 6, 7, 11, 12 and 13."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import product
from statistics import geometric_mean
from typing import Any

from hypar_opt.costs.work import Work
from hypar_opt.hardware.arrays import find_array, papers
from hypar_opt.models import find_network
from hypar_opt.paper.communication import SOLVERS
from hypar_opt.paper.rows import Measure, column, published
from hypar_opt.planning.solve import solve
from hypar_opt.sharding.passes import TRAINING
from hypar_opt.simulator.result import StepResult
from hypar_opt.studies.simulation import simulated_step
from hypar_opt.workload.network import Network
from hypar_opt.workload.tensors import workload_of

H_TREE, TORUS = "hmc-htree-16", "hmc-torus-16"
ALEXNET = {
    name: (side, side)
    for name, side in {"conv1": 224, "conv2": 55, "conv3": 27, "conv4": 13, "conv5": 13}.items()
}
"""Input sizes with which the authors counted AlexNet's multiply-accumulates.

Source: docs/assumptions.md.
"""


@cache
def step(
    network: str,
    column: str,
    array: str = H_TREE,
    own_sizes: bool = False,
    reading: str = "figures",
) -> StepResult:
    """Simulate a step of the plan in one of the paper's columns.

    Parameters
    ----------
    column
        A key of `SOLVERS`.
    own_sizes
        Count AlexNet's multiply-accumulates with its layers' input sizes, not the authors'.
    """
    # Cached, since figures share steps: every ratio is over that of Data Parallelism.
    plan = solve(network, solver=SOLVERS[column], reading=reading, array=array)
    # The authors counted AlexNet with sizes that are not those of its layers.
    sizes = ALEXNET if network == "AlexNet" and not own_sizes else {}
    return simulated_step(plan, input_sizes=sizes)


def performance(readings: Sequence[str]) -> list[Measure]:
    """Figure 6: Data Parallelism's seconds on the H tree over each column's."""
    figure = published()["fig6_performance"]
    model, mean = figure["model"], figure["model_gmean"]
    alexnet = published()["networks"].index("AlexNet")
    own_sizes = partial(_gain, "hypar", H_TREE, "AlexNet", own_sizes=True)
    return [
        *_readings(partial(_gain, "model", H_TREE), "model", figure, readings),
        # No reading reproduces Figure 8's totals of Model Parallelism (decision 3); with them
        # taken as printed one sees whether the model of time is right.
        *column("model, printed bytes", _gain_of_printed_bytes, model, mean, "any"),
        *_readings(partial(_gain, "hypar", H_TREE), "hypar", figure, readings),
        *(
            Measure(
                "AlexNet hypar, own sizes",
                reading,
                figure["hypar"][alexnet],
                partial(own_sizes, reading=reading),
            )
            for reading in readings
        ),
    ]


def energy_efficiency(readings: Sequence[str]) -> list[Measure]:
    """Figure 7: Data Parallelism's joules over each column's."""
    figure = published()["fig7_energy_efficiency"]
    model, mean = figure["model"], figure["model_gmean"]
    return [
        *_readings(partial(_saving, "model"), "model", figure, readings),
        *column("model, printed bytes", _saving_of_printed_bytes, model, mean, "any"),
        *_readings(partial(_saving, "hypar"), "hypar", figure, readings),
    ]


def scalability(readings: Sequence[str]) -> list[Measure]:
    """Figure 11: H trees of 2 to 64 accelerators, for the figure's network and the text's.

    Source: docs/assumptions.md: the figure is VGG-E's, not VGG-A's.
    """
    figure = published()["fig11_scalability"]
    quantities: dict[str, Callable[[str, str, int, str], float]] = {
        "gain": _gain_over_one,
        "GB": _gigabytes,
    }
    return [
        Measure(
            f"{network} {name} {quantity} {accelerators}",
            reading,
            value,
            partial(ours, network, name, accelerators, reading),
        )
        for reading in readings
        for network, shown_accelerators in (
            (figure["network"], figure["accelerators"]),
            # The text names VGG-A; one of its points shows that the figure is of another network.
            ("VGG-A", [16]),
        )
        for quantity, ours in quantities.items()
        for name in ("hypar", "data")
        for accelerators, value in zip(
            figure["accelerators"], figure[f"{name}_{quantity}"], strict=True
        )
        if accelerators in shown_accelerators
    ]


def topologies(readings: Sequence[str]) -> list[Measure]:
    """Figure 12: HyPar's plan on two arrays, over Data Parallelism on the H tree."""
    figure = published()["fig12_topology"]
    return [
        measure
        for name, array in (("htree", H_TREE), ("torus", TORUS))
        for measure in _readings(partial(_gain, "hypar", array), name, figure, readings)
    ]


def _readings(
    ours: Callable[..., float], name: str, figure: Mapping[str, Any], readings: Sequence[str]
) -> list[Measure]:
    """Return a column of a figure, by its name, in each reading."""
    values, mean = figure[name], figure[f"{name}_gmean"]
    return [
        measure
        for reading in readings
        for measure in column(name, partial(ours, reading=reading), values, mean, reading)
    ]


def _gain(
    column: str, array: str, network: str, own_sizes: bool = False, reading: str = "figures"
) -> float:
    # The torus, too, is compared with Data Parallelism on the H tree, as in Figure 12.
    base = step(network, "data", H_TREE, own_sizes, reading)
    return base.seconds / step(network, column, array, own_sizes, reading).seconds


def _saving(column: str, network: str, reading: str = "figures") -> float:
    base = step(network, "data", reading=reading)
    return base.energy.total / step(network, column, reading=reading).energy.total


def _gain_of_printed_bytes(network: str) -> float:
    """Return Model Parallelism's performance if it moved the bytes that Figure 8 prints.

    A byte takes the same time at every level of the H tree, whatever the reading.
    """
    # Its communication scaled by the ratio of the bytes; its compute is as simulated.
    model = step(network, "model")
    seconds = model.compute + model.communication * _printed_bytes(network)
    return step(network, "data").seconds / seconds


def _saving_of_printed_bytes(network: str) -> float:
    # Words between accelerators scale with the bytes; work inside an accelerator does not.
    # As for time: the bytes as printed, the rest as simulated.
    energy = step(network, "model").energy
    joules = energy.total + energy.remote * (_printed_bytes(network) - 1)
    return step(network, "data").energy.total / joules


def _printed_bytes(network: str) -> float:
    """Return the ratio of Figure 8's bytes of Model Parallelism to ours."""
    column = published()["fig8_total_communication_GB"]["model"]
    gigabytes: float = column[published()["networks"].index(network)]
    return gigabytes * 1e9 / sum(level.bytes for level in step(network, "model").levels)


def _gain_over_one(network: str, column: str, accelerators: int, reading: str) -> float:
    """Return the gain over one accelerator."""
    # An array of n = 2^levels accelerators has bit_length(n) - 1 levels.
    many = step(network, column, papers(accelerators.bit_length() - 1), reading=reading)
    return _seconds_of_one(network) / many.seconds


@cache
def _seconds_of_one(network: str) -> float:
    """Return a step's seconds on one accelerator, where no tensor is split.

    It exchanges nothing and is bound by DRAM less often than a shard is, so it takes less than an
    array's compute time multiplied by the number of accelerators.
    """
    plan = solve(network, solver="data", levels=0)
    workload = workload_of(plan.network.description, plan.batch)
    work = Work(find_array(H_TREE).accelerator, plan.hierarchy, plan.element_bytes)
    passes = work.passes(workload, [], TRAINING)
    return float(sum(passes[TRAINING[0]])) * len(TRAINING)


def _gigabytes(network: str, column: str, accelerators: int, reading: str) -> float:
    levels = step(network, column, papers(accelerators.bit_length() - 1), reading=reading).levels
    return sum(level.bytes for level in levels) / 1e9


PARTS = {"conv5": ("conv5_", 32), "fc3": ("fc3", 4096)}
"""Parts of VGG-E: the prefix of their layers' names, and the batch."""


def trick(readings: Sequence[str]) -> list[Measure]:
    """Figure 13: HyPar over the Trick.

    The figure's conv5 is reproduced if conv5_1 to conv5_4 are a separate network with its plan;
    as part of VGG-E's step, the same layers also pay for the boundaries around them and gain
    less.

    Source: section 6.5.2; docs/assumptions.md.
    """
    figure = published()["fig13_trick"]
    measures = []
    for reading in readings:
        for quantity, (part, levels) in product(("performance", "energy"), _cases()):
            name = f"{part}_b{PARTS[part][1]}"
            # The figure prints one list per part, along the levels.
            value = figure[f"{name}_{quantity}"][figure["levels"].index(levels)]
            ours = partial(_over_the_trick, quantity, reading, part, levels)
            label = f"VGG-E {name.replace('_', ' ')} h{levels} {quantity}"
            measures.append(Measure(label, reading, value, ours))
        for quantity in ("performance", "energy"):
            mean = partial(_mean_over_the_trick, quantity, reading)
            label, value = f"geometric mean {quantity}", figure[f"{quantity}_gmean"]
            measures.append(Measure(label, reading, value, mean))
    return measures


def _cases() -> list[tuple[str, int]]:
    return list(product(PARTS, published()["fig13_trick"]["levels"]))


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
    return simulated_step(plan)


def _over_the_trick(quantity: str, reading: str, part: str, levels: int) -> float:
    hypar, trick = (_part_step(part, name, levels, reading) for name in ("hypar", "trick"))
    if quantity == "energy":
        return trick.energy.total / hypar.energy.total
    return trick.seconds / hypar.seconds


def _mean_over_the_trick(quantity: str, reading: str) -> float:
    return geometric_mean(_over_the_trick(quantity, reading, *case) for case in _cases())
