"""Registries that plug-ins can extend: solvers, costs, topologies, kinds of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from hypar_opt.errors import HyparError, UnknownNameError

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """A mapping from names to objects, each imported on first look-up.

    Parameters
    ----------
    kind
        The kind of entry, for messages: ``"solver"``.
    group
        The entry-point group through which installed packages add entries.
        They cannot replace a built-in name.
    built_in
        From name to ``"module:attribute"``, as an entry point writes it.
    """

    def __init__(self, kind: str, group: str, built_in: Mapping[str, str]) -> None:
        self._kind = kind
        self._group = group
        self._built_in = {name: EntryPoint(name, at, group) for name, at in built_in.items()}

    def built_in(self) -> list[T]:
        """Return what the package itself has, whatever else is installed."""
        return [self[name] for name in self._built_in]

    def built_in_names(self) -> tuple[str, ...]:
        """Return the names of what the package itself has."""
        return tuple(self._built_in)

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        # Sorted by name, so that lists do not depend on the order of installation.
        installed = sorted(entry_points(group=self._group), key=lambda entry: entry.name)
        return self._built_in | {
            entry.name: entry for entry in installed if entry.name not in self._built_in
        }

    def __getitem__(self, name: str) -> T:
        # Installed packages are searched only for a name that is not built in.
        entry = self._built_in.get(name) or self._entries.get(name)
        if entry is None:
            raise UnknownNameError(self._kind, name, list(self))
        try:
            return cast(T, entry.load())
        except Exception as error:  # a plug-in's module may raise anything on import
            message = f"{self._kind} {name!r} cannot be loaded from {entry.value!r}: {error}"
            raise HyparError(message) from error

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
