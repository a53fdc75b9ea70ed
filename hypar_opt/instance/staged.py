"""A plan in pipeline stages as the plans of its stages, and its cost by their costs.

A stage is a problem like any other, on a part of the array, with a charge S for all its
micro-batches, its reductions, its update and its messages. The longest stage sets the pace of
micro-batches, and filling and draining the pipeline takes one micro-batch of every other stage: a
plan is charged ``max S + (sum S - max S) / (m v)``, with m micro-batches and v chunks per device,
and the time in which stages sum gradients of weights that several hold.

Source: D. Narayanan et al., SC 2021, section 2.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import floor, prod
from typing import TYPE_CHECKING, Self

import numpy as np

from hypar_opt.costs.stage_messages import TiedReduction, seconds_of_tied, tied_reductions
from hypar_opt.errors import HyparError
from hypar_opt.frozen import FrozenDict
from hypar_opt.instance.instance import Instance
from hypar_opt.instance.pricing import (
    check_choices,
    layouts_of,
    nodes_of,
    price,
    price_levels,
    total_cost,
)
from hypar_opt.instance.stage import BY_LAYER, check_pins, stage_instance
from hypar_opt.plan.configuration import (
    check,
    rows_of,
    stages_of_configuration,
    training_of,
)
from hypar_opt.plan.costs import Baselines, Cost, Ratios, StageCost, json_number
from hypar_opt.plan.plan import words_of
from hypar_opt.plan.stages import check_schedule, stages_of
from hypar_opt.plan.stated_degrees import pinned
from hypar_opt.plan.stored_layouts import tensor_columns
from hypar_opt.plan.training import Training
from hypar_opt.sharding.layouts import WHOLE
from hypar_opt.simulator.pipeline_order import in_flight_of_stages
from hypar_opt.step.states import states_from_rows
from hypar_opt.workload.parallelism import PAPERS_CHOICES, choices_below_h1, part_word
from hypar_opt.workload.patterns import compact, words_by_layer
from hypar_opt.workload.recomputation import in_blocks_only, segments
from hypar_opt.workload.shards import renumbered, renumbered_words
from hypar_opt.workload.stages import SENT, Message, message_writers

if TYPE_CHECKING:
    from hypar_opt.costs.shared_nodes import Rows, Tensors
    from hypar_opt.costs.time import TimeCost
    from hypar_opt.plan.configuration import Configuration
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.problem import Problem
    from hypar_opt.plan.stages import Stages
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.tensors import Workload

Words = Sequence[Sequence[str]]
Layouts = Mapping[str, Sequence[str]]


def in_stages_of(problem: Problem, parts: int, micro_batches: int, schedule: str) -> Problem:
    """Return a problem on an array with so many parts of it as stages.

    Raises
    ------
    HyparError
        If the array has no such parts.
    """
    assert problem.array is not None
    array = problem.array.description
    array.part(parts)
    merged = array.hierarchy().merged(parts)
    assert merged is not None
    trained = {"micro_batches": micro_batches, "schedule": schedule}
    update = {
        "levels": merged.levels,
        "parts": merged.unless_binary,
        "placement": array.placement,
        "choices": (*choices_below_h1(problem.choices), *map(part_word, range(parts))),
        "training": problem.training.model_copy(update=trained),
    }
    return problem.model_copy(update=update)


def without_stages(problem: Problem, micro_batches: int | None = None) -> Problem:
    """Return the problem of the same array without stages."""
    assert problem.array is not None
    array = problem.array.description
    update = {
        "placement": array.placement,
        "levels": array.levels,
        "parts": array.hierarchy().unless_binary,
        "choices": choices_below_h1(problem.choices),
        "training": Training(micro_batches=micro_batches),
    }
    return problem.model_copy(update=update)


def before_stages(problem: Problem) -> Problem:
    """Return the problem whose `in_stages_of` is a problem in stages: its inverse for training.

    Levels of what is sharded are numbered as the array has them.
    """
    assert problem.array is not None
    array, training = problem.array.description, problem.training
    above = array.levels - (problem.levels - 1)
    shard = None if training.shard is None else renumbered_words(training.shard, above - 1)
    default = Training().schedule
    trained = training.model_copy(update={"shard": shard, "schedule": default})
    return without_stages(problem).model_copy(update={"training": trained})


def reduced_bytes(problem: Problem) -> int:
    """Return the bytes of an element in which gradients are reduced."""
    return problem.element_bytes * problem.training.reduced(problem.element_bytes)


def charge_of(stages: Sequence[Fraction], turns: int) -> Fraction:
    """Return the charge of a plan, given those of its stages, which share no weights.

    Parameters
    ----------
    turns
        Micro-batches times chunks of a device.
    """
    longest = max(stages)
    return longest + (sum(stages, Fraction()) - longest) / turns


@dataclass(frozen=True, eq=False)
class StagePlan:
    """The plan of one stage.

    Parameters
    ----------
    rows : (levels, layers)
        The choices of its layers and messages, below H1.
    tensors
        The layouts of tensors that several layers read.
    """

    instance: Instance
    rows: Rows
    tensors: Tensors

    @cached_property
    def cost(self) -> Cost:
        """Its cost, as of any plan."""
        return price(self.instance, self.rows, self.tensors)

    @property
    def nodes(self) -> Rows:
        """The choices of all nodes."""
        instance, plan = self.instance, (self.rows, self.tensors)
        return nodes_of(instance.workload, instance.cost, *plan, rule=instance.rule)

    @cached_property
    def seconds(self) -> Fraction:
        """Its charge S, for which, unlike its cost, no baselines are priced."""
        instance = self.instance
        check_choices(instance.workload, self.rows)
        return total_cost(instance, self.rows, self.tensors) / instance.per_second

    @property
    def messages_stored(self) -> list[tuple[str, ...]]:
        """The layout of each message, by level below H1."""
        instance = self.instance
        words = words_of(self.rows, instance.network.words(instance.problem.choices))
        columns = zip(instance.network.layers, zip(*words, strict=True), strict=True)
        return [column for layer, column in columns if isinstance(layer, Message)]

    @cached_property
    def messages(self) -> Fraction:
        """The seconds of `seconds` in which its messages are sent."""
        time: TimeCost = self.instance.cost.time
        if time.stage_messages is None:
            return Fraction()
        count = len(self.instance.workload.nodes)
        charges = time.stage_messages.charges(
            np.arange(count), states_from_rows(self.nodes, count), time.per_unit
        )
        return Fraction(int(charges.sum()), time.per_unit)


@dataclass(frozen=True, eq=False)
class StagedPlan:
    """A plan of several stages, in the words of a plan file.

    Parameters
    ----------
    problem
        On an array of stages, with the time as objective.
    parallelism : (levels, layers)
        Each layer's part at H1, and its choices below.
    layouts
        The layouts in which outputs are stored, and sent between stages; H1's part first.

    Raises
    ------
    HyparError
        If the network has no such stages, the schedule does not fit the micro-batches, or the cost
        is not time on an array.
    """

    network: Network
    problem: Problem
    parallelism: Words
    layouts: Layouts

    def __post_init__(self) -> None:
        if self.problem.cost != "time" or self.problem.array is None:
            raise HyparError("a plan in stages is priced by the time on its array alone")

    @classmethod
    def of(
        cls, network: Network, problem: Problem, stages: Stages, plans: Sequence[StagePlan]
    ) -> Self:
        """Return the plan that consists of the plans of all stages.

        Tensors are sent in their writers' layouts.

        Parameters
        ----------
        problem
            Its open training settings are taken from the stages.
        """
        names = [layer.name for layer in network.layers]
        parallelism: dict[str, Sequence[str]] = {}
        trained: dict[str, dict[str, str | None]] = {key: {} for key in BY_LAYER}
        in_blocks: set[str] = set()
        for part, plan in enumerate(plans):
            side, instance = part_word(part), plan.instance
            inside = [layer.name for layer in instance.network.layers]
            choices = instance.network.words(instance.problem.choices)
            columns = zip(*words_of(plan.rows, choices), strict=True)
            parallelism |= {
                name: (side, *column) for name, column in zip(inside, columns, strict=True)
            }
            for key, by_layer in trained.items():
                words = words_by_layer(getattr(instance.problem.training, key), inside, key)
                by_layer |= zip(inside, words, strict=True)
            in_blocks |= {inside[n] for block in segments(instance.network) for n in block}
        training = {}
        for key, by_layer in trained.items():
            if any(by_layer[name] for name in names):
                stated = {name: renumbered(by_layer[name] or BY_LAYER[key], 1) for name in names}
                if len({*stated.values()}) > 1:
                    stated = in_blocks_only(stated, in_blocks)
                training[key] = compact([*stated.values()], names)
        problem = problem.model_copy(
            update={"training": problem.training.model_copy(update=training)}
        )
        rows = tuple(zip(*(parallelism[name] for name in names), strict=True))
        return cls(network, problem, rows, _stored(network, stages, plans))

    @classmethod
    def of_plan(cls, plan: Plan) -> Self:
        """Return the stages of a plan."""
        assert plan.layouts is not None, "a plan of version 1 has no stages"
        return cls(plan.network.description, plan.problem, plan.parallelism, plan.layouts)

    @classmethod
    def of_configuration(
        cls, network: Network, problem: Problem, configuration: Configuration
    ) -> Self:
        """Return the plan of a configuration with stages.

        Parameters
        ----------
        problem
            Its batch, array, and other stated training settings, such as the schedule, are used.

        Raises
        ------
        HyparError
            If the network has no such configuration on the array, naming the degree.
        """
        parts, count = configuration.pp, configuration.micro_batches
        problem = in_stages_of(problem, parts, count, problem.training.schedule)
        check(configuration, network, problem)
        stages = stages_of_configuration(configuration, network)
        check_schedule(problem.training.schedule, parts, count, stages.chunks)
        stated = network, problem.hierarchy, problem.training
        training = training_of(configuration, *stated)
        problem = problem.model_copy(update={"training": training})
        problem = pinned(network, problem, configuration)
        plans = []
        for part, in_flight in enumerate(in_flight_of_stages(stages, training.schedule, count)):
            chunks = stages.chunks_of(part)
            instance = stage_instance(network, problem, part, parts, chunks, in_flight)
            workload, hierarchy = instance.executed_workload, instance.problem.hierarchy
            nodes = rows_of(configuration.inside, instance.network, workload, hierarchy)
            tensors = [{node: row[node] for node in workload.tensor_writers} for row in nodes]
            rows = tuple(row[workload.shared :] for row in nodes)
            plans.append(StagePlan(instance, rows, tensors))
        return cls.of(network, problem, stages, plans)

    @property
    def stored(self) -> Layouts:
        """How each layer's output is stored, as determined by the choices of all layers."""
        return _stored(self.network, self.stages, self.plans)

    @cached_property
    def stages(self) -> Stages:
        """The layers of each stage."""
        stages = stages_of(self.network, self.parallelism[0], self.problem.hierarchy.sizes[0])
        assert stages is not None
        return stages

    @property
    def turns(self) -> int:
        """Micro-batches times chunks of a device."""
        return (self.problem.training.micro_batches or 1) * self.stages.chunks

    @cached_property
    def plans(self) -> tuple[StagePlan, ...]:
        """The plan of each stage, that of H1's first part first."""
        stages, training = self.stages, self.problem.training
        count = training.micro_batches or 1
        in_flight = in_flight_of_stages(stages, training.schedule, count)
        return tuple(self._stage_plan(part, counts) for part, counts in enumerate(in_flight))

    def _stage_plan(self, part: int, in_flight: tuple[int, ...]) -> StagePlan:
        chunks, parts = self.stages.chunks_of(part), self.stages.parts
        instance = stage_instance(self.network, self.problem, part, parts, chunks, in_flight)
        names = [layer.name for layer in self.network.layers]
        writers = message_writers(self.network, chunks)
        stored = {name: layouts[1:] for name, layouts in self.layouts.items()}
        stored |= {message: stored[names[writer]] for message, writer in writers.items()}
        workload, levels = instance.executed_workload, instance.problem.levels
        position = {name: n for n, name in enumerate(names)}
        columns = []
        for node, layer in enumerate(instance.network.layers, workload.shared):
            if layer.name in writers:
                by_layout = _columns_by_layout(workload, node)
                whole = by_layout.get(WHOLE, 0)
                columns.append([by_layout.get(layout, whole) for layout in stored[layer.name]])
            else:
                words, n = workload.words[node], position[layer.name]
                columns.append([words.index(row[n]) for row in self.parallelism[1:]])
        rows = tuple(zip(*columns, strict=True))
        return StagePlan(instance, rows, tensor_columns(workload, stored, levels))

    def check(self) -> None:
        """Check that all stages keep to the problem's constraints.

        Raises
        ------
        HyparError
            Naming the constraint.
        """
        whole = Instance.to_search(self.network, without_stages(self.problem))
        check_pins(whole, self.problem.levels)
        for plan in self.plans:
            plan.instance.constraints.check(plan.rows, plan.nodes)

    @cached_property
    def seconds(self) -> Fraction:
        """The charge of the plan."""
        return charge_of([plan.seconds for plan in self.plans], self.turns) + self._tied_seconds

    def _busy(self, part: int) -> Fraction:
        """Return the seconds in which a stage waits for no other."""
        return self.plans[part].seconds + seconds_of_tied(self.tied, part)

    @property
    def _tied_seconds(self) -> Fraction:
        """The seconds in which stages sum gradients of tied weights."""
        return sum((weights.seconds for weights in self.tied), Fraction())

    @property
    def per_second(self) -> int:
        """The charges in a second of its cost: the fewest among its stages."""
        return min(plan.instance.per_second for plan in self.plans)

    @cached_property
    def cost(self) -> Cost:
        """The plan's cost, rounded to the coarsest unit of its stages.

        Levels below H1 have the charges of the longest stage; H1 has its messages, sums of
        gradients between stages, and the time in which a device waits for others.
        """
        longest = max(self.plans, key=lambda plan: plan.seconds)
        coarsest = min(self.plans, key=lambda plan: plan.instance.per_second)
        per_second = self.per_second

        def units(seconds: Fraction) -> int:
            return floor(seconds * per_second + Fraction(1, 2))

        def below(levels: Sequence[int | float] | None) -> list[int]:
            if not levels:
                return []
            *above, last = (Fraction(level) / longest.instance.per_second for level in levels)
            return [*map(units, (*above, last - longest.messages))]

        total = units(self.seconds)
        inside, exchanged = below(longest.cost.per_level), below(longest.cost.communication)
        *seconds, data_bytes = self._baselines
        data, model = (Fraction(units(baseline)) for baseline in seconds)
        return Cost(
            kind=self.problem.cost,
            reading=self.problem.reading,
            unit=coarsest.instance.cost.unit,
            total=total,
            per_level=(total - sum(inside), *inside),
            communication=(units(longest.messages + self._tied_seconds), *exchanged),
            executed_bytes=json_number(sum(self.executed_levels, Fraction())),
            data_parallel_bytes=data_bytes,
            baselines=Baselines(data=json_number(data), model=json_number(model)),
            ratios=Ratios(data=float(data / total), model=float(model / total)),
            stages=tuple(
                StageCost(
                    part=part_word(part),
                    seconds=float(plan.seconds),
                    bubble=float(1 - self._busy(part) / self.seconds),
                )
                for part, plan in enumerate(self.plans)
            ),
        )

    @property
    def executed_levels(self) -> tuple[Fraction, ...]:
        """The bytes that running the plan moves at each level: at H1 between stages, below inside.

        Between stages are messages, and sums of gradients of weights that several hold.
        """
        inside = [
            price_levels(
                plan.instance.executed_workload, plan.instance.executed, plan.rows, plan.tensors
            )
            for plan in self.plans
        ]
        summed = sum((len(tied.parts) - 1) * tied.size for tied in self.tied)
        between = 2 * Fraction(sum(self.border_bytes) + summed)
        return (between, *(sum(level, Fraction()) for level in zip(*inside, strict=True)))

    @property
    def border_bytes(self) -> list[int]:
        """The bytes that cross each border forward in a step, and back again.

        Each accelerator sends what it stores.
        """
        problem, sent = self.problem, []
        for border in self.stages.borders:
            size = problem.batch * border.map.elements * problem.element_bytes
            stored = self.layouts[self.network.layers[border.writer].name][1:]
            below = zip(stored, problem.hierarchy.sizes[1:], strict=True)
            sent.append(size * prod(parts for word, parts in below if word == WHOLE))
        return sent

    @cached_property
    def tied(self) -> tuple[TiedReduction, ...]:
        """The sums of gradients of weights that several stages hold."""
        assert self.problem.array is not None
        return tied_reductions(
            self.stages, self.problem.array.description, reduced_bytes(self.problem)
        )

    @property
    def _baselines(self) -> tuple[Fraction, Fraction, int | float]:
        """The seconds of Data and Model Parallelism without stages, and the bytes of the former."""
        count = self.problem.training.micro_batches
        instance = Instance(self.network, without_stages(self.problem, count))
        workload = instance.workload
        rows = [
            [workload.baselines[name][workload.shared :]] * instance.problem.levels
            for name in PAPERS_CHOICES
        ]
        data, model = (Fraction(total_cost(instance, row)) / instance.per_second for row in rows)
        return data, model, price(instance, rows[0]).data_parallel_bytes


def _stored(network: Network, stages: Stages, plans: Sequence[StagePlan]) -> Layouts:
    """Return how each layer's output is stored; a sent tensor as in the stage that reads it."""
    names = [layer.name for layer in network.layers]
    layouts: dict[str, Sequence[str]] = {}
    for part, plan in enumerate(plans):
        side, stored = part_word(part), layouts_of(plan.instance, plan.rows, plan.tensors)
        layouts |= {name: (side, *below) for name, below in stored.items()}
        for name, writer in message_writers(network, stages.chunks_of(part)).items():
            if name.startswith(SENT):
                reader = part_word((part + 1) % stages.parts)
                layouts[names[writer]] = (reader, *stored[name])
    return FrozenDict({name: layouts[name] for name in names})


def _columns_by_layout(workload: Workload, node: int) -> dict[str, int]:
    """Return the column of the choice of a message that is stored in a layout."""
    layouts = workload.layouts
    names = [layouts.names[number] for number in layouts.output[:, node]]
    choices = zip(names, workload.choices_of_nodes[node], strict=True)
    return {layout: column for column, (layout, choice) in enumerate(choices) if choice}
