"""The object that each command prints with ``--json``, as types.

Parts that are rows of results are those results' own classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import create_model

from hypar_opt.documents.document import Document
from hypar_opt.paper.rows import PaperRow
from hypar_opt.paper.verdicts import FigureSummary
from hypar_opt.plan.plan import Plan
from hypar_opt.simulator.device_memory import Moment
from hypar_opt.simulator.result import LayerTime, LevelTraffic
from hypar_opt.studies.alternatives import Alternative, Regret
from hypar_opt.studies.comparison import ComparisonRow
from hypar_opt.studies.crosscheck import CrosscheckRow
from hypar_opt.studies.installation import Check
from hypar_opt.studies.validation import SetErrors

Number = int | float
Choices = tuple[tuple[str, ...], ...]
"""``(levels, layers)``."""


_PLAN: dict[str, Any] = {
    name: (field.annotation, field) for name, field in Plan.model_fields.items()
}
SolvedPlan = create_model(
    "SolvedPlan",
    __base__=Document,
    regret=(tuple[Regret, ...] | None, None),
    best=(tuple[Alternative, ...] | None, None),
    **_PLAN,
)
"""A plan file's content, with what ``--regret`` and ``--best`` add."""


class HowItTrains(Document):
    """How a step trains, of what does not do so at once."""

    micro_batches: int | None = None
    recompute: str | dict[str, str] | None = None
    shard: str | dict[str, str] | None = None
    gather: str | dict[str, str] | None = None
    reduce_bytes: int | None = None


class PhaseSeconds(Document):
    compute: float
    communication: float


class LinkShare(Document):
    link: str
    bytes: float
    busy: float
    full: float
    count: int = 1


class BusiestLink(Document):
    link: str
    alike: int


class Joules(Document):
    macs: float
    sram: float
    dram: float
    remote: float
    hops: float
    total: float


class MemoryInUse(Document):
    bytes: int
    capacity: int


class LayerBytes(Document):
    layer: str
    weights: Number
    gradients: Number
    state: Number
    saved: Number
    moment: Number


class MemoryCount(HowItTrains):
    """What an accelerator holds."""

    bytes: int
    capacity: int | None
    fits: bool | None
    margin: int | None
    categories: Mapping[str, Number]
    moment: Moment
    layers: tuple[LayerBytes, ...]


class ExpertsLoad(Document):
    """The part of experts with most tokens, and the bytes that an accelerator receives."""

    layer: str
    parts: int
    tokens: float
    mean_bytes: float
    bytes: float


class SimulatedStep(HowItTrains):
    """A simulated step: seconds, joules and bytes of all accelerators."""

    network: str
    array: str
    batch: int
    reading: str
    placement: tuple[int, ...] | None
    parallelism: Choices
    collective: str
    overlap: str
    executed_bytes: Number
    data_parallel_bytes: Number
    seconds: float
    in_lockstep: bool
    closed_form_seconds: float | None
    lower_bound_seconds: float
    compute_seconds: float
    communication_seconds: float
    phases: Mapping[str, PhaseSeconds]
    layers: tuple[LayerTime, ...]
    levels: tuple[LevelTraffic, ...]
    links: tuple[LinkShare, ...]
    bottleneck: BusiestLink | None
    joules: Joules | None
    memory: MemoryInUse
    vault_words: int
    events: int
    device_memory: MemoryCount | None = None
    experts: ExpertsLoad | None = None


class ExchangeBytes(Document):
    phase: str
    kind: str
    level: int
    layer: str
    tensor: str
    modelled: Number
    counted: Number


class VirtualRun(Document):
    """A run: bytes by level, differences relative to one device's values."""

    network: str
    batch: int
    levels: int
    parts: tuple[int, ...] | None = None
    backend: str
    seed: int
    reduced: tuple[str, ...]
    notes: tuple[str, ...]
    not_kept: tuple[str, ...]
    agrees: bool
    bytes_modelled: tuple[Number, ...]
    bytes_counted: tuple[Number, ...]
    bytes_priced: tuple[Number, ...] | None
    bytes_of_biases: tuple[Number, ...] | None = None
    loss: float
    one_device_loss: float
    values_difference: float
    gradients_difference: float
    model_difference: float | None = None
    exchanges: tuple[ExchangeBytes, ...]


class ComparedPlans(Document):
    rows: tuple[ComparisonRow, ...]
    gmean: Mapping[str, Mapping[str, float | None]]
    notes: tuple[str, ...]


class ConfigurationRow(Document):
    """A configuration; ``blocks`` is how many recompute, None for all.

    Of one that does not fit what its step takes is None.
    """

    tp: int
    sp: str | None
    cp: int
    ep: int
    dp_shard: int
    dp_replicate: int
    zero: str
    micro_batches: int
    recompute: str
    blocks: int | None
    seconds: float | None
    per_second: float | None
    mfu: float | None
    memory: int
    spare: int
    exposed: float | None
    over_first: float | None
    pp: int = 1
    interleave: int = 1
    cuts: str | None = None
    in_flight: float = 1.0
    bubble: float | None = 0.0


