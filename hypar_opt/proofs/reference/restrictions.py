"""The choices that a plan's constraints allow, and their loads on an accelerator's memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from hypar_opt.errors import CheckFailedError
from hypar_opt.proofs.reference.exchanges import Counts
from hypar_opt.proofs.reference.nodes import PlanGraph, PlanNode

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan

OPTIMIZER_ELEMENTS = {"sgd": 0, "momentum": 1, "adam": 2}


class Restrictions:
    """The constraints of one plan, layer by layer.

    Raises
    ------
    CheckFailedError
        At a pin that is malformed, or names no layer, level or choice of the plan.
    """

    def __init__(self, plan: Plan, graph: PlanGraph) -> None:
        self._plan = plan
        self._nodes: Sequence[PlanNode] = graph.nodes
        self._shared = graph.shared
        self._pins = self._read_pins()
        self._least: dict[tuple[int, Counts], int | None] = {}  # counts add up to the level

    @property
    def any(self) -> bool:
        """Whether any choice may be infeasible."""
        constraints = self._plan.constraints
        fewer = any(len(node.splits) < len(self._plan.choices) for node in self._nodes)
        return bool(constraints.fix) or constraints.even or constraints.memory is not None or fewer

    @property
    def choices(self) -> int:
        return len(self._plan.choices)

    @property
    def capacity(self) -> int | None:
        """Bytes of an accelerator's memory, times 2^levels, as loads are."""
        memory = self._plan.constraints.memory
        return None if memory is None else memory * self._plan.accelerators

    def allows(self, level: int, position: int, counts: Counts, choice: int) -> bool:
        """Return whether a layer may make a choice at a level, given its choices above."""
        if choice >= len(self._nodes[position].splits):
            return False  # its kind has fewer choices
        if self._pins.get((level, position), choice) != choice:
            return False
        # What is shared takes what its layers leave it; see `even` for its states.
        if not self._plan.constraints.even or position < self._shared:
            return True
        # The axis is split counts + 1 times: into 2 << counts equal parts.
        return self._nodes[position].splits[choice].size % (2 << counts[choice]) == 0

    def even(self, position: int, counts: Sequence[int]) -> bool:
        """Return whether a shared tensor is in equal parts after choices at all levels."""
        node = self._nodes[position]
        if position >= self._shared or node.stored or not self._plan.constraints.even:
            return True
        return all(
            split.size % (1 << count) == 0
            for split, count in zip(node.splits, counts, strict=False)
        )

    def load(self, position: int, counts: Sequence[int]) -> int:
        """Return a layer's load on an accelerator's memory, in bytes times 2^levels.

        W / 2^(m+o) weights, A / 2^(d+m) of its input and F' / 2^(d+o) of its output before
        pooling; in training as many gradients and errors, and the optimizer's state.
        """
        node, constraints, element_bytes = (
            self._nodes[position],
            self._plan.constraints,
            self._plan.element_bytes,
        )
        # In units of 2^-levels bytes each level without a choice is a factor of 2.
        copies, undecided = node.copies(counts), self._plan.levels - sum(counts)
        weights = node.stored << copies.weights + undecided
        maps = node.inputs << copies.inputs + undecided
        maps += node.outputs << copies.outputs + undecided
        if self._plan.inference:
            return element_bytes * (weights + maps)
        optimizer = constraints.optimizer
        if isinstance(optimizer, str):
            optimizer = OPTIMIZER_ELEMENTS[optimizer] * element_bytes
        return (2 * element_bytes + optimizer) * weights + 2 * element_bytes * maps

    def least(self, level: int, position: int, counts: Counts) -> int | None:
        """Return a layer's least load over all completions from a level on; None without one."""
        if level == self._plan.levels:
            return self.load(position, counts)
        key = position, counts
        if key not in self._least:
            loads = [
                self.least(level + 1, position, one_more(counts, choice))
                for choice in range(len(counts))
                if self.allows(level, position, counts, choice)
            ]
            self._least[key] = min((load for load in loads if load is not None), default=None)
        return self._least[key]

    def check(self, rows: Sequence[Sequence[int]]) -> None:
        """Refuse choices, ``(levels, nodes)``, that violate the constraints.

        Raises
        ------
        CheckFailedError
            Naming the layer, the level and the choice, or the memory.
        """
        if not self.any:
            return
        total = 0
        for position, node in enumerate(self._nodes):
            counts: Counts = (0,) * len(self._plan.choices)
            for level, row in enumerate(rows):
                # What is shared takes what its layers leave it.
                if position >= self._shared and not self.allows(
                    level, position, counts, row[position]
                ):
                    choice = self._plan.words[position - self._shared][row[position]]
                    problem = f"{node.name} may not take {choice} at H{level + 1}"
                    raise CheckFailedError(f"constraints: {problem}")
                counts = one_more(counts, row[position])
            if not self.even(position, counts):
                raise CheckFailedError(f"constraints: {node.name} is split into unequal parts")
            total += self.load(position, counts)
        if self.capacity is not None and total > self.capacity:
            # Rounded up to whole bytes.
            needed, memory = (
                -(-total // self._plan.accelerators),
                self._plan.constraints.memory,
            )
            raise CheckFailedError(f"constraints: the plan takes {needed:,} bytes of {memory:,}")

    def _read_pins(self) -> dict[tuple[int, int], int]:
        """Return the pinned choice of each level and layer that has one."""
        pins: dict[tuple[int, int], int] = {}
        for text in self._plan.constraints.fix:
            # A second parser of pins, on purpose: it shares no code with the search's.
            where, _, choice = text.rpartition("=")
            pattern, at, name = where.rpartition("@") if "@" in where else (where, "", "")
            number = name[1:] if name[:1] in ("H", "h") else name
            named = {n: node.name for n, node in enumerate(self._nodes) if n >= self._shared}
            positions = [n for n, name in named.items() if fnmatchcase(name, pattern)]
            if not positions:  # a block's name stands for its layers
                positions = [n for n, name in named.items() if fnmatchcase(name, pattern + ".*")]
            levels = [int(number) - 1] if number.isdecimal() else [*range(self._plan.levels)]
            columns = {n: self._pinned_column(n, choice) for n in positions}
            in_range = all(0 <= level < self._plan.levels for level in levels)
            known = positions and None not in columns.values()
            if not known or not in_range or bool(at) != number.isdecimal():
                raise CheckFailedError(f"constraints, fix: {text!r} pins no layer of the plan")
            for level, position in itertools.product(levels, positions):
                column = columns[position]
                if column is None or pins.setdefault((level, position), column) != column:
                    raise CheckFailedError(f"constraints, fix: {text!r} conflicts with another")
        return pins

    def _pinned_column(self, position: int, choice: str) -> int | None:
        """Return the column of a word: of the layer's own, else of the problem's choices."""
        own = [*map(str, self._plan.words[position - self._shared])]
        for words in (own, [*map(str, self._plan.choices)]):
            if choice in words and words.index(choice) < len(own):
                return words.index(choice)
        return None


def one_more(counts: Counts, choice: int) -> Counts:
    """Return the counts of choices after one more."""
    return tuple(count + (position == choice) for position, count in enumerate(counts))
