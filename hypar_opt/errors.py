"""The errors that a caller can act on. Each one is a single line for a person.

A message names an argument as its reader writes it: ``level_weights`` to a Python caller,
``--level-weights`` to somebody at a shell. `argument` puts both into the message; `str` reads
the one, `HyparError.for_shell` the other.
"""

from __future__ import annotations

import re
from typing import Self

# Private-use characters, which no file, name or option may hold: they are not printable.
_ARGUMENT = re.compile("\ue000(.*?)\ue001(.*?)\ue002", re.DOTALL)
_OPTIONS = {"parameters": "solver-option", "log": "solver-log", "export": "export-model"}
"""Options of the command line that are not called as their argument is."""


def argument(name: str, value: object = None, *, example: str = "") -> str:
    """Return an argument for a message: ``cost='time'`` and, at a shell, ``--cost time``.

    Parameters
    ----------
    name
        As a Python caller writes it; of a constraint ``constraints.memory``, at a shell
        ``--memory``.
    value
        What it is set to; True of a flag, None to name the argument alone.
    example
        What may follow the option at a shell, as ``NAME|FILE``.
    """
    word = name.rpartition(".")[2]
    option = "--" + _OPTIONS.get(word, word).replace("_", "-")
    python = name if value is None else f"{name}={value!r}"
    if value is not None and value is not True:
        option += f" {value}"
    if example:
        option += f" {example}"
    return worded(python, option)


def worded(python: str, shell: str) -> str:
    """Return a part of a message in the words of a Python caller, and in those of a shell."""
    return f"\ue000{python}\ue001{shell}\ue002"


class Sentence(str):
    """A sentence for a person, as a warning; of its marked text it is what a Python caller reads.

    ``for_shell`` is the same in the words of a shell; a text made from a sentence, as by
    formatting, has lost it.
    """

    for_shell: str

    def __new__(cls, marked: str) -> Self:
        sentence = super().__new__(cls, _ARGUMENT.sub(r"\1", marked))
        sentence.for_shell = _ARGUMENT.sub(r"\2", marked)
        return sentence


def shell_words(text: str) -> str:
    """Return a text as a shell's user reads it."""
    return text.for_shell if isinstance(text, Sentence) else text


ARRAY = worded(
    "array=NAME or a path (hypar_opt.hardware.arrays.names())", "--array NAME|FILE (list arrays)"
)
"""How to name an array, for messages."""


class HyparError(Exception):
    """Something the caller asked for cannot be done; the message says what would be right.

    ``exit_status`` is what the command line ends with: 1 where a check that a command exists
    to make failed, 2 where the input or the call is wrong, 3 where limits leave no answer, 4
    where it is proven that there is none.
    """

    exit_status = 2

    def __str__(self) -> str:
        return _ARGUMENT.sub(r"\1", self.message)

    @property
    def message(self) -> str:
        """The line with its arguments still marked, to be part of another message."""
        return str(self.args[0]) if self.args else ""

    @property
    def for_shell(self) -> str:
        """The line with its arguments as the command line's options."""
        return _ARGUMENT.sub(r"\2", self.message)


class InputError(HyparError):
    """A file or a description is not what it should be.

    Parameters
    ----------
    problem
        What is wrong, and what would be right.
    where
        The place inside the description, as in ``layer 'conv1', kernel``.
    file
        The file it was read from, where there is one.
    """

    def __init__(self, problem: str, *, where: str = "", file: str | None = None) -> None:
        super().__init__(": ".join(part for part in (file, where, problem) if part))
        self.problem = problem
        self.where = where
        self.file = file


class UnknownNameError(HyparError):
    """A name stands in no table; the message suggests the nearest."""

    def __init__(self, kind: str, name: object, known: list[str]) -> None:
        import difflib

        near = difflib.get_close_matches(
            str(name).lower(), [k.lower() for k in known], n=1, cutoff=0.5
        )
        hint = f"did you mean {near[0]}? " if near else ""
        super().__init__(f"unknown {kind} {name!r}: {hint}known: {', '.join(known)}")


class RefusedError(HyparError):
    """A solver does not take this problem."""


class WrongClaimError(HyparError):
    """A solver's claim and its plan, priced again from the table, disagree."""

    exit_status = 1


class NoAnswerError(HyparError):
    """No answer within the limits that were given.

    Parameters
    ----------
    stopped_by
        The limit that came first: ``time limit``, ``solver option``, ...
    """

    exit_status = 3

    def __init__(self, message: str, stopped_by: str = "limits") -> None:
        super().__init__(message)
        self.stopped_by = stopped_by


class InfeasibleError(HyparError):
    """It is proven that no plan keeps to the constraints."""

    exit_status = 4


class CheckFailedError(HyparError):
    """A check that the command exists to make failed."""

    exit_status = 1
