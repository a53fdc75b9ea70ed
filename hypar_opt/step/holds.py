"""What accelerators hold in a training step: each tensor once, and when it is live.

Weights, gradients and the optimizer's state are held throughout, and saved activations from a
layer's forward to its backward pass. Other tensors are transient: they are live while some layers
run. A `Hold` says how the choices of a node divide a tensor's axes; what accelerators hold of it in
a state, or one accelerator in a plan, follows from that alone.

Source: docs/memory.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import zip_longest
from math import prod
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypar_opt.hardware.accelerator import SINGLE, state_bytes
from hypar_opt.integers import exact_dtype
from hypar_opt.sharding.layouts import PARTIAL, WHOLE, Layout
from hypar_opt.step.states import copies
from hypar_opt.step.uneven import most_loaded
from hypar_opt.workload.layer_tensors import Boundary, Extent
from hypar_opt.workload.layouts import FIRST_SPLIT
from hypar_opt.workload.operators.axes import BATCH, BY_EXPERT, EXPERTS, REPLICATING, SPATIAL
from hypar_opt.workload.parallelism import PART_WORDS
from hypar_opt.workload.recomputation import segments, with_repeats
from hypar_opt.workload.repeats import CONVERTED, EPILOGUE, PASS, Repeats
from hypar_opt.workload.shards import Shards

if TYPE_CHECKING:
    from hypar_opt.hierarchy import Hierarchy
    from hypar_opt.integers import Integers
    from hypar_opt.sharding.conversions import Layouts
    from hypar_opt.sharding.program import Program
    from hypar_opt.step.shares import Share
    from hypar_opt.step.states import Indices, States
    from hypar_opt.workload.layer_tensors import Shape
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.axes import Axes, Choice
    from hypar_opt.workload.operators.kernels import Fused
    from hypar_opt.workload.operators.maps import Load
    from hypar_opt.workload.operators.saved import Saved
    from hypar_opt.workload.tensors import Workload


class WeightBytes(NamedTuple):
    """Bytes of each weight, of its gradient and of the optimizer's state for it."""

    weight: int
    gradient: int
    state: int

    @classmethod
    def of(
        cls, element_bytes: int, optimizer: str | int, gradient_bytes: int | None = None
    ) -> WeightBytes:
        """Return the bytes for a precision: below 4 bytes an element the training is mixed.

        Gradients and state are then in single precision, and the state includes a copy of the
        weights: 2 + 4 + 12 bytes with Adam.

        Parameters
        ----------
        optimizer
            Its name, or the bytes of its state per weight.

        Source: Micikevicius et al., "Mixed precision training", ICLR 2018; Korthikanti et al.,
        MLSys 2023, figure 1, has 18 bytes, Rajbhandari et al., "ZeRO", SC20, 16.
        """
        exact = max(SINGLE, element_bytes)
        state = state_bytes(optimizer, exact, copies=element_bytes < SINGLE)
        return cls(element_bytes, gradient_bytes or exact, state)


_SLOTS = "k"

REPLICA, DATA_REPLICA, SCATTERED, ONE_PART = -1, -2, -3, -4
"""In place of the number of the axis that a choice splits: each part has a replica, which data
parallelism may shard, or not; partial sums are reduce-scattered into the layout that the reader
needs; or a single part has all of the tensor."""


class Hold(NamedTuple):
    """A tensor that accelerators hold.

    Parameters
    ----------
    node
        The node whose choices lay it out: its writer, the shared node of a tensor with several
        readers, or for the network's input its first reader.
    bytes
        Of an element.
    sizes : (axes,)
        Before any split.
    split : (choices,)
        The number of the axis that each choice splits; else `REPLICA` or another of those
        constants.
    tensor
        One of `KEPT` or `TRANSIENT`.
    layers
        The layers during which it is live; of what is held throughout, the layer to which it
        belongs: the first that saves the tensor, or that uses the weights.
    shards
        The level from which on data parallelism shards replicas, if it does; of what is gathered
        that of weights and that of gradients.
    gathered
        Whether it is held gathered, once for each of `shards` below which there are several parts.
    halo
        The width of its halo along each axis: then it is the halo that is held, not the tensor.
    certain
        Whether its presence depends on the recomputation of the node's block alone.
    load
        Counts of tokens along an axis, in proportion to which its parts have the tensor; empty
        where parts have equally many indices.
    by_load
        The number of that axis.
    """

    node: int
    bytes: int
    sizes: tuple[int, ...]
    split: tuple[int, ...]
    tensor: str = ""
    layers: Sequence[int] = ()
    shards: tuple[int, ...] = ()
    gathered: bool = False
    halo: tuple[int, ...] = ()
    certain: bool = True
    load: Load = ()
    by_load: int = -1


