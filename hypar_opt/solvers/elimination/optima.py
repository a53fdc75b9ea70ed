"""All optima of an eliminated table, as rows of every bucket, and the canonical one of them.

An assignment is optimal if and only if, in every bucket, the layer's choice attains the
minimum, given the choices of its scope. So each bucket has the rows (choices of its layer and
of its scope) that occur in an optimum. To fix a choice is to drop rows; what that drops in
other buckets follows from bucket to bucket, wherever the choices of a scope are gone. As the
buckets are a tree, every row that is left then occurs in an optimum.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypar_opt.costs.table import Integers
    from hypar_opt.deadline import Deadline
    from hypar_opt.solvers.elimination.buckets import Buckets

Rows = NDArray[np.intp]
"""Choices of a bucket's layer and of its scope: ``(1 + scope, rows)``."""


def canonical_optimum(
    buckets: Buckets, sizes: Sequence[int], function: int, deadline: Deadline
) -> list[int]:
    """Return the optimum that is first in canonical order: from the last layer back.

    Raises
    ------
    NoAnswerError
        If the deadline passes.
    """
    optima = _Optima(buckets, sizes, _optimal_rows(buckets, sizes, function, deadline))
    choices = [0] * len(sizes)
    for layer in range(len(sizes) - 1, -1, -1):
        deadline.check()
        choices[layer] = optima.fix_first(layer)
    return choices


def _optimal_rows(
    buckets: Buckets, sizes: Sequence[int], function: int, deadline: Deadline
) -> list[Rows]:
    """Return every bucket's rows that occur in an optimum."""
    order = buckets.order
    charge_dtype = buckets.messages[0].dtype
    rows: list[Rows] = [np.zeros((1, 1), np.intp)] * len(order.scopes)
    for layer in reversed(order.layers):
        deadline.check()
        scope = order.scopes[layer]
        scope_rows = np.zeros((0, 1), np.intp)
        if scope:
            parent = scope[0]
            among = [parent, *order.scopes[parent]]
            scope_rows = rows[parent][[among.index(n) for n in scope]]
            # Distinct rows: the last of equal ones is kept.
            code = _code(scope_rows, [sizes[n] for n in scope])
            at = np.full(prod(sizes[n] for n in scope), -1)
            at[code] = np.arange(len(code))
            scope_rows = scope_rows[:, at[at >= 0]]
        total: Integers = np.zeros((sizes[layer], scope_rows.shape[1]), charge_dtype)
        for part in buckets.parts[layer]:
            at_rows = (slice(None), *(scope_rows[scope.index(n)] for n in part.scope))
            column = part.of(function)[at_rows]
            total += column if part.scope else column[:, None]
        choice, row = np.nonzero(total == total.min(axis=0))
        rows[layer] = np.concatenate([choice[None], scope_rows[:, row]])
    return rows


class _Optima:
    """The optima that remain while choices are fixed."""

    def __init__(self, buckets: Buckets, sizes: Sequence[int], rows: list[Rows]) -> None:
        self._scopes = buckets.order.scopes
        self._sizes = sizes
        self._rows = rows
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

    def _keep(self, layer: int, kept: NDArray[np.bool_]) -> None:
        """Drop a bucket's other rows, and rows of other buckets that occurred only with these."""
        self._rows[layer] = self._rows[layer][:, kept]
        # Away from where it comes from; on a tree, nothing comes back.
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
                left = occurs[self._shared(neighbour, child)]
                if not left.all():
                    self._rows[neighbour] = self._rows[neighbour][:, left]
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
