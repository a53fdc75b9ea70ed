"""The choices that pins, even splits and kinds of layers allow, and their least memory.

Layers are independent, except for those that share weights: shared weights are split at a level as
all of their users split them there, or whole. `WeightSplits` fix the splits of all shared weights
from some level on, after which layers are independent again.

Source: docs/decisions/0005-joint-optimum.md, docs/decisions/0010-graphs.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hypar_opt.costs.device_load import papers_load
from hypar_opt.instance.pins import pinned_choices
from hypar_opt.sharding.weights import replicated
from hypar_opt.workload.operators.axes import BATCH, EXPERTS, FALLBACK_REPLICATED, SPATIAL
from hypar_opt.workload.operators.words import REPLICATED_WORDS, choices_of
from hypar_opt.workload.parallelism import IMAGE_CHOICES, PART_WORDS
from hypar_opt.workload.splitting import may_split, spatial_columns

if TYPE_CHECKING:
    from hypar_opt.hierarchy import SplitRule
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.workload.layer_tensors import LayerTensors
    from hypar_opt.workload.tensors import Workload

Parts = tuple[int, ...]
"""The number of parts into which each choice of a layer splits it at the levels above."""

WeightSplits = tuple[tuple[int, ...], ...]
"""The choices of all shared weights' nodes at each level from one on."""


