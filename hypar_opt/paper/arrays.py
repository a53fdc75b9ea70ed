"""Time and energy, by simulation of whole steps: Figures 6, 7, 11, 12 and 13."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from statistics import geometric_mean

from hypar_opt.costs.compute import Work
from hypar_opt.costs.readings import TRAINING
from hypar_opt.hardware.arrays import find_array, papers
from hypar_opt.models import find_network
from hypar_opt.paper.communication import READINGS, SOLVERS
from hypar_opt.paper.rows import Measure, Value, column, printed
from hypar_opt.pipeline import solve
from hypar_opt.simulator.result import StepResult
from hypar_opt.simulator.step import final_counts
from hypar_opt.studies.evaluation import simulate
from hypar_opt.workload.network import Network
from hypar_opt.workload.tensors import workload_of

H_TREE, TORUS = "hmc-htree-16", "hmc-torus-16"
ALEXNET = {
    name: (side, side)
    for name, side in {"conv1": 224, "conv2": 55, "conv3": 27, "conv4": 13, "conv5": 13}.items()
}
"""Input sizes that the authors counted AlexNet's multiply-accumulates with.

Source: docs/simulator.md.
"""

PARTS = {"conv5": ("conv5_", 32), "fc3": ("fc3", 4096)}
"""Of VGG-E, for Figure 13: how the layers' names begin, and the batch."""


@cache
def step(
    network: str,
    column: str,
    array: str = H_TREE,
    own_sizes: bool = False,
    reading: str = "figures",
) -> StepResult:
    """Simulate a step of the plan in one of the paper's columns."""
    plan = solve(network, solver=SOLVERS[column], reading=reading, array=array)
    sizes = ALEXNET if network == "AlexNet" and not own_sizes else {}
    return simulate(plan, input_sizes=sizes)


def performance() -> list[Measure]:
    """Figure 6: Data Parallelism's seconds on the H tree over each column's."""
    figure = printed()["fig6_performance"]
    model, mean = figure["model"], figure["model_gmean"]
    place = printed()["networks"].index("AlexNet")
    own_sizes = partial(_gain, "hypar", H_TREE, "AlexNet", own_sizes=True)
    return [
        *_both(partial(_gain, "model", H_TREE), "model", model, mean),
        *column("model, printed bytes", _gain_of_printed_bytes, model, mean, "any"),
        *_both(partial(_gain, "hypar", H_TREE), "hypar", figure["hypar"], figure["hypar_gmean"]),
        *(
            Measure(
                "AlexNet hypar, own sizes",
                reading,
                figure["hypar"][place],
                partial(own_sizes, reading=reading),
            )
            for reading in READINGS
        ),
    ]


def energy_efficiency() -> list[Measure]:
    """Figure 7: Data Parallelism's joules over each column's."""
    figure = printed()["fig7_energy_efficiency"]
    model, mean = figure["model"], figure["model_gmean"]
    return [
        *_both(partial(_saving, "model"), "model", model, mean),
        *column("model, printed bytes", _saving_of_printed_bytes, model, mean, "any"),
        *_both(partial(_saving, "hypar"), "hypar", figure["hypar"], figure["hypar_gmean"]),
    ]


def scalability() -> list[Measure]:
    """Figure 11: H trees of 2 to 64 accelerators; the network's own name, and the text's.

    Source: docs/simulator.md: the figure is VGG-E's, not VGG-A's.
    """
    figure = printed()["fig11_scalability"]
    quantities: dict[str, Callable[[str, str, int, str], float]] = {
        "gain": _over_one,
        "GB": _gigabytes,
    }
    return [
        Measure(
            f"{network} {name} {quantity} {accelerators}",
            reading,
            value,
            partial(ours, network, name, accelerators, reading),
        )
        for reading in READINGS
        for network, shown in ((figure["network"], figure["accelerators"]), ("VGG-A", [16]))
        for quantity, ours in quantities.items()
        for name in ("hypar", "data")
        for accelerators, value in zip(
            figure["accelerators"], figure[f"{name}_{quantity}"], strict=True
        )
        if accelerators in shown
    ]


def topologies() -> list[Measure]:
    """Figure 12: HyPar's plan on two arrays, over Data Parallelism on the H tree."""
    figure = printed()["fig12_topology"]
    return [
        measure
        for name, array in (("htree", H_TREE), ("torus", TORUS))
        for measure in _both(
            partial(_gain, "hypar", array), name, figure[name], figure[f"{name}_gmean"]
        )
    ]