KEPT = ("weights", "gradients", "state", "saved")
"""What is held throughout, or from a forward to a backward pass."""

TRANSIENT = ("recomputed", "gathered", "logits", "errors", "scores", "borders")
"""Transient tensors: those that a backward pass recomputes; gathered weights and gradients that are
sharded; a loss's values in single precision; errors between layers, in inference feature maps;
errors of scores; and halos of images."""


class HoldRules:
    """What the nodes of a workload hold in a step.

    Parameters
    ----------
    workload
        The tensors of a micro-batch, and what is recomputed and sharded.
    fused
        The tensors that fused kernels do not write.
    """

    def __init__(
        self,
        network: Network,
        workload: Workload,
        element_bytes: int,
        fused: Fused,
        *,
        inference: bool,
    ) -> None:
        self.network, self.workload, self.fused = network, workload, fused
        self.element_bytes, self.inference = element_bytes, inference
        self._layers = range(workload.shared, len(workload.nodes))
        layouts = workload.layouts
        axes = np.array([axis_of_map(name) for name in layouts.names])
        self._stored, self._read = (
            [*map(tuple, axes[numbers].T.tolist())]
            for numbers in (layouts.output, layouts.inputs[0])
        )
        self._splits: dict[Hashable, tuple[int, ...]] = {}

    def of_weights(self, weight_bytes: WeightBytes) -> Iterator[Hold]:
        """Yield weights, gradients and state, and shards while passes have them gathered.

        Shared weights belong to the first layer that uses them.
        """
        workload, users = self.workload, self.workload.weight_users
        for node, layer in enumerate(workload.nodes):
            stored, read = workload.stored[node], workload.weights[node]
            if not stored + read:
                continue
            whole = self._with_axes(node, self.element_bytes, layer.operator.axes.weight)
            firsts = workload.repeats.sharded.get(node, Shards())
            for word, bytes_, first in zip(KEPT, weight_bytes, reversed(firsts), strict=False):
                if stored and bytes_:
                    hold = whole._replace(bytes=bytes_, shards=_levels(first))
                    yield hold._replace(tensor=word, layers=(min(users.get(node, (node,))),))
            shards = _levels(firsts.weights, None if self.inference else firsts.gradients)
            if shards and read and not layer.operator.reads_ids:
                hold = whole._replace(shards=shards, gathered=True)
                yield hold._replace(tensor="gathered", layers=(node,))

    def of_maps(self) -> Iterator[Hold]:
        """Yield all other tensors: those that do not depend on how weights are sharded."""
        if not self.inference:
            yield from self._saved()
        for node in self._layers:
            yield from self._values(node)
            yield from self._halo_holds(node)
        yield from self._errors()

    def _values(self, node: int) -> Iterator[Hold]:
        """Yield a loss's values in single precision, and the errors of scores that are written."""
        layer = self.workload.nodes[node]
        if self.inference:
            return
        if singles := self._saves[node].singles:
            # Single precision needs no copy.
            bytes_ = SINGLE * (singles - (self.element_bytes >= SINGLE))
            hold = self._map(node, layer.pooled)
            yield hold._replace(bytes=bytes_, tensor="logits", layers=(node,))
        if layer.operator.inner and not self.fused.attention:
            hold = self._with_axes(node, self.element_bytes, layer.operator.inner)
            yield hold._replace(tensor="scores", layers=(node,))

    def _halo_holds(self, node: int) -> Iterator[Hold]:
        """Yield the halos of images that a layer reads: saved, and as transient errors.

        A layer that reads its input in the backward pass, too, does not exchange its halo twice.
        """
        layer, again = self.workload.nodes[node], self.workload.repeats.recomputed
        borders = (layer.borders.get(axis) for axis in SPATIAL)
        rows, columns = (border.halo if border else 0 for border in borders)
        if not rows + columns:
            return
        halo = (0, 0, 0, 0, rows, columns, 0)
        hold = self._map(node, layer.input, reads=True)._replace(halo=halo)
        if node in self.workload.readers:  # the network's input has no error
            yield hold._replace(tensor="borders", layers=(node,))
        if self.inference or not self._saves[node].inputs:
            return
        if node in self.workload.repeats.by_op:
            block = self._blocks_by_op[node]
        elif (first := again.get(node)) is not None:
            block = tuple(n for n in self._layers if again.get(n) == first)
        else:
            yield hold._replace(tensor="saved", layers=(node,))
            return
        yield hold._replace(tensor="recomputed", layers=block)

    def _errors(self) -> Iterator[Hold]:
        """Yield the error of each tensor, which exists from its last reader's pass to its writer's.

        In inference, each feature map, from its writer's pass to its last reader's.
        """
        last: dict[int, int] = {}
        for node in self._layers:
            saves = self._saves[node]
            for writer, _ in self._inputs(node):
                if self.inference or not saves.unwritten:
                    # The error of logits is the loss's own.
                    last[writer] = node - bool(saves.singles or saves.unwritten)
        for writer, reader in last.items():
            if writer >= 0:
                layers = range(writer, reader + 1)
                yield self._output(writer)._replace(tensor="errors", layers=layers)

    def _saved(self) -> Iterator[Hold]:
        """Yield what is saved for a backward pass, and what that recomputes or converts again.

        A tensor is kept in its writer's layout, the network's input in that of its first reader,
        and a tensor with several readers in its stored layout, unless it is converted again. A
        recomputed block keeps its inputs, whether or not its layers read them in the backward pass;
        with recomputation by operator, it keeps what recomputed layers read, and of a product
        followed by an activation or a pool the output before these.
        """
        again, by_op = self.workload.repeats.recomputed, self.workload.repeats.by_op
        segment = {node: first for node, first in again.items() if first is not None}
        block_of = segment | {node: block[0] for node, block in self._blocks_by_op.items()}
        readers: dict[int, list[int]] = {}
        saved: dict[Hashable, Hold] = {}
        certain: set[Hashable] = set()
        dropped: dict[int, dict[Hashable, Hold]] = {}
        members: dict[int, list[int]] = {}
        for node in self._layers:
            inside, saves, word = block_of.get(node), self._saves[node], by_op.get(node)
            members.setdefault(block_of.get(node, node), []).append(node)
            whole = node in segment
            for writer, hold in self._inputs(node):
                within = inside is not None and block_of.get(writer) == inside
                runs_again = within and (whole or by_op.get(writer) in (PASS, EPILOGUE))
                starts = whole and not within
                stored = hold
                if again.get(hold.node) == CONVERTED:
                    if saves.inputs:
                        readers.setdefault(writer, []).append(node)
                    stored = self._map(writer, self.workload.nodes[writer].pooled)
                if not (starts or saves.inputs or word == PASS):
                    continue
                if runs_again:
                    assert inside is not None
                    dropped.setdefault(inside, {}).setdefault(writer, hold)
                else:
                    saved.setdefault(writer, stored._replace(tensor="saved", layers=(node,)))
                    if self._keeps_alone(writer, node):
                        certain.add(writer)
            runs_again = whole or word == PASS
            recomputing = node if not whole and node in again else inside if runs_again else None
            if word == EPILOGUE:
                product = self._map(node, self.workload.nodes[node].output)
                saved[node, "before activation"] = product._replace(tensor="saved", layers=(node,))
                certain.add((node, "before activation"))
                runs_again = True
            written = [
                (inside if runs_again else None, self._written(node, epilogue=word == EPILOGUE)),
                (recomputing, self._private(node)),
            ]
            for block, holds in written:
                for key, hold in holds:
                    if block is None:
                        saved.setdefault(key, hold._replace(tensor="saved", layers=(node,)))
                        certain.add(key)
                    else:
                        dropped.setdefault(block, {}).setdefault(key, hold)
        for key, hold in saved.items():
            yield hold._replace(certain=key in certain)
        for block, holds_of_block in dropped.items():
            for key, hold in holds_of_block.items():
                if key not in saved:
                    block_layers = tuple(members.get(block, (block,)))
                    yield hold._replace(tensor="recomputed", layers=block_layers)
        for writer, users in readers.items():
            # From the first backward pass that reads it to the last.
            layers = range(min(users), max(users) + 1)
            yield self._output(writer)._replace(tensor="recomputed", layers=layers)

    def _keeps_alone(self, writer: int, reader: int) -> bool:
        """Return whether a reader keeps a tensor however other blocks are recomputed.

        Other blocks are those without the node whose choices lay the tensor out: the writer, or for
        the network's input the first reader that keeps it.
        """
        if writer >= 0:
            same = self._blocks.get(writer) == self._blocks.get(reader)
            return same or self._saves[reader].inputs
        readers = self._readers_of_inputs[writer]
        return reader == readers[0] or len({self._blocks.get(node) for node in readers}) == 1

    @cached_property
    def _blocks(self) -> dict[int, int]:
        """The first layer of each node's block, in whichever way it is recomputed."""
        shared = self.workload.shared
        return {shared + n: block.start for block in segments(self.network) for n in block}

    @cached_property
    def _readers_of_inputs(self) -> dict[int, list[int]]:
        """The readers of each of the network's inputs, in order."""
        readers: dict[int, list[int]] = {}
        for node in self._layers:
            for writer, _ in self._inputs(node):
                if writer < 0:
                    readers.setdefault(writer, []).append(node)
        return readers

    def _written(self, node: int, *, epilogue: bool) -> Iterator[tuple[Hashable, Hold]]:
        """Yield a layer's output, before its activation or pool, if it saves that.

        Parameters
        ----------
        epilogue
            Only what activations leave.
        """
        layer, saves = self.workload.nodes[node], self._saves[node]
        if epilogue and not getattr(layer.operator, "activation", None):
            return
        if saves.output and layer.operator.fused_pool is None:
            yield node, self._output(node)
        elif saves.output:
            yield (node, "before pool"), self._map(node, layer.output)
        if saves.before_activation and not epilogue:
            yield (node, "before activation"), self._map(node, layer.output)

    def _private(self, node: int) -> Iterator[tuple[Hashable, Hold]]:
        """Yield what a layer saves that no other layer reads."""
        for number, tensor in enumerate(self._saves[node].intermediates):
            bytes_ = tensor.elements * self.element_bytes + tensor.bytes
            yield (node, number), self._with_axes(node, bytes_, tensor.axes)

    def _inputs(self, node: int) -> Iterator[tuple[int, Hold]]:
        """Yield the writer of each of a layer's inputs, negative for the network's, and its tensor.

        Ids, which have no error, are left out.
        """
        layer = self.workload.nodes[node]
        sources = self.network.sources[node - self.workload.shared]
        shapes = [layer.input, *layer.further_inputs]
        if sources and layer.further_inputs and len(sources) == 1:  # several operands side by side
            shapes = [(*layer.input[:-1], sum(shape[-1] for shape in shapes))]
        for number, source in enumerate(sources):
            if source >= 0:
                writer = source + self.workload.shared
                yield writer, self._output(writer)
            elif not layer.operator.reads_ids:
                yield source, self._map(node, shapes[number], reads=True)

    def _output(self, writer: int) -> Hold:
        """Return a layer's output as it is stored for its readers."""
        into = self.workload.boundary_into_shared.get(writer)
        node = writer if into is None else self.workload.boundaries[into].target
        return self._map(node, self.workload.nodes[writer].pooled)

    def _map(self, node: int, shape: Shape, *, reads: bool = False) -> Hold:
        """Return a feature map as a node stores its output, or as it reads its first input."""
        extent = Boundary(0, 0, shape).extent
        load = self.workload.nodes[node].load if extent.experts > 1 else ()
        if load:  # slots per expert may be fractions, their sum is whole
            extent = extent._replace(experts=int(shape[1] * shape[3]))
        sizes = (extent.elements // prod(extent[1:]), *extent[1:])
        split = (self._read if reads else self._stored)[node]
        by_load = Extent.axis(BY_EXPERT) if load else -1
        return Hold(node, self.element_bytes, sizes, split, load=load, by_load=by_load)

    def _with_axes(self, node: int, element_bytes: int, axes: Axes) -> Hold:
        """Return a tensor of a node's own, with some of its axes."""
        sizes, choices = self.workload.nodes[node].sizes, self.workload.choices_of_nodes[node]
        axes = tuple([axis for axis in axes if axis in sizes])
        key = id(choices), axes  # the same for many nodes
        if key not in self._splits:
            pairs = zip(choices, self.workload.choices, strict=True)
            self._splits[key] = tuple([_split(axes, choice, word) for choice, word in pairs])
        shape = tuple([sizes[axis] for axis in axes])
        hold = Hold(node, element_bytes * bool(axes), shape, self._splits[key])
        load = self.workload.nodes[node].load
        if load and {EXPERTS.axis, _SLOTS} <= {*axes}:
            slots = axes.index(_SLOTS)
            whole = {axes.index(EXPERTS.axis): int(sizes[EXPERTS.axis] * sizes[_SLOTS]), slots: 1}
            shape = tuple([whole.get(n, size) for n, size in enumerate(shape)])
            hold = hold._replace(sizes=shape, load=load, by_load=axes.index(EXPERTS.axis))
        return hold

    @cached_property
    def _blocks_by_op(self) -> dict[int, tuple[int, ...]]:
        """The nodes of each node's block, if that keeps the outputs of products."""
        return {node: block for block in self.workload.repeats.blocks for node in block}

    @cached_property
    def _saves(self) -> list[Saved]:
        """What each node saves: equal layers share their operator."""
        operators = {id(node.operator): node.operator for node in self.workload.nodes}
        saves = {key: operator.saves(fused=self.fused) for key, operator in operators.items()}
        return [saves[id(node.operator)] for node in self.workload.nodes]


def _levels(*firsts: int | None) -> tuple[int, ...]:
    return tuple(first for first in firsts if first is not None)


def _split(axes: Axes, choice: Choice | None, word: str) -> int:
    """Return the number of the axis that a choice of a node splits; else one of `REPLICA` etc."""
    axis = choice.axis if choice else BATCH
    if axis in axes:
        return axes.index(axis)
    if choice is None or word in PART_WORDS:
        return ONE_PART
    return DATA_REPLICA if axis in REPLICATING else REPLICA


def papers_holds(
    workload: Workload, element_bytes: int, optimizer_bytes: int, *, inference: bool
) -> Iterator[Hold]:
    """Yield what nodes hold by the paper's count.

    An accelerator holds its part of the weights, their gradients and the optimizer's state; and of
    the input and of the output before pooling both feature map and error. Inference has no
    gradients, errors or state.

    Parameters
    ----------
    optimizer_bytes
        Of the state for a weight.
    """
    layouts, map_bytes = workload.layouts, element_bytes * (1 if inference else 2)
    weights = map_bytes + (0 if inference else optimizer_bytes)
    maps = (workload.outputs, *workload.operand_sizes), (layouts.output, *layouts.inputs)
    tensors = [
        (weights, workload.stored, layouts.weight),
        *((map_bytes, *arrays) for arrays in zip(*maps, strict=True)),
    ]
    for own_bytes, sizes, numbers in tensors:
        split = np.where(numbers < FIRST_SPLIT, REPLICA, ONE_PART).T.tolist()
        for node, (elements, choices) in enumerate(zip(sizes, split, strict=True)):
            if elements:
                yield Hold(node, own_bytes, (elements,), tuple(choices))


@lru_cache(maxsize=1024)
def _axes_of_addends(stored: Layouts) -> tuple[int, ...]:
    """Return `axis_of_map` at each level of partial sums; accepted addends count as whole."""
    return tuple(REPLICA if layout == PARTIAL else axis_of_map(layout) for layout in stored)


def axis_of_map(layout: Layout) -> int:
    """Return the number of the axis of a feature map's `Extent` that a layout splits.

    Else `REPLICA`, `SCATTERED` or `ONE_PART`.
    """
    if layout in PART_WORDS:
        return ONE_PART
    special = {WHOLE: REPLICA, PARTIAL: SCATTERED}
    return special[layout] if layout in special else Extent.axis(layout)


@lru_cache(maxsize=64)
def step_holds(
    network: Network,
    workload: Workload,
    hierarchy: Hierarchy,
    element_bytes: int,
    weight_bytes: WeightBytes,
    fused: Fused,
    in_flight: Sequence[int] = (),
) -> HoldArrays:
    """Return what all nodes hold in a step; parameters as for `HoldRules`.

    Parameters
    ----------
    weight_bytes
        The bytes of gradients and state are 0 in inference.
    in_flight : (layers,)
        The number of micro-batches for which each layer holds what it saves; empty for 1.
    """
    repeats, once = workload.repeats, workload.single_pass or workload
    # Weights and maps are cached separately: training modes often differ in one of them.
    again = with_repeats(
        once, Repeats(recomputed=repeats.recomputed, by_op=repeats.by_op, blocks=repeats.blocks)
    )
    sharded = with_repeats(once, Repeats(sharded=repeats.sharded))
    arguments = element_bytes, fused, weight_bytes
    weights = _holds(network, sharded, *arguments, of_weights=True)
    maps = _holds(network, again, *arguments, of_weights=False)
    if in_flight:
        maps = tuple(
            hold._replace(bytes=hold.bytes * in_flight[hold.layers[0] - workload.shared])
            if hold.tensor == KEPT[-1]
            else hold
            for hold in maps
        )
    return HoldArrays((*weights, *maps), len(workload.choices), hierarchy)


@lru_cache(maxsize=64)
def _holds(
    network: Network,
    workload: Workload,
    element_bytes: int,
    fused: Fused,
    weight_bytes: WeightBytes,
    *,
    of_weights: bool,
) -> tuple[Hold, ...]:
    inference = not weight_bytes.gradient
    rules = HoldRules(network, workload, element_bytes, fused, inference=inference)
    return tuple(rules.of_weights(weight_bytes) if of_weights else rules.of_maps())


class HoldArrays:
    """Tensors as arrays, from which the bytes held in states, or in a plan, follow.

    Attributes
    ----------
    holds
        In which a node may occur several times.
    nodes, bytes, elements : (holds,)
        The node whose choices lay each out; the bytes of an element; the elements before any split.
    replicated, lacks : (choices, holds)
        Which choices leave a copy in each part: without sharding; and with it, then by level.
    """

    def __init__(self, holds: Sequence[Hold], choices: int, hierarchy: Hierarchy) -> None:
        self.holds, self._hierarchy = holds, hierarchy
        elements = [prod(hold.sizes) for hold in holds]
        bytes_ = [hold.bytes for hold in holds]
        # Halos of rows and columns have at most three times the elements of the tensor.
        self._max_bytes = 4 * hierarchy.accelerators * sum(map(mul, bytes_, elements))
        dtype = exact_dtype(self._max_bytes)
        self.nodes = np.array([hold.node for hold in holds], np.intp)
        self.bytes: Integers = np.array(bytes_, dtype)
        self.elements: Integers = np.array(elements, dtype)
        self._split = np.array([hold.split for hold in holds], np.intp).reshape(-1, choices).T
        self._gathered = np.array([hold.gathered for hold in holds], bool)
        self.lacks = self.replicated = np.isin(self._split, (REPLICA, DATA_REPLICA))
        # Where replicas are sharded: (levels, choices, holds) for each of `Hold.shards`.
        levels, begins = np.arange(hierarchy.levels)[:, None, None], (hold.shards for hold in holds)
        self._sharded = [
            (self._split == DATA_REPLICA) & (levels >= np.array(firsts))
            for firsts in zip_longest(*begins, fillvalue=hierarchy.levels)
        ]
        if self._sharded:
            self.lacks = self.replicated & (self._gathered | ~self._sharded[0])

    def of(self, *tensors: str) -> list[Hold]:
        """Return the holds of some of `KEPT` and `TRANSIENT`, without halos."""
        return [hold for hold in self.holds if hold.tensor in tensors and not hold.halo]

    def in_states(self, nodes: Indices, states: States) -> Integers:
        """Return the elements in all accelerators together, with axes divided exactly.

        Parameters
        ----------
        nodes
            The numbers of holds, one of each node.
        """
        parts = nodes, states, self._hierarchy
        elements: Integers = self.elements[nodes] * copies(self.lacks, *parts)
        if self._gathered.any():
            shards = (copies(sharded, *parts) for sharded in self._sharded)
            times = sum((count > 1).astype(np.int64) for count in shards)
            elements = elements * np.where(self._gathered[nodes], times, 1)
        return elements

    def largest(
        self, programs: Sequence[Program], share: Share | None = None, *, exact: bool = False
    ) -> Integers:
        """Return the bytes of each tensor on the accelerator that has most of it, in each plan.

        Parameters
        ----------
        programs
            The layouts of plans of one workload.
        share
            The share of a part of H1, where parts are unequal: its accelerators count.
        exact
            Whether axes are divided exactly, so that only the number of elements is rounded up.

        Returns
        -------
        (programs, holds)
        """
        if not (self.holds and programs):
            return np.zeros((len(programs), len(self.holds)), np.int64)
        rows = np.stack([program.columns[:, self.nodes] for program in programs], axis=1)
        columns = np.arange(len(self.nodes))
        split = self._split[rows, columns]  # (levels, programs, holds)
        plan, column = (split == SCATTERED).any(axis=0).nonzero()
        if len(plan):
            nodes = self.nodes[column].tolist()
            stored = [
                programs[n].stored[node] for n, node in zip(plan.tolist(), nodes, strict=True)
            ]
            splits, axes = split[:, plan, column], np.array([*map(_axes_of_addends, stored)]).T
            split[:, plan, column] = np.where(splits == SCATTERED, axes, splits)
        dtype = exact_dtype(self._max_bytes * (share.total if share else 1))
        levels = np.array(self._hierarchy.sizes, dtype)[:, None, None]
        sizes, halos = (axis[:, None] for axis in self._axes)
        sizes = sizes.astype(dtype)
        parts = np.ones((len(sizes), *split.shape[1:]), dtype)
        for axes, count in zip(split, self._hierarchy.sizes, strict=False):
            plan, column = (axes >= 0).nonzero()
            parts[axes[plan, column], plan, column] *= count
        loaded = self._parts_by_load(parts)
        if share and len(rows):
            at_h1 = split[0] == np.arange(len(sizes))[:, None, None]
            below = parts // len(share.parts)
            indices = sizes * share.parts[share.part] if exact else share.indices(sizes)
            sizes = np.where(at_h1, indices, sizes)
            parts = np.where(at_h1, below * share.total if exact else below, parts)
        divided = _ceil_div(sizes, parts)
        elements = divided.prod(axis=0)
        if exact:
            elements = _ceil_div(sizes.prod(axis=0), parts.prod(axis=0))
        for column, plan, over, under in loaded:
            elements[plan, column] = -(-int(elements[plan, column]) * over // under)
        if halos.any():
            beside = (divided + halos * (parts > 1)).prod(axis=0) - divided.prod(axis=0)
            elements = np.where(halos.any(axis=0), beside, elements)
        if share and len(rows):
            words = programs[0].workload.choices
            has = [word not in PART_WORDS or PART_WORDS[word] == share.part for word in words]
            elements = np.where(np.array(has)[rows[0]], elements, 0)
        if self._sharded:
            where = np.arange(len(rows))[:, None, None], rows, columns
            shards = [np.where(sharded[where], levels, 1).prod(axis=0) for sharded in self._sharded]
            times = sum((count > 1).astype(dtype) for count in shards)
            elements = np.where(self._gathered, elements * times, _ceil_div(elements, shards[0]))
        amounts: Integers = self.bytes * elements
        return amounts

    def _parts_by_load(self, parts: Integers) -> list[tuple[int, int, int, int]]:
        """Return the largest part's share of each tensor with a load, in each plan.

        In ``parts``, the axis with the load is set to one part.

        Parameters
        ----------
        parts : (axes, programs, holds)

        Returns
        -------
        list of (hold, program, share, of)
        """
        shares = []
        for column, hold in enumerate(self.holds):
            if hold.load:
                for plan, count in enumerate(parts[hold.by_load, :, column].tolist()):
                    share = most_loaded(hold.load, count), sum(hold.load)
                    shares.append((column, plan, *share))
                parts[hold.by_load, :, column] = 1
        return shares

    @cached_property
    def _axes(self) -> tuple[Integers, Integers]:
        """The sizes of axes and of halos: two of ``(axes, holds)``."""
        sizes = zip_longest(*(hold.sizes for hold in self.holds), fillvalue=1)
        halos = (hold.halo or (0,) * len(hold.sizes) for hold in self.holds)
        dtype, rows = self.elements.dtype, zip_longest(*halos, fillvalue=0)
        return np.array([*sizes], dtype), np.array([*rows], dtype)


def _ceil_div(size: Integers, parts: Integers) -> Integers:
    return -(-size // parts)
