"""Base classes of results: shown as one line, on a terminal or in a notebook, and as rows."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, reduce
from itertools import groupby
from operator import attrgetter, or_
from types import FunctionType, SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_type_hints,
    overload,
)

if TYPE_CHECKING:
    from pathlib import Path

    from altair import TopLevelMixin
    from pydantic import BaseModel
    from rich.console import RenderableType

Number = int | float
Form = Callable[[Any], str]
"""Formats the values of a column for people: `str` for text."""

_NEVER = object()


@dataclass(frozen=True)
class Column:
    """A column of a result's entries: its name, where its value is found, and its format.

    Parameters
    ----------
    name
        The name in rows and CSV, and in JSON unless ``path`` is given; empty for tables only.
    heading
        The heading on a terminal and in a notebook; None if no table has the column.
    form
        Its format in tables. Values of any format but `str` are numbers, which are aligned right.
    of
        The attribute of the entry, as ``plan.cost.total``, a method that returns the value, or a
        function of the entry; by default the attribute of the column's name, or the value of a row.
    path
        The key in JSON, where dots nest: ``measured.seconds``. An object with a question mark, as
        ``calculated?.seconds``, is null where all of its values are.
    type
        The value's type; by default that of the attribute in the entry's class. `Columns` for a
        list of objects, or `Nullable` for a single object.
    absent
        The value that rows and JSON leave out.
    shown
        Whether the table of some entries has the column.
    """

    name: str
    heading: str | None = None
    form: Form = str
    of: str | Callable[[Any], Any] | None = None
    path: str | None = None
    type: Any = None
    absent: Any = _NEVER
    shown: Callable[[Sequence[Any]], bool] = lambda _: True

    @cached_property
    def _value(self) -> Callable[[Any], Any]:
        return self.of if callable(self.of) else attrgetter(self.of or self.name)

    def value(self, entry: Any) -> Any:
        """Return the value of an entry."""
        if self.of is None and isinstance(entry, Mapping):
            return entry[self.name] if self.absent is _NEVER else entry.get(self.name, self.absent)
        value = self._value(entry)
        value = value() if callable(value) else value
        return str(value) if isinstance(value, str) else value

    @property
    def keys(self) -> list[str]:
        """The path of keys in JSON, the outermost first; empty if the column is not in JSON."""
        path = self.name if self.path is None else self.path
        return path.split(".") if path else []

    def typed(self, entry: Any) -> Self:
        """Return the column with its type, for the class of entries."""
        if self.type is not None or callable(self.of):
            return self
        return replace(self, type=reduce(_type_of, (self.of or self.name).split("."), entry))


class Columns(tuple[Column, ...]):
    """The columns of a result's entries, from which rows, JSON, its types and tables follow.

    Parameters
    ----------
    columns
        A string stands for the attribute of that name.
    entry
        The class of entries; for a document the result's class, which is filled in.
    """

    entry: type | None

    def __new__(cls, *columns: Column | str, entry: type | None = None) -> Self:
        stated = (Column(name) if isinstance(name, str) else name for name in columns)
        new = super().__new__(cls, stated)
        new.entry = entry
        return new

    @classmethod
    def of(cls, entry: type) -> Self:
        """Return a column for each field of a dataclass."""
        return cls(*(field.name for field in fields(entry)), entry=entry)

    def select(self, *names: str) -> Columns:
        """Return some of the columns, in the order of their names."""
        by_name = {column.name: column for column in self}
        return Columns(*(by_name[name] for name in names), entry=self.entry)

    def row(self, entry: Any) -> dict[str, Any]:
        """Return the flat dictionary of an entry."""
        values = ((column, column.value(entry)) for column in self if column.name)
        return {column.name: value for column, value in values if value != column.absent}

    def document(self, entry: Any) -> dict[str, Any]:
        """Return an entry as plain data."""
        document: dict[str, Any] = {}
        for column in self:
            value = column.value(entry)
            if not column.keys or value == column.absent:
                continue
            *outer, last = column.keys
            inside = reduce(lambda inside, key: inside.setdefault(key, {}), outer, document)
            inside[last] = _plain(value, column.type)
        return {
            key.removesuffix("?"): None if key.endswith("?") and _is_empty(value) else value
            for key, value in document.items()
        }

    def headed(self, entries: Sequence[Any]) -> list[Column]:
        """Return the columns that a table of some entries has."""
        return [column for column in self if column.heading is not None and column.shown(entries)]

    @property
    def typed(self) -> list[Column]:
        """The columns of JSON, with their types."""
        return [column.typed(self.entry) for column in self if column.keys]

    def model(self, name: str) -> type[BaseModel]:
        """Return the type of a document, under a name."""
        return _model(name, [(column.keys, column) for column in self.typed])


class Nullable(NamedTuple):
    """The type of an object, or null."""

    columns: Columns


def _plain(value: Any, kind: Any) -> Any:
    if isinstance(kind, Nullable):
        return value and kind.columns.document(value)
    if isinstance(kind, Columns):
        return [kind.document(entry) for entry in value]
    if isinstance(value, Documented):
        return value.document()
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(part, None) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part, None) for part in value]
    return str(value) if isinstance(value, str) else value


def _is_empty(values: Mapping[str, Any]) -> bool:
    return all(value is None for value in values.values())


def _type_of(kind: Any, name: str) -> Any:
    """Return the type of a field, or the return type of a property or method."""
    for base in kind.__mro__:
        member = vars(base).get(name)
        if isinstance(member, property | cached_property):
            member = member.fget if isinstance(member, property) else member.func
        if isinstance(member, FunctionType):
            return get_type_hints(member)["return"]
        if name in (stated := vars(base).get("__annotations__", {})):
            # Only this annotation: others may name imports for type checkers only.
            alone = SimpleNamespace(__annotations__={name: stated[name]})
            return get_type_hints(alone, vars(sys.modules[base.__module__]))[name]
    raise AttributeError(f"{kind} has no {name}")


def _model(name: str, columns: Sequence[tuple[Sequence[str], Column]]) -> type[BaseModel]:
    from pydantic import ConfigDict, Field, create_model

    types: dict[str, Any] = {}
    for key, (*grouped,) in groupby(columns, key=lambda pair: pair[0][0]):
        word = key.removesuffix("?")
        inner_name = f"{name}{word.title().replace('_', '')}"
        (keys, column), *_ = inner = [(keys[1:], column) for keys, column in grouped]
        kind = _model(inner_name, inner) if keys else _type(inner_name, column.type)
        kind = kind if key == word else kind | None
        always = column.absent is _NEVER or keys
        types[word] = (kind, ... if always else Field(default_factory=type(None)))
    return create_model(name, __config__=ConfigDict(extra="forbid"), **types)


def _type(name: str, kind: Any) -> Any:
    if isinstance(kind, UnionType):
        return reduce(or_, (_type(name, member) for member in get_args(kind)))
    if isinstance(kind, Columns):
        model: Any = kind.model(name)
        return tuple[model, ...]
    if isinstance(kind, Nullable):
        return kind.columns.model(name) | None
    if isinstance(kind, type) and issubclass(kind, Documented):
        return kind.contents.model(kind.__name__)
    return kind


class Views(Protocol):
    """The views of a result in full: `hypar_opt.display.terminal.views`."""

    def view(self, result: Any) -> RenderableType:
        """Return what a terminal shows."""

    def html(self, result: Any) -> str:
        """Return a fragment of HTML for a notebook."""

    def figure(self, result: Any, file: str | Path | None) -> TopLevelMixin:
        """Return a result's figure, and save it if a file is named."""


