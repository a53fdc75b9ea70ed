"""The choices that a problem offers: data, model and output parallelism."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hypar_opt.errors import HyparError
from hypar_opt.frozen import FrozenDict
from hypar_opt.hierarchy import MAX_PARTS

CHOICES = ("data", "model", "output")
"""The ways to split a layer at a level, in canonical order: ties go to the earlier choice.

Data parallelism splits the batch and replicates the kernel; model parallelism splits the kernel by
input channel, and the layer's input with it; output parallelism splits the kernel by output
channel, and the layer's output with it. Each kind of layer declares the axis that it splits under a
choice, and its word for that (`hypar_opt.workload.operators.base.Operator.choices`).

Source: section 3.1; for ``output``, Song et al., "AccPar", HPCA 2020, Type III."""

PAPERS_CHOICES = CHOICES[:2]

ALL_CHOICES = (*CHOICES, "tokens", "rows", "columns", "experts", "addends")
"""`CHOICES` and those of layers on sequences and images (each sequence or image is split, the
weights are replicated), of layers on dispatched tokens (experts are split), and of sums that take
partial sums. Without `experts`, layers on dispatched tokens split experts under `model`, and their
features under no choice.

Source: docs/model.md."""

CHOICES_WITH_QUERIES = (*ALL_CHOICES, "queries")
"""`ALL_CHOICES` and the one that ``all`` leaves out: each part of an attention layer has a share of
the queries of each key-value head, and all keys and values.

Source: docs/strategies.md."""

RUN_CHOICES = CHOICES_WITH_QUERIES[len(CHOICES) :]
"""The choices that the paper's reading of costs does not charge; a layer has one if its tensors
have the axis that it splits."""

IMAGE_CHOICES = ("rows", "columns")
"""The choices that split images into equal, contiguous parts."""

EQUAL_PART_CHOICES = (*IMAGE_CHOICES, "addends")
"""The choices that need equal parts, so that levels between groups of accelerators lack them."""

SETS_OF_CHOICES = tuple(
    (*PAPERS_CHOICES, *some)
    for count in range(len(CHOICES_WITH_QUERIES) - 1)
    for some in itertools.combinations(CHOICES_WITH_QUERIES[2:], count)
)
"""The choices that a problem may have: the paper's, with any others."""

TENSOR = "tensor"
"""Stands in stated choices for both `model` and `output`: tensor parallelism, by row and by
column."""


def stated_choices(words: Sequence[str]) -> tuple[str, ...]:
    """Return the choices that a problem states, without `TENSOR`.

    Raises
    ------
    HyparError
        If it is beside one of its two.

    >>> stated_choices(("data", "tensor", "tokens"))
    ('data', 'model', 'output', 'tokens')
    """
    if TENSOR in words and not {*words}.isdisjoint(CHOICES[1:]):
        both = " and ".join(CHOICES[1:])
        raise HyparError(f"{TENSOR} is {both}: leave these out, got {', '.join(words)}")
    split = ((word,) if word != TENSOR else CHOICES[1:] for word in words)
    return tuple(itertools.chain.from_iterable(split))


WHOLE_LAYER = "whole"
"""The last resort where constraints leave a layer no split: every part repeats all of its work.

Source: docs/model.md."""

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def part_word(part: int) -> str:
    """Return the choice that puts a whole layer in one part of H1, numbered from 0.

    >>> part_word(0), part_word(7), part_word(8)
    ('first', 'eighth', 'part-9')
    """
    return _ORDINALS[part] if part < len(_ORDINALS) else f"part-{part + 1}"


PART_WORDS = FrozenDict({part_word(part): part for part in range(MAX_PARTS)})
"""The choices that put a whole layer in one part of H1: one group of accelerators, or one stage.

Each maps to the number of the part, from 0."""


def choices_below_h1(choices: Sequence[str]) -> tuple[str, ...]:
    """Return the choices without `PART_WORDS`, which only H1 has."""
    return tuple(choice for choice in choices if choice not in PART_WORDS)


SCHEDULES = ("1f1b", "gpipe", "zb-h1")
"""Pipeline schedules; with several chunks per device ``1f1b`` is the interleaved one.

Source: `hypar_opt.simulator.pipeline_order`."""

RECOMPUTED = ("none", "selective", "op", "full")
"""What a backward pass recomputes, least first; ``op`` recomputes all but matrix products.

Source: docs/memory.md."""

GATHERED = ("once", "again")
"""Whether a shared tensor stays in memory as its readers read it, or is gathered again for the
backward pass."""

REDUCE_BYTES = (2, 4)
"""Bytes per element in which gradients may be reduced and accumulated."""

SHARDED = ("none", "state", "gradients", "weights")
"""What data parallelism splits between its parts: ZeRO's stages in their order."""
