"""The shared tensors that a JAX program gathers again, and its differences from the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from hypar_opt.frozen import FrozenDict
from hypar_opt.sharding.passes import Phase
from hypar_opt.step.order import exchanges_of_step
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.repeats import CONVERTED

if TYPE_CHECKING:
    from hypar_opt.sharding.program import Program
    from hypar_opt.workload.tensors import Workload


def adapted_to_jax(program: Program) -> tuple[Program, Sequence[str]]:
    """Return a program as JAX runs it, and its differences from the plan, as phrases.

    If a tensor's readers are consecutive and move nothing forward themselves, they are recomputed
    from the writer's output, so that the tensor is gathered again. Other readers keep it as they
    read it.
    """
    workload = program.workload
    repeats, readers = workload.repeats, readers_of(workload)
    moving = {exchange.node for exchange in exchanges_of_step(program, (Phase.FORWARD,))}
    saved, names = set(), []
    for node in sorted(repeats.converted_again):
        positions = readers[node]
        nodes = {n + workload.shared for n in positions}
        follow = positions == [*range(positions[0], positions[-1] + 1)]
        if node not in moving:
            saved.add(node)
        elif not follow or nodes & moving or any(n in repeats.recomputed for n in nodes):
            saved.add(node)
            names.append(workload.nodes[workload.tensor_writers[node]].name)
    phrases = []
    if names:
        phrases.append(f"{', '.join(names)}: its output is gathered once, and kept as it is read")
    if repeats.reduced > 1:
        phrases.append("gradients are reduced in the elements of the weights")
    again = FrozenDict({n: first for n, first in repeats.recomputed.items() if n not in saved})
    own_repeats = replace(repeats, recomputed=again, reduced=1)
    if own_repeats == repeats:
        return program, ()
    return replace(program, workload=with_repeats(workload, own_repeats)), phrases


@lru_cache(maxsize=16)
def readers_of(workload: Workload) -> Mapping[int, Sequence[int]]:
    """Return the positions of the readers of each tensor that is gathered again."""
    readers: dict[int, list[int]] = {}
    for edge in workload.boundaries:
        if workload.repeats.recomputed.get(edge.source) == CONVERTED:
            readers.setdefault(edge.source, []).append(edge.target - workload.shared)
    return {node: sorted({*positions}) for node, positions in readers.items()}
