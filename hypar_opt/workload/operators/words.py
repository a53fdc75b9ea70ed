"""The words of the choices of all kinds of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hypar_opt.errors import HyparError
from hypar_opt.workload.operators import OPERATORS
from hypar_opt.workload.operators.axes import EXPERTS, ON_ONE_SIDE, REPLICATING, Choice

if TYPE_CHECKING:
    from hypar_opt.workload.layer_tensors import LayerTensors


def choice_of(word: str) -> Choice | None:
    """Return the choice that a word names in any kind of layer; None if it names none."""
    return next((choice for choice in _choices() if choice.word == word), None)


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
        others = {word: own for word, own in splits.items() if own.axis in ("", *REPLICATING)}
        splits = others | {"model": EXPERTS}
    return tuple(splits.get(word) or ON_ONE_SIDE.get(word) for word in choices)


def _choices() -> Iterator[Choice]:
    yield from ON_ONE_SIDE.values()
    # Built-in kinds first: listing installed plug-ins takes a search of the environment.
    for operator in OPERATORS.built_in():
        yield from operator.choices.values()
    for kind in OPERATORS:
        try:
            yield from OPERATORS[kind].choices.values()
        except HyparError:  # a broken plug-in: reported when its own kind is looked up
            continue
