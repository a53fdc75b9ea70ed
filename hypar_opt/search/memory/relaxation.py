"""The Lagrangian relaxation of a device's memory, for a number of micro-batches.

A byte that a device holds is charged at a price, the multiplier of the capacity. What a layer
shards, and whether attention's scores are recomputed, is charged by the layer alone: at a price a
layer takes its cheapest mode. Whether a block is recomputed as a whole, exchanges included, or all
of it but its products, is one choice of all its layers.

The least charges at a price, less the price of the capacity, are a dual bound on all plans that
fit. It is concave in the price, and what its layouts hold beyond the capacity is its slope: two
bounds are cutting planes, which say where a goal may be reached.

Source: docs/algorithms.md; J. E. Kelley, "The cutting-plane method for solving convex programs",
Journal of SIAM 8, 1960; M. L. Fisher, "The Lagrangian relaxation method for solving integer
programming problems", Management Science 27, 1981.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from hypar_opt.costs.alignments import states_in_classes
from hypar_opt.costs.device_load import DeviceLoad, PartLoad
from hypar_opt.costs.kinds import index_by_key
from hypar_opt.costs.node_modes import Amount, NodeModes, by_state, with_block_choice
from hypar_opt.costs.state_classes import ChargeCache, ClassTable
from hypar_opt.costs.state_table import StateTable
from hypar_opt.instance.least_loads import level_splits
from hypar_opt.search.free_modes import FreeModes, spread, updates_take_time
from hypar_opt.search.memory.modes import TrainingMode
from hypar_opt.search.result import SearchRequest
from hypar_opt.solvers import SOLVERS
from hypar_opt.solvers.elimination.classes import bound_by_classes
from hypar_opt.step.holds import HoldArrays
from hypar_opt.workload.operators.kernels import Fused
from hypar_opt.workload.parallelism import RECOMPUTED
from hypar_opt.workload.recomputation import OF_BLOCKS, segments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hypar_opt.costs.kinds import Kinds
    from hypar_opt.costs.shared_nodes import Rows
    from hypar_opt.instance.instance import Instance
    from hypar_opt.integers import Integers
    from hypar_opt.plan.training import Training
    from hypar_opt.search.memory.modes import CountedPlan
    from hypar_opt.step.states import Indices, States

_MOST_COUNTED_STATES = 2**17
"""The most states of all kinds of tensors of which the least are sought."""


Pick = tuple[int, int, int]
"""Of a node: the mode of its block, its mode within it, and its state."""


@dataclass(frozen=True)
class Selection:
    """States of all nodes, with the mode of each.

    Parameters
    ----------
    picks
        By node.
    rows : (levels, nodes)
    training
        Of all layers.
    """

    picks: Sequence[Pick]
    rows: tuple[tuple[int, ...], ...]
    training: Training


class LayerModes:
    """The layouts and modes of all layers, in a number of micro-batches.

    Its tables have all states of each node, or of fixed layouts those that occur, once for each
    mode of the node's block: not recomputed, or in one of the ways of `OF_BLOCKS`.

    Parameters
    ----------
    layouts : (levels, nodes)
        The only choices of all nodes; None for all that pins leave.
    part
        As in `TrainingMode`.
    ample
        Whether all fits, so that nothing is recomputed, nor weights gathered more often.
    memory_micro_batches
        The number of micro-batches of which nodes hold what they hold; by default the same.
    """

    def __init__(
        self,
        search: SearchRequest,
        micro_batches: int,
        layouts: Rows | None = None,
        part: int | None = None,
        *,
        ample: bool = False,
        memory_micro_batches: int | None = None,
    ) -> None:
        network, problem = search.instance.network, search.instance.problem
        stated = problem.training.model_copy(update={"micro_batches": micro_batches})
        self.search = search
        assert problem.array is not None
        saves = not Fused.on(problem.array.description.accelerator).attention
        # Unequal groups differ at H1 alone, which no mode by level knows.
        mode = TrainingMode(search)
        tiers = [0] if problem.groups else mode.tiers
        has_state = mode.weight_bytes.state > 0 or updates_take_time(problem)
        has_state = has_state or stated.reduced(problem.element_bytes) > 1
        self.free = FreeModes(network, stated, saves, problem.levels, tiers, has_state)
        if layouts is None:
            layouts = search.instance.constraints.only_plan
        self.micro_batches, self._layouts, self._ample = micro_batches, layouts, ample
        self._modes: dict[Training, TrainingMode] = {}
        self._tables: dict[tuple[Training, int], ClassTable] = {}
        self._at_once: dict[Hashable, Integers] = {}
        self._bounds: dict[Fraction, tuple[int, Sequence[int]]] = {}
        self._charges: dict[tuple[Training, int], tuple[Kinds, Integers]] = {}
        self._cache = ChargeCache(of_nodes={})  # shared by all modes
        of_blocks = () if ample else self.free.of_blocks
        of_layers = RECOMPUTED[:1] if ample else self.free.of_layers
        gathers = not ample or len(tiers) > 2  # of three tiers a ring in three parts may take less
        shards = [word for word in self.free.shards if gathers or "weights" not in word]
        recompute = of_layers, *((word,) for word in of_blocks)
        self._words = [[*product(words, shards)] for words in recompute]
        self.first = TrainingMode.of(search, self.free.uniform(*self._words[0][0]), part)
        """The mode that recomputes and shards least."""
        self._in_memory = self
        if memory_micro_batches and memory_micro_batches != micro_batches:
            self._in_memory = LayerModes(search, memory_micro_batches, layouts, part, ample=ample)

    @cached_property
    def modes(self) -> list[list[TrainingMode]]:
        """The modes of nodes by the mode of their blocks, which first are not recomputed."""
        return [[self._mode(*words) for words in of_block] for of_block in self._words]

    def _mode(self, recompute: str, shard: str) -> TrainingMode:
        training = self.free.uniform(recompute, shard)
        if training not in self._modes:
            self._modes[training] = TrainingMode.of(self.first.search, training, self.first.part)
        return self._modes[training]

    @cached_property
    def ample(self) -> LayerModes:
        """The modes if all fits: the first of these."""
        return self._variant(self._in_memory.micro_batches, ample=True)

    def with_memory_of(self, micro_batches: int) -> LayerModes:
        """Return the same modes, of nodes that hold what they do in so many micro-batches."""
        return self._variant(micro_batches, ample=self._ample)

    def _variant(self, held: int, *, ample: bool) -> LayerModes:
        arguments = self.search, self.micro_batches, self._layouts, self.first.part
        variant = LayerModes(*arguments, ample=ample, memory_micro_batches=held)
        variant._modes, variant._tables = self._modes, self._tables
        variant._charges, variant._cache = self._charges, self._cache
        return variant

    @cached_property
    def states(self) -> Sequence[tuple[int, ...]]:
        if self._layouts is not None:
            return sorted({*zip(*self._layouts, strict=True)})
        levels, workload = self.search.instance.problem.levels, self.first.instance.workload
        return states_in_classes(self.first.cost, workload, levels, self.search.deadline)

    @cached_property
    def per_unit(self) -> int:
        """Charges per second, joule or byte, the same of all modes."""
        return min(mode.per_unit for modes in self.modes for mode in modes)

    @cached_property
    def node_modes(self) -> Sequence[NodeModes]:
        """What nodes are charged and hold in `modes`."""
        cache = self.search.instance.node_modes
        counts = self.micro_batches, self._in_memory.micro_batches
        key = counts, self._layouts, self.first.part, self.first.communicator_reserve, self._ample
        if key not in cache:
            pairs = zip(self.modes, self._in_memory.modes, strict=True)
            cache[key] = [self._node_modes_of(*modes) for modes in pairs]
        return cache[key]

    @cached_property
    def with_peak(self) -> list[NodeModes]:
        """`node_modes` whose price is of the fullest moment, too.

        A maximum over nodes is no less than the mean of some: of those like the node that has most,
        in one of the modes of its block, where the fastest plan stays as it is.
        """
        _, states = self.ample.bound(Fraction())
        nodes = np.arange(len(states))
        bytes_ = [
            modes.transients[:, modes.kinds[nodes], states].min(axis=0) for modes in self.node_modes
        ]
        fullest = int(np.max(bytes_, axis=0).argmax())
        numbers = [int(modes.kinds[fullest]) for modes in self.node_modes]
        pairs = [*zip(self.node_modes, numbers, strict=True)]
        count = int(np.any([modes.kinds == kind for modes, kind in pairs], axis=0).sum())
        return [modes.with_peak(kind, self.transient_bound, count) for modes, kind in pairs]

    def priced_modes(self, price: Fraction) -> Sequence[NodeModes]:
        """Return what nodes are charged and hold where bytes have a price."""
        return self.with_peak if price and not self._ample else self.node_modes

    def bound(self, price: Fraction) -> tuple[int, Sequence[int]]:
        """Return the least charges of classes of states at a price, and states that attain them."""
        if price not in self._bounds:
            deadline = self.search.deadline
            self._bounds[price] = bound_by_classes(self.table(price), deadline)
        return self._bounds[price]

    def _node_modes_of(
        self, modes: Sequence[TrainingMode], held: Sequence[TrainingMode]
    ) -> NodeModes:
        loads = [_certain(mode.load) for mode in held]
        further_charges = [*map(self._charges_of, modes[1:])]
        arguments = further_charges, loads, [*map(self._transient, held)], self.states
        return NodeModes.of(self._table_of(modes[0]), *arguments)

    def _table_of(self, mode: TrainingMode) -> ClassTable:
        key = mode.instance.problem.training, self.per_unit
        if key not in self._tables:
            of_states = self._states_in(mode)
            self._tables[key] = of_states.by_classes(self.search.deadline, self._cache)
        return self._tables[key]

    def _charges_of(self, mode: TrainingMode) -> tuple[Kinds, Integers]:
        """Return what nodes are charged: boundaries are charged as in other modes of a block."""
        key = mode.instance.problem.training, self.per_unit
        if key not in self._charges:
            of_states = self._states_in(mode)
            self._charges[key] = of_states.of_nodes(self.search.deadline, self._cache)
        return self._charges[key]

    def _states_in(self, mode: TrainingMode) -> StateTable:
        cost, workload = mode.cost_in(self.per_unit), mode.instance.workload
        # Equal layers are then of one kind.
        bound = cost.time.with_equal_shares(workload) if cost.time else cost
        return StateTable(bound, workload, self.states, self._allowed)

    def _transient(self, mode: TrainingMode) -> Amount:
        """Return a lower bound on the transient bytes of nodes, of all accelerators together.

        With what is reserved for the communicators of each.
        """
        load, holds = mode.load, mode.holds.of("gathered", "logits")
        if isinstance(load, PartLoad):
            # Others' tensors may be elsewhere; but not the error of what a node itself writes.
            holds += [hold for hold in mode.holds.of("errors") if hold.node == hold.layers[0]]
            lower_bound: Integers = np.zeros(len(mode.instance.workload.nodes), object)
        else:
            recompute = mode.instance.problem.training.recompute
            if recompute not in self._at_once:  # whatever is sharded
                self._at_once[recompute] = self._tensors_at_once(mode)
            lower_bound = self._at_once[recompute]
        transient = replace(load, holds=holds)

        def amount(nodes: Indices, states: States) -> Integers:
            bytes_: Integers = lower_bound[nodes] + transient.of(nodes, states)
            return bytes_ + mode.further_reserve(nodes, states)

        return amount

    def _tensors_at_once(self, mode: TrainingMode) -> Integers:
        """Return a lower bound on the errors and recomputed tensors while a node runs, in bytes.

        Of all accelerators, ``(nodes,)``; 0 where there are too many states to count.
        """
        workload, hierarchy = mode.instance.workload, mode.load.hierarchy
        bound: Integers = np.zeros(len(workload.nodes), object)
        holds = mode.holds.of("recomputed", "errors")
        states_of_nodes = [*map(bytes, self._allowed)]
        kinds, first = index_by_key(
            (states_of_nodes[hold.node], hold._replace(node=0, layers=())) for hold in holds
        )
        if not holds or len(first) * len(self.states) > _MOST_COUNTED_STATES:
            return bound
        arrays = HoldArrays([holds[n] for n in first], len(workload.choices), hierarchy)
        elements = by_state(arrays.in_states, np.arange(len(first)), self.states)
        allowed = self._allowed[arrays.nodes]
        fewest = np.where(allowed, elements, elements.max()).min(axis=1) * arrays.bytes
        for hold, bytes_ in zip(holds, fewest[kinds].tolist(), strict=True):
            bound[[*hold.layers]] += bytes_
        return bound

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
    def transient_bound(self) -> int:
        """A lower bound on a plan's transient bytes, of all accelerators together."""
        bounds = [modes.transients.min(axis=(0, 2))[modes.kinds] for modes in self.node_modes]
        return int(np.min(bounds, axis=0).max(initial=0))

    @cached_property
    def total_capacity(self) -> int:
        """The bytes of all accelerators for tensors."""
        return self.first.capacity * self.search.instance.problem.accelerators

    @property
    def capacity(self) -> int:
        """The bytes of all accelerators for what a plan holds all the time, at most."""
        return self.total_capacity - self.transient_bound

    @cached_property
    def load_bound(self) -> int:
        """A lower bound on what a plan holds all the time, in bytes of all accelerators."""
        choices = len(self.first.instance.workload.choices)
        splits = level_splits(self.first.load.hierarchy.sizes, choices)
        # The mode that shards and recomputes most holds least.
        modes = [self._mode(*words[-1]) for words in self._words]
        certain = [_certain(mode.whole_load) for mode in modes]
        loads = [load.at(np.array(parts)[:, None]) for load in certain for parts in splits]
        return sum(np.min(loads, axis=0).tolist())

    @cached_property
    def memory_bound(self) -> int:
        """A lower bound on what a plan of these layouts holds, in bytes of all accelerators.

        `load_bound` of the states that constraints allow, with `transient_bound`.
        """
        bounds = []
        for modes in self.node_modes:
            loads = modes.loads.min(axis=0)
            allowed = np.where(modes.table.allowed, loads, loads.max(initial=0))
            bounds.append(allowed.min(axis=1)[modes.kinds])
        bound: int = sum(np.min(bounds, axis=0).tolist())
        return bound + self.transient_bound

    @cached_property
    def block_of(self) -> NDArray[np.intp]:
        """The block of each node that may be recomputed as a whole; -1 for the others."""
        workload = self.first.instance.workload
        blocks = np.full(len(workload.nodes), -1, np.intp)
        for number, block in enumerate(self.free.blocks):
            blocks[[workload.shared + n for n in block]] = number
        for node, writer in workload.tensor_writers.items():
            blocks[node] = blocks[writer]
        return blocks

    def table(self, price: Fraction, *, all_modes: bool = False) -> ClassTable:
        """Return the table of plans with bytes at a price, a byte of a device.

        Parameters
        ----------
        all_modes
            Whether blocks may be recomputed without a price, too, where no cheapest plan does.
        """
        charges = self.charges(price)
        weights = self.first.instance.workload.is_weight_boundary
        recomputes_blocks = self.free.blocks and (price or all_modes)
        node_modes = self.priced_modes(price)[: None if recomputes_blocks else 1]
        tables = [modes.at(charges, weights) for modes in node_modes]
        first = tables[0]
        if len(tables) == 1:
            return first
        of_nodes = first.node.max(axis=1)[first.node_kinds]
        of_boundaries = first.partitions[-1].lower_bounds.max(axis=(1, 2))[first.boundary_kinds]
        penalty = 1 + sum(of_nodes.tolist()) + sum(of_boundaries.tolist())
        return with_block_choice(tables, self.block_of, penalty)

    def charges(self, price: Fraction) -> Fraction:
        """Return the charges for a byte of all accelerators, given what one of one costs."""
        return price * self.per_unit / self.search.instance.problem.accelerators

    def picks(self, assignment: Sequence[int], price: Fraction) -> list[Pick]:
        """Return the columns of an assignment of `table`, each node in its cheapest mode."""
        charges = self.charges(price)
        priced = [modes.priced(charges) for modes in self.priced_modes(price)]
        picks = []
        for node, column in enumerate(assignment):
            of_block, state = divmod(int(column), len(self.states))
            kind = self.node_modes[of_block].kinds[node]
            picks.append((of_block, int(priced[of_block][:, kind, state].argmin()), state))
        return picks

    @cached_property
    def cuts(self) -> list[int]:
        """The places in the order of nodes where plans are joined: blocks' borders, if any."""
        workload, count = self.first.instance.workload, len(self.order)
        firsts = [block.start + workload.shared for block in segments(self.free.network)]
        places = [self.order.index(node) for node in firsts]
        return [0, *places, count] if len(places) > 1 else [*range(count + 1)]

    def joined(self, first: Selection, rest: Selection, count: int) -> Selection:
        """Return what one says of the first nodes, in their order, and another of the rest."""
        picks = [*rest.picks]
        for node in self.order[:count]:
            picks[node] = first.picks[node]
        return self.selection(picks)

    @cached_property
    def order(self) -> list[int]:
        """All nodes, shared weights before their first user and tensors behind their writer."""
        workload = self.first.instance.workload
        before = {min(users): node for node, users in workload.weight_users.items()}
        behind = {writer: node for node, writer in workload.tensor_writers.items()}
        order = []
        for node in range(workload.shared, len(workload.nodes)):
            neighbours = before.get(node), node, behind.get(node)
            order += [number for number in neighbours if number is not None]
        return order

    def selection(self, picks: Sequence[Pick]) -> Selection:
        """Return the rows and the training that picks of all nodes state."""
        workload, layers = self.first.instance.workload, self.free.network.layers
        rows = tuple(zip(*(self.states[state] for _, _, state in picks), strict=True))
        weights_of = {user: node for node, users in workload.weight_users.items() for user in users}
        recompute, shard, has_weights = [], [], []
        in_block = (self.block_of[workload.shared :] >= 0).tolist()
        for node, (layer, inside) in enumerate(zip(layers, in_block, strict=True), workload.shared):
            word, _ = self._words_of(picks[node])
            applies = inside if word in OF_BLOCKS else layer.inner
            recompute.append(word if applies else "none")
            weights = weights_of.get(node, node)
            shard.append(self._words_of(picks[weights])[1])
            has_weights.append(bool(workload.stored[weights]))
        recomputes_blocks = not {*OF_BLOCKS}.isdisjoint(recompute)
        matters = [
            bool(layer.inner) or (recomputes_blocks and inside)
            for layer, inside in zip(layers, in_block, strict=True)
        ]
        training = self.free.training(spread(recompute, matters), spread(shard, has_weights))
        return Selection(picks, rows, training)

    def _words_of(self, pick: Pick) -> tuple[str, str]:
        """Return what is recomputed, and what is sharded."""
        of_block, mode, _ = pick
        return self._words[of_block][mode]


