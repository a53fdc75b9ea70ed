"""The memory of a training step as a device holds it, tensor by tensor.

Source: docs/memory.md.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.frozen import FrozenDict
from hypar_opt.hardware.accelerator import AcceleratorGroup
from hypar_opt.sharding.program import Program
from hypar_opt.simulator.device_memory import DeviceMemory, LayerMemory, Moment
from hypar_opt.step.holds import KEPT, MOMENTS, WeightBytes, step_holds
from hypar_opt.step.shares import Share
from hypar_opt.step.states import level_choices, shape_of
from hypar_opt.workload.operators.axes import BATCH, EXPERTS
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.recomputation import with_repeats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.hardware.array import Array
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.integers import Integers
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.simulator.options import RunOptions
    from hypar_opt.step.holds import HoldArrays
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload


def memory_of(
    plan: Plan,
    workload: Workload,
    rows: Rows,
    options: RunOptions,
    array: Array | None = None,
    weight_bytes: WeightBytes | None = None,
) -> DeviceMemory:
    """Return the bytes that the fullest accelerator holds in a plan's step.

    Between groups of accelerators the one that has the least left of its own memory.

    Parameters
    ----------
    workload
        The tensors of one micro-batch.
    rows : (levels, nodes)
        The choices of all the workload's nodes.
    options
        What is computed again and what is sharded, and whether shares are exact.
    array
        Attention is fused unless its accelerators say otherwise.
    weight_bytes
        None for those of the plan's optimizer.
    """
    network, of_training = plan.network.description, FrozenDict(options.of_training)
    memories = []
    parts: Sequence[tuple[Accelerator | None, Share | None]] = [(None, None)]
    if array is not None:
        parts = parts_between_groups(plan, array)
    for accelerator, share in parts:
        fused = Fused.on(accelerator)
        repeats = options.repeats(network, workload, plan.element_bytes, fused=fused)
        trained = with_repeats(workload, repeats)
        arguments = plan, network, trained, rows, accelerator, weight_bytes
        counted = counted_memory(*arguments, exact_shares=options.exact_shares, share=share)
        if accelerator is None:
            return DeviceMemory(plan, *counted, options=of_training)
        reserve = reserved_by(accelerator, trained, rows, plan.hierarchy)
        capacity = int(accelerator.dram_capacity)
        group = accelerator.name if isinstance(accelerator, AcceleratorGroup) else ""
        memories.append(DeviceMemory(plan, *counted, reserve, capacity, of_training, group))
    return max(memories, key=lambda own: Fraction(own.total, own.capacity or 1))


def reserved_by(
    accelerator: Accelerator, workload: Workload, rows: Rows, hierarchy: Hierarchy
) -> int:
    """Return the bytes that no tensor of a plan may take: those of its communicators, too.

    A communicator is of the accelerators of some levels: those at which a layer is split along one
    axis, or reduces gradients, or gathers what is sharded. Parameters as for `counted_memory`.
    """
    repeats = workload.repeats
    groups: set[tuple[int, ...]] = set()
    axes: set[str] = set()
    columns, has_weights = zip(*rows, strict=True), [count > 0 for count in workload.weights]
    nodes = zip(columns, workload.nodes, has_weights, strict=False)
    representatives = {
        (column, node.kind, trained, number in repeats.sharded): number
        for number, (column, node, trained) in enumerate(nodes)
    }
    for node in representatives.values():
        choices = [workload.choices_of_nodes[node][row[node]] for row in rows]
        of_levels = [choice.axis if choice else BATCH for choice in choices]
        axes.update(of_levels)
        for axis in {*of_levels} - {"", BATCH}:
            groups.add(
                tuple(n for n, axis_of_level in enumerate(of_levels) if axis_of_level == axis)
            )
        if has_weights[node]:
            begins = (
                repeats.shard_start_levels
                if node in repeats.sharded
                else repeats.shard_start_levels[:1]
            )
            for first, end in pairwise((*begins, hierarchy.levels)):
                groups.add(tuple(n for n in range(first, end) if of_levels[n] == BATCH))
    return accelerator.reserved(len(groups - {()}), experts=EXPERTS.axis in axes)


def reserved_by_nodes(
    accelerator: Accelerator, workload: Workload, nodes: Indices, states: States
) -> Integers:
    """Return the bytes that no tensor of a plan may take, by what one of its nodes chooses.

    At least: its communicators are a part of the plan's. Parameters as for `DeviceLoad.of`.
    """
    repeats, users = workload.repeats, {n for of in workload.weight_users.values() for n in of}
    of_nodes = [
        [choice.axis if choice else BATCH for choice in choices]
        for choices in workload.choices_of_nodes
    ]
    axes, shape = np.array(of_nodes).T, shape_of(nodes, states)
    axes_of_levels = [axes[choice, nodes] for choice in level_choices(states)]

    def splits(axis: str, levels: slice) -> NDArray[np.bool_]:
        """Return whether any of some levels splits an axis."""
        return reduce(
            np.logical_or,
            [axes_of_level == axis for axes_of_level in axes_of_levels[levels]],
            np.zeros(shape, bool),
        )

    counts = np.zeros(shape, np.intp)
    for axis in {*axes.flat} - {"", BATCH}:
        counts += splits(axis, slice(None))
    has_weights = np.array([count > 0 for count in workload.weights])[nodes]
    # How shared weights are sharded is not their readers' choice.
    sharded = np.isin(nodes, [node for node in repeats.sharded if node not in users])
    for first, end in pairwise((*repeats.shard_start_levels, None)):
        counts += splits(BATCH, slice(first, end)) & has_weights & sharded
    counts += splits(BATCH, slice(None)) & has_weights & ~sharded
    of_experts = accelerator.reserved(experts=True) - accelerator.reserved()
    most = int(counts.max(initial=0))
    reserved = np.array([accelerator.reserved(count) for count in range(most + 1)], object)
    total: Integers = reserved[counts] + of_experts * splits(EXPERTS.axis, slice(None))
    return total


def parts_between_groups(
    problem: ProblemFields, array: Array
) -> Sequence[tuple[Accelerator, Share | None]]:
    """Return an accelerator of each part of H1 between groups with its share; else one of all."""
    shares = Share.of_parts(problem.part_shares) if array.groups else [None]
    return [*zip(array.accelerators_of_parts, shares, strict=True)]


def counted_memory(
    problem: ProblemFields,
    network: Network,
    workload: Workload,
    rows: Rows,
    accelerator: Accelerator | None,
    weight_bytes: WeightBytes | None = None,
    *,
    exact_shares: bool = False,
    share: Share | None = None,
) -> tuple[tuple[LayerMemory, ...], Moment]:
    """Return the bytes of each layer, and the largest moment; parameters as for `memory_of`.

    Parameters
    ----------
    workload
        With what is computed again and sharded.
    share
        That of the accelerator's part of H1, between groups of accelerators.
    """
    if weight_bytes is None:
        precision = problem.element_bytes, problem.constraints.optimizer
        weight_bytes = WeightBytes.of(*precision, problem.training.reduce_bytes)
    if problem.inference:
        weight_bytes = weight_bytes._replace(gradient=0, state=0)
    step_of = network, workload, problem.hierarchy, problem.element_bytes, weight_bytes
    step = step_holds(*step_of, Fused.on(accelerator), problem.in_flight)
    program = Program(workload, rows, problem.hierarchy)
    bytes_of = bytes_by_node(step, program, share, exact_shares=exact_shares)
    layers, moments = [], []
    for node, layer in enumerate(workload.layers, workload.shared):
        weights, gradients, state, saved = (bytes_of[tensor][node] for tensor in KEPT)
        again, gathered, logits, *live = (bytes_of[tensor][node] for tensor in MOMENTS)
        moments.append(Moment(layer.name, again, gathered, logits, sum(live)))
        amounts = weights, gradients, state, saved
        layers.append(LayerMemory(layer.name, *amounts, moments[-1].total))
    # Among equal layers the last: backward it comes first, when all that is saved is there.
    return tuple(layers), max(reversed(moments), key=lambda own: own.total)


def bytes_by_node(
    holds: HoldArrays, program: Program, share: Share | None, *, exact_shares: bool
) -> dict[str, list[int]]:
    """Return what the fullest accelerator holds of each node of a plan, of `KEPT` and `MOMENTS`.

    Parameters
    ----------
    program
        The layouts of the plan.
    """
    (amounts,) = holds.largest([program], share, exact=exact_shares).tolist()
    bytes_of = {tensor: [0] * len(program.workload.nodes) for tensor in (*KEPT, *MOMENTS)}
    for hold, amount in zip(holds.holds, amounts, strict=True):
        for node in hold.layers:
            bytes_of[hold.tensor][node] += amount
    return bytes_of
