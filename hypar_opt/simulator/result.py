"""The result of a simulated step: time, traffic, energy and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from hypar_opt.errors import HyparError
from hypar_opt.frozen import FrozenDict
from hypar_opt.plan.training import training_columns
from hypar_opt.results import Column, Columns, Documented
from hypar_opt.units import format_si

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.simulator.device_memory import DeviceMemory
    from hypar_opt.simulator.spans import StepTrace
    from hypar_opt.workload.patterns import Words


@dataclass(frozen=True)
class LayerTime:
    """Seconds of one layer and pass, on the accelerator that finishes last."""

    layer: str
    phase: str
    compute: float
    communication: float


@dataclass(frozen=True)
class LevelTraffic:
    """The bytes that all groups of one hierarchy level exchange, and the seconds they take."""

    level: int
    bytes: float
    seconds: float


@dataclass(frozen=True)
class FullestExperts:
    """The part of experts with most tokens, for which a step waits.

    Parameters
    ----------
    layer
        The layer of experts whose parts differ most.
    parts
        Of its experts.
    tokens
        The tokens of the fullest part, relative to the mean.
    mean_bytes, bytes
        The bytes that an accelerator receives in a step: in the mean, and if it is the fullest at
        each layer.
    """

    layer: str
    parts: int
    tokens: float
    mean_bytes: float
    bytes: float


@dataclass(frozen=True)
class LinkTraffic:
    """The traffic of one link in a step.

    Parameters
    ----------
    bytes
        Both directions added.
    busy
        Seconds in which any byte crosses the link.
    seconds_at_capacity
        Seconds that the busier direction's bytes would take at the link's full bandwidth.
    count
        The number of links that it represents, each with this traffic; more than 1 only if an
        array's links are not listed individually.
    """

    link: str
    bytes: float
    busy: float
    seconds_at_capacity: float
    count: int = 1


@dataclass(frozen=True)
class StepEnergy:
    """Joules of one step, of all accelerators together.

    Parameters
    ----------
    macs, sram
        The multiply-accumulates, and their buffer accesses.
    dram
        The words of each accelerator's own DRAM.
    remote, hops
        The words between accelerators: their memory accesses, and the links that they cross.
    """

    macs: float
    sram: float
    dram: float
    remote: float
    hops: float

    @property
    def total(self) -> float:
        return self.macs + self.sram + self.dram + self.remote + self.hops


LINKS = Columns(
    *("link", "bytes", "busy"),
    Column("full", of="seconds_at_capacity"),
    Column("count", absent=1),
    entry=LinkTraffic,
)


def _of_bottleneck(place: int) -> Callable[[StepResult], Any]:
    return lambda step: step.bottleneck and step.bottleneck[place]


def _seconds_of_phases(step: StepResult) -> dict[str, dict[str, float]]:
    parts = "compute", "communication"
    return {phase: dict(zip(parts, pair, strict=True)) for phase, pair in step.phases.items()}


def _joules(step: StepResult) -> dict[str, float] | None:
    energy = step.known_energy
    return None if energy is None else {**vars(energy), "total": energy.total}


@dataclass(frozen=True, repr=False)
class StepResult(Documented):
    """One training step of a plan on an array.

    Parameters
    ----------
    plan
        Ignored when results are compared: equal amounts make equal results.
    array
        Its name.
    collective, overlap
        The all-reduce algorithm and what overlaps: `RunOptions`, with the array's own algorithm.
    seconds
        From the first task to the last.
    in_lockstep
        Whether all accelerators did the same at the same instants.
    closed_form
        The cost of time: all tasks in sequence, as if nothing overlapped and all accelerators
        ran in lockstep. For a step in lockstep it equals ``seconds`` without overlap, and is an
        upper bound with overlap; otherwise, as around rings with unequal hops, it is not a bound.
    lower_bound
        No schedule of these tasks takes less, up to rounding: in lockstep the critical path, which
        is ``closed_form`` without overlap; otherwise the longest of uncontended messages,
        computations, and the busiest channel's bytes.
    layers
        Times by layer and pass, in the order of the step; they add up to ``seconds``.
    levels
        H1 first.
    links
        In the topology's order.
    bottleneck
        The link with the highest ``seconds_at_capacity``, and the number of others that equal it.
    known_energy
        As `energy`; None if the array has no energies.
    memory, capacity
        The bytes that an accelerator needs, and those that it has.
    vault_words
        Words that processing units read from the memory of other vaults.
    events
        Computations and messages simulated.
    trace
        The spans of every accelerator and link, if recorded: of the last micro-batch.
    stated_training
        `RunOptions.stated_training`.
    device_memory
        The breakdown of ``memory`` on an accelerator with kernels. On others ``memory`` counts
        every layer's input and output with their errors, of a micro-batch, without recomputation
        and sharding.
    experts
        None if all parts of experts have equally many tokens.
    """

    # The keys are the format of `simulate --json`, and do not follow the fields' names.
    contents = Columns(
        *("seconds", "in_lockstep"),
        Column("closed_form_seconds", of="closed_form"),
        Column("lower_bound_seconds", of="lower_bound"),
        Column("compute_seconds", of="compute"),
        Column("communication_seconds", of="communication"),
        Column("phases", of=_seconds_of_phases, type=Mapping[str, Mapping[str, float]]),
        *("layers", "levels"),
        Column("links", type=LINKS),
        Column("link", of=_of_bottleneck(0), path="bottleneck?.link", type=str),
        Column("alike", of=_of_bottleneck(1), path="bottleneck?.alike", type=int),
        Column("joules", of=_joules, type=Mapping[str, float] | None),
        Column("memory", path="memory.bytes"),
        Column("capacity", path="memory.capacity"),
        *("vault_words", "events"),
        Column("experts", absent=None),
        *training_columns(attrgetter("stated_training")),
    )

    plan: Plan = field(compare=False)
    array: str = field(compare=False)
    collective: str = field(compare=False)
    overlap: str = field(compare=False)
    seconds: float
    in_lockstep: bool
    closed_form: float
    lower_bound: float
    layers: tuple[LayerTime, ...]
    levels: tuple[LevelTraffic, ...]
    links: tuple[LinkTraffic, ...]
    bottleneck: tuple[str, int] | None
    known_energy: StepEnergy | None
    memory: int
    capacity: int
    vault_words: int
    events: int
    trace: StepTrace | None = None
    stated_training: Mapping[str, int | Words] = FrozenDict()
    device_memory: DeviceMemory | None = None
    experts: FullestExperts | None = None

    @property
    def energy(self) -> StepEnergy:
        """The joules by part.

        Raises
        ------
        HyparError
            If the array has no energies; `joules` is None then.
        """
        if self.known_energy is None:
            raise HyparError("the step's array has no energies, which joules need")
        return self.known_energy

    @property
    def joules(self) -> float | None:
        """Joules of all accelerators together; None if the array has no energies."""
        return None if self.known_energy is None else self.known_energy.total

    @property
    def compute(self) -> float:
        """Seconds of computing."""
        return sum(layer.compute for layer in self.layers)

    @property
    def communication(self) -> float:
        """Seconds of communication that no computation overlaps."""
        return sum(layer.communication for layer in self.layers)

    @property
    def phases(self) -> Mapping[str, tuple[float, float]]:
        """Seconds of computing and of communication, by pass."""
        seconds: dict[str, tuple[float, float]] = {}
        for layer in self.layers:
            compute, communication = seconds.get(layer.phase, (0.0, 0.0))
            seconds[layer.phase] = compute + layer.compute, communication + layer.communication
        return seconds

    def __repr__(self) -> str:
        amounts = {
            "step": format_si(self.seconds, "s"),
            "computing": format_si(self.compute, "s"),
            "communicating": format_si(self.communication, "s"),
        }
        if self.joules is not None:
            amounts["energy"] = format_si(self.joules, "J")
        named = ", ".join(f"{name} {amount}" for name, amount in amounts.items())
        return f"<StepResult of {self.plan.network.name} on {self.array}: {named}>"

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each layer and pass, in seconds: rows of a data frame."""
        return [{**vars(layer), "phase": str(layer.phase)} for layer in self.layers]