class Degrees(Document):
    tp: int
    pp: int


class ConfiguredPlans(Document):
    """The fastest configurations; ``per_second`` is of ``unit`` and of an accelerator."""

    network: str
    array: str
    batch: int
    tokens: int | None
    optimizer: str | int
    capacity: int
    margin: int
    considered: int
    fitting: int
    simulated: int
    complete: bool
    bound_seconds: float | None
    unit: str
    rows: tuple[ConfigurationRow, ...]
    unsharded: ConfigurationRow | None
    staged: bool = False
    by_degrees: bool = False
    unknown: tuple[Degrees, ...] = ()


class BestOfSubspace(Document):
    value: Number
    ratio: float | None
    executed_bytes: Number | None
    executed_ratio: float | None
    plans: int
    parallelism: tuple[Choices, ...]


class OwnOfSubspace(Document):
    solver: str
    search: str
    value: Number
    ratio: float | None
    executed_bytes: Number | None
    executed_ratio: float | None
    rank: int
    parallelism: Choices


class SubspaceFront(Document):
    of: tuple[str, ...]
    plans: int
    has_plan: bool
    points: tuple[Mapping[str, Any], ...]


class ExploredSubspace(Document):
    """Every plan of a subspace; values in ``unit``, ratios over Data Parallelism."""

    network: str
    array: str | None
    batch: int
    levels: int
    parts: tuple[int, ...] | None = None
    reading: str
    objective: str
    unit: str
    free: str
    layers: tuple[str, ...]
    plans: int
    best: BestOfSubspace
    plan: OwnOfSubspace
    front: SubspaceFront | None
    worst: Mapping[str, Number | None]
    data_parallel: Mapping[str, Number | None]
    histogram: Mapping[str, Any] | None


class FrontPoint(HowItTrains):
    objective: str
    memory: Number
    total: Number
    unit: str
    bytes: Number
    executed_bytes: Number
    seconds: float | None
    joules: float | None
    gap: float | None
    parallelism: Choices


class ObjectiveFront(Document):
    objective: str
    complete: bool
    reason: str | None
    points: tuple[FrontPoint, ...]


class TracedFronts(Document):
    network: str
    array: str | None
    batch: int
    levels: int
    parts: tuple[int, ...] | None = None
    reading: str
    layers: tuple[str, ...]
    fronts: tuple[ObjectiveFront, ...]


class SweptTable(Document):
    """A sweep's rows, with a column for each key that it varies."""

    output: str
    before: int
    refused: int
    moving_more: int
    rows: tuple[Mapping[str, bool | Number | str | None], ...]


class BatchPlans(Document):
    """The plans of all batches; a range has a string of choices for each level."""

    network: str
    lo: int
    hi: int
    hierarchy: tuple[int, ...]
    reading: str
    choices: tuple[str, ...]
    plans: int
    layers: tuple[str, ...]
    ranges: tuple[Mapping[str, Number | str], ...]


class CheckedPlan(Document):
    plan: str
    total: Number
    unit: str
    priced: str
    optimal: str | None = None
    unproved: str | None = None


class Verified(Document):
    rows: tuple[CheckedPlan, ...] | tuple[CrosscheckRow, ...]


class StepAmounts(Document):
    seconds: float
    bytes: Number | None


class ComparedStep(Document):
    id: str
    set: str
    calculated: StepAmounts | None
    measured: StepAmounts
    error: float | None
    why: str | None


class ValidatedSets(Document):
    rows: tuple[ComparedStep, ...]
    sets: tuple[SetErrors, ...]
    left_aside: tuple[str, ...]


class FittedStep(Document):
    id: str
    measured: float
    before: float | None
    after: float | None


class FittedArray(Document):
    constants: Mapping[str, float]
    steps: tuple[FittedStep, ...]
    mean: float
    held_out: float | None
    tested: ValidatedSets | None
    warnings: tuple[str, ...]
    array: Mapping[str, Any]


class FigureRows(Document):
    summary: FigureSummary
    rows: tuple[PaperRow, ...]


class Reproduced(Document):
    figures: Mapping[str, FigureRows]
    counts: Mapping[str, int]


class ShownArray(Document):
    name: str
    digest: str
    accelerators: int
    levels: tuple[Mapping[str, Number], ...]
    links: tuple[Mapping[str, Number | str], ...]
    description: Mapping[str, Any]


class ShownNetwork(Document):
    """A network's layers, for a batch."""

    name: str
    source: str
    digest: str
    batch: int
    layers: tuple[Mapping[str, Any], ...]
    total: Mapping[str, int]


class NamedRows(Document):
    rows: tuple[Mapping[str, Any], ...]


class CheckedParts(Document):
    version: str
    sound: bool
    checks: tuple[Check, ...]