def _certain(load: DeviceLoad) -> DeviceLoad:
    """Return what nodes hold whichever other blocks than their own are recomputed.

    What a block starts from belongs to the node that writes it, which may be in another block.
    """
    return replace(load, holds=[hold for hold in load.holds if hold.certain])


_OVERSHOOT = Fraction(5, 2)
"""How far beyond the lowest price that may reach a goal the next one is."""

_FARTHEST = 8
"""How many times the price of a bound that rises the next one may be."""

_MOST_PRICES = 8
"""The most prices that are tried."""


@dataclass(frozen=True)
class DualBound:
    """A bound on what plans that fit cost, with a byte of a device at a price.

    Parameters
    ----------
    excess
        The bytes of a device by which the layouts that attain it exceed the capacity: its slope.
    """

    price: Fraction
    bound: Fraction
    excess: Fraction

    def plane(self, price: Fraction) -> Fraction:
        """Return the cutting plane, above the bounds of all prices, at a price."""
        return self.bound + (price - self.price) * self.excess

    def price_for(self, goal: Fraction) -> Fraction:
        """Return the price at which the cutting plane reaches a goal."""
        return self.price + (goal - self.bound) / self.excess


def dual_bound(modes: LayerModes, price: Fraction) -> DualBound:
    """Return the bound of classes of states at a price."""
    bound, states = modes.bound(price)
    amount = (bound - modes.charges(price) * modes.capacity) / modes.per_unit
    load = 0
    for node, (of_block, mode, state) in enumerate(modes.picks(states, price)):
        node_modes = modes.priced_modes(price)[of_block]
        load += int(node_modes.priced_loads[mode, node_modes.kinds[node], state])
    accelerators = modes.search.instance.problem.accelerators
    return DualBound(price, amount, Fraction(load - modes.capacity, accelerators))


