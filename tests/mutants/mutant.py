"""One mutant: a change of the package that makes it wrong, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutant:
    """A change of one place in the package.

    Parameters
    ----------
    name
        What is wrong, in words.
    file
        In the package, without ``.py``.
    old, new
        The text that stands there once, and the text in its place.
    tests
        In ``tests``: files, or tests of one, that must fail; of an equivalent mutant those that
        hold all the same.
    equivalent
        Why nothing can tell the mutant from the package; empty where tests must.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""

    @property
    def path(self) -> Path:
        return Path("hypar_opt", f"{self.file}.py")

    def mutated(self, source: str) -> str:
        """Return the file's text with the change.

        Raises
        ------
        ValueError
            If the former text does not stand there exactly once.
        """
        count = source.count(self.old)
        if count != 1:
            raise ValueError(f"{self.path}: {self.old!r} is there {count} times")
        return source.replace(self.old, self.new)

    def test_paths(self) -> list[str]:
        return [
            f"tests/{test.replace('::', '.py::', 1)}" if "::" in test else f"tests/{test}.py"
            for test in self.tests
        ]
