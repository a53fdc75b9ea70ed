"""Into how many parts the axes of nodes may be split: by a rule, and images evenly."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from hypar_opt.workload.operators.axes import SPATIAL
from hypar_opt.workload.parallelism import IMAGE_CHOICES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hypar_opt.hierarchy import SplitRule
    from hypar_opt.workload.tensors import Workload


@lru_cache(maxsize=16)
def spatial_columns(workload: Workload) -> tuple[int, ...]:
    """Return the columns of the choices that split images: rows, and columns."""
    return tuple(
        column
        for column in range(len(workload.choices))
        if any(
            (choice := choices[column]) and choice.axis in SPATIAL
            for choices in workload.choices_of_nodes
        )
    )


@lru_cache(maxsize=16)
def max_parts(workload: Workload) -> NDArray[np.object_]:
    """Return the maximum parts of choices that split images, else 0: ``(choices, nodes)``.

    Parts are equal, and no shorter than the halos that they exchange.
    """
    limits = [
        [
            node.borders[choice.axis].max_parts if choice and choice.axis in node.borders else 0
            for choice in choices
        ]
        for node, choices in zip(workload.nodes, workload.choices_of_nodes, strict=True)
    ]
    return np.array(limits, object).T


def may_split(
    workload: Workload, rule: SplitRule | None, parts: Any, choices: Any, nodes: Any
) -> Any:
    """Return whether the given choices may split the given nodes into ``parts`` parts.

    Parameters
    ----------
    parts
        A number, or an array that broadcasts with the selection.
    choices, nodes
        Indices of both: numbers, slices or arrays.
    """
    sizes = workload.split_sizes[choices, nodes]
    fits = True if rule is None else rule.allows(sizes, parts)
    if not spatial_columns(workload):
        return fits
    limit = max_parts(workload)[choices, nodes]
    return fits & ((limit == 0) | ((sizes % parts == 0) & (parts <= limit)))


def may_split_tensors(
    workload: Workload, rule: SplitRule | None, parts: Sequence[int]
) -> NDArray[np.bool_]:
    """Return whether each shared tensor may be split into ``parts`` parts: ``(shared,)``.

    Parameters
    ----------
    parts : (choices,)
        Choices beyond these split nothing yet.
    """
    allowed, tensors = np.ones(workload.shared, bool), list(workload.tensor_writers)
    if rule is not None and tensors:
        count = len(workload.choices)
        divisors = np.array([*parts, *[1] * count][:count], object)[:, None]
        lacks = workload.forbidden[tensors].T & (divisors > 1).astype(bool)
        fits = may_split(workload, rule, divisors, slice(None), tensors)
        allowed[tensors] = (np.array(fits, bool) & ~lacks).all(axis=0)
    return allowed


def divides_images(workload: Workload, parts: NDArray[Any]) -> bool:
    """Return whether all nodes may split their rows and columns into ``parts`` parts.

    Parameters
    ----------
    parts : (choices, nodes)
    """
    nodes = np.arange(len(workload.nodes))
    return all(
        ((parts[column] == 1) | may_split(workload, None, parts[column], column, nodes)).all()
        and not (workload.forbidden[:, column] & (parts[column] > 1)).any()
        for column, word in enumerate(workload.choices)
        if word in IMAGE_CHOICES
    )
