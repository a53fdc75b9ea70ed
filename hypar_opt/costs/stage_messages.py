"""The time of messages between pipeline stages, and of gradients that stages sum.

Each accelerator of a stage has one of the next stage beside it, to which it sends what it stores of
the tensor between them. Accelerators that store the same send it whole, or a part each, which those
that receive it gather level by level, the topmost first: what takes less.

Weights that several stages hold have gradients in each. Accelerators at the same place of these
stages all-reduce them around a ring of the stages, once a step.

Source: D. Narayanan et al., SC 2021, section 4.1 (scatter and gather between stages).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise, product
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from hypar_opt.costs.physical import array_of
from hypar_opt.integers import exact_dtype, scale
from hypar_opt.step.states import level_choices, shape_of, states_from_rows
from hypar_opt.workload.tensors import workload_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import Problem
    from hypar_opt.plan.stages import Stages
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload

_PER_SECOND = 10**15
"""The integers of a second in which a plan's messages are timed."""


@dataclass(frozen=True, eq=False)
class StageMessages:
    """The messages of a stage, one in each pass of each micro-batch.

    Parameters
    ----------
    links
        The links to the stage's neighbours, by the name of the message's layer.
    splits
        The links of the stage's own levels, H1 first.
    element_bytes
        The size of an element that is sent.
    passes
        The passes in which a message is sent: forward, and in training backward.
    """

    links: Mapping[str, BisectionLink]
    splits: Sequence[BisectionLink]
    hierarchy: Hierarchy
    workload: Workload
    element_bytes: int
    passes: int = 2

    @classmethod
    def of_stage(cls, problem: Problem, workload: Workload) -> Self | None:
        """Return the messages of a problem; None where it is of no pipeline stage."""
        if problem.stage is None:
            return None
        splits: tuple[BisectionLink, ...] = ()
        if problem.levels:  # else of one accelerator
            array, placement = array_of(problem)
            splits = tuple(map(array.interconnect.bisection, placement))
        passes = 1 if problem.inference else 2
        of_problem = problem.hierarchy, workload, problem.element_bytes
        return cls(problem.stage.links, splits, *of_problem, passes)

    @cached_property
    def _nodes(self) -> Mapping[int, BisectionLink]:
        """The link of each node that is a message."""
        layers = enumerate(self.workload.layers, self.workload.shared)
        return {node: self.links[layer.name] for node, layer in layers if layer.name in self.links}

    @cached_property
    def _often(self) -> int:
        return self.passes * self.workload.repeats.micro_batches

    @cached_property
    def node_keys(self) -> list[Hashable]:
        """A key of each node: nodes with equal keys are charged alike."""
        return [self._nodes.get(node) for node in range(len(self.workload.nodes))]

    def charges(self, nodes: Indices, states: States, per_second: Fraction | int) -> Integers:
        """Return the time of nodes' messages in a step, in integers of ``1 / per_second`` seconds.

        Parameters
        ----------
        states
            Over all levels.
        """
        dtype = exact_dtype(int(self.upper_bound * per_second) + 1)
        charged: Integers = np.zeros(shape_of(nodes, states), dtype)
        for node, link in self._nodes.items():
            places = nodes == node
            if places.any():
                sent = self._often * self._seconds(node, link, states, per_second)
                charged = np.where(places, sent.astype(dtype), charged)
        return charged

    def extremes(self, per_second: Fraction | int) -> tuple[Fraction, Fraction]:
        """Return the least and the most time of a message in a step, in any layout."""
        times = []
        for node, link in self._nodes.items():
            whole = self._whole(node)
            ends = sorted({int(whole.argmax()), int(whole.argmin())})
            states = np.array([*product(ends, repeat=len(self.splits))]).T
            times += self._seconds(node, link, [states], per_second).tolist()
        lowest, highest = (Fraction(self._often * of(times)) / per_second for of in (min, max))
        return lowest, highest

    def seconds(self, rows: Rows) -> dict[str, float]:
        """Return the seconds of one message of each layer, by the names of the layers.

        Parameters
        ----------
        rows : (levels, nodes)
            Choices of all nodes.
        """
        states = states_from_rows(rows, len(self.workload.nodes))
        seconds = {}
        for node, link in self._nodes.items():
            of_node = [block[:, [node]] for block in states]
            (charge,) = self._seconds(node, link, of_node, _PER_SECOND).tolist()
            seconds[self.workload.nodes[node].name] = charge / _PER_SECOND
        return seconds

    def _seconds(
        self, node: int, link: BisectionLink, states: States, per_second: Fraction | int
    ) -> Integers:
        """Return the time of a node's message in states: whole, or in parts that are gathered."""
        size = self.workload.pooled[node] * self.element_bytes
        whole = self._whole(node)
        count, gathered = np.ones(1, object), np.zeros(1, object)
        for split, parts, choice in zip(
            self.splits, self.hierarchy.sizes, level_choices(states), strict=True
        ):
            copied = whole[choice]
            sent = scale(size * (parts - 1) * count, split.seconds_per_byte * per_second)
            latency = (parts - 1) * split.latency * per_second
            gathered = gathered + np.where(copied, sent + int(latency + Fraction(1, 2)), 0)
            count = count * np.where(copied, parts, 1)
        pace, latency = link.seconds_per_byte * per_second, link.latency * per_second
        parts_sent = scale(np.array([size], object), pace) + gathered
        times: Integers = np.minimum(scale(size * count, pace), parts_sent)
        return times + int(latency + Fraction(1, 2))

    def _whole(self, node: int) -> NDArray[np.bool_]:
        """Return the choices under which each part of a level stores all of a node's output."""
        flags: NDArray[np.bool_] = np.array(self.workload.layouts.whole)[:, node]
        return flags

    @cached_property
    def upper_bound(self) -> Fraction:
        """An upper bound on the seconds of all messages in a step."""
        count, total = self.hierarchy.accelerators, Fraction()
        for node, link in self._nodes.items():
            size = self.workload.pooled[node] * self.element_bytes
            total += self._often * (size * count * link.seconds_per_byte + link.latency + 1)
        return total


