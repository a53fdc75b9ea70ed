"""Base classes of results: shown in one line, on a terminal or in a notebook, and as rows."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure
    from rich.console import RenderableType


class Views(Protocol):
    """What shows a result in full: `hypar_opt.display.terminal.views`."""

    def view(self, result: Any) -> RenderableType:
        """Return what a terminal shows."""

    def html(self, result: Any) -> str:
        """Return a fragment of HTML for a notebook."""

    def plot(self, result: Any, file: str | Path | None) -> Figure:
        """Return a result's picture, and save it if a file is named."""


def _views() -> Views:
    # Results are made far below the room that shows them, which only the package itself names.
    views: Views = sys.modules["hypar_opt"]._views()
    return views


class Displayed:
    """A result that rich and notebooks show in full, and `repr` in one line."""

    def __rich__(self) -> RenderableType:
        """Return the view that the command line prints."""
        return _views().view(self)

    def _repr_html_(self) -> str:
        return _views().html(self)

    def plot(self, file: str | Path | None = None) -> Figure:
        """Draw the result as the command line's ``--picture`` does.

        Parameters
        ----------
        file
            Also save it: ``.png``, ``.svg`` or ``.pdf``.

        Raises
        ------
        HyparError
            If there is no picture of it, matplotlib is not installed, or it cannot be saved.
        """
        return _views().plot(self, file)


Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Results(Displayed, Sequence[Entry], Generic[Entry]):
    """A sequence of results.

    Parameters
    ----------
    entries
        The results themselves.
    """

    entries: tuple[Entry, ...]

    def __len__(self) -> int:
        return len(self.entries)

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Entry, ...]: ...
    def __getitem__(self, index: int | slice) -> Entry | tuple[Entry, ...]:
        return self.entries[index]

    @abstractmethod
    def __repr__(self) -> str: ...

    def rows(self) -> list[dict[str, Any]]:
        """Return a flat dictionary for each entry: the rows of a data frame."""
        return [dict(vars(entry)) for entry in self]
