"""Calculated training steps beside measured ones, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from hypar_opt.display.terminal.console import console, new_table, rows_table, table_of, texts
from hypar_opt.studies.validation import SETS
from hypar_opt.units import format_si, format_signed, format_tenths

if TYPE_CHECKING:
    from hypar_opt.studies.calibration import Calibration
    from hypar_opt.studies.installation import Installation
    from hypar_opt.studies.validation import ValidatedStep, Validation
    from hypar_opt.studies.verification import Verification

_SHOWN = 40
"""Steps that the table lists; files have all."""


def verification_view(result: Verification) -> RenderableType:
    """Show the check of a plan, or a line for each solver and search."""
    return rows_table(result.rows())


def installation_view(result: Installation) -> RenderableType:
    """Show a line for each part."""
    return rows_table([{"part": row.pop("name"), **row} for row in result.rows()])


_NUMBERS = 34
"""Characters of a line's numbers, in a table that grows."""


def step_line(step: ValidatedStep | None) -> Text:
    """Return a line of a table that grows while steps are calculated; None for its header."""
    name, *cells, error = "step", "measured", "calculated", f"{'error':>8}"
    if step is not None:
        times = (step.measured, step.seconds)
        cells = ["-" if seconds is None else format_si(seconds, "s") for seconds in times]
        name = step.name
        error = (step.why or "") if step.error is None else f"{format_signed(step.error):>8}"
    width = min(32, console().width - _NUMBERS)
    return Text(f"{name:<{width}}  {cells[0]:>10}  {cells[1]:>10}  {error}".rstrip())


def validation_view(result: Validation) -> RenderableType:
    """Show the errors of each set, and its steps where they are few."""
    if len(result) > _SHOWN:
        return sets_view(result)
    return Group(table_of(result.row_columns, result), Text(), sets_view(result))


def sets_view(result: Validation) -> RenderableType:
    """Show the errors of each set, and why steps are not modelled."""
    parts: list[RenderableType] = [table_of(SETS, result.sets)]
    reasons: dict[str, int] = {}
    for step in result:
        if step.why is not None:
            reason = step.why.rpartition(", here")[0] or step.why
            reasons[reason] = reasons.get(reason, 0) + 1
    if reasons:
        parts += [Text(), Text("Not modelled:")]
        parts += [Text(f"  {count:,}  {reason}") for reason, count in reasons.items()]
    parts.append(
        Text("\nErrors are calculated over measured, less one; means are of absolute errors.")
    )
    return Group(*parts)


def calibration_view(result: Calibration) -> RenderableType:
    """Show the fitted constants, each step before and after, and the errors."""
    errors = (
        f"Mean error {format_tenths(result.mean)} of the steps that the constants are fitted on"
    )
    if result.held_out is None:
        errors += "; too few steps to hold any out."
    else:
        errors += f"; {format_tenths(result.held_out)} of either half, fitted on the other."
    if result.tested is not None:
        compared = sum(step.error is not None for step in result.tested)
        mean = "no mean error" if result.tested.mean is None else format_tenths(result.tested.mean)
        errors += f"\n{mean} of {compared:,} other steps, on which nothing is fitted."
    return Group(
        table_of(result.row_columns, result),
        Text(),
        new_table(texts("constant", "fitted"), result.stated.items()),
        Text(f"\n{errors}"),
    )
