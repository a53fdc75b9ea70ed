"""Which choices a plan's constraints allow, and what each takes of an accelerator's memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hypar_opt.errors import CheckFailedError
from hypar_opt.search.proofs.exchanges import Counts, Layer

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan

OPTIMIZER_ELEMENTS = {"sgd": 0, "momentum": 1, "adam": 2}


class Restrictions:
    """The constraints of one plan, layer by layer.

    Raises
    ------
    CheckFailedError
        At a pin that is no pin, or of which no layer or choice of the plan is meant.
    """

    def __init__(self, plan: Plan, layers: Sequence[Layer]) -> None:
        self._plan = plan
        self._layers = layers
        self._pins = self._read_pins()
        self._least: dict[tuple[int, Counts], int | None] = {}  # counts say the level too

    @property
    def any(self) -> bool:
        """Whether anything is restricted at all."""
        given = self._plan.constraints
        fewer = any(len(layer.splits) < len(self._plan.choices) for layer in self._layers)
        return bool(given.fix) or given.even or given.memory is not None or fewer

    @property
    def capacity(self) -> int | None:
        """Bytes of an accelerator's memory, times 2^levels, as loads are."""
        memory = self._plan.constraints.memory
        return None if memory is None else memory << self._plan.levels

    def allows(self, level: int, place: int, counts: Counts, choice: int) -> bool:
        """Return whether a layer may take a choice at a level, given its choices above."""
        if choice >= len(self._layers[place].splits):
            return False  # its kind has fewer choices
        if self._pins.get((level, place), choice) != choice:
            return False
        if not self._plan.constraints.even:
            return True
        return self._layers[place].splits[choice].size % (2 << counts[choice]) == 0

    def load(self, place: int, counts: Sequence[int]) -> int:
        """Return what a layer takes of an accelerator's memory, in bytes times 2^levels.

        W / 2^(m+o) weights, A / 2^(d+m) of its input and F' / 2^(d+o) of its output before
        pooling; in training as many gradients and errors, and the optimizer's state.
        """
        layer, given, size = self._layers[place], self._plan.constraints, self._plan.element_bytes
        copies, undecided = layer.copies(counts), self._plan.levels - sum(counts)
        weights = layer.weights << copies.weights + undecided
        maps = layer.inputs << copies.inputs + undecided
        maps += layer.outputs << copies.outputs + undecided
        if self._plan.inference:
            return size * (weights + maps)
        optimizer = given.optimizer
        if isinstance(optimizer, str):
            optimizer = OPTIMIZER_ELEMENTS[optimizer] * size
        return (2 * size + optimizer) * weights + 2 * size * maps

    def least(self, level: int, place: int, counts: Counts) -> int | None:
        """Return the least load that choices from a level on leave a layer; None where none do."""
        if level == self._plan.levels:
            return self.load(place, counts)
        key = place, counts
        if key not in self._least:
            loads = [
                self.least(level + 1, place, one_more(counts, choice))
                for choice in range(len(counts))
                if self.allows(level, place, counts, choice)
            ]
            self._least[key] = min((load for load in loads if load is not None), default=None)
        return self._least[key]

    def check(self, rows: Sequence[Sequence[int]]) -> None:
        """Refuse choices, levels x layers, that do not keep to the constraints.

        Raises
        ------
        CheckFailedError
            Naming the layer, the level and the choice, or the memory.
        """
        if not self.any:
            return
        total = 0
        for place, layer in enumerate(self._layers):
            counts: Counts = (0,) * len(self._plan.choices)
            for level, row in enumerate(rows):
                if not self.allows(level, place, counts, row[place]):
                    choice = self._plan.choices[row[place]]
                    problem = f"{layer.name} may not take {choice} at H{level + 1}"
                    raise CheckFailedError(f"constraints: {problem}")
                counts = one_more(counts, row[place])
            total += self.load(place, counts)
        if self.capacity is not None and total > self.capacity:
            needed, memory = -(-total >> self._plan.levels), self._plan.constraints.memory
            raise CheckFailedError(f"constraints: the plan takes {needed:,} bytes of {memory:,}")

    def _read_pins(self) -> dict[tuple[int, int], int]:
        """Return the pinned choice of each level and layer that has one."""
        pins: dict[tuple[int, int], int] = {}
        for text in self._plan.constraints.fix:
            where, _, choice = text.rpartition("=")
            pattern, at, name = where.rpartition("@") if "@" in where else (where, "", "")
            number = name[1:] if name[:1] in ("H", "h") else name
            places = [n for n, layer in enumerate(self._layers) if fnmatchcase(layer.name, pattern)]
            levels = [int(number) - 1] if number.isdecimal() else [*range(self._plan.levels)]
            words = {place: [*map(str, self._plan.words[place])] for place in places}
            known = all(choice in of_layer for of_layer in words.values())
            in_range = all(0 <= level < self._plan.levels for level in levels)
            if not places or not known or not in_range or bool(at) != number.isdecimal():
                raise CheckFailedError(f"constraints, fix: {text!r} pins no layer of the plan")
            for level, place in itertools.product(levels, places):
                column = words[place].index(choice)
                if pins.setdefault((level, place), column) != column:
                    raise CheckFailedError(f"constraints, fix: {text!r} conflicts with another")
        return pins


def one_more(counts: Counts, choice: int) -> Counts:
    """Return how often each choice is taken, once one has been taken again."""
    return tuple(count + (place == choice) for place, count in enumerate(counts))
