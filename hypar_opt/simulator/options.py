"""The options of a simulated step: algorithm, overlap, measured times, recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypar_opt.checked import check
from hypar_opt.errors import HyparError, UnknownNameError, argument
from hypar_opt.frozen import Frozen
from hypar_opt.hardware.array import COLLECTIVES
from hypar_opt.simulator.streams import OVERLAPS
from hypar_opt.step.work import NO_SIZES, Sizes
from hypar_opt.workload.parallelism import GATHERED, RECOMPUTED, REDUCE_BYTES, SHARDED
from hypar_opt.workload.patterns import Words, all_words, parsed_words
from hypar_opt.workload.recomputation import repeats_of
from hypar_opt.workload.shards import fault_in_levels, shards_of

if TYPE_CHECKING:
    from hypar_opt.hardware.array import Array
    from hypar_opt.hardware.profile import Profile
    from hypar_opt.workload.network import Network
    from hypar_opt.workload.operators.kernels import Fused
    from hypar_opt.workload.repeats import Repeats
    from hypar_opt.workload.tensors import Workload


@dataclass(frozen=True)
class RunOptions(Frozen):
    """Options of a simulated step.

    Parameters
    ----------
    collective
        The algorithm of all-reduces, reduce-scatters and all-gathers, one of
        ``hypar_opt.hardware.array.COLLECTIVES``; None for the array's own.
    overlap
        ``none``; ``gradient``: gradients are all-reduced while later tasks run; ``branches``:
        every exchange overlaps whatever does not wait for it, such as another branch's
        computations; ``prefetch``: a block's weights are gathered while the block before it runs,
        and gradients reduced while later tasks do. None for the array's own.
    profile
        Measured seconds, in place of those computed from the accelerator.
    input_sizes
        Input sizes by which multiply-accumulates are counted, instead of the network's.
    trace
        Whether to record the spans of every accelerator and link.
    micro_batches
        The equal parts of the batch that are processed one after the other; their gradients
        accumulate.
    recompute
        What the backward pass computes again: ``none``; ``selective``: layers whose inner tensor
        is large (attention); ``full``: all layers of the network's blocks, exchanges included. A
        word, or words by layer.
    shard
        What data parallelism splits between its parts: ``none``; the optimizer's ``state`` (ZeRO-1,
        as many bytes); ``gradients``, too (ZeRO-2: reduce-scattered in every micro-batch); or
        ``weights``, too (ZeRO-3, FSDP: all-gathered before a layer's forward and backward passes).
        From a level down, as ``weights@H4-H6``, it is whole in each part of the levels above;
        ``state+weights@H4-H6`` splits the state there, too. A word, or words by layer.
    gather
        Whether a tensor that several layers read is kept as these read it, ``once``, or as its
        writer left it, and converted ``again`` backward. A word, or words by layer.
    reduce_bytes
        Of an element in which gradients are exchanged and held, 2 or 4. None: they are exchanged in
        the plan's elements, and held in 4 bytes or more.
    early_stop
        Whether recomputation of a block stops at the last tensor that a backward pass reads, as in
        PyTorch from 2.1 on; else all of it runs, as in Megatron-LM.
    exact_shares
        Whether a layer or an exchange takes as long as its mean part, if an axis is not divided
        evenly; else as its longest.
    ring
        Whether keys and values of context parallelism move beside the parts of attention that they
        are for; else before it. None for the array's own.
    hidden
        The fraction, 0 to 1, of tensor parallelism's all-gathers and reduce-scatters that runs
        beside the products that read or write them (asynchronous tensor parallelism). None for the
        array's own.

    Raises
    ------
    UnknownNameError
        If there is no such collective, overlap, recomputation or sharding.
    """

    collective: str | None = None
    overlap: str | None = None
    profile: Profile | None = None
    input_sizes: Sizes = NO_SIZES
    trace: bool = False
    micro_batches: int = 1
    recompute: Words = "none"
    shard: Words = "none"
    gather: Words = "once"
    reduce_bytes: int | None = None
    early_stop: bool = False
    exact_shares: bool = False
    ring: bool | None = None
    hidden: float | None = None

    def __post_init__(self) -> None:
        check(type(self), vars(self))
        super().__post_init__()
        if self.collective and self.collective not in COLLECTIVES:
            raise UnknownNameError("collective", self.collective, list(COLLECTIVES))
        if self.overlap and self.overlap not in OVERLAPS:
            raise UnknownNameError("overlap", self.overlap, list(OVERLAPS))
        if self.micro_batches < 1:
            raise HyparError(
                f"{argument('micro_batches')} should be 1 or more, got {self.micro_batches}"
            )
        if self.hidden is not None and not 0 <= self.hidden <= 1:
            raise HyparError(f"{argument('hidden')} should be from 0 to 1, got {self.hidden:g}")
        if self.reduce_bytes not in (None, *REDUCE_BYTES):
            raise HyparError(
                f"{argument('reduce_bytes')} should be {' or '.join(map(str, REDUCE_BYTES))}, got"
                f" {self.reduce_bytes}"
            )
        for name, allowed in (("recompute", RECOMPUTED), ("shard", SHARDED), ("gather", GATHERED)):
            words = parsed_words(getattr(self, name), name)
            vars(self)[name] = words
            for word in all_words(words):
                if name == "shard" and not {*word}.isdisjoint("@+"):
                    _check_shards(word)
                elif word not in allowed:
                    raise UnknownNameError(name, word, list(allowed))

    def check_levels(self, levels: int) -> None:
        """Check that shards refer to existing levels.

        Raises
        ------
        HyparError
            If one is not.
        """
        if fault := fault_in_levels(all_words(self.shard), levels):
            raise HyparError(f"{argument('shard')} {fault}")

    @property
    def stated_training(self) -> dict[str, int | Words]:
        """Micro-batches, recomputation and sharding, where they are not the defaults."""
        names = ("micro_batches", "recompute", "shard", "gather", "reduce_bytes")
        plain = (1, "none", "once", None)
        return {name: value for name in names if (value := getattr(self, name)) not in plain}

    def repeats(
        self, network: Network, workload: Workload, element_bytes: int, *, fused: Fused
    ) -> Repeats:
        """Return how often the step repeats the passes of a micro-batch.

        Raises
        ------
        HyparError
            If gradients are reduced in less than an element.
        """
        reduced, rest = divmod(self.reduce_bytes or element_bytes, element_bytes)
        if rest or not reduced:
            raise HyparError(
                f"{argument('reduce_bytes')} should be no less than {argument('element_bytes')},"
                f" {element_bytes}, got {self.reduce_bytes}"
            )
        words = self.recompute, self.shard, self.gather, reduced
        return repeats_of(network, workload, self.micro_batches, *words, fused=fused)

    def on(self, array: Array) -> tuple[str, str]:
        """Return the collective and the overlap: an array's own where the options name none."""
        return self.collective or array.collective, self.overlap or array.overlap or "none"

    def in_parts_on(self, array: Array) -> tuple[bool, float]:
        """Return ``ring`` and ``hidden``: an array's own where the options state none.

        If neither is set, no exchange that the program waits for overlaps with computations.
        """
        ring = array.ring if self.ring is None else self.ring
        return bool(ring), (array.hidden or 0.0) if self.hidden is None else self.hidden


def _check_shards(word: str) -> None:
    try:
        shards_of(word)
    except ValueError as error:
        raise HyparError(f"{argument('shard')} should be {error}, got {word!r}") from None
