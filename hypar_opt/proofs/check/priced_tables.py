"""Tables of a plan's problem in any training mode, with a price per byte of memory."""

from __future__ import annotations

from itertools import combinations_with_replacement, product
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.proofs.check.memory import NodeMemory
from hypar_opt.proofs.check.rows import PlanProblem
from hypar_opt.proofs.check.tables import StateEdges, is_chain
from hypar_opt.proofs.check.training import words_of_nodes
from hypar_opt.workload.parallelism import RECOMPUTED, SHARDED
from hypar_opt.workload.shards import Shards

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.nodes import State
    from hypar_opt.proofs.check.tables import ReferenceTable


_MAX_STATES = 2**9
"""The most states of a node that are charged in all training modes: more would take minutes."""


class PricedTables:
    """Tables of plans in as many micro-batches as a plan, with bytes at a price.

    Each node, independent of its block, is in the cheapest training mode: recomputation, and
    sharding of its weights from some level down; exchanges are never repeated. So no plan that fits
    is charged less than a table's minimum minus the price of the whole memory.

    Parameters
    ----------
    uniform
        Whether the tables are for the plan's training mode only.
    """

    def __init__(self, plan: Plan, *, uniform: bool) -> None:
        self._problem = problem = (
            PlanProblem(plan) if uniform else _trained(plan, RECOMPUTED[0], SHARDED[0])
        )
        # A plan with recomputation by operator shows what each layer then keeps.
        memory_plan = plan if uniform else _trained(plan, "op", SHARDED[0]).plan
        memory = NodeMemory(memory_plan, problem.graph)
        self.capacity = memory.capacity
        self._edges = StateEdges(problem)
        if uniform:
            modes = [{mode: problem} for mode in words_of_nodes(plan, problem.graph)]
        else:
            again = [word for word in RECOMPUTED if word != "selective" or memory.writes_scores]
            trained = {mode: _trained(plan, *mode) for mode in product(again, _words(plan.levels))}
            unsharded = {
                mode: problem for mode, problem in trained.items() if mode[1] == SHARDED[0]
            }
            modes = [trained if node.stored else unsharded for node in problem.graph.nodes]
        self._modes = [
            [_pareto_frontier(modes_of_node, memory, n, state) for state in problem.states]
            for n, modes_of_node in enumerate(modes)
        ]

    def in_units(self, charges: Fraction) -> Fraction:
        """Return charges, the table's integers, in the cost's unit."""
        return charges / self._problem.charges.resolution

    def at(self, price: Fraction) -> ReferenceTable:
        """Return the table with bytes of all accelerators at a price, in its integers."""
        node = [
            [min(_priced(mode, price) for mode in of_state) for of_state in row]
            for row in self._modes
        ]
        return self._edges.table(np.array(node, object))

    def bytes_of(self, assignment: Sequence[int], price: Fraction) -> int:
        """Return the bytes of an assignment's nodes in the modes that are cheapest at a price."""
        chosen = (row[state] for row, state in zip(self._modes, assignment, strict=True))
        return sum(
            min((_priced(mode, price), mode[1]) for mode in of_state)[1] for of_state in chosen
        )


def priced_tables(plan: Plan, *, uniform: bool) -> PricedTables | None:
    """Return the tables of a plan within the memory of a device; None of any other.

    Of plans with the same training settings, or in any mode.

    Nor of unequal groups of accelerators, of images that are split, or where levels are apart; nor
    in any mode of a graph whose nodes have more states than are charged in all modes.

    Raises
    ------
    RefusedError
        If there are more states than memory allows.
    """
    joint = plan.solver.scope == "joint" and plan.levels > 0
    if plan.problem.device_memory is None or plan.groups or not joint:
        return None
    problem = PlanProblem(plan)
    many = not uniform and len(plan.choices) ** plan.levels > _MAX_STATES
    if problem.restrictions.of_images or (many and not is_chain(problem.graph)):
        return None
    return PricedTables(plan, uniform=uniform)


Charged = tuple[int, int]
"""A node's charge and bytes in a training mode."""


def _priced(mode: Charged, price: Fraction) -> int:
    charge, size = mode
    return charge + size * price.numerator // price.denominator


def _trained(plan: Plan, recompute: str, shard: str) -> PlanProblem:
    training = plan.training.model_copy(update={"recompute": recompute, "shard": shard})
    return PlanProblem(plan.model_copy(update={"training": training}))


def _words(levels: int) -> list[str]:
    """Return the words for sharding: gradients and weights each from some level on, or never.

    Sharding the state at all levels takes no longer, and holds less, than at some.
    """
    begins = combinations_with_replacement([*range(levels), levels], 2)
    return [SHARDED[0], *(Shards(0, *pair).word(levels) for pair in begins)]


def _pareto_frontier(
    modes: Mapping[tuple[str, str], PlanProblem], memory: NodeMemory, node: int, state: State
) -> list[Charged]:
    """Return a node's charges and bytes in Pareto-optimal modes."""
    charged = {
        (problem.charges.node(node, state), memory.of(node, state, *words))
        for words, problem in modes.items()
    }
    frontier: list[Charged] = []
    for mode in sorted(charged):
        if not frontier or mode[1] < frontier[-1][1]:
            frontier.append(mode)
    return frontier
