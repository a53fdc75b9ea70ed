"""How a step trains: micro-batches, recomputation, and what data parallelism shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import PlainValidator

from hypar_opt.documents.document import Document, Size, rule
from hypar_opt.documents.parsing import shown
from hypar_opt.workload.parallelism import RECOMPUTED
from hypar_opt.workload.patterns import Words, all_words, parsed_words
from hypar_opt.workload.shards import fault_in_levels, shards_of


def _one_of(known: tuple[str, ...]) -> Callable[[str], object]:
    def check(word: str) -> None:
        if word not in known:
            raise ValueError(f"{', '.join(known[:-1])} or {known[-1]}")

    return check


def _words(what: str, check: Callable[[str], object]) -> PlainValidator:
    """Return the check of a word, or of words by layer.

    Parameters
    ----------
    check
        Raises a ValueError that says what a word should be.
    """

    def words(value: Any) -> Words | None:
        if value is None:
            return None
        found = parsed_words(value, what) if isinstance(value, str | Mapping) else value
        for word in all_words(found) if isinstance(found, str | Mapping) else [found]:
            try:
                check(word if isinstance(word, str) else "")
            except ValueError as error:
                raise rule(f"should be {error}, got {shown(word)}") from None
        return found

    return PlainValidator(words, json_schema_input_type=_Words)


_Words = str | dict[str, str] | None


class Training(Document):
    """How a step trains: what it repeats, and what its accelerators share out among them.

    Words are those of all layers, or by layer, block or pattern, with ``*`` for all others. None,
    and layers without a word, are left to the search where the memory of accelerators limits it,
    and else the default.
    """

    micro_batches: Size | None = None
    """The equal parts of the batch that pass one after the other; their gradients accumulate."""
    recompute: Annotated[Words | None, _words("recompute", _one_of(RECOMPUTED))] = None
    """What the backward pass computes again: ``none``; ``selective``: layers whose inner tensor is
    large (attention); ``full``: all layers of the network's blocks, exchanges included."""
    shard: Annotated[Words | None, _words("shard", shards_of)] = None
    """What data parallelism splits between its parts: ``none``; the optimizer's ``state`` (ZeRO-1);
    ``gradients``, too (ZeRO-2); or ``weights``, too (ZeRO-3, FSDP). From a level down, as
    ``weights@H4-H6``, it is whole in each part of the levels above; ``state+weights@H4-H6`` splits
    the state there, too."""

    @property
    def stated(self) -> dict[str, Any]:
        """What is stated, by name."""
        return {name: value for name, value in dict(self).items() if value is not None}

    @property
    def unlike_defaults(self) -> dict[str, Any]:
        """What is stated and not the default, by name."""
        return {name: value for name, value in self.stated.items() if value not in (1, "none")}

    @property
    def alike(self) -> str:
        """What qualifies a claim about plans that train in this way, and in no other, as text."""
        return ", of plans that train alike" if self.unlike_defaults else ""

    @property
    def by_layer(self) -> bool:
        """Whether layers train in different ways."""
        return isinstance(self.recompute, Mapping) or isinstance(self.shard, Mapping)

    @property
    def by_level(self) -> bool:
        """Whether levels split different things."""
        return self.shard is not None and any("@" in word for word in all_words(self.shard))

    def check(self, batch: int, levels: int, other: str | None) -> None:
        """Check that micro-batches are equal, and that a problem trains by them.

        Parameters
        ----------
        levels
            How many there are.
        other
            What the problem is and does not go with them.

        Raises
        ------
        ValueError
            Naming the key, as a validator does.
        """
        if batch % (self.micro_batches or 1):
            raise rule(
                f"micro_batches: should divide the batch of {batch:,}, got {self.micro_batches:,}"
            )
        fault = fault_in_levels(all_words(self.shard or "none"), levels)
        if fault:
            raise rule(f"shard: {fault}")
        if other and self.unlike_defaults:
            raise rule(f"{next(iter(self.unlike_defaults))}: is not supported with {other}")
