"""The words of the choices of all kinds of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.axes import (
    EXPERTS,
    FALLBACK_REPLICATED,
    REPLICATED,
    REPLICATING,
    Choice,
    one_part_choice,
)
from hypar_opt.workload.parallelism import CHOICES, WHOLE_LAYER

if TYPE_CHECKING:
    from hypar_opt.workload.layer_tensors import LayerTensors

REPLICATED_WORDS = frozenset((CHOICES[-1], WHOLE_LAYER))
"""The choices of a problem under which layers may be whole."""


def choice_of(word: str) -> Choice | None:
    """Return the choice that a word names in any kind of layer; None if it names none."""
    part = one_part_choice(word)
    return part or next((choice for choice in _choices() if choice.word == word), None)


def words_of(layer: LayerTensors, choices: Sequence[str]) -> tuple[str | None, ...]:
    """Return a layer's words for a problem's choices; None for a choice that its kind lacks."""
    return tuple(choice.word if choice else None for choice in choices_of(layer, choices))


def choices_of(layer: LayerTensors, choices: Sequence[str]) -> tuple[Choice | None, ...]:
    """Return the choices of a layer's kind for those of a problem; None for one that it lacks.

    Where a problem does not offer `experts`, dispatched tokens are split by expert under `model`,
    and by feature under no choice.
    """
    splits = layer.operator.splits
    if EXPERTS.word not in choices and EXPERTS in splits.values() and layer.has(EXPERTS):
        whole = {
            word: choice for word, choice in splits.items() if choice.axis in ("", *REPLICATING)
        }
        splits = whole | {"model": EXPERTS}
    return choices_of_kind(splits, choices)


def choices_of_kind(
    splits: Mapping[str, Choice], choices: Sequence[str]
) -> tuple[Choice | None, ...]:
    """Return a kind's choices for those of a problem; None for one that it lacks.

    As a last resort every kind may be whole, even if it does not declare so: under `output` if it
    has no split of that name, else under `whole`.
    """
    row = [splits.get(word) or one_part_choice(word) for word in choices]
    free = (n for n, word in enumerate(choices) if row[n] is None and word in REPLICATED_WORDS)
    column = None if REPLICATED in row else next(free, None)
    if column is not None:
        row[column] = FALLBACK_REPLICATED
    return tuple(row)


def _choices() -> Iterator[Choice]:
    yield REPLICATED
    # Built-in kinds first: listing installed plug-ins takes a search of the environment.
    for operator in OPERATORS.built_in():
        yield from operator.choices.values()
    for kind in OPERATORS:
        try:
            yield from OPERATORS[kind].choices.values()
        except HyparError:  # a broken plug-in: reported when its own kind is looked up
            continue
