"""Bytes: Tables 1 and 2 with their worked examples, Figures 5 and 8."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial

from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.costs.level_tables import level_table
from hypar_opt.costs.table import CostTable
from hypar_opt.models import find_network
from hypar_opt.paper.rows import Measure, column, published
from hypar_opt.plan.plan import Plan
from hypar_opt.planning.solve import solve
from hypar_opt.workload.network import Network
from hypar_opt.workload.parallelism import PAPERS_CHOICES
from hypar_opt.workload.tensors import Workload, workload_of

SOLVERS = {"model": "model", "data": "data", "hypar": "dp", "trick": "trick"}
"""The solver of the plan in each of the paper's columns, in a levelwise search."""

_CHOICES = {"dp": PAPERS_CHOICES.index("data"), "mp": PAPERS_CHOICES.index("model")}
# The two layers that section 3.4 works out by hand.
_EXAMPLES = {
    "fc": ({"features": 70}, {"kind": "fc", "units": 100}),
    "conv": (
        {"channels": 20, "height": 12, "width": 12},
        {"kind": "conv", "filters": 50, "kernel": 5},
    ),
}
_ELEMENT_BYTES = 4


@cache
def plan(network: str, column: str, reading: str) -> Plan:
    """Return a network's plan in one of the paper's columns: batch 256, four levels."""
    # Cached: Figures 5, 8, 9 and 10 show the same plans.
    return solve(network, solver=SOLVERS[column], reading=reading)


def tables(readings: Sequence[str]) -> list[Measure]:
    """Tables 1 and 2 as printed; the worked examples of sections 3.4 and 6.5.2.

    The tables' factors are read off the cost of the fully-connected example at one level.
    """
    return [
        *_table_factors(readings),
        *_communication_examples(readings),
        *_element_examples(),
    ]


def _table_factors(readings: Sequence[str]) -> list[Measure]:
    """Tables 1 and 2: the exchanges of a layer and a boundary, in multiples of a tensor's bytes."""
    measures = []
    for reading in readings:
        for choice, factor in published()["table1"].items():
            label = f"Table 1 {choice}, times {'dW' if choice == 'dp' else 'F'}"
            ours = partial(_intra_layer_factor, reading, choice)
            measures.append(Measure(label, reading, factor, ours))
        for pair, factor in published()["table2"].items():
            ours = partial(_inter_layer_factor, reading, *pair.split("-"))
            measures.append(Measure(f"Table 2 {pair}, times F", reading, factor, ours))
    return measures


def _communication_examples(readings: Sequence[str]) -> list[Measure]:
    """Section 3.4: the exchanges of two layers, in KB (1e3 bytes)."""
    measures = []
    for reading in readings:
        for example, amounts in published()["examples_KB"].items():
            for choice, amount in amounts.items():
                label = f"section 3.4 {example} {choice}, KB"
                ours = partial(_kilobytes, reading, example, choice)
                measures.append(Measure(label, reading, amount, ours))
    return measures


def _element_examples() -> list[Measure]:
    """Section 6.5.2: the sizes of two layers' tensors."""
    measures = []
    # The batches of Figure 13, which the section explains.
    for layers, batch in (("conv5", 32), ("fc3", 4096)):
        for tensor, elements in published()["examples_elements"][layers].items():
            label = f"section 6.5.2 {layers} {tensor}, elements"
            ours = partial(_elements, layers, tensor, batch)
            measures.append(Measure(label, "any", elements, ours))
    return measures


def plans(readings: Sequence[str]) -> list[Measure]:
    """Figure 5: HyPar's choices, level by level."""
    return [
        Measure(f"{network} H{level}", reading, digits, partial(_digits, network, reading, level))
        for network, levels in published()["fig5_plan"].items()
        for level, digits in enumerate(levels, 1)
        for reading in readings
    ]


def totals(readings: Sequence[str]) -> list[Measure]:
    """Figure 8: the bytes of a training step, over all levels."""
    figure = published()["fig8_total_communication_GB"]
    return [
        measure
        for reading in readings
        for name in ("model", "data", "hypar")
        for measure in column(
            name, partial(_gigabytes, name, reading), figure[name], figure[f"{name}_gmean"], reading
        )
    ]


@cache
def _example(name: str) -> Workload:
    """Return a layer of section 3.4, with one more behind it for a boundary."""
    input_shape, layer = _EXAMPLES[name]
    network = {
        "name": f"{name} of section 3.4",
        "input": input_shape,
        "layer": [{"name": "first", **layer}, {"name": "second", "kind": "fc", "units": 10}],
    }
    # Batch 32, as in the section.
    return workload_of(Network.model_validate(network), 32)


def _table(reading: str, example: str) -> CostTable:
    workload = _example(example)
    return level_table(CommunicationCost(reading), workload)


def _intra_layer_factor(reading: str, choice: str) -> float:
    # Table 1: data parallelism all-reduces the gradient dW, model parallelism the output F.
    workload = _example("fc")
    elements = workload.weights[0] if choice == "dp" else workload.outputs[0]
    return float(_table(reading, "fc").node[0, _CHOICES[choice]] / (_ELEMENT_BYTES * elements))


def _inter_layer_factor(reading: str, source: str, target: str) -> float:
    # Table 2: at the boundary of two layers, their choices decide which part of F and E moves.
    charge = _table(reading, "fc").edge[0, _CHOICES[source], _CHOICES[target]]
    return float(charge / (_ELEMENT_BYTES * _example("fc").boundary_sizes[0]))


def _kilobytes(reading: str, example: str, choice: str) -> float:
    return float(_table(reading, example).node[0, _CHOICES[choice]] / 1e3)


def _elements(layers: str, tensor: str, batch: int) -> float:
    workload = workload_of(find_network("vgg-e"), batch)
    first = next(n for n, layer in enumerate(workload.layers) if layer.name.startswith(layers))
    return (workload.weights if tensor == "weights" else workload.outputs)[first]


def _digits(network: str, reading: str, level: int) -> str:
    return "".join(map(str, plan(network, "hypar", reading).assignments()[level - 1]))


def _gigabytes(column: str, reading: str, network: str) -> float:
    # A GB of the paper is 1e9 bytes.
    return plan(network, column, reading).cost.total / 1e9