class TiedReduction(NamedTuple):
    """The all-reduce of the gradients of weights that several stages hold, once a step.

    Parameters
    ----------
    layer
        The name of the layer that has the weights.
    parts
        The stages, from 0, in order.
    size
        The bytes of the gradients.
    seconds
        Its duration.
    """

    layer: str
    parts: tuple[int, ...]
    size: int
    seconds: Fraction


def tied_reductions(
    stages: Stages, array: Array, element_bytes: int, *, copies: int = 1
) -> tuple[TiedReduction, ...]:
    """Return the all-reduces of gradients between stages.

    Parameters
    ----------
    element_bytes
        Of an element of the gradients.
    copies
        The number of accelerators of a stage that exchange the same gradients. Replicas that have
        reduce-scattered them exchange a shard each.
    """
    tensors = workload_of(stages.network, 1).layers if stages.tied else ()
    reductions = []
    for tied in stages.tied:
        size = prod(tensors[tied.owner].weight) * element_bytes
        seconds = seconds_of_sum(array, stages.parts, tied.parts, size * copies)
        name = stages.network.layers[tied.owner].name
        reductions.append(TiedReduction(name, tied.parts, size, seconds))
    return tuple(reductions)


def seconds_of_tied(tied: Sequence[TiedReduction], part: int) -> Fraction:
    """Return the seconds of all reductions in which a stage takes part."""
    return sum((reduction.seconds for reduction in tied if part in reduction.parts), Fraction())


def seconds_of_sum(array: Array, stages: int, parts: Sequence[int], size: int) -> Fraction:
    """Return the seconds of an all-reduce around a ring of stages; 0 for a single stage.

    Parameters
    ----------
    parts
        The stages, from 0, in order.
    size
        In bytes, of all accelerators of a stage together.
    """
    if len(parts) == 1:
        return Fraction()
    rounds = 2 * (len(parts) - 1)
    ring = pairwise((*parts, parts[0]))
    links = [array.stage_link(part, stages, (then - part) % stages) for part, then in ring]
    sent = Fraction(size, len(parts))
    return rounds * max(sent * link.seconds_per_byte + link.latency for link in links)
