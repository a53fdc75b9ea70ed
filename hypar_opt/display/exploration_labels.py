"""Words of an exploration, for all of its views: its digits, axes, ranks and front."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from hypar_opt.errors import shell_words
from hypar_opt.studies.exploration.subspace import cells_of

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.studies.exploration import Exploration


def digits_legend(plan: Plan) -> str:
    """Return the meaning of each digit: ``0 data, 1 model``."""
    # Kinds of layers have different words for a digit, so all are listed.
    words = [dict.fromkeys(filter(None, column)) for column in zip_longest(*plan.words)]
    return ", ".join(f"{digit} {' or '.join(same)}" for digit, same in enumerate(words))


def axis_label(exploration: Exploration, part: str) -> str:
    """Return the cells that the digits of a part stand for, in order: ``H1: conv1 to fc2``."""
    plan, cells = exploration.plan, cells_of(part, exploration.plan)
    levels = _range([plan.level_names[level] for level, _ in cells])
    layers = _range([plan.layers[layer] for _, layer in cells])
    if cells[0][0] == cells[-1][0]:
        return f"{levels}: {layers}"
    if cells[0][1] == cells[-1][1]:
        return f"{layers}: {levels}"
    # A layer's levels are together or, if all choices are free, a level's layers.
    together = cells[0][1] == cells[1][1]
    return f"{levels} of each of {layers}" if together else f"{layers} at each of {levels}"


def _range(names: Sequence[str]) -> str:
    return names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"


def compared(exploration: Exploration) -> str:
    """Return the name of the ratio, ``Data Parallelism's time / the plan's``."""
    return f"Data Parallelism's {exploration.objective} / the plan's"


def front_note(exploration: Exploration) -> str:
    """Return the number of plans on the Pareto front, and whether it has the solver's plan."""
    front = exploration.front
    if front is None:
        return f"No Pareto front: {shell_words(exploration.no_front)}."
    *rest, last = front.amounts
    place = "on it" if front.on_front[exploration.plan_index] else "not on it"
    plans = f"{front.plans:,} plan{'s' if front.plans > 1 else ''}"
    return (
        f"The Pareto front of {', '.join(rest)} and {last}: {plans}; the solver's plan is {place}."
    )


def ordinal(rank: int) -> str:
    """Return a rank as it is read: ``1st``."""
    teen = 11 <= rank % 100 <= 13  # 11th, not 11st
    return f"{rank:,}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(rank % 10, 'th')}"
