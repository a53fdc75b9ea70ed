"""Pinned choices: ``LAYER[@LEVEL]=CHOICE``."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hypar_opt.documents import shown
from hypar_opt.errors import HyparError, argument
from hypar_opt.workload.parallelism import Parallelism

if TYPE_CHECKING:
    from hypar_opt.plan.problem import ProblemFields

Pinned = list[list[dict[int, "Pin"]]]
"""For each level and layer, the column of the choice that is pinned there, and by which pin."""


@dataclass(frozen=True)
class Pin:
    """One ``LAYER[@LEVEL]=CHOICE``: a pattern of names, a level from 1 or all, a choice."""

    layer: str
    level: int | None
    choice: Parallelism

    @classmethod
    def parse(cls, text: str) -> Pin:
        """Read a pin as it is written on the command line.

        Raises
        ------
        HyparError
            Naming the pin and what would be right.
        """
        where, equals, choice = text.rpartition("=")
        layer, at, level = where.rpartition("@")
        if not at:
            layer, level = where, ""
        number = level.removeprefix("H").removeprefix("h")
        known = [c.value for c in Parallelism]
        is_level = not at or (number.isdecimal() and len(number) < 10)
        if not equals or not layer or choice not in known or not is_level:
            raise HyparError(
                f"{argument('constraints.fix')} should be LAYER[@LEVEL]=CHOICE, as in"
                f" fc1@H2=data (choices {', '.join(known)}), got {shown(text)}"
            )
        return cls(layer, int(number) if at else None, Parallelism(choice))

    def __str__(self) -> str:
        return f"{self.layer}{f'@H{self.level}' if self.level else ''}={self.choice}"

    @property
    def said(self) -> str:
        """The pin as a message names it."""
        return argument("constraints.fix", str(self))


def pinned_choices(problem: ProblemFields, names: Sequence[str]) -> Pinned:
    """Return what a problem's pins leave to each layer at each level.

    Raises
    ------
    HyparError
        If two pins conflict, or one names what is not there.
    """
    pinned: Pinned = [[{} for _ in names] for _ in range(problem.levels)]
    for pin in map(Pin.parse, problem.constraints.fix):
        layers = [layer for layer, name in enumerate(names) if fnmatchcase(name, pin.layer)]
        if not layers:
            raise HyparError(f"{pin.said}: no layer is called {pin.layer!r}")
        if pin.level is not None and not 1 <= pin.level <= problem.levels:
            raise HyparError(f"{pin.said}: the level should be from 1 to {problem.levels}")
        if pin.choice not in problem.choices:
            choices = argument("choices", ",".join(problem.choices))
            raise HyparError(f"{pin.said}: {pin.choice} is not among {choices}")
        column = problem.choices.index(pin.choice)
        levels = range(problem.levels) if pin.level is None else [pin.level - 1]
        for level, layer in itertools.product(levels, layers):
            here = pinned[level][layer]
            here.setdefault(column, pin)
            if len(here) > 1:
                one, other = (conflicting.said for conflicting in here.values())
                raise HyparError(f"{one} and {other} conflict at {names[layer]}, H{level + 1}")
    return pinned
