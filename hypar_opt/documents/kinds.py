"""The kinds of files, distinguished for messages about a file of the wrong kind."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from hypar_opt.errors import InputError, worded


class _Kind(NamedTuple):
    """A kind of file.

    Parameters
    ----------
    noun
        Its name in messages.
    use
        How to pass such a file, as a message says it.
    keys
        Keys that only this kind has; a file with one of them need not state its schema.
    """

    noun: str
    use: str
    keys: frozenset[str] = frozenset()


_KINDS = {
    "network": _Kind(
        "a network file",
        worded("pass it as network", "use it as NETWORK, as in solve NETWORK"),
        frozenset({"layer", "block", "input", "model_type"}),
    ),
    "array": _Kind(
        "an array file",
        worded("pass it as array", "use --array"),
        frozenset({"accelerator", "topology", "energy"}),
    ),
    "plan": _Kind("a plan file", worded("pass it as plan", "use it as PLAN, as in simulate PLAN")),
    "certificate": _Kind("a certificate", worded("pass it as certificate", "use --certificate")),
    "sweep": _Kind("a sweep file", "use sweep", frozenset({"networks"})),
    "measured": _Kind("a file of measured steps", "use validate or calibrate", frozenset({"set"})),
    "profile": _Kind("a profile", worded("pass it as profile", "use --profile")),
}
"""By the name in a file's schema."""


def kind_of(text: str) -> str | None:
    """Return the kind of a document, such as ``array``, by its schema or keys; None if unknown."""
    try:
        data = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError):
        return None
    schema = data.get("schema")
    words = schema.split("/") if isinstance(schema, str) else ()
    if len(words) == 3 and words[0] == "hypar-opt":
        return words[1]
    if {"batch", "layer"} <= data.keys():  # a network, too, has layers, and a plan a batch
        return "profile"
    return next((name for name, kind in _KINDS.items() if kind.keys & data.keys()), None)


def check_kind(expected: str, text: str, file: str) -> None:
    """Refuse a file of another kind.

    Parameters
    ----------
    expected
        The kind that is needed, such as ``network``.

    Raises
    ------
    InputError
        With the actual kind, and how to pass such a file. A file of unknown kind is left to the
        reader of the expected kind.
    """
    kind = _KINDS.get(name := kind_of(text) or expected)
    if kind is not None and name != expected:
        raise InputError(f"this is {kind.noun}: {kind.use}", file=file)


@contextmanager
def read_as(expected: str, text: str, file: str) -> Iterator[None]:
    """Read a file in the context; if that fails because its kind is another, report the kind.

    Raises
    ------
    InputError
        That of `check_kind`, or the one that the context raised.
    """
    try:
        yield
    except InputError:
        check_kind(expected, text, file)
        raise
