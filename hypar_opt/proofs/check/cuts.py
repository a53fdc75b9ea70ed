"""A bound on all plans of a network with a plan's numbers of stages and micro-batches.

Between blocks a network is cut into units. The charge of a stage is at least the sum of its units'
charges: their tables have its nodes and edges, but neither messages nor latencies that other
gradients may share. Messages add at least their time without copies. The minimum of a stage's own
table, with its messages, is a bound, too. All tables cover all training modes. The cuts of least
charge under these bounds are a bound on all plans.

Source: docs/stages.md.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from math import floor
from typing import TYPE_CHECKING, NamedTuple

from hypar_opt.errors import CheckFailedError, RefusedError
from hypar_opt.proofs.check.folds import PREFIXES
from hypar_opt.proofs.check.nodes import images_of
from hypar_opt.proofs.check.stages import (
    PlanStage,
    charge_of_plan,
    charges_of_stages,
    described,
    seconds_of_sum,
)
from hypar_opt.proofs.check.tables import table_over_modes
from hypar_opt.proofs.check.training import stated_words
from hypar_opt.workload.operators.maps import ExpertMap, LogitMap

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from hypar_opt.hardware.links import BisectionLink
    from hypar_opt.plan.plan import Plan
    from hypar_opt.proofs.check.stages import StageCharge
    from hypar_opt.proofs.check.tables import ReferenceTable

_PASSES = 2
"""The passes in which a message is sent: an error goes back."""


class UnitSpan(NamedTuple):
    """Consecutive units: by themselves, or as a stage.

    Parameters
    ----------
    first, end
        The first unit, and the one before which they end.
    stage
        The number of the stage, from 0; None for units by themselves.
    """

    first: int
    end: int
    stage: int | None = None


class BoundOnCuts(NamedTuple):
    """A lower bound on the charge of all cuts, and the stages of the cuts that attain it.

    Parameters
    ----------
    charge
        In charges; a fraction, since stages wait for shares of others.
    """

    charge: Fraction
    stages: tuple[UnitSpan, ...]


_Holders = tuple[tuple[int, ...], ...]
"""For each weight that units share, the stages that hold it."""


class _Partial(NamedTuple):
    """The first stages of some cuts: the longest one, their sum, and their ends."""

    longest: int
    total: int
    ends: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class CutProblem:
    """A network in as many stages and micro-batches as a plan has, cut anywhere between blocks.

    Raises
    ------
    RefusedError
        Naming the property of the plan for which there is no bound.
    CheckFailedError
        If a stage takes another time than the plan says.
    """

    plan: Plan

    def __post_init__(self) -> None:
        plan, stages = self.plan, self.plan.stages
        assert stages is not None
        units = {charge.per_second for charge in self._charges}
        lacking = {
            "interleaved stages": stages.chunks > 1,
            "stages with pins": bool(plan.constraints.fix),
            "stages with addends": "addends" in plan.choices,
            "stages of split images": bool({"rows", "columns"} & {*plan.choices}),
            "stages that are priced in several units": units != {self.per_second},
            "stages without a memory of tensors": plan.problem.device_memory is None,
        }
        for name, applies in lacking.items():
            if applies:
                raise RefusedError(f"a plan in {name} has no certificate")

    @property
    def per_second(self) -> int:
        """The charges of a second."""
        return PREFIXES[self.plan.cost.unit.removesuffix("seconds")]

    @cached_property
    def charge(self) -> Fraction:
        """The exact charge of the plan."""
        return charge_of_plan(self.plan, self._charges) * self.per_second

    @cached_property
    def _charges(self) -> list[StageCharge]:
        return charges_of_stages(self.plan)

    @property
    def parts(self) -> int:
        return self.plan.hierarchy.sizes[0]

    @property
    def micro_batches(self) -> int:
        return self.plan.training.micro_batches or 1

    @cached_property
    def units(self) -> list[range]:
        """The positions of the layers of each unit."""
        network = self.plan.network.description
        last: dict[int, int] = {}
        for n, (layer, sources) in enumerate(zip(network.layers, network.sources, strict=True)):
            if not layer.reads_ids:
                last |= dict.fromkeys(sources, n)
        inside = {
            n
            for block in network.repeats
            for repetition in block.repetitions
            for n in (*repetition,)[1:]
        }
        ends = [0]
        for end in range(1, len(network.layers)):
            crossing = [n for n, reader in last.items() if n < end <= reader]
            routed = isinstance(network.map_of(end - 1), ExpertMap | LogitMap)
            if crossing == [end - 1] and end not in inside and not routed:
                ends.append(end)
        return [range(*pair) for pair in pairwise((*ends, len(network.layers)))]

    @cached_property
    def _shared(self) -> dict[str, list[int]]:
        """The units that share weights, in order, by the layer that has these."""
        network = self.plan.network.description
        unit_of = [number for number, unit in enumerate(self.units) for _ in unit]
        return {
            network.layers[owner].name: units
            for owner, users in network.weight_users.items()
            if len(units := sorted({unit_of[n] for n in users})) > 1
        }

    @property
    def _tied(self) -> set[tuple[int, int]]:
        """Pairs of units that share weights, each with the next one."""
        return {pair for units in self._shared.values() for pair in pairwise(units)}

    @cached_property
    def _kinds(self) -> list[int]:
        """For each unit the first with equal tables; one that shares weights equals only itself."""
        tied = {unit for pair in self._tied for unit in pair}
        first: dict[Hashable, int] = {}
        return [
            unit if unit in tied else first.setdefault(tuple(self._described_layers(layers)), unit)
            for unit, layers in enumerate(self.units)
        ]

    def _described_layers(self, unit: range) -> Iterator[Hashable]:
        """Yield a unit's layers without their names, with sources as positions in the unit."""
        network = self.plan.network.description
        gathered = stated_words(self.plan, self.plan.training.gather)
        place_in_block = {
            n: place
            for block in network.repeats
            for repetition in block.repetitions
            for place, n in enumerate(repetition)
        }
        names, maps = [layer.name for layer in network.layers], [*network.maps()]
        for n in unit:
            layer = network.layers[n]
            keys = {key: value for key, value in described(layer).items() if key != "name"}
            owner = layer.shares_weights_with
            reads = tuple(
                source - unit.start if source >= 0 else network.source_names[source]
                for source in network.sources[n]
            )
            yield (
                json.dumps(keys, sort_keys=True, default=str),
                maps[n],
                reads,
                owner and names.index(owner) - unit.start,
                place_in_block.get(n),
                gathered[n],
            )

    @cached_property
    def _links(self) -> list[BisectionLink | None]:
        """The link before each stage, and behind the last one; None at both ends."""
        assert self.plan.array is not None
        array = self.plan.array.description
        return [None, *(array.stage_link(n, self.parts) for n in range(self.parts - 1)), None]

    def kind(self, span: UnitSpan) -> Hashable:
        """Return a key of spans: those with equal keys have equal tables."""
        kinds = tuple(self._kinds[span.first : span.end])
        if span.stage is None:
            return kinds
        return kinds, self._links[span.stage], self._links[span.stage + 1]

    def _may_be_stage(self, span: UnitSpan) -> bool:
        """Return whether units are left for the stages before and behind."""
        first, end, stage = span
        count, parts = len(self.units), self.parts
        if stage is None or not 0 <= stage < parts or not 0 <= first < end <= count:
            return False
        behind = parts - stage - 1
        return min(first, 1) == min(stage, 1) and min(count - end, 1) == min(behind, 1)

    def _stages(self, stage: int) -> Iterator[UnitSpan]:
        """Yield all spans of units that a stage may have."""
        spans = (UnitSpan(*ends, stage) for ends in combinations(range(len(self.units) + 1), 2))
        yield from filter(self._may_be_stage, spans)

    def table(self, span: UnitSpan) -> ReferenceTable:
        """Return the table of all plans of a span.

        Raises
        ------
        RefusedError
            If there are more states than memory allows.
        CheckFailedError
            If no stage is of such units.
        """
        is_known = 0 <= span.first < span.end <= len(self.units)
        if span.stage is not None:
            is_known = self._may_be_stage(span)
        if not is_known:
            raise CheckFailedError(f"spans: there is none from unit {span.first} to {span.end}")
        layers = range(self.units[span.first].start, self.units[span.end - 1].stop)
        # By themselves they may be in any stage: all parts of the array are equal.
        plan = PlanStage(self.plan, span.stage or min(span.first, 1), (layers,)).plan
        table = table_over_modes(plan, is_part=span.stage is None)
        assert table is not None
        return table

    def bound(self, least: Mapping[Hashable, int]) -> BoundOnCuts:
        """Return a lower bound on the charge of all cuts.

        Parameters
        ----------
        least
            The least charge of tables, by the kind of their span; each unit by itself is needed.

        Raises
        ------
        CheckFailedError
            If a unit is missing, or the network has fewer units than stages.
        """
        alone = [least.get(self.kind(UnitSpan(unit, unit + 1))) for unit in range(len(self.units))]
        if None in alone:
            raise CheckFailedError(f"spans: unit {alone.index(None)} should be there by itself")
        sums = [0, *accumulate(charge or 0 for charge in alone)]
        starts: dict[tuple[int, _Holders], list[_Partial]]
        starts = {(0, ((),) * len(self._shared)): [_Partial(0, 0, ())]}
        for stage in range(self.parts):
            reached: defaultdict[tuple[int, _Holders], list[_Partial]] = defaultdict(list)
            charges = {
                span: max(self.by_units(span, sums), least.get(self.kind(span), 0))
                for span in self._stages(stage)
            }
            for (start, holders), partials in starts.items():
                for span, charge in charges.items():
                    if span.first == start:
                        reached[span.end, self._with(holders, span)] += (
                            _Partial(
                                max(partial.longest, charge),
                                partial.total + charge,
                                (*partial.ends, span.end),
                            )
                            for partial in partials
                        )
            starts = {end: _pareto_frontier(partials) for end, partials in reached.items()}
        cuts = []
        for (end, holders), partials in starts.items():
            if end == len(self.units):
                summed = self._summed(holders)
                for partial in partials:
                    rest = Fraction(partial.total - partial.longest, self.micro_batches)
                    cuts.append((partial.longest + rest + summed, partial.ends))
        if not cuts:
            raise CheckFailedError(f"stages: should be at most {len(self.units)}")
        charged, ends = min(cuts)
        spans = enumerate(pairwise((0, *ends)))
        return BoundOnCuts(charged, tuple(UnitSpan(*pair, stage) for stage, pair in spans))

    def _with(self, holders: _Holders, span: UnitSpan) -> _Holders:
        """Return the stages that have each shared weight, with one more."""
        assert span.stage is not None
        return tuple(
            (*stages, span.stage)
            if any(span.first <= unit < span.end for unit in units)
            else stages
            for stages, units in zip(holders, self._shared.values(), strict=True)
        )

    def _summed(self, holders: _Holders) -> Fraction:
        """Return the charge of sums of gradients between stages."""
        seconds = (
            seconds_of_sum(self.plan, owner, stages)
            for owner, stages in zip(self._shared, holders, strict=True)
        )
        return sum(seconds, Fraction()) * self.per_second

    def by_units(self, span: UnitSpan, sums: Sequence[int]) -> int:
        """Return a lower bound on a stage's charge from its units' charges by themselves.

        If several units share weights, all charges of the last one are left out.

        Parameters
        ----------
        sums
            Sums of the charges of all units before each one.
        """
        first, end, stage = span
        assert stage is not None
        shared = {last for unit, last in self._tied if first <= unit and last < end}
        units = sums[end] - sums[first] - sum(sums[n + 1] - sums[n] for n in shared)
        borders = (first, self._links[stage]), (end, self._links[stage + 1])
        return units + sum(self._least_message(unit, link) for unit, link in borders if link)

    @cached_property
    def _elements(self) -> list[int]:
        """The elements of a micro-batch that cross the border before each unit."""
        network, images = self.plan.network.description, images_of(self.plan)
        writers = (unit.start - 1 for unit in self.units)
        return [0 if n < 0 else images * network.map_of(n).elements for n in writers]

    def _least_message(self, unit: int, link: BisectionLink) -> int:
        """Return a lower bound on the charge of messages before a unit: without copies."""
        size = self._elements[unit] * self.plan.element_bytes
        seconds = size * link.seconds_per_byte, link.latency
        once = sum(floor(duration * self.per_second + Fraction(1, 2)) for duration in seconds)
        return _PASSES * self.micro_batches * once


def _pareto_frontier(partials: Sequence[_Partial]) -> list[_Partial]:
    """Return the Pareto-optimal ones, in the longest stage and in the sum of stages."""
    frontier: list[_Partial] = []
    for partial in sorted(partials):
        if not frontier or partial.total < frontier[-1].total:
            frontier.append(partial)
    return frontier
