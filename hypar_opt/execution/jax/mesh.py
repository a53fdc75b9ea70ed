"""The axes of a JAX mesh: a plan's levels under their usual names, equal levels joined.

A level is named after what the products of weights do there, if all of them do the same: data,
tensor, context or spatial parallelism. At a level of expert parallelism the experts' weights are
split, and the other products, but for routers, by batch or by token alone. Any other level has a
number for a name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hypar_opt.frozen import FrozenDict
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.plan.degrees import CONTEXT, DATA, EXPERT, IMAGES, REPLICATED, TENSOR, kind_of
from hypar_opt.sharding.conversions import StepKind
from hypar_opt.workload.recomputation import with_repeats
from hypar_opt.workload.shards import Shards

if TYPE_CHECKING:
    from hypar_opt.sharding.program import Program

_NAMES = FrozenDict({DATA: "dp", TENSOR: "tp", CONTEXT: "cp", IMAGES: "spatial"})

_DENSE_PRODUCTS = FrozenDict({DATA: "batch", CONTEXT: "token"})
"""How matrix products other than experts' are split at a level of expert parallelism."""

_SHARDS, _COPIES = "fsdp", "dp_replicate"
"""The axes of data parallelism: over shards of weights, and over replicas of the shards."""


@dataclass(frozen=True)
class MeshAxis:
    """An axis of a mesh.

    Parameters
    ----------
    levels
        The plan's levels that it joins, from 0 for H1, one after the other.
    meaning
        Its purpose, as a phrase.
    """

    name: str
    levels: tuple[int, ...]
    meaning: str

    def said(self, hierarchy: Hierarchy) -> str:
        """Return a description of the axis, given the parts of the plan's levels."""
        first, last = self.levels[0] + 1, self.levels[-1] + 1
        of = f"H{first}" if first == last else f"H{first}-H{last}"
        return f"{self.name} ({of}, {hierarchy.parts(self.levels)} parts): {self.meaning}"


Axes = Sequence[MeshAxis]
AxesOf = Callable[["Program"], Axes]


def level_axes(program: Program) -> Axes:
    """Return one axis per level, named by its number."""
    return [MeshAxis(f"h{n + 1}", (n,), "") for n in range(program.hierarchy.levels)]


def mesh_axes(program: Program, *, as_planned: bool = True) -> Axes:
    """Return the axes of a program's mesh, the topmost first.

    Consecutive levels of one name are joined if every layer has the same choice and sharding at
    them.

    Parameters
    ----------
    as_planned
        Whether the program's exchanges are made: levels with an all-to-all each then stay axes of
        their own, as a single all-to-all over both would move less.
    """
    kinds = [_kind(program, level) for level in range(program.hierarchy.levels)]
    if any(name == _SHARDS for name, _ in kinds):
        copies = _COPIES, f"{DATA} between copies of the weights"
        kinds = [copies if name == _NAMES[DATA] else (name, said) for name, said in kinds]
    groups: list[list[int]] = []
    for level, (name, _) in enumerate(kinds):
        before = groups[-1][-1] if groups else None
        name_matches = name and before is not None and kinds[before][0] == name
        if name_matches and _joinable(program, before, level, as_planned=as_planned):  # type: ignore[arg-type]
            groups[-1].append(level)
        else:
            groups.append([level])
    several, numbers = Counter(kinds[levels[0]][0] for levels in groups), Counter[str]()
    axes = []
    for levels in groups:
        name, meaning = kinds[levels[0]]
        numbers[name] += 1
        named = name or f"h{levels[0] + 1}"
        numbered = f"{named}{numbers[name]}" if name and several[name] > 1 else named
        axes.append(MeshAxis(numbered, tuple(levels), meaning))
    return axes


def on_axes(program: Program, axes: Axes) -> Program:
    """Return an equivalent program whose levels are the axes of a mesh."""
    axis_of = {level: n for n, axis in enumerate(axes) for level in axis.levels}
    repeats = program.workload.repeats
    sharded = {
        node: Shards(
            *(first if first is None else axis_of.get(first, len(axes)) for first in shards)
        )
        for node, shards in repeats.sharded.items()
    }
    return replace(
        program,
        workload=with_repeats(program.workload, replace(repeats, sharded=FrozenDict(sharded))),
        rows=[program.rows[axis.levels[0]] for axis in axes],
        hierarchy=Hierarchy(tuple(program.hierarchy.parts(axis.levels) for axis in axes)),
    )


def _kind(program: Program, level: int) -> tuple[str, str]:
    """Return the name of a level, and its meaning; no name if layers differ."""
    kinds = {kind for _, kind in _products(program, level)} - {REPLICATED}
    other_kinds = kinds - {EXPERT}
    if EXPERT in kinds and not other_kinds:
        return "ep", EXPERT
    if EXPERT in kinds and len(other_kinds) == 1 and other_kinds <= _DENSE_PRODUCTS.keys():
        return "ep", f"{EXPERT}; other layers are split by {_DENSE_PRODUCTS[other_kinds.pop()]}"
    if len(kinds) != 1 or not kinds <= _NAMES.keys():
        return "", "layers are split differently"
    (kind,) = kinds
    shard = program.workload.repeats.shard
    nodes = [node for node, parallelism in _products(program, level) if parallelism == DATA]
    if kind == DATA and all(shard(node, level) == "weights" for node in nodes):
        return _SHARDS, f"{DATA} that shards the weights"
    return _NAMES[kind], kind


def _products(program: Program, level: int) -> Iterator[tuple[int, str]]:
    """Yield the nodes that multiply by weights (except routers), and their parallelism."""
    workload = program.workload
    for node in range(workload.shared, len(workload.nodes)):
        operator = workload.nodes[node].operator
        choice = workload.choices_of_nodes[node][program.rows[level][node]]
        if operator.axes.contracted and operator.kind != "router" and choice is not None:
            yield node, kind_of(choice)


def _joinable(program: Program, upper: int, lower: int, *, as_planned: bool) -> bool:
    """Return whether two levels may be one axis: every node has equal choices and shards."""
    workload, rows = program.workload, program.rows
    shard = workload.repeats.shard
    if tuple(rows[upper]) != tuple(rows[lower]):
        return False
    if any(shard(node, upper) != shard(node, lower) for node in workload.repeats.sharded):
        return False
    conversions = map(program.input_steps, range(len(workload.boundaries) * as_planned))
    exchanges = (
        {step.levels for step in steps if step.kind is StepKind.ALL_TO_ALL} for steps in conversions
    )
    return not any({(upper,), (lower,)} <= levels for levels in exchanges)
