"""The stages of a plan as plans of their parts of the array, and their costs, derived again.

The network of a stage is compared with the plan's, layer by layer. What crosses a border is the
output of the layer before it, in the layout that the plan states: a stage has it as a layer without
weights, at either end. How many micro-batches are in flight is counted turn by turn, from how many
passes a device has begun, and how many it has ended.

Source: docs/stages.md; D. Narayanan et al., SC 2021; P. Qi et al., ICLR 2024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from hypar_opt.errors import CheckFailedError
from hypar_opt.frozen import FrozenDict
from hypar_opt.plan.costs import StageCost
from hypar_opt.plan.problem import ArrayRecord, NetworkRecord, StageContext
from hypar_opt.plan.training import Training
from hypar_opt.proofs.check.folds import PREFIXES
from hypar_opt.proofs.check.nodes import nodes_of
from hypar_opt.proofs.check.rows import price_of
from hypar_opt.proofs.check.training import OF_BLOCKS, blocks_of, levels_of_word, stated_words
from hypar_opt.workload.operators.axes import WHOLE
from hypar_opt.workload.parallelism import SHARDED, choices_below_h1, part_word
from hypar_opt.workload.patterns import STORED
from hypar_opt.workload.shards import Shards
from hypar_opt.workload.stages import Message, stage_of

if TYPE_CHECKING:
    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.nodes import PlanGraph
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.base import Operator
    from hypar_opt.workload.patterns import Words


def in_flight(
    schedule: str, part: int, parts: int, micro_batches: int, sizes: Sequence[int]
) -> list[int]:
    """Return the micro-batches in flight of each chunk of a stage, at its peak.

    The peak is that of layers, summed over chunks.

    Parameters
    ----------
    part
        The number of the stage, from 0.
    sizes
        The layers of each of its chunks.
    """
    chunks, behind = len(sizes), parts - part - 1
    turns = micro_batches * chunks
    ahead = behind if chunks == 1 else 2 * behind + (chunks - 1) * parts
    if schedule == "gpipe":
        ahead = turns
    elif schedule == "zb-h1":  # held until weights' gradients are computed
        ahead += part
    counts = (
        [
            _passes(turn + 1, n, parts, chunks)
            - _passes(max(0, turn - ahead), chunks - 1 - n, parts, chunks)
            for n in range(chunks)
        ]
        for turn in range(turns)
    )
    return max(counts, key=lambda numbers: sum(map(int.__mul__, numbers, sizes)))


def _passes(turns: int, chunk: int, parts: int, chunks: int) -> int:
    """Return how many of a device's first passes are a chunk's, in groups of ``parts``."""
    rounds, place = divmod(turns, parts * chunks)
    return rounds * parts + min(max(place - chunk * parts, 0), parts)


class StageCharge(NamedTuple):
    """The exact seconds of a stage, and the number of charges in a second."""

    seconds: Fraction
    per_second: int


@dataclass(frozen=True, eq=False)
class PlanStage:
    """One stage of a plan, or of other cuts of its network.

    Parameters
    ----------
    whole
        The plan.
    part
        The stage's number, from 0.
    chunks
        The positions of the layers of each of its chunks.
    """

    whole: Plan
    part: int
    chunks: tuple[range, ...]

    @property
    def name(self) -> str:
        return f"stage {self.part + 1} of {self._parts}"

    @property
    def _parts(self) -> int:
        return self.whole.hierarchy.sizes[0]

    @cached_property
    def plan(self) -> Plan:
        """The stage as a plan of its part of the array, in the unit of the whole plan.

        Raises
        ------
        CheckFailedError
            If its layers, or its levels, are not the plan's.
        """
        whole, network = self.whole, self._network
        assert whole.array is not None
        self._check_layers()
        array = whole.array.description.part(self._parts)
        hierarchy = array.hierarchy()
        if hierarchy.sizes != whole.hierarchy.sizes[1:]:
            sizes = list(hierarchy.sizes)
            raise CheckFailedError(f"parts: should be {sizes} below H1, of {self.name}")
        fields: dict[str, Any] = {
            "network": NetworkRecord.of(network),
            "layers": tuple(layer.name for layer in network.layers),
            "levels": hierarchy.levels,
            "parts": hierarchy.unless_binary,
            "choices": choices_below_h1(whole.choices),
            "array": ArrayRecord.of(array),
            "placement": array.placement,
            "training": self._training,
            "layouts": self._layouts,
            "stage": StageContext(self._in_flight, FrozenDict(self._links)),
        }
        plan = whole.model_copy(update=fields)
        graph = nodes_of(plan)
        columns = [self._choices(plan, graph, n) for n in range(len(plan.layers))]
        constraints = plan.constraints.model_copy(update={"fix": self._pins(graph)})
        chosen = {"parallelism": tuple(zip(*columns, strict=True)), "constraints": constraints}
        return plan.model_copy(update=chosen)

    def charge(self, stated: float) -> StageCharge:
        """Return its time: in the plan's unit, or in the finer one in which it is stated.

        Parameters
        ----------
        stated
            In seconds.

        Raises
        ------
        CheckFailedError
            If it differs in every unit, or the stage violates the plan's constraints.
        """
        plan, units = self.plan, {f"{name}seconds": parts for name, parts in PREFIXES.items()}
        coarsest = units.get(plan.cost.unit, 1)
        finer = [unit for unit, parts in units.items() if parts > coarsest]
        charges = []
        for unit in (plan.cost.unit, *finer):
            cost = plan.cost.model_copy(update={"unit": unit})
            try:
                priced = price_of(plan.model_copy(update={"cost": cost}))
            except CheckFailedError as error:
                raise CheckFailedError(f"{self.name}: {error.message}") from None
            charges.append(StageCharge(priced / units[unit], units[unit]))
            if float(charges[-1].seconds) == stated:
                return charges[-1]
        raise CheckFailedError(
            f"cost, stages: {self.name} takes {float(charges[0].seconds)} seconds, derived from"
            f" its network, got {stated}"
        )

    @cached_property
    def _network(self) -> Network:
        return stage_of(self.whole.network.description, self.chunks)

    @cached_property
    def _messages(self) -> dict[str, int]:
        """The layer of the plan's network whose output each message is, by the message's name."""
        whole, network = self.whole.network.description, self._network
        position = {layer.name: n for n, layer in enumerate(whole.layers)}
        messages = {layer.name for layer in network.layers if isinstance(layer, Message)}
        writers: dict[str, int] = {}
        for layer, sources in zip(network.layers, network.sources, strict=True):
            names = [network.source_names[source] for source in sources]
            if layer.name in position:  # a received tensor has the writer that its readers read
                read = zip(names, whole.sources[position[layer.name]], strict=False)
                writers |= {name: n for name, n in read if name in messages}
            elif names[0] in position:
                writers[layer.name] = position[names[0]]
        count = len(whole.layers)
        received = [chunk.start - 1 for chunk in self.chunks if chunk.start]
        sent = [chunk.stop - 1 for chunk in self.chunks if chunk.stop < count]
        if sorted(writers.values()) != sorted(received + sent):
            raise CheckFailedError(f"{self.name} should have a message for each of its borders")
        return writers

    def _is_received(self, message: str) -> bool:
        return not any(self._messages[message] in chunk for chunk in self.chunks)

    def _check_layers(self) -> None:
        """Check that its layers are those of the plan, with the same inputs.

        Raises
        ------
        CheckFailedError
            Naming the first layer that differs.
        """
        whole, network = self.whole.network.description, self._network
        position = {layer.name: n for n, layer in enumerate(network.layers)}
        places = [n for chunk in self.chunks for n in chunk]
        names = [name for name in position if name not in self._messages]
        if sorted(names) != sorted(whole.layers[n].name for n in places):
            raise CheckFailedError(f"{self.name} should have the layers of its part")
        users = {layer.name: layer.shares_weights_with for layer in whole.layers}
        maps, maps_inside = [*whole.maps()], [*network.maps()]
        for n in places:
            layer, name = whole.layers[n], whole.layers[n].name
            inside = network.layers[position[name]]
            owner = layer.shares_weights_with
            # It has a copy of weights of another stage, which several layers may share.
            copies = [None, *(other for other in names if users.get(other) == owner is not None)]
            reads = [whole.source_names[source] for source in whole.sources[n]]
            if (
                described(inside) != described(layer)
                or inside.shares_weights_with not in ([owner] if owner in position else copies)
                or maps_inside[position[name]] != maps[n]
                or self._reads(position[name]) != reads
            ):
                raise CheckFailedError(f"{self.name}: layer {name!r} should be the plan's")
        for name, writer in self._messages.items():
            n, read = position[name], whole.layers[writer].name
            is_read = self._is_received(name) or self._reads(n) == [read]
            if maps_inside[n].pooled != maps[writer].pooled or not is_read:
                raise CheckFailedError(f"{self.name}: {name!r} should be the output of {read!r}")

    def _reads(self, layer: int) -> list[str]:
        """Return what one of its layers reads, by the names of the plan's network."""
        network, names = self._network, self.whole.layers
        read = (network.source_names[source] for source in network.sources[layer])
        return [names[self._messages[name]] if name in self._messages else name for name in read]

    @property
    def _links(self) -> dict[str, BisectionLink]:
        """The link of each message: from the stage before it, or to the next one."""
        assert self.whole.array is not None
        array, parts = self.whole.array.description, self._parts
        before, behind = (array.stage_link(n % parts, parts) for n in (self.part - 1, self.part))
        return {name: before if self._is_received(name) else behind for name in self._messages}

    @property
    def _in_flight(self) -> tuple[int, ...]:
        """The micro-batches in flight of its layers; messages are held where they are read."""
        training, names = self.whole.training, self.whole.layers
        count, sizes = training.micro_batches or 1, [len(chunk) for chunk in self.chunks]
        counts = in_flight(training.schedule, self.part, self._parts, count, sizes)
        chunks = zip(self.chunks, counts, strict=True)
        by_name = {names[n]: often for chunk, often in chunks for n in chunk}
        return tuple(by_name.get(layer.name, 1) for layer in self._network.layers)

    @property
    def _layouts(self) -> Mapping[str, tuple[str, ...]]:
        """The stored layouts below H1; a message has that of the tensor it carries."""
        stored, names = self.whole.layouts or {}, self.whole.layers
        writers = {layer.name: layer.name for layer in self._network.layers}
        writers |= {name: names[writer] for name, writer in self._messages.items()}
        return FrozenDict({name: stored[writer][1:] for name, writer in writers.items()})

    def _choices(self, plan: Plan, graph: PlanGraph, layer: int) -> tuple[str, ...]:
        """Return the words of a layer below H1; a message's follow from its stored layout."""
        name, words = plan.layers[layer], plan.words[layer]
        if name not in self._messages:
            column = self.whole.layers.index(name)
            return tuple(row[column] for row in self.whole.parallelism[1:])
        choices = graph.nodes[graph.shared + layer].choices
        word_of = {split.output: words[choice] or "" for choice, split in choices.items()}
        otherwise = word_of.get(WHOLE, words[0] or "")
        return tuple(word_of.get(layout, otherwise) for layout in self._layouts[name])

    @property
    def _training(self) -> Training:
        """The training settings of its layers, with words for levels below H1."""
        training, network = self.whole.training, self._network
        position = {layer.name: n for n, layer in enumerate(network.layers)}
        in_blocks = {n for block in blocks_of(network) for n in block}
        update: dict[str, Words | None] = {}
        for key in ("recompute", "shard", "gather"):
            stated = getattr(training, key)
            if stated is None:
                continue
            words = zip(self.whole.layers, stated_words(self.whole, stated), strict=True)
            stage_words = {name: word for name, word in words if name in position}
            if key == "shard":
                stage_words = {
                    n: _shards_below_h1(word, self.whole.levels) for n, word in stage_words.items()
                }
            update[key] = next(iter(stage_words.values()))
            if len({*stage_words.values()}) > 1:  # words for blocks apply to no other layers
                update[key] = FrozenDict(
                    (name, word)
                    for name, word in stage_words.items()
                    if word != "none" and (word not in OF_BLOCKS or position[name] in in_blocks)
                )
                update[key] = update[key] or "none"
        # The schedule is one for all stages.
        return training.model_copy(update={**update, "schedule": Training().schedule})

    def _pins(self, graph: PlanGraph) -> tuple[str, ...]:
        """Return the pins of its layers below H1, and of tensors that several of them read.

        Raises
        ------
        CheckFailedError
            Naming a pin to another part of H1.
        """
        names = [node.name for node in graph.nodes]
        pins = []
        for text in self.whole.constraints.fix:
            where, _, choice = text.rpartition("=")
            pattern, at, level = where.rpartition("@") if "@" in where else (where, "", "")
            number = int(level[1:]) - 1 if at else None
            of_tensors = pattern.startswith(STORED)
            pinned = names[: graph.shared] if of_tensors else names[graph.shared :]
            if not any(
                fnmatchcase(name, glob) for name in pinned for glob in (pattern, f"{pattern}.*")
            ):
                continue
            if number == 0:
                if choice != part_word(self.part):
                    raise CheckFailedError(f"constraints, fix: {text!r}, got {self.name}")
            else:
                pins.append(text if number is None else f"{pattern}@H{number}={choice}")
        return tuple(pins)