@dataclass(frozen=True)
class PlanAtPrice:
    """The plan of least cost with bytes at a price, and a bound on those that fit."""

    price: Fraction
    selection: Selection
    counted: CountedPlan
    bound: Fraction


@dataclass
class Bracket:
    """The last bounds that rise with the price, and that fall."""

    low: DualBound | None = None
    high: DualBound | None = None

    def add(self, bound: DualBound) -> None:
        if bound.excess > 0:
            self.low = bound
        else:
            self.high = bound

    def next_price(self, goal: Fraction, initial: Fraction) -> Fraction | None:
        """Return the price to try next; None if no bound may reach a goal.

        Parameters
        ----------
        initial
            The price from which memory may outweigh time.
        """
        low, high = self.low, self.high
        assert low is not None
        lowest = low.price_for(goal)
        if high is None and low.price:
            # The bound rises ever less.
            return lowest * _OVERSHOOT if lowest < _FARTHEST * low.price else None
        if high is None:
            return lowest * _OVERSHOOT if lowest < initial else initial
        if high.plane(self.crossing_price) < goal:
            return None
        return (lowest + high.price_for(goal)) / 2 if high.excess else self.crossing_price

    @property
    def crossing_price(self) -> Fraction:
        """The price at which both cutting planes meet, near which the best bound is."""
        low, high = self.low, self.high
        assert low is not None
        if high is None:
            return low.price
        return low.price + (high.plane(low.price) - low.bound) / (low.excess - high.excess)


