"""The load of each link, drawn on the array's topology."""

from __future__ import annotations

from hypar_opt.display.figures.topologies import link_loads
from hypar_opt.display.page.figure import Chart, chart_of
from hypar_opt.display.trees import tree_places
from hypar_opt.hardware.array import Array
from hypar_opt.simulator.result import StepResult
from hypar_opt.units import format_bytes, format_si

_MAX_ROWS = 24


def links(array: Array, step: StepResult) -> Chart:
    """Draw every link, coloured by the share of the step that it is at capacity."""
    rows = _most_loaded(step)
    unlisted = len(step.links) - len(rows)
    carry = "more are full for no longer" if rows else "carry nothing"
    return chart_of(
        link_loads(array, step),
        "links",
        "What the links carry",
        "Wider links have more bandwidth. A link is full for as long as its bytes take at its"
        " full bandwidth, in its busier direction; it is busy while any byte crosses it.",
        ("link", "bytes", "busy", "full", "of the step"),
        rows,
        more=f"{unlisted:,} links {carry}" if unlisted else "",
        # Grids and circles keep their shape; a tree may be stretched to the page's width.
        stretched=tree_places(array.interconnect) is not None,
    )


def _most_loaded(step: StepResult) -> list[tuple[str, ...]]:
    """Return the rows of the links that are at capacity longest, without idle links."""
    busiest = sorted(step.links, key=lambda link: -link.seconds_at_capacity)
    return [
        (
            link.link,
            format_bytes(link.bytes),
            format_si(link.busy, "s"),
            format_si(link.seconds_at_capacity, "s"),
            f"{link.seconds_at_capacity / step.seconds if step.seconds else 0:.1%}",
        )
        for link in busiest[:_MAX_ROWS]
        if link.bytes
    ]
