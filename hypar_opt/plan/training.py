"""Training settings: micro-batches, recomputation, and what data parallelism shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from pydantic import PlainValidator

from hypar_opt.documents.document import Document, Size, rule
from hypar_opt.documents.parsing import shown
from hypar_opt.results import Column, Columns
from hypar_opt.workload.parallelism import GATHERED, RECOMPUTED, REDUCE_BYTES, SCHEDULES
from hypar_opt.workload.patterns import Words, all_words, parsed_words
from hypar_opt.workload.shards import fault_in_levels, shards_of


def _one_of(words: tuple[str, ...]) -> Callable[[str], object]:
    def check(word: str) -> None:
        if word not in words:
            raise ValueError(f"{', '.join(words[:-1])} or {words[-1]}")

    return check


def training_columns(stated: Callable[[Any], Mapping[str, Any]]) -> Columns:
    """Return the columns of training settings: those stated, and those that are not defaults.

    Parameters
    ----------
    stated
        Returns what an entry states, by name.
    """
    types: dict[str, Any] = dict.fromkeys(("recompute", "shard", "gather"), str | dict[str, str])
    types = {"micro_batches": int, **types, "reduce_bytes": int}

    def column(name: str) -> Column:
        return Column(name, of=lambda entry: stated(entry).get(name), type=types[name], absent=None)

    return Columns(*map(column, types))


SAME_SETTINGS = ", of plans with the same training settings"
"""What qualifies a claim about plans that train in one way, and in no other."""

_REFUSED_SCHEDULES = {
    "dualpipe": "runs micro-batches from both ends, with all weights twice",
    **dict.fromkeys(("zb-v", "zbv"), "has stages in a V, 1 2 3 4 4 3 2 1"),
}
"""Schedules that are recognised but not modelled, with the reason."""


def _schedule() -> PlainValidator:
    def check(value: Any) -> Any:
        if not isinstance(value, str) or value not in SCHEDULES:
            reason = _REFUSED_SCHEDULES.get(value.lower()) if isinstance(value, str) else None
            why = f", which {reason}: not modelled" if reason else ""
            raise rule(
                f"should be {', '.join(SCHEDULES[:-1])} or {SCHEDULES[-1]}, got {shown(value)}{why}"
            )
        return value

    return PlainValidator(check, json_schema_input_type=Literal[SCHEDULES])


def _words(name: str, check: Callable[[str], object]) -> PlainValidator:
    """Return a validator of a word, or of words by layer.

    Parameters
    ----------
    check
        Raises a ValueError that says what a word should be.
    """

    def words(value: Any) -> Words | None:
        if value is None:
            return None
        words = parsed_words(value, name) if isinstance(value, str | Mapping) else value
        for word in all_words(words) if isinstance(words, str | Mapping) else [words]:
            try:
                check(word if isinstance(word, str) else "")
            except ValueError as error:
                raise rule(f"should be {error}, got {shown(word)}") from None
        return words

    return PlainValidator(words, json_schema_input_type=_Words)


_Words = str | dict[str, str] | None


def _of_gradients() -> PlainValidator:
    def check(value: Any) -> Any:
        if value not in REDUCE_BYTES or isinstance(value, bool):
            raise rule(f"should be {' or '.join(map(str, REDUCE_BYTES))}, got {shown(value)}")
        return value

    return PlainValidator(check, json_schema_input_type=Literal[2, 4])


class Training(Document):
    """Training settings of a step: what it repeats, and what its accelerators shard.

    Words hold for all layers, or are by layer, block or pattern, with ``*`` for all others. None,
    and layers without a word, are left to a search that the memory of accelerators limits, and else
    mean the default.
    """

    micro_batches: Size | None = None
    """The equal parts of the batch that pass one after the other; their gradients accumulate."""
    recompute: Annotated[Words | None, _words("recompute", _one_of(RECOMPUTED))] = None
    """What the backward pass computes again: ``none``; ``selective``: layers whose inner tensor is
    large (attention); ``op``: all of the network's blocks but what their products leave, with
    weights or of attention; ``full``: all layers of the blocks, exchanges included."""
    shard: Annotated[Words | None, _words("shard", shards_of)] = None
    """What data parallelism splits between its parts: ``none``; the optimizer's ``state`` (ZeRO-1);
    ``gradients``, too (ZeRO-2); or ``weights``, too (ZeRO-3, FSDP). From a level down, as
    ``weights@H4-H6``, it is whole in each part of the levels above; ``state+weights@H4-H6`` splits
    the state there, too."""

    gather: Annotated[Words | None, _words("gather", _one_of(GATHERED))] = None
    """Whether a tensor that several layers read is kept as these read it, ``once``, or as its
    writer left it, such as by token, and converted ``again`` in the backward pass. A word of its
    writer; of a block that is fully computed again neither is kept. Never searched."""
    reduce_bytes: Annotated[int, _of_gradients()] | None = None
    """The bytes of an element in which gradients are exchanged and held, 2 or 4. None: they are
    exchanged in the elements of the weights, and held in 4 or more."""
    schedule: Annotated[str, _schedule()] = "1f1b"
    """The order of passes in stages of a pipeline, one of
    ``hypar_opt.workload.parallelism.SCHEDULES``. Never searched, and no matter without stages."""

    def reduced(self, element_bytes: int) -> int:
        """Return the size of a gradient's element, where it is reduced, in elements of weights."""
        return (self.reduce_bytes or element_bytes) // element_bytes

    @property
    def stated(self) -> dict[str, Any]:
        """The stated settings, by name: all but the schedule of stages."""
        fields = dict(self).items()
        return {name: value for name, value in fields if value is not None and name != "schedule"}

    @property
    def non_default(self) -> dict[str, Any]:
        """The stated settings that are not defaults, by name."""
        return {
            name: value for name, value in self.stated.items() if value not in (1, "none", "once")
        }

    @property
    def qualifier(self) -> str:
        """The qualification of a claim that covers only plans with these settings, as text."""
        return SAME_SETTINGS if self.non_default else ""

    @property
    def by_layer(self) -> bool:
        """Whether settings are by layer."""
        return isinstance(self.recompute, Mapping) or isinstance(self.shard, Mapping)

    @property
    def by_op(self) -> bool:
        """Whether any block recomputes all but its products."""
        return self.recompute is not None and "op" in all_words(self.recompute)

    @property
    def gathers_or_reduces(self) -> bool:
        """Whether ``gather`` or ``reduce_bytes`` is stated."""
        return self.gather is not None or self.reduce_bytes is not None

    @property
    def by_level(self) -> bool:
        """Whether what is sharded differs between levels."""
        return self.shard is not None and any("@" in word for word in all_words(self.shard))

    def check(self, batch: int, levels: int, element_bytes: int, other: str | None) -> None:
        """Check that micro-batches are equal, and that a problem supports the settings.

        Parameters
        ----------
        levels
            The number of levels.
        other
            A property of the problem with which settings are not supported.

        Raises
        ------
        ValueError
            Naming the key, as a validator does.
        """
        if batch % (self.micro_batches or 1):
            raise rule(
                f"micro_batches: should divide the batch of {batch:,}, got {self.micro_batches:,}"
            )
        if self.reduce_bytes is not None and self.reduce_bytes < element_bytes:
            raise rule(
                f"reduce_bytes: should be no less than element_bytes, {element_bytes}, got"
                f" {self.reduce_bytes}"
            )
        fault = fault_in_levels(all_words(self.shard or "none"), levels)
        if fault:
            raise rule(f"shard: {fault}")
        if other and self.non_default:
            raise rule(f"{next(iter(self.non_default))}: is not supported with {other}")