def described(layer: Operator) -> dict[str, Any]:
    """Return a layer's keys except the names of its inputs, and of the owner of its weights."""
    return layer.model_dump(exclude={"inputs", "tied"})


def _shards_below_h1(word: str, levels: int) -> str:
    """Return the word of all levels for sharding as a word of the levels below H1."""
    ranks = [SHARDED.index(level_word) for level_word in levels_of_word(word, levels)[1:]]
    begins = (
        next((n for n, other in enumerate(ranks) if other >= rank), None) for rank in (1, 2, 3)
    )
    return Shards(*begins).word(levels - 1)


def stages_of_plan(plan: Plan) -> list[PlanStage]:
    """Return the stages of a plan in stages."""
    stages = plan.stages
    assert stages is not None
    return [PlanStage(plan, part, stages.chunks_of(part)) for part in range(stages.parts)]


def price_of_stages(plan: Plan) -> Fraction:
    """Return the exact charge of a plan in stages, in seconds.

    Raises
    ------
    CheckFailedError
        As `charges_of_stages`; or if the stated waiting times of stages are wrong.
    """
    charges, stated = charges_of_stages(plan), plan.cost.stages or ()
    total, shared = charge_of_plan(plan, charges), shared_gradients(plan)
    for part, (charge, cost) in enumerate(zip(charges, stated, strict=True)):
        busy = charge.seconds + sum(sums.seconds for sums in shared if part in sums.parts)
        bubble = float(1 - busy / total)
        waits = StageCost(part=part_word(part), seconds=cost.seconds, bubble=bubble)
        if cost != waits:
            raise CheckFailedError(f"cost, stages[{part}]: should be {waits!r}, got {cost!r}")
    return total


