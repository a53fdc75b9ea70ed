"""The choices of all nodes of a plan: its layers, and the tensors and weights that layers share.

The layout of a tensor with one reader follows from the choices of its writer and reader; a tensor
with several readers is a separate node, whose layout is part of the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError
from hypar_opt.sharding.layouts import CHANNEL, EXPERT, PARTIAL, SHUFFLED, Layout
from hypar_opt.sharding.program import Program
from hypar_opt.sharding.weights import shared_weights
from hypar_opt.workload.operators.axes import ADDENDS, EXPERTS

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.plan.plan import Plan
    from hypar_opt.workload.tensors import Workload

Rows = Sequence[Sequence[int]]


def stored_layouts(
    workload: Workload, rows: Rows, hierarchy: Hierarchy
) -> dict[str, tuple[Layout, ...]]:
    """Return the layout in which each layer's output is stored, by the layer's name.

    Parameters
    ----------
    workload
        With shared tensors as nodes.
    rows : (levels, nodes)
        The column of every node's choice, H1 first.
    hierarchy
        The parts of each level.
    """
    stored = Program(workload, rows, hierarchy).stored
    words = _words(workload)
    by_name = {
        node.name: layout
        for node, layout in zip(workload.layers, stored[workload.shared :], strict=True)
    }
    for node, writer in workload.tensor_writers.items():
        by_name[workload.nodes[writer].name] = stored[node]
    return {
        name: layout
        if words.keys().isdisjoint(layout)
        else tuple(words.get(lay, lay) for lay in layout)
        for name, layout in by_name.items()
    }


def _words(workload: Workload) -> Mapping[Layout, Layout]:
    """Return the words of layouts in a plan file that differ from the layouts' names.

    The order of channels is the reader's: before a channel shuffle they are stored as it reads
    them. Without a choice of experts, they are the channels of dispatched tensors. Partial sums are
    addends that their reader accepts.
    """
    words = {SHUFFLED: CHANNEL, PARTIAL: ADDENDS.word}
    return words if EXPERTS.word in workload.choices else words | {EXPERT: CHANNEL}


def tensor_columns(
    workload: Workload, stored: Mapping[str, Sequence[Layout]], levels: int
) -> tuple[dict[int, int], ...]:
    """Return the choices of shared tensors' nodes at each level, H1 first.

    Raises
    ------
    HyparError
        If a tensor is stored in a layout that none of the problem's choices has.
    """
    layouts, words = workload.layouts, _words(workload)
    rows: tuple[dict[int, int], ...] = tuple({} for _ in range(levels))
    for node, writing in workload.tensor_writers.items():
        writer = workload.nodes[writing].name
        names = [layouts.names[number] for number in layouts.output[:, node]]
        column_of = {
            words.get(layout, layout): column
            for column, (layout, choice) in enumerate(
                zip(names, workload.choices_of_nodes[node], strict=True)
            )
            if choice
        }
        wrong = next((word for word in stored[writer] if word not in column_of), None)
        if wrong is not None:
            raise HyparError(
                f"layouts, {writer}: should be among {', '.join(column_of)}, which are the"
                f" layouts of {len(workload.choices)} choices, got {wrong}"
            )
        for row, word in zip(rows, stored[writer], strict=True):
            row[node] = column_of[word]
    return rows


def rows_with_stored(
    workload: Workload, rows: Rows, tensors: Sequence[Mapping[int, int]]
) -> list[tuple[int, ...]]:
    """Return the choices of all nodes, ``(levels, nodes)``, given choices of layers and layouts.

    Parameters
    ----------
    rows : (levels, layers)
        The layers' choices.
    tensors
        As `tensor_columns` returns them; weights that several layers use follow from their
        users.
    """
    full: list[tuple[int, ...]] = []
    for row, stored in zip(rows, tensors, strict=True):
        choice = [0] * workload.shared + list(row)
        for node, column in (shared_weights(workload, choice) | dict(stored)).items():
            choice[node] = column
        full.append(tuple(choice))
    return full


def plan_tensors(plan: Plan, workload: Workload) -> tuple[dict[int, int], ...]:
    """Return a plan's choices of shared tensors' nodes at each level, H1 first.

    Parameters
    ----------
    plan
        As `hypar_opt.search.plan_file.read_plan` or `hypar_opt.planning.solve.solve` returns it.
    workload
        The tensors of the plan's network and batch, with or without shared tensors as nodes.

    Raises
    ------
    HyparError
        If a shared tensor is stored in a layout that none of the plan's choices has.
    """
    assert plan.layouts is not None, "a plan of version 1 that was only parsed"
    return tensor_columns(workload, plan.layouts, plan.levels)


def rows_of_plan(plan: Plan, workload: Workload) -> list[tuple[int, ...]]:
    """Return the choices of all nodes of a plan, ``(levels, nodes)``; as `plan_tensors`."""
    return rows_with_stored(workload, plan.assignments(), plan_tensors(plan, workload))
