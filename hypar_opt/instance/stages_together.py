"""What all pipeline stages of a plan compute again, as the passes of one network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.shards import Shards

if TYPE_CHECKING:
    from hypar_opt.instance.staged import StagedPlan
    from hypar_opt.workload.repeats import Repeats
    from hypar_opt.workload.tensors import Workload


def repeats_of_stages(staged: StagedPlan, workload: Workload) -> Repeats:
    """Return how often a step repeats passes, of which each stage computes again what it would.

    So a block with a border inside is no block of either stage, and what crosses a border is not
    sent again.

    Parameters
    ----------
    workload
        Of all stages, in which what crosses borders are tensors of their own.
    """
    node_of = _nodes(workload)
    weights = {user: node for node, users in workload.weight_users.items() for user in users}
    again: dict[int, int | None] = {}
    by_op: dict[int, str] = {}
    blocks: list[tuple[int, ...]] = []
    for plan in staged.plans:
        inside = plan.instance.executed_workload
        # A message is no node of the whole network, nor is what is read of it.
        nodes = {node: node_of[key] for key, node in _nodes(inside).items() if key in node_of}
        repeats = inside.repeats
        for node, first in repeats.recomputed.items():
            if node in nodes:
                again[nodes[node]] = first if first is None else nodes.get(first, first)
        by_op |= {nodes[node]: word for node, word in repeats.by_op.items() if node in nodes}
        blocks += [tuple(nodes[node] for node in block) for block in repeats.blocks]
    sharded = workload.repeats.sharded.items()
    return replace(
        workload.repeats,
        # What stages reduce together none of them shards with others.
        sharded=FrozenDict((node, Shards(*map(_below_h1, shards))) for node, shards in sharded),
        recomputed=FrozenDict(sorted(again.items())),
        by_op=FrozenDict(sorted(by_op.items())),
        blocks=tuple(blocks),
        holders=FrozenDict(
            (weights[workload.shared + tied.owner], tied.parts) for tied in staged.stages.tied
        ),
    )


def _below_h1(first: int | None) -> int | None:
    return None if first is None else max(first, 1)


def _nodes(workload: Workload) -> dict[tuple[str, bool], int]:
    """Return the nodes of layers, and of tensors that several read, by their writers' names."""
    nodes = {(layer.name, False): n for n, layer in enumerate(workload.layers, workload.shared)}
    for node, writer in workload.tensor_writers.items():
        nodes[workload.nodes[writer].name, True] = node
    return nodes
