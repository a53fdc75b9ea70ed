"""The recomputation of all pipeline stages of a plan, as passes of one network."""

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
    """Return how a step repeats passes, with the recomputation of each stage.

    A block that a border divides is no block of either stage, and tensors that cross a border are
    not sent again.

    Parameters
    ----------
    workload
        The workload of all stages, with tensors that cross borders as nodes.
    """
    node_of = _nodes(workload)
    weights = {user: node for node, users in workload.weight_users.items() for user in users}
    recomputed: dict[int, int | None] = {}
    by_op: dict[int, str] = {}
    blocks: list[tuple[int, ...]] = []
    for plan in staged.plans:
        stage_workload = plan.instance.executed_workload
        # Messages, and the tensors read from them, are no nodes of the whole network.
        nodes = {
            node: node_of[key] for key, node in _nodes(stage_workload).items() if key in node_of
        }
        repeats = stage_workload.repeats
        for node, first in repeats.recomputed.items():
            if node in nodes:
                recomputed[nodes[node]] = first if first is None else nodes.get(first, first)
        by_op |= {nodes[node]: word for node, word in repeats.by_op.items() if node in nodes}
        blocks += [tuple(nodes[node] for node in block) for block in repeats.blocks]
    sharded = workload.repeats.sharded.items()
    return replace(
        workload.repeats,
        # Gradients that stages reduce together are not sharded between stages.
        sharded=FrozenDict((node, Shards(*map(_below_h1, shards))) for node, shards in sharded),
        recomputed=FrozenDict(sorted(recomputed.items())),
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
