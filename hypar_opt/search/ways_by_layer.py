"""The ways in which layers may train in so many micro-batches: their plans, times and memory.

What data parallelism shards is a choice of the weights of each layer, and whether attention's
scores are computed again one of each attention; both are charged by the layer alone. A block is
computed again as a whole, exchanges included, or all of it but its products, or not.

Source: docs/algorithms.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.alignments import states_in_classes
from hypar_opt.costs.device_load import DeviceLoad, PartLoad
from hypar_opt.costs.state_classes import ClassTable, KnownCharges, classed
from hypar_opt.costs.ways_of_nodes import Amount, WaysOfNodes, by_state, coupled
from hypar_opt.instance.least_loads import every_split
from hypar_opt.search.left_columns import Chosen, LeftColumn, LeftColumns, Picked, order_of_nodes
from hypar_opt.search.open_ways import OpenWays, spread, updates_take_time
from hypar_opt.search.way_of_training import WayOfTraining
from hypar_opt.solvers.elimination.classes import columns_at_most
from hypar_opt.solvers.loaded_graph import edges_between
from hypar_opt.step.holds import HoldArrays
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.parallelism import RECOMPUTED
from hypar_opt.workload.recomputation import OF_BLOCKS, segments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.deadline import Deadline
    from hypar_opt.integers import Integers
    from hypar_opt.plan.training import Training
    from hypar_opt.search.result import SearchRequest
    from hypar_opt.step.states import Indices, States

_COUNTED = 2**17
"""The most states of all nodes whose least tensors are asked for."""


class WaysByLayer:
    """The problem of layouts and ways of all layers, in so many micro-batches.

    Its tables have all states of each node, or of fixed layouts those that occur, and again all of
    them for each way in which its block may run again.

    Parameters
    ----------
    layouts : (levels, nodes)
        The only choices of all nodes; None for any that pins leave.
    part
        As in `WayOfTraining`.
    ample
        Whether all fits, so that nothing is computed again, nor weights gathered more often.
    held
        The micro-batches that tell what nodes hold; by default as many.
    """

    def __init__(
        self,
        search: SearchRequest,
        micro_batches: int,
        layouts: Rows | None = None,
        part: int | None = None,
        *,
        ample: bool = False,
        held: int | None = None,
    ) -> None:
        network, problem = search.instance.network, search.instance.problem
        stated = problem.training.model_copy(update={"micro_batches": micro_batches})
        self.search = search
        assert problem.array is not None
        saves = not Fused.on(problem.array.description.accelerator).attention
        # Unequal groups differ at H1 alone, which no way by level knows.
        own = WayOfTraining(search)
        tiers = [0] if problem.groups else own.tiers
        has_state = own.weight_bytes.state > 0 or updates_take_time(problem)
        has_state = has_state or stated.reduced(problem.element_bytes) > 1
        self.open = OpenWays(network, stated, saves, problem.levels, tiers, has_state)
        if layouts is None:
            layouts = search.instance.constraints.only_plan
        self.micro_batches, self._layouts, self._ample = micro_batches, layouts, ample
        self._made: dict[Training, WayOfTraining] = {}
        self._tables: dict[tuple[Training, int], ClassTable] = {}
        self._charges = KnownCharges(of_nodes={})  # what ways share
        together = () if ample else self.open.together
        sides = RECOMPUTED[:1] if ample else self.open.apart, *((word,) for word in together)
        gathers = not ample or len(tiers) > 2  # of three tiers a ring in three parts may take less
        shards = [word for word in self.open.sharded if gathers or "weights" not in word]
        self._words = [[*product(own, shards)] for own in sides]
        self.first = WayOfTraining.of(search, self.open.uniform(*self._words[0][0]), part)
        """The way that repeats and shards least."""
        self._held = WaysByLayer(search, held, layouts, part, ample=ample) if held else self

    @cached_property
    def each(self) -> list[list[WayOfTraining]]:
        """The ways of nodes whose blocks are not computed again as a whole; then, of others."""
        return [[self._of(*own) for own in words] for words in self._words]

    def _of(self, recompute: str, shard: str) -> WayOfTraining:
        training = self.open.uniform(recompute, shard)
        if training not in self._made:
            self._made[training] = WayOfTraining.of(self.first.search, training, self.first.part)
        return self._made[training]

    @cached_property
    def ample(self) -> WaysByLayer:
        """The ways if all fits, which have the first numbers of these."""
        return self._alike(self._held.micro_batches, ample=True)

    def holding(self, count: int) -> WaysByLayer:
        """Return the same ways with what nodes hold in another number of micro-batches."""
        return self._alike(count, ample=self._ample)

    def _alike(self, held: int, *, ample: bool) -> WaysByLayer:
        asked = self.search, self.micro_batches, self._layouts, self.first.part
        own = None if held == self.micro_batches else held
        found = WaysByLayer(*asked, ample=ample, held=own)
        found._made, found._tables, found._charges = self._made, self._tables, self._charges
        return found

    @cached_property
    def states(self) -> Sequence[tuple[int, ...]]:
        if self._layouts is not None:
            return sorted({*zip(*self._layouts, strict=True)})
        levels, workload = self.search.instance.problem.levels, self.first.instance.workload
        return states_in_classes(self.first.cost, workload, levels, self.search.deadline)

    @cached_property
    def per_unit(self) -> int:
        """Charges per second, joule or byte, the same of all ways."""
        return min(way.per_unit for ways in self.each for way in ways)

    @cached_property
    def sides(self) -> Sequence[WaysOfNodes]:
        """`each`, with what nodes are charged and hold."""
        known = self.search.instance.ways
        counts = self.micro_batches, self._held.micro_batches
        key = counts, self._layouts, self.first.part, self._ample
        if key not in known:
            sides = zip(self.each, self._held.each, strict=True)
            known[key] = [self._ways_of(*side) for side in sides]
        return known[key]

    def _ways_of(self, ways: Sequence[WayOfTraining], held: Sequence[WayOfTraining]) -> WaysOfNodes:
        tables = [self._table_of(way) for way in ways]
        loads, moments = [_certain(way.load) for way in held], [self._moment(way) for way in held]
        return WaysOfNodes.of(tables, loads, moments, self.states)

    def _table_of(self, way: WayOfTraining) -> ClassTable:
        key = way.instance.problem.training, self.per_unit
        if key not in self._tables:
            cost, workload = way.cost_in(self.per_unit), way.instance.workload
            # Layers that are alike are then of one kind.
            bound = cost.time.with_equal_shares(workload) if cost.time else cost
            asked = bound, workload, self.states, self._allowed
            self._tables[key] = classed(*asked, self.search.deadline, self._charges)
        return self._tables[key]

    def _moment(self, way: WayOfTraining) -> Amount:
        """Return the least that nodes hold for a moment, in bytes of all accelerators together."""
        load, holds = way.load, way.holds.of("gathered", "logits")
        if isinstance(load, PartLoad):
            # Others' tensors may be elsewhere; but not the error of what a node itself writes.
            errors = (hold for hold in way.holds.of("errors") if hold.node == hold.layers[0])
            return replace(load, holds=[*holds, *errors]).of
        lower_bound, moment = self._tensors_at_once(way), replace(load, holds=holds)

        def amount(nodes: Indices, states: States) -> Integers:
            bytes_: Integers = lower_bound[nodes] + moment.of(nodes, states)
            return bytes_

        return amount

    def _tensors_at_once(self, way: WayOfTraining) -> Integers:
        """Return the least bytes of errors and recomputed tensors while each node runs.

        Nothing where there are too many states to ask.
        """
        workload, hierarchy = way.instance.workload, way.load.hierarchy
        found: Integers = np.zeros(len(workload.nodes), object)
        holds = way.holds.of("recomputed", "errors")
        if not holds or len(workload.nodes) * len(self.states) > _COUNTED:
            return found
        arrays = HoldArrays(holds, len(workload.choices), hierarchy)
        elements = by_state(arrays.in_states, np.arange(len(holds)), self.states)
        allowed = self._allowed[arrays.nodes]
        fewest = np.where(allowed, elements, elements.max()).min(axis=1) * arrays.bytes
        for hold, bytes_ in zip(holds, fewest.tolist(), strict=True):
            found[[*hold.layers]] += bytes_
        return found

    @cached_property
    def _allowed(self) -> NDArray[np.bool_]:
        """The states that nodes may have: ``(nodes, states)``."""
        if self._layouts is None:
            allowed: NDArray[np.bool_] = self.first.instance.constraints.allowed(self.states)
            return allowed
        place = {state: n for n, state in enumerate(self.states)}
        columns = [place[state] for state in zip(*self._layouts, strict=True)]
        only: NDArray[np.bool_] = np.arange(len(self.states)) == np.array(columns)[:, None]
        return only

    @cached_property
    def least_moment(self) -> int:
        """A lower bound on what a plan holds for a moment, in bytes of all accelerators."""
        least = [side.moments.min(axis=(0, 2))[side.kinds] for side in self.sides]
        return int(np.min(least, axis=0).max(initial=0))

    @cached_property
    def whole_capacity(self) -> int:
        """The bytes of all accelerators for tensors."""
        return self.first.capacity * self.search.instance.problem.accelerators

    @property
    def capacity(self) -> int:
        """The bytes of all accelerators for what a plan holds all the time, at most."""
        return self.whole_capacity - self.least_moment

    @cached_property
    def least_load(self) -> int:
        """A lower bound on what a plan holds all the time, in bytes of all accelerators."""
        choices = len(self.first.instance.workload.choices)
        splits = every_split(self.first.load.hierarchy.sizes, choices)
        # What shards and computes most again holds least.
        ways = [self._of(*words[-1]) for words in self._words]
        certain = [_certain(way.whole_load) for way in ways]
        loads = [load.at(np.array(parts)[:, None]) for load in certain for parts in splits]
        return sum(np.min(loads, axis=0).tolist())

    @cached_property
    def least_held(self) -> int:
        """A lower bound on what a plan of these layouts holds, in bytes of all accelerators.

        `least_load` of the states that constraints allow, with the least moment.
        """
        each = []
        for side in self.sides:
            held = side.loads.min(axis=0)
            allowed = np.where(side.table.allowed, held, held.max(initial=0))
            each.append(allowed.min(axis=1)[side.kinds])
        least: int = sum(np.min(each, axis=0).tolist())
        return least + self.least_moment

    @cached_property
    def block_of(self) -> NDArray[np.intp]:
        """The block of each node that may be computed again; -1 for the others."""
        workload = self.first.instance.workload
        found = np.full(len(workload.nodes), -1, np.intp)
        for number, block in enumerate(self.open.blocks):
            found[[workload.shared + n for n in block]] = number
        for node, writer in workload.tensor_writers.items():
            found[node] = found[writer]
        return found

    def table(self, price: Fraction, *, again: bool) -> ClassTable:
        """Return the table of plans with bytes at a price, a byte of a device.

        Parameters
        ----------
        again
            Whether blocks may be computed again.
        """
        own = self.charges(price)
        weights = self.first.instance.workload.is_weight_boundary
        tables = [side.at(own, weights) for side in (self.sides if again else self.sides[:1])]
        if len(tables) == 1:
            return tables[0]
        node = tables[0].node.max(axis=1)[tables[0].node_kinds]
        least = tables[0].partitions[-1].least.max(axis=(1, 2))
        most = sum(node.tolist()) + sum(least[tables[0].boundary_kinds].tolist())
        return coupled(tables, self.block_of, 1 + most)

    def charges(self, price: Fraction) -> Fraction:
        """Return the charges for a byte of all accelerators, given what one of one costs."""
        return price * self.per_unit / self.search.instance.problem.accelerators

    def chosen(self, assignment: Sequence[int], price: Fraction) -> Chosen:
        """Return what an assignment of `table` says, each node in its cheapest way."""
        return self.of_columns(self.picked(assignment, price))

    def picked(self, assignment: Sequence[int], price: Fraction) -> list[Picked]:
        """Return the columns of an assignment of `table`, each node in its cheapest way."""
        count, own = len(self.states), self.charges(price)
        ways = [side.priced(own) for side in self.sides]
        picked = []
        for node, column in enumerate(assignment):
            side, state = divmod(int(column), count)
            way = int(ways[side][:, self.sides[side].kinds[node], state].argmin())
            picked.append((side, way, state))
        return picked

    @cached_property
    def cuts(self) -> list[int]:
        """The places in the order of nodes where plans are joined: blocks' borders, if any."""
        workload, count = self.first.instance.workload, len(self._order)
        firsts = [block.start + workload.shared for block in segments(self.open.network)]
        places = [self._order.index(node) for node in firsts]
        return [0, *places, count] if len(places) > 1 else [*range(count + 1)]

    def joined(self, first: Chosen, then: Chosen, upto: int) -> Chosen:
        """Return what one says of so many nodes, in their order, and another of the rest."""
        picked = [*then.picked]
        for node in self._order[:upto]:
            picked[node] = first.picked[node]
        return self.of_columns(picked)

    def graph(
        self, table: ClassTable, price: Fraction, most: int, deadline: Deadline
    ) -> LeftColumns | None:
        """Return what nodes may be in a plan whose charges in a priced table are at most so many.

        None if there is no such plan.

        Raises
        ------
        RefusedError
            If the table is too large to be eliminated.
        NoAnswerError
            If the deadline passes.
        """
        priced = [side.priced(self.charges(price)) for side in self.sides]
        known: dict[Hashable, list[LeftColumn]] = {}
        of_nodes = []
        for node, (columns, bounds) in enumerate(columns_at_most(table, most, deadline)):
            kinds, least = [int(side.kinds[node]) for side in self.sides], bounds.tolist()
            key = *kinds, columns.tobytes(), *least
            if key not in known:
                each = zip(columns.tolist(), least, strict=True)
                known[key] = [
                    own for each_of in each for own in self._ways_in(kinds, priced, most, *each_of)
                ]
            of_nodes.append(known[key])
        if not all(of_nodes):
            return None
        numbers, ports = zip(
            *(np.unique([own.column for own in picks], return_inverse=True) for picks in of_nodes),
            strict=True,
        )
        return LeftColumns(
            self._order,
            [of_nodes[node] for node in self._order],
            [ports[node] for node in self._order],
            edges_between(table, numbers, self._order),
        )

    def _ways_in(
        self, kinds: Sequence[int], priced: Sequence[Integers], most: int, column: int, least: int
    ) -> Iterator[LeftColumn]:
        """Yield a node's ways in a column, of which plans with its cheapest are charged the least.

        Parameters
        ----------
        most
            The highest charges of a plan of interest.
        """
        number, state = divmod(column, len(self.states))
        side, kind = self.sides[number], kinds[number]
        amounts = side.times, side.loads, side.moments
        costs = priced[number][:, kind, state]
        bounds = least - int(costs.min()) + costs
        for way in np.flatnonzero(side.undominated[:, kind, state] & (bounds <= most)):
            charge, load, moment = (int(own[way, kind, state]) for own in amounts)
            picked = number, int(way), state
            yield LeftColumn(column, picked, charge, load, moment, int(bounds[way]))

    @cached_property
    def _order(self) -> list[int]:
        return order_of_nodes(self.first.instance.workload)

    def of_columns(self, picked: Sequence[Picked]) -> Chosen:
        """Return what the side, the way and the state of each node say."""
        workload, layers = self.first.instance.workload, self.open.network.layers
        rows = tuple(zip(*(self.states[state] for _, _, state in picked), strict=True))
        weights_of = {user: node for node, users in workload.weight_users.items() for user in users}
        again, shard, weighty = [], [], []
        in_block = (self.block_of[workload.shared :] >= 0).tolist()
        for node, (layer, inside) in enumerate(zip(layers, in_block, strict=True), workload.shared):
            word, _ = self._words_of(picked[node])
            runs_again = inside if word in OF_BLOCKS else layer.inner
            again.append(word if runs_again else "none")
            weights = weights_of.get(node, node)
            shard.append(self._words_of(picked[weights])[1])
            weighty.append(bool(workload.stored[weights]))
        some = not {*OF_BLOCKS}.isdisjoint(again)
        matters = [
            bool(layer.inner) or (some and inside)
            for layer, inside in zip(layers, in_block, strict=True)
        ]
        training = self.open.training(spread(again, matters), spread(shard, weighty))
        return Chosen(picked, rows, training)

    def _words_of(self, picked: Picked) -> tuple[str, str]:
        """Return what is computed again, and what is sharded."""
        side, way, _ = picked
        return self._words[side][way]


def _certain(load: DeviceLoad) -> DeviceLoad:
    """Return what nodes hold however other blocks than their own are computed again.

    What a block starts from belongs to the node that writes it, which may be in another block.
    """
    return replace(load, holds=[hold for hold in load.holds if hold.certain])
