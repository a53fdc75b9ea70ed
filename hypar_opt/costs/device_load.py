"""What states of nodes hold, in all accelerators together or in a part of H1: folds of holds.

For all accelerators together axes are divided exactly: a lower bound on the bytes of the fullest
accelerator, times their number. A part of H1 between groups is scaled to the whole array, as if
every accelerator held as much.

Source: docs/memory.md; docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.integers import exact_dtype, scale
from hypar_opt.step.holds import ONE_PART, Hold, HoldArrays, papers_holds
from hypar_opt.step.states import exact_sum, states_from_rows

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.integers import Integers
    from hypar_opt.plan.problem import ProblemFields
    from hypar_opt.step.shares import Share
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True, eq=False)
class DeviceLoad:
    """The bytes that nodes hold in all accelerators together, by their states.

    Parameters
    ----------
    holds
        What is counted.
    """

    holds: Sequence[Hold]
    workload: Workload
    hierarchy: Hierarchy

    @cached_property
    def terms(self) -> list[HoldArrays]:
        """Tensors in rows of one of each node, filled with some of no bytes; at least one row."""
        choices = len(self.workload.choices)
        of_node: list[list[Hold]] = [[] for _ in self.workload.nodes]
        for hold in self.holds:
            of_node[hold.node].append(hold)
        none = Hold(0, 0, (), (ONE_PART,) * choices)
        terms = [*zip_longest(*of_node, fillvalue=none)] or [(none,) * len(of_node)]
        return [HoldArrays(term, choices, self.hierarchy) for term in terms]

    def of(self, nodes: Indices, states: States) -> Integers:
        """Return the bytes of nodes in states over all levels."""
        return exact_sum([term.bytes[nodes] * term.in_states(nodes, states) for term in self.terms])

    def at(self, parts: Integers) -> Integers:
        """Return the bytes of each node, ``(nodes,)``, by the number of parts of each choice.

        At levels without a choice each part has a copy. A lower bound where levels have different
        sizes.

        Parameters
        ----------
        parts : (choices, nodes), or (choices, 1)
        """
        amounts = []
        for term in self.terms:
            split = parts.astype(term.elements.dtype)
            lacks = term.lacks.reshape(-1, *term.lacks.shape[-2:]).all(axis=0)
            undecided = self.hierarchy.accelerators // split.prod(axis=0)
            copied = np.where(lacks, split, 1).prod(axis=0) * undecided
            amounts.append(term.bytes * term.elements * copied)
        return exact_sum(amounts).astype(object)

    @cached_property
    def node_keys(self) -> list[Hashable]:
        """A key of each node: nodes with equal keys are charged alike."""
        columns = [
            zip(
                (term.bytes * term.elements).tolist(),
                map(bytes, np.moveaxis(term.lacks, -1, 0).copy()),
                strict=True,
            )
            for term in self.terms
        ]
        return list(zip(*columns, strict=True))

    @property
    def upper_bound(self) -> int:
        """An upper bound on the bytes of any plan."""
        total = sum(sum((term.bytes * term.elements).tolist()) for term in self.terms)
        return self.hierarchy.accelerators * total


@dataclass(frozen=True, eq=False)
class PartLoad(DeviceLoad):
    """The bytes that nodes hold in one part of H1 between groups, scaled to all accelerators.

    Parameters
    ----------
    share
        The part's.
    """

    share: Share

    def of(self, nodes: Indices, states: States) -> Integers:
        """Return the bytes of nodes in states over all levels, rounded down."""
        amounts_of_terms = []
        for term in self.terms:
            amounts = term.bytes[nodes] * term.in_states(nodes, states)
            # Data parallelism shards replicated weights equally, whatever the parts' shares.
            arguments = amounts, term.replicated, self.workload, nodes, states
            # Partial sums are stored by image, whatever axis the layer splits.
            axis, image = (self.share.scaled_amounts(*arguments, by_image=n) for n in (False, True))
            amounts_of_terms.append(np.maximum(np.minimum(axis, image) - 1, 0))
        return exact_sum(amounts_of_terms)

    @property
    def upper_bound(self) -> int:
        return len(self.share.parts) * super().upper_bound


def papers_load(workload: Workload, problem: ProblemFields) -> DeviceLoad:
    """Return what nodes hold by the paper's count: all that each layer reads and writes, at once.

    Parameters
    ----------
    problem
        Its levels, element bytes, optimizer, and whether it is inference, are used.
    """
    bytes_ = problem.element_bytes, problem.constraints.optimizer_bytes(problem.element_bytes)
    return _papers_load(workload, problem.hierarchy, *bytes_, inference=problem.inference)


@lru_cache(maxsize=16)
def _papers_load(
    workload: Workload,
    hierarchy: Hierarchy,
    element_bytes: int,
    optimizer_bytes: int,
    *,
    inference: bool,
) -> DeviceLoad:
    holds = papers_holds(workload, element_bytes, optimizer_bytes, inference=inference)
    return DeviceLoad(tuple(holds), workload, hierarchy)


def papers_loads(
    workload: Workload,
    nodes: Indices,
    states: States,
    problem: ProblemFields,
    shares: Sequence[Share],
) -> list[Integers]:
    """Return the bytes that nodes hold by the paper's count, in all accelerators together.

    Parameters
    ----------
    states
        Over all levels.
    shares
        Of parts of H1, each scaled to all accelerators; empty for one count of all parts.
    """
    load = papers_load(workload, problem)
    if not shares:
        return [load.of(nodes, states)]
    dtype = exact_dtype(len(shares) * load.upper_bound)
    counts = [term.in_states(nodes, states).astype(dtype, copy=False) for term in load.terms]
    return [
        exact_sum(
            [
                term.bytes[nodes]
                * share.scaled_amounts(elements, term.replicated, workload, nodes, states)
                for term, elements in zip(load.terms, counts, strict=True)
            ]
        )
        for share in shares
    ]


def papers_memory(
    workload: Workload,
    rows: Sequence[Sequence[int]],
    problem: ProblemFields,
    shares: Sequence[Share] = (),
) -> list[int]:
    """Return the bytes of an accelerator in a plan by the paper's count, rounded up.

    Parameters
    ----------
    rows : (levels, nodes)
        The choices of all nodes.
    shares
        Of unequal parts of H1, one result for each; empty where parts are equal.
    """
    nodes = np.arange(len(workload.nodes))
    loads = papers_loads(workload, nodes, states_from_rows(rows, len(nodes)), problem, shares)
    return [-(-sum(load.tolist()) // problem.hierarchy.accelerators) for load in loads]


def at_price(sizes: Integers, price: Fraction) -> Integers:
    """Return the charges of bytes, each at a price, rounded down."""
    return scale(sizes, price, "down")


@dataclass(frozen=True, eq=False)
class PricedLoad:
    """Bytes at a price: a Lagrangian relaxation of a capacity.

    Parameters
    ----------
    price
        Charges for a byte of all accelerators together.
    """

    load: DeviceLoad
    price: Fraction

    def charges(self, nodes: Indices, states: States) -> Integers:
        """Return what the bytes of nodes cost, rounded down."""
        return at_price(self.load.of(nodes, states), self.price)

    @property
    def upper_bound(self) -> int:
        return int(self.price * self.load.upper_bound) + 1
