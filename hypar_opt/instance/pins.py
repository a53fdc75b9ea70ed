"""Pinned choices: ``LAYER[@LEVEL]=CHOICE``."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypar_opt.documents.parsing import shown
from hypar_opt.errors import HyparError, InfeasibleError, argument, nearest
from hypar_opt.plan.problem import RUN_READINGS
from hypar_opt.workload.operators.words import choice_of
from hypar_opt.workload.parallelism import ALL_CHOICES, PART_WORDS, WHOLE_LAYER
from hypar_opt.workload.patterns import STORED, matching
from hypar_opt.workload.splitting import spatial_columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.tensors import Workload

Pinned = list[list[dict[int, "Pin"]]]
"""For each level and node: the column of the pinned choice, and the pin that sets it."""


@dataclass(frozen=True)
class Pin:
    """One ``LAYER[@LEVEL]=CHOICE``: a pattern of names, a level from 1 or all, a choice.

    A name that no layer has stands for all layers of the block of that name: ``decoder`` and
    ``decoder.3``. The choice is a word of the layer's kind, or of the problem. ``output of LAYER``
    is the tensor that a layer writes and several read, in its stored layout.
    """

    layer: str
    level: int | None
    choice: str

    @classmethod
    def parse(cls, text: str) -> Pin:
        """Parse a pin as it is written on the command line.

        Raises
        ------
        HyparError
            Naming the pin and what would be right.
        """
        # From the right: a layer's name may hold "=" and "@" itself.
        where, equals, choice = text.rpartition("=")
        layer, at, level = where.rpartition("@")
        if not at:
            layer, level = where, ""
        # A level may be written H2, as reports do, or 2.
        number = level.removeprefix("H").removeprefix("h")
        is_level = not at or (number.isdecimal() and len(number) < 10)
        is_choice = choice in ALL_CHOICES or choice_of(choice) is not None
        if not equals or not layer or not is_choice or not is_level:
            raise HyparError(
                f"{argument('constraints.fix')} should be LAYER[@LEVEL]=CHOICE, as in"
                f" fc1@H2=data (choices {', '.join(ALL_CHOICES)}), got {shown(text)}"
            )
        return cls(layer, int(number) if at else None, choice)

    def __str__(self) -> str:
        return f"{self.layer}{f'@H{self.level}' if self.level else ''}={self.choice}"

    @property
    def said(self) -> str:
        """The pin as shown in messages."""
        return argument("constraints.fix", str(self))


def pinned_choices(problem: Problem, workload: Workload) -> Pinned:
    """Return the pinned choice, if any, of each node at each level: ``(levels, nodes)``.

    Shared weights have none: they follow from the choices of their users.

    Raises
    ------
    HyparError
        If one names a layer, level or choice that does not exist.
    InfeasibleError
        If two pins conflict.
    """
    shared = workload.shared
    names = [layer.name for layer in workload.layers]
    tensors = {workload.nodes[node].name: node for node in workload.tensor_writers}
    none: dict[int, Pin] = {}
    pinned: Pinned = [[none] * len(workload.nodes) for _ in range(problem.levels)]
    for pin in map(Pin.parse, problem.constraints.fix):
        matched = [shared + n for n in matching(names, pin.layer)]
        if not matched and pin.layer.startswith(STORED):
            named = matching([*tensors], pin.layer)
            matched = [node for n, node in enumerate(tensors.values()) if n in named]
        if not matched:
            near = nearest(pin.layer, names)
            hint = f"; did you mean {near}?" if near else ""
            raise HyparError(f"{pin.said}: no layer is called {pin.layer!r}{hint}")
        if pin.level is not None and not 1 <= pin.level <= problem.levels:
            raise HyparError(f"{pin.said}: the level should be from 1 to {problem.levels}")
        levels = range(problem.levels) if pin.level is None else [pin.level - 1]
        if pin.choice in PART_WORDS:
            if pin.level not in (None, 1):
                raise HyparError(f"{pin.said}: all of a layer on one group is a choice at H1 alone")
            levels = [0]
        for level, node in itertools.product(levels, matched):
            # Two pins to the same choice agree; a second column is a conflict.
            pins_of_node = pinned[level][node] = {**pinned[level][node]}
            pins_of_node.setdefault(_column(pin, workload, node, problem), pin)
            if len(pins_of_node) > 1:
                one, other = (conflicting.said for conflicting in pins_of_node.values())
                where = f"{workload.nodes[node].name}, H{level + 1}"
                raise InfeasibleError(f"{one} and {other} conflict at {where}")
    _check_contiguous(pinned, workload)
    return pinned


def columns_of(pinned: Pinned, nodes: Iterable[int]) -> list[dict[int, int]]:
    """Return the pinned columns of some nodes, of those that have one, at each level."""
    numbers = [*nodes]
    return [{node: next(iter(row[node])) for node in numbers if row[node]} for row in pinned]


def _check_contiguous(pinned: Pinned, workload: Workload) -> None:
    """Check that pins leave parts of images contiguous (`split_leading_levels`)."""
    for column in spatial_columns(workload):
        used = [row for row in pinned if any(list(pins) == [column] for pins in row)]
        for above, row in itertools.combinations(used, 2):
            for name, upper, lower in zip(workload.nodes, above, row, strict=True):
                if list(lower) == [column] and upper and column not in upper:
                    one, other = (next(iter(pins.values())).said for pins in (upper, lower))
                    raise InfeasibleError(
                        f"{one} and {other} conflict at {name.name}: of the levels that split"
                        f" {workload.choices[column]} of any layer, a layer has the first"
                    )


def _column(pin: Pin, workload: Workload, node: int, problem: Problem) -> int:
    """Return the column of a pin's choice among those of the node's kind."""
    layer, of_node = workload.nodes[node], workload.choices_of_nodes[node]
    words = [choice.word for choice in of_node if choice]
    # `*=model` applies to every layer of a network, in each kind's word for that choice of the
    # problem; but `whole` is never a word for another choice.
    named = [n for n, choice in enumerate(of_node) if choice and choice.word == pin.choice] or [
        n
        for n, (choice, word) in enumerate(zip(of_node, problem.choices, strict=True))
        if choice and choice.axis and word == pin.choice
    ]
    if not named:
        choices = argument("choices", ",".join(problem.choices))
        if set(words) != set(problem.choices):
            choices = f"the choices of {layer.name} ({layer.kind}): {', '.join(words)}"
        remedy = ""
        if pin.choice == WHOLE_LAYER and problem.reading not in RUN_READINGS:
            remedy = f"; it needs {argument('reading', 'executed')}"
        raise HyparError(f"{pin.said}: {pin.choice} is not among {choices}{remedy}")
    return named[0]
