"""The device mesh of a plan: levels of data parallelism as one dimension, equal levels as one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from hypar_opt.sharding.layouts import BATCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.plan.plan import Plan
    from hypar_opt.sharding.program import Program


@dataclass(frozen=True)
class Dimension:
    """A dimension of a mesh, and the levels of the plan that it joins, H1 being 0."""

    name: str
    levels: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class DeviceMesh:
    """The dimensions of a mesh.

    Parameters
    ----------
    data
        The levels at which all layers are split by batch; None if there are none.
    tensor
        All other levels; adjacent ones at which every node has the same choice are one.
    placement
        The digit of a process' rank that each level splits, 0 being the most significant. The
        rank is the accelerator's number, within a stage of a pipeline.
    """

    data: Dimension | None
    tensor: tuple[Dimension, ...]
    hierarchy: Hierarchy
    placement: tuple[int, ...]

    @property
    def digits(self) -> tuple[int, ...]:
        """The size of each digit of a process' rank, the most significant first."""
        sizes = dict(zip(self.placement, self.hierarchy.sizes, strict=True))
        return tuple(size for _, size in sorted(sizes.items()))

    @property
    def order(self) -> tuple[int, ...]:
        """The digits in the order of the mesh's dimensions."""
        return tuple(
            self.placement[level] for dimension in self.dimensions for level in dimension.levels
        )

    @property
    def is_permuted(self) -> bool:
        """Whether the digits of ranks are in another order than the mesh's dimensions."""
        return self.order != tuple(range(len(self.order)))

    @property
    def dimensions(self) -> tuple[Dimension, ...]:
        """All dimensions, that of data parallelism first."""
        return (*filter(None, (self.data,)), *self.tensor)


def mesh_of(plan: Plan, program: Program) -> DeviceMesh:
    """Return the mesh of a plan, or of each of its stages; process r is the accelerator r."""
    sizes = program.hierarchy.sizes
    by_batch = [level for level in range(len(sizes)) if _splits_batch_alone(program, level)]
    rest = [level for level in range(len(sizes)) if level not in by_batch]
    # Every node's choice decides all layouts, so that equal rows are equal layouts.
    groups = [
        tuple(levels) for _, levels in groupby(rest, key=lambda level: tuple(program.rows[level]))
    ]
    names = ["tp"] if len(groups) == 1 else list(map(_name, groups))
    return DeviceMesh(
        data=_dimension("dp", by_batch, program.hierarchy) if by_batch else None,
        tensor=tuple(
            _dimension(name, levels, program.hierarchy)
            for name, levels in zip(names, groups, strict=True)
        ),
        hierarchy=program.hierarchy,
        # A plan counts digits from the least significant one.
        # In stages those of the levels below H1, which the array numbers last.
        placement=tuple(len(sizes) - 1 - level for level in plan.placement[-len(sizes) :])
        if plan.placement
        else tuple(range(len(sizes))),
    )


def _dimension(name: str, levels: Sequence[int], hierarchy: Hierarchy) -> Dimension:
    return Dimension(name, tuple(levels), hierarchy.parts(levels))


def _name(levels: Sequence[int]) -> str:
    first, last = levels[0] + 1, levels[-1] + 1
    return f"h{first}" if first == last else f"h{first}_h{last}"


def _splits_batch_alone(program: Program, level: int) -> bool:
    """Whether all layers, and all tensors with several readers, are split by batch at a level."""
    workload = program.workload
    tensors = [*workload.tensor_writers, *range(workload.shared, len(workload.nodes))]
    return all(program.written[node][level] == BATCH for node in tensors)