class LeastLoads:
    """The choices that each layer may make, and its least load over their completions.

    Raises
    ------
    HyparError
        If pins name a layer, level or choice that does not exist.
    InfeasibleError
        If pins conflict.

    Attributes
    ----------
    pinned
        The pinned choice of each node at each level, if it has one.
    impossible
        The load of a choice that no plan completes: above that of any plan. Without a limit all
        other loads are 0.
    """

    def __init__(
        self,
        problem: Problem,
        workload: Workload,
        rule: SplitRule | None,
    ) -> None:
        parts = rule.hierarchy if rule else problem.hierarchy
        self._problem, self._workload = problem, workload
        self._rule = rule
        self._sizes, self._choices = parts.sizes, len(problem.choices)
        self._levels = len(self._sizes)
        self.pinned = pinned_choices(problem, workload)
        # For each level, the first level with the same parts and pins.
        self._one_sided = [choice in PART_WORDS for choice in problem.choices]
        level_keys: list[tuple[object, ...]] = [
            (size, any(self._one_sided) and not level) for level, size in enumerate(self._sizes)
        ]
        if problem.constraints.fix:
            level_keys = [
                (*level, *map(frozenset, row))
                for level, row in zip(level_keys, self.pinned, strict=True)
            ]
        self._equal_levels = list(map(level_keys.index, level_keys))
        self._forbidden = workload.forbidden.copy()
        self._limits = np.zeros((self._choices, len(workload.nodes)), object)
        """The most parts of a choice that is a last resort; 0 for no limit."""
        self._set_limits()
        self._even = bool(spatial_columns(workload))
        self._by_parts = self._rule is not None or self._even or bool(self._limits.any())
        self._answers: dict[tuple[int, ...], NDArray[np.bool_]] = {}
        self._least: dict[tuple[int, Parts, WeightSplits | None], Integers] = {}
        self.start: Parts = (1,) * self._choices
        """The parts above the first level."""
        # Loads of parts with unequal shares are in `hypar_opt.costs.device_load`.
        papers = problem.constraints.memory is not None and not problem.device_memory
        self._limited = papers and not (problem.part_memory and problem.has_unequal_parts)
        self.impossible = 1 + (sum(self.load(self.start).tolist()) if self._limited else 0)

    def may(
        self, level: int, above: int, choice: int, stored: tuple[int, ...] = ()
    ) -> NDArray[np.bool_]:
        """Return which layers may make a choice at a level.

        Parameters
        ----------
        above
            The parts into which the same choice splits them above.
        stored
            The choices of shared weights' nodes there; empty to leave them free.
        """
        # Most levels have the same pins, or none.
        key = (self._equal_levels[level], above if self._by_parts else 0, choice, *stored)
        if key not in self._answers:
            self._answers[key] = self._allowed_at(level, above, choice, stored)
            self._answers[key].setflags(write=False)
        return self._answers[key]

    def _allowed_at(
        self, level: int, above: int, choice: int, stored: tuple[int, ...]
    ) -> NDArray[np.bool_]:
        allowed: NDArray[np.bool_] = ~self._forbidden[:, choice]
        if level and self._one_sided[choice]:
            allowed[:] = False  # groups are the parts of H1
        # Without a pin, a layer has all choices at a level.
        allowed &= np.array([not pins or choice in pins for pins in self.pinned[level]])
        parts, limits = above * self._sizes[level], self._limits[choice]
        allowed &= ((limits == 0) | (self._counted(parts) <= limits)).astype(bool)
        if self._rule or self._even:
            # Shared weights are split like their users, whose other choices split other axes.
            ruled = np.ones(len(allowed), bool)
            ruled[[*self._workload.weight_users]] = False
            fits = may_split(self._workload, self._rule, parts, choice, ruled)
            allowed[ruled] &= np.array(fits, bool)
        for (weights, users), column in zip(
            self._workload.weight_users.items(), stored, strict=False
        ):
            allowed[weights] &= column == choice
            allowed[list(users)] &= column in (replicated(self._workload, weights), choice)
        return allowed

    @property
    def forbids(self) -> bool:
        """Whether any node lacks a choice, or may split images only into equal parts."""
        return self._even or bool(self._forbidden.any())

    def _set_limits(self) -> None:
        """Limit the parts in which layers are whole to those that no fitting split can avoid."""
        workload = self._workload
        limits: dict[object, tuple[NDArray[np.bool_], int]] = {}
        if REPLICATED_WORDS.isdisjoint(workload.choices):
            return
        for node in range(workload.shared, len(workload.nodes)):
            choices, layer = workload.choices_of_nodes[node], workload.nodes[node]
            if FALLBACK_REPLICATED not in choices:
                continue
            whole = choices.index(FALLBACK_REPLICATED)
            pins = tuple(tuple(level[node]) for level in self.pinned)
            key = choices, layer.statistics, tuple(workload.split_sizes[:, node]), pins
            if key not in limits:
                parts = self._least_whole(node, whole)
                if parts > 1 and any(layer.statistics):
                    # Whole layers would repeat the sums of statistics over other splits.
                    for column, choice in enumerate(choices):
                        if choice and choice.axis not in ("", *layer.operator.statistics.axes):
                            self._forbidden[node, column] = True
                    parts = self._least_whole(node, whole)
                self._forbidden[node, whole] |= parts == 1
                limits[key] = self._forbidden[node], parts
            self._forbidden[node], self._limits[whole, node] = limits[key]

    def _least_whole(self, node: int, whole: int) -> int:
        """Return the fewest parts in which a layer is whole, given the splits that fit."""

        def fits(level: int, choice: int, parts: int) -> bool:
            pins = self.pinned[level][node]
            is_open = not (level and self._one_sided[choice]) and (not pins or choice in pins)
            if not is_open or self._forbidden[node, choice]:
                return False
            return choice == whole or bool(
                may_split(self._workload, self._rule, parts, choice, node)
            )

        reached = {(1,) * self._choices}
        for level, size in enumerate(self._sizes):
            reached = {
                one_more(above, choice, size)
                for above in reached
                for choice in range(self._choices)
                if fits(level, choice, above[choice] * size)
            }
        return min((self._counted(parts[whole]) for parts in reached), default=1)

    def _counted(self, product: int) -> int:
        return self._rule.parts(product) if self._rule else product

    def load(self, parts: Parts) -> Integers:
        """Return each layer's load on memory, in bytes of all accelerators together.

        Parameters
        ----------
        parts : (choices,)
            Into how many parts each choice splits every layer over all levels.
        """
        return papers_load(self._workload, self._problem).at(np.array(parts, object)[:, None])

    def completed(
        self, level: int, above: Parts, choice: int, weight_splits: WeightSplits | None
    ) -> Integers:
        """Return each layer's least load after a level's choice; `impossible` if there is none."""
        loads = self._least_after(level, above, choice, None)
        if weight_splits is not None:
            loads[self._tied] = self._least_after(level, above, choice, weight_splits)
        return loads

    def minima(self, weight_splits: WeightSplits | None = None) -> Integers:
        """Return each layer's least load over all its choices."""
        loads = self._completed(0, self.start, None)
        if weight_splits is not None:
            loads = loads.copy()
            loads[self._tied] = self._completed(0, self.start, weight_splits)
        return loads

    def _completed(self, level: int, above: Parts, weight_splits: WeightSplits | None) -> Integers:
        """Return the least loads of all layers, or in a way of those that it restricts."""
        if not (self._limited or self._by_parts):
            above = self.start  # pins are independent of how often a choice was made above
        key = level, above, weight_splits
        if key not in self._least:
            if level == self._levels:
                free = np.zeros(len(self._workload.nodes), np.int64)
                load = self.load(above) if self._limited else free
                self._least[key] = load if weight_splits is None else load[self._tied]
            else:
                choices = range(self._choices)
                after = [
                    self._least_after(level, above, choice, weight_splits) for choice in choices
                ]
                self._least[key] = np.stack(after).min(axis=0)
        return self._least[key]

    def _least_after(
        self, level: int, above: Parts, choice: int, weight_splits: WeightSplits | None
    ) -> Integers:
        parts = one_more(above, choice, self._sizes[level])
        may = self.may(
            level, above[choice], choice, () if weight_splits is None else weight_splits[0]
        )
        below = None if weight_splits is None else weight_splits[1:]
        loads = self._completed(level + 1, parts, below)
        return np.where(may if weight_splits is None else may[self._tied], loads, self.impossible)

    @cached_property
    def _tied(self) -> list[int]:
        """The nodes of shared weights, and the layers that use them."""
        shared = self._workload.weight_users
        return [*shared, *(user for users in shared.values() for user in users)]

    def least_of_plans(self) -> int:
        """Return the least load of a plan; `impossible` or more if there is none."""
        shared = self._workload.weight_users
        total: int = sum(np.delete(self.minima(), self._tied).tolist())
        # Layers that share one layer's weights are independent of all others.
        whole = [replicated(self._workload, weights) for weights in shared]
        for position, (weights, users) in enumerate(shared.items()):
            weight_splits = (
                tuple((*whole[:position], split, *whole[position + 1 :]) for split in splits)
                for splits in self._splits(0, users)
            )
            nodes = [weights, *users]
            total += min(sum(self.minima(way)[nodes].tolist()) for way in weight_splits)
        return total

    def weight_splits(self, level: int) -> Iterator[WeightSplits]:
        """Yield splits of shared weights from a level on, up to equivalence.

        Loads and constraints depend on how often a choice is made at levels of equal
        parts and pins, not on the order, so one order of the levels below is enough.
        """
        splits = [
            list(self._splits(level, users)) for users in self._workload.weight_users.values()
        ]
        for columns in product(*splits):
            yield tuple(tuple(column[n] for column in columns) for n in range(self._levels - level))

    def _splits(self, level: int, users: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the splits of one layer's shared weights at the levels from one on."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for n in range(level, self._levels):
            pins = (frozenset(self.pinned[n][user]) for user in users)
            groups.setdefault((n == level, self._sizes[n], *pins), []).append(n)
        of_group = (
            combinations_with_replacement(range(self._choices), len(group))
            for group in groups.values()
        )
        for choices in product(*of_group):
            by_level = {
                n: choice
                for group, chosen in zip(groups.values(), choices, strict=True)
                for n, choice in zip(group, chosen, strict=True)
            }
            yield tuple(by_level[n] for n in range(level, self._levels))

    def first_infeasible_level(self, position: int) -> int:
        """Return the first level, from 1, at which a layer without a plan has no choice left."""
        reached = {self.start}
        for level, size in enumerate(self._sizes):
            reached = {
                one_more(above, choice, size)
                for above in reached
                for choice in range(self._choices)
                if self.may(level, above[choice], choice)[position]
            }
            if not reached:
                return level + 1
        raise AssertionError(f"layer {position} can be completed")


def one_more(above: Parts, choice: int, size: int) -> Parts:
    """Return the parts after one more level, of ``size`` parts, that a choice splits."""
    return (*above[:choice], above[choice] * size, *above[choice + 1 :])


def level_splits(sizes: Sequence[int], choices: int) -> set[Parts]:
    """Return the numbers of parts that each choice may have over levels of some sizes."""
    splits: set[Parts] = {(1,) * choices}
    for size in sizes:
        splits = {one_more(above, choice, size) for above in splits for choice in range(choices)}
    return splits


def axes_of(layer: LayerTensors, choices: Sequence[str]) -> str:
    """Return the sizes of the axes that a layer's choices split, for a message."""
    axes = {choice.axis for choice in layer.operator.splits.values()}
    contracted = layer.operator.axes.contracted  # an embedding reads no channels
    if contracted and {"i", "o"} <= axes and EXPERTS.axis not in axes:
        channels = f"{layer.input[-1 if 't' in layer.sizes else 1]} in and"
        channels += f" {layer.output[-1 if 't' in layer.sizes else 1]} out"
        if layer.split_outputs:
            channels += f", divided as {' and '.join(map(str, layer.split_outputs))}"
        images = (
            f", and {border.size} {axis} for at most {border.max_parts} equal parts"
            for axis, border in zip(IMAGE_CHOICES, map(layer.borders.get, SPATIAL), strict=True)
            if border and axis in choices
        )
        return f"its batch is {layer.sizes[BATCH]}, its channels {channels}{''.join(images)}"
    sizes = (
        f"{layer.split_size(choice)} {choice.part}{'s' * (layer.split_size(choice) != 1)}"
        for choice in choices_of(layer, choices)
        if choice and choice.axis and layer.has(choice)
    )
    return f"it has {', '.join(sizes)}"
