"""What a simulated step comes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LayerTime:
    """Seconds of one layer and pass, of the accelerator that ends last."""

    layer: str
    phase: str
    compute: float
    communication: float


@dataclass(frozen=True)
class LevelTraffic:
    """What one hierarchy level exchanges: all groups' bytes, and the seconds it takes."""

    level: int
    bytes: float
    seconds: float


@dataclass(frozen=True)
class LinkTraffic:
    """Bytes that cross a link, both directions added, and the seconds in which any do.

    ``full`` is the seconds that they take at the link's full rate, in its busier direction.
    """

    link: str
    bytes: float
    busy: float
    full: float


@dataclass(frozen=True)
class Energy:
    """Joules of one step, over all accelerators."""

    macs: float
    sram: float
    dram: float
    remote: float
    hops: float

    @property
    def total(self) -> float:
        return self.macs + self.sram + self.dram + self.remote + self.hops


@dataclass(frozen=True)
class StepResult:
    """One training step of a plan on an array.

    Parameters
    ----------
    seconds
        From the first task to the last.
    closed_form
        What the cost of time charges: all tasks added up, as if nothing overlapped and all
        accelerators ran in lockstep. Where that is so, it is ``seconds``.
    lower_bound
        With overlap, the longest chain of tasks that wait for one another; else ``closed_form``.
        In lockstep ``seconds`` is between the two.
    layers
        In the order of the step; they add up to ``seconds``.
    levels
        H1 first.
    links
        As the topology has them.
    bottleneck
        The link whose bytes take longest at its full rate, and how many others are alike.
    memory, capacity
        Bytes that an accelerator needs, and has.
    vault_words
        Words that a vault's unit has from another vault's memory.
    events
        Computes and messages simulated.
    trace
        A Chrome trace, if asked for.
    """

    seconds: float
    closed_form: float
    lower_bound: float
    layers: tuple[LayerTime, ...]
    levels: tuple[LevelTraffic, ...]
    links: tuple[LinkTraffic, ...]
    bottleneck: tuple[str, int] | None
    energy: Energy
    memory: int
    capacity: int
    vault_words: int
    events: int
    trace: dict[str, Any] | None = None

    @property
    def compute(self) -> float:
        return sum(each.compute for each in self.layers)

    @property
    def communication(self) -> float:
        return sum(each.communication for each in self.layers)

    @property
    def phases(self) -> Mapping[str, tuple[float, float]]:
        """Seconds of compute and of communication, a pass."""
        found: dict[str, tuple[float, float]] = {}
        for each in self.layers:
            compute, moving = found.get(each.phase, (0.0, 0.0))
            found[each.phase] = compute + each.compute, moving + each.communication
        return found

    def document(self) -> dict[str, Any]:
        """Return the result as plain data."""
        bottleneck = None
        if self.bottleneck is not None:
            bottleneck = {"link": self.bottleneck[0], "alike": self.bottleneck[1]}
        return {
            "seconds": self.seconds,
            "closed_form_seconds": self.closed_form,
            "lower_bound_seconds": self.lower_bound,
            "compute_seconds": self.compute,
            "communication_seconds": self.communication,
            "phases": {
                phase: {"compute": compute, "communication": moving}
                for phase, (compute, moving) in self.phases.items()
            },
            "layers": [vars(each) for each in self.layers],
            "levels": [vars(each) for each in self.levels],
            "links": [vars(each) for each in self.links],
            "bottleneck": bottleneck,
            "joules": {**vars(self.energy), "total": self.energy.total},
            "memory": {"bytes": self.memory, "capacity": self.capacity},
            "vault_words": self.vault_words,
            "events": self.events,
        }
