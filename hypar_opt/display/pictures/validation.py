"""Calculated over measured seconds: a dot for each step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypar_opt.display.pictures.canvas import FAINT, add_legend, new_figure, style
from hypar_opt.units import format_si

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hypar_opt.studies.validation import Validation


@style()
def validated_steps(result: Validation) -> Figure:
    """Draw each modelled step by its measured and calculated seconds, on logarithmic axes."""
    figure = new_figure(4.6, 4.4, layout="constrained")
    axes = figure.subplots()
    steps = [step for step in result if step.error is not None]
    handles = []
    for own in result.sets:
        pairs = [(step.measured, step.seconds) for step in steps if step.of_set == own.name]
        if pairs and own.mean is not None:
            label = f"{own.name}: {100 * own.mean:.1f} %"
            measured, calculated = zip(*pairs, strict=True)
            handles.append(axes.scatter(measured, calculated, s=9, alpha=0.7, label=label))
    ends = [value for step in steps for value in (step.measured or 0, step.seconds or 0)]
    if ends:
        line = (min(ends) / 1.3, max(ends) * 1.3)
        axes.plot(line, line, color=FAINT, zorder=0)
        axes.set(xscale="log", yscale="log", xlim=line, ylim=line)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda seconds, _: format_si(seconds, "s"))
        axis.set_minor_formatter(lambda *_: "")
    axes.set(xlabel="measured", ylabel="calculated", aspect="equal")
    add_legend(figure, "Seconds of a training step, and the mean error", handles)
    return figure
