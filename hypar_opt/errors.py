"""Errors that a caller can act on; each message is a single line.

A message names an argument as its reader would write it: ``level_weights`` for a Python caller,
``--level-weights`` at a shell. `argument` puts both forms into the message; `str` gives the first,
`HyparError.for_shell` the second.
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

# Private-use characters, which no file, name or option may hold: they are not printable.
_ARGUMENT = re.compile("\ue000(.*?)\ue001(.*?)\ue002", re.DOTALL)
_OPTIONS = {
    "parameters": "solver-option",
    "log": "solver-log",
    "export": "export-model",
    "settings": "set",
    "start": "warm-start",
}
"""Command-line options whose name differs from that of their argument."""


def argument(name: str, value: object = None, *, example: str = "") -> str:
    """Return an argument for a message: ``cost='time'`` and, at a shell, ``--cost time``.

    Parameters
    ----------
    name
        As a Python caller writes it; a constraint is ``constraints.memory``, and ``--memory``
        at a shell.
    value
        Its value; True for a flag, None to name the argument alone.
    example
        The form of the option's value at a shell, such as ``NAME|FILE``.
    """
    option = argument_option(name.rpartition(".")[2])
    python = name if value is None else f"{name}={value!r}"
    if value is not None and value is not True:
        option += f" {value}"
    if example:
        option += f" {example}"
    return worded(python, option)


def argument_option(name: str) -> str:
    """Return the command-line option of an argument: ``--level-weights``."""
    return "--" + _OPTIONS.get(name, name).replace("_", "-")


def worded(python: str, shell: str) -> str:
    """Return a part of a message in two wordings, for a Python caller and for a shell."""
    return f"\ue000{python}\ue001{shell}\ue002"


class Sentence(str):
    """A warning's text in the wording of a Python caller.

    ``for_shell`` is the same text for a shell. Strings derived from a sentence, as by formatting,
    do not have it.
    """

    for_shell: str

    def __new__(cls, marked: str) -> Self:
        sentence = super().__new__(cls, _ARGUMENT.sub(r"\1", marked))
        sentence.for_shell = _ARGUMENT.sub(r"\2", marked)
        return sentence


def printable(text: str) -> str:
    """Return a text in one line, with escapes for what is not printable."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def excerpt(value: object) -> str:
    """Return a value as Python writes it, in one line of at most 60 characters, for a message."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # more digits than Python prints
        return "a value too large to show"
    return text if len(text) <= 60 else text[:57] + "..."


def shell_words(text: str) -> str:
    """Return a text in the wording for a shell, if it has one."""
    return text.for_shell if isinstance(text, Sentence) else text


ARRAY = worded(
    "array=NAME or a path (hypar_opt.hardware.arrays.names())", "--array NAME|FILE (list arrays)"
)
"""How to name an array, for messages."""


class HyparError(Exception):
    """A request that cannot be fulfilled; the message says what would be right.

    ``exit_status`` is the command line's: 1 if a check failed that is the purpose of the
    command, 2 if the input or the call is wrong, 3 if limits leave no answer, 4 if it is
    proven that there is none.
    """

    exit_status = 2

    def __str__(self) -> str:
        return printable(_ARGUMENT.sub(r"\1", self.message))

    def __reduce__(self) -> tuple[Any, ...]:
        # Without `__init__`, whose parameters a subclass chooses: a process pool hangs on an error
        # that cannot be unpickled.
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]

    @property
    def message(self) -> str:
        """The message with both wordings still marked, to become part of another message."""
        return str(self.args[0]) if self.args else ""

    @property
    def for_shell(self) -> str:
        """The message in the wording for a shell."""
        return printable(_ARGUMENT.sub(r"\2", self.message))


class InputError(HyparError):
    """A file or a description is invalid.

    Parameters
    ----------
    problem
        What is wrong, and what would be right.
    where
        The location in the description, such as ``layer 'conv1', kernel``.
    file
        The file that it was read from, if any.
    """

    def __init__(self, problem: str, *, where: str = "", file: str | None = None) -> None:
        super().__init__(": ".join(part for part in (file, where, problem) if part))
        self.problem = problem
        self.where = where
        self.file = file


_SHORT = 2
"""Names of up to this many letters are too short to be compared by most of their letters."""


def unknown(kind: str, name: object, known: list[str]) -> str:
    """Return the message about an unknown name, which suggests the nearest known one."""
    near = nearest(name, known)
    hint = f"did you mean {near}? " if near else ""
    return f"unknown {kind} {name!r}: {hint}known: {', '.join(known)}"


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to an unknown one; None if none is similar.

    Similar are a name with a wrong letter or two, and one that was cut short.
    """
    # Imported late: most runs suggest no name.
    import difflib

    typed, names = str(name).lower(), {spelling.lower(): spelling for spelling in known}
    # One wrong letter of two is half of the name.
    cutoff = 0.6 if len(typed) > _SHORT else 0.5
    near = difflib.get_close_matches(typed, names, n=1, cutoff=cutoff)
    if not near and len(typed) > _SHORT:
        near = [spelling for spelling in names if spelling.startswith(typed)]
    return names[near[0]] if near else None


class UnknownNameError(HyparError):
    """An unknown name; the message suggests the nearest known one."""

    def __init__(self, kind: str, name: object, known: list[str]) -> None:
        super().__init__(unknown(kind, name, known))
        self.kind, self.name, self.known = kind, name, known


class RefusedError(HyparError):
    """A solver does not accept this problem."""


class WrongClaimError(HyparError):
    """A solver's claim contradicts the cost of its plan, recomputed from the table."""

    exit_status = 1


class Need(NamedTuple):
    """The memory that a plan needs, and that a device has, in bytes.

    ``plan`` describes its splits and training in words.
    """

    bytes: int
    capacity: int
    plan: str


class NoAnswerError(HyparError):
    """No answer within the limits that were given.

    Parameters
    ----------
    stopped_by
        The limit that came first: ``time limit``, ``solver option``, ...
    least
        If no plan that fits a device was found, the need of the smallest plan.
    """

    exit_status = 3

    def __init__(self, message: str, stopped_by: str = "limits", least: Need | None = None) -> None:
        super().__init__(message)
        self.stopped_by = stopped_by
        self.least = least


class InfeasibleError(HyparError):
    """It is proved that no plan satisfies the constraints.

    Parameters
    ----------
    least
        If nothing fits a device, the need of the smallest plan that was found.
    """

    exit_status = 4

    def __init__(self, message: str, least: Need | None = None) -> None:
        super().__init__(message)
        self.least = least


class CheckFailedError(HyparError):
    """A check failed that is the command's purpose, as in ``verify``."""

    exit_status = 1
