"""The explored subspace: the free choices, and so the states of each layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.state_charges import state_indices
from hypar_opt.errors import HyparError, argument
from hypar_opt.instance.instance import Instance
from hypar_opt.plan.plan import Plan
from hypar_opt.workload.patterns import matching

Cell = tuple[int, int]
"""A level, 0 for H1, and a layer."""

_LEVEL = re.compile(
    r"(?:(?P<layer>.+)@)?[Hh](?P<level>\d{1,9})"
    r"|(?P<bare_layer>.+)@(?P<bare_level>\d{1,9})"
)
"""``H1``, ``conv1@H1`` or ``conv1@1``."""


def cells_of(free: str, plan: Plan) -> list[Cell]:
    """Return the free cells, in the order in which they are named.

    Raises
    ------
    HyparError
        If a term names nothing of the plan.
    """
    layers, levels = range(len(plan.layers)), range(plan.levels)
    cells: dict[Cell, None] = {}  # a set in order
    for term in (part.strip() for part in free.split(",")):
        if term == "all":
            cells |= dict.fromkeys((level, layer) for level in levels for layer in layers)
            continue
        match = _LEVEL.fullmatch(term)
        pattern, level_number = term, None  # all levels
        if match is not None:
            pattern = match["layer"] or match["bare_layer"] or "*"
            level_number = int(match["level"] or match["bare_level"])
        if level_number is not None and not 1 <= level_number <= plan.levels:
            raise HyparError(
                f"{argument('free', term)}: should be a level from H1 to H{plan.levels}"
            )
        # Case matters, as in --fix: layers may differ by it alone.
        named = matching(plan.layers, pattern)
        if not named:
            layer_names = ", ".join(plan.layers[:20]) + (", ..." if len(plan.layers) > 20 else "")
            raise HyparError(
                f"{argument('free')} should name levels, as H1,H4, layers, as fc1 or conv*,"
                f" conv1@H2, or all; got {term!r} (layers {layer_names})"
            )
        named_levels = levels if level_number is None else [level_number - 1]
        cells |= dict.fromkeys((level, layer) for layer in named for level in named_levels)
    return list(cells)


def axes_of(cells: Iterable[Cell]) -> tuple[int, ...]:
    """Return the layers of cells in order, one axis each; the first layer without cells."""
    return tuple(sorted({layer for _, layer in cells})) or (0,)


def states_of(
    plan: Plan, cells: tuple[Cell, ...], allowed: NDArray[np.bool_] | None
) -> tuple[NDArray[np.intp], ...]:
    """Return each layer's states: the plan's choices wherever they are not free.

    States are (states,) intp: numbers whose digits, H1's first, are the layer's choices. Those
    allowed are (layers, choices ** levels), as `allowed_states` returns them; None for all.
    """
    base, free = len(plan.choices), set(cells)
    states_by_layer = []
    for layer in range(len(plan.layers)):
        states = np.zeros(1, np.intp)
        # H1 is the highest digit: each deeper level multiplies the states and is appended.
        for level, row in enumerate(plan.assignments()):
            digits = np.arange(base) if (level, layer) in free else np.array([row[layer]])
            states = (states[:, None] * base + digits).reshape(-1)
        states_by_layer.append(states if allowed is None else states[allowed[layer, states]])
    return tuple(states_by_layer)


def digits_of(states: NDArray[np.intp], choices: int, levels: int) -> NDArray[np.intp]:
    """Return the choices, (levels, states), of states by their numbers."""
    return states // choices ** np.arange(levels)[::-1, None] % choices


def choices_at(
    index: Sequence[NDArray[np.intp]],
    states: Sequence[NDArray[np.intp]],
    axes: Sequence[int],
    plan: Plan,
) -> NDArray[np.uint8]:
    """Return the choices, (plans, levels, layers), of plans by their index along each axis."""
    at = dict(zip(axes, index, strict=True))
    # One byte per choice: there may be 2^20 plans of hundreds of choices each.
    choices = np.empty((len(index[0]), plan.levels, len(states)), np.uint8)
    for layer, values in enumerate(states):
        picked = values[at.get(layer, [0])]
        choices[:, :, layer] = digits_of(picked, len(plan.choices), plan.levels).T
    return choices


def allowed_states(instance: Instance) -> NDArray[np.bool_] | None:
    """Return the states that a problem's constraints allow; None without constraints.

    Returns
    -------
    (nodes, choices ** levels) bool
        By the states' numbers, as `states_of` has them; shared nodes come first.
    """
    table = instance.states()
    if table.allowed is None:
        return None
    choices = [len(instance.workload.choices)] * table.levels
    allowed = np.zeros_like(table.allowed)
    allowed[:, state_indices(table.states, choices)] = table.allowed
    return allowed
