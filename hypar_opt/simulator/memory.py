"""The memory of a training step as a device holds it, tensor by tensor.

Source: docs/memory.md.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.frozen import FrozenDict
from hypar_opt.hardware.accelerator import AcceleratorGroup
from hypar_opt.sharding.program import Program
from hypar_opt.simulator.device_memory import DeviceMemory, LayerMemory, Moment
from hypar_opt.step.holds import KEPT, TRANSIENT, WeightBytes, step_holds
from hypar_opt.step.shares import Share
from hypar_opt.step.states import level_choices, shape_of, states_from_rows
from hypar_opt.workload.operators.axes import BATCH, EXPERTS
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.recomputation import with_repeats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.accelerator import Accelerator
    from hypar_opt.hardware.array import Array
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

    With groups of accelerators it is the one with the least memory to spare.

    Parameters
    ----------
    workload
        The tensors of one micro-batch.
    rows : (levels, nodes)
        The choices of all the workload's nodes.
    options
        Recomputation and sharding, and whether shares are exact.
    array
        Attention is fused unless its accelerators say otherwise.
    weight_bytes
        None for those of the plan's optimizer.
    """
    network, stated_training = plan.network.description, FrozenDict(options.stated_training)
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
            return DeviceMemory(plan, *counted, options=stated_training)
        reserve = reserved_by(accelerator, trained, rows)
        capacity = int(accelerator.dram_capacity)
        group = accelerator.name if isinstance(accelerator, AcceleratorGroup) else ""
        memories.append(DeviceMemory(plan, *counted, reserve, capacity, stated_training, group))
    return max(memories, key=lambda own: Fraction(own.total, own.capacity or 1))


def reserved_by(accelerator: Accelerator, workload: Workload, rows: Rows) -> int:
    """Return the bytes that no tensor of a plan may take: those of its communicators, too.

    Parameters as for `counted_memory`.
    """
    nodes = np.arange(len(workload.nodes))
    states = states_from_rows(rows, len(nodes))
    communicators = _Communicators.of(workload, nodes, states, [*workload.repeats.sharded])
    groups = {group for levels in communicators.levels for group in np.unique(levels).tolist()}
    return accelerator.reserved(len(groups - {0}), experts=bool(communicators.of_experts.any()))


def reserved_by_nodes(
    accelerator: Accelerator, workload: Workload, nodes: Indices, states: States
) -> Integers:
    """Return the bytes that no tensor of a plan may take, by what one of its nodes chooses.

    At least: its communicators are a part of the plan's. Parameters as for `DeviceLoad.of`.
    """
    # Readers of shared weights do not decide how these are sharded.
    users = {user for users in workload.weight_users.values() for user in users}
    sharded = [node for node in workload.repeats.sharded if node not in users]
    communicators = _Communicators.of(workload, nodes, states, sharded)
    counts = np.sum([levels > 0 for levels in communicators.levels], axis=0)
    numbers = range(1 + int(counts.max(initial=0)))
    reserved = np.array([accelerator.reserved(number) for number in numbers], object)
    of_experts = accelerator.reserved(experts=True) - accelerator.reserved()
    total: Integers = reserved[counts] + of_experts * communicators.of_experts
    return total


class _Communicators(NamedTuple):
    """The communicators of nodes in states, each among the accelerators of some levels.

    The levels at which a node is split along one axis, reduces gradients, or gathers shards.

    Parameters
    ----------
    levels
        The levels of each communicator, as bits by node and state; 0 if it does not exist.
    of_experts
        Whether experts are shared out.
    """

    levels: Sequence[Integers]
    of_experts: NDArray[np.bool_]

    @classmethod
    def of(
        cls, workload: Workload, nodes: Indices, states: States, sharded: Sequence[int]
    ) -> _Communicators:
        """Return those of nodes in states; parameters are those of `DeviceLoad.of`.

        Parameters
        ----------
        sharded
            The nodes whose weights may be sharded differently from some level on.
        """
        of_nodes = [
            [choice.axis if choice else BATCH for choice in choices]
            for choices in workload.choices_of_nodes
        ]
        axes, shape = np.array(of_nodes).T, shape_of(nodes, states)
        by_level = [axes[choice, nodes] for choice in level_choices(states)]

        def split(axis: str, first: int = 0, end: int = len(by_level)) -> Integers:
            """Return which of some levels split an axis."""
            flags = ((by_level[level] == axis) << level for level in range(first, end))
            return reduce(np.bitwise_or, flags, np.zeros(shape, np.int64))

        of_axes = {axis: split(axis) for axis in {EXPERTS.axis, *axes.flat} - {"", BATCH}}
        has_weights = (np.array(workload.weights) > 0)[nodes]
        is_sharded = np.isin(nodes, sharded)
        starts = (*workload.repeats.shard_start_levels, len(by_level))
        gradients = [split(BATCH, *ends) * is_sharded for ends in pairwise(starts)]
        gradients.append(split(BATCH) * ~is_sharded)
        levels = [*of_axes.values(), *(reduced * has_weights for reduced in gradients)]
        return cls(levels, of_axes[EXPERTS.axis] > 0)


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
    """Return the bytes of each layer, and the peak; parameters as for `memory_of`.

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
        again, gathered, logits, *live = (bytes_of[tensor][node] for tensor in TRANSIENT)
        moments.append(Moment(layer.name, again, gathered, logits, sum(live)))
        amounts = weights, gradients, state, saved
        layers.append(LayerMemory(layer.name, *amounts, moments[-1].total))
    # Among equal layers the last: in the backward pass it comes first, when all is saved.
    return tuple(layers), max(reversed(moments), key=lambda own: own.total)


def bytes_by_node(
    holds: HoldArrays, program: Program, share: Share | None, *, exact_shares: bool
) -> dict[str, list[int]]:
    """Return what the fullest accelerator holds of each node of a plan, of `KEPT` and `TRANSIENT`.

    Parameters
    ----------
    program
        The layouts of the plan.
    """
    (amounts,) = holds.largest([program], share, exact=exact_shares).tolist()
    bytes_of = {tensor: [0] * len(program.workload.nodes) for tensor in (*KEPT, *TRANSIENT)}
    for hold, amount in zip(holds.holds, amounts, strict=True):
        for node in hold.layers:
            bytes_of[hold.tensor][node] += amount
    return bytes_of