def dual_ascent(modes: LayerModes, bracket: Bracket, goal: Fraction) -> Iterator[DualBound]:
    """Yield bounds at prices that may reach a goal, until one does or none can.

    Parameters
    ----------
    bracket
        With a bound that rises with the price; each that is yielded is added.
    """
    low = bracket.low
    assert low is not None
    load = Fraction(modes.capacity, modes.search.instance.problem.accelerators) + low.excess
    initial = low.bound / load / 2
    for _ in range(_MOST_PRICES):
        price = bracket.next_price(goal, initial)
        if price is None:
            return
        bound = dual_bound(modes, price)
        bracket.add(bound)
        yield bound
        if bound.bound >= goal:
            return


def best_dual_bound(modes: LayerModes, goal: Fraction) -> Fraction:
    """Return the best bound of a few prices, none and those that may reach a goal."""
    low = dual_bound(modes.ample, Fraction())
    if low.excess <= 0:
        return low.bound
    ascent = dual_ascent(modes, Bracket(low), goal)
    return max(dual.bound for dual in (low, *ascent))


def least_memory(instance: Instance) -> int:
    """Return a lower bound on what a device holds, in bytes, however a problem's plans train."""
    count = instance.problem.training.micro_batches or instance.problem.batch
    modes = LayerModes(SearchRequest(instance, SOLVERS["dp"]()), count)
    return modes.load_bound // instance.problem.accelerators
