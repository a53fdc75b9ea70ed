"""The operational intensity of a plan's layers: operations per byte of each roof of its array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hypar_opt.costs.communication import CommunicationCost
from hypar_opt.errors import HyparError, worded
from hypar_opt.hardware.accelerator import OPERATIONS_PER_MAC
from hypar_opt.hardware.roofline import Roof, Roofline, roofline
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.plan import Plan
from hypar_opt.plan.stored_layouts import rows_of_plan
from hypar_opt.step.work import WorkRules
from hypar_opt.studies.explained import exchanges_of_node


@dataclass(frozen=True)
class LayerIntensity:
    """A layer and the roof that limits it most.

    Parameters
    ----------
    operations
        Of an accelerator in a step, on average.
    bytes
        Those of that roof: of the operands, weights and outputs of the layer's passes in DRAM, or
        exchanged at the levels.
    """

    layer: str
    operations: float
    roof: Roof
    bytes: float

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.operations / self.bytes


def intensities(plan: Plan) -> tuple[Roofline, list[LayerIntensity]]:
    """Return the roofs of a plan's array, and the layers of products under them.

    Boundaries between layers are the reader's, in the plan's reading.

    Raises
    ------
    HyparError
        If the plan has no array, or is in stages or between groups of accelerators.
    """
    if plan.array is None or plan.is_staged or plan.groups:
        lines = worded("a roofline of layers", "--roofline")
        raise HyparError(f"{lines} takes a plan without stages on an array of equal accelerators")
    instance = Instance.of_plan(plan)
    workload, problem = instance.workload, instance.problem
    array, count = plan.array.description, plan.accelerators
    roofs = roofline(array, plan.placement)
    states = np.array(rows_of_plan(plan, workload))
    communication = CommunicationCost.of_problem(problem)
    rules = WorkRules(problem.hierarchy, mac_count=array.accelerator.mac_count)
    layers = []
    for node, layer in enumerate(workload.nodes):
        place = np.array([[node]]), [states[:, None, [node]]]
        operations = words = 0
        for kernel in rules.kernels(workload, *place, communication.phases):
            if not kernel.epilogue:
                times = int(np.max(kernel.times))
                operations += times * int(kernel.macs.max()) * OPERATIONS_PER_MAC
                moved = kernel.weights + kernel.operands + kernel.output
                words += times * int(moved.max())
        if not operations:
            continue
        quarters = [0] * plan.levels
        for _, exchanged in exchanges_of_node(communication, workload, states, node):
            for operation in exchanged:
                quarters[operation.level] += int(np.asarray(operation.quarters).sum())
        # Of a levels' roof its levels' bytes, each a quarter of an element; of DRAM whole words.
        moved_of = {
            roof: sum(quarters[level] for level in roof.levels) / 4 if roof.levels else words
            for roof in roofs.roofs
        }
        slowest = max(moved_of, key=lambda roof: moved_of[roof] / roof.bytes_per_second)
        moved_bytes = moved_of[slowest] * problem.element_bytes / count
        layers.append(LayerIntensity(layer.name, operations / count, slowest, moved_bytes))
    return roofs, layers
