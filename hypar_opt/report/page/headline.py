"""The page's first numbers, compared with Data Parallelism in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.units import format_bytes, format_joules, format_ratio, format_seconds

if TYPE_CHECKING:
    from hypar_opt.report.page.contents import Contents
    from hypar_opt.simulator.result import StepResult
    from hypar_opt.studies.simulation import Steps


def headline(contents: Contents) -> list[tuple[str, str, str]]:
    """Return the names of time, bytes and energy of a step, their amounts and comparisons."""
    step, reading = contents.steps["plan"], contents.plan.cost.reading
    names, values = (
        ["step", "exchanged"],
        [format_seconds(step.seconds), format_bytes(_moved(step))],
    )
    # An array need not have energies.
    if step.joules is not None:
        names.append("energy")
        values.append(format_joules(step.joules))
    # A reading may favour a plan that loses when run, so both comparisons are shown.
    by_reading = _comparisons((step, contents.steps["data"]))
    comparisons = by_reading
    if contents.executed is not None:
        comparisons = [
            f"{by_own} by the reading {reading}; when run, {by_run}"
            for by_own, by_run in zip(by_reading, _comparisons(contents.executed), strict=True)
        ]
    # No step in `executed` although the reading differs: output parallelism has no run.
    elif reading != "executed":
        unknown = "no run of output parallelism is known"
        comparisons = [f"{by_own} by the reading {reading}; {unknown}" for by_own in by_reading]
    return list(zip(names, values, comparisons, strict=True))


def _comparisons(steps: Steps) -> list[str]:
    """Compare a plan's step with that of Data Parallelism: time, bytes and, if known, energy."""
    own, data = steps
    comparisons = [
        _comparison(data.seconds, own.seconds, "faster", "slower"),
        _comparison(_moved(data), _moved(own), "fewer bytes", "more bytes"),
    ]
    if own.joules is not None and data.joules is not None:
        comparisons.append(_comparison(data.joules, own.joules, "less energy", "more energy"))
    return comparisons


def _moved(step: StepResult) -> float:
    return sum(traffic.bytes for traffic in step.levels)


def _comparison(data: float, own: float, better: str, worse: str) -> str:
    """Compare with Data Parallelism in words, to three digits."""
    if data == own or (own and format_ratio(data / own) == "1"):
        return "as with Data Parallelism"
    # Only bytes can be 0 where Data Parallelism's are not: any step takes time and energy.
    if not own:
        return "Data Parallelism exchanges " + format_bytes(data)
    if data > own:
        return f"{format_ratio(data / own)}× {better} than Data Parallelism"
    times = f"{format_ratio(own / data)}× " if data else ""
    return f"{times}{worse} than Data Parallelism"
