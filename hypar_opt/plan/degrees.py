"""A plan in one sentence: degrees of tensor, data and other parallelism of its layers, and where.

Layers of products with weights count, convolutions and fully-connected ones: others follow them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hypar_opt.frozen import FrozenDict
from hypar_opt.workload.expansion import starred
from hypar_opt.workload.operators.axes import (
    BATCH,
    EXPERTS,
    FALLBACK_REPLICATED,
    SPATIAL,
    TOKENS,
    one_part_choice,
)
from hypar_opt.workload.parallelism import CHOICES, PART_WORDS

if TYPE_CHECKING:
    from hypar_opt.plan.plan import Plan
    from hypar_opt.plan.stages import Stages
    from hypar_opt.workload.operators.axes import Choice

TENSOR, DATA, SIDE = "tensor parallelism", "data parallelism", "in one part of H1"
MODEL, PIPELINE = "model parallelism", "pipeline parallelism"
CONTEXT, EXPERT = "context parallelism", "expert parallelism"
IMAGES, REPLICATED = "spatial parallelism", "replicas"
_OF_AXES = FrozenDict(
    {
        BATCH: DATA,
        TOKENS.axis: CONTEXT,
        EXPERTS.axis: EXPERT,
        **dict.fromkeys(SPATIAL, IMAGES),
        FALLBACK_REPLICATED.axis: REPLICATED,
    }
)

_SHOWN = 3
"""The number of less frequent splits whose layers the sentence names."""

_CHUNKS = 8
"""The most chunks of stages that are listed without abbreviation."""

Kinds = tuple[str, ...]
"""The kind of parallelism of a layer at each level, H1 first."""


def degrees(plan: Plan, first: int = 0) -> str:
    """Return a plan's parallelism in one sentence; empty on one accelerator.

    Parameters
    ----------
    first
        The first level that is described, from 0 for H1.

    >>> import hypar_opt as ho
    >>> degrees(ho.solve("vgg-a", levels=2, search="joint"))
    'conv1_1 to conv5_2: data parallelism 4; fc1 to fc3: model parallelism 4'
    """
    split = {name: ", ".join(_phrases(plan, kinds, first)) for name, kinds in _kinds(plan).items()}
    if plan.levels <= first or not split:
        return ""
    # The most frequent first, else in the order of the layers.
    groups = Counter(split.values()).most_common()
    phrases, shown = [phrase for phrase, _ in groups], _SHOWN + 1
    if [count for _, count in groups[shown:]] == [1]:
        shown += 1  # one more layer takes no more room than a count
    parts = []
    for phrase in phrases[:shown]:
        layers = [name for name, other in split.items() if other == phrase]
        named = f"{_named(plan, layers, abbreviate=2 * len(layers) > len(split))}: "
        parts.append(phrase if len(phrases) == 1 else named + phrase)
    if rest := sum(count for _, count in groups[shown:]):
        parts.append(f"{rest} layers split in other ways")
    return "; ".join([*parts, *_heads(plan)])


def staged(plan: Plan, stages: Stages) -> str:
    """Return a plan's stages in words: ``4 stages of 2: h.0-5 | 6-11 | 12-17 | 18-23``.

    If there are many chunks, only the first ones and the last are listed.
    """
    labels = stages.labels
    if len(labels) > _CHUNKS:
        labels = (*labels[: _CHUNKS - 2], "...", labels[-1])
    chunks = f", {stages.chunks} chunks each" if stages.chunks > 1 else ""
    devices = plan.accelerators // stages.parts
    return f"{stages.parts} stages of {devices:,}{chunks}: {' | '.join(labels)}"


def data_parallelism_below(plan: Plan, first: int) -> str:
    """Return over how many parts of the levels from one on most layers split the batch, and where.

    Levels from 0 for H1.

    >>> import hypar_opt as ho
    >>> plan = ho.solve("lenet-c", array="a100-4x8", solver="data", cost="bytes", batch=256)
    >>> data_parallelism_below(plan, 2), data_parallelism_below(plan, 0)
    ('8 inside the nodes', '32')
    """
    ((kinds, _),) = Counter(_kinds(plan).values()).most_common(1) or (((), 0),)
    levels = [level for level, kind in enumerate(kinds) if kind == DATA and level >= first]
    return f"{plan.hierarchy.parts(levels)}{_location(plan, levels)}"


def _choices(plan: Plan) -> Iterator[tuple[str, tuple[Choice, ...]]]:
    """Yield each layer of products with weights, and its choice at each level."""
    for position, layer in enumerate(plan.network.description.layers):
        if layer.axes.contracted:
            choices = {
                choice.word: choice for choice in (*layer.splits.values(), FALLBACK_REPLICATED)
            }
            words = (row[position] for row in plan.parallelism)
            yield layer.name, tuple(one_part_choice(word) or choices[word] for word in words)


def _kinds(plan: Plan) -> dict[str, Kinds]:
    side = {SIDE: PIPELINE} if plan.is_staged else {}
    kinds = {name: map(kind_of, choices) for name, choices in _choices(plan)}
    return {
        name: tuple(side.get(kind, kind) for kind in kinds_of_levels)
        for name, kinds_of_levels in kinds.items()
    }


def model_or_tensor(choices: Sequence[str]) -> str:
    """Return the name of a split of weights: the paper's, unless both channels may be split.

    Parameters
    ----------
    choices
        A problem's choices; with `output` besides `model`, layers are row- or column-parallel.
    """
    return TENSOR if CHOICES[-1] in choices else MODEL


def kind_of(choice: Choice) -> str:
    """Return the kind of parallelism that a choice is for a layer of products."""
    return SIDE if choice.word in PART_WORDS else _OF_AXES.get(choice.axis, TENSOR)


def _phrases(plan: Plan, kinds: Kinds, first: int) -> Iterator[str]:
    """Yield phrases such as ``tensor parallelism 4 inside the nodes``, for levels from one on."""
    for kind in dict.fromkeys((PIPELINE, TENSOR, *reversed(_OF_AXES.values()))):
        levels = [
            level
            for level, kind_of_level in enumerate(kinds)
            if kind_of_level == kind and level >= first
        ]
        if levels:
            named = model_or_tensor(plan.choices) if kind == TENSOR else kind
            yield f"{named} {plan.hierarchy.parts(levels)}{_location(plan, levels)}"
    if SIDE in kinds:
        yield SIDE


def _location(plan: Plan, levels: Sequence[int]) -> str:
    """Return where in the array some levels are, if its topology has words for it."""
    if plan.array is None or plan.placement is None:
        return ""
    array = plan.array.description
    dimensions = dict(zip(plan.placement, array.dimensions_of(plan.placement), strict=True))
    places = array.topology.places
    crossed = {dimensions[digit] for level in levels for digit in plan.digits[level]}
    # Of a single node all levels are inside.
    return (
        f" {places[crossed.pop()]}"
        if places and len(crossed) == 1 and len({*dimensions.values()}) > 1
        else ""
    )


def _heads(plan: Plan) -> Iterator[str]:
    """Yield the layers whose logits are split by vocabulary."""
    network = plan.network.description
    if getattr(network.input, "vocabulary", None) is None:
        return
    choices = dict(_choices(plan))
    for layer, sources in zip(network.layers, network.sources, strict=True):
        for source in sources if layer.ends else ():
            head = network.layers[source].name
            if source >= 0 and any(choice.axis == "o" for choice in choices.get(head, ())):
                yield f"{head} by vocabulary"


def _named(plan: Plan, layers: Sequence[str], *, abbreviate: bool) -> str:
    """Return the names of some layers, with ranges for neighbours; abbreviated to a few."""
    network = plan.network.description
    all_names = starred((name for name, _ in _choices(plan)), network.repeats)
    names = starred(layers, network.repeats)
    first = all_names.index(names[0]) if names[0] in all_names else -1
    if len(names) > 2 and all_names[first : first + len(names)] == names:
        return f"{names[0]} to {names[-1]}"
    if len(names) <= _SHOWN:
        return ", ".join(names)
    shown = ", ".join(names[:_SHOWN])
    return "most layers" if abbreviate else f"{shown} and {len(names) - _SHOWN} more"