def charge_of_plan(plan: Plan, charges: Sequence[StageCharge]) -> Fraction:
    """Return the seconds that a plan is charged, given those of its stages.

    The longest stage, and a share of all others: divided by micro-batches times chunks of a device.
    And the sums of gradients of weights that several stages hold.
    """
    assert plan.stages is not None
    seconds = [charge.seconds for charge in charges]
    rest = sum(seconds, Fraction()) - max(seconds)
    turns = (plan.training.micro_batches or 1) * plan.stages.chunks
    sums = sum((gradient.seconds for gradient in shared_gradients(plan)), Fraction())
    return max(seconds) + rest / turns + sums


class SharedGradients(NamedTuple):
    """The sum of gradients of weights that several stages hold, once a step.

    Parameters
    ----------
    parts
        The stages, from 0, in order.
    seconds
        The duration of the all-reduce around a ring of these.
    """

    parts: tuple[int, ...]
    seconds: Fraction


def shared_gradients(plan: Plan) -> list[SharedGradients]:
    """Return the sums of gradients between stages of a plan."""
    stages = plan.stages
    assert stages is not None
    part_of = stages.part_of_layers
    return [
        SharedGradients(parts, seconds_of_sum(plan, plan.layers[owner], parts))
        for owner, users in plan.network.description.weight_users.items()
        if len(parts := tuple(sorted({part_of[n] for n in users}))) > 1
    ]


