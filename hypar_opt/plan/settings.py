"""Other values for keys of a network's or an array's file, as ``topology.link.bandwidth``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from hypar_opt.checked import plain
from hypar_opt.documents.document import validate
from hypar_opt.documents.parsing import check_values, shown
from hypar_opt.errors import ARRAY, HyparError, InputError, argument, printable, unknown
from hypar_opt.hardware.array import Array
from hypar_opt.hardware.arrays import find_array
from hypar_opt.plan.arguments import ProblemArguments
from hypar_opt.plan.problem import ArrayRecord
from hypar_opt.workload.network import Network
from hypar_opt.workload.omitted import updated_remarks
from hypar_opt.workload.routers import with_counts
from hypar_opt.workload.sequence_length import with_tokens

_FIXED = frozenset({"name", "schema", "source"})
"""Keys that identify a file: other values would not describe another machine or network."""

_TOKENS = "input.tokens"

_LISTED = 8
"""The most keys that a message about an ambiguous key lists."""

UNITS = {
    "B/s": "bytes_per_second",
    "op/s": "operations_per_second",
    "s": "seconds",
    "J": "joules",
    "B": "bytes",
}
"""Base units of quantities, as a column's name ends."""

_QUANTITY = re.compile(rf"([0-9.]+(?:e[+-]?[0-9]+)?) ({'|'.join(UNITS)})")
"""A quantity as a description writes it."""

Location = tuple[str | int, ...]
"""``"network"`` or ``"array"``, then the keys, and positions in lists, down to a value."""


@dataclass(frozen=True)
class Changed:
    """A network and an array in which some keys have other values.

    Parameters
    ----------
    network, array
        Named after the changes, so that no result is mistaken for the original's.
    columns
        The values as cells of a table. A column's name is the key in full, with underscores, so
        that SQL takes it without quotes, and for a quantity the base unit of its number.
    """

    network: Network | None
    array: Array | None
    columns: dict[str, Any]


def with_settings(
    network: Network, arguments: ProblemArguments, settings: Mapping[str, Any] | None
) -> tuple[Network, ProblemArguments]:
    """Return a network, and a problem's arguments with their array, after setting some keys.

    Raises
    ------
    HyparError
        As `changed` does.
    """
    settings = plain(settings)
    if settings is None or settings == {}:
        return network, arguments
    array = arguments.get("array")
    if isinstance(array, ArrayRecord):
        array = array.description
    result = changed(network, None if array is None else find_array(array), settings)
    return result.network or network, {**arguments, "array": result.array}


def changed(
    network: Network | None, array: Array | None, settings: Mapping[str, Any], *, where: str = ""
) -> Changed:
    """Set keys of a network's or an array's file, and validate both as such files are.

    Parameters
    ----------
    settings
        Values by key. A key is a path of keys, such as ``topology.link.bandwidth``, with the names
        of layers and blocks in it, such as ``layer.fc1.units``; its first keys may be left out if
        the others are those of a single key. Values are those of a file.
    where
        The source of the settings, for messages; by default the argument ``settings``.

    Raises
    ------
    HyparError
        If a key is unknown or ambiguous, or one of an array that is not there.
    InputError
        If a value is wrong, as in a file.
    """
    where = where or argument("settings")
    if not isinstance(settings, Mapping):
        raise HyparError(f"{where} should be a mapping, got {shown(settings)}")
    # As in a file, since a plan or a table's row keeps it.
    check_values(dict(settings), where)
    whole = {"network": network, "array": array}
    contents: dict[str, Any] = {
        what: part.description() for what, part in whole.items() if part is not None
    }
    paths = {path: at for what in contents for path, at in _paths(contents[what], (what,))}
    located: dict[str, Location] = {}
    try:
        for key in settings:
            if not isinstance(key, str):
                raise HyparError(f"a key should be a string, got {shown(key)}")
            path, at = _location(key, paths, contents)
            if path in located:
                raise HyparError(f"{path!r} is set twice")
            located[path] = at
    except HyparError as error:
        raise InputError(error.message, file=where) from None
    if _TOKENS in located and network is not None:
        # Tables of positions follow the sequences.
        tokens = settings[list(settings)[list(located).index(_TOKENS)]]
        try:
            contents["network"] = with_tokens(network, tokens).description()
        except HyparError as error:
            raise InputError(error.message, file=where) from None
    for value, at in zip(settings.values(), located.values(), strict=True):
        _set(contents, at, value)
    said = list(zip(located.items(), settings.values(), strict=True))
    for what, content in contents.items():
        texts = [
            f"{path} = {printable(str(value))[:40]}" for (path, at), value in said if at[0] == what
        ]
        if not texts:
            continue
        content["name"] += f" ({', '.join(texts)})"
        if what == "network":
            assert network is not None
            before, network = network, validate(Network, with_counts(content, Path()), file=where)
            remarks = updated_remarks(before, network)
            if remarks != (network.remarks or ()):
                described = network.description()
                del described["remarks"]
                described |= {"remarks": remarks} if remarks else {}
                network = validate(Network, described)
        else:
            array = validate(Array, content, file=where)
    written = {"network": network and network.description(), "array": array and array.description()}
    columns: dict[str, Any] = {}
    for path, at in located.items():
        name, value = _column(path, _get(written, at))
        if name in columns:
            raise InputError(f"{path!r} would be a second column {name!r}", file=where)
        columns[name] = value
    return Changed(network, array, columns)


