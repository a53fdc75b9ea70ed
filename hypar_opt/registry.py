"""Registries that plug-ins can extend: solvers, costs, topologies, kinds of layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from importlib.metadata import EntryPoint, entry_points
from traceback import walk_tb
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from hypar_opt.errors import HyparError, UnknownNameError

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")

_plug_ins: dict[tuple[str, str], str] = {}
"""Loaded classes of other packages, by module and name: ``cost 'dollars'``."""


def plug_in_of(traceback: TracebackType | None) -> str | None:
    """Return the plug-in whose code raised an exception, or called code that did; else None."""
    frames = [frame for frame, _ in walk_tb(traceback)]
    names = ((f.f_globals.get("__name__"), f.f_code.co_qualname.split(".")[0]) for f in frames)
    return next((_plug_ins[name] for name in names if name in _plug_ins), None)


@cache
def _loaded(entry: EntryPoint) -> object:
    """Return one of the package's own entries, imported once."""
    return entry.load()


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
        From name to ``"module:attribute"``, in the notation of entry points.
    base
        The class from which entries derive, in the same notation.
    """

    def __init__(self, kind: str, group: str, built_in: Mapping[str, str], base: str) -> None:
        self._kind = kind
        self._group = group
        self._base = EntryPoint(group, base, group)
        self._built_in = {name: EntryPoint(name, at, group) for name, at in built_in.items()}

    def built_in(self) -> list[T]:
        """Return the package's own entries, without plug-ins."""
        return [self[name] for name in self._built_in]

    def built_in_names(self) -> tuple[str, ...]:
        """Return the names of the package's own entries."""
        return tuple(self._built_in)

    @cached_property
    def _entries(self) -> dict[str, EntryPoint]:
        # Sorted by name, so that lists do not depend on the order of installation.
        installed = sorted(entry_points(group=self._group), key=lambda entry: entry.name)
        return self._built_in | {
            entry.name: entry for entry in installed if entry.name not in self._built_in
        }

    def __getitem__(self, name: str) -> T:
        if not isinstance(name, str):
            raise UnknownNameError(self._kind, name, list(self))
        # Installed packages are searched only for names that are not built in.
        entry = self._built_in.get(name) or self._entries.get(name)
        if entry is None:
            raise UnknownNameError(self._kind, name, list(self))
        if name in self._built_in:
            return cast(T, _loaded(entry))
        try:
            loaded = entry.load()
            problem = self._lacks(loaded)
        except (Exception, SystemExit) as error:  # a plug-in's module may raise anything
            problem = f"{type(error).__name__}: {error}"
        if problem is not None:
            where = f"cannot be loaded from {entry.value!r}"
            raise HyparError(f"{self._kind} {name!r} {where}: {problem}")
        _plug_ins[entry.module, entry.attr] = f"{self._kind} {name!r}"
        return cast(T, loaded)

    def _lacks(self, loaded: object) -> str | None:
        """Return why an object of another package is no valid entry; None if it is one."""
        base = self._base.load()
        if not (isinstance(loaded, type) and issubclass(loaded, base)):
            return f"should be a class that derives from {base.__module__}.{base.__name__}"
        # Members that the base class declares without a value.
        stated = (
            name
            for own in loaded.__mro__
            for name, kind in vars(own).get("__annotations__", {}).items()
            if "ClassVar" in str(kind)
        )
        lacking = [*getattr(loaded, "__abstractmethods__", ())]
        lacking += [name for name in stated if not hasattr(loaded, name)]
        return f"should define {', '.join(sorted(lacking))}" if lacking else None

    def __contains__(self, name: object) -> bool:
        return name in self._built_in or name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