def seconds_of_sum(plan: Plan, owner: str, ring: Sequence[int]) -> Fraction:
    """Return the seconds in which stages sum gradients of a layer's weights; 0 for one stage.

    There are twice as many rounds as other stages, in each of which a stage passes on its share:
    each accelerator to the one at its position in the next stage of the ring.

    Parameters
    ----------
    ring
        The numbers of the stages, in order.
    """
    if len(ring) == 1:
        return Fraction()
    stages = plan.stages
    assert stages is not None
    assert plan.array is not None
    array, parts = plan.array.description, stages.parts
    part = stages.part_of_layers[plan.layers.index(owner)]
    graph = nodes_of(PlanStage(plan, part, stages.chunks_of(part)).plan)
    weights = max(node.weights for node in graph.nodes[graph.shared :] if node.name == owner)
    share = Fraction(weights * _bytes_reduced(plan), len(ring))
    links = (
        array.stage_link(first, parts, (then - first) % parts)
        for first, then in zip(ring, (*ring[1:], ring[0]), strict=True)
    )
    slowest = max(share * link.seconds_per_byte + link.latency for link in links)
    return 2 * (len(ring) - 1) * slowest


def _bytes_reduced(plan: Plan) -> int:
    """Return the bytes of an element of a gradient as it is reduced."""
    return plan.training.reduce_bytes or plan.element_bytes


def charges_of_stages(plan: Plan) -> list[StageCharge]:
    """Return the charge of each stage of a plan.

    Raises
    ------
    CheckFailedError
        If the plan states another charge of a stage, or violates its constraints.
    """
    if plan.cost.kind != "time":
        raise CheckFailedError(f"cost, kind: should be 'time' in stages, got {plan.cost.kind!r}")
    stages, stated = stages_of_plan(plan), plan.cost.stages or ()
    if len(stated) != len(stages):
        raise CheckFailedError(f"cost, stages: should be {len(stages)}, got {len(stated)}")
    charges = [stage.charge(cost.seconds) for stage, cost in zip(stages, stated, strict=True)]
    if (
        min(charge.per_second for charge in charges)
        > PREFIXES[plan.cost.unit.removesuffix("seconds")]
    ):
        raise CheckFailedError(f"cost, unit: should be that of a stage, got {plan.cost.unit!r}")
    return charges