def keys(described: Network | Array) -> list[str]:
    """Return the keys of a network or an array that can be set, in full."""
    return [path for path, _ in _paths(described.description(), ())]


def keys_of_columns(described: Network | Array) -> dict[str, str]:
    """Return the keys of a network or an array by the names of their columns in a table."""
    content = described.description()
    return {_column(path, _get(content, at))[0]: path for path, at in _paths(content, ())}


def _paths(
    content: Any, at: Location, names: tuple[str, ...] = ()
) -> Iterator[tuple[str, Location]]:
    """Yield all keys below a value, those of lists of named tables by their names."""
    entries: list[tuple[str, str | int]] = []
    if isinstance(content, dict):
        entries = [(key, key) for key in content if key not in _FIXED]
    elif isinstance(content, list) and all(isinstance(one, dict) for one in content):
        entries = [
            (one["name"], n) for n, one in enumerate(content) if isinstance(one.get("name"), str)
        ]
    for name, key in entries:
        yield ".".join((*names, name)), (*at, key)
        yield from _paths(content[key], (*at, key), (*names, name))


def _location(
    key: str, paths: Mapping[str, Location], contents: Mapping[str, Any]
) -> tuple[str, Location]:
    """Return a key in full, and its location; a key that a file leaves out is below one it has.

    Raises
    ------
    HyparError
        If there is no such key, or there are several.
    """
    parts = key.split(".")
    for cut in range(len(parts), 0, -1):
        head, rest = ".".join(parts[:cut]), tuple(parts[cut:])
        matches = [head] if head in paths else [path for path in paths if path.endswith(f".{head}")]
        if len(matches) > 1 and not rest:
            some = ", ".join(matches[:_LISTED]) + ("" if len(matches) <= _LISTED else ", ...")
            raise HyparError(f"{key!r} should be a single key, and is one of {some}")
        if len(matches) == 1:
            at = paths[matches[0]]
            # The document's class decides whether a table has such a key.
            if not rest or isinstance(_get(contents, at), dict):
                return ".".join((matches[0], *rest)), (*at, *rest)
            break
    models: dict[str, type[Network | Array]] = {"network": Network, "array": Array}
    for what, model in models.items():
        top = {field.alias or name for name, field in model.model_fields.items()} - _FIXED
        if parts[0] not in top or parts[0] in paths:
            continue
        if what not in contents:
            needed = f"an array: {ARRAY}" if what == "array" else "a network"
            raise HyparError(f"{key!r} is a key of {needed}")
        return key, (what, *parts)
    # Keys of single layers are too many to list, unless one of them was meant.
    of_layers = isinstance(_get(contents, paths[parts[0]]) if parts[0] in paths else None, list)
    candidates = [
        path
        for path, at in paths.items()
        if (at[1] == parts[0] and len(at) == 3 if of_layers else not _is_of_an_entry(at))
    ]
    raise HyparError(unknown("key", key, candidates))


def _is_of_an_entry(at: Location) -> bool:
    return any(isinstance(part, int) for part in at)


def _get(content: Any, at: Location) -> Any:
    """Return the value at a location; None if there is none."""
    for part in at:
        if isinstance(content, list):
            content = content[part] if isinstance(part, int) and part < len(content) else None
        else:
            content = content.get(part) if isinstance(content, dict) else None
    return content


def _set(content: Any, at: Location, value: object) -> None:
    """Set the value at a location; missing tables are created."""
    *parents, last = at
    for part in parents:
        inner = content.setdefault(part, {}) if isinstance(content, dict) else content[part]
        if not isinstance(inner, dict | list):  # a value was set above this one
            return
        content = inner
    content[last] = value


def _column(path: str, value: Any) -> tuple[str, Any]:
    """Return a key's column in a table, and its cell."""
    name = re.sub(r"\W+", "_", path)
    quantity = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if quantity is not None:
        amount = Fraction(quantity[1])
        cell = int(amount) if amount.denominator == 1 else float(amount)
        return f"{name}_{UNITS[quantity[2]]}", cell
    is_cell = value is None or isinstance(value, bool | int | float | str)
    return name, value if is_cell else str(value)
