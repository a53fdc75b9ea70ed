"""The template's variables: the page's contents as text."""

from __future__ import annotations

from typing import Any

from hypar_opt.display.page import charts
from hypar_opt.display.page.contents import Contents
from hypar_opt.display.page.facts import facts, headline, provenance
from hypar_opt.display.page.figure import Chart
from hypar_opt.display.page.graph import graph_view
from hypar_opt.display.page.grid import grid_view
from hypar_opt.display.page.stages import memory_by_stage, stages_table
from hypar_opt.display.page.trade_offs import by_memory
from hypar_opt.units import format_bytes, format_percent

MAX_LINKS = 2**13
"""Accelerators of an array to draw: with more, links cannot be told apart."""
_TRAINING_TENSORS = "weights, gradients, the optimizer's state, feature maps and errors"


def template_values(contents: Contents) -> dict[str, Any]:
    """Return the values of the template's variables."""
    plan = contents.plan
    kind = "inference" if plan.inference else "training"
    count = plan.accelerators
    accelerators = "one accelerator" if count == 1 else f"{count:,} accelerators"
    return {
        "title": f"{plan.network.name} on {contents.array.name}",
        "subtitle": f"One {kind} step of a batch of {plan.batch:,} on {accelerators}",
        "provenance": provenance(contents),
        "headline": headline(contents),
        "facts": facts(contents),
        "grid": grid_view(contents),
        "graph": graph_view(plan),
        "note": contents.note,
        "regretted": contents.regretted,
        "stages": None if contents.staged is None else stages_table(contents.staged),
        "charts": _charts(contents),
        "without_fronts": contents.trade_offs.note,
        "untraced": contents.step.trace is None,
        "memory": _memory(contents),
        "warnings": [_sentence(warning, contents) for warning in contents.warnings],
        "command": contents.command,
        "versions": [f"{name} {version}" for name, version in plan.solver.versions.items()],
    }


def _charts(contents: Contents) -> list[Chart]:
    """Return the charts that have something to show."""
    if (staged := contents.staged) is not None:
        drawn = [charts.timeline(staged)] if staged.trace is not None else []
        return [*drawn, memory_by_stage(staged)]
    step = contents.steps["plan"]
    link_count = sum(link.count for link in step.links)
    return [
        # One accelerator has no levels and exchanges nothing.
        *([charts.by_level(contents.steps)] if contents.plan.levels else []),
        charts.by_phase(contents.steps),
        charts.by_layer(contents.plan, step),
        *([charts.by_energy(contents.steps)] if step.known_energy is not None else []),
        *([by_memory(contents.trade_offs)] if contents.trade_offs.fronts else []),
        *([charts.timeline(step)] if step.trace is not None else []),
        *([charts.links(contents.array, step)] if 0 < link_count <= MAX_LINKS else []),
    ]


def _memory(contents: Contents) -> dict[str, Any]:
    step = contents.step
    share = step.memory / step.capacity
    return {
        "needed": format_bytes(step.memory),
        "fit": step.device_memory.fit if step.device_memory else "",
        "capacity": format_bytes(step.capacity),
        # The bar ends at its frame; the percentage says by how much it is exceeded.
        "share": min(share, 1.0),
        "percent": format_percent(share, 1),
        # Inference has no gradients, errors or optimizer state.
        "holds": "weights and feature maps" if contents.plan.inference else _TRAINING_TENSORS,
        "vaults": f"{words:,}" if (words := getattr(step, "vault_words", 0)) else "",
    }


def _sentence(warning: str, contents: Contents) -> str:
    """Return a warning as a sentence; a name keeps its case even as the first word."""
    named = warning.startswith((contents.array.name, contents.plan.network.name))
    return (warning if named else warning[:1].upper() + warning[1:]) + "."