def _views() -> Views:
    # Results are created far below the display package, which only the package's root imports.
    views: Views = sys.modules["hypar_opt"]._views()
    return views


class Displayed:
    """A result that rich and notebooks show in full, and `repr` in one line."""

    def __rich__(self) -> RenderableType:
        """Return the view that the command line prints."""
        return _views().view(self)

    def _repr_html_(self) -> str:
        return _views().html(self)

    def figure(self, file: str | Path | None = None) -> TopLevelMixin:
        """Return what the command line's ``--picture`` draws, as a chart of Altair.

        Parameters
        ----------
        file
            Also save it: ``.png``, ``.svg`` or ``.pdf``.

        Raises
        ------
        HyparError
            If there is no figure of it, the extra ``figures`` is missing, or it cannot be saved.
        """
        return _views().figure(self, file)


class Documented(Displayed):
    """A result that is also a document, which the command line prints with ``--json``."""

    contents: ClassVar[Columns]
    """The columns of the document."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "contents" in vars(cls):
            cls.contents.entry = cls

    def document(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return self.contents.document(self)


Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Results(Displayed, Sequence[Entry], Generic[Entry]):
    """A sequence of results.

    Parameters
    ----------
    entries
        The individual results.
    """

    entries: tuple[Entry, ...]
    row_columns: ClassVar[Columns]
    """The columns of the entries."""

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
        return [*map(self.row_columns.row, self)]
