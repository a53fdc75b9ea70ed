"""The choices that a plan's constraints allow, and their loads on an accelerator's memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from math import gcd
from typing import TYPE_CHECKING

from hypar_opt.errors import CheckFailedError
from hypar_opt.hierarchy import Hierarchy
from hypar_opt.proofs.check.memory import bytes_held, papers_bytes
from hypar_opt.proofs.check.nodes import PlanGraph, PlanNode, Split, State, indices_by_share
from hypar_opt.workload.parallelism import PART_WORDS

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan


class Restrictions:
    """The constraints of one plan, layer by layer.

    Raises
    ------
    CheckFailedError
        At a pin that is malformed, or names no layer, level or choice of the plan.
    """

    def __init__(self, plan: Plan, graph: PlanGraph) -> None:
        self._plan, self._hierarchy = plan, plan.hierarchy
        if plan.constraints.even and plan.share is not None:
            # Parts by shares consist of whole numbers of equal parts.
            measure = sum(plan.part_shares) // gcd(*plan.part_shares)
            self._hierarchy = Hierarchy((measure, *plan.hierarchy.sizes[1:]))
        self._nodes: Sequence[PlanNode] = graph.nodes
        self._shared = graph.shared
        # A limit on a device's memory is not a limit on sums over layers.
        within_device = plan.problem.device_memory is not None
        self._memory = None if within_device else plan.constraints.memory
        if self._memory is not None:
            # Parts are equal: a plan fits all groups if it fits the least memory.
            had = (int(group.dram_capacity) for group in plan.groups)
            self._memory = min(self._memory, *had, self._memory)
        self.of_images = [n for n, word in enumerate(plan.choices) if word in ("rows", "columns")]
        self._pins = self._read_pins()
        self._holds = [papers_bytes(plan, node) for node in self._nodes]
        self._least: dict[tuple[int, tuple[tuple[int, int], ...]], int | None] = {}
        self._wholes: dict[object, int] = {}

    @property
    def any(self) -> bool:
        """Whether any choice may be infeasible."""
        constraints = self._plan.constraints
        fewer = any(None in node.splits for node in self._nodes)
        limited = constraints.even or constraints.runnable or self._memory is not None
        last = any(split.last_resort for node in self._nodes for split in node.choices.values())
        sided = any(word in PART_WORDS for word in self._plan.choices)
        return bool(constraints.fix or self.of_images) or limited or fewer or last or sided

    @property
    def capacity(self) -> int | None:
        """Bytes of the memory of all accelerators together, as loads are."""
        return None if self._memory is None else self._memory * self._plan.accelerators

    def allows(self, position: int, state: State) -> bool:
        """Return whether a node may make the last choice of a state, given those above."""
        *above, choice = state
        if choice not in self._nodes[position].choices:
            return False
        if above and self._plan.choices[choice] in PART_WORDS:
            return False  # groups are parts of H1
        if self._pins.get((len(above), position), choice) != choice:
            return False
        splits = self._nodes[position].choices.items()
        for whole in (n for n, split in splits if split.last_resort):
            if choice == whole:
                return self._parts(state, choice) <= self._least_whole(position, whole)
            if self._sums_channels(position, choice) and self._least_whole(position, whole) > 1:
                return False
        # Shared weights follow from their users.
        is_weights = position < self._shared and self._nodes[position].stored > 0
        return is_weights or self._divides(position, state, choice)

    def stays_contiguous(self, states: Sequence[State], position: int, choice: int) -> bool:
        """Return whether a node's parts of images stay contiguous with one more choice.

        Parameters
        ----------
        states
            The choices of all nodes at the levels above.
        """
        if choice not in self.of_images:
            return True
        used = {level for level, row in enumerate(zip(*states, strict=True)) if choice in row}
        return all(states[position][level] == choice for level in used)

    def splits(self, position: int, state: State) -> bool:
        """Return whether a shared tensor may be in the parts of a state of all levels."""
        node = self._nodes[position]
        if position >= self._shared or node.stored:
            return True
        return all(
            choice in node.choices and self._divides(position, state, choice)
            for choice in set(state)
        )

    def _sums_channels(self, position: int, choice: int) -> bool:
        """Return whether a choice splits sums over channels, which replicas would repeat."""
        node = self._nodes[position]
        return any(node.statistics) and choice in node.sharing_statistics

    def _least_whole(self, position: int, whole: int) -> int:
        """Return the parts in which a layer is whole if it is split as far as possible.

        A layer that has to be whole is not split by channels over which statistics are summed.
        """
        pins = tuple(self._pins.get((n, position)) for n in range(self._plan.levels))
        splits = self._nodes[position].choices
        key = self._nodes[position].splits, self._nodes[position].statistics, pins
        if key not in self._wholes:
            fewest = self._whole_among(splits, pins, whole)
            if fewest > 1:
                unsummed = {n: s for n, s in splits.items() if not self._sums_channels(position, n)}
                fewest = self._whole_among(unsummed, pins, whole)
            self._wholes[key] = fewest
        return self._wholes[key]

    def _whole_among(
        self, splits: Mapping[int, Split], pins: Sequence[int | None], whole: int
    ) -> int:
        """Return the fewest parts in which a layer is whole, given its possible choices."""
        # The choice at H1, and how many parts each has made, level by level.
        reachable = {(-1, (1,) * len(self._plan.choices))}
        for level, (size, pin) in enumerate(zip(self._hierarchy.sizes, pins, strict=True)):
            reachable = {
                (first if level else n, (*parts[:n], parts[n] * size, *parts[n + 1 :]))
                for first, parts in reachable
                for n, split in splits.items()
                if pin in (None, n)
                and not (level and self._plan.choices[n] in PART_WORDS)
                and self._fits(split, parts[n] * size, splits_h1=n == (first if level else n))
            }
        return min((parts[whole] for _, parts in reachable), default=1)

    def _divides(self, position: int, state: State, choice: int) -> bool:
        """Return whether the parts of a choice satisfy the plan's constraints."""
        split = self._nodes[position].choices[choice]
        return self._fits(split, self._parts(state, choice), splits_h1=choice == state[0])

    def _fits(self, split: Split, parts: int, *, splits_h1: bool) -> bool:
        """Return whether parts of an axis satisfy the constraints; H1's may have shares."""
        size = split.size
        if split.max_parts and (size % parts or parts > split.max_parts):
            return False
        if self._plan.constraints.even:  # none of equal parts, or of their multiples, is empty
            return size % parts == 0
        if not self._plan.constraints.runnable or not size:
            return True
        if self._plan.share is None or not splits_h1:
            return size >= parts
        at_h1 = indices_by_share(size, self._plan.part_shares)
        return min(at_h1) * len(at_h1) >= parts

    def _parts(self, state: State, choice: int) -> int:
        """Return the number of parts into which a choice splits its axis in a state."""
        return self._hierarchy.parts(level for level, taken in enumerate(state) if taken == choice)

    def load(self, position: int, state: State) -> int:
        """Return a node's load in a state of all levels, in bytes of all accelerators together.

        Zero if memory is not limited.
        """
        if self._memory is None:
            return 0
        return bytes_held(self._holds[position], state, self._hierarchy.sizes)

    def least_load(self, position: int, state: State) -> int | None:
        """Return a node's least load over all completions of a state; None without one."""
        if len(state) == self._plan.levels:
            return self.load(position, state)
        # Pins, parts and loads do not depend on which of equal levels make a choice.
        key = position, tuple(sorted(zip(state, self._hierarchy.sizes, strict=False)))
        if key not in self._least:
            below = [(*state, choice) for choice in range(len(self._plan.choices))]
            loads = [
                self.least_load(position, more) for more in below if self.allows(position, more)
            ]
            self._least[key] = min((load for load in loads if load is not None), default=None)
        return self._least[key]

    def check(self, states: Sequence[State]) -> None:
        """Refuse states of all nodes that violate the constraints.

        Raises
        ------
        CheckFailedError
            Naming the layer, the level and the choice, or the memory.
        """
        if not self.any:
            return
        total = 0
        for position, (node, state) in enumerate(zip(self._nodes, states, strict=True)):
            # Shared nodes follow from their layers.
            checked = range(len(state)) if position >= self._shared else ()
            for level in checked:
                if not self.allows(position, state[: level + 1]):
                    choice = self._plan.words[position - self._shared][state[level]]
                    problem = f"{node.name} may not take {choice} at H{level + 1}"
                    raise CheckFailedError(f"constraints: {problem}")
            if not self.splits(position, state):
                parts = "unequal" if self._plan.constraints.even else "empty"
                raise CheckFailedError(f"constraints: {node.name} is split into {parts} parts")
            total += self.load(position, state)
        for column in self.of_images:
            if not _is_contiguous(states, column):
                word = self._plan.choices[column]
                raise CheckFailedError(f"constraints: {word} are split into parts with gaps")
        if self.capacity is not None and total > self.capacity:
            # Rounded up to whole bytes.
            needed = -(-total // self._plan.accelerators)
            raise CheckFailedError(
                f"constraints: the plan takes {needed:,} bytes of {self._memory:,}"
            )

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
            if not positions and pattern.startswith("output of "):
                tensors = enumerate(self._nodes[: self._shared])
                positions = [
                    n for n, node in tensors if not node.stored and fnmatchcase(node.name, pattern)
                ]
            levels = [int(number) - 1] if number.isdecimal() else [*range(self._plan.levels)]
            columns = {n: self._pinned_column(n, choice) for n in positions}
            in_range = all(0 <= level < self._plan.levels for level in levels)
            is_named = positions and None not in columns.values()
            if not is_named or not in_range or bool(at) != number.isdecimal():
                raise CheckFailedError(f"constraints, fix: {text!r} pins no layer of the plan")
            for level, position in itertools.product(levels, positions):
                column = columns[position]
                if column is None or pins.setdefault((level, position), column) != column:
                    raise CheckFailedError(f"constraints, fix: {text!r} conflicts with another")
        return pins

    def _pinned_column(self, position: int, choice: str) -> int | None:
        """Return the column of a word: of the layer's own, else of the problem's choices."""
        words_of_tensor = {"model": "channel", "output": "whole"}
        tensor = tuple(words_of_tensor.get(word, word) for word in self._plan.choices)
        is_tensor = position < self._shared
        layer_words = tensor if is_tensor else self._plan.words[position - self._shared]
        for words in (layer_words, self._plan.choices):
            columns = {words[column]: column for column in self._nodes[position].choices}
            if choice in columns:
                return columns[choice]
        return None


def _is_contiguous(states: Sequence[State], choice: int) -> bool:
    """Return whether all nodes that split images by a choice have contiguous parts.

    The levels at which any node splits images divide them successively; a node that skips one of
    these levels may not split at any below.
    """
    used = [level for level, row in enumerate(zip(*states, strict=True)) if choice in row]
    divides = [[state[level] == choice for level in used] for state in states]
    return all(sorted(levels, reverse=True) == levels for levels in divides)
