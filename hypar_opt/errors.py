"""The errors that a caller can act on. Each one is a single line for a person."""

from __future__ import annotations


class HyparError(Exception):
    """Something the caller asked for cannot be done; the message says what would be right.

    ``exit_status`` is what the command line ends with: 1 where a check that a command exists
    to make failed, 2 where the input or the call is wrong, 3 where limits leave no answer, 4
    where it is proven that there is none.
    """

    exit_status = 2


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
