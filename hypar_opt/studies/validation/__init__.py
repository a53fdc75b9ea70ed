"""Calculated training steps beside measured ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from hypar_opt.checked import checked
from hypar_opt.errors import printable
from hypar_opt.hardware.array import Array
from hypar_opt.results import Column, Columns, Documented, Results
from hypar_opt.search.result import Progress, silent
from hypar_opt.studies.validation.calculated import Calculator, NotModelledError
from hypar_opt.studies.validation.machines import MachineSet, known_machines, read_constants
from hypar_opt.studies.validation.rows import measured_bytes, measured_seconds, read_steps
from hypar_opt.units import COUNT, SECONDS, format_bytes, format_signed, format_tenths


@dataclass(frozen=True)
class ValidatedStep:
    """A measured step, and the calculated one.

    Parameters
    ----------
    name, of_set
        As in the file.
    measured
        Seconds; None where the source has none.
    seconds
        Calculated; None where the step is not modelled.
    measured_bytes, bytes
        Of one accelerator's memory, as far as they are known.
    why
        Why it is not.
    """

    name: str
    of_set: str
    measured: float | None
    seconds: float | None
    why: str | None = None
    measured_bytes: int | str | None = None
    bytes: int | None = None

    @property
    def error(self) -> float | None:
        """Calculated over measured, less one."""
        if self.seconds is None or self.measured is None:
            return None
        return self.seconds / self.measured - 1

    @property
    def memory_error(self) -> float | None:
        """Calculated bytes over measured ones, less one."""
        if self.bytes is None or not isinstance(self.measured_bytes, int):
            return None
        return self.bytes / self.measured_bytes - 1


@dataclass(frozen=True)
class SetErrors:
    """The errors of a set's steps: the means of absolute values and of signed ones.

    Parameters
    ----------
    memory
        The mean of absolute errors of bytes; None where no memory was measured.
    """

    name: str
    source: str
    steps: int
    modelled: int
    mean: float | None
    median: float | None
    bias: float | None
    largest: float | None
    memory: float | None = None


def _have_bytes(steps: Sequence[ValidatedStep]) -> bool:
    return any(step.measured_bytes for step in steps)


def _have_memory(sets: Sequence[SetErrors]) -> bool:
    return any(errors.memory is not None for errors in sets)


SETS = Columns(
    Column("name", "set"),
    "source",
    Column("steps", "steps", COUNT),
    Column("modelled", "modelled", COUNT),
    Column("mean", "mean error", format_tenths),
    Column("median", "median", format_tenths),
    Column("bias", "bias", format_signed),
    Column("largest", "largest", format_tenths),
    Column("memory", "mean of memory", format_tenths, shown=_have_memory),
    entry=SetErrors,
)
"""The columns of a set's errors."""


@dataclass(frozen=True, repr=False)
class Validation(Documented, Results[ValidatedStep]):
    """Calculated steps beside measured ones, in the order of the file.

    Parameters
    ----------
    sets
        The errors of each set.
    left_aside
        The file's columns that are not read.
    """

    row_columns = Columns(
        Column("id", "step", of="name"),
        Column("set", of="of_set"),
        Column("measured", "measured", SECONDS, path="measured.seconds"),
        Column("calculated", "calculated", SECONDS, "seconds", "calculated?.seconds"),
        Column("error", "error", format_signed),
        Column("measured_bytes", "memory", format_bytes, path="measured.bytes", shown=_have_bytes),
        Column(
            *("calculated_bytes", "calculated", format_bytes, "bytes", "calculated?.bytes"),
            shown=_have_bytes,
        ),
        "why",
        entry=ValidatedStep,
    )
    _OF_DOCUMENT = row_columns.select(
        *("id", "set", "calculated", "calculated_bytes", "measured", "measured_bytes"),
        *("error", "why"),
    )
    contents = Columns(
        Column("rows", of="entries", type=_OF_DOCUMENT),
        Column("sets", type=SETS),
        "left_aside",
    )

    sets: tuple[SetErrors, ...]
    left_aside: tuple[str, ...] = ()

    @property
    def mean(self) -> float | None:
        """The mean of the absolute errors of all steps; None where none is modelled."""
        errors = [abs(step.error) for step in self if step.error is not None]
        return fmean(errors) if errors else None

    def __repr__(self) -> str:
        modelled = sum(errors.modelled for errors in self.sets)
        return f"<Validation of {len(self)} measured steps: {modelled} are modelled>"


@checked
def validate(
    file: str | Path | None = None,
    *,
    constants: str | Path | Array | None = None,
    progress: Progress = silent,
    each: Callable[[ValidatedStep], None] | None = None,
) -> Validation:
    """Calculate measured training steps, and compare.

    Parameters
    ----------
    file
        Measured steps; None for those of the package, which are published.
    constants
        A file with constants of machines, which add to those of the package; or an array, its file
        or a preset, on which all steps ran: their column ``machine`` is then left aside.
    progress
        Called with the steps done and all steps.
    each
        Called with each step as soon as it is calculated.

    Raises
    ------
    InputError
        Naming the file, the row and the key, and what would be right.
    """
    steps = read_steps(file)
    machines, array = (
        MachineSet(known_machines()) if constants is None else read_constants(constants)
    )
    total = sum(len(step_set.rows) for step_set in steps.sets)
    validated: list[ValidatedStep] = []
    errors, calculator = [], Calculator(Path() if file is None else Path(file).parent)
    for step_set in steps.sets:
        first = len(validated)
        for row in steps.rows_of(step_set):
            seconds, memory_bytes, why = None, None, None
            try:
                ran = row if array is None else {**row, "machine": array}
                seconds, memory_bytes = calculator.step(ran, machines)
            except NotModelledError as error:
                why = printable(error.message)
            of_row = str(row["id"]), step_set.name, measured_seconds(row)
            validated.append(
                ValidatedStep(*of_row, seconds, why, measured_bytes(row), memory_bytes)
            )
            if each is not None:
                each(validated[-1])
            progress(len(validated), total)
        errors.append(_errors(step_set.name, step_set.source, validated[first:]))
    return Validation(tuple(validated), tuple(errors), steps.left_aside)


def _errors(name: str, source: str, steps: list[ValidatedStep]) -> SetErrors:
    errors = [step.error for step in steps if step.error is not None]
    modelled = sum(step.seconds is not None for step in steps)
    if not errors:
        return SetErrors(name, source, len(steps), modelled, None, None, None, None)
    absolute = list(map(abs, errors))
    of_memory = [abs(step.memory_error) for step in steps if step.memory_error is not None]
    return SetErrors(
        *(name, source, len(steps), modelled),
        fmean(absolute),
        median(absolute),
        fmean(errors),
        max(absolute),
        fmean(of_memory) if of_memory else None,
    )