def trick() -> list[Measure]:
    """Figure 13: HyPar over the Trick.

    What the figure calls conv5 comes out if conv5_1 to conv5_4 are a network of their own, with
    a plan of their own; as a part of VGG-E's step the same layers also pay for the boundaries
    around them, and gain less.

    Source: section 6.5.2; docs/simulator.md.
    """
    figure = printed()["fig13_trick"]
    cases = tuple((part, levels) for part in PARTS for levels in figure["levels"])
    rows = []
    for reading in READINGS:
        means = []
        for quantity in ("performance", "energy"):
            for part, levels in cases:
                name = f"{part}_b{PARTS[part][1]}"
                value = figure[f"{name}_{quantity}"][figure["levels"].index(levels)]
                ours = partial(_over_the_trick, quantity, reading, part, levels)
                label = f"VGG-E {name.replace('_', ' ')} h{levels} {quantity}"
                rows.append(Measure(label, reading, value, ours))
            mean = partial(_mean_over_the_trick, quantity, reading, cases)
            printed_mean = figure[f"{quantity}_gmean"]
            means.append(Measure(f"geometric mean {quantity}", reading, printed_mean, mean))
        rows += means
    return rows


def _both(
    ours: Callable[..., float], name: str, values: Sequence[Value], mean: float
) -> list[Measure]:
    """Return a column by the reading of the figures, and by that of the text."""
    return [
        measure
        for reading in READINGS
        for measure in column(name, partial(ours, reading=reading), values, mean, reading)
    ]


def _gain(
    column: str, array: str, network: str, own_sizes: bool = False, reading: str = "figures"
) -> float:
    base = step(network, "data", H_TREE, own_sizes, reading)
    return base.seconds / step(network, column, array, own_sizes, reading).seconds


def _saving(column: str, network: str, reading: str = "figures") -> float:
    base = step(network, "data", reading=reading)
    return base.energy.total / step(network, column, reading=reading).energy.total


def _gain_of_printed_bytes(network: str) -> float:
    """Return Model Parallelism's performance if it moved what Figure 8 prints.

    A byte takes the same time at every level of the H tree, whatever the reading.
    """
    model = step(network, "model")
    seconds = model.compute + model.communication * _printed_bytes(network)
    return step(network, "data").seconds / seconds


def _saving_of_printed_bytes(network: str) -> float:
    energy = step(network, "model").energy
    joules = energy.total + energy.remote * (_printed_bytes(network) - 1)
    return step(network, "data").energy.total / joules


def _printed_bytes(network: str) -> float:
    """Return how many times our bytes of Model Parallelism Figure 8 prints."""
    place = printed()["networks"].index(network)
    gigabytes: float = printed()["fig8_total_communication_GB"]["model"][place]
    return gigabytes * 1e9 / sum(level.bytes for level in step(network, "model").levels)


def _over_one(network: str, column: str, accelerators: int, reading: str) -> float:
    """Return the gain over one accelerator."""
    many = step(network, column, papers(accelerators.bit_length() - 1), reading=reading)
    return _seconds_of_one(network) / many.seconds


@cache
def _seconds_of_one(network: str) -> float:
    """Return a step's seconds on one accelerator, which has every tensor whole.

    It exchanges nothing, and its DRAM binds less than a shard's: an array's compute times the
    number of accelerators would be more.
    """
    plan = solve(network, solver="data", levels=0)
    workload = workload_of(plan.network.description, plan.batch)
    work = Work(find_array(H_TREE).accelerator, plan.levels, plan.element_bytes)
    return float(sum(work.seconds(workload, final_counts(plan, workload)))) * len(TRAINING)


def _gigabytes(network: str, column: str, accelerators: int, reading: str) -> float:
    levels = step(network, column, papers(accelerators.bit_length() - 1), reading=reading).levels
    return sum(level.bytes for level in levels) / 1e9


@cache
def _part(name: str) -> Network:
    """Return some layers of VGG-E as a network that reads what they read there."""
    prefix, batch = PARTS[name]
    whole = find_network("vgg-e")
    reads = next(
        layer.input[1:]
        for layer in workload_of(whole, batch).layers
        if layer.name.startswith(prefix)
    )
    described = whole.description()
    layers = [layer for layer in described["layer"] if layer["name"].startswith(prefix)]
    keys = ("channels", "height", "width") if len(reads) == 3 else ("features",)
    network = {"name": name, "input": dict(zip(keys, reads, strict=True)), "layer": layers}
    return Network.model_validate(network)


@cache
def _part_step(name: str, column: str, levels: int, reading: str) -> StepResult:
    batch, array = PARTS[name][1], papers(levels)
    plan = solve(_part(name), solver=SOLVERS[column], reading=reading, array=array, batch=batch)
    return simulate(plan)


def _over_the_trick(quantity: str, reading: str, part: str, levels: int) -> float:
    ours, theirs = (_part_step(part, name, levels, reading) for name in ("hypar", "trick"))
    if quantity == "energy":
        return theirs.energy.total / ours.energy.total
    return theirs.seconds / ours.seconds


def _mean_over_the_trick(quantity: str, reading: str, cases: tuple[tuple[str, int], ...]) -> float:
    return geometric_mean(_over_the_trick(quantity, reading, *case) for case in cases)
