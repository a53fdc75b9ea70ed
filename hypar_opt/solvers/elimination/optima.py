"""All assignments up to a cost, as rows of every bucket; and the canonical optimum.

Each bucket has the rows (choices of its layer and of its scope) that occur in such an assignment:
those whose total, with the least cost of the rest given the choices of the scope, is at most that.
As the buckets are a tree, the least cost of the rest follows from parent to child, and only for
remaining rows.

At the least cost these are all optima. To fix a choice is to drop rows; what that drops in other
buckets follows from bucket to bucket, wherever the choices of a scope are gone.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypar_opt.errors import RefusedError
from hypar_opt.solvers.elimination.order import check_entries

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from hypar_opt.deadline import Deadline
    from hypar_opt.integers import Integers
    from hypar_opt.solvers.elimination.buckets import Buckets

Rows = NDArray[np.integer]
"""Choices of a bucket's layer and of its scope: ``(1 + scope, rows)``, in few bytes."""


class CostedRows(NamedTuple):
    """Rows of a bucket, and for each the least cost of an assignment in which it occurs."""

    choices: Rows
    minima: Integers


def canonical_optimum(
    buckets: Buckets, sizes: Sequence[int], function: int, deadline: Deadline
) -> list[int]:
    """Return the optimum that is first in canonical order: from the last layer back.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    lowest = buckets.minimum(function)
    optima = _Optima(buckets, sizes, rows_within(lowest, buckets, sizes, function, deadline))
    choices = [0] * len(sizes)
    for layer in range(len(sizes) - 1, -1, -1):
        deadline.check()
        choices[layer] = optima.fix_first(layer)
    return choices


def rows_within(
    cutoff: int,
    buckets: Buckets,
    sizes: Sequence[int],
    function: int,
    deadline: Deadline,
    most_rows: int | None = None,
) -> list[CostedRows]:
    """Return every bucket's rows that occur in an assignment up to a cost.

    Parameters
    ----------
    most_rows
        The most rows of a bucket that are tried; None for any number.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    RefusedError
        If more have to be tried, or those of all buckets have more entries than memory allows.
    """
    order, optimum = buckets.order, buckets.minimum(function)
    narrow, entries = np.min_scalar_type(max(sizes, default=0)), 0
    rows: dict[int, CostedRows] = {}
    # Buckets of one kind below equal rows have equal rows.
    numbers: dict[int, int] = {}
    number_of: dict[Hashable, int] = {}
    worked: dict[Hashable, tuple[int, CostedRows]] = {}
    for layer in reversed(order.layers):
        deadline.check()
        scope, around = order.scopes[layer], None
        key: tuple[Hashable, ...] = (buckets.kinds[layer],)
        if scope:
            among = [scope[0], *order.scopes[scope[0]]]
            places = list(map(among.index, scope))
            key = *key, numbers[scope[0]], *places
            around = CostedRows(rows[scope[0]].choices[places], rows[scope[0]].minima)
        if key not in worked:
            if around is None:
                around = CostedRows(np.zeros((0, 1), narrow), np.array([optimum]))
            else:
                around = _distinct(around, [sizes[n] for n in scope])
            tried = sizes[layer] * len(around.minima)
            if most_rows is not None and tried > most_rows:
                raise RefusedError(f"needs {tried:,} rows")
            check_entries(entries + tried)
            costed = _rows_below(around, cutoff, buckets, layer, function)
            entries += costed.choices.size + costed.minima.size
            lowest = (
                costed.minima.tolist()
                if costed.minima.dtype == object
                else [costed.minima.tobytes()]
            )
            content = costed.choices.tobytes(), *lowest
            worked[key] = number_of.setdefault(content, len(number_of)), costed
        numbers[layer], rows[layer] = worked[key]
    return [rows[layer] for layer in range(len(sizes))]


def _rows_below(
    around: CostedRows, cutoff: int, buckets: Buckets, layer: int, function: int
) -> CostedRows:
    """Return a bucket's rows, given those of its scope."""
    scope, (scope_rows, outside) = buckets.order.scopes[layer], around
    outside = outside - buckets.messages[layer].at(function, *scope_rows)
    total: Integers = outside[None]
    for part in buckets.parts[layer]:
        at_rows = (scope_rows[scope.index(n)] for n in part.scope)
        column = part.charge.at(function, slice(None), *at_rows)
        total = total + (column if part.scope else column[:, None])
    choice, row = np.nonzero(total <= cutoff)
    choices = np.concatenate([choice[None].astype(scope_rows.dtype), scope_rows[:, row]])
    return CostedRows(choices, total[choice, row])


def _distinct(rows: CostedRows, sizes: Sequence[int]) -> CostedRows:
    """Return each distinct row once, with the least of its costs."""
    code = _code(rows.choices, sizes)
    order = code.argsort(kind="stable")
    first = np.flatnonzero(np.diff(code[order], prepend=-1))
    return CostedRows(rows.choices[:, order[first]], np.minimum.reduceat(rows.minima[order], first))


class _Optima:
    """The optima that remain while choices are fixed."""

    def __init__(self, buckets: Buckets, sizes: Sequence[int], rows: list[CostedRows]) -> None:
        self._scopes = buckets.order.scopes
        self._sizes = sizes
        self._rows = [costed.choices for costed in rows]
        self._children: list[list[int]] = [[] for _ in sizes]
        for layer, scope in enumerate(self._scopes):
            if scope:
                self._children[scope[0]].append(layer)

    def fix_first(self, layer: int) -> int:
        """Fix a layer at its first choice that occurs in an optimum, and return it."""
        choices = self._rows[layer][0]
        first = int(choices.min())
        if (choices != first).any():
            self._keep(layer, choices == first)
        return first

    def _keep(self, layer: int, is_kept: NDArray[np.bool_]) -> None:
        """Drop a bucket's other rows, and rows of other buckets that occurred only with these."""
        self._rows[layer] = self._rows[layer][:, is_kept]
        # Away from its origin; on a tree, nothing comes back.
        waiting = [(layer, -1)]
        while waiting:
            current, origin = waiting.pop()
            scope = self._scopes[current]
            links = [(child, child) for child in self._children[current] if child != origin]
            if scope and scope[0] != origin:
                links.append((scope[0], current))
            for neighbour, child in links:
                occurs = np.zeros(prod(self._sizes[n] for n in self._scopes[child]), bool)
                occurs[self._shared(current, child)] = True
                remains = occurs[self._shared(neighbour, child)]
                if not remains.all():
                    self._rows[neighbour] = self._rows[neighbour][:, remains]
                    waiting.append((neighbour, current))

    def _shared(self, layer: int, child: int) -> NDArray[np.intp]:
        """Return, for every row of a bucket, the choices of a child's scope as one number."""
        among, scope = [layer, *self._scopes[layer]], self._scopes[child]
        rows = self._rows[layer][[among.index(n) for n in scope]]
        return _code(rows, [self._sizes[n] for n in scope])


def _code(rows: Rows, sizes: Sequence[int]) -> NDArray[np.intp]:
    """Return every row's choices as one number: its digits, in mixed radix."""
    code: NDArray[np.intp] = np.zeros(rows.shape[1], np.intp)
    for size, choices in zip(sizes, rows, strict=True):
        code = code * size + choices
    return code
