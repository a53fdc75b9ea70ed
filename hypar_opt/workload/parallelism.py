"""The choices that a problem offers: data, model and output parallelism."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

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
"""Those of layers on tokens and images too: each sequence, or image, is split, and the weights are
replicated. And those of layers on tokens that are dispatched to experts: these are split. Without
`experts` such layers split experts under `model`, and their features under no choice. And that of
sums that take addends.

Source: docs/model.md."""

EVERY_CHOICE = (*ALL_CHOICES, "queries")
"""With that of attention which ``all`` leaves out: a part has some of the queries of each key-value
head, and all keys and values.

Source: docs/strategies.md."""

OF_RUNS = EVERY_CHOICE[len(CHOICES) :]
"""Those that only the readings of a run charge: a layer has them where its tensors do."""

OF_IMAGES = ("rows", "columns")
"""Those that split images into equal, contiguous parts."""

OF_EQUAL_PARTS = (*OF_IMAGES, "addends")
"""Those that groups of accelerators, whose parts may differ, do not have."""

SETS_OF_CHOICES = tuple(
    (*PAPERS_CHOICES, *some)
    for count in range(len(EVERY_CHOICE) - 1)
    for some in itertools.combinations(EVERY_CHOICE[2:], count)
)
"""The choices that a problem may have: the paper's, with any others."""

TENSOR = "tensor"
"""In stated choices: both `model` and `output`, row- and column-parallel."""


def stated_choices(words: Sequence[str]) -> tuple[str, ...]:
    """Return the choices that a problem states, without `TENSOR`, which includes its two.

    >>> stated_choices(("data", "tensor", "output", "tokens"))
    ('data', 'model', 'output', 'tokens')
    """
    if TENSOR in words:
        words = [word for word in words if word not in CHOICES[1:]]
    split = ((word,) if word != TENSOR else CHOICES[1:] for word in words)
    return tuple(itertools.chain.from_iterable(split))


LEFT_WHOLE = "whole"
"""Beside `ALL_CHOICES` where constraints leave a layer no split: its parts repeat all of its work.

Source: docs/model.md."""

_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def part_word(part: int) -> str:
    """Return the word of all of a layer in one part of H1, by the part's number from 0.

    >>> part_word(0), part_word(7), part_word(8)
    ('first', 'eighth', 'part-9')
    """
    return _ORDINALS[part] if part < len(_ORDINALS) else f"part-{part + 1}"


PART_WORDS = FrozenDict({part_word(part): part for part in range(MAX_PARTS)})
"""All of a layer in one part of H1: between groups of accelerators, or in stages of a pipeline.

By the word the number of the part, from 0."""


def choices_below_h1(choices: Sequence[str]) -> tuple[str, ...]:
    """Return the choices but `PART_WORDS`: those of every level below the one between groups."""
    return tuple(choice for choice in choices if choice not in PART_WORDS)


SCHEDULES = ("1f1b", "gpipe", "zb-h1")
"""Words for the order of passes in stages; with several chunks a device ``1f1b`` is the interleaved
one.

Source: `hypar_opt.simulator.pipeline_order`."""

RECOMPUTED = ("none", "selective", "op", "full")
"""What a backward pass computes again, the least first; ``op``, by operator, is all but products.

Source: docs/memory.md."""

GATHERED = ("once", "again")
"""Whether a tensor that several layers read stays as these read it, or is converted again."""

REDUCE_BYTES = (2, 4)
"""The bytes of an element in which gradients may be reduced and held."""

SHARDED = ("none", "state", "gradients", "weights")
"""What data parallelism splits between its parts: ZeRO's stages in their order."""
